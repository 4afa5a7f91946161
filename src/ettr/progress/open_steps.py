"""Steps of which the record bounds the time and does not fix it.

What is kept is how far the time that was counted for a step may lie above and below the truth.
Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ettr.progress.timeline import FOREVER_US

# Schedulers write whole seconds: a step outside an attempt by no more is no sign of a wrong clock.
ROUNDED_US = 1_000_000


class _OpenStep(NamedTuple):
    number: int
    less_us: int
    more_us: int
    outside_us: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class OpenTime:
    """By how much the steps may have taken less, or more, than was counted for them.

    `outside_us` is the time of `outside` of them that lies in no attempt. `unbounded` steps may
    have taken any time; `assumed` are those whose length is an assumption.
    """

    less_us: int = 0
    more_us: int = 0
    outside_us: int = 0
    outside: int = 0
    unbounded: int = 0
    assumed: int = 0


class OpenSteps:
    """Such steps, in rising order of their numbers."""

    def __init__(self) -> None:
        self._steps: list[_OpenStep] = []

    def append(
        self,
        number: int,
        less_us: int,
        more_us: int,
        outside_us: int = 0,
        *,
        is_late: bool = False,
    ) -> None:
        """Add a step that lies above all others.

        Args:
            more_us: `FOREVER_US`: nothing bounds it.
            outside_us: time of it that lies in no attempt.
            is_late: dated after the last attempt.
        """
        self._steps.append(_OpenStep(number, less_us, more_us, outside_us, is_late))

    def drop_above(self, number: int) -> None:
        """The run went back to this step: those above it count no more."""
        while self._steps and self._steps[-1].number > number:
            self._steps.pop()

    def total(self, saved: int, *, late: bool) -> OpenTime:
        """What is open of the steps up to the one that was saved.

        Args:
            late: with those that are dated after the last attempt.
        """
        some = [one for one in self._steps if one.number <= saved and (late or not one.is_late)]
        if not some:
            return OpenTime()
        bounded = [one for one in some if one.more_us < FOREVER_US // 2]
        return OpenTime(
            less_us=sum(one.less_us for one in some),
            more_us=sum(one.more_us for one in bounded),
            outside_us=sum(one.outside_us for one in some),
            outside=sum(one.outside_us > ROUNDED_US for one in some),
            unbounded=len(some) - len(bounded),
            assumed=sum(one.less_us > 0 or one.more_us > 0 for one in bounded),
        )
