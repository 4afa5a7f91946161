"""Supervisor and agents over real sockets, with processes that are no ranks."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from ettr.elastic.agent import AgentReport, node_setting, serve_node
from ettr.elastic.handshake import (
    Channel,
    ChannelClosedError,
    Meeting,
    Message,
    NodeIdentity,
    proof,
    with_interface,
)
from ettr.elastic.nodes import (
    LocalNode,
    NodePool,
    Roster,
    SupervisorOptions,
    Worker,
    WorkerState,
)
from ettr.elastic.rendezvous import PROTOCOL, Membership
from ettr.elastic.supervisor import Regrouping
from ettr.errors import UsageError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
WAIT_S = 60.0


class Run:
    """A pool and its agents, each agent in a thread, with what they said."""

    def __init__(self, *, timeout_s: float = 5.0, token: str = "") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.meeting = Meeting("127.0.0.1", self.listener.getsockname()[1])
        self.events: list[str] = []
        local = LocalNode(NodeIdentity("here"), 2, SLEEPER, {})
        self.pool = NodePool(
            local,
            listener=self.listener,
            store="127.0.0.1:1",
            timeout_s=timeout_s,
            token=token,
            on_event=self.events.append,
        )
        self.reports: dict[str, AgentReport] = {}
        self.threads: list[threading.Thread] = []
        self.strangers: list[socket.socket] = []

    def agent(
        self,
        name: str,
        *,
        n_ranks: int = 2,
        token: str = "",
        join_s: float = 5.0,
        index: int | None = None,
    ) -> None:
        def serve() -> None:
            self.reports[name] = serve_node(
                SLEEPER,
                n_ranks,
                self.meeting,
                NodeIdentity(name, index),
                environment={},
                token=token,
                join_s=join_s,
            )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.threads.append(thread)

    def until(self, holds: Callable[[], object]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end_s, self.events
            self.pool.poll()
            time.sleep(0.01)

    def close(self) -> None:
        self.pool.dismiss(finished=True, reason="")
        for thread in self.threads:
            thread.join(WAIT_S)
        for connection in self.strangers:
            connection.close()


@pytest.fixture
def run() -> Iterator[Run]:
    one = Run()
    yield one
    one.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_agent_starts_kills_and_reports_processes(run: Run) -> None:
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)
    process = run.pool.alive["there"].start("w7")
    run.until(lambda: process.pid)
    assert is_running(process.pid)
    assert process.poll() is None
    process.kill()
    run.until(process.ending)
    run.until(lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL
    run.pool.dismiss(finished=True, reason="")
    run.threads[0].join(WAIT_S)
    assert run.reports["there"].finished


def test_a_node_that_leaves_takes_its_processes_along(run: Run) -> None:
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)
    process = run.pool.alive["there"].start("w0")
    run.until(lambda: process.pid)
    pid = process.pid
    run.pool.remote[0].channel.close()  # the connection breaks
    run.until(lambda: process.poll() is not None)
    run.until(lambda: not is_running(pid))
    # and comes back as a node without processes
    run.until(lambda: "there" in run.pool.alive and run.pool.alive["there"].alive)
    assert "there is lost" in " ".join(run.events)


def test_a_node_that_is_back_before_its_loss_is_noticed_keeps_its_name(run: Run) -> None:
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)
    first = run.pool.remote[0]
    first.channel.close()  # the agent sees the end at once; the supervisor hears the hello first
    listen, run.pool._listen_to = run.pool._listen_to, lambda node: None
    run.until(lambda: run.pool._arriving)
    time.sleep(0.5)
    run.pool._listen_to = listen
    run.until(lambda: first.alive is False)
    run.until(lambda: run.pool.remote)
    assert [node.identity.name for node in run.pool.remote] == ["there"]


@pytest.mark.slow
def test_processes_end_before_the_supervisor_gives_their_slots_away() -> None:
    timeout_s = 6.0
    run = Run(timeout_s=timeout_s)
    run.agent("there", join_s=0.5)
    run.until(lambda: "there" in run.pool.alive)
    process = run.pool.alive["there"].start("w0")
    run.until(lambda: process.pid)
    begin_s = time.monotonic()
    # the network is cut: the supervisor hears nothing more, and answers nothing
    while is_running(process.pid):
        assert time.monotonic() - begin_s < WAIT_S
        time.sleep(0.01)
    fenced_s = time.monotonic() - begin_s
    assert process.poll() is None  # the supervisor does not know yet
    assert fenced_s < timeout_s
    run.close()
    assert run.reports["there"].n_fenced == 1


def test_who_does_not_know_the_secret_is_refused() -> None:
    run = Run(token="sesame")  # noqa: S106
    run.agent("there", token="barley")  # noqa: S106
    run.until(lambda: run.reports)
    assert "ETTR_ELASTIC_TOKEN" in (run.reports["there"].reason or "")
    assert list(run.pool.alive) == ["here"]
    run.close()


def test_a_node_with_another_number_of_ranks_is_refused(run: Run) -> None:
    run.agent("there", n_ranks=3)
    run.until(lambda: run.reports)
    assert "same --ranks on every node" in (run.reports["there"].reason or "")


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 100_000,
        b"[" * 60_000 + b"\n",
        b"{}\n",
        b'{"kind": "hello"}\n',
        b'{"kind": "hello", "protocol": [], "ranks": {}}\n',
        b'{"kind": "ping", "number": 1}\n',
        b"",
    ],
)
def test_a_stranger_costs_a_sentence_and_nothing_else(run: Run, said: bytes) -> None:
    with socket.create_connection((run.meeting.host, run.meeting.port)) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        run.until(lambda: run.events)
    assert "refused" in run.events[0]
    assert list(run.pool.alive) == ["here"]
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)


def test_two_nodes_of_one_name_are_two_nodes(run: Run) -> None:
    run.agent("twin")
    run.until(lambda: "twin" in run.pool.alive)
    run.agent("twin")
    run.until(lambda: "twin#2" in run.pool.alive)


def test_without_a_supervisor_an_agent_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = Meeting("127.0.0.1", free.getsockname()[1])
    report = serve_node(SLEEPER, 1, meeting, NodeIdentity("n"), environment={}, join_s=0.3)
    assert "start the command again on all nodes" in (report.reason or "")


def test_a_channel_takes_messages_that_come_in_pieces() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = socket.create_connection(server.getsockname())
        channel = Channel(server.accept()[0])
    left.sendall(b'{"kind": "pi')
    assert channel.receive(1.0) == []
    left.sendall(b'ng"}\n{"kind": "pong"}\n')
    assert [message["kind"] for message in channel.receive(1.0)] == ["ping", "pong"]
    left.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(1.0)
    channel.close()


def test_srun_gives_the_nodes_and_the_meeting_place() -> None:
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "1",
        "SLURM_STEP_NUM_NODES": "3",
        "SLURM_STEP_NODELIST": "gpu[07-09]",
        "SLURM_JOB_ID": "12345",
        "SLURMD_NODENAME": "gpu08",
    }
    setting = node_setting(step)
    assert setting is not None
    assert setting.meeting == Meeting("gpu07", 22345)
    assert (setting.n_nodes, setting.node.name, setting.supervises) == (3, "gpu08", False)
    first = node_setting(step | {"SLURM_NODEID": "0", "SLURMD_NODENAME": "gpu07"})
    assert first is not None
    assert first.supervises
    with pytest.raises(UsageError, match="--ntasks-per-node=1"):
        node_setting(step | {"SLURM_LOCALID": "1"})
    assert node_setting({}) is None
    with pytest.raises(UsageError, match="--rdzv"):
        node_setting({}, n_nodes=2)


@pytest.mark.parametrize("text", ["node001", "node001:", ":29400", "n:0", "n:65536", "n:x", "n:-1"])
def test_a_meeting_place_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        Meeting.parse(text)


def test_a_process_of_a_node_that_was_lost_since_it_was_chosen_counts_as_killed(run: Run) -> None:
    run.agent("there", join_s=0.5)
    run.until(lambda: "there" in run.pool.alive)
    chosen = run.pool.node("there")
    run.pool.remote[0].lose("the cable was pulled")
    assert "there" not in run.pool.alive
    assert run.pool.node("there") is chosen
    process = run.pool.node("there").start("w0")
    assert process.poll() == -signal.SIGKILL
    assert process.ending()


def test_nodes_stand_in_the_order_of_the_scheduler() -> None:
    run = Run()
    for name, index in (("third", 2), ("first", 0), ("nowhere", None), ("second", 1)):
        run.agent(name, index=index)
        run.until(lambda name=name: name in run.pool.alive)
    assert list(run.pool.alive) == ["first", "second", "third", "here", "nowhere"]
    run.close()


def test_a_channel_works_on_a_descriptor_that_select_does_not_take() -> None:
    number = 1500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= number:
        pytest.skip("this process may not have so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number + 1), hard))
    server = socket.create_server(("127.0.0.1", 0))
    left = socket.create_connection(server.getsockname())
    right = server.accept()[0]
    try:
        channel = Channel(socket.socket(fileno=fcntl.fcntl(right, fcntl.F_DUPFD, number)))
        left.sendall(b'{"kind": "ping"}\n')
        assert [message["kind"] for message in channel.receive(1.0)] == ["ping"]
        channel.close()
    finally:
        for opened in (left, right, server):
            opened.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Stranger:
    """Connects to a pool and says what it likes, with or without the secret."""

    def __init__(self, run: Run, token: str = "") -> None:
        self.connection = socket.create_connection((run.meeting.host, run.meeting.port))
        run.strangers.append(self.connection)
        self.channel = Channel(self.connection)
        answers: list[Message] = []
        run.until(lambda: answers.extend(self.channel.receive()) or answers)
        self.nonce, self.token = str(answers[0]["nonce"]), token

    def hello(self, **changed: object) -> None:
        nonce = "0" * 32
        message = {
            "kind": "hello",
            "protocol": PROTOCOL,
            "nonce": nonce,
            "proof": proof(self.token, "agent", self.nonce, nonce),
            "node": "there",
            "index": None,
            "rack": None,
            "ranks": 2,
        }
        self.channel.send(**(message | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"node": "\x1b[2J\x1b[31mFAILED"},
        {"node": "a" * 5000},
        {"node": "two\nlines"},
        {"node": ""},
        {"node": None},
        {"node": {"name": "x"}},
        {"rack": "r\x07"},
        {"rack": 7},
        {"index": float("inf")},
        {"index": -1},
        {"index": 10**30},
        {"index": "1"},
        {"nonce": "x"},
        {"nonce": None},
        {"protocol": "\x1b[2J" * 1000},
        {"ranks": True},
        {"ranks": "2\x07" * 1000},
        {"proof": None},
        {"proof": "é" * 64},
    ],
)
def test_who_says_what_is_no_plain_name_or_number_is_refused_in_plain_words(
    run: Run, changed: dict[str, object]
) -> None:
    Stranger(run).hello(**changed)
    run.until(lambda: run.events)
    assert list(run.pool.alive) == ["here"]
    (event,) = run.events
    assert "refused" in event
    assert event.isprintable()
    assert len(event) < 400


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "ping", "number": float("inf")},
        {"kind": "ping", "number": "1" * 5000},
        {"kind": "started", "worker": "w0", "pid": float("inf")},
        {"kind": "ended", "worker": "w0", "status": None},
    ],
)
def test_a_node_that_sends_nonsense_is_lost_and_the_supervisor_goes_on(
    run: Run, said: dict[str, object]
) -> None:
    stranger = Stranger(run)
    stranger.hello()
    run.until(stranger.channel.receive)
    stranger.channel.send(kind="ping", number=1)
    run.until(lambda: "there" in run.pool.alive)
    process = run.pool.alive["there"].start("w0")
    stranger.channel.send(**said)
    run.until(lambda: process.poll() is not None)
    assert list(run.pool.alive) == ["here"]
    assert "is lost" in run.events[-1]
    run.agent("another")
    run.until(lambda: "another" in run.pool.alive)


def test_the_secret_is_not_sent_and_an_answer_serves_once() -> None:
    run = Run(token="sesame")  # noqa: S106
    overheard = Stranger(run, "sesame")
    answer = proof("sesame", "agent", overheard.nonce, "0" * 32)
    assert "sesame" not in answer
    Stranger(run).hello(proof=answer)  # with another nonce of the supervisor's
    Stranger(run).hello(proof=proof("sesame", "supervisor", overheard.nonce, "0" * 32))
    run.until(lambda: len(run.events) >= 2)
    assert list(run.pool.alive) == ["here"]
    overheard.hello()
    run.until(overheard.channel.receive)
    overheard.channel.send(kind="ping", number=1)
    run.until(lambda: "there" in run.pool.alive)
    run.close()


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([{"kind": "welcome", "store": "h:1", "lease_s": 5.0}], "not the supervisor of this run"),
        (
            [
                {"kind": "challenge", "nonce": "1"},
                {"kind": "welcome", "store": "h:1", "lease_s": 5.0, "proof": "0" * 64},
            ],
            "not the supervisor of this run",
        ),
        ([{"kind": "challenge"}, {"kind": "refused", "reason": "go\x1b[2J away"}], "go?[2J away"),
    ],
)
def test_an_agent_serves_no_one_who_does_not_know_the_secret(
    answers: list[Message], reason: str
) -> None:
    report = served_by(answers, token="sesame")  # noqa: S106
    assert reason in (report.reason or "")


@pytest.mark.parametrize(
    "welcome",
    [
        {"lease_s": "soon"},
        {"lease_s": None},
        {"lease_s": -1.0},
        {"lease_s": float("nan")},
        {"store": None},
        {"store": 5},
    ],
)
def test_an_agent_takes_a_malformed_welcome_for_none(welcome: dict[str, object]) -> None:
    report = served_by([{"kind": "challenge", "nonce": "1"}, {"kind": "welcome"} | welcome])
    assert "start the command again on all nodes" in (report.reason or "")


def test_an_agent_that_is_sent_nonsense_is_cut_off_and_ends_in_words() -> None:
    welcome = {"kind": "welcome", "store": "h:1", "lease_s": 5.0}
    pong = {"kind": "pong", "number": "many"}
    report = served_by([{"kind": "challenge", "nonce": "1"}, welcome, pong])
    assert "start the command again on all nodes" in (report.reason or "")


def served_by(answers: list[Message], *, token: str = "") -> AgentReport:
    """What an agent reports that meets a server with these answers, each to one message.

    The server takes one connection: whoever comes again finds nobody.
    """
    server = socket.create_server(("127.0.0.1", 0))
    meeting = Meeting("127.0.0.1", server.getsockname()[1])

    def serve() -> None:
        channel = Channel(server.accept()[0])
        server.close()
        agent_nonce = ""
        for answer in answers:
            known = dict(answer)
            if answer["kind"] == "welcome" and not token:
                known["proof"] = proof("", "supervisor", "1", agent_nonce)
            with suppress(ChannelClosedError):
                channel.send(**known)
                for message in channel.receive(2.0):
                    agent_nonce = str(message.get("nonce", agent_nonce))
        channel.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    report = serve_node(
        SLEEPER, 1, meeting, NodeIdentity("n"), environment={}, token=token, join_s=0.5
    )
    thread.join(WAIT_S)
    return report


def test_connections_that_say_nothing_or_little_hold_nobody(run: Run) -> None:
    silent = [socket.create_connection((run.meeting.host, run.meeting.port)) for _ in range(100)]
    slow = socket.create_connection((run.meeting.host, run.meeting.port))
    try:
        slow.sendall(b'{"kind": "hel')
        run.agent("there")
        run.until(lambda: "there" in run.pool.alive)
        run.until(lambda: any("send nothing" in event for event in run.events))
        refused = [event for event in run.events if "refused" in event]
        assert len(refused) <= 16  # of up to a hundred: they are counted, not all printed
    finally:
        for one in (*silent, slow):
            one.close()


def test_a_connection_that_has_gone_before_it_is_taken_costs_nothing(run: Run) -> None:
    for _ in range(20):
        gone = socket.create_connection((run.meeting.host, run.meeting.port))
        linger = struct.pack("ii", 1, 0)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        gone.close()  # with a reset
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)


def test_a_name_that_is_not_plain_is_refused_where_it_is_given() -> None:
    meeting = Meeting("127.0.0.1", 29400)
    with pytest.raises(UsageError, match=r"--node-name .*letters, digits"):
        node_setting({}, meeting=meeting, name="a b")
    with pytest.raises(UsageError, match="--rack"):
        node_setting({}, meeting=meeting, name="a", rack="r" * 129)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1"])
def test_ranks_that_meet_on_loopback_use_its_interface(host: str) -> None:
    assert with_interface({}, host)["GLOO_SOCKET_IFNAME"] == "lo"
    assert with_interface({"GLOO_SOCKET_IFNAME": "eth7"}, host)["GLOO_SOCKET_IFNAME"] == "eth7"


def test_many_nodes_are_restocked_in_one_pass_each(run: Run) -> None:
    """A regrouping among many nodes may not wait for spares to be counted node by node."""
    n_nodes, n_looks = 300, 0

    class Counted(str):
        def __eq__(self, other: object) -> bool:
            nonlocal n_looks
            n_looks += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [f"n{number}" for number in range(n_nodes)]
    idle = SimpleNamespace(ending=lambda: False, poll=lambda: None)
    spares = {
        f"w{i}": Worker(f"w{i}", idle, WorkerState.SPARE, 0.0, node=Counted(name))
        for i, name in enumerate(names)
    }
    roster = Roster(Membership(1, tuple(names), nodes=tuple(names)), workers=spares)
    nodes = SimpleNamespace(alive=dict.fromkeys(names, run.pool.local))
    Regrouping(None, roster, nodes, SupervisorOptions()).restock(0.0)
    assert len(roster.workers) == n_nodes
    assert n_looks <= 4 * n_nodes
