"""The outlook of a run: its failure rate joined with the forms of ETTR and the schemes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.assumed import ChosenSchemes
from ettr.plan.intervals import (
    IntervalChoice,
    Requirement,
    best_interval_band,
    general_form_ettr,
    interval_choices,
    requirements,
    second_form_ettr,
    where_valid,
    with_best_interval,
)
from ettr.plan.questions import Answers, NodeType, Questions, answers, mixed_rate
from ettr.plan.ranking import (
    NodeRate,
    Ranked,
    SchemeChoice,
    Standing,
    rank_by_shares,
    shown,
    standing,
)
from ettr.plan.renewal import (
    TimeShares,
    ettr_by_rate,
    exact_ettr,
    expected_recovery_s,
    expected_segment_s,
    time_shares,
)
from ettr.plan.run import PlannedRun, RunShape, SimulatedRun, cautions, changed
from ettr.plan.schemes import Domain, JobShape
from ettr.plan.schemes.base import levels_of
from ettr.plan.wallclock import ENDLESS, WallclockQuantiles, ends, wallclock_quantiles
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import significant, spell

PER_NODE_DAYS = 1000.0
"""Failure rates are typed and printed per this many node-days."""

_LARGE_LOST_SHARE = 0.4


class Evidence(Protocol):
    """Failures, and the node-days in which they were seen: an `ettr.estimates` FailureRate."""

    @property
    def failures(self) -> int:
        """Number of failures."""

    @property
    def node_days(self) -> float:
        """Runtime of the nodes, in days."""


class Sureness(Protocol):
    """Failures by how sure their cause is: an `ettr.metrics` FailuresByConfidence."""

    @property
    def scheduler_only(self) -> int:
        """The scheduler says that a node failed, and no error was found."""

    @property
    def high(self) -> int:
        """The scheduler names the node, and an error was found on it."""

    @property
    def medium(self) -> int:
        """An error was found, and nothing contradicts it."""

    @property
    def low(self) -> int:
        """The error was seen elsewhere or only after the end."""

    @property
    def total(self) -> int:
        """All of them."""


@dataclass(frozen=True, slots=True)
class PlanningRate:
    """The failure rate of a node, per day of runtime, that a run is planned with.

    Attributes:
        per_node_day: With its interval; the ends equal the estimate where it was typed in alone.
        evidence: Failures and exposure behind it; None where a rate was typed in.
        by_confidence: How sure the failures behind it are; None where they are not those of jobs
            in a store.
    """

    per_node_day: Interval
    evidence: Evidence | None
    blamed_share: float | None
    meaning: str
    confidence: float = CONFIDENCE
    by_confidence: Sureness | None = None

    @property
    def design_per_node_day(self) -> float:
        """The rate to design for: the estimate, or the upper end where nothing failed yet."""
        return self.per_node_day.estimate or self.per_node_day.high

    @property
    def domain_shares(self) -> dict[str, float] | None:
        """Share of failures by what they take down: the node that is blamed, or the job."""
        share = self.blamed_share
        return None if share is None else {Domain.NODE.key: share, Domain.JOB.key: 1.0 - share}


def typed_rate(
    per_1000_node_days: float,
    ends: tuple[float, float] | None = None,
    confidence: float = CONFIDENCE,
) -> PlanningRate:
    """A rate without its evidence, with the interval that came with it or none.

    Raises:
        UsageError: a negative rate, or an interval that does not hold it.
    """
    if not 0 <= per_1000_node_days < math.inf:
        raise UsageError(
            f"{per_1000_node_days:g} failures per 1,000 node-days are not possible; give 0 or more"
        )
    rate = per_1000_node_days / PER_NODE_DAYS
    if ends is None:
        return PlanningRate(
            Interval(rate, rate, rate),
            None,
            None,
            "The rate came without its evidence, so nothing below allows for its "
            "uncertainty; give failures and node-days for an interval.",
        )
    low, high = ends
    if not 0 <= low <= per_1000_node_days <= high < math.inf or low == high:
        raise UsageError(
            f"{per_1000_node_days:g} failures per 1,000 node-days with the interval {low:g} to "
            f"{high:g} are not possible; give the rate, a low end below it and a high end above it"
        )
    return PlanningRate(
        Interval(rate, low / PER_NODE_DAYS, high / PER_NODE_DAYS),
        None,
        None,
        "The rate and its interval were typed in. The interval is taken as one of "
        f"{100.0 * confidence:g} %; the failures and node-days behind it are unknown.",
        confidence,
    )


def mixed_run_rate(types: Sequence[NodeType], confidence: float) -> PlanningRate:
    """The rate of the mean node of a run of several node types.

    Raises:
        UsageError: no type, or one without nodes.
    """
    listed = ", ".join(f"{one.n_nodes:,} of {one.name}" for one in types)
    counted = any(one.per_node_day.low < one.per_node_day.high for one in types)
    return PlanningRate(
        mixed_rate(types),
        None,
        None,
        (f"The rate is that of the mean node of {listed}; for nodes in series the rates add up.")
        + (
            ("Its interval combines those of the types that came with failures and node-days.")
            if counted
            else "It came without its evidence, so nothing below has an interval; give "
            "failures over node-days for one."
        ),
        confidence,
    )


def counted_rate(evidence: Evidence, per_node_day: Interval, confidence: float) -> PlanningRate:
    """A rate of which only the total of failures and node-days is known."""
    return PlanningRate(
        per_node_day if evidence.failures else replace(per_node_day, estimate=None),
        evidence,
        None,
        "A total does not show whether failures cluster: the interval holds only if they are "
        "independent.",
        confidence,
    )


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The outlook of a run at a failure rate.

    Attributes:
        ettr: By the exact form, at the planned interval over the interval of the rate.
        paper_ettr: By the paper's second form; None where it has no meaning.
        intervals: Ways to choose the interval; the first is the one planned.
        best_interval_s: The exact optimum, at the ends of the rate too; None where there is none.
        schemes: Checkpoint schemes, the best first; empty without a job shape.
        simulated: The run with the store's own failures, where the exact form does not hold for
            them; None elsewhere.
        engine: What answered: the exact form, or the simulation that `simulated` is of.
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
    standing: Standing | None
    best_planned: bool
    job: JobShape | None
    domain_shares: dict[str, float] | None
    cautions: tuple[str, ...]
    assumptions: tuple[str, ...]
    answers: Answers
    versus: SecondPlan | None = None
    simulated: SimulatedRun | None = None
    engine: str = "exact form"


@dataclass(frozen=True, slots=True)
class SecondPlan:
    """A plan that differs from the first in some inputs."""

    changes: tuple[str, ...]
    plan: RunPlan


def planned(shape: RunShape, per_node_day: float, interval_s: float | None = None) -> PlannedRun:
    """The run at a checkpoint interval, or at its best one where none is given.

    Raises:
        UsageError: values that no run can have, or no best interval.
    """
    if interval_s is not None:
        return shape.at(per_node_day, interval_s)
    # the interval of this one is not used
    trial = shape.at(per_node_day, SECONDS_PER_HOUR)
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
    interval_s: float | None = None,
    n_gpus: int | None = None,
    target: float | None = None,
    job: JobShape | None = None,
    domain_shares: dict[str, float] | None = None,
    assumed: frozenset[str] = frozenset(),
    assumptions: tuple[str, ...] = (),
    asked: Questions | None = None,
    chosen: ChosenSchemes | None = None,
) -> RunPlan:
    """The outlook of a run: MTTF, ETTR, checkpoint intervals and schemes, with bands.

    Args:
        interval_s: Productive time between checkpoints; the best where None.
        domain_shares: Share of failures by what they take down; those of `rate` where None.
        assumed: Inputs of the ranking that were not given (`ettr.plan.assumed`).
        assumptions: Inputs that were not given and are assumed, one sentence each.
        chosen: Schemes to rank; all with their published or assumed inputs where None.

    Raises:
        UsageError: values that no run can have.
    """
    schemes = _schemes(job, rate, domain_shares, assumed, chosen or ChosenSchemes())
    run = planned(shape, rate.design_per_node_day, interval_s)
    best_planned, ettr = interval_s is None, ettr_band(run, rate.per_node_day)
    asked = asked or Questions()
    answered = answers(run, ettr, asked, best_planned=best_planned)
    if asked.formulas:
        answered = replace(answered, formulas=(*answered.formulas, *schemes.formula))
    return RunPlan(
        run=run,
        n_gpus=n_gpus,
        gpus_per_node=run.gpus_per_node,
        rate=rate,
        mttf_h=mttf_h(rate.per_node_day, run.n_nodes),
        ettr=ettr,
        paper_ettr=where_valid(second_form_ettr, run),
        general_ettr=where_valid(general_form_ettr, run),
        intervals=interval_choices(run, planned_best=best_planned),
        best_interval_s=best_interval_band(run, rate.per_node_day),
        shares=time_shares(run),
        wallclock=wallclock_quantiles(run, rate.per_node_day),
        sensitivities=sensitivities(run),
        target=target,
        requirements=() if target is None else requirements(run, target, keep_best=best_planned),
        schemes=schemes.choices,
        standing=schemes.standing,
        best_planned=best_planned,
        job=job,
        domain_shares=domain_shares or rate.domain_shares,
        cautions=(*cautions(run), *_paper_errs(run), *_endless(run)),
        assumptions=(*assumptions, *_of_schemes(job, schemes.choices, rate, domain_shares)),
        answers=answered,
    )


def without_ends(plan: RunPlan) -> RunPlan:
    """The plan of a typed rate as JSON shows it: what rests on that rate alone has no interval.

    A plan of a rate with evidence is returned as it is. Bands over the assumptions of schemes stay.
    """
    if plan.rate.evidence is not None or plan.rate.per_node_day.low < plan.rate.per_node_day.high:
        return plan

    def bare(value: Interval) -> Interval:
        return Interval(value.estimate, -math.inf, math.inf)

    clock, best, cost, second = (
        plan.wallclock,
        plan.best_interval_s,
        plan.answers.cost,
        plan.versus,
    )
    if cost is not None:
        cost = replace(cost, held_gpu_hours=bare(cost.held_gpu_hours))
    return replace(
        plan,
        answers=replace(plan.answers, cost=cost),
        versus=None if second is None else replace(second, plan=without_ends(second.plan)),
        rate=replace(plan.rate, per_node_day=bare(plan.rate.per_node_day)),
        mttf_h=bare(plan.mttf_h),
        ettr=bare(plan.ettr),
        best_interval_s=None if best is None else bare(best),
        schemes=tuple(replace(one, ettr=bare(one.ettr)) for one in plan.schemes),
        wallclock=None
        if clock is None
        else replace(
            clock,
            mean_band_s=bare(clock.mean_band_s),
            quantile_bands_s=tuple(map(bare, clock.quantile_bands_s)),
        ),
    )


def mttf_h(per_node_day: Interval, n_nodes: int) -> Interval:
    """Mean time to failure of nodes in series, in hours; infinite where nothing fails."""
    times = per_node_day.scaled(n_nodes).inverse(HOURS_PER_DAY)
    return replace(times, estimate=math.inf) if per_node_day.estimate == 0 else times


def ettr_band(run: PlannedRun, per_node_day: Interval) -> Interval:
    """Exact ETTR of a run at its interval, and at the ends of the failure rate of a node."""
    by_rate = ettr_by_rate(run)
    return Interval(
        exact_ettr(run) if per_node_day.estimate is not None else None,
        by_rate(per_node_day.high * run.n_nodes) if math.isfinite(per_node_day.high) else 0.0,
        by_rate(per_node_day.low * run.n_nodes),
    )


@dataclass(frozen=True, slots=True)
class _Schemes:
    """A ranking: its rows, what it stands on, and the formula of its first place."""

    choices: tuple[SchemeChoice, ...] = ()
    standing: Standing | None = None
    formula: tuple[str, ...] = ()


def _schemes(
    job: JobShape | None,
    rate: PlanningRate,
    shares: dict[str, float] | None,
    assumed: frozenset[str],
    chosen: ChosenSchemes,
) -> _Schemes:
    if job is None:
        return _Schemes()
    by_domain = shares or rate.domain_shares or {Domain.NODE.key: 1.0}
    of_node = NodeRate.of(rate.per_node_day, rate.design_per_node_day)
    ranked = rank_by_shares(job, of_node, by_domain, chosen.schemes)
    return _Schemes(
        tuple(map(shown, ranked)),
        standing(job, of_node, by_domain, ranked, assumed, chosen.given),
        scheme_formula(ranked[0], job, of_node.design, by_domain),
    )


def _paper_errs(run: PlannedRun) -> tuple[str, ...]:
    """By how much the paper's form errs for this run, where the share lost is large."""
    if run.lost_share < _LARGE_LOST_SHARE:
        return ()
    paper, exact = where_valid(second_form_ettr, run), exact_ettr(run)
    if paper is None:
        errs = "have no meaning from 1 up"
    else:
        side = "high" if paper > exact else "low"
        errs = (
            f"are right only where it is small: the second gives {paper:.3f}, "
            f"{abs(paper - exact):.3f} too {side}"
        )
    return (
        f"λ(u0 + Δt/2) is {run.lost_share:.2f}. The paper's forms {errs}; use the exact form, "
        f"which gives {exact:.3f}.",
    )


