"""What a run is expected to take: its failure rate joined with the forms and schemes of `plan`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ettr.analysis.fleet_evidence import FleetEvidence
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.models.dispersion import dispersion
from ettr.plan.closed_forms import general_form_ettr, second_form_ettr
from ettr.plan.intervals import (
    daly_higher_order_interval_s,
    daly_interval_s,
    exact_interval_s,
    paper_interval_s,
    with_best_interval,
    young_interval_s,
)
from ettr.plan.ranking import FailureRates, Ranked, RateBand, rank
from ettr.plan.renewal import (
    TimeShares,
    exact_ettr,
    expected_failures,
    expected_wallclock_s,
    time_shares,
)
from ettr.plan.run import PlannedRun, cautions
from ettr.plan.schemes import JobShape
from ettr.plan.sensitivity import Sensitivity, sensitivities
from ettr.plan.solver import Requirement, requirements
from ettr.plan.wallclock import wallclock
from ettr.projection.run_ettr import ettr_by_rate
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY

QUANTILES = (0.1, 0.5, 0.9, 0.99)
_HOPELESS = 1000.0
DOMAINS = ("process", "node", "rack", "job")


@dataclass(frozen=True, slots=True)
class PlanningRate:
    """The failure rate of a node, per day of runtime, that a run is planned with.

    Attributes:
        per_node_day: With its interval; the ends equal the estimate where it was typed in alone.
        evidence: Failures and exposure behind it; None where it was typed in alone.
        blamed_share: Share of the failures blamed on one node; None where not known.
        meaning: Where it comes from and how far to trust it, in a sentence.
        confidence: Of the interval.
    """

    per_node_day: Interval
    evidence: FailureRate | None
    blamed_share: float | None
    meaning: str
    confidence: float

    @property
    def design_per_node_day(self) -> float:
        """The rate to design for: the estimate, or the upper end where nothing failed yet."""
        return self.per_node_day.estimate or self.per_node_day.high


def typed_rate(per_1000_node_days: float, confidence: float) -> PlanningRate:
    """A rate without its evidence, hence without an interval.

    Raises:
        UsageError: a negative rate.
    """
    if not 0 <= per_1000_node_days < math.inf:
        raise UsageError(
            f"{per_1000_node_days:g} failures per 1,000 node-days cannot be; give 0 or more"
        )
    rate = per_1000_node_days / 1000.0
    return PlanningRate(
        Interval(rate, rate, rate),
        None,
        None,
        "The rate was typed in without its evidence, so nothing below has an interval; give "
        "failures and node-days for one.",
        confidence,
    )


def measured_rate(record: FleetEvidence, confidence: float) -> PlanningRate:
    """The rate that a fleet has shown, with the interval to believe."""
    spread = dispersion(record.counts, confidence)
    rate = record.rate
    interval = spread.interval
    if not rate.failures:
        interval = replace(interval, estimate=None)
    placed = int(record.counts.failures.sum())
    share = placed / rate.failures if rate.failures and record.counts.unit == "node" else None
    return PlanningRate(interval, rate, share, spread.meaning, confidence)


@dataclass(frozen=True, slots=True)
class IntervalChoice:
    """One way to choose the checkpoint interval, and what it gives.

    `paper_ettr` is by the paper's second form; None where that form has no meaning.
    """

    rule: str
    interval_s: float
    ettr: float
    paper_ettr: float | None


@dataclass(frozen=True, slots=True)
class WallclockQuantiles:
    """Wall-clock of a run of finite length: mean, and the times within which it ends how surely."""

    productive_s: float
    mean_s: float
    sd_s: float
    expected_failures: float
    quantiles: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """A checkpoint scheme for the job: what it gives, what it needs, and why it stands there."""

    name: str
    source: str
    assumptions: str
    usable: bool
    ettr: Interval
    interval_s: float
    stall_s: float
    lost_s: float
    survives: tuple[str, ...]
    host_bytes: float
    storage_bytes: float
    quality: str
    why: str


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What to expect of a run.

    Attributes:
        run: As planned, at the rate to design for.
        n_gpus: GPUs asked for; None where nodes were.
        gpus_per_node: GPUs in a node.
        rate: Of one node.
        mttf_h: Of the run, in hours.
        ettr: By the exact form, at the planned interval over the interval of the rate.
        paper_ettr: By the paper's second form; None where it has no meaning.
        general_ettr: By the first-order form with queue and length; None likewise.
        intervals: Ways to choose the interval; the first is the one planned.
        best_interval_s: The exact optimum, at the ends of the rate too; None where there is none.
        shares: Where the wall-clock goes.
        wallclock: None for the long run, and for one that will not end.
        sensitivities: The strongest input first.
        target: ETTR wanted.
        requirements: What each input alone would have to be for the target.
        schemes: Checkpoint schemes, the best first; empty without a job shape.
        best_planned: Whether the interval was left to be the best.
        job: What the schemes were ranked for; None without.
        domain_shares: Share of failures by what they take down; None where not known.
        cautions: What is odd, one sentence each.
        assumptions: What was not given and is taken, one sentence each.
    """

    run: PlannedRun
    n_gpus: int | None
    gpus_per_node: int
    rate: PlanningRate
    mttf_h: Interval
    ettr: Interval
    paper_ettr: float | None
    general_ettr: float | None
    intervals: tuple[IntervalChoice, ...]
    best_interval_s: Interval | None
    shares: TimeShares
    wallclock: WallclockQuantiles | None
    sensitivities: tuple[Sensitivity, ...]
    target: float | None
    requirements: tuple[Requirement, ...]
    schemes: tuple[SchemeChoice, ...]
    best_planned: bool
    job: JobShape | None
    domain_shares: dict[str, float] | None
    cautions: tuple[str, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunShape:
    """A run before its failure rate and interval are known; `interval_s` None takes the best."""

    n_nodes: int
    interval_s: float | None = None
    write_s: float = 300.0
    restart_s: float = 300.0
    queue_s: float = 0.0
    productive_s: float = math.inf

    def at(self, per_node_day: float, interval_s: float) -> PlannedRun:
        """The run at a failure rate and an interval."""
        return PlannedRun(
            per_node_day,
            self.n_nodes,
            interval_s,
            self.write_s,
            self.restart_s,
            self.queue_s,
            self.productive_s,
        )


def planned(shape: RunShape, per_node_day: float) -> PlannedRun:
    """The run at its own interval, or at the best one.

    Raises:
        UsageError: values that no run can have, or no best interval.
    """
    if shape.interval_s is not None:
        return shape.at(per_node_day, shape.interval_s)
    trial = shape.at(per_node_day, 3600.0)
    if trial.write_s == 0 or trial.failures_per_s == 0:
        lacking = "checkpoints cost nothing" if trial.write_s == 0 else "nothing fails"
        raise UsageError(
            f"there is no best checkpoint interval, since {lacking}; give --interval, or a write "
            "time and a failure rate above 0"
        )
    return with_best_interval(trial)


def plan_run(
    shape: RunShape,
    rate: PlanningRate,
    *,
    gpus_per_node: int,
    n_gpus: int | None = None,
    target: float | None = None,
    job: JobShape | None = None,
    domain_shares: dict[str, float] | None = None,
    assumptions: tuple[str, ...] = (),
) -> RunPlan:
    """What to expect of a run.

    Args:
        shape: The run.
        rate: Failure rate of a node.
        gpus_per_node: GPUs in a node.
        n_gpus: GPUs asked for, where they were.
        target: ETTR wanted.
        job: For the ranking of checkpoint schemes.
        domain_shares: Share of failures that take down a process, a node, a rack or the whole job.
        assumptions: What was taken without being given, to be told beside the numbers.

    Raises:
        UsageError: values that no run can have.
    """
    run = planned(shape, rate.design_per_node_day)
    band, by_rate = rate.per_node_day, ettr_by_rate(run)
    free = shape.interval_s is None
    ettr = Interval(
        exact_ettr(run) if band.estimate is not None else None,
        by_rate(band.high * run.n_nodes) if math.isfinite(band.high) else 0.0,
        by_rate(band.low * run.n_nodes),
    )
    return RunPlan(
        run=run,
        n_gpus=n_gpus,
        gpus_per_node=gpus_per_node,
        rate=rate,
        mttf_h=mttf_h(band, run.n_nodes),
        ettr=ettr,
        paper_ettr=_where_it_holds(run),
        general_ettr=_where_it_holds(run, general=True),
        intervals=_intervals(run, planned_best=free),
        best_interval_s=_best_interval(run, band),
        shares=time_shares(run),
        wallclock=_wallclock(run),
        sensitivities=sensitivities(run),
        target=target,
        requirements=() if target is None else requirements(run, target, keep_best=free),
        schemes=() if job is None else _schemes(job, rate, run.n_nodes, domain_shares),
        best_planned=free,
        job=job,
        domain_shares=domain_shares,
        cautions=_cautions(run),
        assumptions=assumptions,
    )


def mttf_h(per_node_day: Interval, n_nodes: int) -> Interval:
    """Mean time to failure of nodes in series, in hours."""

    def of(rate: float) -> float:
        if math.isinf(rate):
            return 0.0
        return HOURS_PER_DAY / (n_nodes * rate) if rate else math.inf

    estimate = None if per_node_day.estimate is None else of(per_node_day.estimate)
    return Interval(estimate, of(per_node_day.high), of(per_node_day.low))


def _where_it_holds(run: PlannedRun, *, general: bool = False) -> float | None:
    if run.lost_share >= 1.0:
        return None
    return general_form_ettr(run) if general else second_form_ettr(run)


def _intervals(run: PlannedRun, *, planned_best: bool) -> tuple[IntervalChoice, ...]:
    """The rules side by side; only those that give a positive interval."""
    write_s, mttf_s = run.write_s, run.mttf_s
    own = "exact optimum (planned)" if planned_best else "given (planned)"
    found: list[tuple[str, float]] = [(own, run.interval_s)]
    if write_s > 0 and math.isfinite(mttf_s):
        if not planned_best:
            found.append(("exact optimum", exact_interval_s(write_s, mttf_s)))
        found.append(("Young: sqrt(2 w MTTF)", young_interval_s(write_s, mttf_s)))
        found.append(("Daly, first order", daly_interval_s(write_s, mttf_s, run.restart_s)))
        found.append(("Daly, higher order", daly_higher_order_interval_s(write_s, mttf_s)))
        if run.restart_s < mttf_s:
            paper_s = paper_interval_s(write_s, mttf_s, run.restart_s)
            found.append(("optimum of the paper's form", paper_s))
    choices = []
    for rule, interval_s in found:
        if interval_s > 0:
            at = replace(run, interval_s=interval_s)
            choices.append(IntervalChoice(rule, interval_s, exact_ettr(at), _where_it_holds(at)))
    return tuple(choices)


def _best_interval(run: PlannedRun, band: Interval) -> Interval | None:
    if not run.write_s or not run.failures_per_s:
        return None

    def at(per_node_day: float) -> float:
        return exact_interval_s(run.write_s, SECONDS_PER_DAY / (run.n_nodes * per_node_day))

    return Interval(
        at(band.estimate) if band.estimate else None,
        at(band.high) if math.isfinite(band.high) else 0.0,
        at(band.low) if band.low else math.inf,
    )


def _ends(run: PlannedRun) -> bool:
    return expected_wallclock_s(run) < _HOPELESS * run.productive_s


def _cautions(run: PlannedRun) -> tuple[str, ...]:
    found = cautions(run)
    if math.isfinite(run.productive_s) and not _ends(run):
        found += (
            f"The run would take over {_HOPELESS:,.0f} times its productive time: it will not end. "
            "Shorten the interval or the restart, or use fewer nodes.",
        )
    return found


def _wallclock(run: PlannedRun) -> WallclockQuantiles | None:
    if math.isinf(run.productive_s) or not _ends(run):
        return None
    found = wallclock(run)
    return WallclockQuantiles(
        run.productive_s,
        found.mean_s,
        found.sd_s,
        expected_failures(run),
        tuple((share, found.quantile_s(share)) for share in QUANTILES),
    )


def _schemes(
    job: JobShape, rate: PlanningRate, n_nodes: int, domain_shares: dict[str, float] | None
) -> tuple[SchemeChoice, ...]:
    shares = domain_shares or {"node": 1.0}
    band, design = rate.per_node_day, rate.design_per_node_day
    if not math.isfinite(band.high):
        raise UsageError("the rate has no upper end; give an exposure to rank schemes with")

    def of(domain: str) -> RateBand:
        factor = shares.get(domain, 0.0) * n_nodes
        low, middle, high = (factor * value for value in (band.low, design, band.high))
        return RateBand(middle, min(low, middle), max(high, middle))

    return tuple(_choice(one) for one in rank(job, FailureRates(*(of(d) for d in DOMAINS))))


def _choice(one: Ranked) -> SchemeChoice:
    terms = one.terms
    return SchemeChoice(
        name=one.scheme.name,
        source=one.scheme.source,
        assumptions=one.scheme.assumptions,
        usable=one.usable,
        ettr=Interval(one.ettr, one.ettr_low, one.ettr_high),
        interval_s=one.interval_s,
        stall_s=terms.stall_s,
        lost_s=one.lost_s,
        survives=tuple(str(domain) for domain in terms.survives),
        host_bytes=terms.host_bytes,
        storage_bytes=terms.storage_bytes,
        quality=terms.quality,
        why=one.why,
    )
