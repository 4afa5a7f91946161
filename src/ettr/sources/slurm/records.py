"""Bytes of `sacct -P` -> records of as many fields as the header has.

sacct escapes nothing: a SubmitLine may hold line breaks and separators. Lines that have the right
number of separators are found by whole blocks of bytes; only what lies between them is looked at
line by line. A record that cannot be put together in one way only is handed on as broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from ettr.sources.slurm import fields as words

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# replaces a separator of several bytes while a block is split
_STAND_IN = b"\x1f"
# replace a separator and a line break inside a free text of a repaired record
INNER_MARK, INNER_BREAK = b"\x1e", b"\x1d"
_START = re.compile(rb"\d+(?:_(?:\d+|\[[^\]|]{0,400}\]))?(?:\+\d+)?(?:\.[A-Za-z0-9_+\-]+)?\Z")
_NUMBER = re.compile(rb"\d*\Z")
_TIMES = frozenset({"submit", "start", "end", "eligible"})
_NUMBERS = frozenset(
    {
        "uid",
        "gid",
        "elapsedraw",
        "nnodes",
        "ncpus",
        "alloccpus",
        "allocnodes",
        "reqcpus",
        "reqnodes",
        "priority",
        "cputimeraw",
    }
)
_ALWAYS_FILLED = frozenset(
    {"state", "elapsed", "elapsedraw", "suspended", "exitcode", "submit", "start", "end"}
)
_DURATIONS = frozenset(
    {
        "elapsed",
        "timelimit",
        "suspended",
        "systemcpu",
        "usercpu",
        "totalcpu",
        "cputime",
        "mincpu",
        "avecpu",
        "planned",
        "reserved",
    }
)
_EXITS = frozenset({"exitcode", "derivedexitcode"})
_CHECKED = (
    _TIMES
    | _NUMBERS
    | _DURATIONS
    | _EXITS
    | {"jobid", "jobidraw", "state", "submitline", "alloctres", "reqtres", "workdir"}
)
# separators in a name, and in all texts of a record, that are put together again
_MOST_IN_A_NAME, _MOST_IN_TEXTS = 16, 32
# ways to join the same fields that are compared
_MOST_WAYS = 16
# fields that hold commas themselves
_LISTS = frozenset({"nodelist", "alloctres", "reqtres", "allocgres", "reqgres"})
_COMMANDS = re.compile(rb"\s*(?:\S*/)?(?:sbatch|srun|salloc|sattach|scrun|strigger)(?:\s|\Z)")


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The fields of a file in order, in lower case, and how its lines are separated.

    `trailing` says that each line ends with one more separator (`sacct -p`).
    """

    fields: tuple[str, ...]
    delimiter: bytes
    trailing: bool = False

    @property
    def separators(self) -> int:
        """Separators of a whole record."""
        return len(self.fields) - (not self.trailing)

    @property
    def job_first(self) -> bool:
        """Whether each record begins with a job id."""
        return self.fields[0] in {"jobid", "jobidraw"}

    @property
    def mark(self) -> bytes:
        """The one byte that separates fields within a block."""
        return self.delimiter if len(self.delimiter) == 1 else _STAND_IN

    def one_byte(self, text: bytes) -> bytes:
        """`text` with one-byte separators and without carriage returns."""
        if len(self.delimiter) > 1:
            text = text.replace(_STAND_IN, b" ").replace(self.delimiter, _STAND_IN)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        return text


@dataclass(slots=True)
class Records:
    """The records of one block.

    `data` holds the whole ones, one a line, with single-byte separators; `start` is where each
    begins in the block as it was read, `line` on which line (from 0, within the block).
    """

    data: bytes
    start: Ints
    line: Ints
    broken: list[tuple[int, str, str, bytes]] = field(default_factory=list)
    blank: int = 0
    repaired: int = 0
    disputed: int = 0
    headers: int = 0


