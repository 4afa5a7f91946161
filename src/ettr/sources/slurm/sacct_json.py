"""`sacct --json`: the same attempts as `sacct -P`, from any of Slurm's data parsers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import load_json
from ettr.sources.origin import Origin
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.attempts import AttemptReader, rows_from_sacct_fields
from ettr.tables.rows import Batch, Rejects

NAME = "slurm-sacct-json"
_JOBS = re.compile(rb'"jobs"\s*:\s*\[')
_ACCOUNTING = re.compile(rb'"(?:association|derived_exit_code|submission|kill_request_user|steps)"')
_BATCH_JOBS = 20_000
_OVERRIDING = ("RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")


def matches(head: bytes, file_name: str) -> float:
    """1 for a JSON object with a list of jobs as accounting has them (squeue's differ)."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or not _JOBS.search(head):
        return 0.0
    return 1.0 if len({m for m in _ACCOUNTING.findall(head)}) >= 2 else 0.0  # noqa: C416


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Batches of attempts and allocations, in the file's order.

    Raises:
        SourceError: the file is no JSON, or holds no list of jobs.
    """
    document = load_json(origin)
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise SourceError(f'{origin}: holds no "jobs" list; is it the output of sacct --json?')
    reader = AttemptReader(NAME, origin.file_id, options, str(origin))
    loses_exit_codes = _version(document) == (22, 5)
    for first in range(0, len(jobs), _BATCH_JOBS):
        yield _batch(
            jobs[first : first + _BATCH_JOBS], first + 1, reader, origin.file_id, loses_exit_codes
        )
    notes = reader.notes()
    if loses_exit_codes:
        notes += ("Slurm 22.05 writes exit code 0 for failed jobs into its JSON; left empty",)
    yield Batch({}, 0, notes=notes)


def number(value: Any) -> int | float | None:
    """A plain number, or one wrapped as {set, infinite, number}; None where it is not set."""
    if isinstance(value, dict):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number", value.get("id"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None


def _batch(
    jobs: list[Any], first: int, reader: AttemptReader, file_id: str, loses_exit_codes: bool
) -> Batch:
    rejects = Rejects(NAME, file_id)
    records: list[dict[str, str]] = []
    places: list[int] = []
    raws: list[Any] = []
    for place, job in enumerate(jobs, first):
        try:
            made = _records(job, loses_exit_codes)
        except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as error:
            rejects.add(place, "bad-job", f"no job as sacct writes it: {error}", _cut(job))
            continue
        records += made
        places += [place] * len(made)
        raws += [job] * len(made)
    read_count = len(records) + len(rejects.rows)
    if not records:
        tables = {"rejects": rejects.table()} if rejects.rows else {}
        return Batch(tables, read_count, len(rejects.rows))
    made_rows = rows_from_sacct_fields(reader, records, places)
    for bad in made_rows.bad:
        rejects.add(places[bad.index], bad.reason, bad.detail, _cut(raws[bad.index]))
    tables = {"attempts": made_rows.attempts, "allocations": made_rows.allocations}
    if rejects.rows:
        tables["rejects"] = rejects.table()
    return Batch(tables, read_count, len(rejects.rows), made_rows.skipped)


def _cut(job: Any) -> str:
    return json.dumps(job)[:500]


def _records(job: dict[str, Any], loses_exit_codes: bool) -> list[dict[str, str]]:
    """The job and its steps as records of sacct fields."""
    job_id, raw_id = _job_id(job)
    state = _state(job["state"]["current"])
    times = job.get("time") or {}
    killer = _kill_user(job.get("kill_request_user"))
    exits = {"ExitCode": _exit(job.get("exit_code"))}
    exits["DerivedExitCode"] = _exit(job.get("derived_exit_code"))
    if loses_exit_codes and state in {"FAILED", "REQUEUED"}:
        exits = {key: "" if text == "0:0" else text for key, text in exits.items()}
    comment, tres = job.get("comment"), job.get("tres") or {}
    record = {
        "JobID": job_id,
        "JobIDRaw": raw_id,
        "Cluster": _text(job.get("cluster")),
        "User": _text(job.get("user")) or _text((job.get("association") or {}).get("user")),
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
        "Reason": _text(job["state"].get("reason")),
        "Restarts": _integer(job.get("restart_cnt")),
        "FailedNode": _text(job.get("failed_node")),
        "Comment": _text(comment.get("job") if isinstance(comment, dict) else comment),
        "WorkDir": _text(job.get("working_directory")),
        "SubmitLine": _text(job.get("submit_line")),
    }
    return [record, *(_step(job_id, record, step) for step in job.get("steps") or ())]


def _job_id(job: dict[str, Any]) -> tuple[str, str]:
    raw = number(job["job_id"])
    if raw is None or raw < 0:
        raise ValueError(f"job_id is {job['job_id']!r}")
    array, het = job.get("array") or {}, job.get("het") or {}
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


def _step(job_id: str, record: dict[str, str], step: dict[str, Any]) -> dict[str, str]:
    named = step["step"]["id"]
    if isinstance(named, dict):
        named = named.get("step_id")
    name = str(named).rsplit(".", maxsplit=1)[-1]
    return {
        "JobID": f"{job_id}.{re.sub(r'[^A-Za-z0-9_+-]', '_', name) or '0'}",
        "State": _state(step.get("state") or ""),
        "ExitCode": _exit(step.get("exit_code")),
        "Cluster": record["Cluster"],
    }


def _state(current: Any) -> str:
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


def _kill_user(value: Any) -> str:
    return "" if value in {None, ""} else str(value).split()[0]


def _exit(code: Any) -> str:
    if not isinstance(code, dict):
        return "" if code is None else f"{int(code)}:0"
    signal = code.get("signal") or {}
    signal_id = number(signal.get("signal_id", signal.get("id")))
    returned = number(code.get("return_code"))
    if returned is None and signal_id is None:
        return ""
    return f"{int(returned or 0)}:{int(signal_id or 0)}"


def _epoch(value: Any) -> str:
    seconds = number(value)
    return "Unknown" if not seconds else str(int(seconds))


def _integer(value: Any) -> str:
    given = number(value)
    return "" if given is None else str(int(given))


def _clock(value: Any) -> str:
    seconds = number(value)
    return "" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _tres(entries: Any) -> str:
    if isinstance(entries, str):
        return entries
    parts = []
    for entry in entries or ():
        count = number(entry.get("count"))
        if count is not None and count >= 0:
            name = entry["type"] + (f"/{entry['name']}" if entry.get("name") else "")
            parts.append(f"{name}={int(count)}")
    return ",".join(parts)


def _version(document: dict[str, Any]) -> tuple[int, int] | None:
    meta = document.get("meta")
    slurm = (meta.get("Slurm") or meta.get("slurm")) if isinstance(meta, dict) else None
    version = slurm.get("version") if isinstance(slurm, dict) else None
    try:
        return (int(version["major"]), int(version["minor"])) if version else None
    except (KeyError, TypeError, ValueError):
        return None


SOURCE = Source(
    name=NAME,
    title="Slurm job accounting, sacct --json",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    names_cluster=True,
    options=("--cluster",),
    how_to_get="sacct -a -D -S START -E END --json > sacct.json",
    guide="sources/slurm-sacct.md",
)
