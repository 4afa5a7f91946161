"""`sacct -P`: attempts and their nodes, from any set of columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ettr.errors import SourceError, UsageError
from ettr.sources.base import READERS, ReadOptions, Source, Spreading
from ettr.sources.node_lists import NodeLists
from ettr.sources.origin import READ_ERRORS, Origin
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.attempts import AttemptReader, need_fields
from ettr.sources.slurm.job_fields import USED
from ettr.sources.slurm.records import (
    INNER_BREAK,
    INNER_MARK,
    RecordLayout,
    Records,
    fields_of_header,
    known_share,
    split_records,
    starts_record,
)
from ettr.sources.slurm.times import matches as matches_text
from ettr.tables.rows import TEXT_LIMIT, Batch, Rejects, text_of
from ettr.words import by_number

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
_HEADER_SHARE = 0.8
# `sacct -o ALL` has a header of less than half of this
_MOST_HEADER_BYTES = 4096
_BOMS = (b"\xff\xfe", b"\xfe\xff")


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
    listed = codes.dictionary.to_pylist()
    sizes = np.array([node_lists.listed(text) for text in listed], dtype=np.int64)
    named = np.cumsum(sizes[codes.indices.to_numpy()])
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
    wanted = [name for name in unique if name in USED]
    kind = pa.string() if _is_utf8(data) else pa.binary()
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
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decoded(column: pa.Array, counts: Counter[str]) -> pa.Array:
    if column.type == pa.string():
        return column
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        codes = column.dictionary_encode()
        values = codes.dictionary.to_pylist()
        counts["latin"] += sum(not _is_utf8(value) for value in values)
        return pa.array(map(text_of, values), pa.string()).take(codes.indices)


def _other_headers(block: bytes, layout: RecordLayout, header: bytes | None) -> int:
    """How many lines are headers of other columns than the first line's: of another dump."""
    own = {header, (header or b"").removeprefix(b"\xef\xbb\xbf")}
    count, at = 0, block.find(_JOB_ID)
    while at >= 0:
        begin = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at)
        end = end if end >= 0 else len(block)
        line = block[begin : min(end, begin + _MOST_HEADER_BYTES)]
        if block[at - 1 : at] in {b"", b"\n", layout.mark} and line not in own:
            # a dump of another form may have another separator, too
            parts = [line.split(mark) for mark in (layout.mark, b"|", b",")]
            names = [part.decode("utf-8", "replace").lower() for part in max(parts, key=len)]
            count += len(names) > 1 and known_share(names) >= _HEADER_SHARE
        at = block.find(_JOB_ID, end)
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
        if chunk:
            held += chunk
        if not chunk:
            if held:
                yield layout.one_byte(held), line
            return
        cut = _cut(held, layout)
        if not cut and len(held) > _MOST_HELD_BYTES:
            raise SourceError(
                f"{name}: line {line} is longer than {_MOST_HELD_BYTES >> 20} MiB; it is not text"
            )
        if cut:
            block = held[:cut]
            held = held[cut:]
            lines = block.count(b"\n")
            yield layout.one_byte(block), line
            line += lines


def _cut(held: bytes, layout: RecordLayout) -> int:
    """Where to cut: the start of the last line that begins a job's record, or 0 to read on."""
    column = min(layout.fields.index(n) for n in ("jobid", "jobidraw") if n in layout.fields)
    end = held.rfind(b"\n") + 1
    floor = max(end - len(held) // 2, 0) if len(held) <= _MOST_HELD_BYTES else 0
    at = held.rfind(b"\n", 0, max(end - 1, 0)) + 1
    while at > floor:
        text = held[at : held.find(b"\n", at)]
        parts = text.split(layout.delimiter)
        whole = len(parts) == layout.separators + 1
        if whole or (layout.job_first and starts_record(layout.one_byte(text), layout)):
            job = parts[column] if column < len(parts) else b""
            if re.fullmatch(rb"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?", job):
                return at
        at = held.rfind(b"\n", 0, at - 1) + 1
    return 0 if len(held) <= _MOST_HELD_BYTES else end


def _layout(head: bytes, name: str, options: ReadOptions) -> tuple[RecordLayout, bytes | None]:
    if head.startswith(_BOMS):
        raise SourceError(f"{name}: is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 {name}")
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
    has_state = any(_is_state(part) for part in parts)
    has_time = any(_ISO.match(part) for part in parts)
    return 0.6 if len(parts) >= 5 and has_state and has_time else 0.0


def _is_state(part: bytes) -> bool:
    try:
        words.state_and_user(part.decode("utf-8", "replace"))
    except ValueError:
        return False
    return len(part) > 3


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
