"""A store of another engine, read into a DuckDB of this process when it is first asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pyarrow as pa

from ettr.store.base import IngestedFile, Ingestion, Store, known
from ettr.store.folder import embedded_duckdb

if TYPE_CHECKING:
    import duckdb


def on_duckdb(store: Store) -> Store:
    """The store itself where its engine is DuckDB, else a copy of it."""
    return LocalCopy(store) if store.connection is None else store


class LocalCopy(Store):
    """The tables of a store, each copied once; the store itself stays its owner's to close."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._duck = embedded_duckdb()
        self._sources: dict[str, str] = {}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The embedded DuckDB."""
        return self._duck

    @property
    def where(self) -> str:
        """The place of the store."""
        return self._store.where

    def source(self, name: str) -> str:
        """The named table, copied when it is first asked for."""
        if name not in self._sources:
            self._duck.register("copied_rows", self.rows(name))
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