def split_records(block: bytes, layout: RecordLayout, header: bytes | None) -> Records:
    """The records of a block that ends with a line break (or is the last)."""
    raw = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(raw == 10)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)
    is_mark = raw == layout.mark[0]
    # sums of 8 bits take a fourth of the time, and lack what lines with more of them have
    counts = np.add.reduceat(is_mark.view(np.uint8), starts, dtype=np.uint8).astype(np.int64)
    if counts.sum() != np.count_nonzero(is_mark):
        counts = np.add.reduceat(is_mark, starts, dtype=np.int64)
    lines = _BlockLines(block, starts, ends, counts, layout)
    whole = counts == layout.separators
    found = Records(block, starts, np.arange(len(starts)))
    if header is not None:
        is_header = _same_text(raw, starts, ends, header)
        found.headers = int(is_header.sum())
        whole &= ~is_header
        lines.header = is_header
    if whole.all():
        return found
    return _with_repairs(lines, _without_cut_ends(lines, whole), found)


def _without_cut_ends(lines: _BlockLines, whole: Mask) -> Mask:
    """A line that has all its separators is not whole where the next goes on with its last text."""
    if not lines.layout.job_first or lines.layout.fields[-1] not in words.FREE_TEXT:
        return whole
    found = whole.copy()
    for first, _ in _runs(~whole):
        text = lines.text(first)
        goes_on = text.strip() and not lines.is_header(first)
        if first and whole[first - 1] and goes_on and not starts_record(text, lines.layout):
            found[first - 1] = False
    return found


def _same_text(raw: npt.NDArray[np.uint8], starts: Ints, ends: Ints, text: bytes) -> Mask:
    """Which lines are exactly `text`."""
    same: Mask = (ends - starts) == len(text)
    for i in np.flatnonzero(same):
        same[i] = raw[starts[i] : ends[i]].tobytes() == text
    return same


@dataclass(slots=True)
class _BlockLines:
    block: bytes
    starts: Ints
    ends: Ints
    counts: Ints
    layout: RecordLayout
    header: Mask | None = None

    def text(self, i: int) -> bytes:
        return self.block[int(self.starts[i]) : int(self.ends[i])]

    def is_header(self, i: int) -> bool:
        return self.header is not None and bool(self.header[i])


def _with_repairs(lines: _BlockLines, whole: Mask, found: Records) -> Records:
    """Put the records between the whole lines together, in order."""
    whole_block = memoryview(lines.block)
    pieces: list[bytes | memoryview] = []
    start: list[Ints] = []
    number: list[Ints] = []
    at = 0
    for first, last in _runs(~whole):
        if first > at:
            pieces.append(whole_block[int(lines.starts[at]) : int(lines.starts[first])])
            start.append(lines.starts[at:first])
            number.append(np.arange(at, first))
        for begin, record in _repair(lines, first, last, found):
            pieces.append(record + b"\n")
            start.append(lines.starts[begin : begin + 1])
            number.append(np.array([begin]))
        at = last
    if at < len(lines.starts):
        pieces.append(whole_block[int(lines.starts[at]) :])
        start.append(lines.starts[at:])
        number.append(np.arange(at, len(lines.starts)))
    found.data = b"".join(pieces)
    found.start = np.concatenate(start).astype(np.int64) if start else np.empty(0, np.int64)
    found.line = np.concatenate(number).astype(np.int64) if number else np.empty(0, np.int64)
    return found


def _runs(mask: Mask) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _repair(lines: _BlockLines, first: int, last: int, found: Records) -> list[tuple[int, bytes]]:
    """Records of a run of lines none of which is whole: (line on which it begins, its bytes)."""
    out: list[tuple[int, bytes]] = []
    group: list[int] = []
    marks = 0

    def close() -> None:
        if group:
            record = _join(lines, group, found)
            if record is not None:
                out.append((group[0], record))
            group.clear()

    for i in range(first, last):
        text = lines.text(i)
        if lines.is_header(i):
            close()
            continue
        # a record that has all its separators is over when a line with some more comes
        full = bool(group) and marks >= lines.layout.separators and bool(lines.counts[i])
        if starts_record(text, lines.layout) or (full and not lines.layout.job_first):
            close()
        if not group:
            marks = 0
        if group or text.strip():
            group.append(i)
            marks += int(lines.counts[i])
        else:
            found.blank += 1
    close()
    return out


