"""`sacct -P`: attempts and their nodes, from any set of columns.

sacct escapes nothing: a SubmitLine may hold line breaks and separators. Lines that have the right
number of separators are found by whole blocks of bytes; only what lies between them is looked at
line by line. A record that cannot be put together in one way only is handed on as broken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ettr.errors import SourceError, UsageError
from ettr.sources.base import READERS, ReadOptions, Source, Spreading
from ettr.sources.lines import lines_with
from ettr.sources.node_lists import NodeLists
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.attempts import AttemptReader, need_fields
from ettr.sources.slurm.job_fields import used_of
from ettr.sources.slurm.times import matches as matches_text
from ettr.tables.rows import TEXT_LIMIT, Batch, Rejects, text_of
from ettr.words import by_number

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# replaces a separator of several bytes while a block is split
_STAND_IN = b"\x1f"
# replace a separator and a line break inside a free text of a repaired record
INNER_MARK, INNER_BREAK = b"\x1e", b"\x1d"
_START = re.compile(rb"\d+(?:_(?:\d+|\[[^\]|]{0,400}\]))?(?:\+\d+)?(?:\.[A-Za-z0-9_+\-]+)?\Z")
_NUMBER = re.compile(rb"\d*\Z")
_TIMES = ("submit", "start", "end", "eligible")
_NUMBERS = (
    *("uid", "gid", "elapsedraw", "nnodes", "ncpus", "alloccpus", "allocnodes", "reqcpus"),
    *("reqnodes", "priority", "cputimeraw"),
)
_ALWAYS_FILLED = frozenset(
    {"state", "elapsed", "elapsedraw", "suspended", "exitcode", "submit", "start", "end"}
)
_DURATIONS = (
    *("elapsed", "timelimit", "suspended", "systemcpu", "usercpu", "totalcpu", "cputime"),
    *("mincpu", "avecpu", "planned", "reserved"),
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
    problem = None
    if excess < 0:
        problem = "too-few-fields", ""
    elif excess and layout.delimiter == b"," and _LISTS & set(layout.fields):
        hint = "; lists of nodes and of resources hold commas: dump with another --delimiter"
        problem = "too-many-fields", hint
    elif excess:
        merged = _merge(text, layout)
        if merged is None:
            problem = "too-many-fields", ", and no single way to join them"
        else:
            parts, disputed = merged
            found.disputed += disputed
            text = layout.mark.join(part.replace(layout.mark, INNER_MARK) for part in parts)
    if problem is not None:
        reason, more = problem
        detail = f"{n_marks + 1} fields where the header has {len(layout.fields)}{more}"
        found.broken.append((group[0], reason, detail, text))
        return None
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
    checked = [k for k, name in enumerate(fields) if name in _CHECKS]
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
    """Whether a field may be so."""
    return name not in _CHECKS or _CHECKS[name](part)


def _readable(parse: Callable[[str], object]) -> Callable[[bytes], bool]:
    """Whether a function of a text takes a field."""

    def is_readable(part: bytes) -> bool:
        try:
            parse(part.decode("utf-8", "replace"))
        except ValueError:
            return False
        return True

    return is_readable


def _time_or_nothing(text: str) -> None:
    if text in words.NOTHING or re.fullmatch(r"\d{9,11}", text):
        return
    if datetime.fromisoformat(text) is None or len(text) < len("2026-01-01T00:00"):
        raise ValueError(text)


_CHECKS: dict[str, Callable[[bytes], bool]] = {
    **dict.fromkeys(("jobid", "jobidraw"), lambda part: _START.match(part) is not None),
    **dict.fromkeys(_TIMES, _readable(_time_or_nothing)),
    **dict.fromkeys(_NUMBERS, lambda part: _NUMBER.match(part) is not None),
    **dict.fromkeys(_DURATIONS, _readable(words.duration_s)),
    **dict.fromkeys(("exitcode", "derivedexitcode"), _readable(words.exit_code)),
    **dict.fromkeys(("alloctres", "reqtres"), lambda part: not part or b"=" in part),
    "state": _readable(words.state_and_user),
    "submitline": lambda part: not part or _COMMANDS.match(part) is not None,
    "workdir": lambda part: not part or part.startswith(b"/"),
}


def fields_of_header(line: bytes, delimiter: bytes) -> tuple[str, ...]:
    """Lower-case field names of a header line; a trailing separator leaves an empty last one."""
    return tuple(
        part.decode("utf-8", "replace").strip().split("%")[0].lower()
        for part in line.split(delimiter)
    )


def known_share(fields: Sequence[str]) -> float:
    """Which share of the names sacct has."""
    return sum(name in words.SACCT_FIELDS for name in fields) / max(len(fields), 1)


# -- attempts and their nodes --------------------------------------------------------------------

NAME = "slurm-sacct"
CHUNK_BYTES = 8 << 20
# a job's steps follow it; beyond this many bytes of them the block is read as it is
_MOST_HELD_BYTES = 16 * CHUNK_BYTES
# more rows of allocations than these are made in several batches
_MOST_ALLOCATIONS = 2_000_000
_HEADER = re.compile(rb"[A-Za-z]\w*([^\w\s%,.]{1,3}|\t|,|\x1f)[A-Za-z]")
_JOB_FIRST = re.compile(rb"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?(?:\.\w+)?(\|#|\||\^|\t|\x1f)")
_ISO = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_ZONED_ISO = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)(?!\d)")
_JOB_ID = b"JobID"
_LINE_BREAK, _FIRST_NON_ASCII = 10, 128
_HEADER_SHARE = 0.8
# `sacct -o ALL` has a header of less than half of this
_MOST_HEADER_BYTES = 4096


def read(origin: Origin, options: ReadOptions, spread: Spreading | None = None) -> Iterator[Batch]:
    """Batches of attempts and allocations, in the file's order.

    Args:
        spread: Gives each block to one of several processes; a block needs nothing of the others.

    Raises:
        SourceError: the file is no `sacct -P`, or lacks a field that is needed.
        UsageError: a zone or the field names are needed and were not given.
    """
    layout, header = _layout(origin.head, str(origin), options)
    need_fields(layout.fields, str(origin))
    reader = AttemptReader(NAME, origin.file_id, options, str(origin))
    counts: Counter[str] = Counter()
    with origin.open() as file:
        blocks = _blocks(file, layout, str(origin))
        if spread is not None:
            work = partial(_by_itself, layout, header, origin.file_id, options, str(origin))
            for batches, counted, assumed in spread(work, blocks):
                counts.update(counted)
                reader.add(assumed)
                yield from batches
        else:
            parsed = (_parse(*block, layout, header, counts) for block in blocks)
            for part in _ahead(parsed):
                for piece in _pieces(part, reader.node_lists):
                    yield _batch(piece, layout, reader, origin.file_id)
    yield Batch({}, 0, notes=(*reader.notes(), *_notes(counts, header, options)))


def _by_itself(
    layout: RecordLayout,
    header: bytes | None,
    file_id: str,
    options: ReadOptions,
    name: str,
    block: tuple[bytes, int],
) -> tuple[list[Batch], Counter[str], tuple[Counter[str], ...]]:
    """The batches of one block, what was repaired in it, and what was assumed."""
    counts: Counter[str] = Counter()
    reader = AttemptReader(NAME, file_id, options, name)
    pieces = _pieces(_parse(*block, layout, header, counts), reader.node_lists)
    batches = [_batch(piece, layout, reader, file_id) for piece in pieces]
    return batches, counts, reader.assumed


@dataclass(frozen=True, slots=True)
class _Parsed:
    """One block: its records, their columns in use, and the line on which it begins."""

    records: Records
    columns: dict[str, pa.Array]
    first_line: int
    headers: int

    def slice(self, first: int, last: int) -> _Parsed:
        """Some of the records; what is counted of the block goes with the first."""
        of_block = self.records
        records = Records(
            b"\n".join(of_block.data.split(b"\n")[first:last]),
            of_block.start[first:last],
            of_block.line[first:last],
        )
        if first == 0:
            records.broken, records.blank = of_block.broken, of_block.blank
        columns = {name: column.slice(first, last - first) for name, column in self.columns.items()}
        return _Parsed(records, columns, self.first_line, self.headers if first == 0 else 0)


def _ahead(items: Iterator[_Parsed]) -> Iterator[_Parsed]:
    """The items, the next of which is parsed while the last is turned into rows."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, None)
        while (item := waiting.result()) is not None:
            waiting = pool.submit(next, items, None)
            yield item


