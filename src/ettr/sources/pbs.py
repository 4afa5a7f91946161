"""Accounting logs of PBS Professional, OpenPBS and TORQUE: one line for each thing done to a job.

Format: Altair PBS Professional Reference Guide, "Accounting Log"; TORQUE Administrator Guide,
"Accounting records".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from ettr.sources.base import AMONG_OTHERS, ReadOptions, Source
from ettr.sources.lines import (
    BadRecordError,
    first_texts,
    integer_of,
    not_blank,
    numbered_texts,
)
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_in, time_of
from ettr.tables.rows import Batch, clean
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

NAME = "pbs"

_RECORD = re.compile(
    r"(?P<stamp>\d\d/\d\d/\d{4} \d\d:\d\d:\d\d);(?P<kind>[A-Za-z]{1,2});(?P<job>[^;]*);(?P<text>.*)"
)
# a name begins where no name is under way: a long word is looked at once
_FIELD = re.compile(r'(?<![\w.])([A-Za-z_][\w.]*)=("(?:[^"\\]|\\.)*"|\S*)')
_JOB = re.compile(r"(?P<number>\d+(?P<index>\[\d*\])?)(?:\.(?P<server>\S+))?")
_VNODE_GPUS = re.compile(r"\bngpus=(\d+)")
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d)")
# kinds of record that say how an attempt ended, and that it began
_ENDS, _BEGINS, _DELETED = {"E": "ended", "R": "rerun"}, "S", "D"

# what the server itself says of an end, by its negative codes
_WALLTIME = -29
_MEMORY = (-27, -26)
_SIGNALS = ((256, 256), (128, 128))
MOST_RUNNING = 200_000
"""Jobs that began and have not ended yet; more of them in one log is damage."""


@dataclass(frozen=True, slots=True)
class _JobRecord:
    """One record: where it stands, its job, and its fields."""

    number: int
    text: str
    job_id: str
    server: str | None
    fields: dict[str, str]


def matches(head: bytes, name: str) -> float:
    """1 where a line of the first bytes is a record of a job, and half of them are records."""
    lines = first_texts(head)
    records = [found for line in lines if (found := _RECORD.match(line))]
    if any(_JOB.fullmatch(one["job"]) and one["kind"] in "QSEDRACT" for one in records):
        return 1.0 if len(records) >= 0.5 * len(lines) else AMONG_OTHERS
    return 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts and their nodes; records that neither begin nor end a run are skipped.

    Raises:
        SourceError: the file is cut off or damaged.
    """
    rows = LogRows(NAME, origin, options)
    running: dict[str, _JobRecord] = {}
    deleted_by: dict[str, str] = {}

    def keep(number: int, text: str) -> None:
        found = _RECORD.fullmatch(text)
        job = _JOB.fullmatch(found["job"]) if found else None
        if found is not None and job is not None:
            fields = {key: value.strip('"') for key, value in _FIELD.findall(found["text"])}
            record = _JobRecord(number, text, job["number"], job["server"], fields)
            _keep(rows, record, found["kind"], running, deleted_by)
        elif found is None or found["kind"] in _ENDS or found["kind"] == _BEGINS:
            raise BadRecordError("bad-record", "no record of PBS accounting")
        else:  # of reservations, licences and the server itself
            rows.count_skipped()

    yield from rows.each(not_blank(numbered_texts(origin)), keep)
    for begun in running.values():  # whose end is not in this log
        rows.keep_or_reject(
            begun.number,
            begun,
            lambda _, record: _add(rows, record, "RUNNING", end=None),
            attrgetter("text"),
        )
    yield rows.batch()


def _keep(
    rows: LogRows,
    line: _JobRecord,
    kind: str,
    running: dict[str, _JobRecord],
    deleted_by: dict[str, str],
) -> None:
    if kind in _ENDS:
        # a bare R says that the job was queued again and nothing else; its start said the rest
        if kind == "R" and "start" not in line.fields:
            rows.count_skipped()
            return
        if running.pop(line.job_id, None) is not None:
            rows.count_folded()  # the record of the start says nothing that this one does not
        _ended(rows, line, kind, deleted_by.pop(line.job_id, None))
        return
    if kind == _BEGINS and "start" in line.fields and len(running) < MOST_RUNNING:
        if line.job_id in running:
            rows.count_folded()
        running[line.job_id] = line
        return
    rows.count_skipped()
    if kind == _DELETED and line.fields.get("requestor") and len(deleted_by) < MOST_RUNNING:
        deleted_by[line.job_id] = line.fields["requestor"].partition("@")[0]


