"""How much more failure counts vary than independent failures would: over time and over nodes.

One switch that takes twelve jobs is one event and twelve failures. An interval that treats them as
twelve independent ones is too narrow by the square root of how many come together, whichever nodes
they hit. So the spread is measured twice, between windows of time (all nodes together) and between
nodes (all times together), and the wider of both decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.models.base import FEW_FAILURES
from ettr.models.data import Counts, Floats
from ettr.models.dispersion import (
    SUSPECT,
    dispersion_p_value,
    inflated_interval,
    pearson_index,
    spread_index,
)
from ettr.units import HOURS_PER_DAY

WINDOWS_DAYS = (1.0 / HOURS_PER_DAY, 0.25, 1.0, 3.5, 7.0, 14.0, 28.0, 56.0)
"""Lengths tried: a window shorter than a burst cuts it into pieces that look independent, a longer
one leaves too few windows to see any spread."""
LEAST_WINDOWS = 12

Axis = Literal["time", "nodes"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How many times a count of failures varies as much as a count of independent ones.

    Attributes:
        over: Between windows of time, or between nodes.
        failures: Failures that the spread was measured on.
        units: Windows or nodes with exposure.
        window_days: Length of the windows; None over nodes.
        index: Variance of the total over that of independent failures; 1 where it is not known.
        degrees: Degrees of freedom behind the index.
        p_value: Of "failures are independent", corrected for the window lengths tried; None where
            there are too few failures or units to know.
    """

    over: Axis
    failures: int
    units: int
    window_days: float | None
    index: float
    degrees: float
    p_value: float | None

    @property
    def is_known(self) -> bool:
        """Whether there were failures and units enough to see clustering."""
        return self.p_value is not None

    @property
    def is_clustered(self) -> bool:
        """Whether the wider interval is the one to believe."""
        return self.p_value is not None and self.p_value < SUSPECT

    def inflation(self, confidence: float) -> float:
        """The index times Student's correction for the degrees of freedom it is known by."""
        from scipy.special import ndtri, stdtrit

        tail = (1.0 - confidence) / 2.0
        if not self.degrees > 0:
            return 1.0
        return max(1.0, self.index) * float(stdtrit(self.degrees, tail) / ndtri(tail)) ** 2

    def interval(self, rate: FailureRate, confidence: float = CONFIDENCE) -> Interval:
        """Interval of a rate per node-day; exact where no clustering shows, never inside that.

        Source:
            Garwood (1936), Biometrika 28; McCullagh and Nelder (1989), section 6.2.
        """
        exact = rate.interval(confidence)
        if not self.is_clustered or rate.node_days <= 0:
            return exact
        wide = inflated_interval(rate, self.index, self.degrees, confidence)
        return Interval(exact.estimate, min(exact.low, wide.low), max(exact.high, wide.high))

    def thinned(self, share: float) -> Spread:
        """The spread of a part of these failures, taken as a random share of each cluster.

        Source:
            Cox and Isham (1980), Point Processes, section 4.3: thinning scales the excess of the
            index over 1 by the share that is kept.
        """
        if not 0.0 <= share <= 1.0:
            raise UsageError(f"share is {share}; give a share between 0 and 1")
        return replace(self, index=1.0 + share * (max(1.0, self.index) - 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Failures of a fleet and its exposure along the calendar.

    Attributes:
        times_days: When each failure happened, on any clock of days, shape (n,).
        edges_days: Ends of equal cells of the clock, ascending, shape (m + 1,).
        node_days: Exposure before each edge, in node-days, shape (m + 1,).
    """

    times_days: Floats
    edges_days: Floats
    node_days: Floats

    def __post_init__(self) -> None:
        if self.edges_days.size < 2 or self.edges_days.shape != self.node_days.shape:
            raise UsageError(
                f"{self.edges_days.size} edges and {self.node_days.size} exposures; give two or "
                "more edges and the node-days before each"
            )

    def windows(self, window_days: float) -> Counts | None:
        """Failures and node-days in windows; None where none has exposure.

        A last window that the logs do not fill counts with the exposure it has.
        """
        start, end = float(self.edges_days[0]), float(self.edges_days[-1])
        windows = max(1, math.ceil((end - start) / window_days - 1e-9))
        edges = np.minimum(start + window_days * np.arange(windows + 1), end)
        exposure = np.diff(np.interp(edges, self.edges_days, self.node_days))
        place = ((self.times_days - start) / window_days).astype(np.int64)
        counts = np.bincount(np.clip(place, 0, windows - 1), minlength=windows)
        used = exposure > 0
        if not used.any():
            return None
        return Counts(
            counts[used], exposure[used], unit="window", unplaced=int(counts[~used].sum())
        )


def spread_over_time(timeline: Timeline, confidence: float = CONFIDENCE) -> Spread:
    """Spread between windows of the length that gives the widest interval.

    Windows from an hour to eight weeks are tried, as far as twelve of them have exposure. The
    p-value is the smallest of all lengths times their number.

    Source:
        Fano (1947), Physical Review 72, for variance over mean in windows; Bonferroni for the
        number of lengths.
    """
    tried: list[Spread] = []
    for window_days in WINDOWS_DAYS:
        counts = timeline.windows(window_days)
        if counts is None or counts.failures.size < LEAST_WINDOWS:
            continue
        tried.append(_spread(counts, "time", window_days))
    known = [one for one in tried if one.p_value is not None]
    if not known:
        return Spread("time", int(timeline.times_days.size), 0, None, 1.0, 0.0, None)
    p_value = min(1.0, len(known) * min(one.p_value for one in known if one.p_value is not None))
    widest = max(known, key=lambda one: one.inflation(confidence))
    return replace(widest, p_value=p_value)


def spread_over_nodes(counts: Counts) -> Spread:
    """Spread between nodes, of the failures that name one."""
    return _spread(counts, "nodes", None)


def widest_spread(spreads: Sequence[Spread], confidence: float = CONFIDENCE) -> Spread:
    """The spread with the widest interval among those that show clustering; else the best known.

    Raises:
        UsageError: no spread was given.
    """
    if not spreads:
        raise UsageError("no spread to choose from; give at least one")
    return max(
        spreads,
        key=lambda one: (one.is_clustered, one.inflation(confidence), one.is_known),
    )


def _spread(counts: Counts, over: Axis, window_days: float | None) -> Spread:
    failures, units = int(counts.failures.sum()), int(counts.failures.size)
    pearson, degrees = pearson_index(counts)
    if failures < FEW_FAILURES or degrees < 1:
        return Spread(over, failures, units, window_days, 1.0, 0.0, None)
    seen = counts.failures.astype(np.float64)
    index, effective = spread_index(seen, counts.exposure_node_days * seen.sum() / counts.node_days)
    p_value = dispersion_p_value(counts, pearson * degrees, degrees)
    return Spread(over, failures, units, window_days, index, effective, p_value)
