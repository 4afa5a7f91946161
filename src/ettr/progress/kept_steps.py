"""Steps of a run that still count, in order, with the time that each took.

Numbers rise along the record: where a run goes back, all steps from there on are taken off again.
24 bytes a step, so that a run of millions of steps can be followed live.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import truediv
from typing import NamedTuple

# the fastest pace is that of the fastest tenth of the steps
_FASTEST_ONE_IN = 10
_NOT_KNOWN = 1 << 62


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of some steps: `claimed_us` up to each line, and what of it their numbers bear out.

    A step with a duration counts with it in all three. A line without one represents the
    steps since the line before it: `typical_us` gives them no more than the median pace of such
    lines, `fastest_us` no more than the fastest. `start_up_us` is the part of `claimed_us` beyond
    `typical_us` that belongs to first steps after a start.
    """

    steps: int = 0
    claimed_us: int = 0
    typical_us: int = 0
    fastest_us: int = 0
    start_up_us: int = 0

    @property
    def idle_us(self) -> int:
        """What of `claimed_us` is neither typical of steps nor start-up."""
        return self.claimed_us - self.typical_us - self.start_up_us


class KeptSteps:
    """Step numbers that rise, and microseconds spent on each."""

    def __init__(self) -> None:
        self._numbers: array[int] = array("q")
        self._spent_us: array[int] = array("q")
        # steps that a line without a duration represents, below 0 after a start; else 0
        self._represents: array[int] = array("q")
        self._without_duration = False
        self._total_us = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, step: int) -> bool:
        place = bisect_left(self._numbers, step)
        return place < len(self._numbers) and self._numbers[place] == step

    @property
    def last(self) -> int | None:
        """The highest number; None where no step counts."""
        return self._numbers[-1] if self._numbers else None

    def append(self, step: int, spent_us: int) -> None:
        """Add a step with a duration that lies above all others."""
        self._numbers.append(step)
        self._spent_us.append(spent_us)
        self._represents.append(0)
        self._total_us += spent_us

    def append_line(self, step: int, spent_us: int, since: int | None, *, starting: bool) -> None:
        """Add a line without a duration; it represents those after `since`, where known."""
        self.append(step, spent_us)
        count = _NOT_KNOWN if since is None else max(step - since, 1)
        self._represents[-1] = -count if starting else count
        self._without_duration = True

    def insert(self, step: int, spent_us: int) -> None:
        """Add a step whose line came late, between the others."""
        place = bisect_left(self._numbers, step)
        self._numbers.insert(place, step)
        self._spent_us.insert(place, spent_us)
        self._represents.insert(place, 0)
        self._total_us += spent_us

    def drop_above(self, step: int) -> tuple[int, int]:
        """Take off all steps above `step`: how many there were, and the microseconds spent."""
        place = bisect_right(self._numbers, step)
        lost, lost_us = len(self._numbers) - place, sum(self._spent_us[place:])
        del self._numbers[place:], self._spent_us[place:], self._represents[place:]
        self._total_us -= lost_us
        return lost, lost_us

    def durations_us(self) -> tuple[int, int]:
        """The median and the longest of the steps with a duration.

        Where no step has one: the median pace of the lines, and longer than any time.
        """
        lines = zip(self._spent_us, self._represents, strict=True)
        timed = sorted(spent_us for spent_us, count in lines if spent_us and not count)
        if timed:
            return timed[len(timed) // 2], timed[-1]
        if not self._without_duration:
            return 0, 0
        pace = _Pace.of(self._lines())
        return pace.typical_us // pace.typical_steps, _NOT_KNOWN

    def times(self, saved: int) -> tuple[StepTime, StepTime]:
        """Time of the steps up to `saved`, and of those above it."""
        place = bisect_right(self._numbers, saved)
        count = len(self._numbers)
        above_us = sum(self._spent_us[place:])
        below_us = self._total_us - above_us
        if not self._without_duration:
            return (
                StepTime(place, below_us, below_us, below_us),
                StepTime(count - place, above_us, above_us, above_us),
            )
        pace = _Pace.of(self._lines())
        below = (line for line in self._lines() if line.place < place)
        above = (line for line in self._lines() if line.place >= place)
        return pace.time(place, below_us, below), pace.time(count - place, above_us, above)

    def _lines(self) -> Iterator[_Line]:
        """Lines without a duration, those of one time as one line."""
        known = sorted(n for n in map(abs, self._represents) if 0 < n < _NOT_KNOWN)
        usual = known[len(known) // 2] if known else 1
        steps = 0
        for place, count in enumerate(self._represents):
            if not count:
                continue
            spent_us = self._spent_us[place]
            if abs(count) < _NOT_KNOWN:
                steps += abs(count)
            elif spent_us:
                steps += min(usual, max(self._numbers[place], 1))
            if spent_us:
                yield _Line(place, spent_us, steps, count < 0)
                steps = 0


class _Line(NamedTuple):
    place: int
    spent_us: int
    steps: int
    starting: bool


class _Pace(NamedTuple):
    """The median and the fastest pace of lines without a duration, as time over steps.

    With m lines, the time of the fastest ones counts m / (m + 1) times: another line like them is
    faster than all of them with a chance of 1 / (m + 1), and how much faster nothing says.
    """

    typical_us: int
    typical_steps: int
    fastest_us: int
    fastest_steps: int

    @staticmethod
    def of(lines: Iterable[_Line]) -> _Pace:
        spent_us, steps = array("q"), array("q")
        for line in lines:
            spent_us.append(line.spent_us)
            steps.append(line.steps)
        paces = array("d", map(truediv, spent_us, steps))
        all_steps = sum(steps)
        typical_us, typical_steps = 0, 1
        fastest_us = fastest_steps = so_far_us = so_far_steps = 0
        for place in sorted(range(len(paces)), key=paces.__getitem__):
            so_far_us += spent_us[place]
            so_far_steps += steps[place]
            if not fastest_steps and _FASTEST_ONE_IN * so_far_steps >= all_steps:
                fastest_us, fastest_steps = so_far_us, so_far_steps
            if 2 * so_far_steps > all_steps:
                typical_us, typical_steps = spent_us[place], steps[place]
                break
        count = len(paces)
        return _Pace(typical_us, typical_steps, fastest_us * count, fastest_steps * (count + 1))

    def time(self, count: int, claimed_us: int, lines: Iterable[_Line]) -> StepTime:
        typical_us = fastest_us = claimed_us
        start_up_us = 0
        for line in lines:
            usual_us = line.steps * self.typical_us // self.typical_steps
            least_us = line.steps * self.fastest_us // self.fastest_steps
            beyond_us = max(line.spent_us - usual_us, 0)
            typical_us -= beyond_us
            fastest_us -= max(line.spent_us - least_us, 0)
            start_up_us += beyond_us if line.starting else 0
        return StepTime(count, claimed_us, typical_us, fastest_us, start_up_us)
