"""A rank's own connections to its two neighbours, over which shards are copied.

Not torch's group: gloo forgets an operation whose bytes are under way when a connection breaks, and
its waiter then sleeps for the whole timeout of the group (seen in torch 2.13; `Pair` reports the
failure to pending operations, but not to the one in its transmit queue). Here a wait ends when the
connection is closed or shut down, when the generation is over, or when no byte has moved for
`idle_s`.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from torch import Tensor

_POLL_S = 0.05
_GREETING_S = 5.0  # a neighbour that has connected sends its token within this time
_HEADER = struct.Struct("<qq")  # step, bytes that follow
_LOOPBACK = "127.0.0.1"

Side = Literal["next", "previous"]


class RingAddress(TypedDict):
    """Where a rank listens for the previous slot, and the secret that it expects."""

    hosts: list[str]
    port: int
    token: str


class NeighbourLostError(RuntimeError):
    """A neighbour's connection ended, or no byte moved on it for too long."""


class Ring:
    """The connections of one generation: one to the next slot, one from the previous slot.

    Args:
        idle_s: a transfer of which no byte moves for so long has failed.
        reachable_host: a host that all ranks reach; None: all ranks are on this machine.
    """

    def __init__(
        self,
        slot: int,
        following: int,
        *,
        token: str | None = None,
        idle_s: float,
        over: Callable[[], bool],
        reachable_host: str | None = None,
    ) -> None:
        self._slot, self._next = slot, following
        self._token = token or secrets.token_hex(16)
        self._idle_s, self._over = idle_s, over
        self._listener, self._hosts = _listen(reachable_host)
        self._connections: dict[Side, socket.socket] = {}

    @property
    def address(self) -> RingAddress:
        """Where the previous slot finds this rank; goes to all ranks as JSON."""
        port = int(self._listener.getsockname()[1])
        return {"hosts": list(self._hosts), "port": port, "token": self._token}

    def join(self, addresses: Sequence[RingAddress]) -> None:
        """Connect to the next slot and accept the connection of the previous slot."""
        if self._next >= len(addresses):
            raise NeighbourLostError("the next slot says no address")
        self._connections["next"] = _ready(_connect(addresses[self._next]))
        self._connections["previous"] = _ready(self._accept())

    def exchange(self, step: int, image: Tensor, into: Tensor) -> None:
        """Send this rank's image to the next slot while that of the previous slot comes in."""
        self._move([self._outgoing("next", step, image), self._incoming("previous", step, into)])

    def send(self, side: Side, step: int, image: Tensor) -> None:
        """Send an image to a neighbour, who calls `receive`; raises as `exchange`."""
        self._move([self._outgoing(side, step, image)])

    def receive(self, side: Side, step: int, into: Tensor) -> None:
        """Receive the image of a step that a neighbour sends; raises as `exchange`."""
        self._move([self._incoming(side, step, into)])

    def close(self) -> None:
        """Close all connections, which ends the neighbours' waits; twice is harmless."""
        for connection in (self._listener, *self._connections.values()):
            connection.close()
        self._connections.clear()

    def _accept(self) -> socket.socket:
        deadline_s = time.monotonic() + self._idle_s
        self._listener.settimeout(_POLL_S)
        while not self._over() and time.monotonic() < deadline_s:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                raise NeighbourLostError(f"slot {self._slot}: {error}") from error
            if _sends_token(connection, self._token):
                return connection
            connection.close()
        raise NeighbourLostError(f"slot {self._slot}: the previous slot did not connect")

    def _outgoing(self, side: Side, step: int, image: Tensor) -> _Transfer:
        body = image.numpy().data
        header = memoryview(_HEADER.pack(step, body.nbytes))
        return _Transfer(self._connections[side], side, [header, body], sends=True)

    def _incoming(self, side: Side, step: int, into: Tensor) -> _Transfer:
        body = into.numpy().data
        header = bytearray(_HEADER.size)
        expected = _HEADER.pack(step, body.nbytes)
        views = [memoryview(header), body]
        return _Transfer(self._connections[side], side, views, expected_header=expected)

    def _move(self, transfers: list[_Transfer]) -> None:
        """Move bytes until every transfer is complete."""
        poll = select.poll()
        pending = {transfer.connection.fileno(): transfer for transfer in transfers}
        for number, transfer in pending.items():
            poll.register(number, select.POLLOUT if transfer.sends else select.POLLIN)
        moved_s = time.monotonic()
        while pending:
            ready = poll.poll(_POLL_S * 1000)
            for number, _ in ready:
                if pending[number].advance():
                    moved_s = time.monotonic()
                if not pending[number].views:
                    poll.unregister(number)
                    del pending[number]
            if not ready and self._over():
                raise NeighbourLostError("a rank was lost while shards were copied")
            if time.monotonic() - moved_s > self._idle_s:
                sides = ", ".join(transfer.side for transfer in pending.values())
                raise NeighbourLostError(f"no byte moved for {self._idle_s:g} s ({sides})")


