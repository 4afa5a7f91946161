"""The split of a run's wall clock: every microsecond in exactly one bucket.

There is one definition, for a live run, for a file and for `ettr runs`:

- An event takes the time that its duration covers, as far as no event before it took it; a save
  within a step thus splits the step. A step without a duration takes the time since the event
  before it.
- Time that no event takes is `restart` before a `start` or `restart`, and from there (or from the
  begin of the record or of an attempt) up to the first step; else it is `idle`.
- A step is `redone` once the run goes back behind it: a restore of a lower step, or a step of the
  same or a lower number.
- A step is `unsaved` if it lies after the last save or restore of a run that ended without
  completing. While the run lasts such steps are productive, and at risk.

With the times of the scheduler's attempts, the wall clock is their time and no other; without, it
runs from the first event, less its duration, to the last. Sums are kept in whole microseconds.
Standard library only.

**Source**: ETTR as productive time over available wall-clock time, Kokolis et al. (2025), HPCA,
section II; the causes of loss are this package's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ettr.progress.kept_steps import KeptSteps

_BEGINNINGS = ("start", "restart")
_FOREVER_US = 1 << 63
_NOTHING_SAVED = -(1 << 63)
# so many gaps may wait for an event whose duration covers them; older ones are settled
_WAITING_GAPS = 64


class RunState(StrEnum):
    """How a run stands where its record stops: it decides about the steps that were not saved.

    A record whose last word is an `end` event is of a completed run, whatever is given.
    """

    RUNNING = "running"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WallClockSplit:
    """Where the wall clock went, in microseconds; all but the at-risk part add up to `wall_us`.

    `at_risk_us` is the part of `productive_us` that a failure now would lose.
    """

    wall_us: int
    productive_us: int
    redone_us: int
    unsaved_us: int
    save_us: int
    restore_us: int
    stall_us: int
    restart_us: int
    idle_us: int
    at_risk_us: int
    steps: int
    redone_steps: int
    unsaved_steps: int
    restarts: int
    out_of_order: int


class WallClockSplitter:
    """Takes the events of one rank as they happened; `split` may be asked for at any time.

    Args:
        attempts_us: start and end of each scheduled attempt, in microseconds since 1970; None:
            not known. Where attempts overlap, the time belongs to the first, and counts as idle in
            the second.
    """

    def __init__(self, attempts_us: Iterable[tuple[int, int]] | None = None) -> None:
        self._timeline = None if attempts_us is None else _Timeline(attempts_us)
        self._spent = dict.fromkeys(("save", "restore", "stall", "restart", "idle", "redone"), 0)
        self._kept = KeptSteps()
        self._saved = _NOTHING_SAVED
        self._first_us = self._last_us = 0
        self._redone_steps = self._restarts = self._out_of_order = 0
        self._beginning, self._ended = True, False

    def add(self, event: str, step: int, time_us: int, duration_us: int | None = None) -> None:
        """Take one event of `EVENTS`, that was over at `time_us`.

        One that is older than the event before takes only what is left of the time until then.

        Raises:
            OverflowError: a step or a time does not fit into 64 bits.
        """
        timeline = self._timeline
        if timeline is None:
            begin_us = time_us - (duration_us or 0)
            self._first_us = self._last_us = begin_us
            timeline = self._timeline = _Timeline([(begin_us, _FOREVER_US)])
        if time_us < self._last_us:
            self._out_of_order += 1
        begins = event in _BEGINNINGS
        before_us = self._last_us
        if time_us > before_us:
            self._last_us = time_us
            timeline.advance(time_us, self._spent)
        if duration_us is None:
            own_us = timeline.take(before_us, time_us) if event == "step" else 0
        else:
            own_us = timeline.take(time_us - duration_us, time_us)
        if begins:
            timeline.begin(before_us, self._spent)
            self._restarts += not self._beginning
        self._beginning = begins
        if event == "step":
            timeline.settle(self._spent)
            self._do_step(step, own_us)
        else:
            self._do_other(event, step, own_us)

    def split(self, state: RunState = RunState.RUNNING) -> WallClockSplit:
        """Where the time went, up to the last event or the end of the last attempt."""
        spent = dict(self._spent)
        wall_us = 0
        if self._timeline is not None:
            wall_us = self._timeline.close(self._last_us, spent)
        exposed, exposed_us = (0, 0) if self._ended else self._kept.above(self._saved)
        if state is RunState.COMPLETED:
            exposed = exposed_us = 0
        lost = state is RunState.INTERRUPTED
        return WallClockSplit(
            wall_us=wall_us,
            productive_us=self._kept.total_us - (exposed_us if lost else 0),
            redone_us=spent["redone"],
            unsaved_us=exposed_us if lost else 0,
            save_us=spent["save"],
            restore_us=spent["restore"],
            stall_us=spent["stall"],
            restart_us=spent["restart"],
            idle_us=spent["idle"],
            at_risk_us=0 if lost else exposed_us,
            steps=len(self._kept) - (exposed if lost else 0),
            redone_steps=self._redone_steps,
            unsaved_steps=exposed if lost else 0,
            restarts=self._restarts,
            out_of_order=self._out_of_order,
        )

    def _do_step(self, step: int, own_us: int) -> None:
        last = self._kept.last
        if last is not None and step <= last:
            self._go_back_to(step - 1)
            self._saved = min(self._saved, step - 1)
        self._kept.append(step, own_us)
        self._ended = False

    def _do_other(self, event: str, step: int, own_us: int) -> None:
        if event == "save":
            self._saved = max(self._saved, step)
        elif event == "restore":
            # What was restored can be restored again, and what was saved later is of another past.
            self._go_back_to(step)
            self._saved = step
        bucket = {"start": "restart", "end": "idle"}.get(event, event)
        self._spent[bucket] += own_us
        self._ended = event == "end" or (self._ended and event in ("save", "stall"))

    def _go_back_to(self, step: int) -> None:
        lost, lost_us = self._kept.drop_above(step)
        self._redone_steps += lost
        self._spent["redone"] += lost_us


class _Timeline:
    """The time of the attempts up to the last event: what of it no event has taken yet."""

    def __init__(self, attempts_us: Iterable[tuple[int, int]]) -> None:
        self._attempts: list[tuple[int, int]] = []
        self._shared_us = 0
        free_us = -_FOREVER_US
        for start_us, given_end_us in sorted(attempts_us):
            end_us = max(given_end_us, start_us)
            clipped_us = max(start_us, free_us)
            self._shared_us += min(clipped_us, end_us) - start_us
            if end_us > clipped_us:
                self._attempts.append((clipped_us, end_us))
                free_us = end_us
        self._next = 0
        self._at_us = self._end_us = -_FOREVER_US
        self._gaps: list[tuple[int, int]] = []
        self._starting = True

    def advance(self, time_us: int, spent: dict[str, int]) -> None:
        """Go on to `time_us`, over the ends of attempts."""
        while self._next < len(self._attempts) and self._attempts[self._next][0] <= time_us:
            self._gap_up_to(self._end_us)
            self.settle(spent)
            self._at_us, self._end_us = self._attempts[self._next]
            self._next += 1
            self._starting = True
        self._gap_up_to(min(time_us, self._end_us))
        if len(self._gaps) > _WAITING_GAPS:
            self._settle_gaps(self._gaps[:-1], spent)
            del self._gaps[:-1]

    def take(self, begin_us: int, end_us: int) -> int:
        """Take what is free between the two times: its length."""
        gaps, taken_us, place = self._gaps, 0, len(self._gaps)
        while place and gaps[place - 1][1] > begin_us:
            place -= 1
            low_us, high_us = gaps[place]
            first_us, last_us = max(low_us, begin_us), min(high_us, end_us)
            if first_us < last_us:
                taken_us += last_us - first_us
                left = ((low_us, first_us), (last_us, high_us))
                gaps[place : place + 1] = [gap for gap in left if gap[0] < gap[1]]
        return taken_us

    def begin(self, since_us: int, spent: dict[str, int]) -> None:
        """The run begins again: what is free since the event before is restart, and what follows.

        What was free earlier is settled as it was.
        """
        self._settle_gaps([gap for gap in self._gaps if gap[0] < since_us], spent)
        self._gaps = [gap for gap in self._gaps if gap[0] >= since_us]
        self._starting = True

    def settle(self, spent: dict[str, int]) -> None:
        """A step or an attempt is over: nothing later takes what is free until then."""
        self._settle_gaps(self._gaps, spent)
        self._gaps = []
        self._starting = False

    def close(self, last_us: int, spent: dict[str, int]) -> int:
        """Add to `spent` what is free up to the end, changing nothing here: the whole length.

        An attempt without an end ends at `last_us`.
        """
        ends_us = [last_us if end == _FOREVER_US else end for _, end in self._attempts]
        lengths_us = [end - start for (start, _), end in zip(self._attempts, ends_us, strict=True)]
        tail_us = ends_us[self._next - 1] - self._at_us if self._next else 0
        bucket = "restart" if self._starting else "idle"
        spent[bucket] += tail_us + sum(high_us - low_us for low_us, high_us in self._gaps)
        spent["restart"] += sum(lengths_us[self._next :])
        spent["idle"] += self._shared_us
        return self._shared_us + sum(lengths_us)

    def _gap_up_to(self, time_us: int) -> None:
        if time_us > self._at_us:
            self._gaps.append((self._at_us, time_us))
            self._at_us = time_us

    def _settle_gaps(self, gaps: Iterable[tuple[int, int]], spent: dict[str, int]) -> None:
        bucket = "restart" if self._starting else "idle"
        spent[bucket] += sum(high_us - low_us for low_us, high_us in gaps)
