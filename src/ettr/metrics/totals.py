"""How much was run: jobs, attempts and hours."""

from __future__ import annotations

from dataclasses import dataclass

import ibis

from ettr.metrics.instants import first_row
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Totals:
    """Jobs, attempts and the hours that they held.

    `jobs` are lineages: a requeued job is one job. `attempts` are all rows.
    """

    jobs: int
    attempts: int
    cpu_hours: float
    node_hours: float
    gpu_hours: float


def totals(attempts: ibis.Table, accounted: ibis.Table | None = None) -> Totals:
    """Jobs, attempts and hours of all attempts.

    A job is one (cluster, job id, user, name): a requeue keeps all four, while an id that comes
    back after a reset of the accounting database rarely belongs to the same user and name. Jobs
    that were cancelled before they ran a second are left out of `jobs`, not of `attempts`. Hours
    are seconds run times CPUs, nodes or GPUs, running attempts with what they ran so far; an
    attempt whose log names no count adds no hours.

    Args:
        attempts: all attempts.
        accounted: the same as the log has them, where the parts of heterogeneous jobs are apart:
            their hours are summed over these.
    """
    elapsed_s = attempts["elapsed_s"].fill_null(0.0)
    never_ran = (attempts["state"] == "CANCELLED") & (elapsed_s == 0)
    parts = attempts if accounted is None else accounted
    run_s = parts["elapsed_s"].fill_null(0.0)
    sums = parts.aggregate(
        cpu_s=(run_s * parts["n_cpus"]).sum(),
        node_s=(run_s * parts["n_nodes"]).sum(),
        gpu_s=(run_s * parts["n_gpus"]).sum(),
    )
    jobs = (
        attempts.filter(~never_ran).select("cluster", "job_id", "user", "name").distinct().count()
    )
    row = first_row(sums)
    return Totals(
        jobs=int(jobs.to_pyarrow().as_py()),
        attempts=int(attempts.count().to_pyarrow().as_py()),
        cpu_hours=_hours(row["cpu_s"]),
        node_hours=_hours(row["node_s"]),
        gpu_hours=_hours(row["gpu_s"]),
    )


def _hours(seconds: float | None) -> float:
    return float(seconds or 0.0) / SECONDS_PER_HOUR
