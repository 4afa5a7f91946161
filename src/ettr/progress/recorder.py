"""The progress recorder: what happened in the training loop, as lines that survive a kill -9.

One `write` a line on a file opened for append: the kernel holds each finished line even when the
process is killed in the next instruction. (A machine that loses power may lose its last seconds;
`fsync=True` closes that hole at the price of a disk flush a line.) `ettr.progress.events` has the
format. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ettr.errors import UsageError
from ettr.progress.events import EARLIEST_S, EVENTS, LATEST_S, MAX_STEP, LineWriter, ProgressEvent

# -- waits of a training loop for its data: one line a step with what its `next()` calls took ------
# The time in `next()` is the host's. While a device still works on what was queued before, it is an
# upper bound of what the device waited; a line says so (`"bound":"upper"`) unless the loop
# synchronises each step, or a probe of the device's queue says how long it was idle.


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


# -- the progress recorder: what happened in the training loop, as lines that survive a kill -9 ----


class ProgressRecorder:
    """Appends events of one rank to a file; never raises once it is open.

    A disk that is full must not end a training run: lines that could not be written are counted in
    `lost_lines`. `listener` is called with every event, written or not: hand it `Goodput.add` to
    follow the run live.

    Args:
        path: the file; it is created, with its folder, and appended to.
        run: name of the training run; the same over restarts.
        clock: Unix seconds.
        fsync: flush to the disk after every line.

    Raises:
        UsageError: the run has no name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run: str,
        cluster: str | None = None,
        job: str | None = None,
        rank: int = 0,
        clock: Callable[[], float] = time.time,
        fsync: bool = False,
        listener: Callable[[ProgressEvent], None] | None = None,
    ) -> None:
        if not run:
            raise UsageError("run: '' was given; name the training run, the same over restarts")
        self.path = Path(path)
        self.run, self.cluster, self.job, self.rank = run, cluster, job, rank
        self.lost_lines = 0
        self._clock, self._fsync, self._listener = clock, fsync, listener
        self._writer = LineWriter(run, cluster, job, rank)
        self.data_waits, self._step = DataWaits(clock), 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._torn = _ends_torn(self._fd)

    def record(
        self,
        event: str,
        step: int,
        duration_s: float | None = None,
        *,
        time_s: float | None = None,
        **detail: Any,
    ) -> None:
        """Append one event.

        Args:
            event: one of `EVENTS`.
            step: training step done (step), saved (save), restored (restore), reached (others).
            duration_s: seconds that it held up the training loop; None: a point in time.
            time_s: Unix seconds when it was over; None: now.
            detail: further facts, anything that JSON holds.

        A duration that is no length of time (below 0, not finite) is recorded as not known.

        Raises:
            UsageError: no such event, a time that no calendar has, or a step below 0 or too large.
        """
        if event not in EVENTS:
            raise UsageError(f"event: {event!r} was given; give one of {', '.join(EVENTS)}")
        step = int(step)
        if not 0 <= step <= MAX_STEP:
            raise UsageError(f"step: {step} was given; give one from 0 to {MAX_STEP}")
        # Rounded before it is handed on, so that the live split and the file's are the same.
        now = round(float(self._clock() if time_s is None else time_s), 6)
        if not EARLIEST_S <= now <= LATEST_S:
            raise UsageError(f"time_s: {now} was given; give Unix seconds")
        if duration_s is not None:
            known = 0 <= duration_s <= LATEST_S
            duration_s = round(float(duration_s), 6) if known else None
        self._step = step
        self._write_waits()
        self._write(event, step, now, duration_s, detail)

    def _write_waits(self) -> None:
        for end_s, wait_s, facts in self.data_waits.taken():
            self._write("stall", self._step, round(end_s, 6), round(wait_s, 6), facts)

    def _write(
        self,
        event: str,
        step: int,
        now: float,
        duration_s: float | None,
        detail: dict[str, Any],
    ) -> None:
        self._append(self._writer.line(event, step, now, duration_s, detail))
        if self._listener is not None:
            self._listener(
                ProgressEvent(
                    event,
                    step,
                    now,
                    duration_s,
                    self.rank,
                    self.run,
                    self.cluster,
                    self.job,
                    detail,
                )
            )

    def start(self, step: int = 0, duration_s: float | None = None, **detail: Any) -> None:
        """The process has begun to train, at `step`."""
        self.record("start", step, duration_s, **detail)

    def step(self, step: int, duration_s: float | None = None, **detail: Any) -> None:
        """Training step `step` is done."""
        self.record("step", step, duration_s, **detail)

    def save(self, step: int, duration_s: float | None = None, **detail: Any) -> None:
        """A checkpoint of `step` was taken; `duration_s` is what the loop waited for it."""
        self.record("save", step, duration_s, **detail)

    def restore(self, step: int, duration_s: float | None = None, **detail: Any) -> None:
        """The run goes on after `step`: later steps done before are lost.

        A partial recovery does not go back: give the step that was reached.
        """
        self.record("restore", step, duration_s, **detail)

    def stall(self, step: int, duration_s: float | None = None, **detail: Any) -> None:
        """The loop was held up at `step`.

        Say by what as `cause=`: data, gate, check or rank, as in `STALL_CAUSES`; any other text is
        kept, and counts as unknown.
        """
        self.record("stall", step, duration_s, **detail)

    def restart(self, step: int, duration_s: float | None = None, **detail: Any) -> None:
        """The group was re-formed at `step`; `duration_s` is from the failure to here."""
        self.record("restart", step, duration_s, **detail)

    def end(self, step: int, **detail: Any) -> None:
        """Training is over at `step`."""
        self.record("end", step, None, **detail)

    def batches(
        self,
        loader: Iterable[Item],
        *,
        part: str = TRAINING,
        synchronised: bool = False,
        idle: IdleProbe | None = None,
    ) -> Iterator[Item]:
        """The batches of the loader; what each step waits for them is a stall by `data`.

        `for batch in recorder.batches(loader)`, once for each epoch. The next event writes the
        line, so that of accumulated batches one line has the sum.

        Args:
            part: `training`, or `evaluation` for a loop that makes no steps.
            synchronised: each step ends when its device has finished (a CPU, or `loss.item()`);
                else a wait is an upper bound, since the device may have worked meanwhile.
            idle: measures how long the device was idle; `ettr.adapters.loop` has CUDA's.
        """
        known = synchronised or idle is not None
        return self.data_waits.timed(loader, part=part, known=known, idle=idle)

    @contextmanager
    def timed(self, event: str, step: int, **detail: Any) -> Iterator[dict[str, Any]]:
        """Time a block as one event; the dictionary it yields takes further detail."""
        more = dict(detail)
        begin = self._clock()
        yield more
        now = self._clock()
        # A clock that was set back within the block leaves its length unknown, not below 0.
        self.record(event, step, now - begin, time_s=now, **more)

    def close(self) -> None:
        """Close the file; twice is harmless."""
        if self._fd >= 0:
            self._write_waits()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        # A line begins on a line of its own even after a torn one, so that a tear costs one line.
        data = b"\n" + line if self._torn else line
        try:
            written = os.write(self._fd, data)
            self._torn = written < len(data)
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            self.lost_lines += 1
            return
        self.lost_lines += self._torn


def _ends_torn(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
