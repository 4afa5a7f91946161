"""Reading slots: the newest record of each block that passes its checksum, over all generations.

Nothing here trusts an unchecked byte: the superblock, each record's header and each payload carry
their own checksums. Standard library only.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.slots.durable_io import make_folder, read_at, slot_files, slot_of
from ettr.checkpoint.slots.format import (
    HEADER_BYTES,
    Geometry,
    RecordHeader,
    Superblock,
    read_superblock,
    streaming_digest,
    unpack_header,
)
from ettr.checkpoint.slots.layout import RESERVED, Key, difference, region_of
from ettr.errors import CheckpointError
from ettr.files import flush

_PIECE_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class BadBlock:
    """A place whose record cannot be trusted.

    `lost`: no other record of the block is good, so it cannot be restored from this slot. A place
    torn by a kill is bad and not lost: the block's other place is intact.
    """

    slot: str
    generation: int
    fqn: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: str
    reason: str
    lost: bool


@dataclass(frozen=True, slots=True)
class SlotFile:
    """One slot file, open for reading."""

    path: Path
    fd: int
    superblock: Superblock
    places: Geometry


@dataclass(frozen=True, slots=True)
class Record:
    """A record with a good header; its payload is not checked yet."""

    file: SlotFile
    block: int
    place: int
    header: RecordHeader

    @property
    def order(self) -> tuple[int, int]:
        """Records of one block are newest first by this, descending."""
        return (self.header.generation, self.header.seq)

    @property
    def payload_offset(self) -> int:
        """Offset of the payload in the file."""
        return self.file.places.offset(self.block, self.place) + HEADER_BYTES


@dataclass(slots=True)
class Slot:
    """The records of one slot by block, newest first, and the places that cannot be trusted."""

    name: str
    records: dict[Key, list[Record]] = field(default_factory=dict)
    damaged: list[BadBlock] = field(default_factory=list)
    files: list[SlotFile] = field(default_factory=list)
    misplaced: dict[str, Path] = field(default_factory=dict)  # by the slot they were written for

    def close(self) -> None:
        """Close its files."""
        for file in self.files:
            os.close(file.fd)
        self.files.clear()


class PayloadReader:
    """Reads payloads into one warm buffer, so that bytes are checked while they are in the cache.

    The memory returned is overwritten by the next read.
    """

    def __init__(self, *, check: bool = True) -> None:
        self._buffer = bytearray(1 << 20)
        self.check = check

    def read(self, record: Record) -> memoryview | None:
        """The payload, or None where it is short or fails its checksum."""
        length = record.header.payload_bytes
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        view = memoryview(self._buffer)[:length]
        digest = streaming_digest(record.file.superblock.checksum) if self.check else None
        filled = 0
        while filled < length:
            # In pieces, so that each is checked while it is still in the core's own cache.
            piece = view[filled : filled + _PIECE_BYTES]
            try:
                n_bytes = os.preadv(record.file.fd, [piece], record.payload_offset + filled)
            except OSError:
                return None  # a medium that cannot give the bytes is a bad record like another
            if n_bytes == 0:
                return None
            if digest is not None:
                digest.update(piece[:n_bytes])
            filled += n_bytes
        if digest is not None and digest.intdigest() != record.header.payload_sum:
            return None
        return view


def slot_names(root: str | os.PathLike[str]) -> list[str]:
    """The slots below a root."""
    folder = Path(root)
    names = sorted(slot_of(p) for p in folder.glob("slot-*") if p.is_dir())
    if not names:
        raise CheckpointError(
            f"{folder}: no running checkpoint here (no folder slot-*); give the root that was "
            f"given to RunningCheckpoint"
        )
    return names


@contextmanager
def open_slot(root: str | os.PathLike[str], name: str) -> Iterator[Slot]:
    """A slot with every header of every generation read; its files are closed on leaving."""
    slot = _opened(Path(root), name)
    try:
        yield slot
    finally:
        slot.close()


def _opened(root: Path, name: str) -> Slot:
    while True:
        slot = Slot(name)
        try:
            _open_files(slot, root / f"slot-{name}")
        except FileNotFoundError:
            # A later generation has just become complete and replaced it. Of that one, headers may
            # have been read that are older than what is gone: start over.
            slot.close()
            continue
        return slot


def _open_files(slot: Slot, folder: Path) -> None:
    trusted: dict[int, int] = {}
    for generation, path in slot_files(folder).items():
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            described = read_superblock(fd)
        except CheckpointError as error:
            os.close(fd)
            slot.close()
            raise CheckpointError(f"{path}: {error}") from error
        if described is None or described[0].generation != generation:
            os.close(fd)
            reason = "superblock: both copies are damaged, nothing of this generation can be read"
            slot.damaged.append(_bad_file(slot.name, generation, reason))
            continue
        written_for = described[0].slot
        if written_for is not None and written_for != slot.name:
            os.close(fd)
            reason = f"file: it was written for slot {written_for} and lies in slot {slot.name}"
            slot.damaged.append(_bad_file(slot.name, generation, reason))
            slot.misplaced[written_for] = path
            continue
        file = SlotFile(path, fd, *described)
        slot.files.append(file)
        _collect_records(slot, file, trusted.get(generation))
        for earlier, last_seq in file.superblock.inherits.items():
            trusted.setdefault(earlier, last_seq)
    for records in slot.records.values():
        records.sort(key=lambda r: r.order, reverse=True)


def _bad_file(slot: str, generation: int, reason: str) -> BadBlock:
    return BadBlock(slot, generation, "", (), (), "file", reason, lost=True)


def _collect_records(slot: Slot, file: SlotFile, last_seq: int | None) -> None:
    layout = file.superblock.layout
    for block in range(len(layout.blocks)):
        key = layout.key(block)
        for place in (0, 1):
            raw = read_at(file.fd, HEADER_BYTES, file.places.offset(block, place))
            header = unpack_header(raw, file.superblock, block)
            if header is None:
                if len(raw) < HEADER_BYTES or any(raw):
                    reason = "header: torn, damaged, or of another block"
                    slot.damaged.append(_bad_place(slot.name, file, key, place, reason))
            elif last_seq is None or header.seq <= last_seq:
                # Later rounds of an earlier generation were written by a replaced process.
                slot.records.setdefault(key, []).append(Record(file, block, place, header))


def _bad_place(slot: str, file: SlotFile, key: Key, place: int, reason: str) -> BadBlock:
    return BadBlock(slot, file.superblock.generation, *key, "AB"[place], reason, lost=False)


def record_at(file: SlotFile, block: int, place: int) -> Record | None:
    """The record that stands in a place now; None: none with a good header."""
    raw = read_at(file.fd, HEADER_BYTES, file.places.offset(block, place))
    header = unpack_header(raw, file.superblock, block)
    return None if header is None else Record(file, block, place, header)


def bad_record(slot: str, record: Record) -> BadBlock:
    """The finding that a record's payload fails its checksum."""
    key = record.file.superblock.layout.key(record.block)
    reason = f"payload of step {record.header.step}: {record.file.superblock.checksum} differs"
    now = record_at(record.file, record.block, record.place)
    if now is not None and now.header != record.header:
        reason = (
            f"payload of step {record.header.step}: a run that goes on wrote step "
            f"{now.header.step} over it while it was read"
        )
    return _bad_place(slot, record.file, key, record.place, reason)


