"""The file of one slot: for each block two places, written in turn.

    superblock        magic, version, checksum, file id, generation, layout as JSON, CRC-32
    places A          one record a block: header (64 bytes) | payload
    places B          the same again
    superblock        a second copy, found from the last 16 bytes

A round writes each of its blocks into the place that does not hold the block's newest durable
record, then flushes once. Whatever moment a kill or a power cut takes, it can only tear places
whose other place is whole; a reader takes the newest record that passes its checksum.

Fencing: every process that opens a slot makes a file of its own, `blocks-<generation>.bin`, with a
generation above all before it. A process that was taken for dead and wakes up holds the old file
only; it sees the later generation at its next round and stops. The new file names how far it trusts
the old one (`inherits`), so that a late write of a zombie is not read either.
Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ettr.checkpoint import checksums
from ettr.checkpoint.durable_io import Disk, OsDisk, make_folder, read_at, sync_folder
from ettr.checkpoint.errors import CheckpointError, FencedError
from ettr.checkpoint.layout import RESERVED, Layout, aligned

FORMAT_VERSION = 2  # 1: what is no tensor was JSON alone; no movement of blocks
_READABLE = (1, 2)
MAGIC = b"ETTRSLOT"
RECORD_MAGIC = b"ETBK"
HEADER = struct.Struct("<4sHHQIQQQQQ")  # then CRC-32 of it: 64 bytes
HEADER_BYTES = HEADER.size + 4
SUPER = struct.Struct("<8sIIQQQQQ")  # then the JSON, then CRC-32 of both
FOOTER = struct.Struct("<Q8s")
PAGE_BYTES = 4096
_PAGED_FROM_BYTES = 32768
_NAME = re.compile(r"(blocks|fence)-(\d{8,})(\.bin)?$")


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where each block's places lie in the file, in bytes from its beginning."""

    place_a: tuple[int, ...]
    region_bytes: int
    head_bytes: int
    file_bytes: int

    def offset(self, block: int, place: int) -> int:
        """Offset of the record of `block` in place 0 (A) or 1 (B)."""
        return self.place_a[block] + place * self.region_bytes


@dataclass(frozen=True, slots=True)
class Superblock:
    """What a slot file says about itself.

    seen: generation of the latest file of every other slot when this one was made (`succession`).
    """

    file_id: int
    generation: int
    checksum: str
    layout: Layout
    inherits: dict[int, int]
    seen: dict[str, int] = field(default_factory=dict)
    version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What a record says about itself; `payload_sum` is still to be checked."""

    block: int
    generation: int
    step: int
    seq: int
    payload_bytes: int
    payload_sum: int


def geometry(layout: Layout, super_bytes: int) -> Geometry:
    """Lay the places out: large records on pages of their own, small ones packed."""
    offset = head = aligned(super_bytes, PAGE_BYTES)
    places = []
    for block in range(len(layout.blocks)):
        length = HEADER_BYTES + layout.payload_bytes(block)
        offset = aligned(offset, PAGE_BYTES if length >= _PAGED_FROM_BYTES else HEADER_BYTES)
        places.append(offset)
        offset += length
    region = aligned(offset, PAGE_BYTES) - head
    # The tail copy of the superblock keeps the footer in its last bytes.
    tail = aligned(super_bytes + FOOTER.size, PAGE_BYTES)
    return Geometry(tuple(places), region, head, head + 2 * region + tail)


def pack_header(file_id: int, checksum: str, header: RecordHeader) -> bytes:
    """The 64 bytes in front of a payload."""
    raw = HEADER.pack(
        RECORD_MAGIC,
        FORMAT_VERSION,
        checksums.CODES[checksum],
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
    """The header, or None where it is torn, foreign or of another block."""
    if len(raw) < HEADER_BYTES:
        return None
    if zlib.crc32(raw[: HEADER.size]).to_bytes(4, "little") != raw[HEADER.size : HEADER_BYTES]:
        return None
    magic, version, code, file_id, number, generation, step, seq, length, digest = HEADER.unpack(
        raw[: HEADER.size]
    )
    known = (
        magic == RECORD_MAGIC
        and version == expected.version
        and code == checksums.CODES[expected.checksum]
        and file_id == expected.file_id
        and generation == expected.generation
        and number == block
        and length == expected.layout.payload_bytes(block)
    )
    return RecordHeader(number, generation, step, seq, length, digest) if known else None


def pack_superblock(superblock: Superblock) -> bytes:
    """The superblock's bytes, its checksum included."""
    inherits = json.dumps({str(g): s for g, s in superblock.inherits.items()})
    seen = json.dumps(superblock.seen)
    text = (
        f'{{"inherits":{inherits},"seen":{seen},"layout":{superblock.layout.to_json()}}}'.encode()
    )
    raw = (
        SUPER.pack(
            MAGIC,
            superblock.version,
            checksums.CODES[superblock.checksum],
            superblock.file_id,
            superblock.generation,
            len(superblock.layout.blocks),
            len(text),
            0,
        )
        + text
    )
    return raw + zlib.crc32(raw).to_bytes(4, "little")


