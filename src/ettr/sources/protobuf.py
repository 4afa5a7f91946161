"""The wire format of protocol buffers, read without their schema.

A message is fields: a number, a wire type and a value. Readers pick the few that they know by
number; all others are passed over, so that newer writers are read as well.

**Source**: the encoding page of the documentation of protocol buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ettr.sources.lines import BadRecordError

_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_DOUBLE = struct.Struct("<d")


class WireError(BadRecordError):
    """The bytes are no message."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad-protobuf", detail)


class FramedMessage(NamedTuple):
    """The bytes of a message in a file; None where they cannot be read, for `reason`, `detail`."""

    data: bytes | None
    reason: str = ""
    detail: str = ""

    def whole(self) -> bytes:
        """The bytes. Raises BadRecordError: they cannot be read."""
        if self.data is None:
            raise BadRecordError(self.reason, self.detail)
        return self.data


class Field(NamedTuple):
    """One field: a varint is an int, all else is bytes."""

    number: int
    value: int | bytes

    @property
    def message(self) -> bytes:
        """The bytes of a message or a text. Raises WireError: the field is a number."""
        if not isinstance(self.value, bytes):
            raise WireError(f"field {self.number} is a number, not a message")
        return self.value

    @property
    def integer(self) -> int:
        """An int64, with its sign. Raises WireError: the field is no varint."""
        if not isinstance(self.value, int):
            raise WireError(f"field {self.number} is not a whole number")
        return self.value - (1 << 64) if self.value >> 63 else self.value

    @property
    def double(self) -> float:
        """A double. Raises WireError: the field does not have its eight bytes."""
        if not isinstance(self.value, bytes) or len(self.value) != _DOUBLE.size:
            raise WireError(f"field {self.number} is no double")
        return float(_DOUBLE.unpack(self.value)[0])

    @property
    def text(self) -> str:
        """A text; what is no UTF-8 in it is replaced.

        Raises:
            WireError: the field is a number.
        """
        return self.message.decode("utf-8", "replace")


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in order.

    Raises:
        WireError: a field is cut off, or of a wire type that is not in use.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield Field(number, value)
            continue
        if wire == _DELIMITED:
            size, at = _varint(message, at)
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise WireError(f"field {number} has wire type {wire}")
        if size > end - at:
            raise WireError(f"field {number} has {size} bytes, of which {end - at} are there")
        yield Field(number, message[at : at + size])
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = 0
    for place in range(_MOST_VARINT_BYTES):
        if at + place >= len(message):
            raise WireError("a number is cut off")
        byte = message[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise WireError("a number has more than ten bytes")
