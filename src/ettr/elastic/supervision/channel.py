"""The connection between the supervisor of a run and the agent of a node: lines of JSON over TCP.

Standard library only. What is sent are orders and reports of processes, never a command: an agent
runs the command that it was started with.
"""

from __future__ import annotations

import json
import math
import select
import socket
from contextlib import suppress

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
        """Take over a connection.

        Raises:
            OSError: it has ended already.
        """
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_SEND_S)
        self._connection = connection
        self._received = b""

    def send(self, **message: str | float | bool | None) -> None:
        """Send one message.

        Raises:
            ChannelClosedError: the other side is gone, or takes nothing for 5 s.
        """
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ChannelClosedError(f"cannot send: {error}") from error

    def receive(self, wait_s: float = 0.0) -> list[Message]:
        """The messages that have arrived, after at most `wait_s` seconds; often none.

        Raises:
            ChannelClosedError: the other side is gone, or what arrived is no message.
        """
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
    """A number of a message.

    Raises:
        ChannelClosedError: there is none under that key.
    """
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