def starts_record(text: bytes, layout: RecordLayout) -> bool:
    """Whether a line begins as a record does; known only where the first field is a job id."""
    if not layout.job_first or layout.mark not in text:
        return False
    parts = text.split(layout.mark, 4)
    if not _START.match(parts[0]):
        return False
    # the last part may be cut by a line break, the others are whole
    if all(_fits(name, part) for name, part in zip(layout.fields, parts[:-1], strict=False)):
        return True
    if text.count(layout.mark) > layout.separators and _ways(text, layout):
        return True
    return _starts_behind_a_text(text, layout)


def _starts_behind_a_text(text: bytes, layout: RecordLayout) -> bool:
    """Whether a line begins as a record does whose name or other free text holds separators."""
    if "state" not in layout.fields:
        return False
    state = layout.fields.index("state")
    parts = text.split(layout.mark, len(layout.fields) + _MOST_IN_A_NAME)[:-1]
    for at, name in enumerate(layout.fields[:state]):
        if name not in words.FREE_TEXT:
            continue
        for more in range(1, min(_MOST_IN_A_NAME, len(parts) - state - 1) + 1):
            before = zip(layout.fields[:at], parts, strict=False)
            after = zip(layout.fields[at + 1 :], parts[at + 1 + more :], strict=False)
            if all(_fits(one, part) for one, part in (*before, *after)):
                return True
    return False


def _join(lines: _BlockLines, group: list[int], found: Records) -> bytes | None:
    while len(group) > 1 and not lines.text(group[-1]).strip():
        group.pop()  # a blank line after a record is no part of it
        found.blank += 1
    text = b"\n".join(lines.text(i) for i in group)
    layout = lines.layout
    n_marks = text.count(layout.mark)
    excess = n_marks - layout.separators
    if excess < 0:
        found.broken.append(
            (
                group[0],
                "too-few-fields",
                f"{n_marks + 1} fields where the header has {len(layout.fields)}",
                text,
            )
        )
        return None
    if excess and layout.delimiter == b"," and _LISTS & set(layout.fields):
        found.broken.append(
            (
                group[0],
                "too-many-fields",
                f"{n_marks + 1} fields where the header has {len(layout.fields)}; lists of nodes "
                "and of resources hold commas: dump with another --delimiter",
                text,
            )
        )
        return None
    if excess:
        merged = _merge(text, layout)
        if merged is None:
            found.broken.append(
                (
                    group[0],
                    "too-many-fields",
                    f"{n_marks + 1} fields where the header has {len(layout.fields)}, "
                    "and no single way to join them",
                    text,
                )
            )
            return None
        parts, disputed = merged
        found.disputed += disputed
        mark = layout.mark
        text = mark.join(part.replace(mark, INNER_MARK) for part in parts)
    found.repaired += 1
    return text.replace(b"\n", INNER_BREAK)


def _merge(text: bytes, layout: RecordLayout) -> tuple[list[bytes], bool] | None:
    """Fields of a record with too many separators, which its free texts must hold."""
    fits = _ways(text, layout)
    # sacct always fills some fields: a way to join that leaves them empty is no likely one
    filled = [k for k, name in enumerate(layout.fields) if name in _ALWAYS_FILLED]
    fits = [tried for tried in fits if all(tried[k] for k in filled)] or fits
    if not fits:
        return None
    if len(fits) == 1:
        return fits[0], False
    first = fits[0]
    differ = [k for k in range(len(first)) if any(other[k] != first[k] for other in fits[1:])]
    if any(layout.fields[k] not in words.FREE_TEXT for k in differ):
        return None
    return [b"" if k in differ else part for k, part in enumerate(first)], True


def _ways(text: bytes, layout: RecordLayout) -> list[list[bytes]]:
    """The ways to join the fields of a record with too many separators."""
    return _in_one_text(text, layout) or _in_several_texts(text, layout)


