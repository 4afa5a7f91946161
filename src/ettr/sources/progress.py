"""Progress lines of a training run -> `progress`.

The recorder of the training side writes one JSON object a line (docs/how-to/record-progress.md).
The format is shared, not the code: this reader knows it by its keys alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import numbered_lines
from ettr.sources.origin import Origin
from ettr.tables.rows import BATCH_ROWS, Batch, Rejects, table_of

NAME = "progress"
VERSION = 1
EVENTS = frozenset({"start", "step", "save", "restore", "stall", "restart", "end"})


class _BadRecordError(Exception):
    """A record that is no event; carries the slug and the words for `rejects`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def matches(head: bytes, name: str) -> float:
    """1 where one of the first lines is a progress event, else 0."""
    for line in head.split(b"\n")[:20]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and {"v", "run", "time", "event", "step"} <= record.keys():
            return 1.0 if record["event"] in EVENTS else 0.0
    return 0.0


def read(file: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Rows of `progress`; torn and bad lines become rejects, blank lines are skipped."""
    rows: list[dict[str, Any]] = []
    rejects = Rejects(NAME, file.file_id)
    n_read = n_skipped = 0
    for number, raw in numbered_lines(file):
        n_read += 1
        line = raw.strip()
        if not line:
            n_skipped += 1
            continue
        try:
            rows.append(_row(line, options) | {"file_id": file.file_id, "line": number})
        except _BadRecordError as bad:
            rejects.add(number, bad.reason, bad.detail, line)
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows, rejects, n_read, n_skipped)
            rows, rejects, n_read, n_skipped = [], Rejects(NAME, file.file_id), 0, 0
    if n_read:
        yield _batch(rows, rejects, n_read, n_skipped)


def _batch(rows: list[dict[str, Any]], rejects: Rejects, n_read: int, n_skipped: int) -> Batch:
    return Batch(
        {NAME: table_of(NAME, rows), "rejects": rejects.table()},
        rows_read=n_read,
        rows_rejected=len(rejects.rows),
        rows_skipped=n_skipped,
    )


def _row(line: bytes, options: ReadOptions) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadRecordError("bad-json", f"torn, or not JSON: {error}") from error
    if not isinstance(record, dict):
        raise _BadRecordError("not-an-object", f"a {type(record).__name__}, not an object")
    if record.get("v") != VERSION:
        raise _BadRecordError("bad-version", f"v: {record.get('v')!r}, this reads {VERSION}")
    event = record.get("event")
    if event not in EVENTS:
        raise _BadRecordError("bad-event", f"event: {event!r}, not of {', '.join(sorted(EVENTS))}")
    run = record.get("run")
    if not isinstance(run, str) or not run:
        raise _BadRecordError("bad-run", f"run: {run!r}, not a name")
    detail = record.get("detail")
    return {
        "run_id": run,
        "cluster": _text(record, "cluster") or options.cluster,
        "job_id": _text(record, "job"),
        "rank": _whole(record, "rank", 0),
        "time": _time(record),
        "event": event,
        "step": _whole(record, "step", None),
        "duration_s": _duration_s(record),
        "detail": json.dumps(detail, separators=(",", ":")) if detail else None,
        "source": NAME,
    }


def _text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    return None if value is None or value == "" else str(value)


def _whole(record: dict[str, Any], key: str, absent: int | None) -> int:
    value = record.get(key, absent)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 63:
        raise _BadRecordError(f"bad-{key}", f"{key}: {value!r}, not a whole number")
    return value


def _time(record: dict[str, Any]) -> datetime:
    value = record.get("time")
    try:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        return datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise _BadRecordError("bad-timestamp", f"time: {value!r}, not Unix seconds") from error


def _duration_s(record: dict[str, Any]) -> float | None:
    value = record.get("duration_s")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadRecordError("bad-duration", f"duration_s: {value!r}, not seconds")
    if not math.isfinite(value) or value < 0:
        raise _BadRecordError("bad-duration", f"duration_s: {value!r}, not a length of time")
    return float(value)


SOURCE = Source(
    name=NAME,
    title="training progress lines",
    tables=(NAME,),
    matches=matches,
    read=read,
    how_to_get="written by ettr.progress.recorder.ProgressRecorder in the training loop",
    guide="record-progress.md",
)
