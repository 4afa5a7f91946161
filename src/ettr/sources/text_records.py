"""Records of text and JSON logs: lines in bounded memory, two encodings, times, event batches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from ettr.errors import SourceError
from ettr.sources.base import BATCH_ROWS, DAMAGE, RawFile, ReadOptions
from ettr.sources.slurm.times import utc_of_local
from ettr.tables.rows import Batch, EventRows, Rejects

DEFAULT_CLUSTER = "cluster"
MONTHS = {
    month: number
    for number, month in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
CHUNK_BYTES = 1 << 20
# a line beyond this is damage: its first part is kept, so that memory stays bounded
LINE_LIMIT_BYTES = 8 << 20
# a JSON document that is not one record a line is read whole; beyond this it is refused
DOCUMENT_LIMIT_BYTES = 1 << 30

# a log is written in this span; a time beyond it is damage, and would stretch every denominator
_FIRST_YEAR, _LAST_YEAR = 1980, 2200
_OBJECT_START = re.compile(r"\n[ \t]*\{")
_NOT_FILE_STEM = re.compile(r"[^A-Za-z0-9_\-]+.*", re.DOTALL)


class JsonRecord(NamedTuple):
    """One JSON value of a file, its line or place, and its text; `error` where it is no JSON."""

    line: int
    value: Any
    raw: str
    error: str | None


def chunks(raw: RawFile) -> Iterator[bytes]:
    """The file's bytes, decompressed, in pieces of about one MiB.

    Raises:
        SourceError: the file is cut off or damaged.
    """
    try:
        with raw.open() as file:
            while chunk := _read(file):
                yield chunk
    except DAMAGE as error:
        raise SourceError(f"{raw.path}: is damaged or cut off: {error}") from error


def _read(file: BinaryIO) -> bytes:
    return bytes(file.read(CHUNK_BYTES))


def numbered_lines(raw: RawFile) -> Iterator[tuple[int, bytes]]:
    """Each line with its number from 1, without its line ending."""
    rest, cut, number = b"", False, 0
    for chunk in chunks(raw):
        lines = (rest + chunk).split(b"\n") if not cut else _after_cut(rest, chunk)
        rest = lines.pop()
        for line in lines:
            number += 1
            yield number, line.rstrip(b"\r")
        cut = (cut and not lines) or len(rest) >= LINE_LIMIT_BYTES
        rest = rest[:LINE_LIMIT_BYTES]
    if rest:
        yield number + 1, rest.rstrip(b"\r")


def _after_cut(rest: bytes, chunk: bytes) -> list[bytes]:
    _, newline, after = chunk.partition(b"\n")
    return [rest, *after.split(b"\n")] if newline else [rest]


def text_of(data: bytes) -> str:
    """The bytes as text: UTF-8, or Latin-1 where they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def clean(value: Any) -> str | None:
    """A text that every engine can hold, or None for nothing; numbers become their text."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    text = str(value).encode("utf-8", "replace").decode("utf-8").strip()
    return text or None


def file_stem(name: str) -> str | None:
    """The first word of a file name, which sites use to say which node a log is from."""
    return _NOT_FILE_STEM.sub("", name) or None


def json_records(raw: RawFile) -> Iterator[JsonRecord]:
    """The JSON values of a file: one a line, an array's elements, or documents in a row."""
    lines, place = numbered_lines(raw), 0
    for number, line in lines:
        text = text_of(line).removeprefix("\ufeff").strip()
        if not text:
            continue
        value, error = _load(text)
        if error is None:
            for element in value if isinstance(value, list) else (value,):
                # a line's number, unless an array before it had more elements than lines
                place = max(place + 1, number)
                yield JsonRecord(place, element, short(element), None)
        elif place == 0 or text in {"[", "{"}:
            yield from _document(raw, number, line, lines)
            return
        else:
            place = max(place + 1, number)
            yield JsonRecord(place, None, text, error)


