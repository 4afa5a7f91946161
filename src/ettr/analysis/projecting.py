"""A fleet's failure rate at other scales, and the best checkpoint interval for the sizes seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions
from ettr.analysis.comparing import PUBLISHED
from ettr.analysis.fleet_evidence import FleetEvidence, evidence_to_plan_with
from ettr.analysis.model_choice import ChosenModels
from ettr.defaults import GPUS_PER_NODE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import dispersed_interval
from ettr.facts import Facts
from ettr.metrics.rates import PER_NODE_DAYS, FailuresByConfidence, RatesBySymptom
from ettr.metrics.runs import JobRuns, ShapeRuns
from ettr.models.base import Fit
from ettr.models.gamma_mixed import SPREAD
from ettr.models.registry import compare_models
from ettr.plan.outlook import PlanningRate, planned
from ettr.plan.renewal import ettr_by_rate, exact_ettr
from ettr.plan.run import RunShape, nodes_of
from ettr.projection.scale import Line, Projection, Scale, Seen, project
from ettr.units import SECONDS_PER_HOUR

LARGEST_GPUS = 131_072
REPORT_SCALES = 6
# the first published fleet: its rate is the one that most papers quote
_PUBLISHED = PUBLISHED[0]
_PUBLISHED_RATE = _PUBLISHED.per_1000_node_days or 0.0


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One scale: its size in GPUs (nodes where there are none), and the interval of its ETTR.

    `ettr_at_published` is the ETTR of the same run at the published rate that the projection names,
    with the best interval at that rate.
    """

    size: float
    interval_s: float | None
    projection: Projection
    ettr_at_published: float


@dataclass(frozen=True, slots=True)
class ScaleProjection:
    """A fleet's failures at other scales."""

    name: str
    jobs: str
    rate: FailureRate | None
    unit: str
    preferred: str
    models: tuple[str, ...]
    gpus_per_node: float
    write_s: float
    restart_s: float
    queue_s: float
    confidence: float
    points: tuple[ScalePoint, ...]
    notes: tuple[str, ...]
    published: str
    published_per_1000_node_days: float
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True)
class RateAlone:
    """A failure rate that was typed in: nobody knows the failures and the exposure behind it."""

    typed: PlanningRate
    largest_n_nodes: int | None = None
    gpus_per_node: float | None = None
    name: str = "the fleet"

    def model(self) -> ChosenModels:
        """The one model that a rate alone supports: every node fails at it, at any time."""
        rate = self.typed.per_node_day
        fit = Fit(
            model="rate as typed",
            parameters=(),
            rate=FailureRate(0, 0.0),
            rate_per_node_day=rate,
            log_likelihood=None,
            n_parameters=0,
            goodness=None,
            meaning=self.typed.meaning,
            assumptions=(),
            confidence=self.typed.confidence,
        )
        return ChosenModels((fit,), None, None, (self.typed.meaning,))


