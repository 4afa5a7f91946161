"""Waits of a training loop for its data: one line a step with what its `next()` calls took.

The time in `next()` is the host's. While a device still works on what was queued before, it is an
upper bound of what the device waited; a line says so (`"bound":"upper"`) unless the loop
synchronises each step, or a probe of the device's queue says how long it was idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")

TRAINING, EPOCH_START, EVALUATION = "training", "epoch-start", "evaluation"


class IdleProbe(Protocol):
    """Says how long a device had nothing to do during the waits."""

    def begin(self) -> None:
        """A wait begins."""

    def end(self) -> None:
        """The wait is over."""

    def taken_s(self) -> float:
        """Idle seconds of the waits since the last call."""


@dataclass(slots=True)
class _Wait:
    """Waits of one part of the loop since its last line."""

    begin_s: float
    seconds: float = 0.0
    count: int = 0


@dataclass(slots=True)
class DataWaits:
    """Adds up waits until the next line of the record; its memory does not grow with them."""

    clock: Callable[[], float]
    _waits: dict[tuple[str, bool], _Wait] = field(default_factory=dict)
    _probe: IdleProbe | None = None

    def timed(
        self,
        loader: Iterable[Item],
        *,
        part: str = TRAINING,
        known: bool = False,
        idle: IdleProbe | None = None,
        begins: bool = True,
    ) -> Iterator[Item]:
        """The batches of the loader, each `next()` timed.

        Args:
            known: the wait is one of the device too: it has no work left, or `idle` measures it.
            begins: an epoch begins here: the first wait has the start of the workers in it.
        """
        is_first, end = begins and part == TRAINING, object()
        begin_s = self.begin(idle)
        batches = iter(loader)
        while True:
            batch: Any = next(batches, end)
            # what closes the workers at the end is no wait for a batch
            over = batch is end
            where = EPOCH_START if is_first or (over and part == TRAINING) else part
            self.end(begin_s, part=where, known=known, idle=idle, count=not over)
            if over:
                return
            yield batch
            is_first, begin_s = False, self.begin(idle)

    def begin(self, idle: IdleProbe | None = None) -> float:
        """A wait begins: the time, for `end`."""
        if idle is not None:
            idle.begin()
        return self.clock()

    def end(
        self,
        begin_s: float,
        *,
        part: str,
        known: bool,
        idle: IdleProbe | None = None,
        count: bool = True,
    ) -> None:
        """The batch is there."""
        # a clock that was set back leaves the length of the wait unknown: it counts as none
        seconds = max(self.clock() - begin_s, 0.0)
        if idle is not None:
            idle.end()
            self._probe = idle
        wait = self._waits.get((part, known))
        if wait is None:
            wait = self._waits[part, known] = _Wait(begin_s)
        wait.seconds += seconds
        wait.count += count

    def taken(self) -> Iterator[tuple[float, float, dict[str, Any]]]:
        """End, duration and facts of a line for each part of the loop; they count once."""
        if not self._waits:
            return
        waits, self._waits = self._waits, {}
        idle_s = None if self._probe is None else self._probe.taken_s()
        self._probe = None
        for (part, known), wait in sorted(waits.items(), key=lambda item: item[1].begin_s):
            seconds = wait.seconds
            facts: dict[str, Any] = {"cause": "data", "part": part, "waits": wait.count}
            if not known:
                facts["bound"] = "upper"
            elif idle_s is not None:
                facts["host_s"] = round(seconds, 6)
                seconds = min(seconds, idle_s)
                idle_s -= seconds
            # from the first wait on, so that a step of several batches covers the rest
            yield wait.begin_s + seconds, seconds, facts