@dataclass(slots=True)
class _Transfer:
    """What is still to go through one connection in one direction."""

    connection: socket.socket
    side: Side
    views: list[memoryview]
    sends: bool = False
    expected_header: bytes = b""  # empty for what is sent
    _header: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self._header = self.views[0]

    def advance(self) -> bool:
        """Move what can be moved without waiting; whether anything was."""
        view = self.views[0]
        try:
            moved = self.connection.send(view) if self.sends else self.connection.recv_into(view)
        except BlockingIOError:
            return False
        except OSError as error:
            raise NeighbourLostError(f"the connection to the {self.side} slot: {error}") from error
        if moved == 0:
            raise NeighbourLostError(f"the {self.side} slot has closed its connection")
        if moved < view.nbytes:
            self.views[0] = view[moved:]
            return True
        del self.views[0]
        if self.expected_header and len(self.views) == 1:
            self._check_header()
        return True

    def _check_header(self) -> None:
        if bytes(self._header) != self.expected_header:
            step, n_bytes = _HEADER.unpack(self._header)
            expected_step, expected_bytes = _HEADER.unpack(self.expected_header)
            raise NeighbourLostError(
                f"the {self.side} slot sends step {step} in {n_bytes} bytes; step {expected_step} "
                f"in {expected_bytes} bytes was expected"
            )


def _listen(reachable_host: str | None) -> tuple[socket.socket, tuple[str, ...]]:
    """A listener, and the addresses at which other ranks may find it."""
    if reachable_host is None:
        return socket.create_server((_LOOPBACK, 0), backlog=4), (_LOOPBACK,)
    hosts = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((reachable_host, 9))  # sends nothing; picks the interface of the route
        hosts.append(probe.getsockname()[0])
    with suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
        hosts += [str(entry[4][0]) for entry in found]
    hosts = list(dict.fromkeys(hosts)) or [_LOOPBACK]
    everywhere = "" if any(not host.startswith("127.") for host in hosts) else _LOOPBACK
    return socket.create_server((everywhere, 0), backlog=4), tuple(hosts)


def _connect(address: RingAddress) -> socket.socket:
    failure: Exception | None = None
    try:
        hosts, port, token = list(address["hosts"]), int(address["port"]), address["token"].encode()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # it comes through the run's store, which others of the machine can write to
        raise NeighbourLostError("the next slot's address cannot be read") from error
    for host in hosts:
        try:
            connection = socket.create_connection((host, port), timeout=_GREETING_S)
            connection.sendall(token)
            return connection
        except (OSError, OverflowError, TypeError, ValueError) as error:
            failure = error
    raise NeighbourLostError(f"the next slot, at {hosts}: {failure}") from failure


def _sends_token(connection: socket.socket, token: str) -> bool:
    """Whether whoever connected knows the token."""
    deadline_s = time.monotonic() + _GREETING_S
    expected = token.encode()
    received = b""
    with suppress(OSError):
        while len(received) < len(expected) and (left_s := deadline_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            more = connection.recv(len(expected) - len(received))
            if not more:
                break
            received += more
    return hmac.compare_digest(received, expected)


def _ready(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection
