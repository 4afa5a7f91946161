"""Import of the logs of Google's ml-goodput-measurement, as progress events.

Its entries are dictionaries that mark moments: a job's start and end, the start of each step, begin
and end of initialisation, preparation, data loading and of events that the user names. A step is
done when the next one starts, or the job ends; where entries of steps are missing (every tenth is
logged), all of them are done when the next entry starts.

The log does not say whether the step in flight at a disruption was finished. If the next job goes
on behind it, it was; it is then taken to have lasted as long as the step before it, and may have
lasted up to the start of the next job. Else its time counts to the restart, and the start of the
next job carries `unlogged_s`: how much of that may have been a finished step, which had to be done
again (the longest of the last ten steps, as far as there is time for it). `unlogged_high_s` is the
most, the gap up to the next job. Where the clock was set back in the gap it is None: nothing bounds
it. Entries may repeat, and stand in any order. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ettr.errors import SourceError
from ettr.progress.events import ProgressEvent, microseconds
from ettr.progress.goodput import Row, in_order

_SPANS = {
    "tpu_init": "restart",
    "training_prep": "restart",
    "data_loading": "stall",
    "custom_badput_event": "stall",
}
_MOMENTS = (
    *("job_start_time", "step_start_time", "job_end_time"),
    *(f"{name}_{end}_time" for name in _SPANS for end in ("start", "end")),
)
_LAST_STEPS = 10


class _Walk:
    """The state between two entries."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.started = False
        self.step: tuple[int, float] | None = None  # in flight: its number and start
        self.cut: tuple[int, float] | None = None  # in flight when the job before ended
        self.waiting: list[ProgressEvent] = []  # since the job's start, up to its first step
        self.lengths_s: deque[float] = deque(maxlen=_LAST_STEPS)
        self.reached = 0
        self.open: dict[str, tuple[float, str]] = {}

    def event(
        self, event: str, time_s: float, duration_s: float | None = None, kind: str | None = None
    ) -> ProgressEvent:
        detail = {"kind": kind} if kind else {}
        if kind == "data_loading":
            detail["cause"] = "data"
        return ProgressEvent(event, self.reached, time_s, duration_s, run=self.run, detail=detail)

    def pass_on(self, event: ProgressEvent) -> Iterator[ProgressEvent]:
        """Yield the event, or hold it back while it is open what came before it."""
        if self.waiting:
            self.waiting.append(event)
        else:
            yield event

    def finish_step(self, time_s: float, last: int | None = None) -> Iterator[ProgressEvent]:
        """The step in flight is over, with those up to `last` that have no entry of their own."""
        if self.step is None:
            return
        (number, begin_s), self.step = self.step, None
        self.reached = number if last is None else last
        # Where the clock was set back within a step, its length is not known.
        length_s = time_s - begin_s if time_s >= begin_s else None
        if length_s is not None:
            self.lengths_s.append(length_s / (self.reached - number + 1))
        yield self.event("step", time_s, length_s)

    def start_job(self, time_s: float) -> Iterator[ProgressEvent]:
        yield from self.settle_cut(None)
        start = self.event("restart" if self.started else "start", time_s)
        self.started, self.open = True, {}
        self.cut, self.step = self.step, None
        if self.cut is None:
            yield start
        else:
            self.waiting = [start]

    def settle_cut(self, goes_on_with: int | None) -> Iterator[ProgressEvent]:
        """The job's first step is known, or that it has none: so is what the last one came to."""
        if not self.waiting or self.cut is None:
            return
        start, (number, begin_s) = self.waiting[0], self.cut
        free_s = start.time_s - begin_s
        known_s = round(free_s, 6) if free_s >= 0 else None  # the clock may have been set back
        if goes_on_with is not None and goes_on_with > number:
            length_s = self.lengths_s[-1] if self.lengths_s else max(free_s, 0.0)
            if known_s is not None:
                length_s = min(length_s, known_s)
            detail = {"assumed": "as long as the step before", "least_s": 0.0, "most_s": known_s}
            yield ProgressEvent(
                "step", number, begin_s + length_s, length_s, run=self.run, detail=detail
            )
        else:
            unlogged_s = max(min(max(self.lengths_s, default=free_s), free_s), 0.0)
            self.waiting[0] = replace(
                start, detail={"unlogged_s": round(unlogged_s, 6), "unlogged_high_s": known_s}
            )
        yield from self.waiting
        self.waiting, self.cut = [], None


