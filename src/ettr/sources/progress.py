"""Progress lines of a training run -> `progress` (docs/how-to/record-progress.md).

The recorder's own codec reads them; what it refuses is kept as a reject with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ettr.progress.events import BadLineError, decode_line, looks_like_event, microseconds
from ettr.sources.base import AMONG_OTHERS, ReadOptions, Source
from ettr.sources.limits import LONGEST_S
from ettr.sources.lines import numbered_lines
from ettr.sources.origin import Origin
from ettr.sources.times import within_years
from ettr.tables.rows import BATCH_ROWS, Batch, Rejects, table_of

NAME = "progress"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOKED_AT_LINES = 20


def matches(head: bytes, name: str) -> float:
    """1 where at least half of the first lines are events, little more than 0.5 where some are."""
    lines = [line for line in head.split(b"\n")[:_LOOKED_AT_LINES] if line.strip()]
    known = [like for line in lines if (like := looks_like_event(line)) is not None]
    if not known or not known[0]:
        return 0.0
    return 1.0 if sum(known) >= 0.5 * len(lines) else AMONG_OTHERS


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
        except BadLineError as bad:
            rejects.add(number, bad.reason, str(bad), line)
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
    event = decode_line(line)
    time = _EPOCH + timedelta(microseconds=microseconds(event.time_s))
    if within_years(time) is None:
        raise BadLineError("bad-timestamp", f"time: {event.time_s}, not of 1980 to 2200")
    if event.duration_s is not None and event.duration_s > LONGEST_S:
        raise BadLineError("bad-duration", f"duration_s: {event.duration_s}, longer than 20 years")
    return {
        "run_id": event.run,
        "cluster": event.cluster or options.cluster,
        "job_id": event.job or options.job,
        "rank": event.rank,
        "time": time,
        "event": event.event,
        "step": event.step,
        "duration_s": event.duration_s,
        "detail": _detail(event.detail),
        "source": NAME,
    }


def _detail(detail: dict[str, Any]) -> str | None:
    try:
        return json.dumps(detail, separators=(",", ":")) if detail else None
    except RecursionError as error:
        raise BadLineError("bad-detail", f"detail: {error}") from error


SOURCE = Source(
    name=NAME,
    title="training progress lines",
    tables=(NAME,),
    matches=matches,
    read=read,
    options=("--job", "--cluster"),
    how_to_get="written by ettr.progress.ProgressRecorder in the training loop",
    guide="record-progress.md",
)
