"""A fleet's failure rate at other scales: fits joined with the exact form of ETTR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ettr.analysis.analysis import Analysis
from ettr.analysis.fleet_evidence import FleetEvidence, evidence_to_plan_with
from ettr.analysis.model_choice import ChosenModels
from ettr.analysis.planning import RunShape, planned
from ettr.defaults import GPUS_PER_NODE
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.models.base import Fit
from ettr.models.select import compare_models
from ettr.projection.run_ettr import ettr_by_rate
from ettr.projection.scale import Projection, Scale, Seen, project
from ettr.units import SECONDS_PER_DAY

LARGEST_GPUS = 131_072
REPORT_SCALES = 6
LISTED_SIZES = 15


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """One scale: its size in GPUs (nodes where there are none), and the interval of its ETTR."""

    size: float
    interval_s: float | None
    projection: Projection


@dataclass(frozen=True, slots=True)
class ScaleProjection:
    """A fleet's failures at other scales.

    Attributes:
        name: Of the fleet.
        jobs: Which jobs the rate comes from.
        rate: Failures and exposure behind it.
        unit: What sizes count: `GPUs` or `nodes`.
        preferred: The failure model in the middle of the bands.
        models: All models in the bands.
        gpus_per_node: Of the planned nodes.
        write_s: Assumed of every run.
        restart_s: Likewise.
        queue_s: Likewise.
        confidence: Of the intervals of each model.
        points: The scales, in the order given.
        notes: What is assumed, one sentence each.
    """

    name: str
    jobs: str
    rate: FailureRate
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


def project_fleet(
    evidence: FleetEvidence,
    n_nodes: Sequence[int],
    shape: RunShape,
    *,
    gpus_per_node: float | None = None,
    spares: int = 0,
    repair_days: float | None = None,
    run_days: float | None = None,
    confidence: float,
    unit: str = "GPUs",
    models: ChosenModels | None = None,
) -> ScaleProjection:
    """MTTF and ETTR at each number of nodes, with bands from parameters and models.

    Args:
        evidence: What the fleet has shown.
        n_nodes: The scales.
        shape: Interval, write, restart and queue of the runs; its own nodes are not used.
        gpus_per_node: Of the planned nodes; those seen where None.
        spares: Nodes held ready.
        repair_days: Mean time until a failed node is back.
        run_days: Length of a run.
        confidence: Of the intervals.
        unit: What sizes count: `GPUs`, or `nodes` where there are none.
        models: Models chosen by name; where None those that counts by node tell apart.

    Raises:
        UsageError: values that no run can have.
    """
    seen_per_node = evidence.gpus_per_node or GPUS_PER_NODE
    per_node = gpus_per_node or seen_per_node
    chosen = models or _told_apart(evidence, confidence)
    fits = chosen.fits
    seen = Seen(
        largest_n_nodes=evidence.largest_n_nodes or max(n_nodes),
        smallest_n_nodes=evidence.smallest_n_nodes or 1,
        gpus_per_node=seen_per_node,
        span_days=evidence.span_days,
        oldest_days=chosen.oldest_days,
    )
    points = []
    for nodes in n_nodes:
        scale = Scale(nodes, per_node, spares, repair_days, run_days, chosen.ages_days)
        at = replace(shape, n_nodes=nodes)
        points.append(_point(fits, scale, seen, at))
    return ScaleProjection(
        name=evidence.name,
        jobs=evidence.jobs,
        rate=evidence.rate,
        unit=unit,
        preferred=fits[0].model,
        models=tuple(fit.model for fit in fits),
        gpus_per_node=per_node,
        write_s=shape.write_s,
        restart_s=shape.restart_s,
        queue_s=shape.queue_s,
        confidence=confidence,
        points=tuple(points),
        notes=_notes(evidence, chosen.notes),
    )


def _told_apart(evidence: FleetEvidence, confidence: float) -> ChosenModels:
    compared = compare_models(evidence.counts, confidence=confidence)
    # a law of the spread between nodes says nothing where there is no node to tell from another
    fits = tuple(fit for fit in compared.fits if _known(fit)) or (compared.best,)
    return ChosenModels(fits, None, None, (compared.meaning,))


def _known(fit: Fit) -> bool:
    rate = fit.rate_per_node_day
    return rate.high > 0 and not (rate.low == 0.0 and math.isinf(rate.high))


def _point(fits: Sequence[Fit], scale: Scale, seen: Seen, shape: RunShape) -> ScalePoint:
    rate = fits[0].rate_per_node_day
    growth = scale.gpus_per_node / seen.gpus_per_node
    run = planned(shape, (rate.estimate or rate.high) * growth)
    made = project(fits, scale, seen, ettr_by_rate(run))
    return ScalePoint(scale.n_nodes * scale.gpus_per_node, run.interval_s, made)


def _notes(evidence: FleetEvidence, meanings: tuple[str, ...]) -> tuple[str, ...]:
    notes = list(meanings)
    if evidence.largest_n_nodes is None:
        notes.append(
            "The size of the jobs behind the numbers was not given (--seen-gpus), so nothing can "
            "warn of extrapolation in size."
        )
    return tuple(notes)


def scales_for(evidence: FleetEvidence, gpus_per_node: float) -> tuple[int, ...]:
    """Nodes of runs of powers of two of GPUs, from the largest job seen up."""
    start = (evidence.largest_n_nodes or 1) * gpus_per_node
    power = max(0, math.ceil(math.log2(start)))
    sizes = [2**p for p in range(power, power + REPORT_SCALES) if 2**p <= LARGEST_GPUS]
    nodes = [max(1, math.ceil(size / gpus_per_node)) for size in sizes or [2**power]]
    return tuple(dict.fromkeys(nodes))


def project_store(
    analysis: Analysis,
    name: str,
    shape: RunShape | None = None,
    *,
    spares: int = 0,
    repair_days: float | None = None,
) -> ScaleProjection | None:
    """The store's own rate at the next scales; None where nothing ran.

    Args:
        analysis: of the store.
        name: of the fleet.
        shape: of the runs; write and restart of 5 min at the best interval where None.
        spares: nodes held ready.
        repair_days: mean time until a failed node is back.
    """
    try:
        evidence = evidence_to_plan_with(analysis, name)
    except UsageError:
        return None
    per_node = evidence.gpus_per_node or 1.0
    return project_fleet(
        replace(evidence, gpus_per_node=per_node),
        scales_for(evidence, per_node),
        shape or RunShape(1),
        gpus_per_node=per_node,
        spares=spares,
        repair_days=repair_days,
        confidence=analysis.assumptions.confidence,
        unit="GPUs" if evidence.gpus_per_node else "nodes",
    )


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The checkpoint interval for runs of one size at the fleet's own failure rate.

    `best_interval_s` is (middle, low, high) over the interval of the rate; `ettr_at_hourly` is that
    of a checkpoint every hour, for comparison.
    """

    size: str
    runs: int
    n_gpus: int
    n_nodes: int
    gpu_hours: float
    mttf_h: float | None
    best_interval_s: float
    ettr_at_best: float
    ettr_at_hourly: float
    gpu_hours_gained: float


