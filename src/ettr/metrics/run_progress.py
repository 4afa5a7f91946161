"""Where the scheduled time of one run went, as the training itself recorded it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import ibis
import numpy as np
import pyarrow as pa

from ettr.metrics.instants import fetch, first_row, floats_of
from ettr.progress.events import LATEST_S
from ettr.progress.order import Row, in_order, merged
from ettr.progress.split import GOING_ON, RunState, WallClockSplit, WallClockSplitter
from ettr.progress.timeline import ScheduledAttempt
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

_US_PER_HOUR = MICROSECONDS_PER_SECOND * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class ScheduledSplit:
    """Scheduled hours of a run, in the buckets of `ettr.progress.split`.

    Those from `productive_h` to `other_h` add up to the whole. `redone_h` are steps that had to be
    done again, `unsaved_h` those after the last checkpoint of a run that ended otherwise than by
    completing. `restart_h` is start-up of each attempt until its first step, and restarts within
    attempts. `suspended_h` is time in which the scheduler had the job suspended. `other_h` is the
    rest: waits for a failure to be noticed, gaps in the record.

    `productive_low_h` and `productive_high_h` bound the productive time. `at_risk_h` is the part of
    `productive_h` that a failure of a run that still goes on would lose. `unrecorded_steps` ran, as
    later numbers show, and have no line. `checkpoints` are saves and restores in the record.
    `overlap_h` is time that the durations of several steps claim; it counts once.

    `clock_set_back` is how often the clock of the record went back. `outside_steps` are dated
    outside the attempts and count in `productive_high_h` only; nothing bounds the length of
    `open_steps`.
    """

    productive_h: float
    redone_h: float
    unsaved_h: float
    save_h: float
    restore_h: float
    restart_h: float
    stall_h: float
    suspended_h: float
    other_h: float
    productive_low_h: float
    productive_high_h: float
    at_risk_h: float
    unrecorded_steps: int
    checkpoints: int
    overlap_h: float
    clock_set_back: int
    outside_steps: int
    open_steps: int

    @property
    def is_measured(self) -> bool:
        """Whether the record says how much was kept: a run that was cut and shows no save may have
        saved elsewhere."""
        return self.checkpoints > 0 or self.unsaved_h <= 0.0

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
            + self.suspended_h
            + self.other_h
        )


def split_scheduled(
    rows: Iterable[Row], attempts: Iterable[ScheduledAttempt] | None, state: RunState
) -> ScheduledSplit | None:
    """Split the scheduled time of a run; None where the record holds no step within an attempt.

    Args:
        rows: its progress from one rank, in the order in which it happened.
        attempts: when it was scheduled; None: for the least time that the record allows.
        state: how the run stands.
    """
    splitter = WallClockSplitter(attempts)
    for row in rows:
        splitter.add(*row)
    split = splitter.split(state)
    return _in_hours(split) if split.steps_in_attempts else None


# cluster and job id
JobKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Progress of one job from one rank: rows in the order of the lines of each file."""

    files: dict[str, list[tuple[int, Row]]]

    @property
    def step_span_s(self) -> tuple[float, float]:
        """When the first of its steps was over, and the last, in seconds since 1970.

        Without a step both are such that no time lies between them.
        """
        rows = (row for lines in self.files.values() for _, row in lines)
        over_us = [time_us for event, _, time_us, _ in rows if event == "step"]
        first_us, last_us = min(over_us, default=math.inf), max(over_us, default=-math.inf)
        return first_us / MICROSECONDS_PER_SECOND, last_us / MICROSECONDS_PER_SECOND

    def ending_with(self, ends_us: Iterable[int]) -> JobRecord:
        """The record with what lies in the second after one of the ends of its attempts at the end.

        Accounting cuts an end to whole seconds. What begins there begins another attempt.

        Args:
            ends_us: those ends after which the time is of another job's attempt.
        """
        spans = [(end_us, end_us + MICROSECONDS_PER_SECOND) for end_us in ends_us]
        if not spans:
            return self

        def placed(row: Row) -> Row:
            event, step, time_us, duration_us = row
            if event not in GOING_ON:
                for end_us, until_us in spans:
                    if end_us < time_us < until_us:
                        return event, step, end_us, duration_us
            return row

        return JobRecord(
            {
                file_id: [(line, placed(row)) for line, row in rows]
                for file_id, rows in self.files.items()
            }
        )


