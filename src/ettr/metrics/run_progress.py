"""Where the scheduled time of one run went, as the training itself recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import ibis
import numpy as np
import pyarrow as pa

from ettr.metrics.instants import fetch, floats_of
from ettr.progress.events import LATEST_S
from ettr.progress.split import RunState, WallClockSplit, WallClockSplitter
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

_US_PER_HOUR = MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class ScheduledSplit:
    """Scheduled hours of a run, in the buckets of `ettr.progress.split`; they add up to the whole.

    `redone_h` are steps that had to be done again, `unsaved_h` those after the last checkpoint of
    a run that ended otherwise than by completing. `restart_h` is start-up of each attempt until
    its first step, and restarts within attempts. `other_h` is the rest: waits for a failure to be
    noticed, gaps in the record.
    """

    productive_h: float
    redone_h: float
    unsaved_h: float
    save_h: float
    restore_h: float
    restart_h: float
    stall_h: float
    other_h: float

    @property
    def scheduled_h(self) -> float:
        """The whole."""
        return (
            self.productive_h
            + self.redone_h
            + self.unsaved_h
            + self.save_h
            + self.restore_h
            + self.restart_h
            + self.stall_h
            + self.other_h
        )


# event, step, time and duration in microseconds, as `WallClockSplitter.add` takes them
Row = tuple[str, int, int, int | None]


def split_scheduled(
    rows: Iterable[Row], attempts_us: Iterable[tuple[int, int]], state: RunState
) -> ScheduledSplit | None:
    """Split the scheduled time of a run; None where the record holds no step.

    Args:
        rows: its progress from one rank, in order.
        attempts_us: start and end of its attempts, in microseconds since 1970.
        state: how the run stands.
    """
    splitter = WallClockSplitter(attempts_us)
    for event, step, time_us, duration_us in rows:
        splitter.add(event, step, time_us, duration_us)
    split = splitter.split(state)
    if not split.steps + split.redone_steps + split.unsaved_steps:
        return None
    return _in_hours(split)


def records_of_jobs(progress: ibis.Table, jobs: Iterable[str]) -> dict[str, list[Row]]:
    """Progress of each job that records steps, from the lowest rank that does, in order of time."""
    mine = progress.semi_join(ibis.memtable({"job_id": sorted(jobs)}), "job_id")
    # Without its step such an event says nothing about where the run is.
    mine = mine.filter(mine["step"].notnull() | ~mine["event"].isin(("step", "save", "restore")))
    ranks = (
        mine.filter(mine["event"] == "step").group_by("job_id").aggregate(rank=ibis._["rank"].min())
    )
    rows = fetch(
        mine.semi_join(ranks, ["job_id", "rank"]),
        *("job_id", "time", "event", "step", "duration_s", "file_id", "line"),
    ).sort_by([(name, "ascending") for name in ("job_id", "time", "file_id", "line")])
    owners = np.asarray(rows["job_id"].to_pylist(), dtype=object)
    edges = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
    events, steps = rows["event"].to_pylist(), rows["step"].fill_null(0).to_pylist()
    times_us = rows["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    durations_us = _microseconds(rows["duration_s"])
    return {
        owners[low]: list(
            zip(
                events[low:high],
                steps[low:high],
                times_us[low:high],
                durations_us[low:high],
                strict=True,
            )
        )
        for low, high in pairwise(edges)
        if high > low
    }


def merged(records: Iterable[list[Row]]) -> list[Row]:
    """The records of a run's jobs as one, in order of time."""
    return sorted((row for record in records for row in record), key=lambda row: row[2])


def _microseconds(seconds: pa.ChunkedArray) -> list[int | None]:
    """Durations to the microsecond, rounded as `ettr.progress.events.microseconds` rounds."""
    values = floats_of(seconds)
    known = np.clip(np.nan_to_num(values), 0.0, LATEST_S)
    counts = np.rint(known * MICROSECONDS_PER_SECOND).astype(np.int64).tolist()
    return [None if absent else n for n, absent in zip(counts, np.isnan(values), strict=True)]


def _in_hours(split: WallClockSplit) -> ScheduledSplit:
    return ScheduledSplit(
        productive_h=split.productive_us / _US_PER_HOUR,
        redone_h=split.redone_us / _US_PER_HOUR,
        unsaved_h=split.unsaved_us / _US_PER_HOUR,
        save_h=split.save_us / _US_PER_HOUR,
        restore_h=split.restore_us / _US_PER_HOUR,
        restart_h=split.restart_us / _US_PER_HOUR,
        stall_h=split.stall_us / _US_PER_HOUR,
        other_h=split.idle_us / _US_PER_HOUR,
    )
