"""The budget of a round, and the policies that choose its blocks; NumPy only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError, refuse

POLICIES = ("full", "round-robin", "random", "priority", "touched", "dirty")


@dataclass(slots=True)
class BlockView:
    """The inputs of a choice, one entry per block.

    saved_round: round of the newest durable record, -1 none. distance2: squared L2 distance of the
    parameter from its saved value. touches: touches since it was saved. changed: whether a version
    counter has moved since it was saved.
    """

    n_bytes: NDArray[np.int64]
    saved_round: NDArray[np.int64]
    distance2: NDArray[np.float64]
    touches: NDArray[np.int64]
    changed: NDArray[np.bool_]


def choose(
    policy: str, view: BlockView, round_bytes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Indices of the blocks to save, within `round_bytes` (at least one where any is wanted).

    Blocks that were never saved come first under every policy. Priority ranks by squared distance
    per byte: the choice that leaves the smallest L2 distance for the bytes written; for blocks of
    one size it is the paper's rule. Blocks at distance 0 are not saved again.

    **Source**: Qiao, Aragam, Zhang, Xing (2019), "Fault Tolerance in Iterative-Convergent Machine
    Learning", ICML: save the parameters with the largest change.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy: {policy!r} was given; give one of {', '.join(POLICIES)}")
    n = len(view.n_bytes)
    unsaved = view.saved_round < 0
    if policy == "full":
        return np.arange(n)
    if policy == "random":
        rank = rng.random(n)
        wanted = np.ones(n, bool)
    elif policy == "priority":
        rank = -view.distance2 / np.maximum(view.n_bytes, 1)
        wanted = view.distance2 > 0
    elif policy == "touched":
        rank = -(view.touches / np.maximum(view.n_bytes, 1))
        wanted = view.touches > 0
    else:
        rank = view.saved_round.astype(float)
        wanted = view.changed if policy == "dirty" else np.ones(n, bool)
    rank = np.where(unsaved, -np.inf, rank)
    order = np.lexsort((np.arange(n), rank))
    order = order[(wanted | unsaved)[order]]
    fits = int(np.searchsorted(np.cumsum(view.n_bytes[order]), round_bytes, side="right"))
    return order[: max(fits, 1)]


# -- The budget of a round: how many bytes it may save --------------------------------------------

_RATE_MEMORY = 0.8  # weight of the past in the measured staging rate
_FIRST_STAGE_BYTES_PER_S = 5e9


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a round may save; the smallest of those given holds, and one block always may.

    What a round leaves of it, at most one block, the next may spend: the mean is kept.

    fraction: share of the slot's bytes. bytes_per_s: mean rate to the disk. step_time_share: mean
    share of a step's time that staging may take, by the measured rates.
    """

    fraction: float | None = None
    bytes_per_s: float | None = None
    step_time_share: float | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: nothing is given, or a value is out of range; all problems at once.
        """
        problems = []
        if self.fraction is None and self.bytes_per_s is None and self.step_time_share is None:
            problems.append("give fraction, bytes_per_s or step_time_share")
        for name in ("fraction", "step_time_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                problems.append(f"{name}: {value!r} was given; give a number above 0, 1 at most")
        if self.bytes_per_s is not None and not self.bytes_per_s > 0:
            problems.append(f"bytes_per_s: {self.bytes_per_s!r} was given; give a number above 0")
        refuse("budget", problems)

    def round_bytes(
        self, total_bytes: int, since_last_s: float, stage_bytes_per_s: float, steps: int
    ) -> int:
        """Bytes that the next round may save."""
        limits = [float(total_bytes)]
        if self.fraction is not None:
            limits.append(math.ceil(self.fraction * total_bytes))
        if self.bytes_per_s is not None:
            limits.append(self.bytes_per_s * since_last_s)
        if self.step_time_share is not None and steps:
            limits.append(self.step_time_share * since_last_s * stage_bytes_per_s)
        return int(min(limits))


class BudgetAccount:
    """A budget over the rounds of one run: the measured staging rate, and what a round has left."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._stage_bytes_per_s = _FIRST_STAGE_BYTES_PER_S
        self._last_round_s: float | None = None
        self._last_round_step = 0
        self._left_bytes = 0  # below 0: overspent

    def open_round(self, total_bytes: int, step: int, now_s: float) -> int:
        """Bytes that the round of this step may save, with what the round before has left."""
        since_s = 0.0 if self._last_round_s is None else now_s - self._last_round_s
        steps = step - self._last_round_step
        self._last_round_s, self._last_round_step = now_s, step
        of_round = self.budget.round_bytes(total_bytes, since_s, self._stage_bytes_per_s, steps)
        return of_round + self._left_bytes

    def close_round(self, round_bytes: int, chosen_bytes: int, largest_block_bytes: int) -> None:
        """Carry the rest to the next round.

        Blocks seldom fit a budget to the byte: at most one block is carried, so that no policy
        saves more or less than another on the mean.
        """
        left = round_bytes - chosen_bytes
        self._left_bytes = max(-largest_block_bytes, min(left, largest_block_bytes))

    def spend(self, n_bytes: int) -> None:
        """Take bytes off what is left for the next round."""
        self._left_bytes -= n_bytes

    def note_staging(self, n_bytes: int, duration_s: float) -> None:
        """Take one measurement of the staging rate."""
        rate = n_bytes / max(duration_s, 1e-9)
        self._stage_bytes_per_s = _RATE_MEMORY * self._stage_bytes_per_s + (1 - _RATE_MEMORY) * rate
