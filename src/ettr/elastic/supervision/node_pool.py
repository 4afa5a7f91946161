"""All nodes of a run: lets agents join at any time, and keeps strangers from costing anything.

A stranger that connects is never waited for: it gets a few seconds and a few kilobytes, only so
many are listened to at once (the longest there goes first), and refusals are printed more and more
seldom.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ettr.elastic.membership.rendezvous import PROTOCOL
from ettr.elastic.supervision.handshake import (
    Channel,
    ChannelClosedError,
    Hello,
    RefusedHelloError,
    new_nonce,
    proof,
    read_hello,
)
from ettr.elastic.supervision.node_identity import NodeIdentity
from ettr.elastic.supervision.nodes import LEASE_SHARE, LocalNode, Node, RemoteNode

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
            self._refuse(self._arriving.popleft().channel, "too many connections that say nothing")

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