def _ended(rows: LogRows, line: _JobRecord, kind: str, deleted_by: str | None) -> None:
    """Keep the attempt that a record closes."""
    end, code = time_in(line.fields.get("end"), "end"), _signed(line.fields.get("Exit_status"))
    if code is None and kind == "E":
        raise BadRecordError("missing-field", "Exit_status is missing")
    signal = next((code - base for least, base in _SIGNALS if code and code >= least), None)
    state = "REQUEUED" if kind == "R" else _state(line.fields, code or 0, signal, deleted_by)
    _add(
        rows,
        line,
        state,
        end=end,
        exit_code=code if code is not None and signal is None and code >= 0 else None,
        exit_signal=signal,
        cancelled_by=deleted_by if state == "CANCELLED" else None,
    )


def _state(fields: dict[str, str], code: int, signal: int | None, deleted_by: str | None) -> str:
    """How the run ended, as far as its own record and a delete before it say."""
    if code == 0:
        return "COMPLETED"
    if code in _MEMORY:
        return "OUT_OF_MEMORY"
    used = _duration_s(fields.get("resources_used.walltime"))
    limit = _duration_s(fields.get("Resource_List.walltime"))
    over = used is not None and limit is not None and used >= limit
    if code == _WALLTIME or (signal is not None and over):
        return "TIMEOUT"
    return "CANCELLED" if deleted_by is not None else "FAILED"


def _add(
    rows: LogRows,
    line: _JobRecord,
    state: str,
    *,
    end: datetime | None,
    exit_code: int | None = None,
    exit_signal: int | None = None,
    cancelled_by: str | None = None,
) -> None:
    """Keep the attempt of a record."""
    fields = line.fields
    created, start = time_in(fields.get("ctime"), "ctime"), time_in(fields.get("start"), "start")
    runs = integer_of(fields.get("run_count"))
    again = runs is not None and runs > 1
    if again:
        rows.note(
            "a second or later run of a job (run_count) takes its start as the time of its "
            "submission: the log does not say when it was queued again"
        )
    nodes = _nodes(fields.get("exec_host"))
    if nodes is None and fields.get("exec_host"):
        raise BadRecordError("bad-node-list", "exec_host names no nodes")
    rows.add_attempt(
        line=line.number,
        job_id=line.job_id,
        submit=start if again else created,
        state=state,
        nodes=nodes,
        cluster=rows.options.cluster or line.server,
        job_id_raw=line.job_id,
        array_job_id=line.job_id.partition("[")[0] if "[" in line.job_id else None,
        name=clean(fields.get("jobname")),
        user=clean(fields.get("user")),
        account=clean(fields.get("account")),
        partition=clean(fields.get("queue")),
        eligible=None if again else time_of(fields.get("etime")),
        start=start,
        end=end,
        time_limit_s=_duration_s(fields.get("Resource_List.walltime")),
        n_cpus=integer_of(fields.get("resources_used.ncpus")),
        n_gpus=_gpus(fields),
        requested_nodes=integer_of(fields.get("Resource_List.nodect")),
        requested_gpus=integer_of(fields.get("Resource_List.ngpus")),
        restarts=None if runs is None else max(0, runs - 1),
        exit_code=exit_code,
        exit_signal=exit_signal,
        cancelled_by=cancelled_by,
    )


def _nodes(exec_host: str | None) -> tuple[str, ...] | None:
    """Node names of `n1/0*8+n2/0*8` (PBS) and `n1/0+n1/1` or `n1/0-7` (TORQUE), each once."""
    names = (part.partition("/")[0] for part in (exec_host or "").split("+"))
    found = tuple(dict.fromkeys(name for name in names if name))
    return found or None


def _gpus(fields: dict[str, str]) -> int | None:
    """GPUs over all nodes; None where the record counts none anywhere."""
    chunks = _VNODE_GPUS.findall(fields.get("exec_vnode", ""))
    if chunks:
        return sum(int(count) for count in chunks)
    if fields.get("exec_gpus"):
        return len(fields["exec_gpus"].split("+"))
    return integer_of(fields.get("Resource_List.ngpus"))


def _duration_s(text: str | None) -> float | None:
    """Seconds of `HH:MM:SS`."""
    found = _CLOCK.fullmatch(text or "")
    if found is None:
        return None
    hours, minutes, seconds = (int(part) for part in found.groups())
    return hours * SECONDS_PER_HOUR + minutes * SECONDS_PER_MINUTE + seconds


def _signed(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,5}", text, re.ASCII) else None


SOURCE = Source(
    name=NAME,
    title="PBS Professional, OpenPBS and TORQUE accounting logs",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="the files of the days below PBS_HOME/server_priv/accounting",
)
