"""A store in a folder of Parquet files: nothing to start, readable by any other tool.

    STORE/store.json               format, version, and which parts make up each table
    STORE/parts/TABLE/*.parquet    one part for each ingested file, or what is left of it

`store.json` is replaced atomically and last, so a killed process, a torn write or a full disk
leaves the store as it was; parts that it does not name are swept away by the next ingestion.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
from ibis.backends import BaseBackend
from ibis.backends.duckdb import Backend as DuckDBBackend

from ettr.errors import StoreError
from ettr.store.base import (
    STORE_FORMAT,
    STORE_VERSION,
    IngestedFile,
    Ingestion,
    Store,
    disconnect,
    known,
    newest_first,
    no_rows,
)
from ettr.tables import FILES, TABLES, Table

MANIFEST = "store.json"
# a dictionary of values of which each row has its own takes time and room
_NEVER_REPEAT = frozenset({"attempt_id", "job_id", "job_id_raw", "event_id", "line"})
Parts = dict[str, list[str]]


class FolderStore(Store):
    """Tables in a folder of Parquet, read through DuckDB or through a backend that is given."""

    def __init__(
        self, folder: Path, *, create: bool = False, backend: BaseBackend | None = None
    ) -> None:
        self._folder = folder
        self._given = backend
        self._backend = backend or duckdb_backend()
        manifest = folder / MANIFEST
        if not manifest.exists():
            if not create:
                raise StoreError(
                    f"{folder}: no store here; `ettr ingest {folder} FILE...` makes one"
                )
            _make(folder)
        self._parts, self._ingested = read_manifest(folder)

    @property
    def backend(self) -> BaseBackend:
        """The Ibis backend: an embedded DuckDB unless another was given."""
        return self._backend

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    def table(self, name: str) -> ibis.Table:
        """The named table over all its parts."""
        schema = known(name)
        paths = [str(self._folder / part) for part in self._parts.get(name, [])]
        if not paths:
            return _empty(self._backend, schema)
        if self._backend.name == "pyspark":
            session = self._backend._session
            session.read.parquet(*paths).createOrReplaceTempView(name)
            return self._backend.table(name)
        return self._backend.read_parquet(paths, table_name=name)

    def files(self) -> tuple[IngestedFile, ...]:
        """The files ingested so far, in order; read without the engine, before every ingestion."""
        names = list(IngestedFile.__dataclass_fields__)
        rows: list[dict[str, Any]] = []
        for part in self._parts.get(FILES.name, []):
            rows += pq.read_table(self._folder / part, columns=[*names, "ingested"]).to_pylist()
        rows.sort(key=lambda row: int(row["ingested"]))
        return tuple(IngestedFile(**{name: row[name] for name in names}) for row in rows)

    @contextmanager
    def ingestion(self, file_id: str) -> Iterator[Ingestion]:
        """Start to ingest one file; holds the store's lock until the end."""
        with _locked(self._folder):
            self._parts, self._ingested = read_manifest(self._folder)
            _sweep(self._folder, self._parts)
            work = _FolderIngestion(self, file_id)
            try:
                yield work
            except OSError as error:
                raise _cannot_write(self._folder, error) from error
            finally:
                work.close()
                _sweep(self._folder, self._parts)

    def close(self) -> None:
        """Close the backend that this store opened itself."""
        if self._given is None:
            disconnect(self._backend)

    def _replace_parts(self, parts: Parts, ingested: int) -> None:
        _write_manifest(self._folder, parts, ingested)
        self._parts, self._ingested = parts, ingested


