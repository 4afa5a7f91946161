"""The end states of attempts, by count and by GPU time, and the totals of all."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class StatusShare:
    """One end state. A share is None where its whole is zero (a cluster without GPUs).

    Hours are those of attempts that say their GPUs or nodes; None where some ran and none says.
    """

    state: str
    attempts: int
    share_of_attempts: float | None
    gpu_hours: float | None
    share_of_gpu_hours: float | None
    node_hours: float | None
    share_of_node_hours: float | None


@dataclass(frozen=True, slots=True)
class StatusMix:
    """All end states, the most frequent first."""

    states: tuple[StatusShare, ...]


def status_mix(facts: Facts) -> StatusMix:
    """Attempts, GPU-hours and node-hours by state; states not ended yet stand as they are."""
    rows = facts.rows("status")
    rows.sort(key=lambda row: (-row["attempts"], row["state"]))
    whole = {name: sum(row[name] or 0 for row in rows) for name in ("attempts", "gpu_s", "node_s")}
    return StatusMix(
        tuple(
            StatusShare(
                state=row["state"],
                attempts=int(row["attempts"]),
                share_of_attempts=share(row["attempts"], whole["attempts"]),
                gpu_hours=in_hours(row["gpu_s"]),
                share_of_gpu_hours=share(row["gpu_s"], whole["gpu_s"]),
                node_hours=in_hours(row["node_s"]),
                share_of_node_hours=share(row["node_s"], whole["node_s"]),
            )
            for row in rows
        )
    )


def in_hours(seconds: float | None) -> float | None:
    """Hours of so many seconds; None where they are not known."""
    return None if seconds is None else seconds / SECONDS_PER_HOUR


def share(part: float | None, whole: float) -> float | None:
    """Part of a whole; None where the whole is zero, or the part not known."""
    return part / whole if whole and part is not None else None


# -- How much was run: jobs, attempts and hours ---------------------------------------------------


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
