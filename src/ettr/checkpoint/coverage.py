"""The regions of each local shard that a restore has covered, by element where they overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from ettr.checkpoint.tensors.regions import Region, n_elements, split_dim
from ettr.checkpoint.tensors.shards import FACTOR, PARAM, Shard


class RestoreCoverage:
    """The regions restored of each component of each shard, and the numbers restored with them.

    Args:
        whole_run: the state is to be trained: saved moments of parameters that no optimizer has
            count as unused, and not only those that an optimizer has no place for.
    """

    def __init__(self, shards: Iterable[Shard], *, whole_run: bool = False) -> None:
        self._shards, self._whole_run = list(shards), whole_run
        self._regions: dict[tuple[int, str], list[Region]] = {}
        self._numbers: dict[tuple[int, str], float] = {}
        self._absent: dict[int, set[str]] = {}
        self._unused: set[str] = set()

    def add(self, shard: Shard, name: str, region: Region) -> None:
        """Note that a region of one component was restored."""
        self._regions.setdefault((id(shard), name), []).append(region)

    def is_largest(self, shard: Shard, name: str, value: float) -> bool:
        """Note a number of one component; returns whether it is the largest so far.

        Blocks of one tensor may be of several steps: the step count of the newest stays.
        """
        place = (id(shard), name)
        if place in self._numbers and value <= self._numbers[place]:
            return False
        self._numbers[place] = value
        return True

    def step_count(self) -> float | None:
        """The largest step count restored; None: there was none."""
        counts = [value for (_, name), value in self._numbers.items() if name == "step"]
        return max(counts, default=None)

    def missing(self) -> list[str]:
        """Names of the parameters of which some element was not restored."""
        return [
            shard.spec.fqn
            for shard in self._shards
            if self._n_covered(shard) < n_elements(shard.region)
        ]

    def restored_fraction(self) -> float:
        """Share of the elements of all parameters, of all ranks, that was restored."""
        parameters = [shard for shard in self._shards if shard.is_parameter]
        total = sum({s.spec.fqn: math.prod(s.spec.shape) for s in parameters}.values())
        return sum(self._n_covered(shard) for shard in parameters) / max(total, 1)

    def _n_covered(self, shard: Shard) -> int:
        return _n_covered(self._regions.get((id(shard), PARAM), []), shard)

    def note_unused(self, shard: Shard, name: str) -> None:
        """Note a saved moment for which there is no place in an optimizer."""
        if shard.optimizers or self._whole_run:
            self._unused.add(f"{name} of {shard.spec.fqn}")

    @property
    def unused_moments(self) -> list[str]:
        """Saved moments for which an optimizer has no place."""
        return sorted(self._unused)

    def note_absent(self, shard: Shard, name: str) -> None:
        """Note that a record of the shard did not hold this moment."""
        self._absent.setdefault(id(shard), set()).add(name)

    def note_uncovered(self) -> None:
        """Note the moments of parameters of which nothing was restored."""
        for shard in self._shards:
            if shard.optimizers and (id(shard), PARAM) not in self._regions:
                for component in shard.spec.components[1:]:
                    self.note_absent(shard, component.name)

    def reset_absent_moments(self, create: Callable[[], object]) -> list[str]:
        """Begin moments from zero that no record held; returns the parameters' names.

        Zero moments with a large step count would make the next update several times too long,
        for want of bias correction.

        Args:
            create: makes the optimizer create the moments that it has none of, from the parameters
                as they were restored.
        """
        in_factors = {shard.spec.fqn for shard in self._shards if FACTOR in shard.spec.fqn}
        for shard in self._shards:
            names = self._absent.get(id(shard), set())
            names -= {name for name in names if f"{shard.spec.fqn}{FACTOR}{name}" in in_factors}
        absent = [shard for shard in self._shards if self._absent.get(id(shard))]
        fresh = [shard for shard in absent if not self._some_moment(shard)]
        for shard in fresh:
            for optimizer in shard.optimizers:
                optimizer.state.pop(shard.tensor, None)
        if fresh:
            create()
        for shard in absent:
            if not any(optimizer.state.get(shard.tensor) for optimizer in shard.optimizers):
                continue  # the optimizer makes them at its next step, as it did at its first
            for component in shard.spec.components:
                name = component.name
                if name not in self._absent[id(shard)] or (id(shard), name) in self._regions:
                    continue
                if shard in fresh and name != "step":
                    continue
                if component.kind == "number":
                    shard.set_number(name, 0)
                else:
                    shard.tensor_value(name).zero_()
        return [shard.spec.fqn for shard in absent]

    def _some_moment(self, shard: Shard) -> bool:
        return any(
            (id(shard), component.name) in self._regions
            for component in shard.spec.components
            if component.name != PARAM
        )


def _n_covered(regions: list[Region], shard: Shard) -> int:
    """Number of elements of a shard that lie in one of these regions, each within the shard."""
    if not regions or not shard.sizes:
        return len(regions[:1])
    dim, whole = split_dim(shard.sizes), shard.region
    slabs = [r for r in regions if r[:dim] + r[dim + 1 :] == whole[:dim] + whole[dim + 1 :]]
    if len(slabs) == len(regions):
        rows, reached = 0, whole[dim][0]
        for begin, end in sorted(region[dim] for region in slabs):
            rows += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return rows * math.prod(shard.sizes) // shard.sizes[dim]
    covered = np.zeros(shard.sizes, bool)
    for region in regions:
        within = zip(region, shard.offsets, strict=True)
        covered[tuple(slice(b - o, e - o) for (b, e), o in within)] = True
    return int(covered.sum())
