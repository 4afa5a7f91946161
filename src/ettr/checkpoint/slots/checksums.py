"""Checksums of blocks: xxh3-64 where `xxhash` is installed, else CRC-32 of the standard library.

Each file names the algorithm it was written with.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol, TypeAlias

from ettr.errors import CheckpointError

Bytes: TypeAlias = bytes | bytearray | memoryview

CODES = {"xxh3": 1, "crc32": 2}
NAMES = {code: name for name, code in CODES.items()}


def default_name() -> str:
    """The fastest algorithm at hand: `xxh3` (18 GB/s a core) or `crc32` (4 GB/s)."""
    try:
        import xxhash  # noqa: F401
    except ImportError:
        return "crc32"
    return "xxh3"


class StreamingDigest(Protocol):
    """A checksum of bytes that come in pieces."""

    def update(self, data: Bytes, /) -> None:
        """Add a piece."""

    def intdigest(self) -> int:
        """The checksum of all pieces so far."""


class _StreamingCrc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: Bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def intdigest(self) -> int:
        return self._value


def streaming_digest(name: str) -> StreamingDigest:
    """A new checksum of bytes that come in pieces."""
    if digest_function(name) is zlib.crc32:
        return _StreamingCrc32()
    import xxhash

    digest: StreamingDigest = xxhash.xxh3_64()
    return digest


def digest_function(name: str) -> Callable[[Bytes], int]:
    """The function from bytes to an unsigned integer below 2**64."""
    if name == "crc32":
        return zlib.crc32
    if name == "xxh3":
        try:
            import xxhash
        except ImportError as error:
            raise CheckpointError(
                "blocks are checked with xxh3 and the package xxhash is not installed; "
                "pip install xxhash"
            ) from error
        digest: Callable[[Bytes], int] = xxhash.xxh3_64_intdigest
        return digest
    raise CheckpointError(f"checksum: {name!r} was given; give one of {', '.join(CODES)}")