class _FolderIngestion(Ingestion):
    """Parts of one file, written as they come, merged with the older parts at the commit."""

    def __init__(self, store: FolderStore, file_id: str) -> None:
        self._store = store
        self._folder = store._folder
        self._file_id = file_id
        self._turn = store._ingested + 1
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._paths: dict[str, Path] = {}
        # one batch is written while the next is read
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def write(self, name: str, rows: pa.Table) -> None:
        checked = known(name).check(rows)
        if not checked.num_rows:
            return
        try:
            if name not in self._writers:
                self._paths[name] = self._part(name, "new")
                self._writers[name] = pq.ParquetWriter(
                    self._paths[name],
                    checked.schema,
                    compression="zstd",
                    use_dictionary=[c for c in checked.column_names if c not in _NEVER_REPEAT],
                )
            self._settle()
            self._writing = self._pool.submit(self._writers[name].write_table, checked)
        except OSError as error:
            raise _cannot_write(self._folder, error) from error

    def commit(self, file_row: dict[str, Any]) -> None:
        row = {**file_row, "file_id": self._file_id, "ingested": self._turn}
        self.write(FILES.name, pa.Table.from_pylist([row], schema=FILES.arrow_schema))
        self._settle()
        self.close()
        parts: Parts = {}
        with _merging() as duck:
            for name, table in TABLES.items():
                old = [self._folder / part for part in self._store._parts.get(name, [])]
                merged = _Merge(duck, table, self._file_id, self._part).run(
                    old, self._paths.get(name)
                )
                parts[name] = [str(path.relative_to(self._folder)) for path in merged]
        for paths in parts.values():
            for part in paths:
                _flush(self._folder / part)
        self._store._replace_parts(parts, self._turn)

    def _settle(self) -> None:
        """Wait for the batch that is being written, and raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Finish the part files; safe to call again."""
        self._pool.shutdown()
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()

    def _part(self, name: str, label: str) -> Path:
        folder = self._folder / "parts" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self._file_id}-{self._turn}-{label}.parquet"


class _Merge:
    """Lets the rows of a new part supersede those of older parts with the same key."""

    def __init__(
        self, duck: Any, table: Table, file_id: str, part: Callable[[str, str], Path]
    ) -> None:
        self._duck, self._table, self._file_id, self._part = duck, table, file_id, part
        self._key = ", ".join(f'"{name}"' for name in table.key)

    def run(self, old: list[Path], new: Path | None) -> list[Path]:
        """Paths that make up the table afterwards."""
        kept = [self._without_file(index, path) for index, path in enumerate(old)]
        if new is None:
            return [path for path in kept if path is not None]
        new = self._one_per_key(new)
        new = self._without_reopened(new, [path for path in kept if path is not None])
        left = [
            path if path is None else self._without_keys(index, path, new)
            for index, path in enumerate(kept)
        ]
        return [path for path in left if path is not None] + ([new] if _n_rows(new) else [])

    def _count(self, path: Path, condition: str) -> int:
        found = self._duck.execute(
            f"SELECT count(*) FROM read_parquet(?) t {condition}",  # noqa: S608
            [str(path)],
        ).fetchall()
        return int(found[0][0])

    def _rewrite(self, query: str, label: str) -> Path:
        target = self._part(self._table.name, label)
        self._duck.execute(
            f"COPY ({query}) TO {_quoted(target)} (FORMAT parquet, COMPRESSION zstd)"
        )
        return target

    def _without_file(self, index: int, path: Path) -> Path | None:
        """Drop what an earlier reading of the same file left."""
        mine = f"WHERE file_id = '{self._file_id}'"
        if "file_id" not in self._table.names or not self._count(path, mine):
            return path
        query = f"SELECT * FROM {_parquet(path)} WHERE file_id <> '{self._file_id}'"  # noqa: S608
        return self._unless_empty(self._rewrite(query, f"refiled{index}"))

    def _one_per_key(self, new: Path) -> Path:
        """Within one file the last of several rows with the same key stands."""
        # Equal keys have equal hashes, and hashes are counted in a third of the time. That two
        # keys share one is rare, and costs only a copy that changes nothing.
        distinct = self._duck.execute(
            f"SELECT count(*), count(DISTINCT hash({self._key})) FROM read_parquet(?)",  # noqa: S608
            [str(new)],
        ).fetchall()[0]
        if distinct[0] == distinct[1]:
            return new
        order = ", ".join(f"{column} {way}" for column, way in newest_first(self._table))
        query = (
            f"SELECT * FROM {_parquet(new)} QUALIFY row_number() OVER "  # noqa: S608
            f"(PARTITION BY {self._key} ORDER BY {order or self._key}) = 1"
        )
        return self._rewrite(query, "distinct")

    def _without_reopened(self, new: Path, old: list[Path]) -> Path:
        """An open row never replaces a closed one."""
        if "end" not in self._table.names or "end" in self._table.key or not old:
            return new
        listed = "[" + ", ".join(_quoted(path) for path in old) + "]"
        closed = (
            f'"end" IS NULL AND ({self._key}) IN (SELECT ({self._key}) '  # noqa: S608
            f'FROM read_parquet({listed}) WHERE "end" IS NOT NULL)'
        )
        if not self._count(new, f"WHERE {closed}"):
            return new
        return self._rewrite(f"SELECT * FROM {_parquet(new)} WHERE NOT ({closed})", "closed")  # noqa: S608

    def _without_keys(self, index: int, path: Path, new: Path) -> Path | None:
        """What is left of an older part once the new part's keys are taken out."""
        same = f"({self._key}) IN (SELECT ({self._key}) FROM {_parquet(new)})"  # noqa: S608
        if not self._count(path, f"WHERE {same}"):
            return path
        query = f"SELECT * FROM {_parquet(path)} WHERE NOT ({same})"  # noqa: S608
        return self._unless_empty(self._rewrite(query, f"left{index}"))

    def _unless_empty(self, path: Path) -> Path | None:
        return path if _n_rows(path) else None


