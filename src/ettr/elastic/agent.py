"""The agent of a node, which serves a supervisor on another node; and either, from one command.

Standard library only. It holds a lease (see `nodes.py`): without a confirmed ping its processes are
killed before the supervisor gives their slots away. It then tries to join again, as a spare node.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ettr.checkpoint.notice import StopNotice
from ettr.elastic.handshake import (
    Channel,
    ChannelClosedError,
    Gathering,
    Meeting,
    Message,
    NodeIdentity,
    check_node,
    check_proof,
    excerpt,
    in_slurm_step,
    listen,
    new_nonce,
    printable,
    proof,
    slurm_meeting,
    this_node,
    whole_number,
    with_interface,
)
from ettr.elastic.nodes import (
    LocalProcess,
    SupervisorOptions,
    SupervisorReport,
)
from ettr.elastic.rendezvous import ENV_PROTOCOL, ENV_STORE, PROTOCOL
from ettr.elastic.supervisor import supervise
from ettr.errors import UsageError

_POLL_S = 0.01
_PING_S = 0.5
_RETRY_S = 0.2
_CONNECT_S = 5.0
_REAP_S = 10.0


@dataclass(frozen=True, slots=True)
class AgentReport:
    """How a node's part of a run ended.

    Attributes:
        n_fenced: How often the node ended its own processes because it was cut off.
    """

    node: str
    reason: str | None
    n_fenced: int
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether every rank of the run trained to the end."""
        return self.reason is None


class _RefusedError(Exception):
    """The supervisor does not take this node."""


def serve_node(
    command: Sequence[str],
    n_ranks: int,
    meeting: Meeting,
    node: NodeIdentity,
    *,
    environment: Mapping[str, str],
    token: str = "",
    join_s: float = 600.0,
    notice: StopNotice | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
) -> AgentReport:
    """Serve a run until it has ended; returns how.

    Args:
        join_s: how long to look for the supervisor, at the start and after the connection is lost.
    """
    n_fenced = 0
    notice = notice or StopNotice(signals=())
    agent = _Agent(command, n_ranks, meeting, node, environment, token, on_event, notice)
    while True:
        try:
            agent.join(join_s)
            why, stopped = agent.serve()
            return AgentReport(node.name, why, n_fenced, stopped)
        except ChannelClosedError as error:
            n_fenced += bool(agent.processes)
            on_event(f"cut off from the supervisor ({error}): ending the processes here")
        except (_RefusedError, UsageError) as error:
            return AgentReport(node.name, str(error), n_fenced)
        finally:
            agent.end_all()


@dataclass(slots=True)
class _Agent:
    command: Sequence[str]
    n_ranks: int
    meeting: Meeting
    node: NodeIdentity
    environment: Mapping[str, str]
    token: str
    on_event: Callable[[str], None]
    notice: StopNotice
    processes: dict[str, LocalProcess] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    channel: Channel | None = None
    lease_s: float = 0.0

    def join(self, join_s: float) -> None:
        """Connect, and be welcomed."""
        end_s = time.monotonic() + join_s
        while True:
            try:
                self._take_welcome(*self._hello(end_s))
                return
            except OSError as error:  # a closed channel is one
                if time.monotonic() > end_s:
                    raise UsageError(
                        f"no supervisor at {self.meeting} within {join_s:g} s ({error}): "
                        "its node is gone or was never there; start the command again on "
                        "all nodes, and training resumes from its checkpoints"
                    ) from error
                time.sleep(_RETRY_S)

    def serve(self) -> tuple[str | None, bool]:
        """Follow orders until the run has ended; why it did not finish, and if it was stopped."""
        channel = self._connected
        confirmed_s, pinged_s, number = time.monotonic(), -_PING_S, 0
        passed_on = False
        sent_s: dict[int, float] = {}
        while True:
            now_s = time.monotonic()
            if now_s - pinged_s >= _PING_S:
                pinged_s, number = now_s, number + 1
                sent_s[number] = now_s
                channel.send(kind="ping", number=number)
            for message in channel.receive(_POLL_S):
                if message["kind"] == "pong":
                    answered_s = sent_s.pop(whole_number(message, "number"), confirmed_s)
                    confirmed_s = max(confirmed_s, answered_s)
                elif message["kind"] == "end":
                    why = None if message.get("finished") else printable(message.get("reason"))
                    return why, bool(message.get("stopped"))
                else:
                    self._obey(message)
            self._report_ends()
            if not passed_on and (asked := self.notice.asked()) is not None:
                channel.send(kind="stop", reason=f"node {self.node.name}: {asked}")
                passed_on = True
            # By when the ping was sent: the supervisor counts from when it came, which is later.
            if time.monotonic() - confirmed_s > self.lease_s:
                raise ChannelClosedError(f"no answer for {self.lease_s:g} s")

    def end_all(self) -> None:
        """Kill every process and forget it; close the connection."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, in one last call
                process.wait(_REAP_S)
            process.close()
        self.processes.clear()
        self.ending.clear()
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    @property
    def _connected(self) -> Channel:
        if self.channel is None:
            raise ChannelClosedError("not connected")
        return self.channel

    def _hello(self, end_s: float) -> tuple[Message, str]:
        """What the supervisor has answered, and the proof that it is the run's."""
        address = (self.meeting.host, self.meeting.port)
        channel = self.channel = Channel(socket.create_connection(address, _CONNECT_S))
        challenge = self._answer(end_s)
        nonce, own_nonce = str(challenge.get("nonce")), new_nonce()
        if challenge["kind"] != "challenge":  # `_take_welcome` says what is wrong
            return challenge, ""
        channel.send(
            kind="hello",
            protocol=PROTOCOL,
            nonce=own_nonce,
            proof=proof(self.token, "agent", nonce, own_nonce),
            node=self.node.name,
            index=self.node.index,
            rack=self.node.rack,
            ranks=self.n_ranks,
        )
        return self._answer(end_s), proof(self.token, "supervisor", nonce, own_nonce)

    def _answer(self, end_s: float) -> Message:
        # A supervisor that is importing answers when it is ready.
        while not (answers := self._connected.receive(_CONNECT_S)):
            if time.monotonic() > end_s:
                raise ChannelClosedError("no answer")
        return answers[0]

    def _take_welcome(self, answer: Message, expected_proof: str) -> None:
        if answer["kind"] == "refused":
            raise _RefusedError(printable(answer.get("reason")))
        proven = expected_proof and check_proof(answer, expected_proof)
        if answer["kind"] != "welcome" or not proven:
            raise _RefusedError(
                f"{self.meeting} is not the supervisor of this run: set the same "
                f"ETTR_ELASTIC_TOKEN on every node"
            )
        store, lease_s = answer.get("store"), answer.get("lease_s")
        if not isinstance(store, str) or not isinstance(lease_s, int | float) or not lease_s > 0:
            raise ChannelClosedError(f"not a welcome: {excerpt(answer)}")
        self.lease_s = float(lease_s)
        self.environment = {
            **with_interface(self.environment, self.meeting.host),
            ENV_STORE: store,
            ENV_PROTOCOL: PROTOCOL,
        }
        self.on_event(f"joined the run at {self.meeting} as {printable(answer.get('node'))}")

    def _obey(self, message: Message) -> None:
        worker = str(message.get("worker"))
        if message["kind"] == "start" and worker not in self.processes:
            process = self.processes[worker] = LocalProcess(self.command, self.environment, worker)
            self._connected.send(kind="started", worker=worker, pid=process.pid)
        elif message["kind"] == "kill" and worker in self.processes:
            process = self.processes[worker]
            if process.poll() is None:
                process.kill()

    def _report_ends(self) -> None:
        for worker, process in list(self.processes.items()):
            status = process.poll()
            if status is not None:
                del self.processes[worker]
                process.close()
                self._connected.send(kind="ended", worker=worker, status=status)
            elif worker not in self.ending and process.ending():
                self.ending.add(worker)
                self._connected.send(kind="ending", worker=worker)


