"""The files that earlier processes have left in a slot or folder, as their successor finds them."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.durable_io import make_folder, sync_folder
from ettr.checkpoint.slots.format import Superblock
from ettr.checkpoint.slots.layout import RESERVED, Key, difference, region_of
from ettr.checkpoint.slots.ownership import slot_files, slot_of
from ettr.checkpoint.slots.reader import Slot, SlotFile, last_rounds, open_slot


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
    sync_folder(kept)
    sync_folder(folder)
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
