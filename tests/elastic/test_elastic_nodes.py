"""Supervisor and agents over real sockets, with processes that are no ranks."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ettr.elastic.supervision.agent import AgentReport, serve_node
from ettr.elastic.supervision.channel import Channel, ChannelClosedError
from ettr.elastic.supervision.cluster import node_setting
from ettr.elastic.supervision.node_identity import Meeting, NodeIdentity
from ettr.elastic.supervision.nodes import LocalNode, NodePool
from ettr.errors import UsageError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
WAIT_S = 20.0


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

    def agent(self, name: str, *, n_ranks: int = 2, token: str = "", join_s: float = 5.0) -> None:
        def serve() -> None:
            self.reports[name] = serve_node(
                SLEEPER,
                n_ranks,
                self.meeting,
                NodeIdentity(name),
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
    process, end = run.pool.alive["there"].start("w7")
    run.until(lambda: process.pid)
    assert is_running(process.pid)
    assert process.poll() is None
    process.kill()
    run.until(end.ending)
    run.until(lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL
    run.pool.dismiss(finished=True, reason="")
    run.threads[0].join(WAIT_S)
    assert run.reports["there"].finished


def test_a_node_that_leaves_takes_its_processes_along(run: Run) -> None:
    run.agent("there")
    run.until(lambda: "there" in run.pool.alive)
    process, _ = run.pool.alive["there"].start("w0")
    run.until(lambda: process.pid)
    pid = process.pid
    run.pool.remote[0].channel.close()  # the connection breaks
    run.until(lambda: process.poll() is not None)
    run.until(lambda: not is_running(pid))
    # and comes back as a node without processes
    run.until(lambda: "there" in run.pool.alive and run.pool.alive["there"].alive)
    assert "there is lost" in " ".join(run.events)


def test_processes_end_before_the_supervisor_gives_their_slots_away() -> None:
    run = Run(timeout_s=2.0)
    run.agent("there", join_s=0.5)
    run.until(lambda: "there" in run.pool.alive)
    process, _ = run.pool.alive["there"].start("w0")
    run.until(lambda: process.pid)
    begin_s = time.monotonic()
    # the network is cut: the supervisor hears nothing more, and answers nothing
    while is_running(process.pid):
        assert time.monotonic() - begin_s < WAIT_S
        time.sleep(0.01)
    fenced_s = time.monotonic() - begin_s
    assert process.poll() is None  # the supervisor does not know yet
    assert fenced_s < 2.0
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
