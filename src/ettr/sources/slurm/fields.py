"""Slurm's own words: field names, states, and how sacct writes durations, TRES, exit codes.

`ettr.sources.slurm.attempts.rows_from_sacct_fields` turns dictionaries of these fields (strings, as
sacct prints them) into `attempts` and `allocations`, for sources that carry sacct rows in another
wrapping, such as GCM's NDJSON.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import counted

# Base states and the flags that sacct may print in their place.
_STATES_TEXT = (
    "BOOT_FAIL CANCELLED COMPLETED COMPLETING CONFIGURING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL "
    "OUT_OF_MEMORY PENDING POWER_UP_NODE PREEMPTED RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD "
    "RESIZING RESV_DEL_HOLD REVOKED RUNNING SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED "
    "TIMEOUT UPDATE_DB EXPEDITING"
)
STATES = frozenset(_STATES_TEXT.split())

SHORT_STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "LF": "LAUNCH_FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}

# Step states from worst to best: which of a job's steps gives its `step_state`.
STEP_RANK = {
    state: rank
    for rank, state in enumerate(
        (
            "NODE_FAIL",
            "BOOT_FAIL",
            "OUT_OF_MEMORY",
            "FAILED",
            "TIMEOUT",
            "DEADLINE",
            "PREEMPTED",
            "CANCELLED",
            "SUSPENDED",
            "RUNNING",
            "COMPLETED",
        )
    )
}

# What sacct prints where it has nothing to say.
NOTHING = frozenset(
    {"", "Unknown", "None", "N/A", "n/a", "(null)", "NULL", "None assigned", "UNKNOWN", "NONE"}
)

# Fields that hold what a user typed, and may therefore hold separators and line breaks.
FREE_TEXT = (
    "comment",
    "admincomment",
    "systemcomment",
    "submitline",
    "jobname",
    "workdir",
    "extra",
    "stdout",
    "stderr",
    "stdin",
    "container",
)

# XDMoD's own sacct call, whose logs carry no header.
XDMOD_FIELDS = (
    "jobid",
    "jobidraw",
    "cluster",
    "partition",
    "qos",
    "account",
    "group",
    "gid",
    "user",
    "uid",
    "submit",
    "eligible",
    "start",
    "end",
    "elapsed",
    "exitcode",
    "state",
    "nnodes",
    "ncpus",
    "reqcpus",
    "reqmem",
    "reqtres",
    "alloctres",
    "timelimit",
    "nodelist",
    "jobname",
)

# Every field name of `sacct --helpformat`, from Slurm 16.05 to 25.05, in lower case.
_SACCT_FIELDS_TEXT = """
account admincomment alloccpus allocgres allocnodes alloctres associd avecpu avecpufreq
avediskread avediskwrite avepages averss avevmsize blockid cluster comment constraints
consumedenergy consumedenergyraw container cputime cputimeraw dbindex derivedexitcode elapsed
elapsedraw eligible end exitcode extra failednode flags gid group jobid jobidraw jobname layout
licenses maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite maxdiskwritenode
maxdiskwritetask maxpages maxpagesnode maxpagestask maxrss maxrssnode maxrsstask maxvmsize
maxvmsizenode maxvmsizetask mcslabel mincpu mincpunode mincputask ncpus nnodes nodelist ntasks
partition planned plannedcpu plannedcpuraw priority qos qosraw qosreq reason reqcpufreq
reqcpufreqgov reqcpufreqmax reqcpufreqmin reqcpus reqgres reqmem reqnodes reqreservation reqtres
reservation reservationid reserved resvcpu resvcpuraw restarts segmentsize sluid start state
stderr stdin stdout submit submitline suspended systemcomment systemcpu timelimit timelimitraw
totalcpu tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin
tresusageinminnode tresusageinmintask tresusageintot tresusageoutave tresusageoutmax
tresusageoutmaxnode tresusageoutmaxtask tresusageoutmin tresusageoutminnode tresusageoutmintask
tresusageouttot uid user usercpu wckey wckeyid workdir jobstate hetjobid hetjoboffset packjobid
packjoboffset
"""
SACCT_FIELDS = frozenset(_SACCT_FIELDS_TEXT.split())

JOB_ID = r"^\d+(?:_(?:\d+|\[[0-9,\-:%]*(?:\.\.\.(?:%\d+)?)?\]))?(?:\+\d+)?$"
STEP_ID = r"^\d+(?:_(?:\d+|\[[0-9,\-:%]*(?:\.\.\.(?:%\d+)?)?\]))?(?:\+\d+)?\.[A-Za-z0-9_+\-]+$"

_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9}(?:\.\d{1,9})?)")
_DAYS_HOURS = re.compile(r"(\d{1,6})-(\d{1,3})(?::(\d{1,3}))?")
_EXIT = re.compile(r"(\d{1,9})(?::(\d{1,9}))?")
_MASK = "***"
# lines without any of these hold nothing to mask; RE2, over whole columns
MAY_BE_TELLING = (
    r"(?i)--export|token|secret|passw|pwd|api.?key|access.?key|credential|://[^/\s]*@|"
    r"\bhf_|\bgh[pousr]_|glpat-|\bsk-|\bxox|AKIA|\bbearer |\beyJ"
)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s\"',;]+)"
_EXPORT = re.compile(r"(--export(?:=|\s+))(\"[^\"]*\"|'[^']*'|\S+)")
# `tokenizer` and `max-tokens` are no secrets
_NAMED_SO = (
    r"[\w-]{0,40}(?:token|secret|passwd|password|pwd|api[_-]?key|access[_-]?key|credentials?)"
    r"(?![a-z])[\w-]{0,20}"
)
_OPTION_NAMED_SO = re.compile(
    rf"((?<![\w-]){_NAMED_SO}=|(?<![\w-])--{_NAMED_SO}\s+(?!-)){_VALUE}", re.IGNORECASE
)
_KEY_BY_FORM = re.compile(
    r"(?<=://)[^/\s@]{1,200}(?=@)|\b(?:hf_|gh[pousr]_|glpat-|sk-|xox[abprs]-)[\w-]{10,200}|"
    r"\bAKIA[A-Z0-9]{12,20}\b|(?<=\b[Bb]earer )[\w.~+/=-]{8,4000}|"
    r"\beyJ[\w-]{8,2000}\.[\w.-]{8,4000}"
)
# `gres/npu:910b=8` of TRES, `npu:910b:8(S:0)` of a node
_ANY_GRES = re.compile(r"(?:^|,)(?:gres[/:])?([A-Za-z][\w-]{0,60})(?::[^=,()]{1,80})?[=:]\d")
# generic resources and plain TRES that compute nothing of their own
_NO_ACCELERATORS = frozenset(
    """
    gpu gpumem gpuutil shard mps cpu node mem billing energy pages vmem craynetwork nic nvme ssd
    disk tmpdisk tmp tmpfs lustre bandwidth vram hbm license bb fs ic
    """.split()  # noqa: SIM905
)
_MIG = re.compile(r"gpu:[^=,]{0,80}\dg\.\d{1,4}gb", re.IGNORECASE)
_SHARES = re.compile(r"(?:^|,)(?:gres[/:])?(?:shard|mps)[:=]")
_WHOLE = re.compile(r"(?:^|,)(?:gres[/:])?gpu[:=]", re.IGNORECASE)
_SUFFIX = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


def state_and_user(text: str) -> tuple[str, str | None]:
    """Base state and the user id that cancelled it, from `CANCELLED by 1000` and its like.

    Raises:
        ValueError: no state that Slurm has.
    """
    words = text.split()
    word = words[0].rstrip("+").upper() if words else ""
    word = SHORT_STATES.get(word, word)
    if word not in STATES:
        raise ValueError(f"{text!r} is no state of Slurm")
    by = words[2] if len(words) >= 3 and words[1] == "by" else None
    return word, by


def duration_s(text: str) -> float | None:
    """Seconds of `[DD-[HH:]]MM:SS[.fff]` or `DD-HH[:MM]`; None where sacct has nothing to say.

    Raises:
        ValueError: no duration.
    """
    if text in NOTHING or text in {"UNLIMITED", "Partition_Limit", "INVALID"}:
        return None
    if match := _DURATION.fullmatch(text):
        days, hours, minutes, seconds = match.groups()
        return (
            SECONDS_PER_DAY * int(days or 0)
            + SECONDS_PER_HOUR * int(hours or 0)
            + SECONDS_PER_MINUTE * int(minutes)
            + float(seconds)
        )
    if match := _DAYS_HOURS.fullmatch(text):
        days, hours, minutes = match.groups()
        return (
            SECONDS_PER_DAY * int(days)
            + SECONDS_PER_HOUR * int(hours)
            + SECONDS_PER_MINUTE * int(minutes or 0)
        )
    raise ValueError(f"{text!r} is no duration")


def integer(text: str) -> int | None:
    """A whole number; None where sacct has nothing to say.

    Raises:
        ValueError: no whole number, or one beyond 64 bits.
    """
    if text in NOTHING:
        return None
    value = int(text) if re.fullmatch(r"[+-]?\d{1,19}", text) else None
    if value is None or abs(value) > 2**63 - 1:
        raise ValueError(f"{text!r} is not a whole number")
    return value


def minutes_to_s(text: str) -> float | None:
    """Seconds of a limit in whole minutes; None for no limit.

    Raises:
        ValueError: no whole number.
    """
    if text in {"UNLIMITED", "Partition_Limit", "INVALID"}:
        return None
    minutes = integer(text)
    return None if minutes is None else SECONDS_PER_MINUTE * minutes


def exit_code(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal of `1:0`. Raises ValueError: no exit code."""
    if text in NOTHING:
        return None, None
    match = _EXIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no exit code")
    return int(match[1]), None if match[2] is None else int(match[2])


