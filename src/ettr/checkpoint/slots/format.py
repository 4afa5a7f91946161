"""The format of a slot file: for each block two places, written in turn.

    superblock        magic, version, checksum, file id, generation, layout as JSON, CRC-32
    places A          one record per block: header (64 bytes) | payload
    places B          the same again
    superblock        a second copy, found from the last 16 bytes

A round writes each of its blocks into the place that does not hold the block's newest durable
record, then flushes once. A kill or a power cut can only tear places whose other place is intact; a
reader takes the newest record that passes its checksum: xxh3-64 where `xxhash` is installed, else
CRC-32. Each file names the algorithm it was written with.

The superblock of a new file says how far it trusts the files of earlier generations (`inherits`),
so that a late write of a replaced process is not read. Standard library only.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypedDict

from ettr.checkpoint.slots.durable_io import read_at
from ettr.checkpoint.slots.layout import LayoutJson, SlotLayout, aligned
from ettr.errors import CheckpointError

Bytes: TypeAlias = bytes | bytearray | memoryview

CHECKSUM_CODES = {"xxh3": 1, "crc32": 2}
CHECKSUM_NAMES = {code: name for name, code in CHECKSUM_CODES.items()}


def default_checksum() -> str:
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
    raise CheckpointError(f"checksum: {name!r} was given; give one of {', '.join(CHECKSUM_CODES)}")


# -- the file ------------------------------------------------------------------------------------

FORMAT_VERSION = 3
MAGIC = b"ETTRSLOT"
RECORD_MAGIC = b"ETBK"
HEADER = struct.Struct("<4sHHQIQQQQQ")  # then CRC-32 of it: 64 bytes
HEADER_BYTES = HEADER.size + 4
SUPER = struct.Struct("<8sIIQQQQQ")  # then the JSON, then CRC-32 of both
FOOTER = struct.Struct("<Q8s")
PAGE_BYTES = 4096
_PAGED_FROM_BYTES = 32768


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where each block's places lie in the file, in bytes from its beginning."""

    place_a: tuple[int, ...]
    places_bytes: int
    head_bytes: int
    file_bytes: int

    def offset(self, block: int, place: int) -> int:
        """Offset of the record of `block` in place 0 (A) or 1 (B)."""
        return self.place_a[block] + place * self.places_bytes

    @property
    def tail_offset(self) -> int:
        """Offset of the second copy of the superblock."""
        return self.head_bytes + 2 * self.places_bytes


