"""GCM's NDJSON: results of its health checks (events), its copies of sacct and squeue (attempts).

All kinds may stand in one file. Other records of GCM (snapshots of nodes and of the scheduler) are
counted as skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ettr.errors import SourceError
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
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm.attempts import AttemptReader, rows_from_sacct_fields
from ettr.sources.times import time_of
from ettr.tables.rows import Batch, clean

NAME = "gcm"

# records of jobs are wide; this many of them, raw, stay well under 200 MB
_JOB_RECORDS = 20_000
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
_OTHERS = ("NODE_NAME", "nodes_allocated", "server_thread_count", "BlockName", "SwitchName")


@dataclass(slots=True)
class _JobRecords:
    """Records of jobs waiting to be made rows: sacct's fields, the line, and the record as read."""

    fields: list[JsonObject] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, fields: JsonObject, record: JsonRecord) -> None:
        self.fields.append(fields)
        self.lines.append(record.line)
        self.texts.append(record.raw)


def _is_record(value: JsonObject) -> bool:
    body = _body(value) or {}
    ours = "health_check" in body or "derived_cluster" in body
    return ours or isinstance(body.get("sacct"), dict) or _is_queued(body)


_SHAPE = RecordShape(_is_record, re.compile('"(?:health_check|sacct|SUBMIT_TIME)"'))


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Events of the checks, attempts and allocations of the jobs."""
    file = LogRows(NAME, origin, options)
    attempts = AttemptReader(NAME, origin.file_id, options, str(origin))
    # apart, since what one kind has the other may lack
    ended, queued = _JobRecords(), _JobRecords()
    for record in json_records(origin, shape=_SHAPE):
        file.count_read()
        body = _body(record.value)
        if body is None:
            file.reject(record.line, "bad-json", record.error or "no JSON object", record.raw)
        elif isinstance(body.get("sacct"), dict):
            ended.add(_sacct(body), record)
        elif _is_queued(body):
            queued.add(_queued(body), record)
        elif "health_check" in body or "result" in body:
            _check(file, body, record)
        else:
            file.count_skipped()
        if file.is_full or len(ended.lines) + len(queued.lines) >= _JOB_RECORDS:
            yield _batch(file, attempts, (queued, ended))
            ended, queued = _JobRecords(), _JobRecords()
    yield _batch(file, attempts, (queued, ended))


def _batch(file: LogRows, attempts: AttemptReader, kinds: tuple[_JobRecords, ...]) -> Batch:
    made: dict[str, list[pa.Table]] = {"attempts": [], "allocations": []}
    for jobs in kinds:
        if not jobs.lines:
            continue
        try:
            converted = rows_from_sacct_fields(attempts, jobs.fields, jobs.lines)
        except SourceError as error:
            for line, text in zip(jobs.lines, jobs.texts, strict=True):
                file.reject(line, "missing-field", str(error), text)
            continue
        for bad in converted.bad:
            file.reject(jobs.lines[bad.index], bad.reason, bad.detail, jobs.texts[bad.index])
        file.count_skipped(converted.skipped)
        file.count_folded(converted.folded)
        made["attempts"].append(converted.attempts)
        made["allocations"].append(converted.allocations)
    for sentence in attempts.notes() if made["attempts"] else ():
        file.note(sentence)
    return file.batch(**{name: pa.concat_tables(parts) for name, parts in made.items() if parts})


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


def _check(file: LogRows, body: JsonObject, record: JsonRecord) -> None:
    check = clean(body.get("health_check"))
    if check is None:
        file.reject(record.line, "missing-field", "health_check is missing", record.raw)
        return
    time = time_of(body.get("start_time"))
    if time is None:
        detail = f"start_time is {body.get('start_time')!r}"
        file.reject(record.line, "bad-timestamp", detail, record.raw)
        return
    end = time_of(body.get("end_time"))
    message = clean(body.get("_msg"))
    result = body.get("result")
    severity = _SEVERITY.get(result, "unknown") if isinstance(result, int) else "unknown"
    codes = _codes(message) if check.lower() == "xid errors" and severity != "ok" else []
    for code in codes or [None]:
        file.events.add(
            line=record.line,
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
    best = 0.0
    for value in head_objects(head, shape=_SHAPE):
        body = _body(value) or {}
        if (
            ("health_check" in body and ("result" in body or "_msg" in body))
            or isinstance(body.get("sacct"), dict)
            or (_is_queued(body) and "derived_cluster" in body)
        ):
            best = max(best, 0.95)
        elif "derived_cluster" in body and any(key in body for key in _OTHERS):
            best = max(best, 0.7)
    return best


def prints_local(head: bytes) -> bool:
    """Whether the file holds sacct rows whose times have no offset."""
    for value in head_objects(head):
        sacct = (_body(value) or {}).get("sacct")
        if isinstance(sacct, dict):
            for name, stamp in sacct.items():
                if str(name).lower() in {"submit", "start", "end"} and re.fullmatch(
                    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", str(stamp)
                ):
                    return True
    return False


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