@dataclass(frozen=True, slots=True)
class CheckpointAdvice:
    """How often runs like those seen should save, if writes and restarts take so long."""

    write_s: float
    restart_s: float
    per_1000_node_days: float
    from_upper_end: bool
    sizes: tuple[SizeAdvice, ...]


def checkpoint_advice(
    analysis: Analysis, write_s: float = 300.0, restart_s: float = 300.0
) -> CheckpointAdvice | None:
    """The best interval for each size of run seen; None where no run of known size was.

    Args:
        analysis: of the store.
        write_s: time that a checkpoint stops training.
        restart_s: from an attempt's start until it trains.

    Source:
        Kokolis et al. (HPCA 2025, v2) for 5 min of each.
    """
    rate = analysis.rates.best
    if not rate.node_days > 0:
        return None
    per_node_day = rate.per_node_day or rate.interval(analysis.assumptions.confidence).high
    groups: dict[tuple[int, int], list[float]] = {}
    for run in analysis.runs.runs:
        if run.n_nodes:
            groups.setdefault((run.n_gpus or 0, run.n_nodes), []).append(run.gpu_hours)
    sizes = [
        _advice(gpus, nodes, hours, per_node_day, write_s, restart_s)
        for (gpus, nodes), hours in groups.items()
    ]
    if not sizes:
        return None
    sizes.sort(key=lambda one: (-one.gpu_hours, -one.n_nodes))
    return CheckpointAdvice(
        write_s, restart_s, 1000.0 * per_node_day, not rate.failures, tuple(sizes[:LISTED_SIZES])
    )


def _advice(
    n_gpus: int,
    n_nodes: int,
    hours: list[float],
    per_node_day: float,
    write_s: float,
    restart_s: float,
) -> SizeAdvice:
    from ettr.plan.renewal import exact_ettr

    best = planned(RunShape(n_nodes, None, write_s, restart_s), per_node_day)
    hourly = exact_ettr(replace(best, interval_s=3600.0))
    at_best = exact_ettr(best)
    total = sum(hours)
    return SizeAdvice(
        size=f"{n_gpus:,} GPUs" if n_gpus else f"{n_nodes:,} nodes",
        runs=len(hours),
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        gpu_hours=total,
        mttf_h=SECONDS_PER_DAY / 3600.0 / (n_nodes * per_node_day),
        best_interval_s=best.interval_s,
        ettr_at_best=at_best,
        ettr_at_hourly=hourly,
        gpu_hours_gained=total * (at_best - hourly),
    )
