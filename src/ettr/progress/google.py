"""Import of the logs of Google's ml-goodput-measurement, as progress events.

Its entries are dictionaries that mark moments: a job's start and end, the start of each step, begin
and end of initialisation, preparation, data loading and of events that the user names. A step is
done when the next one starts, or the job ends; one that was in flight when the job started anew is
lost, and its time counts to the restart, since nobody wrote down when the job died.
Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ettr.errors import SourceError
from ettr.progress.events import ProgressEvent

_SPANS = {
    "tpu_init": "restart",
    "training_prep": "restart",
    "data_loading": "stall",
    "custom_badput_event": "stall",
}


class _Walk:
    """The state between two entries."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.started = False
        self.step: tuple[int, float] | None = None  # in flight: its number and start
        self.reached = 0
        self.open: dict[str, tuple[float, str]] = {}

    def event(
        self, event: str, time_s: float, duration_s: float | None = None, kind: str | None = None
    ) -> ProgressEvent:
        detail = {"kind": kind} if kind else {}
        return ProgressEvent(event, self.reached, time_s, duration_s, run=self.run, detail=detail)

    def finish_step(self, time_s: float) -> Iterator[ProgressEvent]:
        if self.step is not None:
            number, begin_s = self.step
            self.reached, self.step = number, None
            yield self.event("step", time_s, max(time_s - begin_s, 0.0))


def read_google_goodput(
    entries: Iterable[dict[str, Any]], *, job: str | None = None
) -> Iterator[ProgressEvent]:
    """Progress events of one job's entries, in the order of the log.

    Args:
        entries: as the log holds them; times are Unix seconds or ISO 8601 (UTC where no zone is).
        job: only entries whose `job_name` is this; None: all of them.

    Raises:
        SourceError: the entries are of several jobs and none was named, or a time or a step cannot
            be read.
    """
    walk: _Walk | None = None
    for entry in entries:
        name = str(entry.get("job_name", ""))
        if job is not None and name != job:
            continue
        if walk is None:
            walk = _Walk(name or job or "google")
        elif name and name != walk.run:
            raise SourceError(f"entries of the jobs {walk.run!r} and {name!r}; name one as job=")
        yield from _events_of(walk, entry)


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
        raise SourceError(f"{path}: line {number} is no JSON object")
    return entry


def _events_of(walk: _Walk, entry: dict[str, Any]) -> Iterator[ProgressEvent]:
    if "job_start_time" in entry:
        # Whatever was in flight died with the job before.
        walk.step, walk.open = None, {}
        yield walk.event("restart" if walk.started else "start", _time_s(entry, "job_start_time"))
        walk.started = True
    elif "step_start_time" in entry:
        time_s, number = _time_s(entry, "step_start_time"), _step_of(entry)
        if walk.step is not None and number == walk.step[0] + 1:
            yield from walk.finish_step(time_s)
        walk.step = (number, time_s)
    elif "job_end_time" in entry:
        time_s = _time_s(entry, "job_end_time")
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
                yield walk.event(event, time_s, max(time_s - begun[0], 0.0), begun[1])


def _step_of(entry: dict[str, Any]) -> int:
    try:
        return int(entry["step_count"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        given = entry.get("step_count", "nothing")
        raise SourceError(f"step_count: {given!r} was given; it is a whole number") from error


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
