"""The nodes of a run as its supervisor sees them: its own, and those whose agents have joined.

An agent (`agent.py`) starts and ends processes where the supervisor cannot. Its lease decides who
is lost: the agent ends its processes when the supervisor has not confirmed a ping for 0.6 of
`node_timeout_s`; the supervisor gives their slots away after the whole of it. So on two sides of a
broken network no slot is ever held twice. A connection that is closed loses the node at once.
"""

from __future__ import annotations

import hmac
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from ettr.elastic.membership.rendezvous import ENV_WORKER, PROTOCOL
from ettr.elastic.supervision.channel import Channel, ChannelClosedError, Message
from ettr.elastic.supervision.node_identity import NodeIdentity
from ettr.elastic.supervision.process_exit import ExitWatch

LEASE_SHARE = 0.6
_HELLO_S = 5.0
_PUMP_S = 0.02


class WorkerProcess(Protocol):
    """What a supervisor needs of a process, wherever it runs; `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its id on its node."""

    def poll(self) -> int | None:
        """Its exit status; None: it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended by then.
        """

    def kill(self) -> None:
        """Send SIGKILL."""


class ProcessEnd(Protocol):
    """How a process's end is seen early; see `ExitWatch`."""

    def ending(self) -> bool:
        """Whether it is being ended, or has ended."""

    def close(self) -> None:
        """Stop watching; twice is harmless."""


class Node(Protocol):
    """A machine that runs ranks."""

    @property
    def identity(self) -> NodeIdentity:
        """Its name and rack."""

    @property
    def n_ranks(self) -> int:
        """How many ranks it has room for."""

    @property
    def alive(self) -> bool:
        """Whether processes can be started on it."""

    def start(self, worker: str) -> tuple[WorkerProcess, ProcessEnd]:
        """Start a process of the run's command under a worker's name."""


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
    """A machine whose agent has joined.

    Attributes:
        timeout_s: Without a message for so long it is lost.
        heard_s: When the last one came (monotonic).
        joined: Whether it has confirmed the welcome; until then it counts for nothing.
    """

    identity: NodeIdentity
    n_ranks: int
    channel: Channel
    timeout_s: float
    heard_s: float
    joined: bool = False
    alive: bool = True
    why_lost: str = ""
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
            self.lose(f"it was silent for {self.timeout_s:g} s")

    def lose(self, why: str) -> None:
        """Take the node as lost, with all its processes."""
        self.alive, self.why_lost = False, why
        self.channel.close()
        for process in self.processes.values():
            if process.status is None:
                process.status = -signal.SIGKILL

    def dismiss(self, *, finished: bool, reason: str) -> None:
        """End the agent and its processes: the run is over."""
        if self.alive:
            self._guarded(lambda: self.channel.send(kind="end", finished=finished, reason=reason))

    def _take_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        self.heard_s = time.monotonic()
        if message["kind"] == "ping":
            self.joined = True
            self.channel.send(kind="pong", number=message.get("number"))
            return
        process = self.processes.get(str(message.get("worker")))
        if process is None:
            return
        if message["kind"] == "started":
            process.pid = int(message.get("pid") or 0)
        elif message["kind"] == "ending":
            process.is_ending = True
        elif message["kind"] == "ended":
            process.status = int(message.get("status") or 0)

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (ChannelClosedError, ValueError, TypeError) as error:
            self.lose(str(error))


class NodePool:
    """All nodes of a run; lets agents join at any time.

    Args:
        local: the supervisor's own node.
        listener: where agents connect; None: there is no other node.
        store: HOST:PORT of the run's store, which agents pass to their processes.
        token: the secret that an agent must know; empty: none.
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
        self._arriving: list[tuple[Channel, float]] = []
        if listener is not None:
            listener.setblocking(False)

    @property
    def alive(self) -> dict[str, Node]:
        """The nodes that live, by name, in the order of the scheduler's numbers and of joining."""
        joined = (node for node in self.remote if node.alive and node.joined)
        nodes: list[Node] = [self.local, *joined]
        last = len(nodes)
        nodes.sort(key=lambda n: last if n.identity.index is None else n.identity.index)
        return {node.identity.name: node for node in nodes}

    def poll(self) -> None:
        """Let agents join, and take in what they have sent."""
        self._accept()
        self._arriving = [one for one in self._arriving if self._still_arriving(*one)]
        for node in self.remote:
            if node.alive:
                joined = node.joined
                node.listen()
                if node.joined and not joined:
                    self._on_event(f"node {node.identity.name}: room for {node.n_ranks} ranks")
                if not node.alive and joined:
                    self._on_event(f"node {node.identity.name} is lost: {node.why_lost}")

    def dismiss(self, *, finished: bool, reason: str) -> None:
        """End all agents and let no more join."""
        for node in self.remote:
            node.dismiss(finished=finished, reason=reason)
        for node in self.remote:
            node.channel.close()
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        if self._listener is None:
            return
        with suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.setblocking(True)
            self._arriving.append((Channel(connection), time.monotonic()))

    def _still_arriving(self, channel: Channel, since_s: float) -> bool:
        """Greet who has said something; a stranger that is silent is let go after a while."""
        try:
            messages = channel.receive()
            if messages:
                self._greet(channel, messages[0])
                return False
            if time.monotonic() - since_s > _HELLO_S:
                raise ChannelClosedError("it said nothing")
        except (ChannelClosedError, ValueError, TypeError) as error:
            self._on_event(f"a connection was refused: {error}")
            channel.close()
            return False
        return True

    def _greet(self, channel: Channel, hello: Message) -> None:
        refusal = self._refusal(hello)
        if refusal is not None:
            channel.send(kind="refused", reason=refusal)
            raise ChannelClosedError(refusal)
        identity = NodeIdentity(
            self._unused_name(str(hello.get("node"))),
            None if hello.get("index") is None else int(hello["index"] or 0),
            None if hello.get("rack") is None else str(hello["rack"]),
        )
        channel.send(
            kind="welcome",
            node=identity.name,
            store=self._store,
            lease_s=self._timeout_s * LEASE_SHARE,
        )
        n_ranks = int(hello.get("ranks") or 0)
        self.remote.append(
            RemoteNode(identity, n_ranks, channel, self._timeout_s, time.monotonic())
        )

    def _refusal(self, hello: Message) -> str | None:
        if hello["kind"] != "hello" or not hmac.compare_digest(
            str(hello.get("token")).encode(), self._token.encode()
        ):
            return "not an agent of this run: set the same ETTR_ELASTIC_TOKEN on every node"
        if hello.get("protocol") != PROTOCOL:
            return (
                f"it has version {hello.get('protocol')} of the elastic protocol, the supervisor "
                f"{PROTOCOL}: run the same ettr on every node"
            )
        if hello.get("ranks") != self.local.n_ranks:
            return (
                f"it has --ranks {hello.get('ranks')}, the supervisor {self.local.n_ranks}: give "
                f"the same --ranks on every node"
            )
        return None

    def _unused_name(self, name: str) -> str:
        used = {self.local.identity.name}
        used |= {node.identity.name for node in self.remote if node.alive}
        candidates = (name, *(f"{name}#{again}" for again in range(2, len(used) + 3)))
        return next(candidate for candidate in candidates if candidate not in used)
