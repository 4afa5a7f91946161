"""`sacct --json`: the same attempts as `sacct -P`, from any of Slurm's data parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import (
    Broken,
    Json,
    JsonObject,
    RecordShape,
    as_list,
    as_object,
    head_objects,
    load_json,
    number,
    short,
)
from ettr.sources.lines import BadRecordError
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.attempts import FieldRecords
from ettr.tables.rows import Batch

NAME = "slurm-sacct-json"
_JOBS = re.compile(rb'"jobs"\s*:\s*\[')
_ACCOUNTING = re.compile(rb'"(?:association|derived_exit_code|submission|kill_request_user|steps)"')
# a job has other ids within, but was submitted once
_SHAPE = RecordShape(lambda job: job.keys() >= {"job_id", "state"}, re.compile('"submission"'))
_OVERRIDING = ("RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")


def matches(head: bytes, file_name: str) -> float:
    """1 for a JSON object with a list of jobs as accounting has them (squeue's differ)."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return 0.0
    if len(set(_ACCOUNTING.findall(head))) < 2:
        return 0.0
    shown = _JOBS.search(head) or any(map(_SHAPE.is_record, head_objects(head, shape=_SHAPE)))
    return 1.0 if shown else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Batches of attempts and allocations, in the file's order.

    Raises:
        SourceError: the file is no JSON, or holds no list of jobs.
    """
    document = load_json(origin, "jobs", _SHAPE)
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise SourceError(f'{origin}: holds no "jobs" list; is it the output of sacct --json?')
    rows = LogRows(NAME, origin, options)
    records, loses_exit_codes = FieldRecords(rows, short), _version(document) == (22, 5)

    def keep(place: int, job: Json) -> None:
        if isinstance(job, Broken):
            raise BadRecordError("bad-json", job.error)
        try:
            made = _records(as_object(job), loses_exit_codes)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise BadRecordError("bad-job", f"no job as sacct writes it: {error}") from error
        rows.count_read(len(made) - 1)
        for fields in made:
            records.add(place, fields, job)

    for place, job in enumerate(jobs, 1):
        yield from rows.each([(place, job)], keep, _raw)
        if records.is_full:
            yield records.batch()
    if loses_exit_codes:
        rows.note("Slurm 22.05 writes exit code 0 for failed jobs into its JSON; left empty")
    yield records.batch(is_last=True)


def _raw(job: Json) -> str:
    return job.raw if isinstance(job, Broken) else short(job)


def _records(job: JsonObject, loses_exit_codes: bool) -> list[dict[str, str]]:
    """The job and its steps as records of sacct fields."""
    job_id, raw_id = _job_id(job)
    states = as_object(job["state"])
    state = _state(states["current"])
    times, tres = as_object(job.get("time")), as_object(job.get("tres"))
    killer = _kill_user(job.get("kill_request_user"))
    exits = {
        "ExitCode": _exit(job.get("exit_code")),
        "DerivedExitCode": _exit(job.get("derived_exit_code")),
    }
    if loses_exit_codes and state in {"FAILED", "REQUEUED"}:
        exits = {key: "" if text == "0:0" else text for key, text in exits.items()}
    comment = job.get("comment")
    record = {
        "JobID": job_id,
        "JobIDRaw": raw_id,
        "Cluster": _text(job.get("cluster")),
        "User": _text(job.get("user")) or _text(as_object(job.get("association")).get("user")),
        "Account": _text(job.get("account")),
        "Partition": _text(job.get("partition")),
        "QOS": _text(job.get("qos")),
        "JobName": _text(job.get("name")),
        "State": f"CANCELLED by {killer}" if state == "CANCELLED" and killer else state,
        **exits,
        "Submit": _epoch(times.get("submission")),
        "Eligible": _epoch(times.get("eligible")),
        "Start": _epoch(times.get("start")),
        "End": _epoch(times.get("end")),
        "ElapsedRaw": _integer(times.get("elapsed")),
        "Suspended": _clock(times.get("suspended")),
        "TimelimitRaw": _integer(times.get("limit")),
        "AllocNodes": _integer(job.get("allocation_nodes")),
        "AllocTRES": _tres(tres.get("allocated")),
        "ReqTRES": _tres(tres.get("requested")),
        "NodeList": _text(job.get("nodes")),
        "Priority": _integer(job.get("priority")),
        "Reason": _text(states.get("reason")),
        "Restarts": _integer(job.get("restart_cnt")),
        "FailedNode": _text(job.get("failed_node")),
        "Comment": _text(comment.get("job") if isinstance(comment, dict) else comment),
        "WorkDir": _text(job.get("working_directory")),
        "SubmitLine": _text(job.get("submit_line")),
    }
    steps = (as_object(step) for step in as_list(job.get("steps")))
    return [record, *(_step(job_id, record, step) for step in steps)]


def _job_id(job: JsonObject) -> tuple[str, str]:
    raw = number(job["job_id"])
    if raw is None or raw < 0:
        raise ValueError(f"job_id is {job['job_id']!r}")
    array, het = as_object(job.get("array")), as_object(job.get("het"))
    array_id, task = number(array.get("job_id")), number(array.get("task_id"))
    shown = str(int(raw))
    if array_id and task is not None:
        shown = f"{int(array_id)}_{int(task)}"
    elif array_id and array.get("task"):
        shown = f"{int(array_id)}_[{array['task']}]"
    het_id, offset = number(het.get("job_id")), number(het.get("job_offset"))
    if het_id and offset is not None:
        shown = f"{int(het_id)}+{int(offset)}"
    return shown, str(int(raw))


def _step(job_id: str, record: dict[str, str], step: JsonObject) -> dict[str, str]:
    named = as_object(step["step"])["id"]
    if isinstance(named, dict):
        named = named.get("step_id")
    name = str(named).rsplit(".", maxsplit=1)[-1]
    return {
        "JobID": f"{job_id}.{re.sub(r'[^A-Za-z0-9_+-]', '_', name) or '0'}",
        "State": _state(step.get("state") or ""),
        "ExitCode": _exit(step.get("exit_code")),
        "Cluster": record["Cluster"],
    }


def _state(current: Json) -> str:
    """One state of a list of base state and flags: the base, unless a flag says why it ended."""
    if not isinstance(current, list):
        return _text(current)
    names = [str(name) for name in current]
    for flag in _OVERRIDING:
        if flag in names and len(names) == 1 + (names[0] == "PENDING"):
            return flag
    return next(
        (n for n in names if n in words.STATES and n not in _OVERRIDING), names[0] if names else ""
    )


def _kill_user(value: Json) -> str:
    words_of = [] if value is None else str(value).split()
    return words_of[0] if words_of else ""


def _exit(code: Json) -> str:
    if not isinstance(code, dict):
        plain = number(code)
        return "" if plain is None else f"{int(plain)}:0"
    signal = as_object(code.get("signal"))
    signal_id = number(signal.get("signal_id", signal.get("id")))
    returned = number(code.get("return_code"))
    if returned is None and signal_id is None:
        return ""
    return f"{int(returned or 0)}:{int(signal_id or 0)}"


def _epoch(value: Json) -> str:
    seconds = number(value)
    return "Unknown" if not seconds else str(int(seconds))


def _integer(value: Json) -> str:
    given = number(value)
    return "" if given is None else str(int(given))


def _clock(value: Json) -> str:
    seconds = number(value)
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _tres(entries: Json) -> str:
    if isinstance(entries, str):
        return entries
    parts = []
    for entry in map(as_object, as_list(entries)):
        count = number(entry.get("count"))
        if count is not None and count >= 0:
            name = f"{entry['type']}" + (f"/{entry['name']}" if entry.get("name") else "")
            parts.append(f"{name}={int(count)}")
    return ",".join(parts)


def _version(document: JsonObject) -> tuple[int, int] | None:
    try:
        meta = as_object(document.get("meta"))
        version = as_object(as_object(meta.get("Slurm") or meta.get("slurm")).get("version"))
        return int(str(version["major"])), int(str(version["minor"]))
    except (KeyError, TypeError, ValueError):
        return None


SOURCE = Source(
    name=NAME,
    title="Slurm job accounting, sacct --json",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    options=("--cluster", "--accelerators"),
    how_to_get="sacct -a -D -S START -E END --json > sacct.json",
    guide="sources/slurm-sacct.md",
)