def record_of_run(jobs: Iterable[JobRecord]) -> Sequence[Row]:
    """The records of a run's jobs as one, in the order in which things happened."""
    files: dict[str, list[tuple[int, Row]]] = {}
    for job in jobs:
        for file_id, lines in job.files.items():
            files.setdefault(file_id, []).extend(lines)
    # Jobs that follow each other may write to one file: its lines say in which order.
    return merged(
        in_order([row for _, row in sorted(lines, key=itemgetter(0))]) for lines in files.values()
    )


def with_cluster(progress: ibis.Table, attempts: ibis.Table) -> ibis.Table:
    """Progress of jobs whose cluster is known: named, or the only one that has a job of that id."""
    named = progress.filter(progress["job_id"].notnull())
    unnamed = named.filter(named["cluster"].isnull())
    if not first_row(unnamed.aggregate(rows=unnamed.count()))["rows"]:
        return named
    owners = attempts.group_by("job_id").aggregate(
        lambda t: t["cluster"].nunique().name("clusters"),
        lambda t: t["cluster"].min().name("only"),
    )
    joined = named.left_join(owners.filter(owners["clusters"] == 1), "job_id")
    found = joined.mutate(cluster=joined["cluster"].coalesce(joined["only"]))
    return found.filter(found["cluster"].notnull()).select(*named.columns)


def records_of_jobs(progress: ibis.Table, jobs: Iterable[JobKey]) -> dict[JobKey, JobRecord]:
    """Progress of each job that records steps, from the lowest rank that does.

    Args:
        progress: as `with_cluster` gives it.
        jobs: cluster and id of each.
    """
    wanted = sorted(jobs)
    keys = ibis.memtable(
        {"cluster": [key[0] for key in wanted], "job_id": [key[1] for key in wanted]},
        schema={"cluster": "string", "job_id": "string"},
    )
    mine = progress.semi_join(keys, ["cluster", "job_id"])
    # Without its step such an event says nothing about where the run is.
    mine = mine.filter(mine["step"].notnull() | ~mine["event"].isin(("step", "save", "restore")))
    steps = mine.filter(mine["event"] == "step")
    ranks = steps.group_by("cluster", "job_id").aggregate(rank=steps["rank"].min())
    columns = ("cluster", "job_id", "time", "event", "step", "duration_s", "file_id", "line")
    return records_of(fetch(mine.semi_join(ranks, ["cluster", "job_id", "rank"]), *columns))


def records_of(progress: pa.Table) -> dict[JobKey, JobRecord]:
    """Rows of `progress`, one rank of each job, as the records of the jobs."""
    order = ("cluster", "job_id", "file_id", "line")
    table = progress.sort_by([(name, "ascending") for name in order])
    rows = zip(
        table["event"].to_pylist(),
        table["step"].fill_null(0).to_pylist(),
        table["time"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist(),
        _microseconds(table["duration_s"]),
        strict=True,
    )
    records: dict[JobKey, JobRecord] = {}
    for cluster, job, file_id, line, row in zip(
        *(table[name].to_pylist() for name in order), rows, strict=True
    ):
        record = records.setdefault((cluster, job), JobRecord({}))
        record.files.setdefault(file_id, []).append((line, row))
    return records


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
        suspended_h=split.suspended_us / _US_PER_HOUR,
        other_h=split.idle_us / _US_PER_HOUR,
        productive_low_h=split.productive_low_us / _US_PER_HOUR,
        productive_high_h=split.productive_high_us / _US_PER_HOUR,
        at_risk_h=split.at_risk_us / _US_PER_HOUR,
        unrecorded_steps=split.unrecorded_steps,
        checkpoints=split.saves + split.restores,
        overlap_h=split.overlap_us / _US_PER_HOUR,
        clock_set_back=split.clock_set_back,
        outside_steps=split.outside_steps,
        open_steps=split.open_steps,
    )
