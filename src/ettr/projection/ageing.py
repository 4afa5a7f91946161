"""Rates of nodes at given ages, or since the last step of the fleet's rate, as fits to project."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.models.base import Fit
from ettr.models.data import Floats, Lifetimes, at_risk
from ettr.models.log_location_scale import LogLocationScale
from ettr.models.piecewise import PiecewiseConstant, local_spread
from ettr.projection.renewal import RepairLaw, failures_between
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

    Args:
        ages_days: Clock of the nodes over the run (from, to).

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
    from scipy.optimize import brentq

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
    place = float(brentq(excess, low, high, xtol=1e-10))
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
