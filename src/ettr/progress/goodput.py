"""Goodput and ETTR of one run, live or from its file.

`ettr.progress.split` defines the buckets. A live `Goodput` takes the run to be running: steps that
are not saved yet are productive, and `at_risk_s` says how much of it a failure now would lose. A
file is read as that of a run that is over: where its last word is not an `end` event, the steps
after the last save are lost (`unsaved_s`), as in `ettr runs`. `state` says otherwise in both.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from heapq import merge
from itertools import pairwise
from typing import Any

from ettr.errors import SourceError
from ettr.progress.events import (
    MAX_STEP,
    ProgressEvent,
    microseconds,
    name_in_split,
    read_progress,
)
from ettr.progress.split import RunState, WallClockSplit, WallClockSplitter
from ettr.progress.timeline import FOREVER_US
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class GoodputSplit:
    """Where the wall clock of a run went, in seconds; the parts add up to `wall_s`.

    The parts are those from `productive_s` to `idle_s`. `redone_s` went into steps that the run
    went back behind, `unsaved_s` into steps after the last save of a run that ended without
    completing. `at_risk_s` is a part of `productive_s`, `first_start_s` the part of `restart_s`
    before the very first step. `input_stall_s` is the part of `stall_s` that waited for data,
    `input_open_s` of it an upper bound, since a device may have worked meanwhile.

    `productive_low_s` and `productive_high_s` bound the productive time; they are equal to it where
    every step has a line with a duration, no two overlap, and the record says what was saved.
    `unlogged_s` of `restart_s` may have been finished steps that were redone: a log of Google's
    does not say of the step in flight at a disruption. That is an estimate; `unlogged_high_s` is
    the most that it can be. `assumed_steps` were finished in such a gap, and took some of it.

    Where the clock was set back, `wall_s` is the least that the wall clock can be and `wall_high_s`
    is infinite; so is `productive_high_s` where steps of unknown length ran in that time. `notes`
    say in words what is open, and why. The counts at the end say what was odd about
    the record, as in `WallClockSplit`.
    """

    wall_s: float
    wall_high_s: float
    productive_s: float
    redone_s: float
    unsaved_s: float
    save_s: float
    restore_s: float
    stall_s: float
    input_stall_s: float
    input_open_s: float
    restart_s: float
    idle_s: float
    productive_low_s: float
    productive_high_s: float
    at_risk_s: float
    overlap_s: float
    first_start_s: float
    unlogged_s: float
    unlogged_high_s: float
    steps: int
    redone_steps: int
    unsaved_steps: int
    unrecorded_steps: int
    saves: int
    restores: int
    restarts: int
    repeats: int
    out_of_order: int
    clock_set_back: int
    assumed_steps: int
    input_waits: int
    notes: tuple[str, ...]

    @property
    def goodput(self) -> float:
        """Productive share of the wall clock, from 0 to 1; 0 where no time has passed.

        Where the clock was set back, that of the least wall clock.
        """
        return self.productive_s / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def goodput_band(self) -> tuple[float, float]:
        """The least and the largest goodput that the record allows."""
        if self.wall_s <= 0:
            return 0.0, 1.0 if self.productive_high_s > 0 else 0.0
        high = min(self.productive_high_s / self.wall_s, 1.0)
        return self.productive_low_s / self.wall_high_s, high

    @property
    def input_stall(self) -> tuple[float, float, float] | None:
        """Share of the training time that waited for data: estimate, low, high; None: not measured.

        Training time is that in steps, whatever became of them, and the waits.
        """
        training_s = self.productive_s + self.redone_s + self.unsaved_s + self.input_stall_s
        if not self.input_waits or training_s <= 0:
            return None
        most = self.input_stall_s / training_s
        return most, (self.input_stall_s - self.input_open_s) / training_s, most

    @property
    def lost_s(self) -> float:
        """Seconds that were not productive."""
        return self.wall_s - self.productive_s

    def ettr(self, queue_s: float = 0.0) -> float:
        """Effective training time ratio: productive over wall clock and time in the queue.

        Args:
            queue_s: seconds that the run waited in the scheduler's queue, which a process inside
                the job cannot see.
        """
        available_s = self.wall_s + queue_s
        return self.productive_s / available_s if available_s > 0 else 0.0


class Goodput:
    """Follows the events of one rank, in the order in which they happened."""

    def __init__(self) -> None:
        self._splitter = WallClockSplitter()
        self._unlogged = _Unlogged()

    def add(self, event: ProgressEvent) -> None:
        """Take one event.

        Raises:
            SourceError: its time or duration is not finite, or its step has more than 64 bits.
        """
        bounds_us = None
        if event.detail:
            self._unlogged += _unlogged(event)
            bounds_us = _bounds_us(event)
        self._splitter.add(*_row(event), bounds_us)

    def split(self, state: RunState = RunState.RUNNING) -> GoodputSplit:
        """Where the time went, up to the last event."""
        return _in_seconds(self._splitter.split(state), self._unlogged)


def goodput_of_events(
    events: Iterable[ProgressEvent],
    rank: int | None = None,
    *,
    state: RunState = RunState.INTERRUPTED,
) -> GoodputSplit:
    """Split of the events of one rank, which may repeat and stand in any order.

    Args:
        rank: whose events; None: the lowest rank that records steps, else the lowest.
        state: how the run stands after the last event. A run whose last word is an `end` event has
            completed, whatever is given.

    Raises:
        SourceError: there is no event of that rank, the events are of several runs, or as
            `Goodput.add`.
    """
    kept = list(events)
    ranks = {event.rank for event in kept}
    runs = sorted({event.run for event in kept})
    if len(runs) > 1:
        raise SourceError(f"events of {len(runs)} runs ({', '.join(runs)}); give those of one run")
    chosen = rank
    if chosen is None:
        stepping = {event.rank for event in kept if event.event == "step"}
        chosen = min(stepping or ranks, default=0)
    if chosen not in ranks:
        have = ", ".join(str(r) for r in sorted(ranks)) or "none"
        raise SourceError(f"no events of rank {chosen}; there are events of ranks: {have}")
    mine = [event for event in kept if event.rank == chosen]
    rows = [_row(event) for event in mine]
    ordered = in_order(rows)
    splitter = WallClockSplitter()
    assumed = {
        row[:3]: bounds_us
        for row, event in zip(rows, mine, strict=True)
        if event.detail and (bounds_us := _bounds_us(event)) is not None
    }
    for row in ordered:
        splitter.add(*row, assumed.get(row[:3]))
    split = splitter.split(state)
    split = replace(split, repeats=split.repeats + len(rows) - len(ordered))
    return _in_seconds(split, sum(map(_unlogged, mine), _Unlogged()))


def goodput_of_file(
    path: str | os.PathLike[str], rank: int | None = None, *, state: RunState = RunState.INTERRUPTED
) -> GoodputSplit:
    """Split of a progress file, as `goodput_of_events`.

    Where the run still goes on, give `RunState.RUNNING`.

    Raises:
        SourceError: the file cannot be read, or holds no event of that rank.
    """
    return goodput_of_events(read_progress(path), rank, state=state)


def _row(event: ProgressEvent) -> Row:
    if abs(event.step) > MAX_STEP:
        raise SourceError(f"step: {event.step} was given; give one below {MAX_STEP}")
    duration_us = None
    if event.duration_s is not None:
        duration_us = max(microseconds(event.duration_s), 0)
    return name_in_split(event), event.step, microseconds(event.time_s), duration_us


@dataclass(frozen=True, slots=True)
class _Unlogged:
    """Time of steps that the log does not name: an estimate, and the most."""

    seconds: float = 0.0
    high_s: float = 0.0

    def __add__(self, other: _Unlogged) -> _Unlogged:
        return _Unlogged(self.seconds + other.seconds, self.high_s + other.high_s)


def _unlogged(event: ProgressEvent) -> _Unlogged:
    seconds = event.detail.get("unlogged_s")
    if not isinstance(seconds, int | float):
        return _Unlogged()
    most_s = event.detail.get("unlogged_high_s", seconds)
    return _Unlogged(float(seconds), math.inf if most_s is None else float(most_s))


def _bounds_us(event: ProgressEvent) -> tuple[int, int] | None:
    """The least and the most that a step took whose duration is assumed."""
    if event.event != "step" or not {"assumed", "least_s", "most_s"} <= event.detail.keys():
        return None
    most_s = event.detail["most_s"]
    most_us = FOREVER_US if most_s is None else microseconds(most_s)
    return microseconds(event.detail["least_s"]), most_us


def _in_seconds(split: WallClockSplit, unlogged: _Unlogged) -> GoodputSplit:
    values: dict[str, Any] = {
        "unlogged_s": unlogged.seconds,
        "unlogged_high_s": unlogged.high_s,
        "wall_high_s": math.inf
        if split.clock_set_back
        else split.wall_us / MICROSECONDS_PER_SECOND,
        "notes": tuple(_notes(split, unlogged)),
    }
    if split.open_steps and split.clock_set_back:
        values["productive_high_s"] = math.inf
    for name in (item.name for item in fields(GoodputSplit) if item.name not in values):
        if name.endswith("_s"):
            values[name] = getattr(split, f"{name[:-2]}_us") / MICROSECONDS_PER_SECOND
        else:
            values[name] = getattr(split, name)
    return GoodputSplit(**values)


def _notes(split: WallClockSplit, unlogged: _Unlogged) -> Iterator[str]:
    if split.clock_set_back:
        yield (
            f"The clock went back, {split.clock_set_back} x: the time that passed there is not "
            "known, and nothing bounds it. wall_s is the least wall clock, and the low end of the "
            "goodput is 0."
        )
        if split.open_steps:
            yield (
                "Steps of unknown length ran where the clock went back: the high end of the "
                "goodput is 1."
            )
    if split.assumed_steps:
        yield (
            f"Steps that were in flight at a disruption and were finished: {split.assumed_steps}. "
            "When, the log does not say: the estimate takes each to be as long as the step before, "
            "the band holds everything from 0 s to the whole gap."
        )
    if unlogged.high_s > 0:
        most = f"up to {unlogged.high_s:.6g} s of the restart time"
        if math.isinf(unlogged.high_s):
            most = "any time up to that of the restart, which is not known,"
        yield (
            "Of a step that was in flight at a disruption and done again later the log does not "
            f"say whether it was finished: {most} may be redone time, {unlogged.seconds:.6g} s by "
            "the longest of the last ten steps."
        )


# How rows of one moment follow each other, where the order of the lines says nothing; others, of 0,
# stay as they stand. A job of Google's log starts before its steps; a step with a duration began
# before a start of its moment; nothing follows an end.
_AT_ONE_MOMENT = {
    "job_start_time": -1,
    "start": 1,
    "restart": 1,
    "restore": 2,
    "end": 4,
    "job_end_time": 4,
}
_STEP_WITHOUT_DURATION = 3

# event, step, time and duration in microseconds, as `WallClockSplitter.add` takes them
Row = tuple[str, int, int, int | None]


def in_order(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows of one file in the order in which they happened, each once.

    Where the times do not rise, rows that repeat another are left out. Of the order of the lines
    and that of the times the one is taken in which fewer steps go back behind others; the first,
    where both have the same.
    """
    if _rises(rows):
        return rows
    first: dict[tuple[str, int, int], Row] = {}
    for row in rows:
        first.setdefault(row[:3], row)
    once = list(first.values())
    if _rises(once):
        return once
    by_time = sorted(once, key=_time_and_kind)
    return by_time if _steps_back(by_time) < _steps_back(once) else once


