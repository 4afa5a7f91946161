"""The rules of attribution as data: what is folded, which window counts, how sure a verdict is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ettr.defaults import (
    BURST_GAP_S,
    LOG_TOLERANCE_S,
    STICKY_GAP_S,
    WINDOW_AFTER_S,
    WINDOW_BEFORE_S,
)
from ettr.errors import UsageError


class Confidence(StrEnum):
    """How sure the attribution of a failure is; docs/explanation/attribution.md has the rules."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FoldingRules:
    """How observations fold into episodes: the longest silence that one episode may hold.

    Args:
        burst_gap_s: silence in seconds after which an observation begins a new episode.
        sticky_gap_s: the same for sticky codes, which repeat until the GPU or node is reset.
        count_lone_sympathetic: whether a sympathetic code (XID 45) that was seen alone is a fault
            of the node. It also follows when a user's process is killed, so by default it is not.
    """

    burst_gap_s: float = BURST_GAP_S
    sticky_gap_s: float = STICKY_GAP_S
    count_lone_sympathetic: bool = field(default=False, metadata={"json": "count_solo"})

    def __post_init__(self) -> None:
        if not 0 < self.burst_gap_s <= self.sticky_gap_s:
            raise UsageError(
                f"gaps of {self.burst_gap_s} s (burst) and {self.sticky_gap_s} s (sticky): the "
                "burst gap must be over 0 and no longer than the sticky gap"
            )


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an attempt in which an observation can explain its end; both ends count.

    It begins `before_s` before the end, though never before the attempt started, and ends
    `after_s` after the end.

    Source:
        Kokolis et al. (2025): the last 10 minutes of the job or 5 minutes after its end.
    """

    before_s: float = WINDOW_BEFORE_S
    after_s: float = WINDOW_AFTER_S

    def __post_init__(self) -> None:
        if self.before_s < 0 or self.after_s < 0 or not self.length_s:
            raise UsageError(
                f"a window from {self.before_s} s before to {self.after_s} s after an end: give "
                "two lengths of 0 or more, at least one of them over 0"
            )

    @property
    def length_s(self) -> float:
        """Length of the whole window in seconds."""
        return self.before_s + self.after_s


@dataclass(frozen=True, slots=True)
class LogMatching:
    """When a line of slurmctld.log belongs to an attempt: how far from its end, in seconds."""

    tolerance_s: float = LOG_TOLERANCE_S
