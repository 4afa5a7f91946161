"""The best checkpoint interval for runs of the sizes seen, at the fleet's own failure rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from ettr.analysis.assumptions import Assumptions
from ettr.facts import Facts
from ettr.metrics.rates import RatesBySymptom
from ettr.metrics.runs import JobRuns, ShapeRuns
from ettr.plan.outlook import PER_NODE_DAYS, planned
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import RunShape
from ettr.units import SECONDS_PER_HOUR

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