def _parse(
    block: bytes, first_line: int, layout: RecordLayout, header: bytes | None, counts: Counter[str]
) -> _Parsed:
    records = split_records(block, layout, header)
    headers = records.headers - (first_line == 1 and header is not None)
    counts["headers"] += headers
    counts["other_headers"] += _other_headers(block, layout, header)
    counts["repaired"] += records.repaired
    counts["disputed"] += records.disputed
    columns: dict[str, pa.Array] = {}
    if len(records.line):
        names = [name if name else f"\x00{at}" for at, name in enumerate(layout.fields)]
        if layout.trailing:
            names.append("\x00last")
        columns = _columns(records.data, names, layout.mark, counts)
        if records.repaired:
            columns = {name: _restored(name, column, layout) for name, column in columns.items()}
    return _Parsed(records, columns, first_line, headers)


def _pieces(part: _Parsed, node_lists: NodeLists) -> Iterator[_Parsed]:
    """The block in pieces whose node lists make rows that fit in memory; most often it is one."""
    lists = part.columns.get("nodelist")
    n = len(part.records.line)
    if lists is None or n < 2:
        yield part
        return
    codes = lists.dictionary_encode()
    named = np.cumsum(node_lists.all_listed(codes.dictionary)[codes.indices.to_numpy()])
    if named[-1] <= _MOST_ALLOCATIONS:
        yield part
        return
    ids = part.columns["jobid"] if "jobid" in part.columns else part.columns["jobidraw"]
    # a job's steps stay with it
    begins = np.flatnonzero(matches_text(ids, words.JOB_ID))
    of_piece = named[begins] // _MOST_ALLOCATIONS
    cuts = begins[1:][np.diff(of_piece) > 0].tolist()
    for first, last in pairwise([0, *cuts, n]):
        yield part.slice(first, last)


