"""How much more a count of failures varies than independent ones would, and its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import special
from ettr.estimates.exact import FailureRate, gamma_quantile
from ettr.estimates.interval import Interval
from ettr.units import HOURS_PER_DAY
from ettr.words import counted, p_words, significant

FEW = 30
"""Fewer hide bursts: of 12 in bursts of 4 an interval of 90 % holds the rate in 71 % of draws."""
SUSPECT = 0.25
"""Below this p-value the over-dispersed interval is the one to believe.

A lax level on purpose: believing the wide interval without need costs little, believing the narrow
one wrongly costs the coverage.
"""

SURE = 0.01
"""Below this p-value it is said that failures cluster: a finding, not the width of an interval."""

Axis = Literal["time", "nodes"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How many times a count of failures varies as much as a count of independent ones.

    Attributes:
        index: Variance of the total over that of independent failures; 1 where it is not known.
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
    share: float = 1.0

    @property
    def is_known(self) -> bool:
        """Whether there were failures and units enough to see clustering."""
        return self.p_value is not None

    @property
    def is_clustered(self) -> bool:
        """Whether the wider interval is the one to believe."""
        return self.p_value is not None and self.p_value < SUSPECT and self.index > 1.0

    @property
    def is_surely_clustered(self) -> bool:
        """Whether it can be said that failures cluster."""
        return self.is_clustered and (self.p_value or 0.0) < SURE

    def inflation(self, confidence: float = CONFIDENCE) -> float:
        """By how much the variance of a count is inflated; 1 where no clustering shows.

        The index times Student's correction for the degrees of freedom that it is known by; of a
        part of the failures, the excess over 1 shrinks with its share.
        """
        if not self.is_clustered or not self.degrees > 0:
            return 1.0
        whole = max(1.0, self.index) * student_factor(self.degrees, confidence)
        return 1.0 + self.share * (whole - 1.0)

    def interval(self, rate: FailureRate, confidence: float = CONFIDENCE) -> Interval:
        """Interval of a rate per node-day; exact where no clustering shows, never inside that."""
        exact = rate.interval(confidence)
        wide = dispersed_interval(rate, self.inflation(confidence), confidence)
        return Interval(exact.estimate, min(exact.low, wide.low), max(exact.high, wide.high))

    def thinned(self, share: float) -> Spread:
        """The spread of a part of these failures, taken as a random share of each cluster.

        Source:
            Cox and Isham (1980), Point Processes, section 4.3: thinning scales the excess of the
            index over 1 by the share that is kept.
        """
        if not 0.0 <= share <= 1.0:
            raise UsageError(f"share is {share}; give a share between 0 and 1")
        return replace(self, share=self.share * share)


def student_factor(degrees: float, confidence: float) -> float:
    """What an index known on `degrees` degrees of freedom adds to the variance, as a factor."""
    tail = (1.0 - confidence) / 2.0
    return (
        (float(special.stdtrit(degrees, tail) / special.ndtri(tail)) ** 2) if degrees > 0 else 1.0
    )


def dispersed_interval(
    rate: FailureRate, factor: float, confidence: float = CONFIDENCE
) -> Interval:
    """Interval of a rate whose count varies `factor` times as much as a Poisson one.

    Garwood's interval of the effective number of failures, count / factor; exact for 1.

    Source:
        McCullagh and Nelder (1989), section 6.2 (quasi-likelihood); the gamma quantiles in place
        of normal ones keep it sensible at few failures.
    """
    if rate.node_days <= 0:
        return Interval(None, 0.0, math.inf)
    tail = (1.0 - confidence) / 2.0
    effective = rate.failures / factor
    low = gamma_quantile(effective, tail) * factor if rate.failures else 0.0
    high = gamma_quantile(effective + 1.0, 1.0 - tail) * factor
    return Interval(rate.per_node_day, low / rate.node_days, high / rate.node_days)


def inflated_interval(
    rate: FailureRate, index: float, degrees: float, confidence: float = CONFIDENCE
) -> Interval:
    """The same for an index that is itself estimated, on `degrees` degrees of freedom."""
    factor = max(1.0, index) * student_factor(degrees, confidence)
    return dispersed_interval(rate, factor, confidence)


def clustered_interval(
    rate: FailureRate, spread: Spread, confidence: float = CONFIDENCE
) -> Interval:
    """The interval that a spread gives whether or not it shows clustering; never inside the exact.

    For display next to the others; `Spread.interval` is the one to believe.
    """
    exact = rate.interval(confidence)
    wide = inflated_interval(rate, spread.index, spread.degrees, confidence)
    return Interval(exact.estimate, min(exact.low, wide.low), max(exact.high, wide.high))


@dataclass(frozen=True, slots=True)
class FleetSpread:
    """The spread of a fleet's failures over time and over nodes, and the one that decides."""

    over_time: Spread
    over_nodes: Spread | None
    believed: Spread
    meaning: str

    @property
    def axes(self) -> tuple[Spread, ...]:
        """The spread on each axis on which it was measured."""
        return (self.over_time,) if self.over_nodes is None else (self.over_time, self.over_nodes)


def fleet_spread(
    over_time: Spread, over_nodes: Spread | None, confidence: float = CONFIDENCE
) -> FleetSpread:
    """Both spreads, the one with the wider interval, and what it means for intervals."""
    both = [over_time] if over_nodes is None else [over_time, over_nodes]
    believed = max(both, key=lambda one: (one.inflation(confidence), one.is_known))
    return FleetSpread(over_time, over_nodes, believed, _meaning(believed, both))


def _meaning(believed: Spread, both: list[Spread]) -> str:
    if believed.is_clustered:
        units = (
            f"windows of {_length(believed.window_days)}"
            if believed.window_days is not None
            else "nodes"
        )
        p_value = believed.p_value or 0.0
        chance = "p < 0.0001" if p_value < 1e-4 else f"{p_words(p_value)}"
        if not believed.is_surely_clustered:
            return (
                f"Failures may cluster, which is not shown: between {units} they vary "
                f"{significant(believed.index, 2)} times as much as independent ones would "
                f"({chance}). The intervals admit that."
            )
        return (
            f"Failures cluster: between {units} they vary {significant(believed.index, 2)} times "
            f"as much as independent ones would ({chance}). The intervals admit that."
        )
    failures = max(one.failures for one in both)
    if any(one.is_known for one in both):
        few = " So few would hide bursts, for which they are too narrow." if failures < FEW else ""
        return (
            "Failures show no clustering over time or between nodes: the intervals are exact for "
            f"independent failures.{few}"
        )
    return (
        f"Whether failures cluster cannot be known from {counted(failures, 'failure')} alone: the "
        "intervals hold only if failures are independent."
    )


def _length(days: float | None) -> str:
    if days is None:
        return "nothing"
    return f"{days:g} d" if days >= 1.0 else f"{days * HOURS_PER_DAY:g} h"