@dataclass(frozen=True, slots=True)
class Superblock:
    """The description at both ends of a slot file.

    Attributes:
        inherits: Generation -> its last round that this file's writer trusted.
        other_generations: Slot -> generation of its latest file when this one was made, for every
            other slot (`resharding`).
    """

    file_id: int
    generation: int
    checksum: str
    layout: SlotLayout
    inherits: dict[int, int]
    other_generations: dict[str, int] = field(default_factory=dict)
    slot: str | None = None
    world: int | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of one record; `payload_sum` is still to be checked."""

    block: int
    generation: int
    step: int
    seq: int
    payload_bytes: int
    payload_sum: int


class _SuperblockJson(TypedDict, total=False):
    inherits: dict[str, int]
    seen: dict[str, int]  # absent in files of earlier versions, as are the next three
    slot: str | None
    world: int | None
    run: str | None
    layout: LayoutJson


def geometry(layout: SlotLayout, superblock_bytes: int) -> Geometry:
    """Lay the places out: large records on pages of their own, small ones packed."""
    offset = head_bytes = aligned(superblock_bytes, PAGE_BYTES)
    place_a = []
    for block in range(len(layout.blocks)):
        length = HEADER_BYTES + layout.payload_bytes(block)
        offset = aligned(offset, PAGE_BYTES if length >= _PAGED_FROM_BYTES else HEADER_BYTES)
        place_a.append(offset)
        offset += length
    places_bytes = aligned(offset, PAGE_BYTES) - head_bytes
    # The tail copy of the superblock keeps the footer in its last bytes.
    tail_bytes = aligned(superblock_bytes + FOOTER.size, PAGE_BYTES)
    file_bytes = head_bytes + 2 * places_bytes + tail_bytes
    return Geometry(tuple(place_a), places_bytes, head_bytes, file_bytes)


def pack_header(file_id: int, checksum: str, header: RecordHeader) -> bytes:
    """The 64 bytes in front of a payload."""
    raw = HEADER.pack(
        RECORD_MAGIC,
        FORMAT_VERSION,
        CHECKSUM_CODES[checksum],
        file_id,
        header.block,
        header.generation,
        header.step,
        header.seq,
        header.payload_bytes,
        header.payload_sum,
    )
    return raw + zlib.crc32(raw).to_bytes(4, "little")


def unpack_header(raw: bytes, expected: Superblock, block: int) -> RecordHeader | None:
    """The header, or None where it is torn, or of another file or block."""
    if len(raw) < HEADER_BYTES:
        return None
    if zlib.crc32(raw[: HEADER.size]).to_bytes(4, "little") != raw[HEADER.size : HEADER_BYTES]:
        return None
    magic, version, code, file_id, number, generation, step, seq, length, digest = HEADER.unpack(
        raw[: HEADER.size]
    )
    belongs = (
        magic == RECORD_MAGIC
        and version == FORMAT_VERSION
        and code == CHECKSUM_CODES[expected.checksum]
        and file_id == expected.file_id
        and generation == expected.generation
        and number == block
        and length == expected.layout.payload_bytes(block)
    )
    return RecordHeader(number, generation, step, seq, length, digest) if belongs else None


def pack_superblock(superblock: Superblock) -> bytes:
    """The superblock's bytes, its checksum included."""
    inherits = json.dumps({str(g): s for g, s in superblock.inherits.items()})
    seen, layout = json.dumps(superblock.other_generations), superblock.layout.to_json()
    job = json.dumps({"slot": superblock.slot, "world": superblock.world, "run": superblock.run})
    text = f'{{"inherits":{inherits},"seen":{seen},{job[1:-1]},"layout":{layout}}}'.encode()
    head = SUPER.pack(
        MAGIC,
        FORMAT_VERSION,
        CHECKSUM_CODES[superblock.checksum],
        superblock.file_id,
        superblock.generation,
        len(superblock.layout.blocks),
        len(text),
        0,
    )
    raw = head + text
    return raw + zlib.crc32(raw).to_bytes(4, "little")


def _unpack_superblock(fd: int, offset: int) -> tuple[Superblock, int] | None:
    raw = read_at(fd, SUPER.size, offset)
    if len(raw) < SUPER.size:
        return None
    magic, version, code, file_id, generation, _, text_bytes, _ = SUPER.unpack(raw)
    if magic != MAGIC or text_bytes > os.fstat(fd).st_size:
        return None
    raw += read_at(fd, text_bytes + 4, offset + SUPER.size)
    if zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
        return None
    if version != FORMAT_VERSION:  # its checksum holds, so it is no damage
        raise CheckpointError(
            f"slot file of format {version}: this ettr reads {FORMAT_VERSION}; use the one that "
            f"wrote it"
        )
    document: _SuperblockJson = json.loads(raw[SUPER.size : -4])
    superblock = Superblock(
        file_id,
        generation,
        CHECKSUM_NAMES[code],
        SlotLayout.from_json(document["layout"]),
        inherits={int(g): int(seq) for g, seq in document["inherits"].items()},
        other_generations={str(slot): int(g) for slot, g in document.get("seen", {}).items()},
        slot=document.get("slot"),
        world=document.get("world"),
        run=document.get("run"),
    )
    return superblock, len(raw)


def read_superblock(fd: int) -> tuple[Superblock, Geometry] | None:
    """The superblock from the head or, where that is damaged, from the tail; None: neither."""
    unpacked = _unpack_superblock(fd, 0)
    if unpacked is None:
        end = os.fstat(fd).st_size
        footer = read_at(fd, FOOTER.size, max(end - FOOTER.size, 0))
        if len(footer) < FOOTER.size:
            return None
        tail_offset, magic = FOOTER.unpack(footer)
        if magic != MAGIC or tail_offset >= end:
            return None
        unpacked = _unpack_superblock(fd, tail_offset)
        if unpacked is None:
            return None
    superblock, superblock_bytes = unpacked
    return superblock, geometry(superblock.layout, superblock_bytes)
