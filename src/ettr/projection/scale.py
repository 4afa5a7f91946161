"""A fitted failure rate at another scale: MTTF, ETTR, spares, and where it extrapolates."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.models.base import FEW_FAILURES, Fit
from ettr.plan.deadline import spares_needed, standstill_share
from ettr.projection.ageing import RepairLaw, failures_between
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import by_number, counted, p_words, significant, spell

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
            "be "
            "too narrow.",
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
