"""LSF's accounting file `lsb.acct`: one JOB_FINISH record for each job that ended.

Format: IBM Spectrum LSF Configuration Reference, "lsb.acct", for the order of the fields, and
"Termination reasons" for exitInfo. Up to exitInfo the order is that of all versions from 5.1 to
10.1. Of what follows only the texts of `submitEXT` and the effective resource requirement are read,
and the latter only where all before it has the documented types.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ettr.sources.base import AMONG_OTHERS, ReadOptions, Source
from ettr.sources.limits import LONGEST_S, MOST_NODES, most_gpus
from ettr.sources.lines import (
    BadRecordError,
    first_texts,
    integer_of,
    not_blank,
    numbered_texts,
)
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_of
from ettr.tables.rows import Batch, clean

NAME = "lsf"

_JOB_FINISH = "JOB_FINISH"
_HEAD = re.compile(r'"([A-Z][A-Z0-9_]*)" "\d+(?:\.\d+)*" \d')
_HEAD_OF_JOB = re.compile(r'"JOB_FINISH" "\d+(?:\.\d+)*" \d{9,11} \d+ -?\d+ -?\d+ \d+ \d{9,11} ')

# fields before the list of hosts asked for, in their order
_FIRST = (
    *("type", "version", "event_time", "job_id", "user_id", "options", "n_processors"),
    *("submit", "begin", "deadline", "start", "user", "queue", "res_req", "depend", "pre_exec"),
    *("from_host", "cwd", "in_file", "out_file", "err_file", "job_file"),
)
# fields after the list of execution hosts; the 19 of rusage lie between the two
_RESULT = ("status", "host_factor", "job_name", "command")
_N_RUSAGE = 19
_LATER = (
    *("mail_user", "project", "exit_status", "max_processors", "login_shell", "time_event", "idx"),
    *("max_mem", "max_swap", "in_file_spool", "command_spool", "reservation", "sla"),
    *("except_mask", "additional_info", "exit_info"),
)
# the oldest version known to write exitInfo for certain; records before it end after idx or later
_WITH_EXIT_INFO = 7
# from exitInfo to the number of pairs of submitEXT
_N_TO_PAIRS = 14
# mem, swap, utime and stime of a host; version 9.1 writes one number more
_HOST_USAGE_WIDTHS = (5, 6)

_HOST = re.compile(r"(?:(\d{1,6})\*)?([A-Za-z0-9_.\-]+)(?:@[A-Za-z0-9_.\-]+)?")
_RUSAGE = re.compile(r"\brusage\[([^\[\]]*)\]")
_GPUS = re.compile(
    r"(?<![\w.])ngpus(?:_physical|_excl_p|_excl_t)?=(\d{1,6})(?:\.0+)?(?:/(host|task))?(?![\w./])"
)
_GPU_OPTION = re.compile(r"num=(\d{1,6})(?:/(host|task))?(?::.*)?")

_EXIT, _DONE, _AFTER_JOB = 0x20, 0x40, 0x80 | 0x100  # how the post-execution command ended
_LEAST_SIGNAL, _MOST_SIGNAL = 1, 64
_SIGNAL_BASE = 128
_MOST_WAIT_STATUS = 0xFFFF

_REASONS = {
    **{1: "TERM_PREEMPT", 2: "TERM_WINDOW", 3: "TERM_LOAD", 4: "TERM_OTHER", 5: "TERM_RUNLIMIT"},
    **{6: "TERM_DEADLINE", 7: "TERM_PROCESSLIMIT", 8: "TERM_FORCE_OWNER", 9: "TERM_FORCE_ADMIN"},
    **{10: "TERM_REQUEUE_OWNER", 11: "TERM_REQUEUE_ADMIN", 12: "TERM_CPULIMIT", 13: "TERM_CHKPNT"},
    **{14: "TERM_OWNER", 15: "TERM_ADMIN", 16: "TERM_MEMLIMIT", 17: "TERM_EXTERNAL_SIGNAL"},
    **{18: "TERM_RMS", 19: "TERM_ZOMBIE", 20: "TERM_SWAP", 21: "TERM_THREADLIMIT"},
    **{22: "TERM_SLURM", 23: "TERM_BUCKET_KILL", 24: "TERM_CTRL_PID", 25: "TERM_CWD_NOTEXIST"},
    **{26: "TERM_REMOVE_HUNG_JOB", 27: "TERM_ORPHAN_SYSTEM", 28: "TERM_PRE_EXEC_FAIL"},
    **{29: "TERM_DATA", 30: "TERM_MC_RECALL", 31: "TERM_REQUEUE_RC", 32: "TERM_CSM_ALLOC"},
    **{33: "TERM_KUBE", 34: "TERM_RC"},
}
# what else ends a job that exited is FAILED
_STATES = {
    **dict.fromkeys(("TERM_PREEMPT", "TERM_RC"), "PREEMPTED"),
    **dict.fromkeys(("TERM_RUNLIMIT", "TERM_CPULIMIT"), "TIMEOUT"),
    "TERM_DEADLINE": "DEADLINE",
    **dict.fromkeys(("TERM_MEMLIMIT", "TERM_SWAP"), "OUT_OF_MEMORY"),
    **dict.fromkeys(("TERM_REQUEUE_OWNER", "TERM_REQUEUE_ADMIN", "TERM_REQUEUE_RC"), "REQUEUED"),
    **dict.fromkeys(("TERM_OTHER", "TERM_MC_RECALL"), "REQUEUED"),
    **dict.fromkeys(("TERM_OWNER", "TERM_FORCE_OWNER", "TERM_BUCKET_KILL"), "CANCELLED"),
    **dict.fromkeys(("TERM_ADMIN", "TERM_FORCE_ADMIN", "TERM_ORPHAN_SYSTEM"), "CANCELLED"),
    **dict.fromkeys(("TERM_WINDOW", "TERM_LOAD", "TERM_CHKPNT"), "CANCELLED"),
    "TERM_SLURM": "NODE_FAIL",
}
_BY_OWNER = frozenset({"TERM_OWNER", "TERM_FORCE_OWNER"})
_BY_ADMIN = frozenset({"TERM_ADMIN", "TERM_FORCE_ADMIN"})
MOST_REMEMBERED = 200_000
"""Ends of runs kept to distinguish later runs of the same job; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class _JobFinish:
    """One record: its fields by name, its execution hosts, and what it says of GPUs."""

    fields: dict[str, str]
    hosts: tuple[str, ...]
    n_slots: int | None
    pairs: tuple[str, ...]
    effective: str | None