def _unpack_superblock(fd: int, offset: int) -> tuple[Superblock, int] | None:
    raw = read_at(fd, SUPER.size, offset)
    if len(raw) < SUPER.size:
        return None
    magic, version, code, file_id, generation, _, n_text, _ = SUPER.unpack(raw)
    if magic != MAGIC or n_text > os.fstat(fd).st_size:
        return None
    raw += read_at(fd, n_text + 4, offset + SUPER.size)
    if zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
        return None
    if version not in _READABLE:
        # Its checksum holds, so it is no damage: a later ettr wrote it.
        raise CheckpointError(
            f"slot file of format {version}: this ettr reads {_READABLE[0]} to {_READABLE[-1]}; "
            f"use the version that wrote it, or a later one"
        )
    document: dict[str, Any] = json.loads(raw[SUPER.size : -4])
    inherits = {int(g): int(s) for g, s in document["inherits"].items()}
    layout = Layout.from_json(document["layout"])
    name = checksums.NAMES[code]
    seen = {str(slot): int(g) for slot, g in document.get("seen", {}).items()}
    return Superblock(file_id, generation, name, layout, inherits, seen, version), len(raw)


def read_superblock(fd: int) -> tuple[Superblock, Geometry] | None:
    """The superblock from the head or, where that is damaged, from the tail; None: neither."""
    found = _unpack_superblock(fd, 0)
    if found is None:
        end = os.fstat(fd).st_size
        footer = read_at(fd, FOOTER.size, max(end - FOOTER.size, 0))
        if len(footer) < FOOTER.size:
            return None
        start, magic = FOOTER.unpack(footer)
        if magic != MAGIC or start >= end:
            return None
        found = _unpack_superblock(fd, start)
        if found is None:
            return None
    superblock, length = found
    return superblock, geometry(superblock.layout, length)