def project_fleet(
    evidence: FleetEvidence | RateAlone,
    n_nodes: Sequence[int],
    shape: RunShape,
    *,
    interval_s: float | None = None,
    gpus_per_node: float | None = None,
    spares: int = 0,
    repair_days: float | None = None,
    run_days: float | None = None,
    confidence: float,
    models: ChosenModels | None = None,
) -> ScaleProjection:
    """MTTF and ETTR at each number of nodes, with bands from parameters and models.

    Args:
        interval_s: Between checkpoints; the best at each scale where None.
        gpus_per_node: Of the planned nodes; those seen where None. Where these are not known
            either, sizes are in nodes.
        models: Models chosen by name; where None those that counts by node can support. A rate
            alone has its own.

    Raises:
        UsageError: values that no run can have.
    """
    known_per_node = gpus_per_node or evidence.gpus_per_node
    seen_per_node = evidence.gpus_per_node or gpus_per_node or 1.0
    per_node = known_per_node or 1.0
    if isinstance(evidence, RateAlone):
        chosen = evidence.model()
    else:
        supported = models or _supported(evidence, confidence)
        chosen = _admitting_bursts(supported, evidence, confidence)
    seen = Seen(
        largest_n_nodes=evidence.largest_n_nodes or max(n_nodes),
        gpus_per_node=seen_per_node,
        oldest_days=chosen.oldest_days,
    )
    if isinstance(evidence, FleetEvidence):
        seen = replace(
            seen,
            smallest_n_nodes=evidence.smallest_n_nodes or 1,
            span_days=evidence.span_days,
        )
    scales = [
        Scale(
            nodes,
            per_node,
            spares,
            repair_days,
            run_days,
            chosen.ages_days,
            chosen.repair_law,
            queue_s=shape.queue_s,
        )
        for nodes in n_nodes
    ]
    like_published = 1.0 if known_per_node is None else per_node / GPUS_PER_NODE
    points = tuple(
        _point(chosen.fits, scale, seen, shape, interval_s, like_published) for scale in scales
    )
    unknown_size = (
        "The size of the jobs behind the numbers is unknown (--seen-gpus), so ettr cannot warn if "
        "it extrapolates to another size."
    )
    return ScaleProjection(
        name=evidence.name,
        jobs="as typed" if isinstance(evidence, RateAlone) else evidence.jobs,
        rate=None if isinstance(evidence, RateAlone) else evidence.rate,
        unit="nodes" if known_per_node is None else "GPUs",
        preferred=chosen.fits[0].model,
        models=tuple(fit.model for fit in chosen.fits),
        gpus_per_node=per_node,
        write_s=shape.write_s,
        restart_s=shape.restart_s,
        queue_s=shape.queue_s,
        confidence=confidence,
        points=points,
        notes=(*chosen.notes, *(() if evidence.largest_n_nodes else (unknown_size,))),
        published=_PUBLISHED.name,
        published_per_1000_node_days=_PUBLISHED_RATE,
        by_confidence=None if isinstance(evidence, RateAlone) else evidence.by_confidence,
    )


def without_ends(projection: ScaleProjection) -> ScaleProjection:
    """The projection of a typed rate as JSON shows it: what rests on that rate alone has no ends.

    Ends that differ stay: those of an interval that was typed, of rates by node and by GPU, and of
    the failures of one run. A projection from failures and node-days is returned as it is.
    """
    if projection.rate is not None:
        return projection
    return replace(projection, points=tuple(map(_point_without_ends, projection.points)))


def _point_without_ends(point: ScalePoint) -> ScalePoint:
    made = point.projection
    spares = made.spares
    if spares is not None:
        spares = replace(
            spares,
            in_repair=spares.in_repair.without_equal_ends(),
            full_share=spares.full_share.without_equal_ends(),
        )
    bare = replace(
        made,
        mttf_h=made.mttf_h.without_equal_ends(),
        ettr=None if made.ettr is None else made.ettr.without_equal_ends(),
        parameter_mttf_h=made.parameter_mttf_h.without_equal_ends(),
        spares=spares,
        lines=tuple(map(_line_without_ends, made.lines)),
    )
    return replace(point, projection=bare)


def _line_without_ends(line: Line) -> Line:
    return replace(
        line,
        per_node_day=line.per_node_day.without_equal_ends(),
        mttf_h=line.mttf_h.without_equal_ends(),
        ettr=None if line.ettr is None else line.ettr.without_equal_ends(),
    )


def _supported(evidence: FleetEvidence, confidence: float) -> ChosenModels:
    compared = compare_models(evidence.counts, confidence=confidence)
    # a law of the spread between nodes says nothing where the nodes are not known
    fits = tuple(fit for fit in compared.fits if _known(fit)) or (compared.best,)
    return ChosenModels(fits, None, None, (compared.meaning,))


def _admitting_bursts(
    chosen: ChosenModels, evidence: FleetEvidence, confidence: float
) -> ChosenModels:
    """The same models, no interval narrower than the spread over time allows."""
    spread = evidence.spread
    if spread is None or not spread.over_time.is_clustered:
        return chosen
    factor = spread.over_time.inflation(confidence)
    fits = tuple(_widened(fit, factor, confidence) for fit in chosen.fits)
    return replace(chosen, fits=fits, notes=(*chosen.notes, spread.meaning))


