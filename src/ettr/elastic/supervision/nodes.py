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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from ettr.elastic.membership.rendezvous import ENV_WORKER, PROTOCOL
from ettr.elastic.supervision.handshake import (
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

    def start(self, worker: str) -> tuple[WorkerProcess, ProcessEnd]:
        """Start a process here."""
        return start_process(self.command, self.environment, worker)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], worker: str
) -> tuple[subprocess.Popen[bytes], ExitWatch]:
    """Start a process on this machine under a worker's name."""
    process = subprocess.Popen(list(command), env={**environment, ENV_WORKER: worker})
    return process, ExitWatch(process.pid)


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

    def start(self, worker: str) -> tuple[WorkerProcess, ProcessEnd]:
        """Have its agent start a process."""
        process = self.processes[worker] = RemoteProcess(self, worker)
        self.order("start", worker)
        if not self.alive:
            process.status = -signal.SIGKILL
        return process, process

    def order(self, kind: str, worker: str) -> None:
        """Send an order; a node that cannot be reached is lost."""
        if self.alive:
            self._guarded(lambda: self.channel.send(kind=kind, worker=worker))

    def listen(self, wait_s: float = 0.0) -> None:
        """Take in what the agent has sent; a node that is silent for too long is lost."""
        if not self.alive:
            return
        self._guarded(lambda: self._take_all(self.channel.receive(wait_s)))
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
            self._guarded(
                lambda: self.channel.send(
                    kind="end", finished=finished, stopped=stopped, reason=reason
                )
            )

    def _take_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._take(message)

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

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except ChannelClosedError as error:
            self.lose(str(error))


# field 9 of /proc/PID/stat, from include/linux/sched.h: the kernel is ending this task
_PF_EXITING = 0x4
_FLAGS_AFTER_NAME = 6
_STAT_BYTES = 1024


class ExitWatch:
    """Watches one process through its open stat file, never a later process of its pid."""

    def __init__(self, pid: int) -> None:
        self._fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def ending(self) -> bool:
        """Whether it is being ended, or has ended: none of its program runs any more."""
        if self._fd < 0:
            return True
        try:
            text = os.pread(self._fd, _STAT_BYTES, 0)
        except ProcessLookupError:
            return True
        # The name in parentheses may itself hold spaces and parentheses.
        fields = text[text.rindex(b")") + 1 :].split()
        return bool(int(fields[_FLAGS_AFTER_NAME]) & _PF_EXITING)

    def close(self) -> None:
        """Close the file; twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


Node: TypeAlias = LocalNode | RemoteNode
WorkerProcess: TypeAlias = subprocess.Popen[bytes] | RemoteProcess
ProcessEnd: TypeAlias = ExitWatch | RemoteProcess


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
