"""A node of a run as its supervisor sees it: its own, or one whose agent has joined.

An agent (`agent.py`) starts and ends processes where the supervisor cannot. Its lease decides who
is lost: the agent ends its processes when the supervisor has not confirmed a ping for 0.6 of
`node_timeout_s`; the supervisor gives their slots away after the whole of it. So on two sides of a
broken network no slot is ever held twice. A connection that is closed loses the node at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from ettr.elastic.handshake import (
    Channel,
    ChannelClosedError,
    Hello,
    Message,
    NodeIdentity,
    RefusedHelloError,
    new_nonce,
    printable,
    proof,
    read_hello,
    whole_number,
)
from ettr.elastic.rendezvous import ENV_WORKER, PROTOCOL, Cause, Heartbeat, Membership
from ettr.errors import UsageError, refuse, too_small

LEASE_SHARE = 0.6
_PUMP_S = 0.02


@dataclass(frozen=True, slots=True)
class LocalNode:
    """The supervisor's own machine."""

    identity: NodeIdentity
    n_ranks: int
    command: Sequence[str]
    environment: Mapping[str, str]
    alive: bool = True

    def start(self, worker: str) -> LocalProcess:
        """Start a process here."""
        return LocalProcess(self.command, self.environment, worker)


# field 9 of /proc/PID/stat, from include/linux/sched.h: the kernel is ending this task
_PF_EXITING = 0x4
_FLAGS_AFTER_NAME = 6
_STAT_BYTES = 1024


class LocalProcess(subprocess.Popen[bytes]):
    """A worker of this machine, watched through its open stat file: never a later one of its pid.

    Args:
        options: of `subprocess.Popen`.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], worker: str, **options: Any
    ) -> None:
        super().__init__(list(command), env={**environment, ENV_WORKER: worker}, **options)
        self._stat_fd = os.open(f"/proc/{self.pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def ending(self) -> bool:
        """Whether it is being ended, or has ended: none of its program runs any more."""
        if self._stat_fd < 0:
            return True
        try:
            text = os.pread(self._stat_fd, _STAT_BYTES, 0)
        except ProcessLookupError:
            return True
        # The name in parentheses may itself hold spaces and parentheses.
        fields = text[text.rindex(b")") + 1 :].split()
        return bool(int(fields[_FLAGS_AFTER_NAME]) & _PF_EXITING)

    def close(self) -> None:
        """Watch it no longer; twice is harmless."""
        if self._stat_fd >= 0:
            os.close(self._stat_fd)
            self._stat_fd = -1


class RemoteProcess:
    """A process that an agent has started, as far as its messages say."""

    def __init__(self, node: RemoteNode, worker: str) -> None:
        self._node, self._worker = node, worker
        self.pid = 0
        self.is_ending = False
        self.status: int | None = None

    def poll(self) -> int | None:
        """Its exit status; None: it runs, as far as is known."""
        return self.status

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once its agent has reported it or its node is lost."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while self.status is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(self._worker, timeout or 0.0)
            self._node.listen(_PUMP_S)
        return self.status

    def kill(self) -> None:
        """Have its agent send SIGKILL; harmless where the node is lost."""
        self._node.order("kill", self._worker)

    def ending(self) -> bool:
        """Whether its agent has seen it end, or its node is lost."""
        return self.is_ending or self.status is not None

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True, eq=False)
class RemoteNode:
    """A machine whose agent has joined."""

    identity: NodeIdentity
    n_ranks: int
    channel: Channel
    timeout_s: float
    heard_s: float
    joined: bool = False
    alive: bool = True
    why_lost: str = ""
    stop_reason: str | None = None
    processes: dict[str, RemoteProcess] = field(default_factory=dict)

    def start(self, worker: str) -> RemoteProcess:
        """Have its agent start a process."""
        process = self.processes[worker] = RemoteProcess(self, worker)
        self.order("start", worker)
        if not self.alive:
            process.status = -signal.SIGKILL
        return process

    def order(self, kind: str, worker: str) -> None:
        """Send an order; a node that cannot be reached is lost."""
        if self.alive:
            with self._lost_if_closed():
                self.channel.send(kind=kind, worker=worker)

    def listen(self, wait_s: float = 0.0) -> None:
        """Take in what the agent has sent; a node that is silent for too long is lost."""
        if not self.alive:
            return
        with self._lost_if_closed():
            for message in self.channel.receive(wait_s):
                self._take(message)
        if self.alive and time.monotonic() - self.heard_s > self.timeout_s:
            self.lose(f"it sent nothing for {self.timeout_s:g} s")

    def lose(self, why: str) -> None:
        """Take the node as lost, with all its processes."""
        self.alive, self.why_lost = False, why
        self.channel.close()
        for process in self.processes.values():
            if process.status is None:
                process.status = -signal.SIGKILL

    def dismiss(self, *, finished: bool, reason: str, stopped: bool = False) -> None:
        """End the agent and its processes: the run is over."""
        if self.alive:
            with self._lost_if_closed():
                self.channel.send(kind="end", finished=finished, stopped=stopped, reason=reason)

    def _take(self, message: Message) -> None:
        self.heard_s = time.monotonic()
        if message["kind"] == "ping":
            self.joined = True
            self.channel.send(kind="pong", number=whole_number(message, "number"))
            return
        if message["kind"] == "stop":
            self.stop_reason = printable(message.get("reason"))
            return
        process = self.processes.get(str(message.get("worker")))
        if process is None:
            return
        if message["kind"] == "started":
            process.pid = whole_number(message, "pid")
        elif message["kind"] == "ending":
            process.is_ending = True
        elif message["kind"] == "ended":
            process.status = whole_number(message, "status")

    @contextmanager
    def _lost_if_closed(self) -> Iterator[None]:
        try:
            yield
        except ChannelClosedError as error:
            self.lose(str(error))


Node: TypeAlias = LocalNode | RemoteNode
WorkerProcess: TypeAlias = LocalProcess | RemoteProcess


# -- All nodes of a run: lets agents join at any time, and keeps strangers from costing anything --
#
# A stranger that connects is never waited for: it gets a few seconds and a few kilobytes, only
# so many are listened to at once (the longest there goes first), and refusals are printed more
# and more seldom.

_HELLO_S = 5.0
_MOST_ARRIVING = 64
_MOST_ACCEPTED_AT_ONCE = 16
_REFUSALS_PRINTED_EACH = 8


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Who has connected and has said nothing yet."""

    channel: Channel
    nonce: str
    since_s: float