def _endless(run: PlannedRun) -> tuple[str, ...]:
    if math.isinf(run.productive_s) or ends(run):
        return ()
    return (
        f"The run would take over {ENDLESS:,.0f} times its productive time: it will not end. "
        "Shorten the interval or the restart, or use fewer nodes.",
    )


def _of_schemes(
    job: JobShape | None,
    schemes: Sequence[SchemeChoice],
    rate: PlanningRate,
    shares: dict[str, float] | None,
) -> tuple[str, ...]:
    if job is None:
        return ()
    return scheme_notes(
        job, schemes, blamed_share=rate.blamed_share, shares_given=shares is not None
    )


def scheme_formula(
    one: Ranked, job: JobShape, node_per_day: float, shares: Mapping[str, float]
) -> tuple[str, ...]:
    """The formula of a usable scheme, a line for each kind of failure; empty for another.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    if not one.usable or one.interval_s is None:
        return ()
    per_s = {
        domain: shares[domain.key] * node_per_day * job.n_nodes / SECONDS_PER_DAY
        for domain in Domain
        if shares.get(domain.key)
    }
    lines, lost, waited = [], 0.0, 0.0
    for domain, rate in per_s.items():
        response = one.terms.responses[domain]
        wait_s = job.queue_s if response.waits else 0.0
        lost_s = one.lost_by_domain_s[domain]
        lost += rate * (response.restart_s + lost_s)
        waited += rate * wait_s
        lines.append(
            f"{domain}: λ = {significant(rate, 4)} per s, u = {spell(response.restart_s)} until it "
            f"trains, ℓ = {spell(lost_s)} of work lost, q = {spell(wait_s)} of waiting"
        )
    at = levels_of(one.terms, job, per_s, one.interval_s)
    overhead = at.length_s / one.interval_s - 1.0
    left = max(0.0, 1.0 - lost)
    return (
        f"{one.scheme.name.capitalize()}, to first order, with o the overhead of saving: ETTR ≈ (1 "
        f"− Σ λ(u + ℓ)) / [(1 + o)(1 + Σ λq)] = (1 − {significant(lost, 4)}) / [(1 + "
        f"{significant(overhead, 4)})(1 + {significant(waited, 4)})] = "
        f"{left / ((1.0 + overhead) * (1.0 + waited)):.4f}; the exact form, which counts failures "
        f"in recoveries too, gives {one.ettr.estimate or 0.0:.4f}",
        *lines,
    )


_WHO_WAITS = (
    "For the schemes --queue counts when the job returns to the scheduler or stops until "
    "it has another node. It does not count when the job keeps its nodes or has a "
    "standby one, and counts in part when the others train on."
)


def scheme_notes(
    job: JobShape,
    schemes: Sequence[SchemeChoice],
    *,
    blamed_share: float | None,
    shares_given: bool,
) -> tuple[str, ...]:
    """Assumptions behind a ranking, a sentence each."""
    return tuple(_notes(job, schemes, blamed_share, shares_given))


def _notes(
    job: JobShape, schemes: Sequence[SchemeChoice], blamed_share: float | None, shares_given: bool
) -> Iterator[str]:
    yield (
        f"For the schemes a node sends {job.network_bytes_per_s / 1e9:g} GB/s to its peers, copies "
        f"{job.device_bytes_per_s / 1e9:g} GB/s to its memory and has {job.host_bytes / 1e9:g} GB "
        "of it for checkpoints (--network, --device, --host-memory)."
    )
    if job.queue_s:
        yield _WHO_WAITS
    yield from _durable_periods(job, schemes)
    if shares_given:
        return
    yield (
        "Every failure is assumed to take down one node (--failure-shares changes that)."
        if blamed_share is None
        else f"{100 * blamed_share:.0f} % of failures blame a node; the others are assumed to take "
        "down the whole job (--failure-shares changes that)."
    )


def _durable_periods(job: JobShape, schemes: Sequence[SchemeChoice]) -> Iterator[str]:
    """What --durable-every became for schemes with two levels, where it is not as asked."""
    names: dict[str, list[str]] = {}
    asked = spell(job.durable_period_s)
    for one in schemes:
        if one.durable_every_s is not None:
            names.setdefault(spell(one.durable_every_s), []).append(one.name)
    became = [f"{at} ({', '.join(those)})" for at, those in names.items() if at != asked]
    if became:
        why = (
            f"a durable checkpoint takes {spell(job.write_alone_s)} to write"
            if job.write_alone_s > job.durable_period_s
            else "the whole number of checkpoint intervals that is nearest to it"
        )
        yield f"--durable-every {asked} becomes {'; '.join(became)}: {why}."


INPUTS = ("failures_per_node_day", "n_nodes", "interval_s", "write_s", "restart_s", "queue_s")


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Effect of one input on ETTR.

    Attributes:
        elasticity: Per cent of change of ETTR for one per cent of change of the input; not a
            number where ETTR is 0.
        ettr_if_halved: ETTR with half the value; for n_nodes, with half the load.
    """

    name: str
    value: float
    elasticity: float
    ettr_if_halved: float


