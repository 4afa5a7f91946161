"""The regions of each shard that a restore has covered, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ettr.checkpoint.restore_report import first_names
from ettr.checkpoint.slots.layout import RESERVED, Region, TensorSpec, n_elements, split_dim
from ettr.checkpoint.slots.reader import superblock_of
from ettr.checkpoint.slots.record_selection import OpenCheckpoint, rename_for
from ettr.checkpoint.state import State, TrainingState
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


# -- How a live state differs from what was saved, where nothing is damaged: tensor by tensor -----


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The tensors in which a state and a checkpoint differ."""

    added: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    gone: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    types: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    nothing_fits: bool = False

    def reasons(self, *, allow_missing: bool, cast: bool) -> list[str]:
        """Why a restore must not go on without being asked to, each with what it would take."""
        reasons = []
        if not allow_missing or self.nothing_fits:
            reasons += self._missing()
        if self.types and not cast:
            named = [
                f"{name}: {component} was saved as {before} and is {now} now"
                for name, (component, before, now) in self.types.items()
            ]
            reasons.append(
                f"{first_names(named, 3)}. Build them in the saved type, or give cast=True"
            )
        return reasons

    def _missing(self) -> list[str]:
        reasons = []
        if self.added:
            reasons.append(
                f"{len(self.added)} tensors were not saved and are in the model now "
                f"({first_names(list(self.added))})"
            )
        if self.gone:
            names = [f"{n}, tied to {self.tied[n]} now" if n in self.tied else n for n in self.gone]
            reasons.append(
                f"{len(names)} saved tensors have no place in the model ({first_names(names)})"
            )
        if self.shapes:
            named = [
                f"{name}: it was saved with shape {list(a)} and has {list(b)} now"
                for name, (a, b) in self.shapes.items()
            ]
            reasons.append(first_names(named))
        if not reasons:
            return []
        offers = []
        if rename := rename_for(self.gone, self.added):
            offers.append(f"rename={rename} if they are the same under other names")
        if not self.nothing_fits:
            offers.append("allow_missing=True to leave what differs as it is built")
        give = f". Build the model that was saved, or give {', or '.join(offers)}" if offers else ""
        return ["; ".join(reasons) + give]


def mismatch(checkpoint: OpenCheckpoint, state: State, live: Sequence[Shard]) -> Mismatch:
    """Compare a state with the latest layouts of the slots that are read.

    Where the layout of a damaged slot cannot be read, what it lacks says nothing of the model.
    """
    saved, everywhere = _saved_tensors(checkpoint)
    unread = any(slot.damaged and superblock_of(slot) is None for slot in checkpoint.slots)
    now = {shard.spec.fqn: shard.spec for shard in live if FACTOR not in shard.spec.fqn}
    both = [(saved[name], spec) for name, spec in now.items() if name in saved]
    gone: dict[str, tuple[int, ...]] = {}
    tied: dict[str, str] = {}
    if isinstance(state, TrainingState) and state.whole_run:
        aliases = state.tied_names()
        gone = {n: saved[n].shape for n in sorted(everywhere - state.tensor_names())}
        tied = {name: aliases[name] for name in gone if name in aliases}
    return Mismatch(
        {} if unread else {n: spec.shape for n, spec in now.items() if n not in saved},
        gone,
        {b.fqn: (a.shape, b.shape) for a, b in both if a.shape != b.shape},
        {b.fqn: kinds for a, b in both if (kinds := _types(a, b)) is not None},
        tied,
        nothing_fits=bool(now) and not unread and not any(a.shape == b.shape for a, b in both),
    )


def _saved_tensors(checkpoint: OpenCheckpoint) -> tuple[dict[str, TensorSpec], set[str]]:
    """The saved tensors by their names now, and those that each slot holds."""
    saved: dict[str, TensorSpec] = {}
    held: list[set[str]] = []
    for slot in checkpoint.slots:
        superblock = superblock_of(slot)
        if superblock is None or all(file.path in checkpoint.superseded for file in slot.files):
            continue
        specs = {checkpoint.live_name(spec.fqn): spec for spec in superblock.layout.tensors}
        specs = {name: spec for name, spec in specs.items() if FACTOR not in name}
        saved |= specs
        held.append(specs.keys() - RESERVED)
    return saved, set.intersection(*held) if held else set()


def _types(saved: TensorSpec, now: TensorSpec) -> tuple[str, str, str] | None:
    of_saved = {component.name: component for component in saved.components}
    for component in now.components:
        before = of_saved.get(component.name, component)
        if before.dtype != component.dtype and "number" not in (before.kind, component.kind):
            return component.name, before.dtype, component.dtype
    return None
