"""A rank's own connections to its two neighbours, over which shards are handed on.

Not torch's group: gloo forgets an operation whose bytes are under way when a connection breaks, and
its waiter then sleeps for the whole timeout of the group (seen in torch 2.13; `Pair` tells the
pending operations of a failure, but not the one in its transmit queue). Here a wait ends when the
connection is closed or cut, when the generation is over, or when no byte has moved for `silent_s`.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

_LOOK_S = 0.05
_GREETING_S = 5.0  # a neighbour that has connected says who it is within this time
_HEADER = struct.Struct("<qq")  # step, bytes that follow
_LOOPBACK = "127.0.0.1"

Side = Literal["next", "before"]


class NeighbourLostError(RuntimeError):
    """A neighbour's connection ended, or it has been silent for too long."""


class Ring:
    """The connections of one generation: one to the next slot, one from the slot before.

    Args:
        slot: this rank.
        world: number of ranks, at least 2.
        token: a secret of this rank's, without which it takes no connection; None: a random one.
        silent_s: a transfer of which no byte moves for so long has failed.
        over: whether the generation is over, so that waiting makes no sense any more.
        towards: a host that all ranks reach; None: all ranks are on this machine.
    """

    def __init__(
        self,
        slot: int,
        world: int,
        *,
        token: str | None = None,
        silent_s: float,
        over: Callable[[], bool],
        towards: str | None = None,
    ) -> None:
        self._slot, self._world = slot, world
        self._token = token or secrets.token_hex(16)
        self._silent_s, self._over = silent_s, over
        self._listener, self._hosts = _listen(towards)
        self._ends: dict[Side, socket.socket] = {}

    @property
    def place(self) -> dict[str, Any]:
        """Where the slot before finds this rank; goes to all ranks as JSON."""
        port = self._listener.getsockname()[1]
        return {"hosts": list(self._hosts), "port": port, "token": self._token}

    def join(self, places: Sequence[Mapping[str, Any]]) -> None:
        """Connect to the next slot and take the connection of the slot before.

        Args:
            places: `place` of every rank, in the order of the slots.

        Raises:
            NeighbourLostError: a neighbour is not there.
        """
        following = places[(self._slot + 1) % self._world]
        self._ends["next"] = _ready(_connect(following))
        self._ends["before"] = _ready(self._accept())

    def exchange(self, step: int, image: Tensor, into: Tensor) -> None:
        """Send this rank's image to the next slot while that of the slot before comes in.

        Args:
            step: of both images.
            image: uint8 on the host, contiguous.
            into: takes the other one; of its exact size.

        Raises:
            NeighbourLostError: a neighbour is gone or silent.
        """
        self._move([self._outgoing("next", step, image), self._incoming("before", step, into)])

    def send(self, side: Side, step: int, image: Tensor) -> None:
        """Send an image to a neighbour, who calls `receive`; raises as `exchange`."""
        self._move([self._outgoing(side, step, image)])

    def receive(self, side: Side, step: int, into: Tensor) -> None:
        """Take the image of a step that a neighbour sends; raises as `exchange`."""
        self._move([self._incoming(side, step, into)])

    def close(self) -> None:
        """Let go of all connections; the neighbours' waits end."""
        for end in (self._listener, *self._ends.values()):
            end.close()
        self._ends.clear()

    def _accept(self) -> socket.socket:
        deadline_s = time.monotonic() + self._silent_s
        self._listener.settimeout(_LOOK_S)
        while not self._over() and time.monotonic() < deadline_s:
            try:
                end, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                raise NeighbourLostError(f"slot {self._slot}: {error}") from error
            if _greets(end, self._token):
                return end
            end.close()
        raise NeighbourLostError(f"slot {self._slot}: the slot before it did not connect")

    def _outgoing(self, side: Side, step: int, image: Tensor) -> _Flow:
        body = image.numpy().data
        header = memoryview(_HEADER.pack(step, body.nbytes))
        return _Flow(self._ends[side], side, [header, body], sends=True)

    def _incoming(self, side: Side, step: int, into: Tensor) -> _Flow:
        body = into.numpy().data
        header = bytearray(_HEADER.size)
        expected = _HEADER.pack(step, body.nbytes)
        return _Flow(self._ends[side], side, [memoryview(header), body], expected=expected)

    def _move(self, flows: list[_Flow]) -> None:
        """Until all bytes of all flows are where they belong."""
        poll = select.poll()
        open_flows = {flow.end.fileno(): flow for flow in flows}
        for number, flow in open_flows.items():
            poll.register(number, select.POLLOUT if flow.sends else select.POLLIN)
        moved_s = time.monotonic()
        while open_flows:
            ready = poll.poll(_LOOK_S * 1000)
            for number, _ in ready:
                if open_flows[number].advance():
                    moved_s = time.monotonic()
                if not open_flows[number].views:
                    poll.unregister(number)
                    del open_flows[number]
            if not ready and self._over():
                raise NeighbourLostError("a rank was lost while shards were handed on")
            if time.monotonic() - moved_s > self._silent_s:
                sides = ", ".join(flow.side for flow in open_flows.values())
                raise NeighbourLostError(f"no byte moved for {self._silent_s:g} s ({sides})")