def _document(
    raw: RawFile, number: int, first: bytes, lines: Iterator[tuple[int, bytes]]
) -> Iterator[JsonRecord]:
    parts, size = [first], len(first)
    # a first line that is no JSON and a second that is: a dirty line, not a document over lines
    for following, line in lines:
        if len(parts) == 1 and line.lstrip()[:1] == b"{" and _load(text_of(line))[1] is None:
            text = text_of(first)
            yield JsonRecord(number, None, text, "no JSON")
            yield JsonRecord(following, _load(text_of(line))[0], text_of(line), None)
            for place, later in lines:
                if stripped := text_of(later).strip():
                    value, error = _load(stripped)
                    yield JsonRecord(place, value, stripped, error)
            return
        parts.append(line)
        size += len(line) + 1
        if size > DOCUMENT_LIMIT_BYTES:
            raise SourceError(
                f"{raw.path}: one JSON document of over {DOCUMENT_LIMIT_BYTES >> 30} GiB; write it "
                "with one record a line (jq -c '.[]')"
            )
    yield from _values(text_of(b"\n".join(parts)).removeprefix("\ufeff"))


def _values(text: str) -> Iterator[JsonRecord]:
    decoder, at, place, opened = json.JSONDecoder(), 0, 0, False
    while True:
        while at < len(text) and text[at] in (" \t\r\n,]" if opened else " \t\r\n,"):
            at += 1
        if at >= len(text):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if text[at] == "[" and not opened:
                # an array that is cut off or damaged: its whole elements are still good
                at, opened = at + 1, True
                continue
            place += 1
            yield JsonRecord(place, None, text[at : at + 1000], f"no JSON: {error}")
            again = _OBJECT_START.search(text, at + 1)
            if again is None:
                return
            at, opened = again.end() - 1, True
            continue
        for element in value if isinstance(value, list) else (value,):
            place += 1
            yield JsonRecord(place, element, short(element), None)


def _load(text: str) -> tuple[Any, str | None]:
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as error:
        return None, f"no JSON: {error}"


def short(value: Any) -> str:
    """The value as JSON, cut."""
    try:
        return json.dumps(value)[:2000]
    except (ValueError, RecursionError):
        return "..."


def head_objects(head: bytes, most: int = 20) -> list[dict[str, Any]]:
    """The JSON objects that the first bytes of a file show whole; for `matches`."""
    text = text_of(head).removeprefix("\ufeff").lstrip()
    if text[:1] not in {"{", "["}:
        return []
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and len(found) < most:
        at = next((i for i in range(at, len(text)) if text[i] not in " \t\r\n,[]"), len(text))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            line_end = text.find("\n", at)
            if line_end < 0:
                break
            at = line_end + 1
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def time_of(value: Any, timezone: str | None = None) -> datetime | None:
    """The moment in UTC, or None where the value is no time or lies outside 1980 to 2200.

    Args:
        value: ISO 8601 text, seconds since 1970 (number or text), or {"seconds": ..} of protobuf.
        timezone: zone of texts without an offset; without it such texts are no time.
    """
    if isinstance(value, dict):
        value = value.get("seconds", value.get("$date"))
    if isinstance(value, bool) or value is None:
        return None
    try:
        stamp = _stamp(value, timezone)
    except (ValueError, OverflowError, OSError):
        return None
    return stamp if stamp and _FIRST_YEAR <= stamp.year <= _LAST_YEAR else None


def _stamp(value: Any, timezone: str | None) -> datetime | None:
    if isinstance(value, str):
        text = value.strip()
        if not re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            stamp = datetime.fromisoformat(text.replace(",", ".").replace(" UTC", "+00:00"))
            if stamp.tzinfo is not None:
                return stamp.astimezone(UTC)
            return utc_of_local(stamp, timezone) if timezone else None
        value = float(text)
    if not isinstance(value, int | float):
        return None
    seconds = float(value)
    # Go and JavaScript write milliseconds, journald microseconds, Go's UnixNano nanoseconds
    for factor in (1e9, 1e6, 1e3):
        if seconds / factor > 1e8:
            seconds /= factor
            break
    return datetime.fromtimestamp(seconds, UTC)


