"""Jobs of the Flux resource manager, as `flux jobs --json` lists them.

Format: flux-jobs(1) for the fields, Flux RFC 21 for states and results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from operator import attrgetter

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonRecord,
    RecordShape,
    head_objects,
    json_record,
    json_records,
)
from ettr.sources.limits import most_listed
from ettr.sources.lines import BadRecordError, integer_of, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import expand_nodes
from ettr.sources.origin import Origin
from ettr.sources.times import time_in, time_of
from ettr.tables.rows import Batch, clean

NAME = "flux"

_RESULTS = {
    "COMPLETED": "COMPLETED",
    "FAILED": "FAILED",
    "CANCELED": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
}
_OPEN_STATES = {
    "NEW": "PENDING",
    "DEPEND": "PENDING",
    "PRIORITY": "PENDING",
    "SCHED": "PENDING",
    "RUN": "RUNNING",
    "CLEANUP": "RUNNING",
}
_NODE_FAILURE = "node-failure"
_OF_A_JOB = {"id", "t_submit", "state"}
_SHAPE = RecordShape(lambda job: job.keys() >= _OF_A_JOB, re.compile('"t_submit"'), ("jobs",))


def matches(head: bytes, name: str) -> float:
    """1 where the first bytes hold a job as Flux lists it."""
    if any(found.keys() >= _OF_A_JOB for found in head_objects(head, shape=_SHAPE)):
        return 1.0
    # one document longer than the first bytes: its keys stand there all the same
    start = head[:4096]
    marks = (b'"jobs"', b'"t_submit"', b'"t_depend"')
    return 1.0 if start.lstrip()[:1] == b"{" and all(mark in start for mark in marks) else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts and their nodes, one for each job.

    Raises:
        SourceError: the file is cut off or damaged.
    """
    rows = LogRows(NAME, origin, options)
    yield from rows.each(_jobs(origin), partial(_keep, rows), attrgetter("raw"))
    yield rows.batch()


def _jobs(origin: Origin) -> Iterator[tuple[int, JsonRecord]]:
    """The jobs with their places: a listing wraps many."""
    place = 0
    for record in json_records(origin, _SHAPE):
        jobs = record.value.get("jobs") if isinstance(record.value, dict) else None
        for job in jobs if isinstance(jobs, list) else (None,):
            place += 1
            yield place, record if job is None else json_record(place, job)


def _keep(rows: LogRows, line: int, record: JsonRecord) -> None:
    """Keep the attempt of one job."""
    job = record.value
    if not isinstance(job, dict):
        raise BadRecordError("bad-json", record.error or "no JSON object")
    job_id, submit = text_in(job.get("id"), "id"), time_in(job.get("t_submit"), "t_submit")
    state = _state(job)
    if state is None:
        detail = f"state is {job.get('state')!r:.40}, result {job.get('result')!r:.40}"
        raise BadRecordError("unknown-state", detail)
    try:
        nodes = expand_nodes(str(job["nodelist"])) if job.get("nodelist") else None
    except ValueError as error:
        raise BadRecordError("bad-node-list", str(error)) from error
    if len(nodes or ()) > most_listed(integer_of(job.get("nnodes"))):
        detail = f"nodelist names {len(nodes or ())} nodes, nnodes fewer"
        raise BadRecordError("bad-node-list", detail)
    _add(rows, line, job, job_id, submit, state, nodes)


def _add(
    rows: LogRows,
    line: int,
    job: dict[str, Json],
    job_id: str,
    submit: datetime,
    state: str,
    nodes: tuple[str, ...] | None,
) -> None:
    is_open = state in _OPEN_STATES.values()
    start = time_of(job.get("t_run"))
    end = None if is_open else time_of(job.get("t_cleanup")) or time_of(job.get("t_inactive"))
    n_nodes = integer_of(job.get("nnodes"))
    per_node = rows.options.gpus_per_node
    if per_node is not None and n_nodes:
        rows.note(f"the list names no GPUs; each node was counted with {per_node}, as a whole")
    status = job.get("waitstatus")
    status = status if isinstance(status, int) and not is_open and start is not None else None
    rows.add_attempt(
        line=line,
        job_id=job_id,
        submit=submit,
        state=state,
        nodes=nodes,
        job_id_raw=job_id,
        name=clean(job.get("name")),
        user=clean(job.get("username")) or clean(job.get("userid")),
        account=clean(job.get("bank")) or clean(job.get("project")),
        partition=clean(job.get("queue")),
        eligible=time_of(job.get("t_depend")),
        start=start,
        end=end,
        time_limit_s=_positive(job.get("duration")),
        exit_code=None if status is None or status & 0x7F else status >> 8,
        exit_signal=status & 0x7F if status is not None and status & 0x7F else None,
        n_cpus=integer_of(job.get("ncores")),
        n_gpus=None if per_node is None or not n_nodes else per_node * n_nodes,
        comment=_exception(job, "note"),
        n_nodes=n_nodes if nodes is None else len(nodes),
    )


def _state(job: dict[str, Json]) -> str | None:
    """How a job stands or ended; a node failed where the exception that ended it says so."""
    state = str(job.get("state") or "")
    if state != "INACTIVE":
        return _OPEN_STATES.get(state)
    result = _RESULTS.get(str(job.get("result") or ""))
    if result == "FAILED" and _exception(job, "type") == _NODE_FAILURE:
        return "NODE_FAIL"
    return result


def _exception(job: dict[str, Json], field: str) -> str | None:
    """A field of the job's exception, which versions of Flux write flat or nested."""
    nested = job.get("exception")
    if isinstance(nested, dict):
        return clean(nested.get(field))
    return clean(job.get(f"exception_{field}"))


def _positive(value: object) -> float | None:
    """Seconds above 0; Flux writes 0 for no limit."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value < 1e10 else None  # type: ignore[operator, arg-type]


SOURCE = Source(
    name=NAME,
    title="Flux jobs (`flux jobs --json`)",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    options=("--cluster", "--gpus-per-node"),
    how_to_get="flux jobs -A -a --count=0 --since=-30d --json > jobs.json",
)