@dataclass(slots=True)
class _Flow:
    """What is still to go through one end of a connection in one direction."""

    end: socket.socket
    side: Side
    views: list[memoryview]
    sends: bool = False
    expected: bytes = b""  # what the header that comes in has to say
    _header: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self._header = self.views[0]

    def advance(self) -> bool:
        """Move what can be moved without waiting; whether anything was.

        Raises:
            NeighbourLostError: the connection is gone, or another image comes than is waited for.
        """
        view = self.views[0]
        try:
            moved = self.end.send(view) if self.sends else self.end.recv_into(view)
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
        if self.expected and len(self.views) == 1:
            self._check()
        return True

    def _check(self) -> None:
        if bytes(self._header) != self.expected:
            step, n_bytes = _HEADER.unpack(self._header)
            wanted_step, wanted_bytes = _HEADER.unpack(self.expected)
            raise NeighbourLostError(
                f"the {self.side} slot sends step {step} in {n_bytes} bytes; step {wanted_step} "
                f"in {wanted_bytes} was to come"
            )


def _listen(towards: str | None) -> tuple[socket.socket, tuple[str, ...]]:
    """A listener, and the addresses at which other ranks may find it."""
    if towards is None:
        return socket.create_server((_LOOPBACK, 0), backlog=4), (_LOOPBACK,)
    hosts = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # sends nothing; picks the interface of the route
        hosts.append(probe.getsockname()[0])
    with suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
        hosts += [str(entry[4][0]) for entry in found]
    hosts = list(dict.fromkeys(hosts)) or [_LOOPBACK]
    everywhere = "" if any(not host.startswith("127.") for host in hosts) else _LOOPBACK
    return socket.create_server((everywhere, 0), backlog=4), tuple(hosts)


def _connect(place: Mapping[str, Any]) -> socket.socket:
    tried: OSError | None = None
    for host in place["hosts"]:
        try:
            end = socket.create_connection((host, int(place["port"])), timeout=_GREETING_S)
            end.sendall(str(place["token"]).encode())
            return end
        except OSError as error:
            tried = error
    raise NeighbourLostError(f"the next slot, at {place['hosts']}: {tried}") from tried


def _greets(end: socket.socket, token: str) -> bool:
    """Whether whoever connected knows the token."""
    end.settimeout(_GREETING_S)
    wanted = token.encode()
    said = b""
    with suppress(OSError):
        while len(said) < len(wanted):
            part = end.recv(len(wanted) - len(said))
            if not part:
                break
            said += part
    return hmac.compare_digest(said, wanted)


def _ready(end: socket.socket) -> socket.socket:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setblocking(False)
    return end