@dataclass(frozen=True, slots=True)
class _QueuedRun:
    """When a run of a job was queued, began and ended."""

    queued: datetime
    start: datetime | None
    end: datetime


def matches(head: bytes, name: str) -> float:
    """1 where a line of the first bytes is the end of a job, and half of them are records."""
    lines = first_texts(head)
    if any(_HEAD_OF_JOB.match(line) for line in lines):
        n_records = sum(_HEAD.match(line) is not None for line in lines)
        return 1.0 if n_records >= 0.5 * len(lines) else AMONG_OTHERS
    return 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts and their nodes; records of reservations and resizes are skipped.

    Raises:
        SourceError: the file is cut off or damaged.
    """
    rows = LogRows(NAME, origin, options)
    ended: dict[tuple[str, str], _QueuedRun] = {}

    def keep(line: int, text: str) -> None:
        head = _HEAD.match(text)
        if head is not None and head[1] != _JOB_FINISH:
            rows.count_skipped()
        else:
            _keep(rows, line, _record_of(text), ended)

    yield from rows.each(not_blank(numbered_texts(origin)), keep)
    yield rows.batch()


def _record_of(text: str) -> _JobFinish:
    """The record that a line holds."""
    if not text.lstrip().startswith(f'"{_JOB_FINISH}" '):
        raise BadRecordError("bad-record", "no record of LSF accounting")
    try:
        texts = next(csv.reader([text.strip()], delimiter=" ", skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise BadRecordError("bad-record", f"no fields of lsb.acct: {error}") from error
    fields = dict(zip(_FIRST, texts, strict=False))
    _, place = _listed(texts, len(_FIRST))
    listed, place = _listed(texts, place)
    hosts, n_slots = _hosts(listed, integer_of(fields["n_processors"]))
    fields |= zip(_RESULT, texts[place:], strict=False)
    place += len(_RESULT) + _N_RUSAGE
    later = texts[place : place + len(_LATER)]
    last = "exit_info" if _major_version(fields) >= _WITH_EXIT_INFO else "idx"
    if len(texts) <= place + _LATER.index(last) + 1:  # a field that ends the line may be cut
        raise BadRecordError("bad-record", f"the record ends before or with {last}")
    fields |= zip(_LATER, later, strict=False)
    pairs, effective = _requirements(texts, place + len(_LATER) + _N_TO_PAIRS)
    return _JobFinish(fields, hosts, n_slots, pairs, effective)


def _major_version(fields: dict[str, str]) -> int:
    return integer_of(fields["version"].partition(".")[0]) or 0


def _listed(texts: list[str], place: int) -> tuple[list[str], int]:
    """The items of a list that begins with their number, and the place after it."""
    count = integer_of(texts[place]) if place < len(texts) else None
    if count is None or count > len(texts) - place - 1:
        raise BadRecordError("bad-node-list", "the record holds fewer hosts than it counts")
    return texts[place + 1 : place + 1 + count], place + 1 + count


def _hosts(listed: list[str], n_asked: int | None) -> tuple[tuple[str, ...], int | None]:
    """Node names of `n1 n1 n2` and of `2*n1 1*n2`, each once, and their slots."""
    slots: dict[str, int] = {}
    is_counted = len(listed) >= (n_asked or 0)
    for text in listed:
        host = _HOST.fullmatch(text)
        if host is None:
            raise BadRecordError("bad-node-list", f"{text[:80]!r} is no execution host")
        is_counted |= host[1] is not None or host[2] in slots
        slots[host[2]] = slots.get(host[2], 0) + int(host[1] or 1)
    if len(slots) > MOST_NODES:
        raise BadRecordError("bad-node-list", "the record names an absurd number of hosts")
    return tuple(slots), sum(slots.values()) if is_counted else None


def _requirements(texts: list[str], place: int) -> tuple[tuple[str, ...], str | None]:
    """Values of submitEXT and the effective requirement, where the record holds them."""
    n_pairs = _count_at(texts, place)
    after = place + 1 + 2 * (n_pairs or 0)
    if n_pairs is None or after >= len(texts):
        return (), None
    pairs = tuple(texts[place + 2 : after : 2])
    n_hosts = _count_at(texts, after)
    for width in _HOST_USAGE_WIDTHS if n_hosts else _HOST_USAGE_WIDTHS[:1]:
        # runLimit, options3 and avgMem lie between
        begin = after + 1 + width * (n_hosts or 0)
        are_numbers = [text.removeprefix("-").isdigit() for text in texts[begin : begin + 4]]
        if n_hosts is not None and are_numbers == [True, True, True, False]:
            return pairs, texts[begin + 3]
    return pairs, None


def _count_at(texts: list[str], place: int) -> int | None:
    count = integer_of(texts[place]) if place < len(texts) else None
    return count if count is not None and count <= len(texts) else None


def _keep(
    rows: LogRows, number: int, record: _JobFinish, ended: dict[tuple[str, str], _QueuedRun]
) -> None:
    """Keep the attempt that a record reports."""
    fields = record.fields
    job_id, array_job_id = _ids(fields)
    submit, start, end = _times(fields)
    state, reason = _state(rows, fields)
    run = _QueuedRun(
        _queued(rows, ended.pop((job_id, fields["submit"]), None), submit, start), start, end
    )
    ended[job_id, fields["submit"]] = run
    if len(ended) > MOST_REMEMBERED:
        del ended[next(iter(ended))]
    if reason in _BY_ADMIN:
        rows.note("TERM_ADMIN names root or an LSF administrator; root was taken")
    code, signal = _exit(fields["exit_status"]) if start is not None else (None, None)
    ran_on = record.hosts or (None if start is not None else ())
    rows.add_attempt(
        line=number,
        job_id=job_id,
        submit=run.queued,
        state=state,
        nodes=ran_on,
        job_id_raw=job_id,
        array_job_id=array_job_id,
        name=clean(fields["job_name"]),
        user=clean(fields["user"]),
        account=clean(fields["project"]),
        partition=clean(fields["queue"]),
        start=start,
        end=end,
        n_cpus=record.n_slots or None,  # LSF counts slots, by default one for each CPU
        n_gpus=_gpus(rows, record) if start is not None else None,
        exit_code=code,
        exit_signal=signal,
        cancelled_by=_cancelled_by(reason, fields),
        comment=reason,
    )


def _queued(
    rows: LogRows, before: _QueuedRun | None, submit: datetime, start: datetime | None
) -> datetime:
    """When the run was queued: LSF repeats the first submission of a job that it queued again."""
    if before is None or start is None:
        return submit
    if start == before.start:  # the same record again
        return before.queued
    if start < before.end:
        return submit
    rows.note(
        "a second or later run of a job takes the end of the run before as the time of its "
        "submission: LSF repeats the first one"
    )
    return before.end


def _ids(fields: dict[str, str]) -> tuple[str, str | None]:
    """The id of the job, with its index in an array, and the id of the array."""
    number, index = integer_of(fields["job_id"]), integer_of(fields["idx"])
    if not number or index is None:
        raise BadRecordError("missing-field", "jobId or idx is not a number")
    return (f"{number}[{index}]", str(number)) if index else (str(number), None)


def _times(fields: dict[str, str]) -> tuple[datetime, datetime | None, datetime]:
    """When the job was submitted, was dispatched (None: never), and ended."""
    submit, end = time_of(fields["submit"]), time_of(fields["event_time"])
    start = time_of(fields["start"])
    if submit is None or end is None or (start is None and fields["start"] != "0"):
        raise BadRecordError(
            "bad-timestamp", "submitTime, startTime or the event time is not a time"
        )
    if start is not None and not 0 <= (end - start).total_seconds() <= LONGEST_S:
        detail = "the job ended before it started, or ran for decades"
        raise BadRecordError("bad-timestamp", detail)
    return submit, start, end


def _state(rows: LogRows, fields: dict[str, str]) -> tuple[str, str | None]:
    """The end state, and the keyword of exitInfo where a job that exited has one."""
    status = integer_of(fields["status"])
    kind = None if status is None else status & ~_AFTER_JOB
    if kind == _DONE:
        return "COMPLETED", None
    if kind != _EXIT:
        raise BadRecordError("unknown-state", f"jStatus is {fields['status']!r:.40}")
    if "exit_info" not in fields:
        rows.note("records without exitInfo do not say who ended a job: each EXIT is FAILED")
    number = integer_of(fields.get("exit_info")) or 0
    reason = _REASONS.get(number, f"exitInfo {number}") if number else None
    return _STATES.get(reason or "", "FAILED"), reason


def _cancelled_by(reason: str | None, fields: dict[str, str]) -> str | None:
    if reason in _BY_OWNER:
        return clean(fields["user"])
    return "root" if reason in _BY_ADMIN else None


def _exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of a status as wait(2) gives it; LSF adds 128 to a signal."""
    status = integer_of(text)
    if status is None or status > _MOST_WAIT_STATUS:
        return None, None
    signal = status & 0x7F
    if signal:
        return None, signal if signal <= _MOST_SIGNAL else None
    code = status >> 8
    if _LEAST_SIGNAL <= code - _SIGNAL_BASE <= _MOST_SIGNAL:
        return None, code - _SIGNAL_BASE
    return code, None


def _gpus(rows: LogRows, record: _JobFinish) -> int | None:
    """GPUs over all hosts as far as the requirements state them; None where they do not."""
    stated = [_GPU_OPTION.fullmatch(value) for value in record.pairs]
    amounts = {(int(one[1]), one[2]) for one in stated if one}
    if not amounts:
        asked = record.effective or record.fields["res_req"]
        if "{" in asked or "||" in asked:  # hosts that differ, or alternatives
            return None
        sections = _RUSAGE.findall(asked)
        found = [one for section in sections for one in _GPUS.findall(section)]
        amounts = {(int(count), per or None) for count, per in found}
    if len(amounts) != 1 or not record.hosts:
        return None
    count, per = amounts.pop()
    if per is None:
        rows.note("a number of GPUs without /host or /task was taken for each host, as LSF does")
    units = record.n_slots if per == "task" else len(record.hosts)
    total = None if units is None else count * units
    return total if total is not None and total <= most_gpus(len(record.hosts)) else None


SOURCE = Source(
    name=NAME,
    title="LSF accounting file, lsb.acct",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    options=("--cluster",),
    how_to_get="lsb.acct, lsb.acct.1, ... below LSB_SHAREDIR/CLUSTER/logdir",
)
