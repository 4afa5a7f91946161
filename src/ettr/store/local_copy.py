"""A store of another engine, read into a DuckDB of this process when it is first asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager

import ibis
from ibis.backends import BaseBackend

from ettr.store.base import IngestedFile, Ingestion, Store, disconnect, known, no_rows


def on_duckdb(store: Store) -> Store:
    """The store itself where its engine is DuckDB, else a copy of it."""
    return store if store.backend.name == "duckdb" else LocalCopy(store)


class LocalCopy(Store):
    """The tables of a store, each copied once; the store itself stays its owner's to close."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._backend = ibis.duckdb.connect()
        self._tables: dict[str, ibis.Table] = {}

    @property
    def backend(self) -> BaseBackend:
        """The embedded DuckDB."""
        return self._backend

    @property
    def where(self) -> str:
        """The place of the store."""
        return self._store.where

    def table(self, name: str) -> ibis.Table:
        """The named table, copied when it is first asked for."""
        if name not in self._tables:
            schema = known(name)
            rows = self._store.table(name).to_pyarrow().cast(no_rows(schema).schema().to_pyarrow())
            self._tables[name] = self._backend.create_table(f"copied_{name}", rows, temp=True)
        return self._tables[name]

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
        disconnect(self._backend)

    def check_integrity(self) -> None:
        """Check the store itself."""
        self._store.check_integrity()