def sensitivities(run: PlannedRun) -> tuple[Sensitivity, ...]:
    """The effect of each input, the strongest first."""
    found = [
        Sensitivity(
            name, getattr(run, name), _elasticity(run, name), exact_ettr(_scaled(run, name, 0.5))
        )
        for name in INPUTS
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.elasticity)))


def _elasticity(run: PlannedRun, name: str) -> float:
    if not math.isinf(run.productive_s):
        return _numeric(run, name)
    rate = run.failures_per_s
    load = rate * (run.interval_s + run.write_s)
    # λL e^λL / (e^λL - 1), and per unit of load
    turning = load / -math.expm1(-load) if load > 0 else 1.0
    share = turning / (run.interval_s + run.write_s)
    waiting = rate * run.queue_s / (1.0 + rate * run.queue_s)
    of_rate = 1.0 - rate * run.restart_s - waiting - turning
    return {
        "failures_per_node_day": of_rate,
        "n_nodes": of_rate,
        "interval_s": 1.0 - share * run.interval_s,
        "write_s": -share * run.write_s,
        "restart_s": -rate * run.restart_s,
        "queue_s": -waiting,
    }[name]


def _scaled(run: PlannedRun, name: str, factor: float) -> PlannedRun:
    # nodes come in whole numbers; the rate of all of them does not
    field = "failures_per_node_day" if name == "n_nodes" else name
    value: float = getattr(run, field)
    return changed(run, field, value * factor)


def _numeric(run: PlannedRun, name: str) -> float:
    step = 1e-4
    ettr = _ettr_of_equal_intervals if name == "interval_s" else exact_ettr
    up, down = (ettr(_scaled(run, name, math.exp(sign * step))) for sign in (1, -1))
    return (math.log(up) - math.log(down)) / (2.0 * step) if up > 0 and down > 0 else math.nan


def _ettr_of_equal_intervals(run: PlannedRun) -> float:
    """ETTR of a finite run whose number of intervals need not be whole."""
    intervals = run.productive_s / run.interval_s
    wall_s = expected_recovery_s(run) + intervals * expected_segment_s(run, run.interval_s)
    return run.productive_s / wall_s
