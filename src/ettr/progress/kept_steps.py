"""Steps of a run that still count, in order, with the time that each took.

Numbers rise along the record: where a run goes back, all steps from there on are taken off again.
16 bytes a step, so that a run of millions of steps can be followed live.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right


class KeptSteps:
    """Step numbers that rise, and microseconds spent on each."""

    def __init__(self) -> None:
        self._numbers: array[int] = array("q")
        self._spent_us: array[int] = array("q")
        self.total_us = 0

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
        """Add a step that lies above all others."""
        self._numbers.append(step)
        self._spent_us.append(spent_us)
        self.total_us += spent_us

    def insert(self, step: int, spent_us: int) -> None:
        """Add a step whose line came late, between the others."""
        place = bisect_left(self._numbers, step)
        self._numbers.insert(place, step)
        self._spent_us.insert(place, spent_us)
        self.total_us += spent_us

    def above(self, step: int) -> tuple[int, int]:
        """How many steps lie above `step`, and the microseconds spent on them."""
        place = bisect_right(self._numbers, step)
        return len(self._numbers) - place, sum(self._spent_us[place:])

    def drop_above(self, step: int) -> tuple[int, int]:
        """Take off all steps above `step`: how many there were, and the microseconds spent."""
        place = bisect_right(self._numbers, step)
        lost, lost_us = len(self._numbers) - place, sum(self._spent_us[place:])
        del self._numbers[place:], self._spent_us[place:]
        self.total_us -= lost_us
        return lost, lost_us