def _widened(fit: Fit, factor: float, confidence: float) -> Fit:
    rate = fit.rate_per_node_day
    # the spread between nodes and that over time are of different causes: their excesses add up
    factor += max(fit.dispersion, 1.0) - 1.0
    wide = dispersed_interval(fit.rate, factor, confidence)
    # a law of ages has another level than the counts behind it: the width goes along in proportion
    level = (rate.estimate or 0.0) / fit.rate.per_node_day if fit.rate.per_node_day else 1.0
    return replace(
        fit,
        rate_per_node_day=Interval(
            rate.estimate, min(rate.low, wide.low * level), max(rate.high, wide.high * level)
        ),
        dispersion=max(fit.dispersion, factor),
    )


def of_some_nodes(fit: Fit, n_nodes: int) -> Fit:
    """The fit for some nodes of the fleet: which of them a run gets is a draw where nodes differ.

    Of nodes whose rates are gamma-distributed with squared coefficient of variation v, the mean of
    n has v / n. Its quantiles join those of the fleet's rate on a logarithmic scale. A fit that
    knows no spread between nodes is returned as it is.

    Source:
        Greenwood and Yule (1920), as for `GammaMixed`.
    """
    from ettr.estimates.special import gammaincinv

    spread = next((one.estimate for one in fit.parameters if one.name == SPREAD), None)
    rate = fit.rate_per_node_day
    if not spread or not rate.estimate:
        return fit
    shape, tail = n_nodes / spread, (1.0 - fit.confidence) / 2.0
    drawn = [float(gammaincinv(shape, share)) / shape for share in (tail, 1.0 - tail)]
    low = _joined(rate.low / rate.estimate, drawn[0])
    high = 1.0 / _joined(rate.estimate / rate.high, 1.0 / max(drawn[1], 1.0))
    wide = Interval(rate.estimate, rate.estimate * low, rate.estimate * high)
    return replace(fit, rate_per_node_day=wide)


def _joined(one: float, other: float) -> float:
    """Two factors below 1 of independent scatter as one."""
    if not (one > 0 and other > 0):
        return 0.0
    return math.exp(-math.hypot(math.log(min(one, 1.0)), math.log(min(other, 1.0))))


def _known(fit: Fit) -> bool:
    rate = fit.rate_per_node_day
    return rate.high > 0 and not (rate.low == 0.0 and math.isinf(rate.high))


def _point(
    fits: Sequence[Fit],
    scale: Scale,
    seen: Seen,
    shape: RunShape,
    interval_s: float | None,
    like_published: float,
) -> ScalePoint:
    """One scale; a node there is `like_published` nodes of the published rate."""
    fits = [of_some_nodes(fit, scale.n_nodes) for fit in fits]
    rate = fits[0].rate_per_node_day
    growth = scale.gpus_per_node / seen.gpus_per_node
    run = planned(
        replace(shape, n_nodes=scale.n_nodes), (rate.estimate or rate.high) * growth, interval_s
    )
    made = project(fits, scale, seen, ettr_by_rate(run))
    size = scale.n_nodes * scale.gpus_per_node
    per_node_day = _PUBLISHED_RATE / PER_NODE_DAYS * like_published
    elsewhere = planned(replace(shape, n_nodes=scale.n_nodes), per_node_day, interval_s)
    at_published = ettr_by_rate(elsewhere)(per_node_day * scale.n_nodes)
    return ScalePoint(size, run.interval_s, made, at_published)


def scales_for(evidence: FleetEvidence | RateAlone, gpus_per_node: float | None) -> tuple[int, ...]:
    """Nodes of runs of powers of two of GPUs, or of nodes, from the largest job seen up."""
    gpus_per_node = gpus_per_node or 1.0
    start = (evidence.largest_n_nodes or 1) * gpus_per_node
    power = max(0, math.ceil(math.log2(start)))
    sizes = [2**p for p in range(power, power + REPORT_SCALES) if 2**p <= LARGEST_GPUS]
    nodes = [max(1, math.ceil(size / gpus_per_node)) for size in sizes or [2**power]]
    return tuple(dict.fromkeys(nodes))


