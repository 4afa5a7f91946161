"""How much more failure counts vary than independent failures would: over time and over nodes.

One switch that takes twelve jobs is one event and twelve failures. An interval that treats them as
twelve independent ones is too narrow by the square root of how many come together, whichever nodes
they hit. So the spread is measured twice, between windows of time (all nodes together) and between
nodes (all times together), and the wider of both decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates.spread import Axis, Spread, student_factor
from ettr.models.base import FEW_FAILURES
from ettr.models.data import Counts, Floats
from ettr.models.dispersion import dispersion_test, spread_index
from ettr.units import HOURS_PER_DAY

WINDOWS_DAYS = (1.0 / HOURS_PER_DAY, 0.25, 1.0, 3.5, 7.0, 14.0, 28.0, 56.0)
"""Lengths tried: a window shorter than a burst cuts it into pieces that look independent, a longer
one leaves too few windows to see any spread."""
LEAST_WINDOWS = 12


@dataclass(frozen=True, slots=True, eq=False)
class FailureTimeline:
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
        exposure = _steady(np.diff(np.interp(edges, self.edges_days, self.node_days)))
        place = ((self.times_days - start) / window_days).astype(np.int64)
        counts = np.bincount(np.clip(place, 0, windows - 1), minlength=windows)
        used = exposure > 0
        if not used.any():
            return None
        return Counts(
            counts[used], exposure[used], unit="window", unplaced=int(counts[~used].sum())
        )


def _steady(node_days: Floats) -> Floats:
    """Exposures to twelve digits of the largest: sums of an engine differ in their last ones from
    run to run, and a report must not."""
    largest = float(np.max(np.abs(node_days), initial=0.0))
    if not largest > 0:
        return node_days
    digits = 11 - math.floor(math.log10(largest))
    return np.round(node_days, min(digits, 300))


def spread_over_time(timeline: FailureTimeline, confidence: float = CONFIDENCE) -> Spread:
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
    widest = max(
        known, key=lambda one: max(1.0, one.index) * student_factor(one.degrees, confidence)
    )
    return replace(widest, p_value=p_value)


def spread_over_nodes(counts: Counts) -> Spread:
    """Spread between nodes, of the failures that name one."""
    return _spread(counts, "nodes", None)


def _spread(counts: Counts, over: Axis, window_days: float | None) -> Spread:
    failures, units = int(counts.failures.sum()), int(counts.failures.size)
    if failures < FEW_FAILURES or np.count_nonzero(counts.exposure_node_days > 0) < 2:
        return Spread(over, failures, units, window_days, 1.0, 0.0, None)
    seen = counts.failures.astype(np.float64)
    index, effective = spread_index(seen, counts.exposure_node_days * seen.sum() / counts.node_days)
    p_value = dispersion_test(counts).p_value
    return Spread(over, failures, units, window_days, index, effective, p_value)