def _batch(part: _Parsed, layout: RecordLayout, reader: AttemptReader, file_id: str) -> Batch:
    records, first_line = part.records, part.first_line
    rejects = Rejects(NAME, file_id)
    for line, reason, detail, text in records.broken:
        raw = text.replace(layout.mark, layout.delimiter)
        rejects.add(first_line + line, reason, detail, _without_secrets(raw))
    n = len(records.line)
    skipped, folded = records.blank + part.headers, 0
    read = n + len(records.broken) + skipped
    tables: dict[str, pa.Table] = {}
    if n:
        made = reader.convert(part.columns, records.line + first_line)
        lines_of = records.data.split(b"\n") if made.bad else []
        for bad in made.bad:
            text = lines_of[bad.index].replace(layout.mark, layout.delimiter)
            at = first_line + int(records.line[bad.index])
            rejects.add(at, bad.reason, bad.detail, _without_secrets(text))
        tables = {"attempts": made.attempts, "allocations": made.allocations}
        skipped += made.skipped
        folded = made.folded
    if rejects.rows:
        rejects.sort()
        tables["rejects"] = rejects.table()
    return Batch(tables, read, len(rejects.rows), skipped, rows_folded=folded, nodes_once=True)


def _without_secrets(raw: bytes) -> str:
    return words.without_secrets(text_of(raw[: 4 * TEXT_LIMIT]))


def _columns(
    data: bytes, names: list[str], mark: bytes, counts: Counter[str]
) -> dict[str, pa.Array]:
    """The columns in use, as strings."""
    unique = [
        name if names.index(name) == at else f"{name}\x00{at}" for at, name in enumerate(names)
    ]
    used = used_of(unique)
    wanted = [name for name in unique if name in used]
    kind = pa.string() if data.isascii() else pa.binary()
    longest = max(len(data) // 16, 1 << 20)
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=unique, block_size=min(longest, 2**30), use_threads=False),
        csv.ParseOptions(
            delimiter=mark.decode(),
            quote_char=False,
            double_quote=False,
            newlines_in_values=False,
            ignore_empty_lines=False,
        ),
        csv.ConvertOptions(
            include_columns=wanted,
            check_utf8=False,
            strings_can_be_null=False,
            column_types=dict.fromkeys(wanted, kind),
        ),
    )
    return {name: _decoded(table.column(name).combine_chunks(), counts) for name in wanted}


def _restored(name: str, column: pa.Array, layout: RecordLayout) -> pa.Array:
    """A free text with the separators and line breaks that it had."""
    if name not in words.FREE_TEXT:
        return column
    for inner, own in ((INNER_MARK, layout.mark), (INNER_BREAK, b"\n")):
        bytes_of = column.buffers()[2]
        if bytes_of is not None and inner in bytes_of.to_pybytes():
            column = pc.replace_substring(column, inner.decode(), own.decode())
    return column


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decoded(column: pa.Array, counts: Counter[str]) -> pa.Array:
    if column.type == pa.string():
        return column
    if _is_ascii(column):
        return column.view(pa.string())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        codes = column.dictionary_encode()
        values = codes.dictionary.to_pylist()
        counts["latin"] += sum(not _is_utf8(value) for value in values)
        return pa.array(map(text_of, values), pa.string()).take(codes.indices)


