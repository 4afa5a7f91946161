"""How attempts end, by count and by the GPU time they held."""

from __future__ import annotations

from dataclasses import dataclass

import ibis

from ettr.metrics.selected import n_counted, node_share
from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class StatusShare:
    """One end state. A share is None where its whole is zero (a cluster without GPUs)."""

    state: str
    attempts: int
    share_of_attempts: float | None
    gpu_hours: float
    share_of_gpu_hours: float | None
    node_hours: float
    share_of_node_hours: float | None


@dataclass(frozen=True, slots=True)
class StatusMix:
    """All end states, the most frequent first."""

    states: tuple[StatusShare, ...]


def status_mix(attempts: ibis.Table) -> StatusMix:
    """Attempts, GPU-hours and node-hours by state; states not ended yet stand as they are."""
    held_s = attempts["elapsed_s"].fill_null(0.0) * node_share(attempts)
    rows = (
        attempts.group_by("state")
        .aggregate(
            attempts=n_counted(attempts),
            gpu_s=(held_s * attempts["n_gpus"]).sum().fill_null(0.0),
            node_s=(held_s * attempts["n_nodes"]).sum().fill_null(0.0),
        )
        .to_pyarrow()
        .to_pylist()
    )
    rows.sort(key=lambda row: (-row["attempts"], row["state"]))
    whole = {name: sum(row[name] for row in rows) for name in ("attempts", "gpu_s", "node_s")}
    return StatusMix(
        tuple(
            StatusShare(
                state=row["state"],
                attempts=int(row["attempts"]),
                share_of_attempts=share(row["attempts"], whole["attempts"]),
                gpu_hours=row["gpu_s"] / SECONDS_PER_HOUR,
                share_of_gpu_hours=share(row["gpu_s"], whole["gpu_s"]),
                node_hours=row["node_s"] / SECONDS_PER_HOUR,
                share_of_node_hours=share(row["node_s"], whole["node_s"]),
            )
            for row in rows
        )
    )


def share(part: float, whole: float) -> float | None:
    """Part of a whole; None where the whole is zero."""
    return part / whole if whole else None
