"""What a source is: a name, a test on a file's first bytes, and a reader that yields batches.

A reader never raises for a bad record and never drops one in silence: each record it finds is a row
of some table, a row of `rejects`, or counted as skipped by design. It raises `SourceError` only
where the file as a whole cannot be this format, and `UsageError` where an option is missing.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from ettr.errors import SourceError
from ettr.tables import EVENTS, REJECTS, TABLES

HEAD_BYTES = 65536
TEXT_LIMIT = 500
BATCH_ROWS = 200_000

# equal events are looked for among at least this many before them, so that memory stays bounded
REPEATS_WITHIN_EVENTS = 200_000
# what reading a damaged or cut-off file raises, whatever it is compressed with
DAMAGE = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)

_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user said about a file; None means not said."""

    timezone: str | None = None
    cluster: str | None = None
    fields: tuple[str, ...] | None = None
    n_nodes: int | None = None
    gpus_per_node: int | None = None
    column_map: dict[str, str] | None = None
    table: str | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file to read: where it is, what the rows that come from it will name it."""

    path: Path
    file_id: str
    head: bytes

    @property
    def name(self) -> str:
        """The file's own name, without its folder."""
        return self.path.name

    def open(self) -> BinaryIO:
        """Open the file's bytes, decompressed (zstd, gzip, bzip2 and xz by their magic)."""
        return open_bytes(self.path)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of some tables, and how many records they came from.

    `tables` maps a table's name to rows that pass its schema. The counts are of this batch only;
    rows_read includes rejected and skipped records. Notes are assumptions made, one sentence each.
    """

    tables: dict[str, pa.Table]
    rows_read: int
    rows_rejected: int = 0
    rows_skipped: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A log format: how to know it and how to read it.

    `matches` looks at a file's first bytes and its name and returns a score: 0 not this format,
    1 certain. `local_time` says that the format may print local time without a zone, so that the
    caller must give one before `read` is called; `prints_local` tells from the first bytes
    whether this very file does (a dump whose stamps carry an offset needs none).
    `names_cluster` says that its rows carry the cluster's name; a file that does not takes the
    name given with --cluster, or that of the store's only cluster.
    """

    name: str
    title: str
    tables: tuple[str, ...]
    matches: Callable[[bytes, str], float]
    read: Callable[[RawFile, ReadOptions], Iterator[Batch]]
    names_cluster: bool = False
    local_time: bool = False
    prints_local: Callable[[bytes], bool] = lambda _head: True
    options: tuple[str, ...] = ()
    how_to_get: str = ""


@dataclass(slots=True)
class Rejects:
    """Collects the records that could not be read."""

    source: str
    file_id: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: int, reason: str, detail: str, raw: str | bytes) -> None:
        """Keep one record with its line, a slug to count it by, and what was wrong in words."""
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        self.rows.append(
            {
                "source": self.source,
                "file_id": self.file_id,
                "line": line,
                "reason": reason,
                "detail": detail[:TEXT_LIMIT],
                "raw": text[:TEXT_LIMIT],
            }
        )

    def table(self) -> pa.Table:
        """The collected records as a `rejects` table."""
        return pa.Table.from_pylist(self.rows, schema=REJECTS.arrow_schema)


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressing by its first bytes.

    Raises:
        SourceError: the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        for prefix, codec in _MAGIC.items():
            if magic.startswith(prefix):
                if codec == "xz":
                    return cast(BinaryIO, lzma.open(path, "rb"))
                stream: BinaryIO = pa.input_stream(str(path), compression=codec)
                return stream
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def table_of(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows as dictionaries -> an Arrow table of the named schema; absent keys become null."""
    return pa.Table.from_pylist(list(rows), schema=TABLES[name].arrow_schema)


def attempt_id(cluster: str, job_id: str, submit: datetime) -> str:
    """The key of an attempt in one string; `submit` is aware, the text is UTC to the second."""
    return f"{cluster}/{job_id}@{submit.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def event_id(
    cluster: str,
    node: str | None,
    time: datetime,
    check: str,
    code: str | None,
    entity: str | None,
    message: str | None,
    repeat: int = 0,
) -> str:
    """Hash of an event's content: the same line read twice, from whatever file, is one event.

    `repeat` counts equal lines near each other in one file from 0, so that a log that writes a line
    twice in the same second keeps both, and the same log read again still keeps both.
    """
    parts = (cluster, node, f"{time.timestamp():.6f}", check, code, entity, message, str(repeat))
    text = "\x1f".join("\x00" if part is None else part for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class EventRows:
    """Collects rows of `events`, giving each its id."""

    def __init__(self, source: str, file_id: str, cluster: str) -> None:
        self._source, self._file_id, self._cluster = source, file_id, cluster
        self._rows: list[dict[str, Any]] = []
        self._seen: dict[str, int] = {}
        self._seen_before: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        *,
        line: int,
        time: datetime,
        check: str,
        node: str | None,
        code: str | None = None,
        severity: str = "unknown",
        message: str | None = None,
        cluster: str | None = None,
        **more: Any,
    ) -> None:
        """Keep one event; `more` takes the other columns of `events` by name."""
        where = cluster or self._cluster
        text = None if message is None else message[:TEXT_LIMIT]
        entity = more.get("entity")
        first = event_id(where, node, time, check, code, entity, text)
        repeat = self._repeat(first)
        self._rows.append(
            {
                "event_id": first
                if not repeat
                else event_id(where, node, time, check, code, entity, text, repeat),
                "cluster": where,
                "node": node,
                "time": time,
                "check": check,
                "code": code,
                "severity": severity,
                "message": text,
                "source": self._source,
                "file_id": self._file_id,
                "line": line,
                **more,
            }
        )

    def _repeat(self, found: str) -> int:
        """How often the id was there before; those long past are forgotten, in file order."""
        repeat = self._seen.get(found, self._seen_before.get(found, 0))
        if len(self._seen) >= REPEATS_WITHIN_EVENTS:
            self._seen_before, self._seen = self._seen, {}
        self._seen[found] = repeat + 1
        return repeat

    def take(self) -> pa.Table:
        """The rows so far as an `events` table; the collector starts anew, ids stay unique."""
        table = pa.Table.from_pylist(self._rows, schema=EVENTS.arrow_schema)
        self._rows = []
        return table
