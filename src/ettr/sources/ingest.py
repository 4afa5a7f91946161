"""From logs to rows in a store: recognised, hashed, read, committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ettr.errors import AccountingError, NoRecordError, SourceError, StoreError, UsageError
from ettr.sources.base import ReadOptions, Source, Spreading
from ettr.sources.origin import LogFile, Origin, head_of, log_file
from ettr.sources.registry import LEAST_SCORE, all_sources, named, recognise, runners_up
from ettr.store import Ingestion, Store, Written, write_batches
from ettr.store.base import IngestedFile
from ettr.tables.rows import SIMULATION, Batch
from ettr.words import counted

_CHUNK_BYTES = 1 << 20
_FILE_ID_DIGITS = 20

# options that say what a log is; a zone or a cluster given in vain harms nothing
_READING_FLAGS = {
    "table": "--table",
    "column_map": "--columns",
    "job": "--job",
    "run": "--run-name",
    "series": "--series",
    "accelerators": "--accelerators",
}

# called with the log's name, and how many records and bytes of its file have been read so far
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Ingested:
    """The outcome for one log: rows by table, and what became of its records.

    `rows_read` is the sum of the records kept, rejected, folded into others, and skipped by
    design. Of a log that was in the store already (`unchanged`) the counts are those of its first
    reading; kept and folded are None where an older ettr did not count them.
    """

    name: str
    source: str
    unchanged: bool
    rows_read: int = 0
    rows_rejected: int = 0
    rows_skipped: int = 0
    rows_kept: int | None = 0
    rows_folded: int | None = 0
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
    """Read one log into the store.

    Args:
        store: where the rows go; a log that is there already, read with the same options, changes
            nothing.
        path: the file, plain or compressed; a FIFO; or `-` for standard input.

    Raises:
        SourceError: the log cannot be read as a known format.
        UsageError: an option is missing or wrong.
        StoreError: the store holds a simulation, or cannot be written.
    """
    with log_file(path) as log:
        return ingest_log(store, log, options, source_name, progress)


def ingest_log(
    store: Store,
    log: LogFile,
    options: ReadOptions,
    source_name: str | None = None,
    progress: Progress | None = None,
    spread: Spreading | None = None,
) -> Ingested:
    """Read one log into the store, as `ingest_file` does, once its bytes are in a file.

    Args:
        spread: gives blocks of it to several processes, if its source can be read so.
    """
    task = task_of(log, options, source_name, progress)
    there = store.files()
    if (known := task.known_as(there)) is not None:
        return known
    refuse_simulation(store, there, log)
    with store.ingestion(task.origin.file_id) as ingestion:
        return task.read_into(ingestion, progress, spread)


def refuse_simulation(store: Store, there: Iterable[IngestedFile], log: LogFile) -> None:
    """Refuse a log for a store of simulated rows.

    Raises:
        StoreError: the store holds a simulation.
    """
    if any(known.source == SIMULATION for known in there):
        raise StoreError(
            f"{store.where}: holds a simulation; simulated rows never mix with others: give a new "
            f"store for {log}"
        )


def task_of(
    log: LogFile,
    options: ReadOptions,
    source_name: str | None = None,
    progress: Progress | None = None,
) -> IngestTask:
    """What reading a log takes: its source and its key, found out before its rows are read.

    Raises:
        SourceError: the log is of no known format.
        UsageError: an option is missing or wrong.
    """
    if log.path.is_dir():
        raise SourceError(f"{log}: is a folder; name the files in it")
    if progress:
        progress(log.name, 0, 0)
    head = head_of(log.path, log.label)
    if not head.strip():
        raise NoRecordError(f"{log}: is empty")
    source = named(source_name) if source_name else _recognised(head, log.name, options)
    _check_options(log, source, options, head)
    file_id = _file_id(log.path, source, options.table)
    origin = Origin(log.path, file_id, head, log.label, log.is_nameless)
    return IngestTask(log, origin, source, options, forced=source_name is not None)


def unchanged(log: LogFile, source: str, known: IngestedFile) -> Ingested:
    """The outcome for a log that the store has already."""
    counts = ("rows_read", "rows_rejected", "rows_skipped", "rows_kept", "rows_folded")
    return Ingested(
        log.name, source, unchanged=True, **{name: getattr(known, name) for name in counts}
    )


@dataclass(frozen=True, slots=True)
class IngestTask:
    """One log that is about to be read.

    Attributes:
        forced: the user named the source.
    """

    log: LogFile
    origin: Origin
    source: Source
    options: ReadOptions
    forced: bool

    def known_as(self, there: Iterable[IngestedFile]) -> Ingested | None:
        """The outcome where the store has the log already, read with the same options."""
        text = _options_text(self.options)
        for known in there:
            is_same = known.file_id == self.origin.file_id and known.options == text
            if is_same and (known.reader or 1) >= self.source.version:
                return unchanged(self.log, self.source.name, known)
        return None

    def read_into(
        self,
        ingestion: Ingestion,
        progress: Progress | None = None,
        spread: Spreading | None = None,
    ) -> Ingested:
        """Read the rows, and commit them."""
        log, source, options = self.log, self.source, self.options

        def report(n_read: int) -> None:
            if progress:
                progress(log.name, n_read, self.origin.meter.bytes_read)

        try:
            written = write_batches(ingestion, self._batches(spread), report)
        except AccountingError as error:
            raise AccountingError(f"{log}: {source.name}: {error}") from error
        size_bytes = log.path.stat().st_size
        if progress:
            progress(log.name, written.rows_read, size_bytes)
        if not written.rows_read:
            raise NoRecordError(f"{log}: holds no record of {source.name} ({source.title})")
        if self.forced and not (written.rows_kept or written.rows_folded):
            self._refuse_rowless(written)
        notes = (*self._warnings(written), *written.notes)
        counts = {
            name: getattr(written, name)
            for name in ("rows_read", "rows_rejected", "rows_folded", "rows_skipped")
        }
        ingestion.commit(
            {
                "name": log.name,
                "source": source.name,
                "size_bytes": size_bytes,
                **counts,
                "reader": source.version,
                "timezone": options.timezone if source.local_time else None,
                "options": _options_text(options),
                "notes": "\n".join(notes) or None,
            },
            written.distinct,
        )
        return Ingested(
            log.name,
            source.name,
            unchanged=False,
            **counts,
            rows_kept=written.rows_kept,
            rows=written.rows,
            rejected=written.rejected,
            notes=notes,
        )

    def _batches(self, spread: Spreading | None) -> Iterator[Batch]:
        """The batches of the log; trouble in reading is not taken for trouble of the store."""
        try:
            if spread is not None and self.source.read_by is not None:
                yield from self.source.read_by(self.origin, self.options, spread)
            else:
                yield from self.source.read(self.origin, self.options)
        except OSError as error:
            why = str(error) or type(error).__name__
            raise SourceError(f"{self.log}: cannot be read: {why}") from error

    def _warnings(self, written: Written) -> Iterator[str]:
        """Loud notes where all that a log held, or most of it, was rejected."""
        n_kept = written.rows_kept + written.rows_folded
        if written.rows_rejected <= n_kept or (self.forced and n_kept):
            return
        n_records = written.rows_rejected + n_kept if n_kept else written.rows_read
        others = runners_up(self.origin.head, self.log.name, self.source) if n_kept else ()
        looks = f"; it looks like {' and '.join(others)}, too" if others else ""
        yield (
            f"{'MOST RECORDS WERE REJECTED' if n_kept else 'NO RECORD WAS KEPT'}: it was read as "
            f"{self.source.name}, and of {counted(n_records, 'record')} "
            f"{written.rows_rejected:,} could not be used ({_why(written)}){looks}; if it is "
            "another kind of log, name it with --source"
        )

    def _refuse_rowless(self, written: Written) -> None:
        """Refuse a log that a user named as one of this source and that made no row."""
        log, source, head = self.log, self.source, self.origin.head
        if source.matches(head, log.name) >= LEAST_SCORE and not written.rows_rejected:
            return
        try:
            looks = recognise(head, log.name).name
        except SourceError:
            looks = ""
        hint = "check that it is a log of this kind (ettr sources lists them) and is complete"
        if looks not in ("", source.name):
            hint = f"it looks like {looks}: leave out --source, or give --source {looks}"
        why = f" ({_why(written)})" if written.rejected else ""
        raise SourceError(
            f"{log}: no row could be made of it as {source.name}: {written.rows_read:,} records "
            f"read, {written.rows_rejected:,} rejected{why}, {written.rows_skipped:,} skipped; "
            f"{hint}. Nothing was stored"
        )


def _why(written: Written) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in written.rejected)


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


def reads_in_blocks(log: LogFile, options: ReadOptions, source_name: str | None) -> bool:
    """Whether several processes can read blocks of this log."""
    try:
        head = head_of(log.path, log.label)
        source = named(source_name) if source_name else _recognised(head, log.name, options)
    except SourceError:  # raised again when the log's turn comes
        return False
    return source.read_by is not None


def refuse_idle_options(logs: list[LogFile], options: ReadOptions, source_name: str | None) -> None:
    """Check that each option that says what a log is belongs to the source of one of the logs.

    Raises:
        UsageError: some are not; each is named, with the sources that use it.
    """
    given = [flag for name, flag in _READING_FLAGS.items() if getattr(options, name) is not None]
    if not given:
        return
    try:
        sources = {
            source_name or _recognised(head_of(log.path, log.label), log.name, options).name
            for log in logs
            if not log.path.is_dir()
        }
        used = {flag for name in sources for flag in named(name).options}
    except SourceError:  # raised again, for the log that it is about, when that log's turn comes
        return
    idle = [flag for flag in given if flag not in used]
    if idle:
        lines = "".join(
            f"\n  {flag}: for "
            + ", ".join(s.name for s in all_sources().values() if flag in s.options)
            for flag in idle
        )
        raise UsageError(
            f"options that the logs given have no use for, as {', '.join(sorted(sources))}:{lines}"
            "\nleave them out, or name the source with --source"
        )


def _file_id(path: Path, source: Source, table: str | None) -> str:
    # SHA-256 has instructions of its own on today's processors, which makes it the fastest here
    digest = hashlib.sha256(source.name.encode())
    # one file may hold the columns of two tables, and is then two logs
    digest.update((table or "").encode())
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()[:_FILE_ID_DIGITS]


def _options_text(options: ReadOptions) -> str:
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    stated = {name: value for name, value in given.items() if value is not None}
    return json.dumps(stated, default=_plain, sort_keys=True)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _check_options(log: LogFile, source: Source, options: ReadOptions, head: bytes) -> None:
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
            f"{log}: {source.name} prints local time without a zone; say which with "
            "--timezone ZONE (an IANA name such as Europe/Zurich, or UTC)"
        )
