"""What the front door answers of several fleets, or of a run that is planned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from ettr.api.fleet import Fleet, marked, price_given
from ettr.api.result import Result
from ettr.defaults import CONFIDENCE, GPUS_PER_NODE, RESTART_S, WRITE_S
from ettr.errors import UsageError
from ettr.report.rows import document_of
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ettr.analysis.comparing import FleetComparison, PublishedComparison
    from ettr.analysis.fleet_evidence import FleetEvidence
    from ettr.analysis.own_failures import OwnFailures
    from ettr.analysis.projecting import ScaleProjection
    from ettr.plan.cost import Price
    from ettr.plan.outlook import PlanningRate, RunPlan
    from ettr.plan.schemes import JobShape
    from ettr.report.section import Section

ValueT = TypeVar("ValueT")


def plan_run(
    fleet: Fleet | None = None,
    *,
    gpus: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    failures: int | None = None,
    node_days: float | None = None,
    failures_per_1000_node_days: float | tuple[float, float, float] | None = None,
    productive_days: float | None = None,
    write_s: float | None = None,
    restart_s: float | None = None,
    queue_s: float = 0.0,
    interval_s: float | None = None,
    target: float | None = None,
    job: JobShape | None = None,
    gpu_hour_price: str | Price | None = None,
    confidence: float = CONFIDENCE,
) -> Result[RunPlan]:
    """The outlook of a run: MTTF, ETTR with a band, checkpoint interval, what reaches a target.

    The failure rate is that of `fleet`, or of `failures` in `node_days`, or typed in alone.

    Args:
        fleet: Whose failure rate to plan with.
        gpus: GPUs of the run; or
        nodes: nodes of the run.
        gpus_per_node: Of a node; those seen in the fleet, else 8, where None.
        failures: Seen, with
        node_days: the exposure in which they were.
        failures_per_1000_node_days: A rate without its evidence; with both ends of its interval
            if they are known, as (rate, low, high).
        productive_days: Productive time needed; without end where None.
        write_s: How long a checkpoint stops training; where None 300, which the plan then states
            as an assumption.
        restart_s: From an attempt's start until it trains; likewise.
        queue_s: Mean wait at first and after a failure.
        interval_s: Productive time between checkpoints; the best where None.
        target: ETTR wanted.
        job: What the checkpoint schemes are ranked for.
        gpu_hour_price: Such as "2.50USD": money in the cost of the run.
        confidence: Of the interval of a rate from counts; a fleet has its own.

    Raises:
        UsageError: no failure rate or more than one, or values that no run can have.
    """
    from ettr.plan import outlook
    from ettr.plan.questions import Questions
    from ettr.plan.run import RunShape, run_nodes
    from ettr.report.sections.plan import plan_section

    _one_way(fleet, failures, node_days, failures_per_1000_node_days)
    source = _planning_rate(fleet, failures, node_days, failures_per_1000_node_days, confidence)
    per_node = gpus_per_node or source.gpus_per_node or GPUS_PER_NODE
    shape = RunShape(
        run_nodes(gpus, nodes, per_node),
        write_s=WRITE_S if write_s is None else write_s,
        restart_s=RESTART_S if restart_s is None else restart_s,
        queue_s=queue_s,
        gpus_per_node=per_node,
        productive_s=math.inf if productive_days is None else productive_days * SECONDS_PER_DAY,
    )
    made = outlook.plan_run(
        shape,
        source.rate,
        interval_s=interval_s,
        n_gpus=gpus,
        target=target,
        job=job,
        asked=Questions(price=price_given(gpu_hour_price)),
        assumptions=(*source.cautions, *_assumed(write_s, restart_s)),
    )
    if source.own is not None:
        simulated = source.own.simulated(made.run)
        if simulated is not None:
            made = replace(made, simulated=simulated, engine=simulated.engine)
    return Result(
        made,
        "schemes" if made.schemes else "intervals",
        lambda: document_of(outlook.without_ends(made)),
        lambda: marked((plan_section(made),), () if fleet is None else (fleet,)),
    )


def _assumed(write_s: float | None, restart_s: float | None) -> tuple[str, ...]:
    """The times that were not given, a sentence each."""
    return tuple(
        f"{name} not given: {assumed_s:g} s, as Kokolis et al. (HPCA 2025) assume."
        for name, given, assumed_s in (
            ("write_s", write_s, WRITE_S),
            ("restart_s", restart_s, RESTART_S),
        )
        if given is None
    )


def project(
    fleet: Fleet | None = None,
    *,
    gpus: Sequence[int] | None = None,
    gpus_per_node: int | None = None,
    failures: int | None = None,
    node_days: float | None = None,
    failures_per_1000_node_days: float | tuple[float, float, float] | None = None,
    seen_nodes: int | None = None,
    write_s: float = WRITE_S,
    restart_s: float = RESTART_S,
    queue_s: float = 0.0,
    interval_s: float | None = None,
    spares: int = 0,
    repair_days: float | None = None,
    run_days: float | None = None,
    confidence: float = CONFIDENCE,
) -> Result[ScaleProjection]:
    """A fleet's failures at other scales: MTTF and ETTR with bands, spares and warnings.

    Args:
        fleet: What has been seen; or
        failures: failures in
        node_days: an exposure; or
        failures_per_1000_node_days: a rate without its evidence, with both ends of its interval if
            they are known, as (rate, low, high).
        seen_nodes: Nodes of the jobs in which that was seen.
        gpus: The scales; powers of two from the largest job seen up where None.
        gpus_per_node: Of the planned nodes; those seen where None, 8 without a fleet. Where the
            fleet's logs show none, sizes are in nodes.
        write_s: How long a checkpoint stops training.
        restart_s: From an attempt's start until it trains.
        queue_s: Mean wait at first and after a failure.
        interval_s: Between checkpoints; the best at each scale where None.
        spares: Nodes held ready.
        repair_days: Mean time until a failed node is back.
        run_days: Length of the run.
        confidence: Of the intervals of counts; a fleet has its own.

    Raises:
        UsageError: neither or both of a fleet and counts, or values that no run can have.
    """
    from ettr.analysis.fleet_evidence import evidence_to_plan_with, typed_evidence
    from ettr.analysis.projecting import (
        RateAlone,
        project_fleet,
        scales_for,
        scales_of_gpus,
        without_ends,
    )
    from ettr.plan.run import RunShape
    from ettr.report.findings import rate_cautions
    from ettr.report.sections.projection import projection_section

    _one_way(fleet, failures, node_days, failures_per_1000_node_days)
    cautions: tuple[str, ...] = ()
    evidence: FleetEvidence | RateAlone
    if failures_per_1000_node_days is not None:
        typed = _typed(failures_per_1000_node_days, confidence)
        evidence = RateAlone(typed, seen_nodes, GPUS_PER_NODE)
    elif fleet is None:
        counted, days = _counts(failures, node_days)
        evidence = typed_evidence("the fleet", counted, days, seen_nodes, GPUS_PER_NODE)
    else:
        evidence = evidence_to_plan_with(fleet.analysis, fleet.name)
        cautions = rate_cautions(fleet.analysis)
        confidence = fleet.analysis.assumptions.confidence
    per_node = gpus_per_node or evidence.gpus_per_node
    found = project_fleet(
        evidence,
        scales_for(evidence, per_node) if gpus is None else scales_of_gpus(gpus, per_node),
        RunShape(1, write_s=write_s, restart_s=restart_s, queue_s=queue_s),
        interval_s=interval_s,
        gpus_per_node=per_node,
        spares=spares,
        repair_days=repair_days,
        run_days=run_days,
        confidence=confidence,
    )
    found = replace(found, notes=(*cautions, *found.notes))
    return Result(
        found,
        "points",
        lambda: document_of(without_ends(found)),
        lambda: marked((projection_section(found),), () if fleet is None else (fleet,)),
    )


@overload
def compare(
    *fleets: Fleet | tuple[str, int, float],
    all_jobs: bool = False,
    confidence: float = CONFIDENCE,
    published: Literal[False] = False,
) -> Result[FleetComparison]: ...


@overload
def compare(
    *fleets: Fleet | tuple[str, int, float],
    all_jobs: bool = False,
    confidence: float = CONFIDENCE,
    published: Literal[True],
) -> Result[PublishedComparison]: ...


def compare(
    *fleets: Fleet | tuple[str, int, float],
    all_jobs: bool = False,
    confidence: float = CONFIDENCE,
    published: bool = False,
) -> Result[FleetComparison] | Result[PublishedComparison]:
    """Which of several fleets fails more often: ratios with exact intervals and tests.

    Args:
        fleets: Two or more, each opened, or a name with its failures and node-days; exactly one
            with `published`.
        all_jobs: Count small jobs too, not only large ones.
        confidence: Of the intervals.
        published: Set one fleet against the rates that others have published.

    Raises:
        UsageError: fewer than two fleets, two of one name, or one without exposure; more than one
            with `published`.
    """
    from ettr.analysis.comparing import compare_fleets
    from ettr.analysis.fleet_evidence import common_above_gpus, fleet_evidence, typed_evidence
    from ettr.report.sections.compare import compare_section

    opened = [one for one in fleets if isinstance(one, Fleet)]
    above = None
    if opened and not all_jobs:
        analyses = [one.analysis for one in opened]
        above = common_above_gpus(analyses, max(one.assumptions.above_gpus for one in analyses))

    def evidence(one: Fleet | tuple[str, int, float]) -> FleetEvidence:
        if isinstance(one, Fleet):
            return fleet_evidence(one.analysis, one.name, above_gpus=above)
        return typed_evidence(*one)

    if published:
        return _with_published([evidence(one) for one in fleets], confidence, opened)
    found = compare_fleets([evidence(one) for one in fleets], confidence)
    return _result(found, "fleets", compare_section, opened)


def _with_published(
    fleets: Sequence[FleetEvidence], confidence: float, opened: Sequence[Fleet]
) -> Result[PublishedComparison]:
    from ettr.analysis.comparing import compare_with_published
    from ettr.report.sections.compare import published_section

    if len(fleets) != 1:
        raise UsageError(
            f"{len(fleets)} fleets: published=True sets one against others; give exactly one"
        )
    found = compare_with_published(fleets[0], confidence)
    return _result(found, "published", published_section, opened)


def _result(
    value: ValueT, main: str, section: Callable[[ValueT], Section], fleets: Sequence[Fleet]
) -> Result[ValueT]:
    return Result(
        value, main, lambda: document_of(value), lambda: marked((section(value),), fleets)
    )


_TypedRate = float | tuple[float, float, float]


def _typed(rate: _TypedRate, confidence: float) -> PlanningRate:
    from ettr.plan.outlook import typed_rate

    if not isinstance(rate, tuple):
        return typed_rate(rate)
    return typed_rate(rate[0], (rate[1], rate[2]), confidence)


def _one_way(
    fleet: Fleet | None, failures: int | None, node_days: float | None, typed: _TypedRate | None
) -> None:
    ways = [fleet is not None, failures is not None or node_days is not None, typed is not None]
    if sum(ways) != 1:
        raise UsageError(
            f"{'more than one' if any(ways) else 'no'} failure rate: give a fleet, or failures "
            "with node_days, or failures_per_1000_node_days"
        )


def _counts(failures: int | None, node_days: float | None) -> tuple[int, float]:
    if failures is None or node_days is None:
        raise UsageError("failures and node_days go together; give both")
    if failures < 0 or not 0 < node_days < math.inf:
        raise UsageError(
            f"{failures} failures in {node_days:g} node-days; give 0 or more failures and more "
            "than 0 node-days"
        )
    return failures, node_days


@dataclass(frozen=True, slots=True)
class _RateSource:
    """A failure rate, the GPUs of the nodes it was seen on, its law, and what to say of it."""

    rate: PlanningRate
    gpus_per_node: int | None = None
    own: OwnFailures | None = None
    cautions: tuple[str, ...] = ()


def _planning_rate(
    fleet: Fleet | None,
    failures: int | None,
    node_days: float | None,
    typed: _TypedRate | None,
    confidence: float,
) -> _RateSource:
    from ettr.plan.outlook import counted_rate

    if typed is not None:
        return _RateSource(_typed(typed, confidence))
    if fleet is not None:
        from ettr.analysis.own_failures import stored_rate
        from ettr.report.findings import rate_cautions

        stored = stored_rate(fleet.analysis, fleet.name)
        cautions = rate_cautions(fleet.analysis)
        return _RateSource(stored.rate, stored.gpus_per_node, stored.own, cautions)
    from ettr.estimates.exact import FailureRate
    from ettr.estimates.interval import check_confidence

    check_confidence(confidence)
    evidence = FailureRate(*_counts(failures, node_days))
    return _RateSource(counted_rate(evidence, evidence.interval(confidence), confidence))
