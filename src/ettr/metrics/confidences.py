"""How sure the failures behind a count are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ettr.facts import Facts


@dataclass(frozen=True, slots=True)
class FailuresByConfidence:
    """Failures by how sure their cause is; docs/explanation/attribution.md has the rules.

    Attributes:
        scheduler_only: The scheduler says that a node failed, and no error was found.
        medium: An error was found in the window, and nothing contradicts it.
        low: The error was seen elsewhere or only after the end.
    """

    scheduler_only: int
    high: int
    medium: int
    low: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.scheduler_only + self.high + self.medium + self.low


def failures_by_confidence(facts: Facts) -> FailuresByConfidence:
    """Counts of the selected failures."""
    return counted_confidences(facts.columns("failures")["confidence"].tolist())


def counted_confidences(confidences: Iterable[str]) -> FailuresByConfidence:
    """Counts of the values of the column `confidence`."""
    values = list(confidences)
    return FailuresByConfidence(
        scheduler_only=values.count("none"),
        high=values.count("high"),
        medium=values.count("medium"),
        low=values.count("low"),
    )