def _n_rows(path: Path) -> int:
    """Rows of a part, from its footer."""
    return int(pq.read_metadata(path).num_rows)


def duckdb_backend() -> DuckDBBackend:
    """An embedded DuckDB whose clock is UTC."""
    backend = ibis.duckdb.connect()
    backend.raw_sql("SET TimeZone = 'UTC'")
    return backend


@contextmanager
def _merging() -> Iterator[Any]:
    import duckdb

    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute("SET preserve_insertion_order = false")
        yield duck


def _empty(backend: BaseBackend, schema: Table) -> ibis.Table:
    if backend.name == "pyspark":
        return backend.create_view(schema.name, no_rows(schema), overwrite=True)
    return no_rows(schema)


def _parquet(path: Path) -> str:
    return f"read_parquet({_quoted(path)})"


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StoreError(
                f"{folder}: holds other files and no {MANIFEST}; give an empty or a new folder"
            )
        _write_manifest(folder, {}, 0)
    except OSError as error:
        raise _cannot_write(folder, error) from error


def read_manifest(folder: Path) -> tuple[Parts, int]:
    """Parts of each table, and how many files were ingested.

    Raises:
        StoreError: the manifest is torn, of another format, or newer than this program.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        if manifest["format"] != STORE_FORMAT:
            raise StoreError(f"{path}: is no {STORE_FORMAT} manifest")
        version = manifest["version"]
        if version > STORE_VERSION:
            raise StoreError(
                f"{folder}: written by a newer ettr (store version {version}, this one reads "
                f"{STORE_VERSION}); upgrade ettr, or ingest the logs into a new store"
            )
        return dict(manifest["parts"]), int(manifest["ingested"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: cannot be read as a store's manifest: {error}") from error


def _write_manifest(folder: Path, parts: Parts, ingested: int) -> None:
    manifest = {
        "format": STORE_FORMAT,
        "version": STORE_VERSION,
        "ingested": ingested,
        "parts": parts,
    }
    draft = folder / f"{MANIFEST}.draft"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)
    _flush(folder)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: Path, parts: Parts) -> None:
    """Remove part files that the manifest does not name."""
    named = {part for paths in parts.values() for part in paths}
    root = folder / "parts"
    for path in root.glob("*/*.parquet") if root.exists() else ():
        if str(path.relative_to(folder)) not in named:
            path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder}: another process is ingesting into this store; try again when it is done"
            ) from None
        yield


def _cannot_write(folder: Path, error: OSError) -> StoreError:
    free_bytes = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    return StoreError(
        f"{folder}: cannot be written: {error.strerror or error} "
        f"({free_bytes / 1e6:.0f} MB free); the store is as it was before"
    )
