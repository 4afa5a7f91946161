"""The best checkpoint interval for runs of the sizes seen, at the fleet's own failure rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ettr.analysis.analysis import Analysis
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
    """The checkpoint interval for each size of run seen, if writes and restarts take so long."""

    write_s: float
    restart_s: float
    per_1000_node_days: float
    from_upper_end: bool
    sizes: tuple[SizeAdvice, ...]


def checkpoint_advice(analysis: Analysis, shape: RunShape | None = None) -> CheckpointAdvice | None:
    """The best interval for each size of run seen; None where no run of known size was.

    Args:
        analysis: Of the store.
        shape: Write and restart of the runs; the usual ones where None.
    """
    rate = analysis.rates.best
    if not rate.node_days > 0:
        return None
    shape = shape or RunShape(1)
    per_node_day = rate.per_node_day or rate.interval(analysis.assumptions.confidence).high
    groups: dict[tuple[int, int], list[float]] = {}
    for run in analysis.runs.runs:
        if run.n_nodes:
            groups.setdefault((run.n_gpus or 0, run.n_nodes), []).append(run.gpu_hours or 0.0)
    if not groups:
        return None
    sizes = [
        _advice(n_gpus, replace(shape, n_nodes=n_nodes), hours, per_node_day)
        for (n_gpus, n_nodes), hours in groups.items()
    ]
    sizes.sort(key=lambda one: (-one.gpu_hours, -one.n_nodes))
    return CheckpointAdvice(
        shape.write_s,
        shape.restart_s,
        PER_NODE_DAYS * per_node_day,
        not rate.failures,
        tuple(sizes[:LISTED_SIZES]),
    )


def _advice(n_gpus: int, shape: RunShape, hours: list[float], per_node_day: float) -> SizeAdvice:
    best = planned(shape, per_node_day)
    at_best = exact_ettr(best)
    hourly = exact_ettr(replace(best, interval_s=SECONDS_PER_HOUR))
    total = sum(hours)
    return SizeAdvice(
        size=f"{n_gpus:,} GPUs" if n_gpus else f"{shape.n_nodes:,} nodes",
        runs=len(hours),
        n_gpus=n_gpus,
        n_nodes=shape.n_nodes,
        gpu_hours=total,
        mttf_h=best.mttf_s / SECONDS_PER_HOUR,
        best_interval_s=best.interval_s,
        ettr_at_best=at_best,
        ettr_at_hourly=hourly,
        gpu_hours_gained=total * (at_best - hourly),
    )
