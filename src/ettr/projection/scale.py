"""A fitted failure rate at another scale: MTTF, ETTR, spares, and where it extrapolates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.models.base import FEW_FAILURES, Fit, root
from ettr.models.data import Floats, Lifetimes, RepairLaw, at_risk
from ettr.models.log_location_scale import LogLocationScale
from ettr.models.piecewise import PiecewiseConstant, local_spread
from ettr.plan.wallclock import spares_needed, standstill_share
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import by_number, counted, p_words, significant, spell

# -- rates at given ages or since the last step of the rate, as fits to project; renewals ----------


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


# -- a fitted failure rate at another scale: MTTF, ETTR, spares, and where it extrapolates ---------


EttrOfRate = Callable[[float], float]
"""ETTR of a job by its failures per day; falls as they rise."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A job to be run.

    Attributes:
        repair_days: Mean time until a failed node is back; None where not known.
        age_days: Clock of the nodes over the run (from, to), for models in which age matters.
        queue_s: Mean wait of the job after each failure, in which nothing fails.
    """

    n_nodes: int
    gpus_per_node: float = 8.0
    spares: int = 0
    repair_days: float | None = None
    run_days: float | None = None
    age_days: tuple[float, float] | None = None
    repair_law: RepairLaw = RepairLaw.GOOD_AS_NEW
    queue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The range of what the models were fitted to."""

    largest_n_nodes: int
    smallest_n_nodes: int = 1
    gpus_per_node: float = 8.0
    span_days: float | None = None
    oldest_days: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """What one model says at the new scale."""

    model: str
    per_node_day: Interval
    mttf_h: Interval
    ettr: Interval | None


@dataclass(frozen=True, slots=True)
class Spares:
    """Whether spare nodes suffice."""

    in_repair: Interval
    full_share: Interval
    needed_for_99: int


class WarningKind(StrEnum):
    """Why a projection may be wrong beyond its band."""

    EXTRAPOLATION = "extrapolation"
    FEW_FAILURES = "few failures"
    POOR_FIT = "poor fit"


@dataclass(frozen=True, slots=True)
class ProjectionWarning:
    """One reason to doubt a projection, in a sentence."""

    kind: WarningKind
    text: str


@dataclass(frozen=True, slots=True)
class Projection:
    """A job at a scale, with a band from parameter and model uncertainty.

    Attributes:
        mttf_h: Mean time to failure: of the preferred model, between the lowest and the highest
            end of all models.
        ettr: The same for ETTR; None without a function for it. Time spent short of nodes counts
            as lost where spares and repair times are given.
        failures_in_run: Failures to expect in `run_days`, with a band for a single run; none while
            the job waits in the queue or for a repair.
        spares: None without a repair time.
    """

    scale: Scale
    mttf_h: Interval
    ettr: Interval | None
    parameter_mttf_h: Interval
    failures_in_run: Interval | None
    spares: Spares | None
    lines: tuple[Line, ...]
    warnings: tuple[ProjectionWarning, ...]
    meaning: str


def project(
    fits: Sequence[Fit], scale: Scale, seen: Seen, ettr: EttrOfRate | None = None
) -> Projection:
    """Fitted models at another scale, nodes in series.

    The band is the envelope of the models: it holds if any of them is right. Where nodes have
    other numbers of GPUs than those observed, a failure rate by node and one by GPU are both
    models.

    Raises:
        UsageError: no fits, or a scale that cannot be.

    Source:
        Kokolis et al. (2025): MTTF = 1 / (N_nodes * r_f).
    """
    _check(fits, scale, seen)
    rates = [
        (f"{fit.model}{note}", _rate(fit, scale).scaled(factor))
        for fit in fits
        for note, factor in _growth(scale, seen)
    ]
    spares = None if scale.repair_days is None else _spares(scale, _envelope([r for _, r in rates]))
    lines = tuple(_line(name, rate, scale, ettr, spares) for name, rate in rates)
    mttf = _envelope([line.mttf_h for line in lines])
    known = [line.ettr for line in lines if line.ettr is not None]
    projected = _envelope(known) if known else None
    warnings = tuple(_warnings(fits, scale, seen))
    first = fits[0]
    return Projection(
        scale=scale,
        mttf_h=mttf,
        ettr=projected,
        parameter_mttf_h=lines[0].mttf_h,
        failures_in_run=_in_run(rates[0][1], first, scale),
        spares=spares,
        lines=lines,
        warnings=warnings,
        meaning=_meaning(scale, mttf, projected, first.confidence, warnings),
    )