# -- One node of a run on several: it supervises, or serves the supervisor of another node --------

ENV_SECRET = "ETTR_ELASTIC_TOKEN"  # noqa: S105 its name


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """Which node this is, and where the nodes of the run meet."""

    node: NodeIdentity
    meeting: Meeting
    n_nodes: int
    supervises: bool | None = None


def node_setting(
    environment: Mapping[str, str],
    *,
    meeting: Meeting | None = None,
    n_nodes: int | None = None,
    name: str | None = None,
    rack: str | None = None,
) -> NodeSetting | None:
    """From what was given and, under `srun`, from the step; None: a run on this machine alone."""
    node = this_node(environment, name, rack)
    if not in_slurm_step(environment):
        if meeting is None and (n_nodes or 1) > 1:
            raise UsageError(
                f"--nnodes {n_nodes}: give --rdzv HOST:PORT too, with a host that every node "
                f"reaches; the node that has this address supervises"
            )
        if meeting is None:
            return None
        check_node(node)
        return NodeSetting(node, meeting, n_nodes or 1)
    check_node(node)
    in_step = int(environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES", "1")))
    if int(environment.get("SLURM_LOCALID", "0")) > 0:
        raise UsageError(
            "srun started `ettr elastic` more than once on this node: give "
            "--ntasks-per-node=1, and the ranks of a node as --ranks"
        )
    if meeting is not None:
        return NodeSetting(node, meeting, n_nodes or in_step)
    if in_step == 1 and (n_nodes or 1) == 1:
        return None
    first = _first_node(environment)
    meeting = slurm_meeting(environment, first)
    return NodeSetting(node, meeting, n_nodes or in_step, supervises=node.index == 0)


def run_node(
    command: Sequence[str],
    n_ranks: int,
    setting: NodeSetting,
    *,
    options: SupervisorOptions,
    environment: Mapping[str, str] | None = None,
    notice: StopNotice | None = None,
    on_event: Callable[[str], None] = lambda _text: None,
) -> SupervisorReport | AgentReport:
    """Supervise the run from this node, or serve its supervisor; returns how it ended."""
    environment = dict(os.environ if environment is None else environment)
    token = environment.get(ENV_SECRET, "")
    options = replace(options, n_nodes=setting.n_nodes)
    listener = None if setting.supervises is False else listen(setting.meeting)
    if listener is not None:
        on_event(f"{setting.node.name} supervises the run at {setting.meeting}")
        if not token:
            on_event(f"{ENV_SECRET} is not set: whoever reaches {setting.meeting} can join the run")
        gathering = Gathering(setting.meeting, listener, setting.node, token)
        return supervise(
            command,
            n_ranks,
            options=options,
            environment=environment,
            on_event=on_event,
            gathering=gathering,
            notice=notice,
        )
    if setting.supervises:
        raise UsageError(
            f"cannot listen at {setting.meeting}: the port is taken, or the host is not this "
            f"node; give another --rdzv HOST:PORT on every node"
        )
    return serve_node(
        command,
        n_ranks,
        setting.meeting,
        setting.node,
        environment=environment,
        token=token,
        join_s=options.node_wait_s,
        notice=notice,
        on_event=on_event,
    )


def _first_node(environment: Mapping[str, str]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    text = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
    if not nodes:
        raise UsageError("Slurm names no nodes of this step: give --rdzv HOST:PORT")
    return str(nodes[0])
