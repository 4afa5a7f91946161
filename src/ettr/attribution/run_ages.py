"""At what ages attempts end: programs crash early, hardware fails at any age.

Of two causes that end as many attempts the one that ends them at such an age is the likelier. A
hazard per node-day holds at each age; that of a program is its chance per run, spread over the
ages as crashes are, over the runs that reach them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EDGES_DAYS = 2.0 ** np.arange(14) / (24 * 60)
"""One minute to six days, each twice the one before; a bin below, one above."""
_BINS = len(_EDGES_DAYS) + 1
_WIDTHS_DAYS = np.diff(np.concatenate([[0.0], _EDGES_DAYS, [2 * _EDGES_DAYS[-1]]]))
_REACHED = 0.45
"""Part of its bin that an attempt which ends there passes, on average: more end early in it."""
_ENDS_BEFORE = 20.0
"""Weight of the ages of all interruptions in those of one cause, in ends."""
_LEAST_DAYS = 1e-5


def ends_by_age(ran_days: Floats, attempts: Floats | None = None) -> Floats:
    """How many attempts ended at each age, shape (bins,).

    Args:
        attempts: how many ran that long; None: one each.
    """
    return np.bincount(_bin(ran_days), attempts, _BINS).astype(np.float64)


@dataclass(frozen=True, slots=True)
class RunAges:
    """Ages of interruptions against those that attempts reach.

    Attributes:
        all_ends: Share of the interruptions that end in each bin.
        per_run: What turns the share of a cause's ends in the bin into its hazard at that age,
            times the age, over that of a whole run.
    """

    bin: Ints
    known: NDArray[np.bool_]
    all_ends: Floats
    per_run: Floats

    @staticmethod
    def of(ran_days: Floats, known: NDArray[np.bool_], ended: Floats | None) -> RunAges:
        """Ages of the interruptions."""
        at = _bin(ran_days)
        if ended is None:
            known = np.zeros(len(at), dtype=np.bool_)
            ended = np.zeros(_BINS)
        counts = np.bincount(at[known], minlength=_BINS) + 0.5
        later = np.cumsum(ended[::-1])[::-1] - ended
        # an interruption passed part of its bin, counted among all attempts or not
        at_risk_days = _WIDTHS_DAYS * np.maximum(later + _REACHED * ended, _REACHED)
        per_run = max(float(ended.sum()), 1.0) * np.maximum(ran_days, _LEAST_DAYS)
        return RunAges(at, known, counts / counts.sum(), per_run / at_risk_days[at])

    def factors(self, weights: Floats) -> Floats:
        """How much likelier a cause is at the age of each interruption, as its others have it.

        Without an age 1.
        """
        own = np.where(self.known, weights, 0.0)
        counts = np.bincount(self.bin, own, _BINS)[self.bin] - own
        share = (_ENDS_BEFORE * self.all_ends[self.bin] + counts) / (_ENDS_BEFORE + own.sum() - own)
        return np.where(self.known, share * self.per_run, 1.0)

    def usual_factors(self) -> Floats:
        """The same of an interruption of unknown cause."""
        return np.where(self.known, self.all_ends[self.bin] * self.per_run, 1.0)


def _bin(ran_days: Floats) -> Ints:
    return np.searchsorted(_EDGES_DAYS, ran_days).astype(np.int64)
