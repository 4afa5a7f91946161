"""Events in their one order: by time, then kind, then number, then as they were put in."""

from __future__ import annotations

import heapq
from enum import IntEnum


class EventKind(IntEnum):
    """Kinds of events, in the order in which those of one moment happen."""

    RETURN = 0
    END = 1
    FAULT = 2
    CHECK = 3
    ARRIVAL = 4
    IMPATIENT = 5
    REMINDER = 6
    PASS = 7


Event = tuple[int, int, int, int, object]
"""Time in seconds, kind, number (of the node or the job), serial number, what it is about."""


class Calendar:
    """What is to come."""

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._serial = 0

    def put(self, time_s: int, kind: EventKind, number: int, about: object = None) -> None:
        """Add an event; the number is that of its node or job."""
        self._serial += 1
        heapq.heappush(self._heap, (time_s, int(kind), number, self._serial, about))

    def next_before(self, time_s: int, kind: EventKind) -> Event | None:
        """Take the first event if it comes no later than another of that time and kind."""
        if self._heap and self._heap[0][:2] <= (time_s, int(kind)):
            return heapq.heappop(self._heap)
        return None
