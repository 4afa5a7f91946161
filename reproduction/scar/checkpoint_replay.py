"""The running checkpoint, replayed over a clean run: which iteration each unit was saved at.

Every r·C iterations ceil(r·n) units are saved in place, so C iterations write the bytes of one full
checkpoint whatever r is. Since the run before the failure is the clean one, the checkpoint at any T
follows from the ages of its units.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from reproduction.scar.workload import CleanRun, Ints, State, Workload, keyed

POLICIES = ("priority", "round-robin", "random")


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """A way to save: everything every C iterations, a part more often, or nothing at all."""

    policy: str  # "full", "none" or one of POLICIES
    parts: int = 1  # 1/r

    @property
    def key(self) -> str:
        """A short name: full, none, priority-8."""
        return self.policy if self.policy in ("full", "none") else f"{self.policy}-{self.parts}"


def saved_at(
    workload: Workload, clean: CleanRun, how: Checkpointing, interval: int
) -> NDArray[np.int16]:
    """The iteration at which each unit was last saved, shape (iterations + 1, units).

    Row T is the checkpoint as a failure at T finds it; a save due at T has happened.

    Args:
        workload: gives the units and their distances.
        clean: the run whose states are saved.
        how: policy and fraction.
        interval: C, the iterations in which one model's worth of bytes is written.

    Raises:
        UsageError: C is no multiple of 1/r, or the policy is unknown.
    """
    if how.policy not in ("full", "none", *POLICIES):
        raise UsageError(f"policy {how.policy!r}; allowed are full, none, {', '.join(POLICIES)}")
    if interval % how.parts:
        raise UsageError(
            f"an interval of {interval} iterations is no multiple of 1/r = {how.parts}; "
            "choose one that is"
        )
    units = workload.offsets.size - 1
    count = math.ceil(units / how.parts)
    every = interval // how.parts
    rows = clean.states.shape[0]
    ages = np.zeros((rows, units), dtype=np.int16)
    if how.policy == "none":
        return ages
    rng = keyed(clean.stream, how.parts, 977)
    saved = np.array(clean.states[0])
    turn = 0
    for at in range(1, rows):
        ages[at] = ages[at - 1]
        if at % every:
            continue
        if how.policy in ("full", "round-robin"):
            chosen = (turn + np.arange(count)) % units
            turn = int((turn + count) % units)
        elif how.policy == "random":
            chosen = rng.choice(units, size=count, replace=False)
        else:
            moved = workload.moved(clean.states[at], saved)
            chosen = np.argpartition(-moved, count - 1)[:count]
            _save(saved, clean.states[at], workload.offsets, chosen)
        ages[at, chosen] = at
    return ages


def _save(saved: State, now: State, offsets: Ints, chosen: NDArray[np.int64]) -> None:
    """Write the chosen units of `now` over the saved ones."""
    mask = np.zeros(offsets.size - 1, dtype=bool)
    mask[chosen] = True
    rows = np.repeat(mask, np.diff(offsets))
    saved[rows] = now[rows]


def stored(clean: CleanRun, ages: NDArray[np.int16], offsets: Ints) -> State:
    """The state that a checkpoint of these ages holds; units of different ages side by side.

    Args:
        clean: the run that was saved.
        ages: the iteration of each unit, shape (units,).
        offsets: rows of the units.
    """
    if (ages == ages[0]).all():
        return np.array(clean.states[ages[0]])
    per_row = np.repeat(ages, np.diff(offsets))
    return np.asarray(clean.states[per_row, np.arange(per_row.size)])
