"""How an agent and the supervisor of a run prove to each other that they know the run's secret.

Standard library only. The supervisor sends a nonce; the agent answers with its own and with a keyed
hash of both; the welcome carries the supervisor's hash. The secret itself is never sent, and an
answer that was overheard is of no use a second time. What follows is neither encrypted nor signed:
whoever can change packets on the way is not kept out.
"""

from __future__ import annotations

import hmac
import json
import math
import re
import secrets
import select
import socket
from contextlib import suppress
from dataclasses import dataclass

from ettr.elastic.membership.rendezvous import PROTOCOL
from ettr.elastic.supervision.node_identity import NodeIdentity
from ettr.errors import UsageError

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
        raise RefusedHelloError("not an agent: it says no hello")
    if message.get("protocol") != PROTOCOL:
        raise RefusedHelloError(
            f"it has version {excerpt(message.get('protocol'))} of the elastic protocol, the "
            f"supervisor {PROTOCOL}: run the same ettr on every node"
        )
    agent_nonce = message.get("nonce")
    if not isinstance(agent_nonce, str) or not re.fullmatch(r"[0-9a-f]{32}", agent_nonce):
        raise RefusedHelloError("not an agent: it sends no nonce")
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
        raise RefusedHelloError("its name or rack is no text")
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