def _check(fits: Sequence[Fit], scale: Scale, seen: Seen) -> None:
    problems = []
    if not fits:
        problems.append("fits: none; give at least one, the preferred first")
    if any(not (fit.rate.node_days > 0 or _is_typed(fit)) for fit in fits):
        problems.append("fits: one has no exposure; widen the period or the filter")
    for name, value in (
        ("n_nodes", scale.n_nodes),
        ("gpus_per_node", scale.gpus_per_node),
        ("largest_n_nodes", seen.largest_n_nodes),
        ("gpus_per_node of what was seen", seen.gpus_per_node),
    ):
        if not value > 0:
            problems.append(f"{name}: {value}; give 1 or more")
    if scale.spares < 0:
        problems.append(f"spares: {scale.spares}; give 0 or more")
    for name, days in (("repair_days", scale.repair_days), ("run_days", scale.run_days)):
        if days is not None and not days > 0:
            problems.append(f"{name}: {days}; give a positive number of days, or leave it out")
    if scale.age_days is not None and not 0 <= scale.age_days[0] < scale.age_days[1]:
        problems.append(f"age_days: {scale.age_days}; give (from, to) with 0 <= from < to")
    if problems:
        raise UsageError("cannot project:" + "".join(f"\n  {problem}" for problem in problems))


def _is_typed(fit: Fit) -> bool:
    """Whether a rate is known without the failures and the exposure behind it."""
    return fit.rate.node_days == 0 and fit.rate_per_node_day.estimate is not None


def _rate(fit: Fit, scale: Scale) -> Interval:
    """Rate of one node; where age matters, scaled to the ages of the run."""
    rate = fit.rate_per_node_day
    if scale.age_days is None or fit.cumulative_hazard is None or not rate.estimate:
        return rate
    start, end = scale.age_days
    failures = failures_between(
        fit.cumulative_hazard, start * SECONDS_PER_DAY, end * SECONDS_PER_DAY, scale.repair_law
    )
    return rate.scaled(failures / (end - start) / rate.estimate)


def _growth(scale: Scale, seen: Seen) -> list[tuple[str, float]]:
    if scale.gpus_per_node == seen.gpus_per_node:
        return [("", 1.0)]
    return [(", rate by GPU", scale.gpus_per_node / seen.gpus_per_node), (", rate by node", 1.0)]


def _line(
    name: str, rate: Interval, scale: Scale, ettr: EttrOfRate | None, spares: Spares | None
) -> Line:
    mttf = rate.scaled(scale.n_nodes / HOURS_PER_DAY).inverse()
    # a rate of 0 that was typed is known, unlike that of a fleet in which nothing failed yet
    never_fails = rate.high == 0.0
    if never_fails:
        mttf = Interval(math.inf, math.inf, math.inf)
    if ettr is None:
        return Line(name, rate, mttf, None)

    def value(per_node_day: float) -> float:
        if math.isinf(per_node_day):
            return 0.0
        full = 1.0 if spares is None else _full_share(scale, per_node_day)
        return full * ettr(scale.n_nodes * per_node_day)

    estimate = value(rate.estimate or 0.0) if rate.estimate or never_fails else None
    return Line(name, rate, mttf, Interval(estimate, value(rate.high), value(rate.low)))


def _envelope(intervals: Sequence[Interval]) -> Interval:
    return Interval(
        intervals[0].estimate, min(i.low for i in intervals), max(i.high for i in intervals)
    )


def _full_share(scale: Scale, per_node_day: float) -> float:
    """Share of time in which the job has all its nodes; none fails while it stands still."""
    offered = scale.n_nodes * per_node_day * (scale.repair_days or 0.0)
    return 1.0 - standstill_share(scale.spares, offered) if math.isfinite(offered) else 0.0


def _spares(scale: Scale, rate: Interval) -> Spares:
    offered = rate.scaled(scale.n_nodes * (scale.repair_days or 0.0))
    full = Interval(
        None if rate.estimate is None else _full_share(scale, rate.estimate),
        _full_share(scale, rate.high),
        _full_share(scale, rate.low),
    )
    return Spares(
        Interval(
            None
            if offered.estimate is None or full.estimate is None
            else offered.estimate * full.estimate,
            offered.low * full.high,
            # at most every spare and the node that the job waits for
            offered.high * full.low if math.isfinite(offered.high) else scale.spares + 1.0,
        ),
        full,
        spares_needed(offered.high) if math.isfinite(offered.high) else 0,
    )


def _held_share(scale: Scale, rate: Interval) -> float:
    """Share of a run's wall-clock in which it holds its nodes, at the rate planned with."""
    per_node_day = rate.estimate or rate.high
    if not math.isfinite(per_node_day):
        return 1.0
    waits = scale.n_nodes * per_node_day * scale.queue_s / SECONDS_PER_DAY
    full = 1.0 if scale.repair_days is None else _full_share(scale, per_node_day)
    # of waits for the scheduler and for a node, each is counted over the time without the other
    return 1.0 / (1.0 + waits + (1.0 / full - 1.0 if full > 0 else math.inf))


