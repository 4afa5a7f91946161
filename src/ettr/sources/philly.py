"""Microsoft's Philly trace of 2017, `cluster_job_log`: one JSON array of jobs with their attempts.

Format: the README of github.com/msr-fiddle/philly-traces. Times are local to the Pacific coast and
carry no zone; `ip` is a pseudonym of a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonObject,
    RecordShape,
    as_list,
    as_object,
    head_objects,
)
from ettr.sources.lines import BadRecordError, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch, clean

NAME = "philly"

_STATES = {"Pass": "COMPLETED", "Killed": "CANCELLED", "Failed": "FAILED"}
_AGAIN = "FAILED"
"""Of an attempt that another one follows: Philly tries again what failed."""
_OF_A_JOB = {"jobid", "attempts", "submitted_time"}
_SHAPE = RecordShape(lambda job: job.keys() >= _OF_A_JOB, re.compile('"submitted_time"'))


def matches(head: bytes, name: str) -> float:
    """1 where the first bytes hold a job as the trace has it."""
    if any(found.keys() >= _OF_A_JOB for found in head_objects(head, shape=_SHAPE)):
        return 1.0
    marks = (b'"jobid"', b'"submitted_time"', b'"attempts"', b'"gpus"')
    return 1.0 if all(mark in head[:65536] for mark in marks) else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts and their nodes.

    Raises:
        SourceError: the file is cut off or damaged.
        UsageError: no zone was given.
    """
    rows = LogRows(NAME, origin, options)
    rows.zone()
    yield from rows.each_object(partial(_keep, rows), _SHAPE)
    yield rows.batch()


def _keep(rows: LogRows, line: int, job: JsonObject) -> None:
    """Keep the attempts of one job."""
    job_id, submit = text_in(job.get("jobid"), "jobid"), _time(rows, job.get("submitted_time"))
    state = _STATES.get(str(job.get("status")))
    if submit is None:
        raise BadRecordError("bad-timestamp", "submitted_time is not a time")
    if state is None:
        raise BadRecordError("unknown-state", f"status is {job.get('status')!r:.40}")
    attempts = [as_object(one) for one in as_list(job.get("attempts"))]
    for place, attempt in enumerate(attempts or [{}], 1):
        is_last = place >= len(attempts)
        ended = _add(rows, line, job, job_id, submit, attempt, state if is_last else _AGAIN)
        if ended is None or ended <= submit:
            break
        submit = ended


def _add(
    rows: LogRows,
    line: int,
    job: JsonObject,
    job_id: str,
    submit: datetime,
    attempt: JsonObject,
    state: str,
) -> datetime | None:
    """Keep one attempt; when it ended."""
    start, end = (_time(rows, attempt.get(f"{name}_time")) for name in ("start", "end"))
    if start is not None and end is not None and end < start:
        rows.note(
            "attempts that end before they start have no end: clocks went back, or were wrong"
        )
        end = None
    held: dict[str, int] = {}
    for one in map(as_object, as_list(attempt.get("detail"))):
        if node := clean(one.get("ip")):
            held[node] = held.get(node, 0) + len(as_list(one.get("gpus")))
    rows.add_attempt(
        line=line,
        job_id=job_id,
        submit=submit,
        state="RUNNING" if start is not None and end is None else state,
        nodes=tuple(held) if held or start is None else None,
        job_id_raw=job_id,
        user=clean(job.get("user")),
        partition=clean(job.get("vc")),
        start=start,
        end=end if start is not None else end or submit,
        n_gpus=sum(held.values()) if held or start is None else None,
    )
    return end


def _time(rows: LogRows, value: Json) -> datetime | None:
    """A moment, `None` of the trace for none."""
    try:
        return rows.utc(datetime.strptime(str(value), "%Y-%m-%d %H:%M:%S"), is_ordered=False)  # noqa: DTZ007
    except (ValueError, OverflowError):
        return None


SOURCE = Source(
    name=NAME,
    title="Philly traces of 2017, cluster_job_log (JSON)",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    local_time=True,
    options=("--timezone", "--cluster"),
    how_to_get="github.com/msr-fiddle/philly-traces; --timezone America/Los_Angeles",
)
