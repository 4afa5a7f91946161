"""How long something lasts, when some of it is not over yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.estimates.interval import Interval, check_confidence
from ettr.metrics.instants import Floats

QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Quantile:
    """One quantile of a duration; None where too little has ended to know it."""

    level: float
    hours: Interval


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in hours with intervals; `still_open` ones count as lasting at least so long.

    The mean is restricted to the longest duration seen: with open ones it is a lower bound.
    """

    count: int
    still_open: int
    mean_h: Interval
    median_h: Interval
    quantiles: tuple[Quantile, ...]


def durations(
    hours: Floats, over: npt.NDArray[np.bool_], confidence: float = CONFIDENCE
) -> Durations:
    """Mean and quantiles of durations of which some are not over.

    Args:
        hours: how long each has lasted so far, in hours.
        over: whether it has ended.
        confidence: of the intervals, between 0 and 1.

    Source:
        Kaplan and Meier (1958); variance of Greenwood (1926); intervals of quantiles by inverting
        the log-log interval of the survival function, Brookmeyer and Crowley (1982).
    """
    check_confidence(confidence)
    hours = np.asarray(hours, dtype=float)
    over = np.asarray(over, dtype=bool)
    nothing = Interval.unknown()
    if not len(hours):
        return Durations(0, 0, nothing, nothing, ())
    curve = _Curve.of(hours, over)
    return Durations(
        count=len(hours),
        still_open=int((~over).sum()),
        mean_h=curve.mean(confidence),
        median_h=curve.quantile(0.5, confidence),
        quantiles=tuple(Quantile(level, curve.quantile(level, confidence)) for level in QUANTILES),
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """The survival function: steps at `times_h`, after which `survival` are still going."""

    times_h: Floats
    survival: Floats
    hazard_variance: Floats
    increments: Floats
    longest_h: float

    @staticmethod
    def of(hours: Floats, over: npt.NDArray[np.bool_]) -> _Curve:
        times_h, ended = np.unique(hours[over], return_counts=True)
        at_risk = len(hours) - np.searchsorted(np.sort(hours), times_h, side="left")
        left = at_risk - ended
        survival = np.cumprod(left / at_risk, dtype=np.float64)
        # Where all that are left end at once the variance of the tail is not defined.
        increments = np.where(left > 0, ended / np.maximum(at_risk * left, 1), 0.0)
        return _Curve(times_h, survival, np.cumsum(increments), increments, float(hours.max()))

    def mean(self, confidence: float) -> Interval:
        if not len(self.times_h):
            return Interval(None, self.longest_h, math.inf)
        edges = np.append(self.times_h, self.longest_h)
        before = np.concatenate([[1.0], self.survival])
        areas = np.diff(np.concatenate([[0.0], edges])) * before
        mean = float(areas.sum())
        beyond = mean - np.cumsum(areas)[:-1]
        error = _normal(confidence) * float(np.sqrt((beyond**2 * self.increments).sum()))
        return Interval(mean, max(mean - error, 0.0), mean + error)

    def quantile(self, level: float, confidence: float) -> Interval:
        if not len(self.times_h):
            return Interval(None, self.longest_h, math.inf)
        target = 1.0 - level
        spread = _normal(confidence) * np.sqrt(self.hazard_variance)
        inside = np.clip(self.survival, 1e-12, 1 - 1e-12)
        factor = np.exp(spread / -np.log(inside))
        lower = np.where(self.survival > 0, inside**factor, 0.0)
        upper = np.where(self.survival > 0, inside ** (1 / factor), 0.0)
        first = self._first_at_or_below
        low, high = first(lower, target), first(upper, target)
        return Interval(
            first(self.survival, target),
            -math.inf if low is None else low,
            math.inf if high is None else high,
        )

    def _first_at_or_below(self, curve: Floats, target: float) -> float | None:
        places = np.flatnonzero(curve <= target + 1e-12)
        return float(self.times_h[places[0]]) if len(places) else None


def _normal(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2.0))