def scales_of_gpus(n_gpus: Sequence[int], gpus_per_node: float | None) -> tuple[int, ...]:
    """Nodes of runs of so many GPUs each.

    Raises:
        UsageError: nobody knows how many GPUs a node has.
    """
    if gpus_per_node is None:
        raise UsageError(
            f"{n_gpus[0]} GPUs: no log shows how many GPUs a node has; give --gpus-per-node as "
            "well, or the scales in --nodes"
        )
    per_node = max(1, round(gpus_per_node))
    return tuple(nodes_of(n, per_node) for n in n_gpus)


def projection_of(analysis: Analysis) -> ScaleProjection | None:
    """The fleet's failures at larger scales; None where nothing ran."""
    return project_store(analysis, ", ".join(analysis.clusters))


def project_store(analysis: Analysis, name: str) -> ScaleProjection | None:
    """The store's own rate at the next scales; None where nothing ran.

    Of runs with a write and restart of 5 min, at the best interval.
    """
    try:
        evidence = evidence_to_plan_with(analysis, name)
    except UsageError:
        return None
    return project_fleet(
        evidence,
        scales_for(evidence, evidence.gpus_per_node),
        RunShape(1),
        confidence=analysis.assumptions.confidence,
    )


LISTED_SIZES = 15


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The best checkpoint interval for runs of one size.

    `ettr_at_hourly` is that of a checkpoint every hour, for comparison.
    """

    size: str
    runs: int
    n_gpus: int | None
    n_nodes: int
    gpu_hours: float | None
    mttf_h: float | None
    best_interval_s: float
    ettr_at_best: float
    ettr_at_hourly: float
    gpu_hours_gained: float | None


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """The checkpoint interval for each size of run seen, if writes and restarts take so long.

    `sizes` are those with the most GPU-hours, of `sizes_found`.
    """

    write_s: float
    restart_s: float
    per_1000_node_days: float
    from_upper_end: bool
    sizes_found: int
    sizes: tuple[SizeAdvice, ...]


class OfAdvice(Protocol):
    """What `checkpoint_advice` takes."""

    assumptions: Assumptions
    rates: RatesBySymptom
    runs: JobRuns


def checkpoint_advice(_: Facts, given: OfAdvice) -> CheckpointAdvice | None:
    """The best checkpoint interval for each size of run; None where none of known size was seen."""
    rate = given.rates.best
    if not rate.node_days > 0:
        return None
    shape = RunShape(1)
    per_node_day = rate.per_node_day or rate.interval(given.assumptions.confidence).high
    sizes = [
        _advice(one, replace(shape, n_nodes=one.n_nodes), per_node_day)
        for one in given.runs.by_shape
        if one.n_nodes
    ]
    if not sizes:
        return None
    sizes.sort(key=lambda one: (-(one.gpu_hours or 0.0), -one.n_nodes))
    return CheckpointAdvice(
        shape.write_s,
        shape.restart_s,
        PER_NODE_DAYS * per_node_day,
        not rate.failures,
        len(sizes),
        tuple(sizes[:LISTED_SIZES]),
    )


def _advice(seen: ShapeRuns, shape: RunShape, per_node_day: float) -> SizeAdvice:
    best = planned(shape, per_node_day)
    at_best = exact_ettr(best)
    hourly = exact_ettr(replace(best, interval_s=SECONDS_PER_HOUR))
    return SizeAdvice(
        size=f"{seen.n_gpus:,} GPUs" if seen.n_gpus else f"{shape.n_nodes:,} nodes",
        runs=seen.runs,
        n_gpus=seen.n_gpus,
        n_nodes=shape.n_nodes,
        gpu_hours=seen.gpu_hours,
        mttf_h=best.mttf_s / SECONDS_PER_HOUR,
        best_interval_s=best.interval_s,
        ettr_at_best=at_best,
        ettr_at_hourly=hourly,
        gpu_hours_gained=None if seen.gpu_hours is None else seen.gpu_hours * (at_best - hourly),
    )
