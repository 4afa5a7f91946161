"""How attempts end, by count and by the GPU time they held."""

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
