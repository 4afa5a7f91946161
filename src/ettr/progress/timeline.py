"""The scheduled time of a run up to its last event: what of it no event has taken yet."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

FOREVER_US = 1 << 62
# so many gaps wait for an event whose duration covers them; older ones are settled
_WAITING_GAPS = 64
_BUCKETS = ("save", "restore", "stall", "restart", "idle", "suspended")


class ScheduledAttempt(NamedTuple):
    """Start and end of an attempt in microseconds since 1970, and how long it was suspended."""

    start_us: int
    end_us: int
    suspended_us: int = 0


@dataclass(frozen=True, slots=True)
class ClosedTimeline:
    """All of a run's time, settled: `spent_us` by bucket, steps left out.

    `suspended_in_steps_us` is suspended time that other time of its attempt could not hold.
    """

    wall_us: int
    spent_us: dict[str, int]
    suspended_in_steps_us: int


class AttemptTimeline:
    """Attempts in order, and the gaps in the last of them.

    Where attempts overlap, the time belongs to the first: it passes once.
    """

    def __init__(self, attempts: Iterable[ScheduledAttempt]) -> None:
        self.spent_us = dict.fromkeys(_BUCKETS, 0)
        self.starting = True
        self._attempts: list[ScheduledAttempt] = []
        free_us = -FOREVER_US
        for start_us, given_end_us, suspended_us in sorted(attempts):
            end_us = max(given_end_us, start_us)
            clipped_us = max(start_us, free_us)
            if end_us > clipped_us:
                self._attempts.append(ScheduledAttempt(clipped_us, end_us, suspended_us))
                free_us = end_us
        self._next = 0
        self._at_us = self._end_us = self._limit_us = -FOREVER_US
        self._gaps: list[tuple[int, int]] = []
        self._free_before_us = (0, 0)
        self._suspended_in_steps_us = 0

    @staticmethod
    def nothing() -> ClosedTimeline:
        """A run of which no event is known."""
        return ClosedTimeline(0, dict.fromkeys(_BUCKETS, 0), 0)

    def advance(self, time_us: int, *, begins: bool = True) -> None:
        """Go on to `time_us`, over the ends of attempts.

        At the moment at which an attempt starts only what `begins` is of it: all else took its time
        before.
        """
        while self._next < len(self._attempts) and self._attempts[self._next].start_us <= time_us:
            if not begins and self._next and self._attempts[self._next].start_us == time_us:
                break
            self._finish_attempt()
            self._at_us, self._end_us, _ = self._attempts[self._next]
            self._next += 1
            self._limit_us = self._end_us
            if self._next < len(self._attempts):
                self._limit_us = min(self._end_us, self._attempts[self._next].start_us - 1)
            self.starting = True
        self._gap_up_to(min(time_us, self._end_us))
        if len(self._gaps) > _WAITING_GAPS:
            self._settle_gaps(self._gaps[:-1])
            del self._gaps[:-1]

    def holds(self, time_us: int) -> bool:
        """Whether the time lies in the last attempt that was reached."""
        return self._next > 0 and self._attempts[self._next - 1].start_us <= time_us <= self._end_us

    def next_start_us(self, time_us: int) -> int:
        """When the next attempt starts; `time_us` after the last."""
        if self._next < len(self._attempts):
            return max(self._attempts[self._next].start_us, time_us)
        return time_us

    def take_step(self, before_us: int, time_us: int, duration_us: int | None) -> int:
        """Go on to the end of a step, take what it covers and settle the rest: its length.

        A step without a duration covers the time since `before_us`.
        """
        at_us = self._at_us
        if duration_us is None or self._gaps or not at_us < time_us <= self._limit_us:
            self.advance(time_us, begins=False)
            begin_us = before_us if duration_us is None else time_us - duration_us
            own_us = self.take(begin_us, time_us)
            self.settle()
            return own_us
        # The common case, and nothing but a shorter way to the same: nothing waits, nothing ends.
        own_us = min(duration_us, time_us - at_us)
        bucket = "restart" if self.starting else "idle"
        self.spent_us[bucket] += time_us - at_us - own_us
        self._at_us, self.starting = time_us, False
        return own_us

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

    @property
    def has_begun(self) -> bool:
        """Whether an attempt was reached."""
        return self._next > 0

    @property
    def last_end_us(self) -> int:
        """When the last attempt ends."""
        return self._attempts[-1].end_us if self._attempts else -FOREVER_US

    def outside_us(self, begin_us: int, end_us: int) -> int:
        """How much of a time lies in none of the attempts that were reached."""
        inside_us = 0
        for place in range(self._next - 1, -1, -1):
            attempt = self._attempts[place]
            if attempt.end_us <= begin_us:
                break
            inside_us += max(min(attempt.end_us, end_us) - max(attempt.start_us, begin_us), 0)
        return end_us - begin_us - inside_us

    def begin(self, since_us: int) -> None:
        """The run begins again: what is free since the event before is restart, and what follows.

        What was free earlier is settled as it was.
        """
        self._settle_gaps([gap for gap in self._gaps if gap[0] < since_us])
        self._gaps = [gap for gap in self._gaps if gap[0] >= since_us]
        self.starting = True

    def settle(self) -> None:
        """A step is over: nothing later takes what is free until then."""
        if self._gaps:
            self._settle_gaps(self._gaps)
            self._gaps = []
        self.starting = False

    def closed(self, last_us: int) -> ClosedTimeline:
        """The whole, as if the run were over; this timeline stays as it is.

        An attempt without an end ends at `last_us`.
        """
        rest = copy(self)
        rest.spent_us, rest._gaps = dict(self.spent_us), list(self._gaps)
        rest._attempts = [
            ScheduledAttempt(start, last_us if end == FOREVER_US else end, suspended)
            for start, end, suspended in self._attempts
        ]
        rest._end_us = last_us if self._end_us == FOREVER_US else self._end_us
        rest.advance(FOREVER_US)
        rest._finish_attempt()
        wall_us = sum(end - start for start, end, _ in rest._attempts)
        return ClosedTimeline(wall_us, rest.spent_us, rest._suspended_in_steps_us)

    def _finish_attempt(self) -> None:
        if not self._next:
            return
        self._gap_up_to(self._end_us)
        self.settle()
        spent_us = self.spent_us
        start_us, end_us, suspended_us = self._attempts[self._next - 1]
        left_us = min(max(suspended_us, 0), end_us - start_us)
        for bucket, before_us in zip(("idle", "restart"), self._free_before_us, strict=True):
            taken_us = min(left_us, spent_us[bucket] - before_us)
            spent_us[bucket] -= taken_us
            spent_us["suspended"] += taken_us
            left_us -= taken_us
        self._suspended_in_steps_us += left_us
        self._free_before_us = (spent_us["idle"], spent_us["restart"])

    def _gap_up_to(self, time_us: int) -> None:
        if time_us > self._at_us:
            self._gaps.append((self._at_us, time_us))
            self._at_us = time_us

    def _settle_gaps(self, gaps: Iterable[tuple[int, int]]) -> None:
        bucket = "restart" if self.starting else "idle"
        self.spent_us[bucket] += sum(high_us - low_us for low_us, high_us in gaps)


# -- steps that ran without a line: every tenth was logged, or lines were lost ---------------------
# A line's duration may be that of its own step, or that of all steps since the line before; a
# record does not say which. The missing steps ran within the time between the lines that no event
# covers:
#
# - at most all of it, as far as none of them took longer than the longest step that was timed;
# - at least none of it, where the durations cover them;
# - likely the median duration each, or the median of the time that there is for each where that is
#   less (a step that is logged may be slower than others, as it waits for the device); nothing,
#   where that is less than half. Before the first line after a start the time is that of starting
#   up as well, and the number in the start may be wrong: each such gap is asked by itself.
#
# Standard library only.


_FIELDS = 4
_NOT_KNOWN = -1
# timed steps are taken for single ones if the missing ones had this share of their time at least
_LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class MissingTime:
    """Time of missing steps: what they likely took, by what it was counted as, and the most."""

    idle_us: int = 0
    restart_us: int = 0
    most_us: int = 0

    @property
    def likely_us(self) -> int:
        """What they likely took."""
        return self.idle_us + self.restart_us

    def __add__(self, other: MissingTime) -> MissingTime:
        return MissingTime(
            self.idle_us + other.idle_us,
            self.restart_us + other.restart_us,
            self.most_us + other.most_us,
        )


@dataclass(frozen=True, slots=True)
class MissingTimes:
    """Missing steps up to the one that was saved, above it, and those that were redone.

    `first_restart_us` is the part before the very first line, `steps` how many are missing.
    """

    saved: MissingTime = MissingTime()
    exposed: MissingTime = MissingTime()
    redone: MissingTime = MissingTime()
    first_restart_us: int = 0
    steps: int = 0

    @property
    def idle_us(self) -> int:
        """What all of them likely took of idle time."""
        return self.saved.idle_us + self.exposed.idle_us + self.redone.idle_us

    @property
    def restart_us(self) -> int:
        """What all of them likely took of the time of starts."""
        return self.saved.restart_us + self.exposed.restart_us + self.redone.restart_us

    def within(self, idle_us: int, restart_us: int) -> MissingTimes:
        """No more than there is: what was suspended is time of no step."""
        some: list[MissingTime] = []
        for time in (self.saved, self.exposed, self.redone):
            likely = MissingTime(min(time.idle_us, idle_us), min(time.restart_us, restart_us))
            idle_us, restart_us = idle_us - likely.idle_us, restart_us - likely.restart_us
            some.append(likely)
        open_us = idle_us + restart_us
        for place, time in enumerate((self.saved, self.exposed, self.redone)):
            more_us = min(max(time.most_us - some[place].likely_us, 0), open_us)
            open_us -= more_us
            some[place] = replace(some[place], most_us=some[place].likely_us + more_us)
        saved, exposed, redone = some
        return MissingTimes(saved, exposed, redone, self.first_restart_us, self.steps)


class StepGap(NamedTuple):
    """Missing steps before the line of step `number`, and the free time before it."""

    number: int
    steps: int
    idle_us: int
    restart_us: int

    def split(self, step: int) -> tuple[StepGap | None, StepGap | None]:
        """Those up to `step` and those above it, the free time by their number."""
        below = min(max(step - (self.number - self.steps) + 1, 0), self.steps)
        if self.steps == _NOT_KNOWN or below in (0, self.steps):
            return (self, None) if self.number <= step + 1 else (None, self)
        idle_us = self.idle_us * below // self.steps
        restart_us = self.restart_us * below // self.steps
        return (
            StepGap(step + 1, below, idle_us, restart_us),
            StepGap(
                self.number,
                self.steps - below,
                self.idle_us - idle_us,
                self.restart_us - restart_us,
            ),
        )


class MissingSteps:
    """Gaps between the step numbers of lines, in order; 32 bytes each."""

    def __init__(self) -> None:
        self._kept: array[int] = array("q")
        self._dropped: array[int] = array("q")
        self._first: StepGap | None = None

    def __len__(self) -> int:
        return (len(self._kept) + len(self._dropped)) // _FIELDS

    @property
    def last(self) -> int | None:
        """The highest missing step that still counts."""
        return self._kept[-_FIELDS] - 1 if self._kept else None

    def append(
        self, number: int, count: int | None, idle_us: int, restart_us: int, *, first: bool
    ) -> None:
        """The `count` steps before that of `number` have no line; None: how many is not known.

        Args:
            idle_us: time before the line that no event covers, `restart_us` that of it up to the
                first step after a start.
        """
        gap = StepGap(number, _NOT_KNOWN if count is None else count, idle_us, restart_us)
        if first:
            self._first = gap
        self._kept.extend(gap)

    def remove(self, step: int) -> None:
        """The line of a missing step came late."""
        for place in range(len(self._kept) - _FIELDS, -1, -_FIELDS):
            number, count = self._kept[place : place + 2]
            if step >= number:
                return
            if step >= number - count:
                self._kept[place + 1] = count - 1
                return

    def drop_above(self, step: int) -> None:
        """The run went back to `step`: what lies above it was in vain."""
        while self._kept and self._kept[-_FIELDS] > step + 1:
            gap = StepGap(*self._kept[-_FIELDS:])
            del self._kept[-_FIELDS:]
            below, above = gap.split(step)
            if above is not None:
                self._dropped.extend(above)
            if below is not None:
                self._kept.extend(below)
                return

    def times(
        self, saved: int, lines: int, usual_us: int, longest_us: int, tail: StepGap | None = None
    ) -> MissingTimes:
        """What is known of the time of all."""
        kept = [*_gaps(self._kept)] + ([] if tail is None else [tail])
        counts = sorted(gap.steps for gap in kept if gap.steps > 0)
        middle = lines // 2 - (lines - len(counts))
        usual_count = counts[middle] if 0 <= middle < len(counts) else 0
        pace = _MissingPace.of((*kept, *_gaps(self._dropped)), usual_us, longest_us)
        below, above = MissingTime(), MissingTime()
        steps = 0
        for gap in kept:
            known = _with_count(gap, usual_count)
            steps += known.steps if pace.fits(known) else 0
            first, second = known.split(saved)
            below += MissingTime() if first is None else pace.time(first)
            above += MissingTime() if second is None else pace.time(second)
        redone = MissingTime()
        for gap in _gaps(self._dropped):
            known = _with_count(gap, usual_count)
            steps += known.steps if pace.fits(known) else 0
            redone += pace.time(known)
        begun = pace.time(_with_count(self._first, usual_count)) if self._first else MissingTime()
        return MissingTimes(below, above, redone, begun.restart_us, steps)


def _gaps(flat: array[int]) -> Iterator[StepGap]:
    values = iter(flat)
    return map(StepGap, values, values, values, values)


def _with_count(gap: StepGap, usual: int) -> StepGap:
    """The gap before a first line of any step is as large as others are."""
    if gap.steps != _NOT_KNOWN:
        return gap
    return gap._replace(steps=min(usual, max(gap.number - 1, 0)))


class _MissingPace(NamedTuple):
    """How long missing steps are taken to be; `usual_us` is 0 where durations cover them."""

    usual_us: int
    longest_us: int

    @staticmethod
    def of(gaps: Iterable[StepGap], usual_us: int, longest_us: int) -> _MissingPace:
        paces = sorted(
            gap.idle_us // gap.steps for gap in gaps if gap.steps > 0 and not gap.restart_us
        )
        had_us = paces[len(paces) // 2] if paces else usual_us
        return _MissingPace(
            min(usual_us, had_us) if had_us >= _LEAST_SHARE * usual_us else 0, longest_us
        )

    def fits(self, gap: StepGap) -> bool:
        """Whether the steps have the time they need; it is asked where starting up needs some."""
        needed_us, free_us = gap.steps * self.usual_us, gap.idle_us + gap.restart_us
        return not gap.restart_us or 0 < needed_us * _LEAST_SHARE <= free_us

    def time(self, gap: StepGap) -> MissingTime:
        likely_us = gap.steps * self.usual_us if self.fits(gap) else 0
        idle_us = min(likely_us, gap.idle_us)
        restart_us = min(likely_us - idle_us, gap.restart_us)
        free_us = gap.idle_us + gap.restart_us
        return MissingTime(idle_us, restart_us, min(gap.steps * self.longest_us, free_us))