def read_google_goodput(
    entries: Iterable[dict[str, Any]], *, job: str | None = None
) -> Iterator[ProgressEvent]:
    """Progress events of one job's entries.

    Args:
        entries: as the log holds them; times are Unix seconds or ISO 8601 (UTC where no zone is).
        job: only entries whose `job_name` is this; None: all of them.

    Raises:
        SourceError: the entries are of several jobs and none was named, or a time or a step cannot
            be read.
    """
    kept = [e for e in entries if job is None or str(e.get("job_name", "")) == job]
    names = list(dict.fromkeys(filter(None, (str(e.get("job_name", "")) for e in kept))))
    if len(names) > 1:
        raise SourceError(f"entries of the jobs {names[0]!r} and {names[1]!r}; name one as job=")
    walk = _Walk(names[0] if names else job or "google")
    for entry in _in_order(kept):
        yield from _events_of(walk, entry)
    yield from walk.settle_cut(None)


def _in_order(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries as they happened: each goes in as an event whose place stands as its duration."""
    rows: list[Row] = []
    for place, entry in enumerate(entries):
        for moment in _MOMENTS:
            if moment in entry:
                is_step = moment == "step_start_time"
                step = _step_of(entry) if is_step else 0
                name = "step" if is_step else f"{moment} {entry.get('custom_badput_event_type')}"
                rows.append((name, step, microseconds(_time_s(entry, moment)), place))
                break
    for _, _, _, found in in_order(rows):
        if found is not None:
            yield entries[found]


def read_google_goodput_file(
    path: str | os.PathLike[str], *, job: str | None = None
) -> list[ProgressEvent]:
    """Progress events of a file with one JSON entry a line.

    Raises:
        SourceError: the file cannot be read, a line is no JSON object, or as
            `read_google_goodput`.
    """
    entries = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    entries.append(_entry(line, path, number))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: cannot be read: it is no UTF-8 text") from error
    return list(read_google_goodput(entries, job=job))


def _entry(line: str, path: Any, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise SourceError(f"{path}: line {number} is not JSON: {error}") from error
    if not isinstance(entry, dict):
        raise SourceError(f"{path}: line {number} is not a JSON object")
    return entry


def _events_of(walk: _Walk, entry: dict[str, Any]) -> Iterator[ProgressEvent]:
    if "job_start_time" in entry:
        yield from walk.start_job(_time_s(entry, "job_start_time"))
    elif "step_start_time" in entry:
        time_s, number = _time_s(entry, "step_start_time"), _step_of(entry)
        yield from walk.settle_cut(number)
        if walk.step is not None and number > walk.step[0]:
            yield from walk.finish_step(time_s, number - 1)
        walk.step = (number, time_s)
    elif "job_end_time" in entry:
        time_s = _time_s(entry, "job_end_time")
        yield from walk.settle_cut(None)
        yield from walk.finish_step(time_s)
        yield walk.event("end", time_s)
    else:
        yield from _span(walk, entry)


def _span(walk: _Walk, entry: dict[str, Any]) -> Iterator[ProgressEvent]:
    for name, event in _SPANS.items():
        kind = str(entry.get("custom_badput_event_type", name))
        if f"{name}_start_time" in entry:
            walk.open[name] = (_time_s(entry, f"{name}_start_time"), kind)
        elif f"{name}_end_time" in entry:
            begun = walk.open.pop(name, None)
            if begun is not None:  # an end without a beginning measures nothing
                time_s = _time_s(entry, f"{name}_end_time")
                length_s = max(time_s - begun[0], 0.0)
                yield from walk.pass_on(walk.event(event, time_s, length_s, begun[1]))


def _step_of(entry: dict[str, Any]) -> int:
    try:
        return int(entry["step_count"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        given = entry.get("step_count", "nothing")
        raise SourceError(f"step_count: {given!r} was given; give a whole number") from error


def _time_s(entry: dict[str, Any], key: str) -> float:
    value = entry[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
        raise SourceError(f"{key}: {value!r} is neither Unix seconds nor ISO 8601")
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise SourceError(f"{key}: {value!r} is neither Unix seconds nor ISO 8601") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
