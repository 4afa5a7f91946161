"""GCM's NDJSON: results of its health checks (events), its copies of sacct and squeue (attempts).

All kinds may stand in one file. Other records of GCM (snapshots of nodes and of the scheduler) are
counted as skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import attrgetter

from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Json,
    JsonObject,
    JsonRecord,
    RecordShape,
    as_object,
    head_objects,
    json_records,
)
from ettr.sources.lines import BadRecordError, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm.attempts import FieldRecords
from ettr.sources.times import time_in, time_of
from ettr.tables.rows import Batch, clean

NAME = "gcm"

# GCM's names for squeue's columns -> sacct's fields
_SQUEUE_FIELDS = {
    "JOBID": "JobID",
    "JOBID_RAW": "JobIDRaw",
    "NAME": "JobName",
    "STATE": "State",
    "USER": "User",
    "ACCOUNT": "Account",
    "PARTITION": "Partition",
    "QOS": "QOS",
    "COMMENT": "Comment",
    "REASON": "Reason",
    "RESTARTCNT": "Restarts",
    "SUBMIT_TIME": "Submit",
    "ELIGIBLE_TIME": "Eligible",
    "START_TIME": "Start",
    "TIME_USED": "Elapsed",
    "TIME_LIMIT": "Timelimit",
    "NODES": "ReqNodes",
}
_TRES = {"node": "NODE", "cpu": "CPU", "gres/gpu": "GPUS"}
# Nagios exit codes
_SEVERITY = {0: "ok", 1: "warning", 2: "critical", 3: "unknown"}
_XIDS = re.compile(r"\bXID(?: error)?s?:?\s*((?:\d{1,3}(?:\s*,\s*)?)+)", re.IGNORECASE)
_OTHERS = {"NODE_NAME", "nodes_allocated", "server_thread_count", "BlockName", "SwitchName"}


def _is_record(value: JsonObject) -> bool:
    body = _body(value) or {}
    ours = "health_check" in body or "derived_cluster" in body
    return ours or isinstance(body.get("sacct"), dict) or _is_queued(body)


_SHAPE = RecordShape(_is_record, re.compile('"(?:health_check|sacct|SUBMIT_TIME)"'))


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of the checks, attempts and allocations of the jobs."""
    file = LogRows(NAME, origin, options)
    jobs = FieldRecords(file, attrgetter("raw"))

    def keep(line: int, record: JsonRecord) -> None:
        body = _body(record.value)
        if body is None:
            raise BadRecordError("bad-json", record.error or "no JSON object")
        if isinstance(body.get("sacct"), dict):
            jobs.add(line, _sacct(body), record, "ended")
        elif _is_queued(body):
            jobs.add(line, _queued(body), record, "queued")
        elif "health_check" in body or "result" in body:
            _check(file, line, body)
        else:
            file.count_skipped()

    for record in json_records(origin, _SHAPE):
        yield from file.each([(record.line, record)], keep, attrgetter("raw"))
        if jobs.is_full:
            yield jobs.batch()
    yield jobs.batch(is_last=True)


def _body(value: Json) -> JsonObject | None:
    """The record itself, out of the wrapping that a sink may put round it."""
    if not isinstance(value, dict):
        return None
    for key in ("data", "payload", "record"):
        inner = value.get(key)
        if isinstance(inner, dict) and ("health_check" in inner or "sacct" in inner):
            return inner
    return value


def _sacct(body: JsonObject) -> JsonObject:
    fields = dict(as_object(body["sacct"]))
    if not any(name.lower() == "cluster" and value for name, value in fields.items()):
        fields["Cluster"] = body.get("cluster")
    return fields


def _is_queued(body: JsonObject) -> bool:
    return "JOBID" in body and "SUBMIT_TIME" in body