def without_secrets(line: str) -> str:
    """A command with the values masked that it hands over: of its environment, and of secrets."""
    line = _EXPORT.sub(lambda found: found[1] + _names_alone(found[2]), line)
    line = _OPTION_NAMED_SO.sub(rf"\1{_MASK}", line)
    return _KEY_BY_FORM.sub(_MASK, line)


def _names_alone(exported: str) -> str:
    """The names of `A=1,B=2` with masked values, in the quotes that it had."""
    quote = exported[0] if exported[:1] in {"'", '"'} else ""
    entries = exported.strip("'\"").split(",")
    named = (f"{e.partition('=')[0]}={_MASK}" if "=" in e else e for e in entries)
    # a bare word may be the rest of a value that holds a comma
    kept = (e if "=" in e or e in {"ALL", "NONE", "NIL"} else _MASK for e in named)
    return f"{quote}{','.join(kept)}{quote}"


def gpus_of_tres(text: str, accelerators: tuple[str, ...] = ()) -> int:
    """GPUs in a TRES list such as `cpu=4,gres/gpu=8,gres/gpu:h100=8`: 8, for 0 where it has none.

    A typed count says again what the untyped one says, so the two are never added; typed counts
    alone are summed over the types. Accelerators of the other names given are added.
    """
    return sum(_of_tres(text, name) for name in ("gpu", *accelerators))


