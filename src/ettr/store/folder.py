"""A store in a folder of Parquet files: nothing to start, readable by any other tool.

    STORE/store.json               format, version, and which parts make up each table
    STORE/parts/TABLE/*.parquet    one part for each ingested file, or what is left of it
    STORE/parts/event_*/*.parquet  summaries of large parts of the events, under the parts' names

`store.json` is replaced atomically and last, so a killed process, a torn write or a full disk
leaves the store as it was; parts that it does not name are swept away by the next ingestion.
A part is read only once its bytes have the checksum that `store.json` keeps of them.
"""

from __future__ import annotations

import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ettr.errors import ChangedStoreError, StoreError
from ettr.files import flush
from ettr.store import layout
from ettr.store.base import (
    IngestedFile,
    Ingestion,
    Store,
    check_part,
    check_values,
    corrupt,
    crc32_of,
    known,
    no_rows_of,
    refusals,
    with_every_column,
)
from ettr.store.computing import Computing, with_arrow
from ettr.store.layout import (
    MANIFEST,
    Access,
    Manifest,
    access_mode,
    cannot_write,
    leads_elsewhere,
    locked,
    make_folder,
    new_part,
    new_summary,
    open_to,
    others_in,
    sweep,
)
from ettr.store.merging import (
    Merge,
    PartWriter,
    compacted,
    duck_errors,
    in_parquet,
    merging_engine,
    quoted,
)
from ettr.tables import EVENTS, FILES, TABLES, Table
from ettr.tables.schemas import EVENT_SUMMARIES, EventSummary

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


SMALL_BYTES = 1 << 22
"""Parts of a table up to this size together are read once."""
ONE_THREAD_BYTES = 1 << 24
"""Parts of all tables up to this size together are read by one thread: more would only wait."""
MOST_WAITING = 3
"""Tables that may wait to be written: what bounds the memory of an ingestion."""


