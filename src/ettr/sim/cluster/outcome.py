"""What one simulated cluster came to, added up from what truly happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class ClusterHours:
    """GPU-hours of one simulated cluster, and what ended attempts.

    Attributes:
        useful_gpu_hours: Work that was not lost to an interruption.
        lost_gpu_hours: Work lost to faults and preemptions, and restarts.
        out_gpu_hours: On nodes that were out of service, or draining and free.
        failed_attempts: Attempts that faults and false alarms ended.
        preemptions: Attempts that were preempted.
        write_gpu_hours: Held up by writes of checkpoints; neither useful nor lost.
    """

    useful_gpu_hours: float
    lost_gpu_hours: float
    out_gpu_hours: float
    failed_attempts: int
    preemptions: int
    write_gpu_hours: float = 0.0

    @property
    def wasted_gpu_hours(self) -> float:
        """Lost, out of service, or held up by writes."""
        return self.lost_gpu_hours + self.out_gpu_hours + self.write_gpu_hours


def hours_of_truth(tables: Mapping[str, pa.Table]) -> ClusterHours:
    """The hours of a run.

    Args:
        tables: Of the truth, by name; `attempts` and `hours` are used.
    """
    attempts = tables["attempts"]
    gpus, saved_s, lost_s, restart_s = (
        attempts[name].to_numpy().astype(np.float64)
        for name in ("gpus", "saved_s", "lost_s", "restart_s")
    )
    by_fault = attempts["fault"].is_valid().to_numpy()
    preempted = pc.equal(attempts["end"], "PREEMPTED").to_numpy()
    interrupted = by_fault | preempted
    write_gpu_s = 0.0
    if "write_s" in attempts.column_names:  # where writes cost something (`attempts_schema`)
        write_gpu_s = float(gpus @ attempts["write_s"].to_numpy())
    hours = {row["what"]: row["gpu_hours"] for row in tables["hours"].to_pylist()}
    return ClusterHours(
        useful_gpu_hours=float(gpus @ saved_s) / SECONDS_PER_HOUR,
        lost_gpu_hours=float(gpus[interrupted] @ (lost_s + restart_s)[interrupted])
        / SECONDS_PER_HOUR,
        out_gpu_hours=hours["out of service"] + hours["free on a draining node"],
        failed_attempts=int(by_fault.sum()),
        preemptions=int(preempted.sum()),
        write_gpu_hours=write_gpu_s / SECONDS_PER_HOUR,
    )
