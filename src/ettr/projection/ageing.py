"""Rates at given ages or since the last step of the rate, as fits to project; renewals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.estimates.search import root
from ettr.models.base import Fit
from ettr.models.data import Floats, Lifetimes, RepairLaw, at_risk
from ettr.models.log_location_scale import LogLocationScale
from ettr.models.piecewise import PiecewiseConstant, local_spread
from ettr.units import SECONDS_PER_DAY

_SCALES = (math.exp(-4.0), math.exp(4.0))
"""Scales of a logarithm that the fit looks at, shortest and longest."""


def fit_at_ages(
    model: LogLocationScale,
    data: Lifetimes,
    ages_days: tuple[float, float],
    level: FailureRate,
    confidence: float = CONFIDENCE,
    repair_law: RepairLaw = RepairLaw.GOOD_AS_NEW,
) -> Fit:
    """The law fitted to `data`, as a constant rate over the ages that a run will see.

    The shape comes from the lifetimes, the level from `level`: failures that blame no node count,
    and a day of age counts for as much use as it had. The interval joins that of the level with
    what each shape within its own interval says of those ages, so it is on the safe side.

    Raises:
        UsageError: nothing failed, so that a law of ages is not known; or ages that are no span.
    """
    begin, end = ages_days
    if not 0 <= begin < end < math.inf:
        raise UsageError(f"ages {begin:g} to {end:g} days are no span; give 0 <= from < to")
    fit = model.fit(data, confidence)
    per_node_day = fit.rate.per_node_day
    if not per_node_day:
        raise UsageError(
            f"no failure ended a lifetime, so {fit.model} knows nothing of ages; project with a "
            "constant rate"
        )
    factors = _ageing_factors(model, data, model.log_scale(fit), ages_days, repair_law)
    grown = (level.per_node_day or 0.0) / per_node_day
    rate = fit.rate_per_node_day
    return replace(
        fit,
        model=f"{fit.model} at {begin:g} to {end:g} days",
        rate=level,
        rate_per_node_day=Interval(
            (level.per_node_day or 0.0) * factors[0],
            rate.low * grown * min(factors),
            rate.high * grown * max(factors),
        ),
        cumulative_hazard=None,
    )


def _ageing_factors(
    model: LogLocationScale,
    data: Lifetimes,
    scale: Interval,
    ages_days: tuple[float, float],
    repair_law: RepairLaw,
) -> list[float]:
    """Rate over those ages over the mean rate seen, at the estimate of the scale and its ends."""
    seen_per_s = data.failures / (data.node_days * SECONDS_PER_DAY)
    clipped = [
        min(max(value or 0.0, _SCALES[0]), _SCALES[1])
        for value in (scale.estimate, scale.low, scale.high)
    ]
    return [_mean_rate(model, data, value, ages_days, repair_law) / seen_per_s for value in clipped]


def _mean_rate(
    model: LogLocationScale,
    data: Lifetimes,
    scale: float,
    ages_days: tuple[float, float],
    repair_law: RepairLaw,
) -> float:
    """Failures per second over ages, under the law of that scale that expects what was seen."""

    def cumulative(clock_s: Any, place: float) -> Floats:
        with np.errstate(over="ignore", divide="ignore"):
            return model.cumulative((np.log(np.asarray(clock_s, dtype=np.float64)) - place) / scale)

    late = data.entry_s > 0

    def excess(place: float) -> float:
        with np.errstate(invalid="ignore", over="ignore"):
            expected = float(
                cumulative(data.duration_s, place).sum()
                - cumulative(data.entry_s[late], place).sum()
            )
        # both ends overflow only where the law is far too short
        return math.inf if math.isnan(expected) else expected - data.failures

    middle = float(np.mean(np.log(data.duration_s)))
    low, high = middle - 1.0, middle + 1.0
    while excess(low) < 0:
        low -= 2.0 * (middle - low)
    while excess(high) > 0:
        high += 2.0 * (high - middle)
    while math.isinf(excess(low)):
        half = (low + high) / 2.0
        low, high = (half, high) if excess(half) > 0 else (low, half)
    place = root(excess, low, high, within=1e-10)
    begin_s, end_s = (days * SECONDS_PER_DAY for days in ages_days)
    with np.errstate(invalid="ignore", over="ignore"):
        failures = failures_between(
            lambda clock_s: cumulative(clock_s, place), begin_s, end_s, repair_law
        )
    return failures / (end_s - begin_s)


def fit_since_last_step(data: Lifetimes, confidence: float = CONFIDENCE) -> tuple[Fit, float]:
    """A constant rate since the last step that the fleet's rate took, and the day of that step.

    The interval is the envelope over every place where that step may lie, and admits the spread
    between neighbouring windows. Where the rate stepped by less than the data can show, no step is
    found, and the rate is about the mean over both sides.
    """
    fit = PiecewiseConstant().fit(data, confidence)
    local = local_spread(data)
    steps = [p for p in fit.parameters if p.name.startswith("step") and p.estimate is not None]
    if not steps:
        rate = FailureRate(data.failures, data.node_days)
        interval = local.interval(rate, confidence)
        return replace(fit, rate_per_node_day=interval, cumulative_hazard=None), 0.0
    last = max(steps, key=lambda step: step.estimate or 0.0)
    begins_s = [last.estimate or 0.0, last.low, last.high]
    rates = [_rate_since(data, begin_s) for begin_s in begins_s]
    intervals = [local.interval(rate, confidence) for rate in rates if rate.node_days > 0]
    return (
        replace(
            fit,
            rate=rates[0],
            rate_per_node_day=Interval(
                rates[0].per_node_day,
                min(interval.low for interval in intervals),
                max(interval.high for interval in intervals),
            ),
            cumulative_hazard=None,
        ),
        begins_s[0] / SECONDS_PER_DAY,
    )


def _rate_since(data: Lifetimes, begin_s: float) -> FailureRate:
    """Failures over exposure from a reading of the clock on."""
    end_s = float(data.duration_s.max())
    exposed = np.diff(at_risk(data.entry_s, data.duration_s, np.array([begin_s, end_s])))
    recent = data.observed & (data.duration_s > begin_s)
    return FailureRate(int(np.count_nonzero(recent)), float(exposed[0]) / SECONDS_PER_DAY)


# -- Expected failures under a repair law: a repaired node is as good as new, or as it was before

__all__ = ["CumulativeHazard", "RepairLaw", "failures_between", "renewals"]

CumulativeHazard = Callable[[Floats], Floats]
"""Of a lifetime, by age in seconds: `Fit.cumulative_hazard`."""


def failures_between(
    cumulative_hazard: CumulativeHazard, from_s: float, to_s: float, law: RepairLaw
) -> float:
    """Failures expected of one node that is `from_s` old until its clock would show `to_s`.

    Raises:
        UsageError: the ages are no span.
    """
    if not 0 <= from_s < to_s:
        raise UsageError(f"from_s {from_s} to to_s {to_s} is not a span; give 0 <= from_s < to_s")
    if law is RepairLaw.MINIMAL:
        low, high = cumulative_hazard(np.array([from_s, to_s]))
        return float(high - low)
    return renewals(cumulative_hazard, to_s - from_s, age_s=from_s)


def renewals(
    cumulative_hazard: CumulativeHazard,
    horizon_s: float,
    n_steps: int = 2000,
    *,
    age_s: float = 0.0,
) -> float:
    """Failures expected of one node up to `horizon_s`, each repair making it new again.

    Args:
        n_steps: Steps of the grid; the error falls with its square where the density is smooth.

    Returns:
        The expected number; where lives are shorter than a step of the grid, that of the long run.

    Raises:
        UsageError: the horizon is not positive, or the age is negative.

    Source:
        Xie (1989), Communications in Statistics - Simulation and Computation 18.
    """
    if not horizon_s > 0:
        raise UsageError(f"horizon_s is {horizon_s}; give a positive time in seconds")
    if not age_s >= 0:
        raise UsageError(f"age_s is {age_s}; give an age of 0 or more seconds")
    grid = np.linspace(0.0, horizon_s, n_steps + 1)
    half = grid[1:] - grid[1] / 2.0
    by_end = -np.expm1(-cumulative_hazard(grid))
    by_half = -np.expm1(-cumulative_hazard(half))
    if by_half[0] > 0.5:
        # lives are shorter than a step of the grid: in the long run one failure a mean life
        return horizon_s / _mean_life_s(cumulative_hazard, horizon_s)
    expected = np.zeros(n_steps + 1)
    step = np.zeros(n_steps)
    for i in range(1, n_steps + 1):
        past = by_half[1:i][::-1] @ step[: i - 1]
        expected[i] = (by_end[i] + past - by_half[0] * expected[i - 1]) / (1.0 - by_half[0])
        step[i - 1] = expected[i] - expected[i - 1]
    if age_s == 0.0:
        return float(expected[-1])
    # the first failure follows the lifetime that is left; from there on the node is new
    gone = cumulative_hazard(np.array([age_s]))
    first = -np.expm1(-(cumulative_hazard(age_s + grid) - gone))
    later = (expected[:-1] + expected[1:])[::-1] / 2.0
    return float(first[-1] + np.diff(first) @ later)


def _mean_life_s(cumulative_hazard: CumulativeHazard, horizon_s: float) -> float:
    """Mean of a life that hardly ever reaches the horizon: the integral of its survival."""
    clock_s = np.concatenate(([0.0], np.geomspace(horizon_s * 1e-12, horizon_s, 2000)))
    with np.errstate(over="ignore"):
        survival = np.exp(-cumulative_hazard(clock_s))
    return float(np.sum(np.diff(clock_s) * (survival[:-1] + survival[1:]) / 2.0))
