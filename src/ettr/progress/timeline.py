"""The scheduled time of a run up to its last event: what of it no event has taken yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
        rest = AttemptTimeline(())
        rest.spent_us, rest.starting = dict(self.spent_us), self.starting
        rest._attempts = [
            ScheduledAttempt(start, last_us if end == FOREVER_US else end, suspended)
            for start, end, suspended in self._attempts
        ]
        rest._next, rest._gaps, rest._at_us = self._next, list(self._gaps), self._at_us
        rest._end_us = min(self._end_us, last_us) if self._end_us == FOREVER_US else self._end_us
        rest._free_before_us = self._free_before_us
        rest._suspended_in_steps_us = self._suspended_in_steps_us
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
