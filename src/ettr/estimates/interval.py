"""One type for a value with two ends; standard library only."""

from dataclasses import dataclass

from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between two ends; `estimate` is None where nothing was observed."""

    estimate: float | None
    low: float
    high: float


def check_confidence(confidence: float) -> None:
    """Accept a confidence level strictly between 0 and 1.

    Raises:
        UsageError: it is not.
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence {confidence} is not between 0 and 1; give 0.9 for 90 %")
