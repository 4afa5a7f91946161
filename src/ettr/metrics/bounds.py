"""An estimate between two ends, in a form that JSON can hold: None where data set no bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import poisson_interval


@dataclass(frozen=True, slots=True)
class Bounds:
    """An estimate and its interval.

    `estimate` is None where nothing was observed, an end is None where the data set no bound.
    """

    estimate: float | None
    low: float | None
    high: float | None

    def contains(self, truth: float) -> bool:
        """Whether `truth` lies between the ends; an absent end excludes nothing."""
        return (self.low is None or self.low <= truth) and (self.high is None or truth <= self.high)


def rate_bounds(
    count: int, exposure: float, confidence: float = CONFIDENCE, per: float = 1.0
) -> Bounds:
    """Events per `per` units of exposure, with the exact Poisson interval.

    Source:
        Garwood (1936), Biometrika 28.
    """
    if exposure <= 0:
        return Bounds(None, 0.0, None)
    low, high = poisson_interval(count, confidence)
    scale = per / exposure
    return Bounds(count * scale, low * scale, high * scale)


def mean_time_bounds(count: int, exposure: float, confidence: float = CONFIDENCE) -> Bounds:
    """Mean time between events in the unit of `exposure`; with no event a lower bound only.

    Source:
        Kokolis et al. (2025), MTTF in [2T/chi2(1-a/2, 2n+2), 2T/chi2(a/2, 2n)].
    """
    if exposure <= 0:
        return Bounds(None, None, None)
    low, high = poisson_interval(count, confidence)
    return Bounds(
        exposure / count if count else None, exposure / high, exposure / low if low > 0 else None
    )


def plain(interval: Interval) -> Bounds:
    """An interval without infinities."""
    return Bounds(interval.estimate, _finite(interval.low), _finite(interval.high))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
