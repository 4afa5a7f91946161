"""`scontrol show job`: what the controller knows of its jobs now, as attempts.

It holds what accounting does not keep: the nodes that a script excludes (`ExcNodeList`), and what a
job asked for. Blocks of key=value, or one line for each job with -o. Format: man scontrol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError, first_texts, paragraphs
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm.attempts import FieldRecords
from ettr.sources.slurm.fields import NOTHING
from ettr.sources.times import has_local_times
from ettr.tables.rows import Batch

NAME = "slurm-jobs"

_START, _NO_JOBS = "JobId=", "No jobs in the system"
# before its UserId a job has its ids and its name, which may hold spaces and equals signs
_USER = re.compile(r"\sUserId=(?=[^()\n]{0,200}\(\d{1,10}\)\s)")
_HEAD = re.compile(r"(?P<ids>JobId=.*?)\s(?:Job)?Name=(?P<name>.*)", re.DOTALL)
_PAIR = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/]*)=(\S*)")
# from Command on there are texts of users, each up to the next key
_COMMAND = re.compile(r"\sCommand=")
_TEXTS = re.compile(
    r"\s(Command|SubmitLine|WorkDir|AdminComment|SystemComment|Comment|StdErr|StdIn|StdOut"
    r"|Power|TresPer[A-Z][a-z]+|MailUser|BatchScript|Extra|KillOInInvalidDependent)="
)
_SAME_NAMES = {
    "JobId": "JobIDRaw",
    "Account": "Account",
    "Partition": "Partition",
    "QOS": "QOS",
    "JobState": "State",
    "ExitCode": "ExitCode",
    "DerivedExitCode": "DerivedExitCode",
    "SubmitTime": "Submit",
    "EligibleTime": "Eligible",
    "TimeLimit": "Timelimit",
    "Priority": "Priority",
    "Reason": "Reason",
    "Restarts": "Restarts",
    "ExcNodeList": "ExcNodeList",
    "Dependency": "Dependency",
    "NodeList": "NodeList",
    "Comment": "Comment",
    "WorkDir": "WorkDir",
    "SubmitLine": "SubmitLine",
}
_ENDED_TEXT = (
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY "
    "PREEMPTED RECONFIG_FAIL REVOKED TIMEOUT"
)
_ENDED = frozenset(_ENDED_TEXT.split())
# accounting gives these to an attempt that ended; to the controller the job waits again
_WAITS_AGAIN = frozenset({"REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})


def matches(head: bytes, _name: str) -> float:
    """1 where the first job is as scontrol shows it."""
    first = next((text for text in first_texts(head) if text.strip()), "")
    if not re.match(r"JobId=\d+ (?:\w+=\S+ )*(?:Job)?Name=", first):
        return 0.0
    return 1.0 if re.search(rb"\sUserId=[^()\n]{0,200}\(\d{1,10}\) GroupId=", head) else 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Attempts and their nodes, as they were when scontrol was asked.

    Raises:
        SourceError: no line begins a job.
        UsageError: the user gave no zone.
    """
    rows = LogRows(NAME, origin, options)
    jobs, begun = FieldRecords(rows), set[str]()

    def keep(line: int, text: str) -> None:
        begun.update(start for start in (_START, _NO_JOBS) if text.startswith(start))
        if text.startswith(_NO_JOBS):
            rows.count_skipped()
        elif text.startswith(_START):
            jobs.add(line, _record(text), text)
        else:
            raise BadRecordError("bad-job", "no JobId=")

    for block in paragraphs(origin, (_START, _NO_JOBS)):
        yield from rows.each([block], keep)
        if jobs.is_full:
            yield jobs.batch()
    if not begun:
        raise SourceError(f"{origin}: is not the output of scontrol show job")
    yield jobs.batch(is_last=True)


def _record(text: str) -> dict[str, str]:
    """A job as sacct's fields."""
    shown = _fields(text)
    state = shown.get("JobState", "")
    record = {theirs: shown.get(ours, "") for ours, theirs in _SAME_NAMES.items()}
    record = {field: "" if value in NOTHING else value for field, value in record.items()}
    record["JobID"] = _job_id(shown)
    record["JobName"] = shown["JobName"]
    record["User"] = shown["UserId"].rpartition("(")[0]
    record["State"] = "PENDING" if state in _WAITS_AGAIN else state
    record |= dict.fromkeys(("Start", "End", "Elapsed"), "")
    if state in _ENDED:
        record["End"] = shown.get("EndTime", "")  # of others it is when they must have ended
    tres = shown.get("TRES", "")
    n_nodes = shown.get("NumNodes", "").partition("-")[0]
    if record["NodeList"]:
        record["Start"] = shown.get("StartTime", "")
        record["Elapsed"] = shown.get("RunTime", "")
        record["AllocNodes"] = n_nodes
        record["AllocTRES"] = shown.get("AllocTRES") or tres
        record["ReqTRES"] = shown.get("ReqTRES", "")
    else:
        record["ReqNodes"] = n_nodes
        record["ReqTRES"] = shown.get("ReqTRES") or tres
    return record


def _fields(text: str) -> dict[str, str]:
    """The values of a job by key: of its ids, its name, what the controller says, and its texts."""
    user = _USER.search(text)
    head = _HEAD.fullmatch(text[: user.start()]) if user else None
    command = _COMMAND.search(text, user.start()) if user else None
    if user is None or head is None or command is None:
        detail = "the job is cut off, or not as scontrol show job writes it"
        raise BadRecordError("bad-job", detail)
    shown = dict(_PAIR.findall(head["ids"])) | {"JobName": head["name"].strip()}
    for key, value in _PAIR.findall(text[user.start() : command.start()]):
        shown.setdefault(key, value)
    parts = _TEXTS.split(text[command.start() :])
    for key, value in zip(parts[1::2], parts[2::2], strict=True):
        shown.setdefault(key, value.strip())
    return shown


def _job_id(shown: dict[str, str]) -> str:
    """The id as sacct shows it."""
    array, task = shown.get("ArrayJobId"), shown.get("ArrayTaskId")
    if array and task:
        return f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"
    for kind in ("Het", "Pack"):
        first, offset = shown.get(f"{kind}JobId"), shown.get(f"{kind}JobOffset")
        if first and offset:
            return f"{first}+{offset}"
    return shown["JobId"]


SOURCE = Source(
    name=NAME,
    title="Slurm's jobs now, scontrol show job",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_times,
    options=("--cluster", "--timezone", "--accelerators"),
    how_to_get="TZ=UTC scontrol show job > jobs.txt",
)
