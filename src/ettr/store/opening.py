"""A store from what the user typed, and a local copy of one on another engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ettr.errors import StoreError, UsageError
from ettr.store.base import IngestedFile, Ingestion, Store, known
from ettr.store.computing import Computing, with_arrow
from ettr.store.folder import embedded_duckdb
from ettr.store.layout import Access

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_DUCKDB_ENDINGS = (".duckdb", ".ddb")


def open_store(
    where: str | Path,
    *,
    create: bool = False,
    readable_by: Access | None = None,
    computing: Computing | None = None,
) -> Store:
    """Open the store at `where`.

    Args:
        where: a folder, a DuckDB file (its name ends in .duckdb or .ddb where it is to be made),
            or the URL of a prefix in object storage or of a PostgreSQL database.
        computing: the engine that answers questions, and its memory; DuckDB if None.
        readable_by: who may read its files; the owner of a new store, and of one that exists whom
            it had, if None.

    Raises:
        StoreError: it is not there, is something else, or its name is one of MotherDuck's.
        UsageError: `readable_by` is given for a database server.
    """
    from ettr.store.backend import BackendStore
    from ettr.store.engines import MOTHERDUCK, DuckDBFile, is_duckdb, no_motherduck, open_url
    from ettr.store.folder import FolderStore

    text, computing = str(where), computing or Computing()
    if "\0" in text:
        raise StoreError(f"{text!r}: no path or URL has a zero character in it")
    if "://" in text:
        from ettr.object_storage import SCHEMES

        if text.partition("://")[0] in SCHEMES:
            from ettr.store.bucket import BucketStore

            if readable_by is not None:
                raise UsageError(
                    "--readable-by is for files; in object storage grant the rights there"
                )
            return BucketStore(text, create=create, computing=computing)
        return BackendStore(
            open_url(text, create=create, readable_by=readable_by, computing=computing), computing
        )
    if text.startswith(MOTHERDUCK):
        raise no_motherduck(text)
    path = Path(text)
    if path.suffix in _DUCKDB_ENDINGS or is_duckdb(path):
        engine = DuckDBFile(
            path.absolute(), text, create=create, readable_by=readable_by, computing=computing
        )
        return BackendStore(engine, computing)
    if path.is_file():
        raise StoreError(
            f"{path}: is a file, not a store; give a folder, or a name that ends in .duckdb "
            f"(`ettr ingest STORE {path}` reads a log into one)"
        )
    return FolderStore(path, create=create, readable_by=readable_by, computing=computing)


def is_store(where: str) -> bool:
    """Whether `where` names a store rather than a file to read."""
    from ettr.store.engines import MOTHERDUCK, is_duckdb

    path = Path(where)
    if "://" in where or where.startswith(MOTHERDUCK):
        return True
    return path.suffix in _DUCKDB_ENDINGS or path.is_dir() or is_duckdb(path)


# -- A store of another engine, read into a DuckDB of this process when it is first asked for -----


def on_duckdb(store: Store) -> Store:
    """The store itself where its engine is DuckDB, else a copy of it."""
    return LocalCopy(store) if store.connection is None else store


class LocalCopy(Store):
    """The tables of a store, each copied once; the store itself stays its owner's to close."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.computing = store.computing
        self._duck = embedded_duckdb(store.computing)
        self._sources: dict[str, str] = {}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The embedded DuckDB."""
        return self._duck

    @property
    def where(self) -> str:
        """The place of the store."""
        return self._store.where

    @property
    def file_mode(self) -> int:
        """As of the store."""
        return self._store.file_mode

    def source(self, name: str) -> str:
        """The named table, copied when it is first asked for."""
        if name not in self._sources:
            with_arrow(self._duck).register("copied_rows", self.rows(name))
            self._duck.execute(f"CREATE TEMP TABLE copied_{known(name).name} AS FROM copied_rows")
            self._duck.unregister("copied_rows")
            self._sources[name] = f'"temp"."main"."copied_{name}"'
        return self._sources[name]

    def rows(self, name: str) -> pa.Table:
        """All rows of the named table."""
        return self._store.rows(name)

    def is_small(self, name: str) -> bool:
        """True: what was copied is held in memory."""
        return True

    def ingestion(self, file_id: str) -> AbstractContextManager[Ingestion]:
        """Start to ingest into the store itself."""
        return self._store.ingestion(file_id)

    def files(self) -> tuple[IngestedFile, ...]:
        """The files of the store."""
        return self._store.files()

    def close(self) -> None:
        """Drop the copy."""
        self._duck.close()

    def check_integrity(self) -> None:
        """Check the store itself."""
        self._store.check_integrity()
