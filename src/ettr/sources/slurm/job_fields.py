"""Which column of `attempts` comes from which field of sacct, and by which parser: one table.

A row of the table reads `column <- field <- parser`. Several rows of one column are tried in order,
the later for records in which the earlier say nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.slurm import fields as words
from ettr.sources.slurm.times import (
    FLOAT,
    INT,
    TEXT,
    JobRecords,
    Mask,
    fitting,
    mapped,
    nothing_to_null,
)

# a line without this excludes nothing; for skipping most lines before they are parsed
MAY_EXCLUDE = r"\s(?:--exclud|-[A-Za-z]*x)"
MAY_DEPEND = r"\s(?:--dep|-[A-Za-z]*d)"
_MAY_SAY_MORE = f"(?:{words.MAY_BE_TELLING})|{MAY_EXCLUDE}|{MAY_DEPEND}"

# options come first; of a longer line, a script in --wrap perhaps, the rest is not looked at
_LONGEST = 16_384

_COMMANDS = frozenset({"sbatch", "salloc", "srun"})
# Slurm 2.x to 25.x: options whose next word is not their value. All others take one.
_FLAGS = frozenset(
    """
    bell contiguous debugger-test disable-status exact exclusive external get-user-env help hold
    ignore-pbs immediate interactive join jobid-only label mpi-combine multi-prog nice no-allocate
    no-bell no-kill no-requeue no-shell overcommit overlap oversubscribe parsable preserve-env
    preserve-slurm-env propagate pty quiet quit-on-interrupt reboot requeue resv-ports send-libs
    share spread-job stepmgr test-only unbuffered usage use-min-nodes verbose version whole
    """.split()  # noqa: SIM905
)
_SHORT_FLAGS = {"sbatch": "hHIkOQsvVWX", "salloc": "hHIkKOQsvVX", "srun": "EhHIkKlOQsuvVXZ"}
_LIST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+,\-\[\]]*")
# within brackets; or how a database or a tool ends a list that is longer than its column
_CUT = "(?:\\[[^\\]]*|[.]{3}|\u2026|[+])$"


def excluded_nodes(line: str) -> str | None:
    """The nodes that a submit command excludes, as it writes them; None where it says none.

    A list in a file (`--exclude=./bad-nodes`) is not known. Of a heterogeneous job (`a : b`) it is
    not known which part a record is, and so neither what it excludes.
    """
    excluded = None
    for name, value in _options_of(line):
        if name in {"x", "exclude"}:
            excluded = value
    return excluded if excluded and _LIST.fullmatch(excluded) else None


def dependency(line: str) -> str | None:
    """What a submit command makes its job wait for, as it writes it; None where it says nothing."""
    found = None
    for name, value in _options_of(line):
        if name == "d" or name.startswith("dep"):
            found = value
    return found or None


def _options_of(line: str) -> Iterator[tuple[str, str | None]]:
    """Options of a command that submits one job, with their values."""
    words = _words(line)
    command = PurePosixPath(words[0]).name if words else ""
    if command in _COMMANDS and ":" not in words:
        yield from _options(words[1:], command)


def _words(line: str) -> list[str]:
    if len(line) > _LONGEST:
        line = line[:_LONGEST].rpartition(" ")[0]
    try:
        return shlex.split(line)
    except ValueError:
        # an apostrophe in a comment is no quote that opens
        return line.split()


def _options(words: list[str], command: str) -> Iterator[tuple[str, str | None]]:
    """Options with their values, up to the script or to where it may begin."""
    waiting = iter(words)
    for word in waiting:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            # getopt takes the beginning of a name; shorter ones are --exclusive too
            name = "exclude" if name == "exclud" else name
            if name == "wrap":
                return
            takes_next = not equals and name not in _FLAGS
            takes_next &= not (name == "wait" and command == "sbatch")
            yield name, next(waiting, None) if takes_next else value
        elif word.startswith("-") and word not in {"-", "--"}:
            flags = _SHORT_FLAGS[command]
            n_flags = len(word[1:]) - len(word[1:].lstrip(flags))
            rest = word[1 + n_flags :]
            if rest:
                yield rest[0], rest[1:].removeprefix("=") or next(waiting, None)
        else:
            return


# from a field's column of texts to values, and which texts are not what they should be
Parser = Callable[[JobRecords, str], tuple[pa.Array, Mask]]


@dataclass(frozen=True, slots=True)
class JobField:
    """One way to fill a column.

    Attributes:
        reject: slug with which a record is rejected whose text cannot be read; where empty, the
            column is left null, which is counted and noted.
        unless: another field; where the log has it, this one is not looked at.
    """

    column: str
    field: str
    parse: Parser
    reject: str = ""
    unless: str = ""


def text(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """The text as it stands."""
    return records.text(field), records.none


def word(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """The text, null for what sacct writes for nothing, such as `None assigned`."""
    return nothing_to_null(records.text(field)), records.none


def time(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """A moment."""
    return records.times.read(records.text(field), field)


def end_time(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """The moment of an end; the beginning of Unix time is how some versions write that it has none.

    In a zone it is a few hours before or after midnight of that day.
    """
    texts = records.text(field)
    if pc.any(pc.less(texts, "1971")).as_py():  # few logs hold any
        has_none = pc.match_substring_regex(texts, r"^(?:0|1970-01-01T.*|1969-12-31T.*)$")
        texts = pc.if_else(has_none.fill_null(False), None, texts)
    return records.times.read(texts, field)


def integer(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """A whole number."""
    return records.integers(field)


def count(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """A whole number from 0."""
    found, wrong = records.integers(field)
    negative = pc.less(found, 0).fill_null(False).to_numpy(zero_copy_only=False)
    return found, wrong | negative


def seconds(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """A whole number of seconds."""
    found, wrong = records.integers(field)
    return found.cast(FLOAT, safe=False), wrong


def node_list(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """A list of nodes as it stands."""
    codes = records.distinct(field)
    lists = nothing_to_null(codes.dictionary)
    cut = pc.match_substring_regex(lists, _CUT).fill_null(False)
    if pc.any(cut).as_py():
        records.n_cut_lists += pc.sum(cut.take(codes.indices)).as_py() or 0
        lists = pc.if_else(cut, None, lists)
    at = np.flatnonzero(lists.is_valid())
    counts, is_wrong = np.zeros(len(lists), np.int64), np.zeros(len(lists), dtype=bool)
    counts[at], is_wrong[at] = records.node_lists.checked(lists.drop_null())
    unknown = is_wrong | lists.is_null().to_numpy(zero_copy_only=False)
    records.n_listed = pa.array(counts, INT, mask=unknown).take(codes.indices)
    wrong = records.none
    if is_wrong.any():
        of_rows = pa.array(is_wrong).take(codes.indices).fill_null(False)
        wrong = of_rows.to_numpy(zero_copy_only=False)
    return lists.take(codes.indices), wrong


def submit_option(pattern: str, parse: Callable[[str], str | None]) -> Parser:
    """An option of a submit line; only lines that the pattern fits are parsed."""

    def parser(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
        return mapped(_fitting(records, field, pattern), parse, TEXT)

    return parser


def _fitting(records: JobRecords, field: str, pattern: str) -> pa.Array:
    """The submit lines that a pattern fits, the others null."""
    # most lines are passed over by one pattern instead of three
    lines = records.fitting(field, _MAY_SAY_MORE)
    if lines.null_count == len(lines):
        return lines
    return fitting(lines, pattern)


def each(parse: Callable[[str], Any], kind: pa.DataType) -> Parser:
    """Every distinct text through a function of one text, which raises ValueError for a bad one."""

    def parser(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
        return mapped(records.distinct(field), parse, kind)

    return parser


def tres(name: str) -> Parser:
    """The count of one trackable resource in a list such as `cpu=4,node=1`."""
    return each(lambda listed: words.tres_count(listed, name), INT)


def submit_line(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
    """The command without the secrets that it hands over."""
    lines = records.text(field)
    to_mask = _fitting(records, field, words.MAY_BE_TELLING)
    if to_mask.null_count == len(to_mask):
        return lines, records.none
    masked, _ = mapped(to_mask, words.without_secrets, TEXT)
    return pc.coalesce(masked, lines), records.none


state = each(lambda spelled: words.state_and_user(spelled)[0], TEXT)
user_who_cancelled = each(lambda spelled: words.state_and_user(spelled)[1], TEXT)
exit_code = each(lambda spelled: words.exit_code(spelled)[0], INT)
exit_signal = each(lambda spelled: words.exit_code(spelled)[1], INT)
duration = each(words.duration_s, FLOAT)
minutes = each(words.minutes_to_s, FLOAT)

ID_FIELDS = (
    JobField("job_id_raw", "jobidraw", text),
    JobField("name", "jobname", text),
    JobField("user", "user", text),
    JobField("account", "account", text),
    JobField("partition", "partition", text),
    JobField("qos", "qos", text),
    JobField("comment", "comment", text),
    JobField("work_dir", "workdir", text),
    JobField("submit_line", "submitline", submit_line),
    JobField("dependency", "dependency", word),
    JobField("dependency", "submitline", submit_option(MAY_DEPEND, dependency)),
    JobField("reason", "reason", word),
    JobField("failed_node", "failednode", word),
    JobField("state", "state", state, reject="unknown-state"),
    JobField("cancelled_by", "state", user_who_cancelled, reject="unknown-state"),
    JobField("exit_code", "exitcode", exit_code),
    JobField("exit_signal", "exitcode", exit_signal),
    JobField("derived_exit_code", "derivedexitcode", exit_code),
    JobField("derived_exit_signal", "derivedexitcode", exit_signal),
)
TIME_FIELDS = (
    JobField("submit", "submit", time, reject="bad-timestamp"),
    JobField("start", "start", time, reject="bad-timestamp"),
    JobField("end", "end", end_time, reject="bad-timestamp"),
    JobField("eligible", "eligible", time),
    JobField("elapsed_s", "elapsedraw", seconds, reject="bad-duration"),
    JobField("elapsed_s", "elapsed", duration, reject="bad-duration", unless="elapsedraw"),
    JobField("suspended_s", "suspended", duration),
    JobField("time_limit_s", "timelimitraw", minutes),
    JobField("time_limit_s", "timelimit", duration, unless="timelimitraw"),
)


def gpus_of(parse: Callable[[str, tuple[str, ...]], int | str | None], kind: pa.DataType) -> Parser:
    """Reads the accelerators of a list, by the names that the user gave of them."""

    def parser(records: JobRecords, field: str) -> tuple[pa.Array, Mask]:
        def read(listed: str) -> int | str | None:
            return parse(listed, records.accelerators)

        return mapped(records.distinct(field), read, kind)

    return parser


gpus_of_tres = gpus_of(words.gpus_of_tres, INT)
gpus_of_gres = gpus_of(words.gpus_of_gres, INT)
gpu_types = gpus_of(words.gpu_types, TEXT)

RESOURCE_FIELDS = (
    JobField("priority", "priority", integer),
    JobField("restarts", "restarts", integer),
    JobField("node_list", "nodelist", node_list, reject="bad-node-list"),
    JobField("n_nodes", "allocnodes", count, reject="bad-number"),
    JobField("n_nodes", "nnodes", count, reject="bad-number"),
    JobField("n_nodes", "alloctres", tres("node")),
    JobField("n_cpus", "alloccpus", count, reject="bad-number"),
    JobField("n_cpus", "ncpus", count, reject="bad-number"),
    JobField("n_cpus", "alloctres", tres("cpu")),
    JobField("n_gpus", "alloctres", gpus_of_tres),
    JobField("n_gpus", "allocgres", gpus_of_gres, unless="alloctres"),
    JobField("gpu_type", "alloctres", gpu_types),
    JobField("gpu_type", "allocgres", gpu_types, unless="alloctres"),
    JobField("requested_nodes", "reqnodes", count),
    JobField("requested_nodes", "reqtres", tres("node")),
    JobField("requested_gpus", "reqtres", gpus_of_tres),
    JobField("excluded_nodes", "excnodelist", word),
    JobField("excluded_nodes", "submitline", submit_option(MAY_EXCLUDE, excluded_nodes)),
)

# of tools that write Slurm's own numbers and name the heterogeneous job in columns
HET_FIELDS = ("hetjobid", "hetjoboffset", "packjobid", "packjoboffset")

# any one of each group will do; a record without them cannot be placed in time or judged
NEEDED = (("JobID", "JobIDRaw"), ("State",), ("Submit", "Start"), ("ElapsedRaw", "Elapsed", "End"))
_ENTRIES = (*ID_FIELDS, *TIME_FIELDS, *RESOURCE_FIELDS)
USED = frozenset({"jobid", "cluster", *HET_FIELDS, *(entry.field for entry in _ENTRIES)})


def used_of(fields: Collection[str]) -> frozenset[str]:
    """Which fields of a log with all these are looked at."""
    looked_at = (entry.field for entry in _ENTRIES if entry.unless not in fields)
    return frozenset({"jobid", "cluster", *HET_FIELDS, *looked_at}.intersection(fields))