def _in_run(rate: Interval, fit: Fit, scale: Scale) -> Interval | None:
    """Failures in one run: the scatter of the run itself on top of that of the rate."""
    if scale.run_days is None:
        return None
    from ettr.estimates.exact import negative_binomial_quantile, poisson_quantile

    exposure = scale.n_nodes * scale.run_days * _held_share(scale, rate)
    if _is_typed(fit):
        # the run's own scatter at either end of the rate: wider than that of both together
        tail = (1.0 - fit.confidence) / 2.0
        return Interval(
            (rate.estimate or 0.0) * exposure,
            float(poisson_quantile(tail, rate.low * exposure)),
            float(poisson_quantile(1.0 - tail, rate.high * exposure)),
        )
    per_seen = (rate.estimate or 0.0) / (fit.rate.per_node_day or 1.0) or 1.0
    # half a failure more: the predictive law after Jeffreys' prior, never without scatter
    mean = (fit.rate.failures + 0.5) / fit.rate.node_days * per_seen * exposure
    index = fit.dispersion * (1.0 + per_seen * exposure / fit.rate.node_days)
    p = 1.0 / max(index, 1.0 + 1e-6)
    tail = (1.0 - fit.confidence) / 2.0
    size = mean * p / (1.0 - p)
    low, high = (negative_binomial_quantile(share, size, p) for share in (tail, 1.0 - tail))
    estimate = None if rate.estimate is None else rate.estimate * exposure
    return Interval(estimate, low, high)


def _warnings(fits: Sequence[Fit], scale: Scale, seen: Seen) -> list[ProjectionWarning]:
    return [
        *(ProjectionWarning(WarningKind.EXTRAPOLATION, text) for text in _beyond(scale, seen)),
        *_of_the_fit(fits[0]),
    ]


def _beyond(scale: Scale, seen: Seen) -> Iterator[str]:
    """Where the job goes beyond what was seen, a sentence each."""
    if scale.n_nodes > seen.largest_n_nodes:
        yield (
            f"{scale.n_nodes:,} nodes are {significant(scale.n_nodes / seen.largest_n_nodes)} "
            "times the "
            f"largest job seen ({seen.largest_n_nodes:,}): that failures grow in proportion to "
            "nodes is an assumption there, and causes common to many nodes are not in the band."
        )
    if scale.n_nodes < seen.smallest_n_nodes:
        yield (
            f"{by_number('{n} [node is|nodes are]', scale.n_nodes)} fewer than the smallest job "
            f"seen ({seen.smallest_n_nodes:,}): small jobs fail for other reasons too."
        )
    if scale.gpus_per_node != seen.gpus_per_node:
        yield (
            f"Nodes of {scale.gpus_per_node:g} GPUs were not seen ({seen.gpus_per_node:g} were): "
            "the band runs from a rate by node to a rate by GPU."
        )
    if scale.run_days and seen.span_days and scale.run_days > seen.span_days:
        yield (
            f"The run of {scale.run_days:g} days is longer than the {seen.span_days:g} days "
            "observed: the rate may drift in the meantime."
        )
    if scale.age_days and seen.oldest_days is not None and scale.age_days[1] > seen.oldest_days:
        yield (
            f"No node older than {seen.oldest_days:g} days was seen: its hazard at "
            f"{scale.age_days[1]:g} days rests on the model alone."
        )


def _of_the_fit(first: Fit) -> Iterator[ProjectionWarning]:
    failures = first.rate.failures
    if failures < FEW_FAILURES and not _is_typed(first):
        seen = by_number("{n} [failure is|failures are]", failures)
        yield ProjectionWarning(
            WarningKind.FEW_FAILURES,
            f"{seen} too few to know whether they cluster: the band holds only if they are "
            "independent.",
        )
    if first.goodness is not None and first.goodness.p_value < 0.01:
        yield ProjectionWarning(
            WarningKind.POOR_FIT,
            f"The data contradict {first.model} ({p_words(first.goodness.p_value)}): the band may "
            "be too narrow.",
        )


_DOUBTS = {
    WarningKind.EXTRAPOLATION: "this lies beyond what was seen",
    WarningKind.FEW_FAILURES: "it rests on few failures",
    WarningKind.POOR_FIT: "the fit is poor, so the interval may be too narrow",
}


def _meaning(
    scale: Scale,
    mttf: Interval,
    ettr: Interval | None,
    confidence: float,
    warnings: Sequence[ProjectionWarning],
) -> str:
    over = f"{100 * confidence:g} % over all fitted models"
    nodes = counted(scale.n_nodes, "node")
    if mttf.estimate is None:
        text = f"On {nodes} the mean time to failure is at least {_spell_h(mttf.low)} ({over})"
    else:
        text = f"On {nodes} the mean time to failure is {_spell_h(mttf.estimate)}"
        if mttf.low < mttf.high:
            text += f" [{_spell_h(mttf.low)}, {_spell_h(mttf.high)}; {over}]"
    if ettr is not None and ettr.estimate is None:
        text += f", ETTR {ettr.low:.3f} to {ettr.high:.3f}"
    elif ettr is not None:
        text += f", ETTR {ettr.estimate:.3f}"
        text += f" [{ettr.low:.3f}, {ettr.high:.3f}]" if ettr.low < ettr.high else ""
    kinds = {warning.kind for warning in warnings}
    doubts = [words for kind, words in _DOUBTS.items() if kind in kinds]
    return f"{text}." if not doubts else f"{text}; {' and '.join(doubts)}."


def _spell_h(hours: float) -> str:
    return "∞" if math.isinf(hours) else spell(SECONDS_PER_HOUR * hours)
