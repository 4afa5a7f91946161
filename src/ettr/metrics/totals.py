"""How much was run: jobs, attempts and hours."""

from __future__ import annotations

from dataclasses import dataclass

import ibis

from ettr.metrics.instants import first_row
from ettr.metrics.selected import counted, n_counted, node_share
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Totals:
    """Jobs, attempts and the hours that they held.

    `jobs` are lineages: a requeued job is one job. `attempts` are all rows. Hours are None where no
    attempt names its count of CPUs, nodes or GPUs.
    """

    jobs: int
    attempts: int
    cpu_hours: float | None
    node_hours: float | None
    gpu_hours: float | None


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
    # one that never ran has no hours whatever it would have held
    parts = parts.filter(parts["elapsed_s"] > 0)
    run_s = parts["elapsed_s"] * node_share(parts)
    sums = parts.aggregate(
        ran=parts.count(),
        cpu_s=(run_s * parts["n_cpus"]).sum(),
        node_s=(run_s * parts["n_nodes"]).sum(),
        gpu_s=(run_s * parts["n_gpus"]).sum(),
    )
    jobs = (
        attempts.filter(~never_ran & counted(attempts))
        .select("cluster", "job_id", "user", "name")
        .distinct()
        .count()
    )
    row = first_row(sums)
    return Totals(
        jobs=int(jobs.to_pyarrow().as_py()),
        attempts=int(n_counted(attempts).to_pyarrow().as_py()),
        cpu_hours=_hours(row["cpu_s"], row["ran"]),
        node_hours=_hours(row["node_s"], row["ran"]),
        gpu_hours=_hours(row["gpu_s"], row["ran"]),
    )


def gpu_hours_of(accounted: ibis.Table) -> float | None:
    """GPU-hours alone, as `totals` sums them over attempts as the log has them."""
    ran = accounted.filter(accounted["elapsed_s"] > 0)
    gpu_s = (ran["elapsed_s"] * node_share(ran) * ran["n_gpus"]).sum()
    row = first_row(ran.aggregate(ran=ran.count(), gpu_s=gpu_s))
    return _hours(row["gpu_s"], row["ran"])


def _hours(seconds: float | None, ran: int) -> float | None:
    """Hours of the attempts that ran; unknown where none of them names its count."""
    if seconds is None:
        return None if ran else 0.0
    return float(seconds) / SECONDS_PER_HOUR