def _is_ascii(column: pa.Array) -> bool:
    """Whether all bytes of a column are; to check each of its texts takes ten times as long."""
    data = column.buffers()[2]
    return data is None or not len(data) or np.frombuffer(data, np.uint8).max() < _FIRST_NON_ASCII


def _other_headers(block: bytes, layout: RecordLayout, header: bytes | None) -> int:
    """How many lines are headers of other columns than the first line's: of another dump."""
    own = {header, (header or b"").removeprefix(b"\xef\xbb\xbf")}
    count = 0
    for begin in lines_with(block, _JOB_ID):
        line = block[begin : begin + _MOST_HEADER_BYTES].partition(b"\n")[0]
        at = line.find(_JOB_ID)
        if line[at - 1 : at] in {b"", layout.mark} and line not in own:
            # a dump of another form may have another separator, too
            parts = [line.split(mark) for mark in (layout.mark, b"|", b",")]
            names = [part.decode("utf-8", "replace").lower() for part in max(parts, key=len)]
            count += len(names) > 1 and known_share(names) >= _HEADER_SHARE
    return count


def _blocks(file: BinaryIO, layout: RecordLayout, name: str) -> Iterator[tuple[bytes, int]]:
    """Blocks of whole records with their first line's number, separators made one byte."""
    held = b""
    line = 1
    while True:
        try:
            chunk = file.read(CHUNK_BYTES)
        except (*READ_ERRORS, ValueError) as error:
            raise SourceError(f"{name}: is corrupt or truncated: {error}") from error
        if not chunk:
            if held:
                yield layout.one_byte(held), line
            return
        # most cuts lie within the chunk: what is held need not be copied to find them
        if cut := _cut(chunk, layout, len(held)):
            block, held = b"".join((held, memoryview(chunk)[:cut])), chunk[cut:]
        else:
            held += chunk
            cut = _cut(held, layout)
            if not cut and len(held) > _MOST_HELD_BYTES:
                raise SourceError(
                    f"{name}: line {line} is longer than {_MOST_HELD_BYTES >> 20} MiB; it is not "
                    "text"
                )
            block, held = held[:cut], held[cut:]
        if block:
            lines = int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == _LINE_BREAK))
            yield layout.one_byte(block), line
            line += lines


