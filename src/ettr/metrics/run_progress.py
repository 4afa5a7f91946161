"""Where the scheduled time of one run went, as the training itself recorded it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ettr.estimates import Interval
from ettr.facts import Facts, made
from ettr.facts.files import Columns, Rows
from ettr.progress.events import LATEST_S
from ettr.progress.goodput import Row, in_order, merged
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

    `input_stall_h` is the part of `stall_h` that the rank waited for data.

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
    input_stall_h: float
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


@dataclass(frozen=True, slots=True)
class InputWaits:
    """Hours that a run waited for data, of several ranks the slowest at each step.

    `training_h` is the whole of which a wait is a share: time in steps, whatever became of them,
    and the waits. `stall` is that share: it ends where the hosts' waits do, and begins with those
    of which the device's idleness is known. `gpu_hours` are those of all GPUs of the run while it
    waited; None where no log names them. `epoch_start_h` of the waits are at starts of epochs and
    of workers; `evaluation_h` are apart, and no part of it.
    """

    stall: Interval
    wait_h: float
    training_h: float
    gpu_hours: float | None
    epoch_start_h: float
    evaluation_h: float
    n_ranks: int


def input_waits(
    split: ScheduledSplit, jobs: Iterable[Mapping[str, float]], gpus: float | None
) -> InputWaits | None:
    """What a run waited for data; None where its record does not say.

    Args:
        jobs: rows of the fact `input_waits`.
        gpus: GPU-hours a scheduled hour.
    """
    rows = list(jobs)
    steps_h = split.productive_h + split.redone_h + split.unsaved_h
    training_h = steps_h + split.input_stall_h
    if not rows or training_h <= 0:
        return None
    total = {
        name: sum(row[name] for row in rows) / SECONDS_PER_HOUR
        for name in ("wait_s", "sure_s", "begin_s", "evaluation_s")
    }
    # Ranks that wait in turns can wait longer, together, than one of them trained.
    wait_h = min(total["wait_s"], training_h)
    most, least = wait_h / training_h, min(total["sure_s"], wait_h) / training_h
    return InputWaits(
        stall=Interval(most, least, most),
        wait_h=wait_h,
        training_h=training_h,
        gpu_hours=None if gpus is None else wait_h * gpus,
        epoch_start_h=total["begin_s"],
        evaluation_h=total["evaluation_s"],
        n_ranks=max(int(row["n_ranks"]) for row in rows),
    )


def split_scheduled(
    rows: Iterable[Row], attempts: Iterable[ScheduledAttempt] | None, state: RunState
) -> ScheduledSplit | None:
    """Split the scheduled time of a run; None where the record holds no step within an attempt."""
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

    def ending_with(self, attempts: Sequence[ScheduledAttempt]) -> JobRecord:
        """The record with what lies in the second after the end of one of its attempts at the end.

        Accounting cuts an end to whole seconds. What an attempt of the job that began in that
        second can have done is of that one.
        """
        starts_us = sorted(one.start_us for one in attempts)
        ends_us = sorted(one.end_us for one in attempts)

        def placed(row: Row) -> Row:
            event, step, time_us, duration_us = row
            place = bisect_left(ends_us, time_us)
            if event in GOING_ON or not place:
                return row
            end_us = ends_us[place - 1]
            if time_us >= end_us + MICROSECONDS_PER_SECOND:
                return row
            after = bisect_left(starts_us, end_us)
            if starts_us[after : after + 1] and starts_us[after] <= time_us - (duration_us or 0):
                return row
            return event, step, end_us, duration_us

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


def records_of(lines: Columns) -> dict[JobKey, JobRecord]:
    """Lines of `progress`, one rank of each job, as the records of the jobs."""
    duration_s = lines["duration_s"].astype(np.float64)
    known = np.clip(np.nan_to_num(duration_s), 0.0, LATEST_S)
    # to the microsecond, as `ettr.progress.events.microseconds` rounds
    lasted = np.rint(known * MICROSECONDS_PER_SECOND).astype(np.int64).tolist()
    rows = zip(
        lines["event"].tolist(),
        np.nan_to_num(lines["step"].astype(np.float64)).astype(np.int64).tolist(),
        lines["time_us"].astype(np.int64).tolist(),
        [None if absent else n for n, absent in zip(lasted, np.isnan(duration_s), strict=True)],
        strict=True,
    )
    records: dict[JobKey, JobRecord] = {}
    order = (lines[name].tolist() for name in ("cluster", "job_id", "file_id", "line"))
    for cluster, job, file_id, line, row in zip(*order, rows, strict=True):
        record = records.setdefault((cluster, job), JobRecord({}))
        record.files.setdefault(file_id, []).append((line, row))
    return records


@made("run_progress", (), reads=("progress_owned", "progress_recorded"), takes=("of_record",))
def _run_progress(facts: Facts) -> str:
    """Lines of progress of the jobs of runs."""
    return facts.table(f"progress_{'recorded' if facts.given('of_record') else 'owned'}")


@made(
    "recorded_runs",
    (("run_id", "VARCHAR"), ("cluster", "VARCHAR")),
    reads=("progress_runs",),
    takes=("selection", "since_us", "until_us"),
)
def _recorded_runs(facts: Facts) -> Rows:
    """The runs of progress that ended in the selected period, on the selected clusters.

    Records name no partition, account, user or QOS and no nodes: none are of a selection by those.
    """
    chosen = facts.given("selection")
    if chosen.of_nodes or chosen.of_jobs.keys() - {"cluster"}:
        return []
    runs = [
        row
        for row in facts.rows("progress_runs")
        if not chosen.cluster or row["cluster"] in chosen.cluster
    ]
    last_us: dict[str, int] = {}
    for row in runs:
        last_us[row["run_id"]] = max(row["last_us"], last_us.get(row["run_id"], row["last_us"]))
    since_us, until_us = facts.given("since_us"), facts.given("until_us")
    return [
        (row["run_id"], row["cluster"])
        for row in runs
        if (since_us is None or last_us[row["run_id"]] >= since_us)
        and (until_us is None or last_us[row["run_id"]] < until_us)
    ]


def _in_hours(split: WallClockSplit) -> ScheduledSplit:
    return ScheduledSplit(
        productive_h=split.productive_us / _US_PER_HOUR,
        redone_h=split.redone_us / _US_PER_HOUR,
        unsaved_h=split.unsaved_us / _US_PER_HOUR,
        save_h=split.save_us / _US_PER_HOUR,
        restore_h=split.restore_us / _US_PER_HOUR,
        restart_h=split.restart_us / _US_PER_HOUR,
        stall_h=split.stall_us / _US_PER_HOUR,
        input_stall_h=split.input_stall_us / _US_PER_HOUR,
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
