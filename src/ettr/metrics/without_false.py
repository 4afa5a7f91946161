"""Failure rates without the failures that chance explains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.spread import Spread
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, part_rate


@dataclass(frozen=True, slots=True)
class RateWithoutFalse:
    """A failure rate with the failures that are expected to be false, and without them.

    Attributes:
        expected_false: How many of those are false, with the interval of that number; no estimate
            where no rate of faults was measured.
    """

    failures: int
    node_days: float
    on_evidence: int
    expected_false: Interval
    per_1000_node_days: Interval
    without_false_per_1000_node_days: Interval


@dataclass(frozen=True, slots=True)
class RatesWithoutFalse:
    """The rates of all jobs, and of jobs of more than `above_gpus` GPUs."""

    above_gpus: int
    all_jobs: RateWithoutFalse
    large_jobs: RateWithoutFalse

    @property
    def best(self) -> RateWithoutFalse:
        """Of the jobs whose rate projects best, as `RatesBySymptom.best` chooses them."""
        return self.large_jobs if self.large_jobs.node_days > 0 else self.all_jobs


def rate_without_false(
    rate: EstimatedRate,
    on_evidence: int,
    expected_false: Interval,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> RateWithoutFalse:
    """A rate next to what is left of it without the false failures.

    The interval joins the scatter of the failures that are left with what is not known of the
    number of false ones: the squares of both distances to an end add up.

    Source:
        Zou and Donner (2008), Statistics in Medicine 27: the interval of a difference from the
        intervals of its parts.
    """
    return RateWithoutFalse(
        failures=rate.failures,
        node_days=rate.node_days,
        on_evidence=on_evidence,
        expected_false=expected_false,
        per_1000_node_days=rate.per_1000_node_days,
        without_false_per_1000_node_days=_left(rate, expected_false, confidence, spread),
    )


def _left(
    rate: EstimatedRate, false: Interval, confidence: float, spread: Spread | None
) -> Interval:
    if rate.node_days <= 0:
        return Interval(None, 0.0, math.inf)
    if false.estimate is None:
        # nothing says how many are false: all that rest on a check may be, or none
        fewest = part_rate(
            rate.failures - int(false.high), rate.node_days, rate.failures, confidence, spread
        )
        return Interval(None, fewest.per_1000_node_days.low, rate.per_1000_node_days.high)
    per = PER_NODE_DAYS / rate.node_days
    left = max(0.0, rate.failures - false.estimate)
    # counts are whole: the distances are those of the nearest one
    near = part_rate(round(left), rate.node_days, rate.failures, confidence, spread)
    own = near.per_1000_node_days
    middle = own.estimate or 0.0
    below = math.hypot(middle - own.low, per * (false.high - false.estimate))
    above = math.hypot(own.high - middle, per * (false.estimate - false.low))
    return Interval(per * left, max(0.0, per * left - below), per * left + above)
