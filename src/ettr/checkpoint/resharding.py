"""Slots that a job of another world size has left in the folder, and that count no more.

Steps cannot tell: a run that went back to a full checkpoint is at an earlier step than what the
ranks before it have left. Clocks may be wrong. So every slot file names the files that lay beside
it when it was made (`Superblock.seen`). A file is superseded when others that saw it hold records
of every element that it holds. While the later job has not saved all of that, nothing is given up.

Ranks of one job see each other's files too. But each holds something that no other does, or several
hold the same blocks: those are replicas, and between them the later step counts.
Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ettr.checkpoint.layout import RESERVED, Key
from ettr.checkpoint.slot_reader import OpenFile, Slot

_Place = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes in the global tensor


@dataclass(frozen=True, slots=True)
class _Tensor:
    """The files with a record of each place; places in the order in which they begin along `dim`.

    Jobs of many ranks cut one tensor into thousands of places: those near a box are found by it.
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

    def near(self, box: _Place) -> list[_Place]:
        """The places that may overlap a box, and some that do not."""
        if self.dim < 0:
            return self.ordered
        begin, size = box[0][self.dim], box[1][self.dim]
        first = bisect_right(self.begins, begin - self.longest)
        return self.ordered[first : bisect_left(self.begins, begin + size)]


def superseded(slots: Sequence[Slot]) -> frozenset[Path]:
    """Files that later ones of other slots have replaced wholly; see the module."""
    files = [(slot.name, file) for slot in slots for file in slot.files]
    if not any(file.superblock.seen for _, file in files):
        return frozenset()
    tensors, held = _records_of(slots)
    meant = {file.path: _keys(file) for _, file in files}
    found = set()
    for name, file in files:
        after = {
            other.path
            for other_name, other in files
            if other_name != name
            and other.superblock.seen.get(name, 0) >= file.superblock.generation
            # By what they are to hold, for one of them may not have saved all of it yet.
            and meant[other.path] != meant[file.path]
        }
        own = held.get(file.path)
        # The first block that nobody else holds ends it: in a job of one world, nearly at once.
        if after and own and all(_held(key, tensors[key[0]], after) for key in own):
            found.add(file.path)
    return frozenset(found)


def _records_of(slots: Iterable[Slot]) -> tuple[dict[str, _Tensor], dict[Path, list[Key]]]:
    """The blocks of which there are records, by tensor and by file; reserved ones are left out."""
    holders: dict[str, dict[_Place, set[Path]]] = {}
    held: defaultdict[Path, list[Key]] = defaultdict(list)
    for slot in slots:
        for key, records in slot.records.items():
            if key[0] in RESERVED:
                continue
            paths = {record.file.path for record in records}
            holders.setdefault(key[0], {}).setdefault(key[1:], set()).update(paths)
            for path in paths:
                held[path].append(key)
    return {name: _Tensor.of(places) for name, places in holders.items()}, held


def _keys(file: OpenFile) -> frozenset[Key]:
    layout = file.superblock.layout
    keys = map(layout.key, range(len(layout.blocks)))
    return frozenset(key for key in keys if key[0] not in RESERVED)


def _held(key: Key, tensor: _Tensor, after: set[Path]) -> bool:
    """Whether these files hold every element of a block, in whatever blocks."""
    whole: _Place = key[1:]
    if tensor.holders[whole] & after:
        return True
    left = [whole]
    for place in tensor.near(whole):
        if tensor.holders[place] & after:
            left = [rest for box in left for rest in _without(box, place)]
            if not left:
                return True
    return False


def _without(box: _Place, other: _Place) -> list[_Place]:
    """The parts of a box that lie outside another, as boxes."""
    if len(box[0]) != len(other[0]):
        return [box]
    at, length = list(box[0]), list(box[1])
    rest: list[_Place] = []
    for dim, (begin, size) in enumerate(zip(*other, strict=True)):
        first, last = at[dim], at[dim] + length[dim]
        inner = max(first, begin), min(last, begin + size)
        if inner[0] >= inner[1]:
            return [box]
        for b, e in ((first, inner[0]), (inner[1], last)):
            if b < e:
                at[dim], length[dim] = b, e - b
                rest.append((tuple(at), tuple(length)))
        at[dim], length[dim] = inner[0], inner[1] - inner[0]
    return rest
