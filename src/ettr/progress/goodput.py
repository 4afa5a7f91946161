"""Goodput and ETTR of one run, live or from its file: every microsecond in exactly one bucket.

The wall clock runs from the first event (less its duration) to the last. The time between two
events belongs to the later one, up to that event's own duration; the rest is idle, or restart
where the later event says that the run began anew. A step takes the idle time that its duration
covers, so that a save told within a step splits it exactly. A step whose result was lost (the run
went back behind it, or did it again) counts as redone, not as productive. Sums are kept in whole
microseconds, so that the split is exact. Standard library only.

**Source**: ETTR as productive time over available wall-clock time, Kokolis et al. (2025), HPCA,
section II; the causes of loss are this package's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ettr.errors import SourceError
from ettr.progress.recorder import ProgressEvent, read_progress

_MICROSECONDS = 1_000_000
_BEGINS_ANEW = ("start", "restart")


@dataclass(frozen=True, slots=True)
class GoodputSplit:
    """Where the wall clock of a run went, in seconds; the parts add up to `wall_s`."""

    wall_s: float
    productive_s: float
    redone_s: float
    save_s: float
    restore_s: float
    stall_s: float
    restart_s: float
    idle_s: float
    steps: int
    redone_steps: int
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
        self._spent = dict.fromkeys(
            ("productive", "redone", "save", "restore", "stall", "restart", "idle"), 0
        )
        self._of_step: dict[int, int] = {}
        self._first: int | None = None
        self._last = 0
        self._furthest = -1
        self._redone_steps = self._restarts = self._out_of_order = 0
        self._idle: list[tuple[int, int]] = []  # idle times since the last step
        self._anew = True

    def add(self, event: ProgressEvent) -> None:
        """Take one event; one that is older than the last is counted, its time is already told."""
        now = round(event.time_s * _MICROSECONDS)
        if self._first is None:
            length = round((event.duration_s or 0.0) * _MICROSECONDS)
            self._first = self._last = now - max(length, 0)
        # Events of a restart in a row (start, initialisation, group re-formed) are one restart.
        anew = event.event in _BEGINS_ANEW
        self._restarts += anew and not self._anew
        self._anew = anew
        self._out_of_order += now < self._last
        before, gap = self._last, max(now - self._last, 0)
        self._last = max(now, self._last)
        own = self._own_time(event, gap)
        self._spent["restart" if anew else "idle"] += gap - own
        if not anew and gap > own:
            self._idle.append((before, before + gap - own))
        if event.event == "step":
            self._do_step(event.step, own + self._idle_within(event, now))
            return
        if event.event in self._spent:
            self._spent[event.event] += own
        elif event.event == "start":
            self._spent["restart"] += own
        else:
            self._spent["idle"] += own
        if event.event == "restore":
            self._go_back_to(event.step)

    def split(self) -> GoodputSplit:
        """Where the time went, up to the last event."""
        seconds = {name: spent / _MICROSECONDS for name, spent in self._spent.items()}
        wall = 0 if self._first is None else self._last - self._first
        return GoodputSplit(
            wall_s=wall / _MICROSECONDS,
            productive_s=seconds["productive"],
            redone_s=seconds["redone"],
            save_s=seconds["save"],
            restore_s=seconds["restore"],
            stall_s=seconds["stall"],
            restart_s=seconds["restart"],
            idle_s=seconds["idle"],
            steps=len(self._of_step),
            redone_steps=self._redone_steps,
            restarts=self._restarts,
            out_of_order=self._out_of_order,
        )

    @staticmethod
    def _own_time(event: ProgressEvent, gap: int) -> int:
        if event.duration_s is None:
            # A step without a duration took the time since the event before it.
            return gap if event.event == "step" else 0
        return min(gap, max(round(event.duration_s * _MICROSECONDS), 0))

    def _idle_within(self, event: ProgressEvent, now: int) -> int:
        # A save or a stall within a step is told before the step is: what lay idle around it
        # was the step's own time.
        if not self._idle:
            return 0
        begin = now - max(round((event.duration_s or 0.0) * _MICROSECONDS), 0)
        inside = sum(max(end - max(start, begin), 0) for start, end in self._idle)
        self._idle.clear()
        self._spent["idle"] -= inside
        return inside

    def _do_step(self, step: int, spent: int) -> None:
        if step <= self._furthest:
            self._lose(step)
        else:
            self._furthest = step
        self._of_step[step] = spent
        self._spent["productive"] += spent

    def _go_back_to(self, step: int) -> None:
        lost: Iterable[int] = range(step + 1, self._furthest + 1)
        if self._furthest - step > len(self._of_step):  # a file may hold any number
            lost = [done for done in self._of_step if done > step]
        for number in lost:
            self._lose(number)
        self._furthest = min(self._furthest, step)

    def _lose(self, step: int) -> None:
        spent = self._of_step.pop(step, None)
        if spent is not None:
            self._spent["productive"] -= spent
            self._spent["redone"] += spent
            self._redone_steps += 1


def goodput(events: Iterable[ProgressEvent], rank: int | None = None) -> GoodputSplit:
    """Split of the events of one rank.

    Args:
        rank: whose events; None: the lowest rank that has any.

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
    return tracker.split()


def goodput_of_file(path: str | os.PathLike[str], rank: int | None = None) -> GoodputSplit:
    """Split of a progress file, as `goodput`.

    Raises:
        SourceError: the file cannot be read, or holds no event of that rank.
    """
    return goodput(read_progress(path), rank)