class FolderStore(Store):
    """Tables in a folder of Parquet, read through an embedded DuckDB."""

    def __init__(
        self,
        folder: Path,
        *,
        create: bool = False,
        readable_by: Access | None = None,
        computing: Computing | None = None,
    ) -> None:
        self.computing = computing or Computing()
        # Arrow and DuckDB read a name such as s3:b as the address of another file system
        self._folder = folder = folder.absolute() if ":" in str(folder) else folder
        self._opened: duckdb.DuckDBPyConnection | None = None
        # when each part was found to be whole, in this process: its size and its time
        self._verified: dict[Path, tuple[int, int] | None] = {}
        if not (folder / MANIFEST).exists():
            if not create:
                raise StoreError(
                    f"{folder}: no store here; `ettr ingest {folder} FILE...` makes one"
                )
            _make(folder, readable_by or Access.OWNER)
        self._let_go = layout.hold(folder, self)
        self._manifest = self._read_manifest()
        self._sources: dict[str, tuple[list[Path], str]] = {}
        if readable_by is not None:
            self._open_to(readable_by)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The embedded DuckDB."""
        # opened when the first table is asked for: to ingest a file none may be
        if self._opened is None:
            self._opened = embedded_duckdb(self.computing)
            is_small = self._bytes_of(self._manifest.all_parts()) <= ONE_THREAD_BYTES
            if is_small and "threads" not in dict(self.computing.options):
                self._opened.execute("SET threads = 1")
        return self._opened

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    @property
    def file_mode(self) -> int:
        """Permissions of its files."""
        return access_mode(self._folder)

    def source(self, name: str) -> str:
        """The name of a table over all its parts: a view, or where it is small, a table in memory.

        A report asks many things of each table. Every query on Parquet opens the files again, which
        takes longer than all else that the engine does with few rows.
        """
        schema = known(name)
        paths = self._verified_parts(name)
        read, place = self._sources.get(name, (None, ""))
        if read == paths:
            return place
        duck = self.connection
        label, kind = f"stored_{name}_{next(_NUMBER)}", "TABLE" if self.is_small(name) else "VIEW"
        duck.execute(f"CREATE TEMP {kind} {label} AS {_selected(duck, schema, paths)}")
        self._sources[name] = paths, f'"temp"."main"."{label}"'
        return self._sources[name][1]

    def rows(self, name: str) -> pa.Table:
        """All rows of the named table."""
        query = f"SELECT * FROM {self.source(name)}"  # noqa: S608 - a name of ours
        found: pa.Table = with_arrow(self.connection).sql(query).to_arrow_table()
        return found.cast(no_rows_of(known(name)).schema)

    def is_small(self, name: str) -> bool:
        """Whether a table's parts are so small that they are read once, into memory."""
        return self._bytes_of(self._manifest.parts.get(name, [])) <= SMALL_BYTES

    def _bytes_of(self, parts: Iterable[str]) -> int:
        return sum((self._folder / part).stat().st_size for part in parts)

    def summary(self, summary: EventSummary) -> str | None:
        """The name of a view of them; what has none is summed up as it is read."""
        kept = self._verified_parts(summary.table.name)
        duck = self.connection
        if not kept:
            return None
        rows = summary_rows(duck, summary, self._verified_parts(EVENTS.name), kept)
        label = f"stored_{summary.table.name}_{next(_NUMBER)}"
        duck.execute(f"CREATE TEMP VIEW {label} AS {rows}")
        return f'"temp"."main"."{label}"'

    def files(self) -> tuple[IngestedFile, ...]:
        """The files ingested so far, in order; read without the engine, before every ingestion."""
        import pyarrow.parquet as pq

        names = list(IngestedFile.__dataclass_fields__)
        rows: list[dict[str, Any]] = []
        for path in self._verified_parts(FILES.name):
            try:
                # an older ettr wrote fewer columns
                has = pq.read_schema(path).names
                wanted = [name for name in (*names, "ingested") if name in has]
                there = pq.read_table(path, columns=wanted).to_pylist()
            except refusals() as error:
                raise corrupt(path, error) from error
            rows += [dict.fromkeys(names) | row for row in there]
        rows.sort(key=lambda row: int(row["ingested"]))
        return tuple(IngestedFile(**{name: row[name] for name in names}) for row in rows)

    keeps_parquet = True

    def parts_of(self, name: str) -> tuple[str, ...]:
        """The parts of one table; that they are whole is for who reads them to find out."""
        return tuple(
            str(self._folder.absolute() / one) for one in self._manifest.parts.get(name, ())
        )

    def part_files(self) -> tuple[str, ...]:
        """The parts of all tables."""
        return tuple(str(self._folder / part) for part in self._manifest.all_parts())

    @contextmanager
    def ingestion(self, file_id: str) -> Iterator[Ingestion]:
        """Start to ingest one file; holds the store's lock until the end."""
        with self._writing():
            work = _FolderIngestion(self, file_id)
            try:
                yield work
            finally:
                work.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._alone():
            self._manifest = self._read_manifest()
            self._let_go()  # its own parts are named as long as nobody else may write
            self._sweep()
            try:
                yield
            except OSError as error:
                raise cannot_write(self._folder, error) from error
            finally:
                # what is on disk decides: an interrupt may come before the commit is noted here
                self._manifest = self._read_manifest()
                self._sweep()
                self._let_go = layout.hold(self._folder, self)

    def _alone(self) -> AbstractContextManager[None]:
        """Keep every other process from writing."""
        return locked(self._folder)

    def _read_manifest(self) -> Manifest:
        """What the store holds now."""
        return layout.read(self._folder)

    def _sweep(self) -> None:
        """Remove what the manifest does not name."""
        sweep(self._folder, self._manifest.all_parts())

    def _open_to(self, access: Access) -> None:
        try:
            open_to(self._folder, self._manifest.all_parts(), access)
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def close(self) -> None:
        """Close the engine that this store opened itself."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
            self._sources.clear()
        self._let_go()

    def check_integrity(self) -> None:
        """Check every part again, and read to its end each that has no checksum."""
        self._verified.clear()
        for name in (*TABLES, *EVENT_SUMMARIES):
            parts = self._manifest.parts.get(name, [])
            for part, path in zip(parts, self._verified_parts(name), strict=True):
                if part not in self._manifest.crc32:
                    check_values(path)

    def _verified_parts(self, name: str) -> list[Path]:
        """Paths of a table's parts, each of them as it was written."""
        parts = self._manifest.parts.get(name, [])
        paths = [self._folder / part for part in parts]
        for part, path in zip(parts, paths, strict=True):
            stamp = _stamp(path)
            if leads_elsewhere(self._folder, part):
                raise corrupt(path, "it is, or lies behind, a symbolic link")
            if stamp is None and part not in self._read_manifest().all_parts():
                raise ChangedStoreError(
                    f"{self.where}: another process ingested into this store while it was read; "
                    "run the command again"
                )
            if stamp is None or self._verified.get(path) != stamp:
                check_part(path, self._manifest.crc32.get(part), _schema(name))
                self._verified[path] = stamp
        return paths

    def compact(self) -> tuple[int, int]:
        """Make one part of each table, but for very large ones."""
        with self._writing(), merging_engine(self.computing) as duck:
            before = len(self._manifest.all_parts())
            while not self._compacted(duck):
                self._manifest = self._read_manifest()
            return before, len(self._manifest.all_parts())

    def _compacted(self, duck: Any) -> bool:
        parts = {}
        for name, table in TABLES.items():
            merge = Merge(lambda: duck, table, "", partial(self._new_part, "compacted"))
            try:
                whole = compacted(merge, self._verified_parts(name), most=1)
            except duck_errors() as error:
                self.check_integrity()
                raise cannot_write(self._folder, error) from error
            parts[name] = [str(path.relative_to(self._folder)) for path in whole]
        is_done = parts == {name: self._manifest.parts.get(name, []) for name in TABLES}
        return is_done or self._finish(parts, self._manifest.ingested)

    def _new_part(self, prefix: str, name: str, label: str) -> Path:
        return new_part(self._folder, name, f"{prefix}-{label}")

    def _finish(self, parts: dict[str, list[str]], ingested: int) -> bool:
        """Add summaries to merged parts, see all on disk, and publish them."""
        parts |= self._summaries([self._folder / part for part in parts[EVENTS.name]])
        here = {part for paths in parts.values() for part in paths}
        for part in here - self._manifest.all_parts():
            flush(self._folder / part)
        # a file is there after a power cut only if its folder was flushed too
        for folder in {(self._folder / part).parent for part in here}:
            flush(folder)
        return self._publish(parts, ingested)

    def _summaries(self, events: list[Path]) -> dict[str, list[str]]:
        """Summaries of these parts of the events: those that are there, and what is missing."""
        kept = [path for name in EVENT_SUMMARIES for path in self._verified_parts(name)]
        try:
            engine = partial(embedded_duckdb, self.computing)
            made = summaries_of(engine, events, kept, partial(new_summary, self._folder))
        except duck_errors() as error:
            self.check_integrity()
            raise cannot_write(self._folder, error) from error
        return {
            name: [str(path.relative_to(self._folder)) for path in paths]
            for name, paths in made.items()
        }

    def _publish(self, parts: dict[str, list[str]], ingested: int) -> bool:
        """Make these parts the store's, each with its checksum.

        False where another process changed the store since its manifest was read.
        """
        held = Manifest(parts, {}, ingested)
        unsealed = self._manifest.all_parts().difference(self._manifest.crc32)
        for part in sorted(held.all_parts()):
            path = self._folder / part
            if part in unsealed:
                check_values(path)  # an older ettr wrote it: no checksum may bless what is corrupt
            held.crc32[part] = self._manifest.crc32.get(part) or crc32_of(path)
            self._verified[path] = _stamp(path)
        if not self._write_manifest(held):
            return False
        self._manifest = held
        return True

    def _write_manifest(self, held: Manifest) -> bool:
        layout.write(self._folder, held, access_mode(self._folder))
        return True