def _of_tres(text: str, name: str) -> int:
    typed = 0
    untyped: int | None = None
    for kind, count, suffix in _gres_of(name).findall(text):
        value = min(int(count) * _SUFFIX[suffix.upper()], 10**12)
        if kind:
            typed += value
        else:
            untyped = value
    return typed if untyped is None else untyped


@cache
def _gres_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|,)gres/{re.escape(name)}(:[^=,]*)?=(\d+)([KMGTP]?)", re.IGNORECASE)


@cache
def _old_gres_of(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?:^|,)(?:gres:)?{re.escape(name)}(?::[^:,()]+)*?:(\d{{1,9}})(?:\([^)]{{0,200}}\))?"
        r"(?=,|$)"
    )


def gpu_types(text: str, accelerators: tuple[str, ...] = ()) -> str | None:
    """Types of GPUs in such a list, of TRES or of generic resources: `h100`, `a100,h100`.

    None where it names none. Parts of GPUs (MIG) have no type of their own.
    """
    if _MIG.search(text):
        return None
    found: set[str] = set()
    for name in ("gpu", *accelerators):
        found.update(_types_of(name).findall(text))
    return ",".join(sorted(found)) or None


@cache
def _types_of(name: str) -> re.Pattern[str]:
    # `gres/gpu:h100=8` and `gpu:h100:8(S:0-1)`, with any GPU in it
    return re.compile(
        rf"(?:^|,)(?:gres[/:])?{re.escape(name)}:([A-Za-z0-9][^=,():]{{0,80}})[=:]0*[1-9]",
        re.IGNORECASE,
    )


def other_gres(text: str, accelerators: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Names of generic resources that are no GPUs and that nobody has said to be accelerators."""
    found = dict.fromkeys(name.lower() for name in _ANY_GRES.findall(text))
    known = {*_NO_ACCELERATORS, *(name.lower() for name in accelerators)}
    return tuple(name for name in found if name not in known)


def other_gres_note(found: Counter[str], what: str) -> str:
    """A sentence on generic resources that count as no GPUs."""
    listed = ", ".join(f"gres/{name} ({counted(n, what)})" for name, n in found.most_common())
    names = ",".join(sorted(found))
    return (
        f"generic resources of other names count as no GPUs: {listed}; where they are accelerators "
        f"read the log again with --accelerators {names}"
    )


def parts_of_gpus(text: str) -> str | None:
    """`mig` for a list with NVIDIA's parts of GPUs, `shares` for one of shares and no GPU."""
    if _MIG.search(text):
        return "mig"
    return "shares" if _SHARES.search(text) and not _WHOLE.search(text) else None


def tres_count(text: str, name: str) -> int | None:
    """Count of one plain TRES (`cpu`, `node`) in a list; None where it is not named."""
    match = re.search(rf"(?:^|,){re.escape(name)}=(\d{{1,12}})(?=,|$)", text)
    return None if match is None else int(match[1])


def gpus_of_gres(text: str, accelerators: tuple[str, ...] = ()) -> int:
    """GPUs in a list of generic resources such as `gpu:h100:8(S:0-1),nvme:1`, summed over types.

    Accelerators of the other names given are added.
    """
    names = ("gpu", *accelerators)
    found = (count for name in names for count in _old_gres_of(name).findall(text))
    return sum(min(int(count), 10**9) for count in found)
