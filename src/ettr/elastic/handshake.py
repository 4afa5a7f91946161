"""How an agent and the supervisor of a run prove to each other that they know the run's secret.

Standard library only. The supervisor sends a nonce; the agent answers with its own and with a keyed
hash of both; the welcome carries the supervisor's hash. The secret itself is never sent, and an
answer that was overheard is of no use a second time. What follows is neither encrypted nor signed:
whoever can change packets on the way is not kept out.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import math
import re
import secrets
import select
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.elastic.rendezvous import PROTOCOL
from ettr.errors import UsageError

if TYPE_CHECKING:
    from torch.distributed import TCPStore


Message = dict[str, str | int | float | bool | None]

# A longer line is no message of ours.
_LONGEST_LINE = 1 << 16
_SEND_S = 5.0
_LARGEST_NUMBER = 1 << 62
_LONGEST_EXCERPT = 80
_LONGEST_SENTENCE = 1000


class ChannelClosedError(ConnectionError):
    """The other side is gone, or sends what is no message."""


class Channel:
    """One connection; sends wait a little, receives wait as long as they are asked to."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_SEND_S)
        self._connection = connection
        self._received = b""

    def send(self, **message: str | float | bool | None) -> None:
        """Send one message."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ChannelClosedError(f"cannot send: {error}") from error

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        """The messages that have arrived, after at most `wait_s` seconds; often none."""
        try:
            # not `select`, which takes no descriptor above 1023
            waiting = select.poll()
            waiting.register(self._connection, select.POLLIN)
            if not waiting.poll(math.ceil(1000.0 * wait_s)):
                return []
            arrived = self._connection.recv(_LONGEST_LINE)
        except (OSError, ValueError) as error:  # ValueError: it was closed on this side
            raise ChannelClosedError(f"cannot receive: {error}") from error
        if not arrived:
            raise ChannelClosedError("the other side has closed the connection")
        *lines, self._received = (self._received + arrived).split(b"\n")
        if len(self._received) > _LONGEST_LINE:
            raise ChannelClosedError("the other side sends no lines")
        return [_parsed(line) for line in lines]

    def close(self) -> None:
        """Close the connection; twice is harmless."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def whole_number(message: Message, key: str) -> int:
    """A number of a message."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_NUMBER:
        raise ChannelClosedError(f"not a message: {key} is {excerpt(value)}")
    return value


def excerpt(value: object) -> str:
    """What a stranger has sent, short and in printable ASCII."""
    try:
        text = ascii(value)
    except RecursionError:
        return type(value).__name__
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}..."


def printable(value: object) -> str:
    """A sentence that was sent, without what a terminal would obey."""
    text = value if isinstance(value, str) else excerpt(value)
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST_SENTENCE])


def _parsed(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ChannelClosedError(f"not a message: {excerpt(line)}") from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ChannelClosedError(f"not a message: {excerpt(line)}")
    return message


# what every scheduler and DNS calls nodes; nothing that a terminal would obey
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_LARGEST_INDEX = 1 << 20
_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Hello:
    """What an agent says of its node."""

    identity: NodeIdentity
    n_ranks: int
    nonce: str


class RefusedHelloError(ChannelClosedError):
    """Who has connected does not become a node; the message is for its user."""


def new_nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(_NONCE_BYTES)


def proof(token: str, role: str, supervisor_nonce: str, agent_nonce: str) -> str:
    """What shows knowledge of the secret."""
    text = f"ettr elastic {role} {supervisor_nonce} {agent_nonce}"
    return hmac.digest(token.encode(), text.encode(), "sha256").hex()


def check_proof(message: Message, expected: str) -> bool:
    """Whether a message carries a proof, in a time that shows nothing of how much is right."""
    return hmac.compare_digest(ascii(message.get("proof")), ascii(expected))


def check_node(identity: NodeIdentity) -> None:
    """Refuse names that are not short and plain."""
    for option, name in (("--node-name", identity.name), ("--rack", identity.rack)):
        if name is not None and not _PLAIN_NAME.fullmatch(name):
            raise UsageError(
                f"{option} {excerpt(name)}: give letters, digits and . _ : - only, at most 128"
            )


def read_hello(message: Message, *, token: str, nonce: str, n_ranks: int) -> Hello:
    """The hello of an agent."""
    if message["kind"] != "hello":
        raise RefusedHelloError("not an agent: it sent no hello")
    if message.get("protocol") != PROTOCOL:
        raise RefusedHelloError(
            f"it has version {excerpt(message.get('protocol'))} of the elastic protocol, the "
            f"supervisor {PROTOCOL}: run the same ettr on every node"
        )
    agent_nonce = message.get("nonce")
    if not isinstance(agent_nonce, str) or not re.fullmatch(r"[0-9a-f]{32}", agent_nonce):
        raise RefusedHelloError("not an agent: it sent no nonce")
    if not check_proof(message, proof(token, "agent", nonce, agent_nonce)):
        raise RefusedHelloError(
            "not an agent of this run: set the same ETTR_ELASTIC_TOKEN on every node"
        )
    if isinstance(message.get("ranks"), bool) or message.get("ranks") != n_ranks:
        raise RefusedHelloError(
            f"it has --ranks {excerpt(message.get('ranks'))}, the supervisor {n_ranks}: give the "
            f"same --ranks on every node"
        )
    return Hello(_identity(message), n_ranks, agent_nonce)


def _identity(message: Message) -> NodeIdentity:
    name, rack, index = message.get("node"), message.get("rack"), message.get("index")
    if not isinstance(name, str) or not isinstance(rack, str | None):
        raise RefusedHelloError("its name or rack is not text")
    if index is not None:
        index = whole_number(message, "index")
        if not 0 <= index < _LARGEST_INDEX:
            raise RefusedHelloError(f"its number among the nodes is {index}")
    identity = NodeIdentity(name, index, rack)
    try:
        check_node(identity)
    except UsageError as error:
        raise RefusedHelloError(str(error)) from error
    return identity


# -- What a node is called, where nodes meet, and through which interface. Standard library only --

_LOOPBACK = "lo"
_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface
# Below the ephemeral ports of Linux; under Slurm the job's number picks one.
_FIRST_PORT, _N_PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """One node of a run."""

    name: str
    index: int | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of a run meet."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Meeting:
        """From HOST:PORT."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise UsageError(
                f"--rdzv {text}: give HOST:PORT, a host that every node reaches and a free port "
                f"of it, such as node001:29400"
            )
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def this_node(environment: Mapping[str, str], name: str | None, rack: str | None) -> NodeIdentity:
    """This node, by what was given, by Slurm, or by its host name."""
    index = environment.get("SLURM_NODEID", "")
    return NodeIdentity(
        name or environment.get("SLURMD_NODENAME") or socket.gethostname(),
        int(index) if index.isdecimal() else None,
        rack,
    )


