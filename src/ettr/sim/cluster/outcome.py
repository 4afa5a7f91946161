"""What one simulated cluster came to, added up from what truly happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.tables import ATTEMPTS
from ettr.tables.rows import Batch
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR


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
        held_share: Of all GPU-hours, those that jobs held, the utilisation; None where there are no
            GPU-hours.
        first_wait_s: Mean wait of the jobs that started, from when they were eligible until they
            first started; None where none started or the log was not read.
        largest_first_wait_s: The same of the jobs with the most GPUs; None where none of them
            started.
    """

    useful_gpu_hours: float
    lost_gpu_hours: float
    out_gpu_hours: float
    failed_attempts: int
    preemptions: int
    write_gpu_hours: float = 0.0
    held_share: float | None = None
    first_wait_s: float | None = None
    largest_first_wait_s: float | None = None

    @property
    def wasted_gpu_hours(self) -> float:
        """Lost, out of service, or held up by writes."""
        return self.lost_gpu_hours + self.out_gpu_hours + self.write_gpu_hours


@dataclass(slots=True)
class FirstWaits:
    """Adds up the first waits of jobs, batch by batch.

    Attributes:
        largest_gpus: What a job of the largest size asks for.
        jobs: That started.
        wait_s: Of them together.
        largest_jobs: Those of the largest size that started.
        largest_wait_s: Of these together.
    """

    largest_gpus: int
    jobs: int = 0
    wait_s: float = 0.0
    largest_jobs: int = 0
    largest_wait_s: float = 0.0

    def add(self, batch: Batch) -> None:
        """Add the jobs that started in what was logged."""
        table = batch.tables.get(ATTEMPTS.name)
        if table is None:
            return
        # a requeued job keeps its id, and its later attempts count their restarts
        first = pc.and_(pc.equal(table["restarts"], 0), table["start"].is_valid())
        table = table.filter(first)
        since = pc.coalesce(table["eligible"], table["submit"])
        wait_s = _us(table["start"]) - _us(since)
        wait_s = np.maximum(wait_s, 0) / MICROSECONDS_PER_SECOND
        is_largest = table["requested_gpus"].to_numpy() >= self.largest_gpus
        self.jobs += wait_s.size
        self.wait_s += float(wait_s.sum())
        self.largest_jobs += int(is_largest.sum())
        self.largest_wait_s += float(wait_s[is_largest].sum())

    @property
    def mean_s(self) -> float | None:
        """Of all jobs that started; None where none did."""
        return self.wait_s / self.jobs if self.jobs else None

    @property
    def largest_mean_s(self) -> float | None:
        """Of those of the largest size; None where none of them started."""
        return self.largest_wait_s / self.largest_jobs if self.largest_jobs else None


def first_waits(largest_gpus: int, batches: Iterable[Batch]) -> FirstWaits:
    """The first waits of all jobs in what was logged."""
    waits = FirstWaits(largest_gpus)
    for batch in batches:
        waits.add(batch)
    return waits


def _us(times: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    made: np.ndarray[Any, np.dtype[np.int64]] = times.cast(pa.int64()).to_numpy()
    return made


def hours_of_truth(tables: Mapping[str, pa.Table], waits: FirstWaits | None = None) -> ClusterHours:
    """The hours of a run.

    Args:
        tables: Of the truth, by name; `attempts` and `hours` are used.
        waits: Of its log; None where it was not read.
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
    hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    all_hours = sum(hours.values())
    return ClusterHours(
        useful_gpu_hours=float(gpus @ saved_s) / SECONDS_PER_HOUR,
        lost_gpu_hours=float(gpus[interrupted] @ (lost_s + restart_s)[interrupted])
        / SECONDS_PER_HOUR,
        out_gpu_hours=hours["out of service"] + hours["free on a draining node"],
        failed_attempts=int(by_fault.sum()),
        preemptions=int(preempted.sum()),
        write_gpu_hours=write_gpu_s / SECONDS_PER_HOUR,
        held_share=hours["held by jobs"] / all_hours if all_hours else None,
        first_wait_s=None if waits is None else waits.mean_s,
        largest_first_wait_s=None if waits is None else waits.largest_mean_s,
    )