def last_rounds(slot: Slot) -> dict[int, int]:
    """The last round found of each generation: what a successor trusts of them."""
    rounds = {file.superblock.generation: 0 for file in slot.files}
    for records in slot.records.values():
        for record in records:
            generation = record.header.generation
            rounds[generation] = max(rounds[generation], record.header.seq)
    # What an earlier takeover did not trust stays untrusted.
    for file in slot.files:
        for generation, seq in file.superblock.inherits.items():
            rounds[generation] = min(rounds.get(generation, seq), seq)
    return rounds


# -- the files that earlier processes have left in a slot or folder, as their successor finds them


@dataclass(frozen=True, slots=True)
class EarlierRecords:
    """The files of a slot's earlier generations."""

    last_rounds: dict[int, int] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    world: int | None = None
    run: str | None = None
    damaged: int = 0


def earlier_records(root: str | os.PathLike[str], folder: Path) -> EarlierRecords:
    """What lies in a slot."""
    if not folder.is_dir():
        return EarlierRecords()  # a new slot
    with open_slot(root, slot_of(folder)) as slot:
        for written_for, path in slot.misplaced.items():
            raise CheckpointError(
                f"{path}: it was written for slot {written_for}; move it to the folder of that "
                f"slot, or give another root"
            )
        latest = superblock_of(slot)
        return EarlierRecords(
            last_rounds(slot),
            steps_of(slot),
            world=None if latest is None else latest.world,
            run=None if latest is None else latest.run,
            damaged=len(slot.damaged),
        )


def steps_of(slot: Slot) -> tuple[int, int] | None:
    """The oldest and the newest step of the latest records of a slot's blocks; None: no record."""
    steps = [
        records[0].header.step
        for key, records in slot.records.items()
        if records and key[0] not in RESERVED
    ]
    return (min(steps), max(steps)) if steps else None


def superblock_of(slot: Slot) -> Superblock | None:
    """The superblock of the latest file with a record; None: no file has one."""
    records = (records[0] for records in slot.records.values() if records)
    latest = max(records, key=lambda record: record.order, default=None)
    return None if latest is None else latest.file.superblock