def _cut(text: bytes, layout: RecordLayout, n_before: int = 0) -> int:
    """Where to cut: the start of the last line that begins a job's record, or 0 to read on.

    Args:
        n_before: bytes that are held before the text, whose first line may be the end of theirs.
    """
    column = min(layout.fields.index(n) for n in ("jobid", "jobidraw") if n in layout.fields)
    n_held = n_before + len(text)
    end = text.rfind(b"\n") + 1
    floor = max(end - n_held // 2, 0) if n_held <= _MOST_HELD_BYTES else 0
    at = text.rfind(b"\n", 0, max(end - 1, 0)) + 1
    while at > floor:
        found = text[at : text.find(b"\n", at)]
        parts = found.split(layout.delimiter)
        whole = len(parts) == layout.separators + 1
        if whole or (layout.job_first and starts_record(layout.one_byte(found), layout)):
            job = parts[column] if column < len(parts) else b""
            if re.fullmatch(rb"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?", job):
                return at
        at = text.rfind(b"\n", 0, at - 1) + 1
    return 0 if n_before or n_held <= _MOST_HELD_BYTES else end


def _layout(head: bytes, name: str, options: ReadOptions) -> tuple[RecordLayout, bytes | None]:
    lines = [line.rstrip(b"\r") for line in head.split(b"\n") if line.strip()]
    if not lines:
        raise SourceError(f"{name}: is empty")
    first = lines[0].removeprefix(b"\xef\xbb\xbf")
    delimiter = _delimiter_of_header(first)
    if delimiter is not None:
        fields = fields_of_header(first, delimiter)
        trailing = len(fields) > 1 and not fields[-1]
        layout = RecordLayout(fields[:-1] if trailing else fields, delimiter, trailing)
        return layout, layout.one_byte(lines[0])
    fields_given = options.fields
    match = _JOB_FIRST.match(first)
    delimiter = match[1] if match else b"|"
    if b"|#" in first:
        delimiter = b"|#"
    if fields_given is None and _is_xdmod(lines, delimiter):
        fields_given = words.XDMOD_FIELDS
    if fields_given is None:
        if delimiter not in first:
            raise SourceError(
                f"{name}: is not the output of sacct -P: its first line is neither a header such "
                "as JobID|State|... nor a record"
            )
        raise UsageError(
            f"{name}: has no header and {first.count(delimiter) + 1} fields; name them in order "
            "with --fields, for example --fields JobID,State,Submit,Start,End"
        )
    fields = tuple(field.strip().split("%")[0].lower() for field in fields_given)
    trailing = first.count(delimiter) == len(fields)
    return RecordLayout(fields, delimiter, trailing), None


def _delimiter_of_header(line: bytes) -> bytes | None:
    match = _HEADER.match(line)
    if match is None:
        return None
    fields = [name for name in fields_of_header(line, match[1]) if name]
    if known_share(fields) < 0.5 or not {"jobid", "jobidraw"} & set(fields):
        return None
    return match[1]


def _is_xdmod(lines: list[bytes], delimiter: bytes) -> bool:
    """Whether the first lines have XDMoD's 26 fields: times and a state where it has them."""
    fields = words.XDMOD_FIELDS
    seen = 0
    for line in lines[:20]:
        parts = line.split(delimiter)
        if len(parts) != len(fields):
            continue
        row = dict(zip(fields, parts, strict=True))
        if not (_ISO.fullmatch(row["submit"]) and re.match(rb"[A-Z_]+", row["state"])):
            return False
        if not re.fullmatch(rb"\d+:\d+", row["exitcode"]):
            return False
        seen += 1
    return seen > 0


def matches(head: bytes, file_name: str) -> float:
    """1 for a header of sacct fields, 0.9 for XDMoD's fields, 0.6 for another headerless dump."""
    lines = [line.rstrip(b"\r") for line in head.split(b"\n", 40) if line.strip()]
    if not lines:
        return 0.0
    first = lines[0].removeprefix(b"\xef\xbb\xbf")
    delimiter = _delimiter_of_header(first)
    if delimiter is not None:
        names = [n.strip() for n in first.split(delimiter) if n.strip()]
        own = b"JobID" in names or b"JobIDRaw" in names
        share = known_share([n.decode("utf-8", "replace").split("%")[0].lower() for n in names])
        return 1.0 if own and share >= 0.8 else 0.0
    match = _JOB_FIRST.match(first)
    if match is None:
        return 0.0
    if _is_xdmod(lines, match[1]):
        return 0.9
    parts = first.split(match[1])
    has_state = any(len(part) > 3 and _is_state(part) for part in parts)
    has_time = any(_ISO.match(part) for part in parts)
    return 0.6 if len(parts) >= 5 and has_state and has_time else 0.0


_is_state = _readable(words.state_and_user)


def prints_local(head: bytes) -> bool:
    """Whether the first bytes hold a time without an offset."""
    return len(_ISO.findall(head)) > len(_ZONED_ISO.findall(head))


def _notes(counts: Counter[str], header: bytes | None, options: ReadOptions) -> tuple[str, ...]:
    found = [
        by_number(text, counts[key])
        for key, text in (
            (
                "repaired",
                "{n} [record|records] that line breaks or separators in a free text had broken "
                "[was|were] put together again",
            ),
            (
                "disputed",
                "{n} of them lost [its|their] free texts, as nothing shows which of them "
                "held the separator",
            ),
            (
                "other_headers",
                "{n} MORE [HEADER|HEADERS] WITH OTHER COLUMNS: what follows was read by the columns"
                " of the first line and may be wrong; split the file there and ingest each part",
            ),
            ("headers", "{n} repeated [header was|headers were] skipped"),
            ("latin", "{n} [text is|texts are] not UTF-8; read as Latin-1"),
        )
        if counts[key]
    ]
    if header is None and options.fields is None:
        found.append("no header; its 26 fields are those of XDMoD's sacct call")
    return tuple(found)


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Slurm job accounting, sacct -P",
    tables=("attempts", "allocations"),
    matches=matches,
    read=read,
    read_by=read,
    local_time=True,
    prints_local=prints_local,
    options=("--timezone", "--fields", "--cluster", "--accelerators"),
    how_to_get="TZ=UTC sacct -a -D -P -S START -E END -o ALL > sacct.psv   # then --timezone UTC",
)