def _in_one_text(text: bytes, layout: RecordLayout) -> list[list[bytes]]:
    fits: list[list[bytes]] = []
    # a megabyte of separators is not taken apart: the excess lies between the first and last parts
    n, fields = layout.separators, layout.fields
    first_parts = text.split(layout.mark, n + 1)[:-1]
    last_parts = text.rsplit(layout.mark, n + 1)[1:]
    checked = [k for k, name in enumerate(fields) if name in _CHECKED]
    # fields before the text fit as the first parts, those behind it as the last
    latest = next((k for k in checked if not _fits(fields[k], first_parts[k])), n)
    earliest = next((k for k in reversed(checked) if not _fits(fields[k], last_parts[k])), 0)
    for at, name in enumerate(fields):
        if name not in words.FREE_TEXT or not earliest <= at <= latest:
            continue
        # what is joined may be a megabyte: the others were looked at first
        before, after = first_parts[:at], last_parts[at + 1 :]
        begin, end = (len(layout.mark.join(parts)) + bool(parts) for parts in (before, after))
        joined = text[begin : len(text) - end].replace(layout.mark, layout.delimiter)
        if at not in checked or _fits(name, joined):
            fits.append([*before, joined, *after])
    return fits


def _in_several_texts(text: bytes, layout: RecordLayout) -> list[list[bytes]]:
    excess = text.count(layout.mark) - layout.separators
    if not 1 < excess <= _MOST_IN_TEXTS:
        return []
    parts = text.split(layout.mark)
    names = [*layout.fields, *([""] if layout.trailing else [])]

    def joined(at: int, before: int, more: int) -> bytes:
        return layout.delimiter.join(parts[at + before : at + before + more + 1])

    # for each field and so many separators in those before it, the ways to read the rest: in how
    # few texts, and how many separators this field then holds
    rest: list[dict[int, tuple[int, list[int]]]] = [{} for _ in names]
    rest.append({excess: (0, [])})
    for at in range(len(names) - 1, -1, -1):
        following, is_text = rest[at + 1], names[at] in words.FREE_TEXT
        for before in range(excess + 1):
            tried = range(excess - before + 1) if is_text else (0,)
            costs = {
                more: following[before + more][0] + (more > 0)
                for more in tried
                if before + more in following and _fits(names[at], joined(at, before, more))
            }
            if costs:
                least = min(costs.values())
                rest[at][before] = (least, [more for more, cost in costs.items() if cost == least])
    found: list[list[bytes]] = []
    waiting: list[tuple[int, list[bytes]]] = [(0, [])] if 0 in rest[0] else []
    while waiting and len(found) < _MOST_WAYS:
        before, done = waiting.pop()
        at = len(done)
        if at == len(names):
            found.append(done[: layout.separators + 1])
            continue
        waiting += [
            (before + more, [*done, joined(at, before, more)]) for more in rest[at][before][1]
        ]
    return found


def _fits(name: str, part: bytes) -> bool:
    if name in {"jobid", "jobidraw"}:
        return _START.match(part) is not None
    if name == "state":
        return _reads(words.state_and_user, part)
    if name in _TIMES:
        return _is_time(part)
    if name in _EXITS:
        return _reads(words.exit_code, part)
    if name in _NUMBERS:
        return _NUMBER.match(part) is not None
    if name in _DURATIONS:
        return _reads(words.duration_s, part)
    if name == "submitline":
        return not part or _COMMANDS.match(part) is not None
    if name in {"alloctres", "reqtres"}:
        return not part or b"=" in part
    if name == "workdir":
        return not part or part.startswith(b"/")
    return True


def _reads(parse: Callable[[str], object], part: bytes) -> bool:
    try:
        parse(part.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _is_time(part: bytes) -> bool:
    text = part.decode("utf-8", "replace")
    if text in words.NOTHING or re.fullmatch(r"\d{9,11}", text):
        return True
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) >= len("2026-01-01T00:00")


def fields_of_header(line: bytes, delimiter: bytes) -> tuple[str, ...]:
    """Lower-case field names of a header line; a trailing separator leaves an empty last one."""
    return tuple(
        part.decode("utf-8", "replace").strip().split("%")[0].lower()
        for part in line.split(delimiter)
    )


def known_share(fields: Sequence[str]) -> float:
    """Which share of the names sacct has."""
    return sum(name in words.SACCT_FIELDS for name in fields) / max(len(fields), 1)
