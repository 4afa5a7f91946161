"""How much was run: jobs, attempts and hours."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
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


def totals(facts: Facts) -> Totals:
    """Jobs, attempts and hours of the selected attempts.

    A job is one (cluster, job id, user, name): a requeue keeps all four, while an id that comes
    back after a reset of the accounting database rarely belongs to the same user and name. Jobs
    that were cancelled before they ran a second are left out of `jobs`, not of `attempts`. Hours
    are seconds run times CPUs, nodes or GPUs, running attempts with what they ran so far; an
    attempt whose log names no count adds no hours.
    """
    row = facts.row("totals")
    return Totals(
        jobs=int(row["jobs"]),
        attempts=int(row["attempts"]),
        cpu_hours=_hours(row["cpu_s"], row["ran"]),
        node_hours=_hours(row["node_s"], row["ran"]),
        gpu_hours=_hours(row["gpu_s"], row["ran"]),
    )


def _hours(seconds: float | None, ran: int) -> float | None:
    """Hours of the attempts that ran; unknown where none of them names its count."""
    if seconds is None:
        return None if ran else 0.0
    return float(seconds) / SECONDS_PER_HOUR
