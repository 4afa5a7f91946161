"""Goodput and ETTR of one run, live or from its file.

`ettr.progress.split` defines the buckets. A live `Goodput` takes the run to be running: steps that
are not saved yet are productive, and `at_risk_s` says how much of it a failure now would lose. A
file is read as that of a run that is over: where its last word is not an `end` event, the steps
after the last save are lost (`unsaved_s`), as in `ettr runs`. `state` says otherwise in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ettr.errors import SourceError
from ettr.progress.events import MAX_STEP, ProgressEvent, microseconds, read_progress
from ettr.progress.split import RunState, WallClockSplit, WallClockSplitter
from ettr.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class GoodputSplit:
    """Where the wall clock of a run went, in seconds; the parts add up to `wall_s`.

    `redone_s` went into steps that the run went back behind, `unsaved_s` into steps after the last
    save of a run that ended without completing. `at_risk_s` is a part of `productive_s`.
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
    at_risk_s: float
    steps: int
    redone_steps: int
    unsaved_steps: int
    restarts: int
    out_of_order: int

    @property
    def goodput(self) -> float:
        """Productive share of the wall clock, from 0 to 1; 0 where no time has passed."""
        return self.productive_s / self.wall_s if self.wall_s > 0 else 0.0

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

    def add(self, event: ProgressEvent) -> None:
        """Take one event.

        Raises:
            SourceError: its time or duration is not finite, or its step has more than 64 bits.
        """
        if abs(event.step) > MAX_STEP:
            raise SourceError(f"step: {event.step} was given; it lies below {MAX_STEP}")
        duration_us = None
        if event.duration_s is not None:
            duration_us = max(microseconds(event.duration_s), 0)
        self._splitter.add(event.event, event.step, microseconds(event.time_s), duration_us)

    def split(self, state: RunState = RunState.RUNNING) -> GoodputSplit:
        """Where the time went, up to the last event.

        Args:
            state: whether the run goes on, has completed, or has ended otherwise.
        """
        return _in_seconds(self._splitter.split(state))


def goodput_of_events(
    events: Iterable[ProgressEvent],
    rank: int | None = None,
    *,
    state: RunState = RunState.INTERRUPTED,
) -> GoodputSplit:
    """Split of the events of one rank.

    Args:
        rank: whose events; None: the lowest rank that has any.
        state: how the run stands after the last event. A run whose last word is an `end` event has
            completed, whatever is given.

    Raises:
        SourceError: there is no event of that rank, or the events are of several runs.
    """
    kept = list(events)
    ranks = {event.rank for event in kept}
    runs = sorted({event.run for event in kept})
    if len(runs) > 1:
        raise SourceError(f"events of {len(runs)} runs ({', '.join(runs)}); give those of one run")
    chosen = min(ranks, default=0) if rank is None else rank
    if chosen not in ranks:
        have = ", ".join(str(r) for r in sorted(ranks)) or "none"
        raise SourceError(f"no events of rank {chosen}; there are events of ranks: {have}")
    tracker = Goodput()
    for event in kept:
        if event.rank == chosen:
            tracker.add(event)
    return tracker.split(state)


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


def _in_seconds(split: WallClockSplit) -> GoodputSplit:
    return GoodputSplit(
        wall_s=split.wall_us / MICROSECONDS_PER_SECOND,
        productive_s=split.productive_us / MICROSECONDS_PER_SECOND,
        redone_s=split.redone_us / MICROSECONDS_PER_SECOND,
        unsaved_s=split.unsaved_us / MICROSECONDS_PER_SECOND,
        save_s=split.save_us / MICROSECONDS_PER_SECOND,
        restore_s=split.restore_us / MICROSECONDS_PER_SECOND,
        stall_s=split.stall_us / MICROSECONDS_PER_SECOND,
        restart_s=split.restart_us / MICROSECONDS_PER_SECOND,
        idle_s=split.idle_us / MICROSECONDS_PER_SECOND,
        at_risk_s=split.at_risk_us / MICROSECONDS_PER_SECOND,
        steps=split.steps,
        redone_steps=split.redone_steps,
        unsaved_steps=split.unsaved_steps,
        restarts=split.restarts,
        out_of_order=split.out_of_order,
    )