def merged(files: Iterable[Sequence[Row]]) -> Sequence[Row]:
    """Rows of several files, each in its order, as one record in order of time.

    A file whose clock was set back goes on from the latest time before that.
    """
    whole = [file for file in files if file]
    if len(whole) == 1:
        return whole[0]
    dated = merge(*(_latest_so_far(file) for file in whole), key=lambda pair: pair[0])
    return [row for _, row in dated]


def _time_and_kind(row: Row) -> tuple[int, int]:
    event, _, time_us, duration_us = row
    if event == "step" and not duration_us:
        return time_us, _STEP_WITHOUT_DURATION
    return time_us, _AT_ONE_MOMENT.get(event.split(" ", 1)[0], 0)


def _rises(rows: Sequence[Row]) -> bool:
    return all(earlier[2] <= later[2] for earlier, later in pairwise(rows))


def _steps_back(rows: Iterable[Row]) -> int:
    """Steps with a number that was reached before."""
    count, reached = 0, -(1 << 64)
    for event, step, *_ in rows:
        if event == "step":
            count += step <= reached
            reached = max(reached, step)
    return count


def _latest_so_far(rows: Iterable[Row]) -> Iterable[tuple[int, Row]]:
    latest_us = -(1 << 64)
    for row in rows:
        latest_us = max(latest_us, row[2])
        yield latest_us, row