class _FolderIngestion(Ingestion):
    """Parts of one file, written as they come, merged with the older parts at the commit."""

    def __init__(self, store: FolderStore, file_id: str) -> None:
        self._store = store
        self.computing = store.computing
        self._folder = store._folder
        self._file_id = file_id
        self._writers: dict[str, PartWriter] = {}
        self._paths: dict[str, Path] = {}
        # tables are written, in order, while the next batch is read
        self._pool = ThreadPoolExecutor(1)
        self._writing: deque[Future[None]] = deque()
        self._engine: Any = None

    def write(self, name: str, rows: pa.Table) -> None:
        checked = known(name).check(rows)
        if not checked.num_rows:
            return
        try:
            if name not in self._writers:
                self._paths[name] = self._part(name, "new")
                self._writers[name] = PartWriter(self._paths[name], known(name))
            self._settle(MOST_WAITING)
            self._writing.append(self._pool.submit(self._writers[name].write, checked))
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def adopt(self, name: str, path: Path) -> None:
        self._paths[name] = target = self._part(name, "new")
        try:
            path.replace(target)
        except OSError:  # another file system
            shutil.copyfile(path, target)
        target.chmod(access_mode(self._folder))

    def commit(self, file_row: dict[str, Any], distinct: Collection[str] = ()) -> None:
        self._settle(0)
        self._finish_parts()
        while not self._committed(file_row, distinct):
            # another process was first: the rows join what it left
            self._store._manifest = self._store._read_manifest()

    def _duck(self) -> Any:
        """The merging engine; the first file of a store mostly needs none."""
        self._engine = self._engine or merging_engine(self.computing)
        return self._engine

    def _committed(self, file_row: dict[str, Any], distinct: Collection[str]) -> bool:
        """Merge the new parts with those of the manifest, and publish what that makes."""
        import pyarrow as pa

        turn = self._store._manifest.ingested + 1
        row = {**file_row, "file_id": self._file_id, "ingested": turn}
        new = self._paths | {FILES.name: self._part(FILES.name, "new")}
        writer = PartWriter(new[FILES.name], FILES)
        writer.write(pa.Table.from_pylist([row], schema=FILES.arrow_schema))
        writer.close()
        parts: dict[str, list[str]] = {}
        again = True
        # that of files first: it knows whether an older part can hold rows of this one
        for name in sorted(TABLES, key=FILES.name.__ne__):
            if name not in new and not again:
                parts[name] = self._store._manifest.parts.get(name, [])
                continue
            try:
                merge = Merge(self._duck, TABLES[name], self._file_id, self._part)
                if name == FILES.name:
                    again = merge.is_in(self._store._verified_parts(name))
                # first, so that the new rows are not compared with each of many small parts
                few = compacted(merge, self._store._verified_parts(name))
                merged = merge.run(few, new.get(name), again=again, distinct=name in distinct)
            except duck_errors() as error:
                self._store.check_integrity()
                raise cannot_write(self._folder, error) from error
            parts[name] = [str(path.relative_to(self._folder)) for path in merged]
        return self._store._finish(parts, turn)

    def _settle(self, most: int) -> None:
        """Wait until at most so many tables are unwritten, and raise what went wrong."""
        while len(self._writing) > most:
            self._writing.popleft().result()

    def close(self) -> None:
        """Close the part files and the engine; safe to call again."""
        while self._writers:
            # on a full disk the footer fails as the rows did; such a part is swept away
            with suppress(OSError):
                self._finish_parts()
        self._pool.shutdown()
        if self._engine is not None:
            self._engine.close()

    def _finish_parts(self) -> None:
        self._pool.shutdown()
        while self._writers:
            _, writer = self._writers.popitem()
            writer.close()

    def _part(self, name: str, label: str) -> Path:
        turn = self._store._manifest.ingested + 1
        return new_part(self._folder, name, f"{self._file_id}-{turn}-{label}")


