"""Goodput and ETTR of one run, live or from its file.

`ettr.progress.split` defines the buckets. A live `Goodput` takes the run to be running: steps that
are not saved yet are productive, and `at_risk_s` says how much of it a failure now would lose. A
file is read as that of a run that is over: where its last word is not an `end` event, the steps
after the last save are lost (`unsaved_s`), as in `ettr runs`. `state` says otherwise in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ettr.errors import SourceError
from ettr.progress.events import MAX_STEP, ProgressEvent, microseconds, read_progress
from ettr.progress.order import Row, in_order
from ettr.progress.split import RunState, WallClockSplit, WallClockSplitter
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class GoodputSplit:
    """Where the wall clock of a run went, in seconds; the parts add up to `wall_s`.

    The parts are those from `productive_s` to `idle_s`. `redone_s` went into steps that the run
    went back behind, `unsaved_s` into steps after the last save of a run that ended without
    completing. `at_risk_s` is a part of `productive_s`, `first_start_s` the part of `restart_s`
    before the very first step.

    `productive_low_s` and `productive_high_s` bound the productive time; they are equal to it where
    every step has a line with a duration, no two overlap, and the record says what was saved.
    `unlogged_s` of `restart_s` may have been finished steps that were redone: a log of Google's
    does not say of the step in flight at a disruption. The counts at the end say what was odd about
    the record, as in `WallClockSplit`.
    """

    wall_s: float
    productive_s: float
    redone_s: float
    unsaved_s: float
    save_s: float
    restore_s: float
    stall_s: float
    restart_s: float
    idle_s: float
    productive_low_s: float
    productive_high_s: float
    at_risk_s: float
    overlap_s: float
    first_start_s: float
    unlogged_s: float
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

    @property
    def goodput(self) -> float:
        """Productive share of the wall clock, from 0 to 1; 0 where no time has passed."""
        return self.productive_s / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def goodput_band(self) -> tuple[float, float]:
        """The least and the largest goodput that the record allows."""
        if self.wall_s <= 0:
            return 0.0, 0.0
        return self.productive_low_s / self.wall_s, self.productive_high_s / self.wall_s

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
        self._unlogged_s = 0.0

    def add(self, event: ProgressEvent) -> None:
        """Take one event.

        Raises:
            SourceError: its time or duration is not finite, or its step has more than 64 bits.
        """
        if event.detail:
            self._unlogged_s += _unlogged_s(event)
        self._splitter.add(*_row(event))

    def split(self, state: RunState = RunState.RUNNING) -> GoodputSplit:
        """Where the time went, up to the last event.

        Args:
            state: whether the run goes on, has completed, or has ended otherwise.
        """
        return _in_seconds(self._splitter.split(state), self._unlogged_s)


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
    for row in ordered:
        splitter.add(*row)
    split = splitter.split(state)
    split = replace(split, repeats=split.repeats + len(rows) - len(ordered))
    return _in_seconds(split, sum(map(_unlogged_s, mine)))


def goodput_of_file(
    path: str | os.PathLike[str],
    rank: int | None = None,
    *,
    state: RunState = RunState.INTERRUPTED,
) -> GoodputSplit:
    """Split of a progress file, as `goodput_of_events`.

    Where the run still goes on, give `RunState.RUNNING`.

    Raises:
        SourceError: the file cannot be read, or holds no event of that rank.
    """
    return goodput_of_events(read_progress(path), rank, state=state)


def _row(event: ProgressEvent) -> Row:
    if abs(event.step) > MAX_STEP:
        raise SourceError(f"step: {event.step} was given; it lies below {MAX_STEP}")
    duration_us = None
    if event.duration_s is not None:
        duration_us = max(microseconds(event.duration_s), 0)
    return event.event, event.step, microseconds(event.time_s), duration_us


def _unlogged_s(event: ProgressEvent) -> float:
    seconds = event.detail.get("unlogged_s", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def _in_seconds(split: WallClockSplit, unlogged_s: float) -> GoodputSplit:
    values: dict[str, Any] = {"unlogged_s": unlogged_s}
    for name in (item.name for item in fields(GoodputSplit) if item.name not in values):
        if name.endswith("_s"):
            values[name] = getattr(split, f"{name[:-2]}_us") / MICROSECONDS_PER_SECOND
        else:
            values[name] = getattr(split, name)
    return GoodputSplit(**values)
