"""A period against the one before: failures, what they cost, whether it is getting better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions
from ettr.analysis.comparing import FleetComparison, compare_fleets
from ettr.analysis.fleet_evidence import period_evidence
from ettr.estimates.exact import sum_interval
from ettr.estimates.interval import Interval
from ettr.metrics.coverage import NO_DIRECTION
from ettr.metrics.goodput import loss_of_each
from ettr.metrics.instants import Period
from ettr.metrics.rates import (
    FailuresByConfidence,
    estimated_rate,
    failures_by_confidence,
    window_rate,
)
from ettr.models.compare import HINT, Direction, shown_direction
from ettr.units import HOURS_PER_DAY

USUAL_DAYS = 30.0
"""Length of the period where none is selected."""
LEAST_COVERED = 0.5
"""Share of a period in which errors must have been recorded to compare it."""


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """What one period holds.

    Attributes:
        failures: Failures of the infrastructure, on nodes of the class that rates are of.
        lost_gpu_hours: Lost to failures, jobs preempted for their sake included. The interval is
            of what such a period loses on average. None where no GPUs are known.
        counted_gpu_hours: What this period lost: a count, with what it would be at the shortest and
            at the longest checkpoint interval and restart that are assumed. None likewise.
        lost_share: Lost over ran; None likewise.
        failures_without_gpus: Failures that the loss leaves out, since they do not say their GPUs;
            likewise preemptions_without_gpus.
    """

    start: datetime
    end: datetime
    measured_days: float
    failures: int
    node_days: float
    per_1000_node_days: Interval
    ran_gpu_hours: float | None
    lost_gpu_hours: Interval | None
    counted_gpu_hours: Interval | None
    lost_share: float | None
    failures_without_gpus: int | None
    preemptions_without_gpus: int | None
    failures_without_runtime: int | None
    preemptions_without_runtime: int | None
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True)
class PeriodTrend:
    """A period and the one of the same length before it.

    Attributes:
        direction: Better or worse where the interval of the ratio of rates leaves 1 out at p < .01,
            and whether failures cluster is known; None where nothing can be compared.
        is_comparable: Whether errors of nodes were recorded in half of each period or more.
    """

    this: PeriodFigures
    before: PeriodFigures | None
    direction: Direction | None
    comparison: FleetComparison | None
    meaning: str
    cap_min: float
    is_comparable: bool = True


def previous(analysis: Analysis) -> PeriodTrend | None:
    """The selected period, else the last 30 days, against the one before it."""
    return period_trend(analysis)


def latest_period(analysis: Analysis) -> Period:
    """The selected period; of logs of which none is selected, the last 30 days."""
    chosen, logs = analysis.selection, analysis.logs_period
    if chosen.has_period:
        end = chosen.until or logs.end
        return Period(min(chosen.since or logs.start, end), end)
    return Period(max(logs.start, logs.end - timedelta(days=USUAL_DAYS)), logs.end)


def period_trend(analysis: Analysis, above_gpus: int | None = None) -> PeriodTrend | None:
    """The latest period against the one before it; None where the logs hold no jobs.

    The same nodes are compared with themselves where they ran in both periods, and the interval
    admits failures that come in bursts (`compare_fleets`).
    """
    if not analysis.logs_read.jobs:
        return None
    # of all of the logs: both periods take it over
    _ = analysis.size_unit
    if analysis.gpus_are_known:
        _ = analysis.logs_preemptions
    period = latest_period(analysis)
    earlier = Period(period.start - (period.end - period.start), period.start)
    until = analysis.selection.until
    late, early = _within(analysis, period.start, until), None
    this, before = _figures(late, period, analysis), None
    cap_min = analysis.assumptions.lost_cap_min
    if earlier.end > analysis.logs_period.start:
        early = _within(analysis, earlier.start, earlier.end)
        before = _figures(early, earlier, analysis)
    if early is None or before is None or not before.node_days:
        words = f"No data before {_date(period.start)}, so there is nothing to compare with."
        return PeriodTrend(this, None, None, None, words, cap_min)
    if not this.node_days:
        words = f"No job ran from {_date(period.start)} on, so there is nothing to compare."
        return PeriodTrend(this, before, None, None, words, cap_min)
    covered = analysis.logs_covered
    if covered is not None:
        both_days = ((covered.within(one).days, one.days) for one in (period, earlier))
        if any(days < LEAST_COVERED * of_days for days, of_days in both_days):
            words = f"{covered.bounds}: not comparable."
            return PeriodTrend(this, before, None, None, words, cap_min, is_comparable=False)
    # where `--since` leaves the period before out, what is selected does not hold both
    both = _within(analysis, earlier.start, until) if analysis.selection.since else analysis
    fleets = []
    for part, name in ((late, "this period"), (early, "the period before")):
        fleet = period_evidence(part.covered, name, both, above_gpus)
        if fleet is None:
            words = (
                f"No job of more than {above_gpus} GPUs ran in {name}, so there is nothing to "
                "compare."
            )
            return PeriodTrend(this, before, None, None, words, cap_min)
        fleets.append(fleet)
    compared = compare_fleets(fleets, analysis.assumptions.confidence, paired=True)
    windows = both.dump_windows
    ends = [one.first_end for one in windows]
    if any(end is None or end > earlier.start for end in ends):
        words = f"Whether it is getting better is unknown: {NO_DIRECTION}"
        return PeriodTrend(this, before, Direction.UNDECIDED, None, words, cap_min)
    direction = _direction(compared)
    return PeriodTrend(this, before, direction, compared, _meaning(direction, compared), cap_min)


def _within(analysis: Analysis, since: datetime, until: datetime | None) -> Analysis:
    """The analysis of a part of the time; with the end of the logs, where no end is given."""
    return analysis.of(replace(analysis.selection, since=since, until=until))


def _figures(part: Analysis, period: Period, whole: Analysis) -> PeriodFigures:
    """The figures of a part of the whole."""
    confidence = part.assumptions.confidence
    sure = failures_by_confidence(part.facts)
    counts, failed = part.clustering_of_all.counts, sure.total
    node_days = part.exposure.node_hours / HOURS_PER_DAY
    if part.rate_class:
        failed = len(part.rate_facts.columns("failures")["end_us"])
        node_days = 0.0 if counts is None else counts.rate.node_days
    spread = part.clustering_of_all.spread.believed
    if spread.is_known:
        rate = estimated_rate(failed, node_days, confidence, spread)
    else:
        # too few in the part: of the whole it may be known
        spread = whole.clustering_of_all.spread.believed
        rate = window_rate(failed, node_days, spread.failures, confidence, spread)
    ran = lost = losses = count = None
    if part.gpus_are_known:
        ran = part.ran_gpu_hours
        losses = loss_of_each(part.facts, part.preemptions, part.assumptions.lost_cap_min)
        if not losses.is_unknown:
            lost = sum_interval(losses.gpu_hours, spread.inflation(confidence), confidence)
            count = _counted(part, sum(losses.gpu_hours))
    return PeriodFigures(
        start=period.start.astimezone(UTC),
        end=period.end.astimezone(UTC),
        measured_days=part.period.days,
        failures=rate.failures,
        node_days=rate.node_days,
        per_1000_node_days=rate.per_1000_node_days,
        ran_gpu_hours=ran,
        lost_gpu_hours=lost,
        counted_gpu_hours=count,
        lost_share=lost.estimate / ran if lost and ran and lost.estimate is not None else None,
        failures_without_gpus=losses.failures_without_gpus if losses else None,
        preemptions_without_gpus=losses.preemptions_without_gpus if losses else None,
        failures_without_runtime=losses.failures_without_runtime if losses else None,
        preemptions_without_runtime=losses.preemptions_without_runtime if losses else None,
        by_confidence=sure,
    )


def _counted(part: Analysis, gpu_hours: float) -> Interval:
    """What was lost, and what it were at the best and at the worst that is assumed."""
    low, high = (
        sum(loss_of_each(part.facts, part.preemptions, cap_min).gpu_hours)
        for cap_min in caps_min(part.assumptions)
    )
    return Interval(gpu_hours, min(low, gpu_hours), max(high, gpu_hours))


def caps_min(given: Assumptions) -> tuple[float, float]:
    """The least and the most that one failure loses by what is assumed, in minutes.

    Half of a checkpoint interval on average, and at the most the restart too.
    """
    best, worst = given.checkpoints.best, given.checkpoints.worst
    return (
        best.checkpoint_interval_min / 2.0,
        worst.checkpoint_interval_min / 2.0 + worst.restart_min,
    )


def _direction(compared: FleetComparison) -> Direction:
    (pair,) = compared.pairs
    if any(fleet.clustered == "unknown" for fleet in compared.fleets):
        return Direction.UNDECIDED
    return shown_direction(pair.ratio)


def _meaning(direction: Direction, compared: FleetComparison) -> str:
    (pair,) = compared.pairs
    if direction is not Direction.UNDECIDED:
        return f"It is getting {direction.value}: {pair.ratio.meaning}"
    unknown = [fleet.name for fleet in compared.fleets if fleet.clustered == "unknown"]
    known, ratio = "", pair.ratio
    if not unknown and not ratio.low <= 1.0 <= ratio.high:
        most = "more often" if ratio.high == float("inf") else f"to {ratio.high:.2g} times as often"
        return (
            f"Whether it is getting better is undecided: {pair.a} fails {ratio.low:.2g} {most} "
            f"as {pair.b} ({100 * compared.confidence:.3g} % interval, p {ratio.p_value:.2g}), "
            f"{HINT}."
        )
    if unknown and "cluster" not in pair.ratio.meaning:
        known = f" Too few failed in {' and '.join(unknown)} to know whether failures cluster"
        known += ": this holds if they do not." if pair.believe == "independent" else "."
    return f"Whether it is getting better is undecided: {pair.ratio.meaning}{known}"


def _date(moment: datetime) -> str:
    text = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
    return text.removesuffix(" 00:00")