class SlotWriter:
    """Writes rounds of blocks into the file of one generation of one slot.

    Use `create`. Not for several threads at once.
    """

    def __init__(
        self, folder: Path, fd: int, superblock: Superblock, places: Geometry, disk: Disk
    ) -> None:
        self.folder, self.superblock, self.geometry = folder, superblock, places
        self.seq = 0
        self.written_bytes = 0
        self._fd, self._disk = fd, disk
        self._newest: list[int | None] = [None] * len(superblock.layout.blocks)
        self._sum = checksums.function(superblock.checksum)

    @classmethod
    def create(
        cls,
        folder: Path,
        layout: Layout,
        *,
        generation: int | None = None,
        checksum: str | None = None,
        inherits: dict[int, int] | None = None,
        disk: Disk | None = None,
    ) -> SlotWriter:
        """Make the file of a new generation, both copies of the superblock durable in it.

        Args:
            generation: None takes the next; a given one must be above all that exist.
            inherits: last round trusted of each earlier generation.

        Raises:
            FencedError: that generation, or a later one, exists.
            CheckpointError: the disk has no room for two places a block.
        """
        make_folder(folder)
        latest = latest_generation(folder)
        chosen = latest + 1 if generation is None else generation
        if chosen < latest or (chosen == latest and latest in files_of(folder)):
            raise FencedError(
                f"{folder}: generation {chosen} was given and generation {latest} has it; "
                f"this process was replaced and must end"
            )
        superblock = Superblock(
            int.from_bytes(os.urandom(8), "little"),
            chosen,
            checksum or checksums.default_name(),
            layout,
            inherits or {},
            seen_beside(folder),
        )
        raw = pack_superblock(superblock)
        places = geometry(layout, len(raw))
        path = folder / f"blocks-{chosen:08d}.bin"
        fd = _publish(folder, path, raw, places)
        return cls(folder, fd, superblock, places, disk or OsDisk())

    @property
    def covered(self) -> bool:
        """Whether every block of a tensor has a durable record in this file."""
        layout = self.superblock.layout
        return all(
            place is not None or layout.key(block)[0] in RESERVED
            for block, place in enumerate(self._newest)
        )

    def begin_round(self) -> None:
        """Start a round.

        Raises:
            FencedError: a later generation owns the slot.
        """
        self.check_owner()
        self.seq += 1

    def check_owner(self) -> None:
        """Pass if no later generation owns or fences the slot.

        Raises:
            FencedError: one does.
        """
        latest = latest_generation(self.folder)
        if latest > self.superblock.generation:
            raise FencedError(
                f"{self.folder}: generation {latest} owns this slot, this process has "
                f"{self.superblock.generation}; it was replaced and must end"
            )

    def write(self, block: int, step: int, record: memoryview) -> None:
        """Write one block: `record` is 64 bytes of room for the header, then the payload."""
        payload = record[HEADER_BYTES:]
        header = RecordHeader(
            block, self.superblock.generation, step, self.seq, len(payload), self._sum(payload)
        )
        packed = pack_header(self.superblock.file_id, self.superblock.checksum, header)
        record[:HEADER_BYTES] = packed
        offset = self.geometry.offset(block, self._target(block))
        while record:
            done = self._disk.pwrite(self._fd, record, offset)
            self.written_bytes += done
            offset += done
            record = record[done:]

    def commit(self, blocks: list[int]) -> None:
        """Make the round durable; only then do its records count as the newest of these blocks."""
        self._disk.fdatasync(self._fd)
        for block in blocks:
            self._newest[block] = self._target(block)

    def _target(self, block: int) -> int:
        newest = self._newest[block]
        return 0 if newest is None else 1 - newest

    def close(self) -> None:
        """Close the file; twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _publish(folder: Path, path: Path, raw: bytes, places: Geometry) -> int:
    # Written aside and linked: a file of that name is complete, and the second of two processes
    # that want the same generation finds the name taken.
    for left in folder.glob(".blocks-*"):
        left.unlink(missing_ok=True)  # of a process killed while it made its file
    aside = folder / f".{path.name}.{os.getpid()}"
    fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, places.file_bytes)
        tail = places.head_bytes + 2 * places.region_bytes
        os.pwrite(fd, raw, 0)
        os.pwrite(fd, raw, tail)
        os.pwrite(fd, FOOTER.pack(tail, MAGIC), places.file_bytes - FOOTER.size)
        os.fsync(fd)
        os.link(aside, path)
    except FileExistsError as error:
        os.close(fd)
        raise FencedError(f"{path}: another process took this generation first") from error
    except OSError as error:
        os.close(fd)
        raise CheckpointError(
            f"{folder}: cannot make a slot file of {places.file_bytes} bytes (two places for each "
            f"block): {error.strerror}; free that much or choose another folder"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(folder)
    return fd


def files_of(folder: Path) -> dict[int, Path]:
    """The slot files of a folder by generation, the latest first."""
    found = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.match(entry.name)
        if match and match[1] == "blocks":
            found[int(match[2])] = entry
    return dict(sorted(found.items(), reverse=True))


def seen_beside(folder: Path) -> dict[str, int]:
    """Generation of the latest file of every other slot of the root that has one.

    One listing a slot, no file is opened.
    """
    found = {}
    for other in sorted(folder.parent.glob("slot-*")):
        latest = next(iter(files_of(other)), None) if other != folder else None
        if latest is not None:
            found[other.name.removeprefix("slot-")] = latest
    return found


def latest_generation(folder: Path) -> int:
    """The highest generation that owns or fences the slot; 0: none does."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - once a round, fast
    matches = (_NAME.match(name) for name in names)
    return max((int(match[2]) for match in matches if match), default=0)


def slot_folder(root: str | os.PathLike[str], slot: int | str | tuple[int, ...]) -> Path:
    """The folder of a slot: its mesh coordinate, not its process or host."""
    coordinate = "-".join(map(str, slot)) if isinstance(slot, tuple) else str(slot)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", coordinate):
        raise CheckpointError(
            f"slot: {slot!r} was given; use a rank, a tuple of mesh coordinates, or letters, "
            f"digits, '-', '_' and '.'"
        )
    return Path(root) / f"slot-{coordinate}"


def fence(root: str | os.PathLike[str], slot: int | str | tuple[int, ...]) -> int:
    """Shut the present owner out of a slot; returns the generation its successor must open with."""
    folder = slot_folder(root, slot)
    make_folder(folder)
    while True:
        generation = latest_generation(folder) + 1
        try:
            (folder / f"fence-{generation:08d}").touch(exist_ok=False)
        except FileExistsError:
            continue
        sync_folder(folder)
        return generation