def _queued(body: JsonObject) -> JsonObject:
    """A job of GCM's copy of squeue, as sacct's fields."""
    fields: JsonObject = {
        theirs: value for ours, theirs in _SQUEUE_FIELDS.items() if (value := clean(body.get(ours)))
    }
    fields["Cluster"] = clean(body.get("cluster"))
    for ours, theirs in (("NODELIST", "NodeList"), ("EXC_NODES", "ExcNodeList")):
        nodes = body.get(ours)
        if isinstance(nodes, list):
            fields[theirs] = ",".join(name for node in nodes if (name := clean(node)))
    if fields.get("State") == "PENDING":
        fields.pop("Start", None)  # when it is expected to
    else:
        allocated = {name: body.get(f"TRES_{key}_ALLOCATED") for name, key in _TRES.items()}
        fields["AllocTRES"] = _tres(allocated)
    n_nodes, per_node = body.get("NODES"), body.get("GPUS_REQUESTED")
    # 0 is what GCM writes where GPUs were not asked for by node
    if isinstance(n_nodes, int) and isinstance(per_node, int) and per_node > 0:
        fields["ReqTRES"] = _tres({"gres/gpu": n_nodes * per_node})
    return fields


def _tres(counts: JsonObject) -> str:
    return ",".join(f"{name}={n}" for name, n in counts.items() if isinstance(n, int))


def _check(file: LogRows, line: int, body: JsonObject) -> None:
    check = text_in(body.get("health_check"), "health_check")
    time = time_in(body.get("start_time"), "start_time")
    end = time_of(body.get("end_time"))
    message = clean(body.get("_msg"))
    result = body.get("result")
    severity = _SEVERITY.get(result, "unknown") if isinstance(result, int) else "unknown"
    codes = _codes(message) if check.lower() == "xid errors" and severity != "ok" else []
    for code in codes or [None]:
        file.events.add(
            line=line,
            time=time,
            time_end=end if end and end >= time else None,
            node=clean(body.get("node")),
            cluster=clean(body.get("cluster")),
            check=check,
            code=code,
            severity=severity,
            message=message,
            job_id=_job(body),
        )


def _codes(message: str | None) -> list[str | None]:
    found = (
        number for group in _XIDS.findall(message or "") for number in re.findall(r"\d+", group)
    )
    return list(dict.fromkeys(found))


def _job(body: JsonObject) -> str | None:
    """The one job that the record names; GCM writes 0 or -1 where it knows none."""
    jobs = body.get("active_job_ids")
    given = [body.get("job_id")]
    if isinstance(jobs, list) and len(jobs) == 1:
        given.append(jobs[0])
    for job in given:
        text = clean(job)
        if text and text not in {"0", "-1"}:
            return text
    return None


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are GCM's records."""
    bodies = [_body(value) or {} for value in head_objects(head, shape=_SHAPE)]
    ours = any(
        ("health_check" in body and ("result" in body or "_msg" in body))
        or isinstance(body.get("sacct"), dict)
        or (_is_queued(body) and "derived_cluster" in body)
        for body in bodies
    )
    others = any(
        "derived_cluster" in body and not body.keys().isdisjoint(_OTHERS) for body in bodies
    )
    return 0.95 if ours else 0.7 if others else 0.0


def prints_local(head: bytes) -> bool:
    """Whether the file holds sacct rows whose times have no offset."""
    rows = ((_body(value) or {}).get("sacct") for value in head_objects(head))
    stamps = (
        str(stamp)
        for row in rows
        if isinstance(row, dict)
        for name, stamp in row.items()
        if str(name).lower() in {"submit", "start", "end"}
    )
    return any(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", stamp) for stamp in stamps)


SOURCE = Source(
    name=NAME,
    title="GCM health checks, sacct and squeue rows (NDJSON)",
    tables=("events", "attempts", "allocations"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--cluster", "--timezone"),
    how_to_get="GCM's file sink: health_checks ... --sink=file, gcm sacct_publish --sink=file",
)
