"""Which of several fleets, partitions or periods fails more often, and of what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions
from ettr.analysis.clustering import FLEET
from ettr.analysis.fleet_evidence import FleetEvidence, period_evidence, same_nodes
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate, sum_interval
from ettr.estimates.interval import Interval
from ettr.estimates.spread import Spread
from ettr.metrics.coverage import NO_DIRECTION
from ettr.metrics.goodput import loss_of_each
from ettr.metrics.instants import Period
from ettr.metrics.rates import (
    PER_NODE_DAYS,
    FailuresByConfidence,
    estimated_rate,
    failures_by_confidence,
    window_rate,
)
from ettr.metrics.runs import FleetChecks
from ettr.models.compare import (
    HINT,
    LEAST_COMMON_SHARE,
    Direction,
    Funnel,
    RateRatio,
    compare_rates,
    compare_same_nodes,
    compare_spread,
    compare_symptoms,
    funnel,
    holm_corrected,
    pooled_spread,
    shown_direction,
)
from ettr.models.data import Counts
from ettr.units import HOURS_PER_DAY


@dataclass(frozen=True, slots=True)
class FleetRate:
    """One fleet: its failures and exposure, with the interval to believe, per 1,000 node-days."""

    name: str
    jobs: str
    failures: int
    node_days: float
    per_1000_node_days: float
    low: float
    high: float
    clustered: str
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True)
class FleetPair:
    """One fleet against another, or against all others.

    Attributes:
        believe: Name of the field to believe: `independent`, `over_dispersed` or `paired`.
        paired: The same nodes in two periods, what each is prone to cancelled; None where fleets
            are compared, or where too few nodes ran in both periods.
    """

    a: str
    b: str
    independent: RateRatio
    over_dispersed: RateRatio
    believe: str
    by_symptom: dict[str, RateRatio]
    paired: RateRatio | None = None

    @property
    def ratio(self) -> RateRatio:
        """The ratio to believe."""
        if self.paired is not None:
            return self.paired
        return self.independent if self.believe == "independent" else self.over_dispersed


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """Fleets side by side; `funnel` is None for two fleets, or where nothing failed.

    `checks`: of fleets whose training runs were checked, which check stopped which run.
    """

    fleets: tuple[FleetRate, ...]
    pairs: tuple[FleetPair, ...]
    funnel: Funnel | None
    confidence: float
    notes: tuple[str, ...]
    checks: tuple[FleetChecks, ...] = ()


def compare_fleets(
    fleets: Sequence[FleetEvidence], confidence: float, *, paired: bool = False
) -> FleetComparison:
    """Two fleets against each other; more of them each against all others, with a funnel.

    Args:
        paired: the two are one fleet in two periods, so that its nodes are compared with
            themselves.

    Raises:
        UsageError: fewer than two fleets, two of one name, or one without exposure.
    """
    _check_names([fleet.name for fleet in fleets])
    if len(fleets) == 2:
        pairs: tuple[FleetPair, ...] = (_pair(fleets[0], [fleets[1]], confidence, paired),)
    else:
        pairs = _corrected(
            tuple(
                _pair(one, [fleet for fleet in fleets if fleet is not one], confidence)
                for one in fleets
            )
        )
    rates = tuple(_rate(fleet, confidence) for fleet in fleets)
    return FleetComparison(
        fleets=rates,
        pairs=pairs,
        funnel=_funnel(fleets, pairs),
        confidence=confidence,
        notes=tuple(_notes(rates)),
        checks=tuple(fleet.checks for fleet in fleets if fleet.checks is not None),
    )


def _check_names(names: Sequence[str]) -> None:
    if len(names) < 2:
        raise UsageError(f"{len(names)} fleet cannot be compared with itself; give two or more")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"{', '.join(twice)}: two fleets have the same name; name them, such as "
            "old=30/5000 new=12/6000, or compare other stores"
        )


def _notes(fleets: Sequence[FleetRate]) -> Iterator[str]:
    """What a reader of the comparison must know, one sentence each."""
    if len({fleet.jobs for fleet in fleets}) > 1:
        kinds = "; ".join(f"{fleet.name}: {fleet.jobs}" for fleet in fleets)
        yield (
            f"The fleets count different kinds of jobs: {kinds}. Larger jobs meet other failures."
        )
    if len(fleets) > 2:
        yield (
            f"Each of the {len(fleets)} fleets is compared with all others together; p-values are "
            "corrected for their number (Holm)."
        )
    unknown = [fleet.name for fleet in fleets if fleet.clustered == "unknown"]
    if unknown:
        yield (
            f"Whether failures cluster is unknown for {', '.join(unknown)}: the verdicts "
            "on them hold only if their failures are independent."
        )


def _rate(evidence: FleetEvidence, confidence: float) -> FleetRate:
    found = evidence.spread
    spread = None if found is None else found.believed
    interval = (
        evidence.rate.interval(confidence)
        if spread is None
        else spread.interval(evidence.rate, confidence)
    )
    return FleetRate(
        name=evidence.name,
        jobs=evidence.jobs,
        failures=evidence.rate.failures,
        node_days=evidence.rate.node_days,
        per_1000_node_days=1000.0 * (evidence.rate.per_node_day or 0.0),
        low=1000.0 * interval.low,
        high=1000.0 * interval.high,
        clustered="unknown"
        if spread is None or not spread.is_known
        else ("over-dispersed" if spread.is_clustered else "poisson"),
        by_confidence=evidence.by_confidence,
    )


def _pair(
    a: FleetEvidence, others: Sequence[FleetEvidence], confidence: float, paired: bool = False
) -> FleetPair:
    b = others[0] if len(others) == 1 else _merged(others)
    names = (a.name, b.name)
    spreads = [spread for one in others for spread in one.spreads]
    wide = compare_spread(a.rate, b.rate, a.spreads, spreads, confidence, names)
    matched = _matched(a, b, confidence) if paired else None
    symptoms = (
        compare_symptoms(
            a.by_symptom,
            a.rate.node_days,
            b.by_symptom,
            b.rate.node_days,
            confidence,
            names,
            pooled_spread(a.spreads, spreads, confidence),
            _spread_of_symptoms(a, others, confidence),
        )
        if a.by_symptom or b.by_symptom
        else {}
    )
    if matched is not None:
        believe = "paired"
    else:
        believe = "over_dispersed" if wide.dispersion > 1.0 else "independent"
    independent = compare_rates(a.rate, b.rate, confidence, names)
    return FleetPair(a.name, b.name, independent, wide, believe, symptoms, matched)


def _matched(a: FleetEvidence, b: FleetEvidence, confidence: float) -> RateRatio | None:
    """The same nodes in two periods; None where too few ran in both."""
    pairs = same_nodes(a, b)
    if pairs is None or pairs.common_share < LEAST_COMMON_SHARE:
        return None
    over_time = [one for one in (*a.spreads, *b.spreads) if one.over == "time"]
    return compare_same_nodes(pairs, over_time, confidence, (a.name, b.name))


def _spread_of_symptoms(
    a: FleetEvidence, others: Sequence[FleetEvidence], confidence: float
) -> dict[str, Spread | None]:
    """How the failures of each symptom cluster, in a fleet and others taken together."""
    names = {*a.by_symptom, *(name for one in others for name in one.by_symptom)}
    return {
        name: pooled_spread(
            a.spreads_of(name), [s for one in others for s in one.spreads_of(name)], confidence
        )
        for name in sorted(names)
    }


def _merged(fleets: Sequence[FleetEvidence]) -> FleetEvidence:
    symptoms: dict[str, int] = {}
    for fleet in fleets:
        for symptom, count in fleet.by_symptom.items():
            symptoms[symptom] = symptoms.get(symptom, 0) + count
    if any(fleet.counts.unit != "node" for fleet in fleets):
        # the spread between a few fleets is not the spread between nodes
        total = sum(fleet.rate.failures for fleet in fleets)
        node_days = sum(fleet.rate.node_days for fleet in fleets)
        counts = Counts([total], [node_days], unit=FLEET)
    else:
        counts = Counts(
            np.concatenate([fleet.counts.failures for fleet in fleets]),
            np.concatenate([fleet.counts.exposure_node_days for fleet in fleets]),
            unplaced=sum(fleet.counts.unplaced for fleet in fleets),
            unplaced_node_days=sum(fleet.counts.unplaced_node_days for fleet in fleets),
        )
    return FleetEvidence("all others", counts, symptoms, "all others")


def _corrected(pairs: tuple[FleetPair, ...]) -> tuple[FleetPair, ...]:
    """The pairs with p-values and verdicts corrected for the number of fleets."""
    names = [(pair.a, pair.b) for pair in pairs]
    independent = holm_corrected([pair.independent for pair in pairs], names, "fleets")
    dispersed = holm_corrected([pair.over_dispersed for pair in pairs], names, "fleets")
    return tuple(
        replace(pair, independent=one, over_dispersed=other)
        for pair, one, other in zip(pairs, independent, dispersed, strict=True)
    )


def _funnel(fleets: Sequence[FleetEvidence], pairs: Sequence[FleetPair]) -> Funnel | None:
    rates: list[tuple[str, FailureRate]] = [(fleet.name, fleet.rate) for fleet in fleets]
    if len(rates) < 3 or not sum(rate.failures for _, rate in rates):
        return None
    return funnel(rates, over_dispersed=any(pair.believe != "independent" for pair in pairs))


# -- a period against the one before: failures, what they cost, whether it is getting better -------


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
    sure = failures_by_confidence(part.rate_facts)
    counts, failed = part.clustering_of_all.counts, sure.total
    node_days = part.exposure.node_hours / HOURS_PER_DAY
    if part.rate_class:
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


# -- failure rates that others have published, and a fleet against each of them --------------------
# No two of them count the same: what each counts stands next to its number. Where only a rate was
# published it has no interval, since nobody outside knows how many failures are behind it.


_KOKOLIS = "Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters (HPCA 2025)"


@dataclass(frozen=True, slots=True)
class PublishedFleet:
    """One fleet as published; None is what the publication does not say.

    Attributes:
        per_1000_node_days: Their rate, where only that is published.
    """

    name: str
    failures: int | None
    node_days: float | None
    per_1000_node_days: float | None
    counted: str
    source: str

    @property
    def rate(self) -> FailureRate | None:
        """Failures over node-days; None where one of them is not published."""
        if self.failures is None or self.node_days is None:
            return None
        return FailureRate(self.failures, self.node_days)


PUBLISHED = (
    PublishedFleet(
        "RSC-1",
        None,
        None,
        6.50,
        "failures of jobs of more than 128 GPUs, by runtime; some 2,000 nodes of 8 A100, 11 months",
        _KOKOLIS,
    ),
    PublishedFleet(
        "RSC-2",
        None,
        None,
        2.34,
        "failures of jobs of more than 128 GPUs, by runtime; some 1,000 nodes of 8 A100, 11 months",
        _KOKOLIS,
    ),
    PublishedFleet(
        "Llama 3 405B",
        419,
        2048 * 54.0,
        None,
        "unexpected interruptions of one run, software included, by calendar time; 2,048 nodes of "
        "8 H100, 54 days",
        "Llama team, The Llama 3 Herd of Models (arXiv:2407.21783), table 5",
    ),
    PublishedFleet(
        "InfiniteHBD",
        584,
        400 * 348.98,
        None,
        "faults of nodes, whether or not a job ran, by calendar time; 400 sampled nodes, 349 days",
        "InfiniteHBD (SIGCOMM 2025, arXiv:2502.03885) and its trace",
    ),
    PublishedFleet(
        "LANL 1996-2005",
        23_739,
        None,
        None,
        "records of node outages of 22 CPU systems; nodes came and went, so that the records alone "
        "give no exposure",
        "LANL, LA-UR-05-7318; Schroeder and Gibson (DSN 2006)",
    ),
)
"""What `ettr compare --published` sets a fleet against."""


@dataclass(frozen=True, slots=True)
class AgainstPublished:
    """A published fleet, and the ratio of a fleet's rate to its.

    Attributes:
        per_1000_node_days: With its exact interval where the count is published; ends of None mean
            unknown.
        ratio: Rate of the fleet over the published one; where only a rate is published, the
            interval is that of the fleet's rate alone.
    """

    name: str
    failures: int | None
    node_days: float | None
    per_1000_node_days: Interval
    ratio: Interval
    p_value: float | None
    counted: str
    source: str


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A fleet next to published ones; rates per 1,000 node-days.

    `by_confidence` says how sure its failures are; None where they were typed in.
    """

    name: str
    jobs: str
    failures: int
    node_days: float
    per_1000_node_days: Interval
    published: tuple[AgainstPublished, ...]
    confidence: float
    notes: tuple[str, ...]
    by_confidence: FailuresByConfidence | None = None