def slurm_meeting(environment: Mapping[str, str], first_node: str) -> Meeting:
    """Where the nodes of a Slurm step meet: on the first, at a port that the job's number picks."""
    job = environment.get("SLURM_JOB_ID", "0")
    number = int(job) if job.isdecimal() else 0
    return Meeting(first_node, _FIRST_PORT + number % _N_PORTS)


def listen(meeting: Meeting) -> socket.socket | None:
    """A listener at the meeting place; None: it is another node's, or another process has it."""
    try:
        return socket.create_server((meeting.host, meeting.port), backlog=128)
    except OSError:
        return None


def interface_towards(host: str) -> str | None:
    """Name of the interface through which a host is reached; None: unknown."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing; picks the interface of the route
        address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return None


def with_interface(environment: Mapping[str, str], host: str) -> dict[str, str]:
    """The environment of ranks, with gloo on the interface that leads to a host."""
    result = dict(environment)
    # An address of loopback that is not the interface's own (Debian's 127.0.1.1 of the host name)
    # is found on no interface.
    loopback = _LOOPBACK if host.startswith("127.") else None
    if "GLOO_SOCKET_IFNAME" not in result and (interface := interface_towards(host) or loopback):
        result["GLOO_SOCKET_IFNAME"] = interface
    return result


def in_slurm_step(environment: Mapping[str, str]) -> bool:
    """Whether `srun` started this process."""
    return "SLURM_STEP_ID" in environment and "SLURM_PROCID" in environment


LOOPBACK = "127.0.0.1"
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Gathering:
    """How other nodes join a run.

    Attributes:
        meeting: Where; the host is this machine, by an address that all nodes reach.
    """

    meeting: Meeting
    listener: socket.socket
    node: NodeIdentity
    token: str = ""


def serve_store(host: str) -> TCPStore:
    """A store that listens on one address of this machine, at any free port.

    torch's own listens on every interface, and asks nobody who they are.
    """
    from torch.distributed import TCPStore

    def serve(*, use_libuv: bool) -> TCPStore:
        listener = socket.create_server((host, 0), backlog=_BACKLOG)
        port = listener.getsockname()[1]
        store: TCPStore = TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            use_libuv=use_libuv,
        )
        return store

    try:
        return serve(use_libuv=True)
    except RuntimeError:  # before torch 2.8 libuv's server takes no listener
        return serve(use_libuv=False)