def time_without_year(
    text: str, timezone: str, *, start: datetime | None, changed: datetime
) -> datetime | None:
    """The moment of `MM-DDTHH:MM:SS` without a year, or None.

    With a start it is the first such moment not more than a day before it; else the last such
    moment not more than a day after the file was changed.
    """
    day = timedelta(days=1)
    if start is not None:
        years = range(start.year - 1, start.year + 9)
    else:
        years = range(changed.year + 1, changed.year - 9, -1)
    for year in years:
        time = time_of(f"{year}-{text}", timezone)
        if time is not None and (time >= start - day if start else time <= changed + day):
            return time
    return None


class EventFile:
    """Collects the events and rejects of one file, and hands them out in batches."""

    def __init__(self, source: str, raw: RawFile, options: ReadOptions) -> None:
        self.source, self.raw, self.options = source, raw, options
        self.cluster = options.cluster or DEFAULT_CLUSTER
        self.events = EventRows(source, raw.file_id, self.cluster)
        self._rejects = Rejects(source, raw.file_id)
        self._n_read = self._n_skipped = 0
        self._notes: dict[str, None] = {}
        self.note_unless_cluster = True

    def read(self, records: int = 1) -> None:
        """Count records found."""
        self._n_read += records

    def skip(self, records: int = 1) -> None:
        """Count records that are no rows of ours by design."""
        self._n_skipped += records

    def reject(self, line: int, reason: str, detail: str, raw: str | bytes) -> None:
        """Keep one record that could not be read."""
        text = text_of(raw) if isinstance(raw, bytes) else raw
        self._rejects.add(line, reason, clean(detail) or reason, clean(text[:2000]) or "")

    def note(self, sentence: str) -> None:
        """Keep an assumption made."""
        self._notes[sentence] = None

    def node_of_file(self) -> str | None:
        """The node that the file's name says, with a note on it."""
        node = file_stem(self.raw.name)
        if node:
            self.note(f"the lines name no node; {node!r} was taken from the file's name")
        return node

    def time_without_year(self, text: str, timezone: str) -> datetime | None:
        """The moment of `MM-DDTHH:MM:SS`, its year told by the start given or the file's age."""
        start = self.options.start
        changed = datetime.fromtimestamp(self.raw.path.stat().st_mtime, UTC)
        self.note(
            "stamps have no year; it was taken from the start given"
            if start
            else "stamps have no year; each was taken as the last such day before the file was "
            f"changed ({changed:%Y-%m-%d}), unless --start says otherwise"
        )
        return time_without_year(
            text, timezone, start=start.astimezone(UTC) if start else None, changed=changed
        )

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        return len(self.events) + len(self._rejects.rows) >= BATCH_ROWS or self._n_read >= 2_000_000

    def batch(self, **more: pa.Table) -> Batch:
        """What was collected since the last batch."""
        tables: dict[str, pa.Table] = {}
        if len(self.events):
            tables["events"] = self.events.take()
            if self.options.cluster is None and self.note_unless_cluster:
                self.note(
                    f"records without a cluster's name were taken as {DEFAULT_CLUSTER!r} "
                    "(--cluster names it)"
                )
        tables.update({name: table for name, table in more.items() if table.num_rows})
        n_rejected = len(self._rejects.rows)
        if n_rejected:
            tables["rejects"] = self._rejects.table()
        batch = Batch(tables, self._n_read, n_rejected, self._n_skipped, tuple(self._notes))
        self._rejects = Rejects(self.source, self.raw.file_id)
        self._n_read = self._n_skipped = 0
        return batch