def compare_with_published(fleet: FleetEvidence, confidence: float) -> PublishedComparison:
    """A fleet against each published one."""
    spread = None if fleet.spread is None else fleet.spread.believed
    rate = fleet.rate
    own = rate.interval(confidence) if spread is None else spread.interval(rate, confidence)
    return PublishedComparison(
        name=fleet.name,
        jobs=fleet.jobs,
        failures=rate.failures,
        node_days=rate.node_days,
        per_1000_node_days=own.scaled(PER_NODE_DAYS),
        published=tuple(_against(fleet, own, one, confidence) for one in PUBLISHED),
        confidence=confidence,
        notes=(
            "No two of these fleets count the same things; a ratio compares a fleet with "
            "the published rate, not with what its own count would be there.",
            "Whether failures of the published fleets cluster is unknown: their "
            "intervals hold only if they are independent.",
        ),
        by_confidence=fleet.by_confidence,
    )


def _against(
    fleet: FleetEvidence, own: Interval, other: PublishedFleet, confidence: float
) -> AgainstPublished:
    per_1000, ratio, p_value = Interval.unknown(), Interval.unknown(), None
    if other.rate is not None:
        per_1000 = other.rate.interval(confidence).scaled(PER_NODE_DAYS)
        names = (fleet.name, other.name)
        found = compare_spread(fleet.rate, other.rate, fleet.spreads, [], confidence, names)
        ratio, p_value = Interval(found.ratio, found.low, found.high), found.p_value
    elif other.per_1000_node_days is not None:
        per_1000 = Interval(other.per_1000_node_days, *_UNBOUNDED)
        ratio = own.scaled(PER_NODE_DAYS / other.per_1000_node_days)
    return AgainstPublished(
        other.name,
        other.failures,
        other.node_days,
        per_1000,
        ratio,
        p_value,
        other.counted,
        other.source,
    )


_UNBOUNDED = (Interval.unknown().low, Interval.unknown().high)