_NUMBER = count()


def embedded_duckdb(computing: Computing | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB whose clock is UTC."""
    duck = (computing or Computing()).connect()
    # a report asks many questions, each of which would read the foot of every part again
    duck.execute("SET parquet_metadata_cache = true")
    return duck


def _selected(duck: duckdb.DuckDBPyConnection, schema: Table, paths: list[Path]) -> str:
    """A SELECT of a table's rows in those parts."""
    if not paths:
        return with_every_column(schema, (), "(SELECT 1) one") + " WHERE FALSE"
    source = in_parquet(*paths)
    there = duck.execute(f"SELECT * FROM {source} LIMIT 0").description or ()  # noqa: S608
    return with_every_column(schema, (column[0] for column in there), source)


def _schema(name: str) -> Table:
    """The schema of a table, or of a summary of events."""
    return EVENT_SUMMARIES[name].table if name in EVENT_SUMMARIES else known(name)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of a file; None if it is gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise corrupt(path, "it is not a regular file")
    return found.st_size, found.st_mtime_ns


def _make(folder: Path, access: Access) -> None:
    """Make an empty store, also where an earlier attempt to make one failed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():
            make_folder(folder, access.file_mode)
        if others_in(folder):
            raise StoreError(
                f"{folder}: holds other files and no {MANIFEST}; give an empty or a new folder"
            )
        with locked(folder):
            # another process may have made it meanwhile
            if not (folder / MANIFEST).exists():
                sweep(folder, ())
                layout.write(folder, Manifest(), access.file_mode)
                flush(folder.parent)
    except OSError as error:
        raise cannot_write(folder, error, "no store was made") from error


# -- Summaries of large parts of the events, made as the parts are ingested -----------------------
#
# A report asks of all events how many of each kind a day has, and on which days those of each
# node came. A part never changes, so neither do its answers.

LEAST_ROWS = 100_000
"""Rows of a part that has summaries; fewer are as soon read as their summary."""


def summaries_of(
    engine: Callable[[], duckdb.DuckDBPyConnection],
    parts: Iterable[Path],
    kept: Iterable[Path],
    new_summary: Callable[[str, Path], Path],
) -> dict[str, list[Path]]:
    """Paths of the summaries of those parts of the events, by the name of the summary."""
    import pyarrow.parquet as pq

    there = {(path.parent.name, path.name): path for path in kept}
    large = [part for part in parts if pq.read_metadata(part).num_rows >= LEAST_ROWS]
    found: dict[str, list[Path]] = {name: [] for name in EVENT_SUMMARIES}
    opened: duckdb.DuckDBPyConnection | None = None
    for name, summary in EVENT_SUMMARIES.items():
        for part in large:
            path = there.get((name, part.name))
            if path is None:
                opened = opened or engine()
                path = new_summary(name, part)
                _write(opened, summary, part, path)
            found[name].append(path)
    if opened is not None:
        opened.close()
    return found


def summary_rows(
    duck: duckdb.DuckDBPyConnection, summary: EventSummary, parts: list[Path], kept: list[Path]
) -> str:
    """A SELECT of a summary's rows, to be summed: of what is kept, and of parts that have none."""
    columns = ", ".join(f'"{name}"' for name in summary.table.names)
    rows = f"SELECT {columns} FROM {in_parquet(*kept)}"  # noqa: S608 - names of ours
    summed_up = {path.name for path in kept}
    rest = [part for part in parts if part.name not in summed_up]
    if not rest:
        return rows
    return f"{rows} UNION ALL SELECT {columns} FROM ({_counted(duck, summary, rest)}) rest"  # noqa: S608


def _counted(duck: duckdb.DuckDBPyConnection, summary: EventSummary, parts: list[Path]) -> str:
    return summary.counted.format(events=f"({_selected(duck, EVENTS, parts)}) events")


def _write(
    duck: duckdb.DuckDBPyConnection, summary: EventSummary, part: Path, target: Path
) -> None:
    columns = ", ".join(f'"{name}"' for name in summary.table.names)
    query = f"SELECT {columns} FROM ({_counted(duck, summary, [part])}) counted"  # noqa: S608
    duck.execute(
        f"COPY ({query}) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
    )
