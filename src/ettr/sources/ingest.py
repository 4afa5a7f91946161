"""From files on disk to rows in a store."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow.compute as pc

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.origin import HEAD_BYTES, READ_ERRORS, Origin, open_bytes
from ettr.sources.registry import all_sources, named, recognise
from ettr.store import Ingestion, Store
from ettr.tables import REJECTS

_CHUNK_BYTES = 1 << 20
_FILE_ID_DIGITS = 20

# told of each batch: the file's name, and how many records have been read from it so far
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of one file: rows by table, and the records that were not rows."""

    name: str
    source: str
    unchanged: bool
    rows_read: int = 0
    rows_rejected: int = 0
    rows_skipped: int = 0
    rows: tuple[tuple[str, int], ...] = ()
    rejected: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


def ingest_file(
    store: Store,
    path: Path,
    options: ReadOptions,
    source_name: str | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Read one file into the store and say what came of it.

    Args:
        store: where the rows go; a file that is there already, read with the same options,
            changes nothing.
        path: the file, plain or compressed.
        options: what the user said about it.
        source_name: the format; recognised by content if None.
        progress: told after each batch.

    Raises:
        SourceError: the file cannot be read as a known format.
        UsageError: an option is missing or wrong.
        StoreError: the store cannot be written.
    """
    if path.is_dir():
        raise SourceError(f"{path}: is a folder; name the files in it")
    head = _head(path)
    if not head.strip():
        raise SourceError(f"{path}: is empty")
    source = named(source_name) if source_name else _recognised(head, path.name, options)
    _check_options(path, source, options, head)
    origin = Origin(path, _file_id(path, source), head)
    text = _options_text(options)
    there = store.files()
    for known in there:
        if known.file_id == origin.file_id and known.options == text:
            return Ingested(
                path.name,
                source.name,
                unchanged=True,
                rows_read=known.rows_read,
                rows_rejected=known.rows_rejected,
            )
    if options.cluster is None and there:
        options = replace(options, cluster=_only_cluster(store))
    with store.ingestion(origin.file_id) as ingestion:
        return _read_into(ingestion, origin, source, options, text, progress)


def _recognised(head: bytes, name: str, options: ReadOptions) -> Source:
    """The source whose format the head shows; else what --table or --fields say of it."""
    try:
        return recognise(head, name)
    except SourceError:
        if options.table is not None:
            return named("table")
        takers = [source for source in all_sources().values() if "--fields" in source.options]
        width = len(options.fields or ())
        if width < 2 or len(takers) != 1 or head.split(b"\n", 1)[0].count(b"|") < width - 1:
            raise
        return takers[0]


def _only_cluster(store: Store) -> str | None:
    """The cluster of a file that names none: that of the store, where it holds just one."""
    names: set[str] = set()
    for name in ("attempts", "nodes", "node_states"):
        found = store.table(name).select("cluster").distinct().limit(2).to_pyarrow()
        names.update(found["cluster"].to_pylist())
    return names.pop() if len(names) == 1 else None


def naming_first(files: list[Path], source_name: str | None) -> list[Path]:
    """The files in the order in which to read them: those whose format names the cluster first."""

    def names_none(path: Path) -> bool:
        if source_name is not None or path.is_dir():
            return False
        try:
            return not recognise(_head(path), path.name).names_cluster
        except SourceError:  # told when the file's turn comes
            return False

    return sorted(files, key=names_none)


def _read_into(
    ingestion: Ingestion,
    origin: Origin,
    source: Source,
    options: ReadOptions,
    said: str,
    progress: Progress | None,
) -> Ingested:
    counts: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    notes: dict[str, None] = {}
    for batch in source.read(origin, options):
        for name, table in batch.tables.items():
            ingestion.write(name, table)
            rows[name] += table.num_rows
            if name == REJECTS.name:
                for entry in pc.value_counts(table.column("reason")).to_pylist():
                    rejected[entry["values"]] += entry["counts"]
        counts["read"] += batch.rows_read
        counts["rejected"] += batch.rows_rejected
        counts["skipped"] += batch.rows_skipped
        notes.update(dict.fromkeys(batch.notes))
        if progress:
            progress(origin.name, counts["read"])
    if not counts["read"]:
        raise SourceError(f"{origin}: holds no record of {source.name} ({source.title})")
    ingestion.commit(
        {
            "name": origin.name,
            "source": source.name,
            "size_bytes": origin.path.stat().st_size,
            "rows_read": counts["read"],
            "rows_rejected": counts["rejected"],
            "rows_skipped": counts["skipped"],
            "timezone": options.timezone if source.local_time else None,
            "options": said,
            "notes": "\n".join(notes) or None,
        }
    )
    return Ingested(
        origin.name,
        source.name,
        unchanged=False,
        rows_read=counts["read"],
        rows_rejected=counts["rejected"],
        rows_skipped=counts["skipped"],
        rows=tuple((name, n) for name, n in rows.items() if name != REJECTS.name),
        rejected=tuple(rejected.most_common()),
        notes=tuple(notes),
    )


def _head(path: Path) -> bytes:
    try:
        with open_bytes(path) as file:
            return file.read(HEAD_BYTES)
    except READ_ERRORS as error:
        raise SourceError(f"{path}: is damaged or cut off: {error}") from error


def _file_id(path: Path, source: Source) -> str:
    # SHA-256 has instructions of its own on today's processors, which makes it the fastest here
    digest = hashlib.sha256(source.name.encode())
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()[:_FILE_ID_DIGITS]


def _options_text(options: ReadOptions) -> str:
    said: dict[str, Any] = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if getattr(options, field.name) is not None
    }
    return json.dumps(said, default=_plain, sort_keys=True)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _check_options(path: Path, source: Source, options: ReadOptions, head: bytes) -> None:
    if options.timezone is not None:
        try:
            ZoneInfo(options.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise UsageError(
                f"--timezone {options.timezone!r} is no IANA zone; give one such as "
                "Europe/Zurich, America/Los_Angeles or UTC"
            ) from None
    elif source.local_time and source.prints_local(head):
        raise UsageError(
            f"{path}: {source.name} prints local time without a zone; say which with "
            "--timezone ZONE (an IANA name such as Europe/Zurich, or UTC)"
        )
