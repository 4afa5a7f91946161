"""One type for a value with two ends; standard library only."""

import math
from dataclasses import dataclass

from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between two ends.

    `estimate` is None where nothing was observed. An end that the data do not bound is infinite,
    so that ends can be scaled and inverted without a special case; JSON has null for it.
    """

    estimate: float | None
    low: float
    high: float

    @staticmethod
    def unknown() -> "Interval":
        """The interval of a value of which nothing is known: no estimate, no end."""
        return Interval(None, -math.inf, math.inf)

    def contains(self, value: float) -> bool:
        """Whether `value` lies between the ends, which belong to the interval."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> "Interval":
        """The interval of `factor` times the value; `factor` is above 0."""
        return Interval(
            None if self.estimate is None else self.estimate * factor,
            self.low * factor,
            self.high * factor,
        )

    def without_equal_ends(self) -> "Interval":
        """The estimate alone where both ends equal it: a value that nothing gave an interval."""
        if self.estimate is None or not self.low == self.estimate == self.high:
            return self
        return Interval(self.estimate, -math.inf, math.inf)

    def inverse(self, numerator: float = 1.0) -> "Interval":
        """The interval of `numerator` over the value, which cannot be negative.

        An estimate of 0 has no inverse and becomes None; an end of 0 becomes infinite.
        """
        return Interval(
            numerator / self.estimate if self.estimate else None,
            numerator / self.high if self.high > 0 else math.inf,
            numerator / self.low if self.low > 0 else math.inf,
        )


def check_confidence(confidence: float) -> None:
    """Accept a confidence level strictly between 0 and 1. Raises UsageError: it is not."""
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence {confidence} is not between 0 and 1; give 0.9 for 90 %")
