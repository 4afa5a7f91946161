"""What a restore has covered of each local shard, element by element where boxes overlap."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from ettr.checkpoint.block_selection import split_dim
from ettr.checkpoint.layout import Key
from ettr.checkpoint.state import Shard

Box = tuple[tuple[int, int], ...]


def intersection(key: Key, shard: Shard) -> Box | None:
    """The part of a stored box that lies in a shard, as global (begin, end) a dimension."""
    if len(key[1]) != len(shard.sizes):
        return None
    box = []
    for start, size, own_start, own_size in zip(
        key[1], key[2], shard.offsets, shard.sizes, strict=True
    ):
        begin, end = max(start, own_start), min(start + size, own_start + own_size)
        if begin >= end:
            return None
        box.append((begin, end))
    return tuple(box)


class Coverage:
    """Boxes restored of each part of each shard, and the numbers that go with them."""

    def __init__(self, shards: dict[str, list[Shard]]) -> None:
        self._shards = [shard for group in shards.values() for shard in group]
        self._boxes: dict[tuple[int, str], list[Box]] = {}
        self._numbers: dict[tuple[int, str], float] = {}
        self._anew: dict[int, set[str]] = {}

    def add(self, shard: Shard, name: str, box: Box) -> None:
        """Note that a box of one part was restored."""
        self._boxes.setdefault((id(shard), name), []).append(box)

    def latest_number(self, shard: Shard, name: str, value: float, *, put: bool = True) -> bool:
        """Keep the largest value seen of a number; whether this is it."""
        place = (id(shard), name)
        if place in self._numbers and value <= self._numbers[place]:
            return False
        self._numbers[place] = value
        if put:
            shard.put_number(name, value)
        return True

    def step_count(self) -> float | None:
        """The largest step count restored; None: there was none."""
        counts = [value for (_, name), value in self._numbers.items() if name == "step"]
        return max(counts, default=None)

    def missing(self) -> list[str]:
        """Names of the parameters that are not wholly covered."""
        return [
            shard.spec.fqn
            for shard in self._shards
            if not _covers(self._boxes.get((id(shard), "param"), []), shard)
        ]

    def begin_anew(self, shard: Shard, name: str) -> None:
        """Note that a record of the shard did not hold this moment."""
        self._anew.setdefault(id(shard), set()).add(name)

    def reset_fresh_moments(self) -> list[str]:
        """Zero the step counts of moments that no record held; names of what began anew.

        Zero moments with a large step count would make the next update several times too long,
        for want of bias correction.
        """
        fresh = []
        for shard in self._shards:
            names = self._anew.get(id(shard), set())
            if names:
                fresh.append(shard.spec.fqn)
            for component in shard.spec.components:
                if component.name not in names or (id(shard), component.name) in self._boxes:
                    continue
                if component.kind == "number":
                    shard.put_number(component.name, 0)
                else:
                    part: Tensor = shard.part(component.name)
                    part.zero_()
        return fresh


def _covers(boxes: list[Box], shard: Shard) -> bool:
    if not shard.sizes:
        return bool(boxes)
    dim = split_dim(shard.sizes)
    whole = tuple((o, o + s) for o, s in zip(shard.offsets, shard.sizes, strict=True))
    slabs = [b for b in boxes if b[:dim] + b[dim + 1 :] == whole[:dim] + whole[dim + 1 :]]
    if len(slabs) == len(boxes):
        reached = whole[dim][0]
        for begin, end in sorted(box[dim] for box in slabs):
            if begin > reached:
                return False
            reached = max(reached, end)
        return reached >= whole[dim][1]
    seen = np.zeros(shard.sizes, bool)
    for box in boxes:
        seen[tuple(slice(b - o, e - o) for (b, e), o in zip(box, shard.offsets, strict=True))] = 1
    return int(seen.sum()) == math.prod(shard.sizes)