def keep_aside(folder: Path, *, before: int) -> Path | None:
    """Move the files of a slot's earlier generations to `kept-<n>` below the root.

    That folder is a root of its own, which `restore` and `verify` can read.

    Returns:
        Where they are now; None: there were none.
    """
    files = [path for generation, path in slot_files(folder).items() if generation < before]
    if not files:
        return None
    number = 1
    while (kept := folder.parent / f"kept-{number}" / folder.name).exists():
        number += 1
    make_folder(kept)
    for path in files:
        path.rename(kept / path.name)
    flush(kept)
    flush(folder)
    return kept.parent


# -- Slot files that a job of another world size has left in the folder, and that are superseded --
#
# Steps cannot decide it: a run that went back to a full checkpoint is at an earlier step than
# the slots of the ranks before it. Clocks may be wrong. So every slot file names the latest
# files of the other slots at the time it was made (`Superblock.other_generations`). A file is
# superseded when later ones of other slots hold records of every element that it holds. Until
# the later job has saved all of that, nothing is given up.
#
# Ranks of one job know of each other's files too. But each holds something that no other does,
# or several hold the same blocks: those are replicas, and between them the later step counts.
# Standard library only.

_Place = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes in the global tensor


@dataclass(frozen=True, slots=True)
class _Tensor:
    """The files with a record of each place; places in the order in which they begin along `dim`.

    Jobs of many ranks cut one tensor into thousands of places; the order finds those near another.
    """

    holders: dict[_Place, set[Path]]
    dim: int
    ordered: list[_Place]
    begins: list[int]
    longest: int

    @classmethod
    def of(cls, holders: dict[_Place, set[Path]]) -> _Tensor:
        dims = range(min(len(place[0]) for place in holders))
        # The dimension along which it was cut most.
        dim = max(dims, key=lambda d: len({place[0][d] for place in holders}), default=-1)
        if dim < 0:
            return cls(holders, dim, list(holders), [], 0)
        ordered = sorted(holders, key=lambda place: place[0][dim])
        begins = [place[0][dim] for place in ordered]
        return cls(holders, dim, ordered, begins, max(place[1][dim] for place in ordered))

    def near(self, place: _Place) -> list[_Place]:
        """The places that may overlap another, and some that do not."""
        if self.dim < 0:
            return self.ordered
        begin, size = place[0][self.dim], place[1][self.dim]
        first = bisect_right(self.begins, begin - self.longest)
        return self.ordered[first : bisect_left(self.begins, begin + size)]


def superseded(slots: Sequence[Slot]) -> frozenset[Path]:
    """Files of which later files of other slots hold every element; see the module."""
    files = [(slot.name, file) for slot in slots for file in slot.files]
    if not any(file.superblock.other_generations for _, file in files):
        return frozenset()
    tensors, keys_held = _records_of(slots)
    planned = {file.path: _keys(file) for _, file in files}
    gone = set()
    for name, file in files:
        later = {
            other.path
            for other_name, other in files
            if other_name != name
            and other.superblock.other_generations.get(name, 0) >= file.superblock.generation
            # By their layouts, for one of them may not have saved all of its blocks yet.
            and planned[other.path] != planned[file.path]
        }
        keys = keys_held.get(file.path)
        # The first block that no other file holds ends it: in a job of one world, nearly at once.
        if later and keys and all(_holds(later, key, tensors[key[0]]) for key in keys):
            gone.add(file.path)
    return frozenset(gone)


def _records_of(slots: Iterable[Slot]) -> tuple[dict[str, _Tensor], dict[Path, list[Key]]]:
    """The blocks of which there are records, by tensor and by file; reserved ones are left out."""
    holders: dict[str, dict[_Place, set[Path]]] = {}
    keys_held: defaultdict[Path, list[Key]] = defaultdict(list)
    for slot in slots:
        for key, records in slot.records.items():
            if key[0] in RESERVED:
                continue
            paths = {record.file.path for record in records}
            holders.setdefault(key[0], {}).setdefault(key[1:], set()).update(paths)
            for path in paths:
                keys_held[path].append(key)
    return {name: _Tensor.of(places) for name, places in holders.items()}, keys_held


def _keys(file: SlotFile) -> frozenset[Key]:
    layout = file.superblock.layout
    keys = map(layout.key, range(len(layout.blocks)))
    return frozenset(key for key in keys if key[0] not in RESERVED)


def _holds(files: set[Path], key: Key, tensor: _Tensor) -> bool:
    """Whether these files hold every element of a block, in whatever blocks of their own."""
    place: _Place = key[1:]
    if tensor.holders[place] & files:
        return True
    uncovered = [region_of(*place)]
    for other in tensor.near(place):
        if tensor.holders[other] & files:
            held = region_of(*other)
            uncovered = [rest for region in uncovered for rest in difference(region, held)]
            if not uncovered:
                return True
    return False
