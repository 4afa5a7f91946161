"""Steps that ran without a line: every tenth was logged, or lines were lost.

A line's duration may be that of its own step, or that of all steps since the line before; a record
does not say which. The missing steps ran within the time between the lines that no event covers:

- at most all of it, as far as none of them took longer than the longest step that was timed;
- at least none of it, where the durations cover them;
- likely the median duration each, or the median of the time that there is for each where that is
  less (a step that is logged may be slower than others, as it waits for the device); nothing, where
  that is less than half. Before the first line after a start the time is that of starting up as
  well, and the number in the start may be wrong: each such gap is asked by itself.

Standard library only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

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
