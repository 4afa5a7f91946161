"""Events of a training run, and the codec of their lines: one writer and one reader.

A line is one JSON object:

    {"v":1,"run":"r1","cluster":null,"job":null,"rank":0,"time":1700000000.250000,
     "event":"step","step":12,"duration_s":0.430000,"detail":{"loss":2.1}}

`time` is when the event was over, in Unix seconds; `duration_s` is how long it held up the training
loop (null: a point in time). Both count to the microsecond.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from ettr.errors import EttrError, SourceError
from ettr.units import MICROSECONDS_PER_SECOND

VERSION = 1
EVENTS = ("start", "step", "save", "restore", "stall", "restart", "end")
# `cause` of a stall; any other text is unknown
STALL_CAUSES = ("data", "gate", "check", "rank", "unknown")
# names that splitters of the wall clock take: a wait for data, and one that is an upper bound
DATA_STALL, OPEN_DATA_STALL = "stall data", "stall data open"
MAX_STEP = (1 << 63) - 1

# Times lie in the years 1 to 9999, as calendars hold them; no duration is longer than that.
EARLIEST_S, LATEST_S = -62_135_596_800.0, 253_402_300_799.0

_KEYS = frozenset({"v", "run", "time", "event", "step"})
_NAMES = frozenset(EVENTS)
# A fact that JSON cannot hold is written as its text: recording must not end the training loop.
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


class BadLineError(EttrError):
    """A line that is no event: the message says why, `reason` is a slug to count it by."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One event: what was over when, at which step, and how long it held up the training loop."""

    event: str
    step: int
    time_s: float
    duration_s: float | None = None
    rank: int = 0
    run: str = ""
    cluster: str | None = None
    job: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def microseconds(seconds: float) -> int:
    """Whole microseconds, the unit in which all times of a record are added up.

    Raises:
        SourceError: the number is not finite.
    """
    try:
        return round(seconds * MICROSECONDS_PER_SECOND)
    except (ValueError, OverflowError) as error:
        raise SourceError(
            f"a time of {seconds} s was given; times and durations are finite numbers of seconds"
        ) from error


class LineWriter:
    """Writes the lines of one rank of a run; what all of them share is encoded once."""

    def __init__(self, run: str, cluster: str | None, job: str | None, rank: int) -> None:
        shared = {"run": run, "cluster": cluster, "job": job, "rank": rank}
        self._prefix = f'{{"v":{VERSION},{json.dumps(shared, separators=(",", ":"))[1:-1]},"time":'

    def line(
        self, event: str, step: int, time_s: float, duration_s: float | None, detail: dict[str, Any]
    ) -> bytes:
        """One line with its line break; `decode_line` gives the event back."""
        duration = "null" if duration_s is None else f"{duration_s:.6f}"
        more = f',"detail":{_encode(detail)}' if detail else ""
        return (
            f'{self._prefix}{time_s:.6f},"event":"{event}","step":{step},'
            f'"duration_s":{duration}{more}}}\n'
        ).encode()


def stall_cause(detail: dict[str, Any]) -> str:
    """The cause of a stall, one of `STALL_CAUSES`."""
    cause = detail.get("cause")
    return cause if isinstance(cause, str) and cause in STALL_CAUSES else "unknown"


def name_in_split(event: ProgressEvent) -> str:
    """The event as `WallClockSplitter` takes it: a wait of the training for data has its name."""
    if event.event != "stall" or stall_cause(event.detail) != "data":
        return event.event
    if event.detail.get("part") == "evaluation":
        return event.event
    return OPEN_DATA_STALL if event.detail.get("bound") == "upper" else DATA_STALL


def decode_line(line: bytes) -> ProgressEvent:
    """The event of one line.

    Raises:
        BadLineError: the line is torn, of another format, or holds a value that cannot be.
    """
    record = _record(line)
    if record.get("v") != VERSION:
        raise BadLineError("bad-version", f"v: {record.get('v')!r}, this reads {VERSION}")
    event = record.get("event")
    if not _is_event(event):
        raise BadLineError("bad-event", f"event: {event!r}, not of {', '.join(sorted(EVENTS))}")
    run = _text(record, "run")
    if not run or not isinstance(record["run"], str):
        raise BadLineError("bad-run", f"run: {record.get('run')!r}, not a name")
    detail = record.get("detail") or {}
    return ProgressEvent(
        event=event,
        step=_whole(record, "step", None),
        time_s=_time_s(record),
        duration_s=_duration_s(record),
        rank=_whole(record, "rank", 0),
        run=run,
        cluster=_text(record, "cluster"),
        job=_text(record, "job"),
        detail=detail if isinstance(detail, dict) else {"value": detail},
    )


def parse_line(line: bytes) -> ProgressEvent | None:
    """The event of one line, or None where the line is torn or not of this format."""
    try:
        return decode_line(line)
    except BadLineError:
        return None


def looks_like_event(line: bytes) -> bool | None:
    """Whether a line has the keys of an event and a known name; None where it lacks the keys."""
    try:
        record = _record(line)
    except BadLineError:
        return None
    return _is_event(record["event"]) if record.keys() >= _KEYS else None


def read_progress(path: str | os.PathLike[str]) -> Iterator[ProgressEvent]:
    """The events of a file in the order written; torn and foreign lines are passed over.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            for line in file:
                event = parse_line(line)
                if event is not None:
                    yield event
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError("bad-json", f"torn, or not JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadLineError("not-an-object", f"a {type(record).__name__}, not an object")
    return record


def _is_event(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value in _NAMES


def _text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is None or value == "":
        return None
    text = str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadLineError(f"bad-{key}", f"{key}: {value!r} is no Unicode text") from error
    return text


def _whole(record: dict[str, Any], key: str, absent: int | None) -> int:
    value = record.get(key, absent)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_STEP:
        raise BadLineError(f"bad-{key}", f"{key}: {_short(value)}, not a whole number")
    return value


def _time_s(record: dict[str, Any]) -> float:
    value = record.get("time")
    if not _is_number(value) or not EARLIEST_S <= value <= LATEST_S:
        raise BadLineError("bad-timestamp", f"time: {_short(value)}, not Unix seconds")
    return float(value)


def _duration_s(record: dict[str, Any]) -> float | None:
    value = record.get("duration_s")
    if value is None:
        return None
    if not _is_number(value):
        raise BadLineError("bad-duration", f"duration_s: {_short(value)}, not seconds")
    if not 0 <= value <= LATEST_S:
        raise BadLineError("bad-duration", f"duration_s: {_short(value)}, not a length of time")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