class NodePool:
    """All nodes of a run; lets agents join at any time.

    Attributes:
        remote: The nodes whose agents have joined, without those that are known to be lost.
    """

    def __init__(
        self,
        local: LocalNode,
        *,
        listener: socket.socket | None = None,
        store: str = "",
        timeout_s: float = 10.0,
        token: str = "",
        on_event: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.local, self.remote = local, list[RemoteNode]()
        self._listener, self._store, self._timeout_s = listener, store, timeout_s
        self._token, self._on_event = token, on_event
        self._known: dict[str, Node] = {local.identity.name: local}
        self._arriving: deque[_Arrival] = deque()
        self._n_refused = 0
        if listener is not None:
            listener.setblocking(False)

    @property
    def alive(self) -> dict[str, Node]:
        """The nodes that live, by name, in the order of the scheduler's numbers and of joining."""
        remote: list[Node] = [node for node in self.remote if node.alive and node.joined]
        before = self._rank(self.local)
        first = [node for node in remote if self._rank(node) < before]
        return {node.identity.name: node for node in (*first, self.local, *remote[len(first) :])}

    def node(self, name: str) -> Node:
        """The node that joined under a name, the last one of several; it may be lost."""
        return self._known[name]

    def poll(self) -> None:
        """Let agents join, and take in what they have sent."""
        self._accept()
        for _ in range(len(self._arriving)):
            arrival = self._arriving.popleft()
            if self._still_arriving(arrival):
                self._arriving.append(arrival)
        for node in self.remote:
            self._listen_to(node)
        if not all(node.alive for node in self.remote):
            self.remote = [node for node in self.remote if node.alive]

    def dismiss(self, *, finished: bool, reason: str, stopped: bool = False) -> None:
        """End all agents and let no more join."""
        for node in self.remote:
            node.dismiss(finished=finished, stopped=stopped, reason=reason)
        for channel in (*(n.channel for n in self.remote), *(a.channel for a in self._arriving)):
            channel.close()
        self._arriving.clear()
        if self._listener is not None:
            self._listener.close()

    @staticmethod
    def _rank(node: Node) -> float:
        index = node.identity.index
        return float("inf") if index is None else index

    def _listen_to(self, node: RemoteNode) -> None:
        name, joined = node.identity.name, node.joined
        node.listen()
        if node.joined and not joined:
            self._on_event(f"node {name}: room for {node.n_ranks} ranks")
        if not node.alive and joined:
            self._on_event(f"node {name} is lost: {node.why_lost}")

    def _accept(self) -> None:
        if self._listener is None:
            return
        for _ in range(_MOST_ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody is there, has gone already, or no descriptor is left
                return
            self._welcome_arrival(connection)
        while len(self._arriving) > _MOST_ARRIVING:
            self._refuse(self._arriving.popleft().channel, "too many connections that send nothing")

    def _welcome_arrival(self, connection: socket.socket) -> None:
        nonce = new_nonce()
        try:
            connection.setblocking(True)
            channel = Channel(connection)
            # What an agent of an older version shows its user, who sees a refusal in it.
            reason = f"the supervisor has version {PROTOCOL} of the elastic protocol"
            channel.send(kind="challenge", nonce=nonce, reason=reason)
        except OSError:  # it has gone already
            connection.close()
            return
        self._arriving.append(_Arrival(channel, nonce, time.monotonic()))

    def _still_arriving(self, arrival: _Arrival) -> bool:
        """Greet who has said something; a stranger that is silent is let go after a while."""
        try:
            messages = arrival.channel.receive()
            if messages:
                hello = read_hello(
                    messages[0], token=self._token, nonce=arrival.nonce, n_ranks=self.local.n_ranks
                )
                self._greet(arrival, hello)
                return False
            if time.monotonic() - arrival.since_s > _HELLO_S:
                raise ChannelClosedError("it said nothing")
        except ChannelClosedError as error:
            self._refuse(arrival.channel, str(error), answer=isinstance(error, RefusedHelloError))
            return False
        return True

    def _greet(self, arrival: _Arrival, hello: Hello) -> None:
        claimed = hello.identity
        for node in self.remote:
            # one that comes back ended its old connection before it made this one
            if node.identity.name == claimed.name and node.alive:
                self._listen_to(node)
        identity = NodeIdentity(self._unused_name(claimed.name), claimed.index, claimed.rack)
        arrival.channel.send(
            kind="welcome",
            node=identity.name,
            store=self._store,
            lease_s=self._timeout_s * LEASE_SHARE,
            proof=proof(self._token, "supervisor", arrival.nonce, hello.nonce),
        )
        node = RemoteNode(
            identity, hello.n_ranks, arrival.channel, self._timeout_s, time.monotonic()
        )
        self.remote.append(node)
        self.remote.sort(key=self._rank)
        self._known[identity.name] = node

    def _refuse(self, channel: Channel, reason: str, *, answer: bool = False) -> None:
        if answer:
            with suppress(ChannelClosedError):
                channel.send(kind="refused", reason=reason)
        channel.close()
        self._n_refused += 1
        n = self._n_refused
        if n <= _REFUSALS_PRINTED_EACH or n & (n - 1) == 0:
            counted = f" ({n} until now)" if n > _REFUSALS_PRINTED_EACH else ""
            self._on_event(f"a connection was refused: {reason}{counted}")

    def _unused_name(self, name: str) -> str:
        used = {self.local.identity.name}
        used |= {node.identity.name for node in self.remote if node.alive}
        candidates = (name, *(f"{name}#{again}" for again in range(2, len(used) + 3)))
        return next(candidate for candidate in candidates if candidate not in used)


# -- the states of a supervised run, of its processes and of a generation, and how they follow -----
# Standard library only. docs/explanation/elastic-states.md draws them; a test compares the two.


StateT = TypeVar("StateT", bound=StrEnum)


class SupervisionState(StrEnum):
    """The run, as the supervisor sees it."""

    FORMING = "forming"  # no step was made since the start or the last failure
    TRAINING = "training"  # steps are made
    FINISHING = "finishing"  # every rank has trained to the end; processes are ending
    FINISHED = "finished"
    GAVE_UP = "gave-up"


class WorkerState(StrEnum):
    """One process that the supervisor started."""

    SPARE = "spare"  # waits for a slot
    RANK = "rank"  # holds a slot of the current generation
    KILLED = "killed"  # its slot is another's; the kernel has not finished with it
    ENDED = "ended"  # its exit status is known


class GenerationState(StrEnum):
    """One generation on one rank."""

    FORMED = "formed"  # the group is there, the model may be built
    RECOVERING = "recovering"
    TRAINING = "training"
    UPDATING = "updating"  # parameters change: a failure now leaves the shard torn
    SAVING = "saving"  # the update is complete; copies of it are made
    ENDED = "ended"


def _transitions(
    states: type[StateT], table: Mapping[str, str]
) -> Mapping[StateT, frozenset[StateT]]:
    return {states(name): frozenset(map(states, after.split())) for name, after in table.items()}


RUN_TRANSITIONS = _transitions(
    SupervisionState,
    {
        "forming": "forming training finishing gave-up",
        "training": "forming finishing gave-up",
        "finishing": "finished",
        "finished": "",
        "gave-up": "",
    },
)
WORKER_TRANSITIONS = _transitions(
    WorkerState, {"spare": "rank ended", "rank": "killed ended", "killed": "ended", "ended": ""}
)
GENERATION_TRANSITIONS = _transitions(
    GenerationState,
    {
        "formed": "recovering ended",
        "recovering": "training ended",
        "training": "updating ended",
        "updating": "updating saving ended",
        "saving": "training ended",
        "ended": "",
    },
)


class TransitionError(UsageError):
    """Calls came in an order that is not possible."""


def transition(
    now: StateT, to: StateT, transitions: Mapping[StateT, frozenset[StateT]], what: str
) -> StateT:
    """Return the new state, if it may follow."""
    if to not in transitions[now]:
        allowed = ", ".join(sorted(transitions[now])) or "nothing"
        raise TransitionError(f"{what} is {now} and cannot become {to}; {allowed} may follow")
    return to


# -- the processes that a supervisor starts, and who of them holds which slot ----------------------


_REAP_S = 10.0  # a killed process that is not gone by then hangs in the kernel, in one last call


@dataclass(slots=True)
class Worker:
    """One process, a rank or a spare."""

    name: str
    process: WorkerProcess
    state: WorkerState
    heard_s: float
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    n_heartbeats: int = 0
    behind_since_s: float | None = None
    loss: int | None = None
    node: str = ""

    @classmethod
    def start(cls, name: str, node: Node, *, state: WorkerState, now_s: float) -> Worker:
        """Start a process on a node."""
        return cls(name, node.start(name), state, now_s, node=node.identity.name)

    def enter(self, state: WorkerState) -> None:
        """Go to another state."""
        self.state = transition(self.state, state, WORKER_TRANSITIONS, f"worker {self.name}")

    def kill(self) -> None:
        """Send SIGKILL; harmless where the process has ended."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def reap(self) -> None:
        """Wait for the process, which was killed.

        No longer than 10 s, should it hang on a dead disk or mount.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_REAP_S)


@dataclass(slots=True)
class Roster:
    """Every process that was started, and the membership of the current generation.

    Attributes:
        losses: In the order in which they were noticed; the status of a process that has not ended
            yet is 0.
    """

    membership: Membership
    workers: dict[str, Worker] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    best_step: int = -1

    @property
    def ranks(self) -> list[Worker]:
        """The processes that hold the slots, in the order of the slots."""
        return [self.workers[name] for name in self.membership.workers]

    @property
    def spares(self) -> list[Worker]:
        """The processes that wait for a slot, the oldest first."""
        return [one for one in self.workers.values() if one.state is WorkerState.SPARE]

    def settle(self) -> None:
        """Note how lost processes ended, once the kernel has finished with them."""
        for worker in self.workers.values():
            if worker.state is not WorkerState.KILLED:
                continue
            status = worker.process.poll()
            if status is not None and worker.loss is not None:
                self.losses[worker.loss] = replace(self.losses[worker.loss], status=status)
                worker.enter(WorkerState.ENDED)
                worker.process.close()


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """How a group is watched.

    Attributes:
        heartbeat_timeout_s: A rank without a heartbeat for this long is killed and replaced.
        leave_s: So is one whose loop stays in a generation for this long after the next began;
            None: 15 s longer than the rank's own `collective_s`, within which a wait for the dead
            ends by itself.
        failed_grace_s: Seconds after the first rank reports that a collective failed, until all
            are called to a new generation though none died. A rank that does not leave the old one
            within as long again, or has sent no heartbeat until then, is hung.
        n_nodes: Nodes that training begins with; further ones that join are spare nodes.
        node_timeout_s: A node that is silent for so long is lost. It ends its own processes after
            0.6 of this time without an answer, before their slots are given away.
        node_wait_s: How long a lost slot waits for a node with room, and a start for its nodes.
        max_idle_failures: More failures in a row, without a step between them, end it too.
    """

    spares: int = 1
    heartbeat_timeout_s: float = 30.0
    leave_s: float | None = None
    failed_grace_s: float = 20.0
    max_failures: int = 64
    max_idle_failures: int = 3
    n_nodes: int = 1
    node_timeout_s: float = 10.0
    node_wait_s: float = 600.0

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: a value is out of range; all problems at once."""
        problems = too_small(self, spares=0, max_failures=0, max_idle_failures=0, n_nodes=1)
        problems += [
            f"{name}: {value} was given; give a number above 0"
            for name, value in asdict(self).items()
            if name.endswith("_s") and value is not None and not value > 0
        ]
        refuse("supervisor", problems)


@dataclass(frozen=True, slots=True)
class Loss:
    """One slot that lost its process: when and how the supervisor noticed."""

    generation: int
    slot: int
    worker: str
    pid: int
    cause: Cause
    status: int
    noticed_s: float
    step: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class SupervisorReport:
    """How a supervised run ended.

    Attributes:
        reason: Why it did not finish; None where every rank trained to the end.
        stopped: Whether it was asked to end, and every rank has saved the same step.
    """

    world: int
    generations: int
    losses: tuple[Loss, ...]
    pids: tuple[int, ...]
    wall_s: float
    reason: str | None
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether every rank trained to the end."""
        return self.reason is None
