"""A store in a database: a DuckDB file, or the PostgreSQL that a site already has.

A file's rows replace those with the same keys, in one transaction over all tables: a process that
is killed leaves the store as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc
from ibis.backends import BaseBackend
from ibis.common.exceptions import TableNotFound

from ettr.errors import StoreError
from ettr.store.base import Ingestion, Store, known, no_rows, with_every_column
from ettr.store.engines import Engine
from ettr.store.keeping import Filling, keeping_columns, one_per_key
from ettr.store.merging import merging_engine, same_key
from ettr.tables import FILES, TABLES, Table


class BackendStore(Store):
    """Tables on an Ibis backend, under their own names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def backend(self) -> BaseBackend:
        """The Ibis backend."""
        return self._engine.backend

    @property
    def where(self) -> str:
        """The file or URL, without a password."""
        return self._engine.where

    def table(self, name: str) -> ibis.Table:
        """The named table."""
        schema = known(name)
        there = self._stored(schema)
        return no_rows(schema) if there is None else with_every_column(schema, _nullable(there))

    def _stored(self, table: Table) -> ibis.Table | None:
        """The table of that name; None where there is none.

        Raises:
            StoreError: it is not ours.
        """
        try:
            stored = self.backend.table(table.name)
        except TableNotFound:
            return None
        missing = [column.name for column in table.absent(stored.columns) if not column.nullable]
        if missing:
            raise StoreError(
                f"{self.where}: has a table `{table.name}` that ettr did not make (no column "
                f"{', '.join(missing)}); give a database, or a schema, of its own"
            )
        return stored

    @contextmanager
    def ingestion(self, file_id: str) -> Iterator[Ingestion]:
        """Start to ingest one file; no other process can until the end."""
        with self._engine.writing():
            for table in TABLES.values():
                self._stored(table)
            yield _BackendIngestion(self, file_id)

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()

    def check_integrity(self) -> None:
        """Read all that is stored, where the engine can separate damage from a bug."""
        self._engine.check_integrity()

    def commit(self, file_id: str, rows: Mapping[str, pa.Table], file_row: dict[str, Any]) -> None:
        """Let the rows of a file replace those with the same keys, in one transaction.

        Raises:
            StoreError: they cannot be written; the store is as it was.
        """
        refusals: tuple[type[Exception], ...] = (OSError, *self._engine.errors)
        try:
            with self._engine.transaction():
                for name, table in TABLES.items():
                    if name != FILES.name:
                        self._merge(table, file_id, rows.get(name, table.empty()))
                latest = self.table(FILES.name)["ingested"].max().to_pyarrow().as_py()
                row = {**file_row, "file_id": file_id, "ingested": (latest or 0) + 1}
                only = pa.Table.from_pylist([row], schema=FILES.arrow_schema)
                self._merge(FILES, file_id, only)
        except refusals as error:
            self.check_integrity()
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise StoreError(
                f"{self.where}: cannot be written: {first}; the store is as it was before"
            ) from error

    def _merge(self, table: Table, file_id: str, rows: pa.Table) -> None:
        """Let `rows` replace rows with the same keys, and whatever else `file_id` had left."""
        name = table.name
        stored = self._stored(table)
        if stored is None:
            if not rows.num_rows:
                return
            stored = self.backend.create_table(name, schema=ibis.schema(table.arrow_schema))
        old = with_every_column(table, stored)
        new = ibis.memtable(rows)
        untaken = rows.slice(0, 0)
        if "end" in table.names and "end" not in table.key:
            open_rows = new.filter(new["end"].isnull())
            ahead = _is_ahead(table, old, open_rows)
            reopened = open_rows.semi_join(old, [*_same_key(table, open_rows, old), ahead])
            given = rows.num_rows
            taken = new.anti_join(reopened, _same_key(table, new, reopened)).to_pyarrow()
            if taken.num_rows < given:
                untaken = reopened.to_pyarrow()
            rows = taken.select(list(table.names))
            new = ibis.memtable(rows)
        left = old.anti_join(new, _same_key(table, old, new)).select(table.names)
        if "file_id" in table.names:
            left = left.filter(left["file_id"] != file_id)
        kept = left.to_pyarrow().cast(table.arrow_schema)
        is_current = _takes_all_rows(table, stored)
        is_smaller = kept.num_rows < old.count().to_pyarrow().as_py()
        if is_smaller and keeping_columns(table):
            replaced = old.semi_join(new, _same_key(table, old, new)).select(table.names)
            rows = _filled(table, rows, replaced.to_pyarrow())
        if untaken.num_rows:
            # an open row that is not taken may still know what the closed one does not
            kept = _filled(table, kept, untaken)
        if not is_current or is_smaller or untaken.num_rows:
            merged = pa.concat_tables([kept, rows.cast(table.arrow_schema)])
            self._engine.replace(name, merged)
        elif rows.num_rows:
            self.backend.insert(name, rows)


def _is_ahead(table: Table, old: ibis.Table, new: ibis.Table) -> ibis.Expr:
    """That an old row is closed, or that of a job that had run for longer."""
    ahead = old["end"].notnull()
    if "elapsed_s" in table.names:
        ahead = ahead | (old["elapsed_s"] > new["elapsed_s"].fill_null(-1.0))
    return ahead


def _same_key(table: Table, one: ibis.Table, other: ibis.Table) -> list[ibis.Expr]:
    """That two rows have the same key, in which null equals null."""
    may_be_null = {column.name for column in table if column.nullable}
    return [
        one[name].identical_to(other[name]) if name in may_be_null else one[name] == other[name]
        for name in table.key
    ]


def _nullable(stored: ibis.Table) -> ibis.Table:
    """The same table with columns typed as those of a folder's parts, of which all may be null.

    Else Ibis refuses to unite one with rows that a query or a memory table gives.
    """
    kept = stored.op()
    schema = ibis.schema({name: kind.copy(nullable=True) for name, kind in kept.schema.items()})
    table: ibis.Table = kept.copy(schema=schema).to_expr()
    return table


def _takes_all_rows(table: Table, stored: ibis.Table) -> bool:
    """Whether a table on the backend has every column, and takes null wherever ours may be null.

    One that an older ettr made may not, and is made again with the rows that it had.
    """
    there = stored.schema()
    return not table.absent(stored.columns) and all(
        there[column.name].nullable for column in table if column.nullable
    )


class _BackendIngestion(Ingestion):
    """Rows of one file, held until the commit."""

    def __init__(self, store: BackendStore, file_id: str) -> None:
        self._store, self._file_id = store, file_id
        self._rows: dict[str, list[pa.Table]] = {}

    def write(self, name: str, rows: pa.Table) -> None:
        self._rows.setdefault(name, []).append(known(name).check(rows))

    def commit(self, file_row: dict[str, Any]) -> None:
        rows = {
            name: _last_per_key(TABLES[name], pa.concat_tables(parts))
            for name, parts in self._rows.items()
        }
        self._store.commit(self._file_id, rows, file_row)


def _last_per_key(table: Table, rows: pa.Table) -> pa.Table:
    """Within one file the last of several rows with the same key stands, a closed one first."""
    key, n_rows = list(table.key), rows.num_rows
    places = pa.array(range(n_rows), pa.int64())
    if "end" in table.names and "end" not in table.key:
        closed = pc.cast(pc.is_valid(rows.column("end")), pa.int64())
        places = pc.add(places, pc.multiply(closed, n_rows))
    last = rows.select(key).append_column("place", places).group_by(key)
    found = last.aggregate([("place", "max")]).column("place_max")
    if len(found) == n_rows:
        return rows
    if keeping_columns(table):
        return _by_engine(table, one_per_key(table, "new_rows"), new_rows=rows)
    # places beyond the last are those of closed rows
    kept = pc.if_else(pc.less(found, n_rows), found, pc.subtract(found, n_rows))
    return rows.take(kept.take(pc.sort_indices(kept)))


def _filled(table: Table, rows: pa.Table, givers: pa.Table) -> pa.Table:
    """The rows, with what others of the same key know and they do not."""
    filling = Filling(table, same_key(table), "new_rows", table.names, "old_rows", table.names)
    return _by_engine(table, filling.query, new_rows=rows, old_rows=givers)


def _by_engine(table: Table, query: str, **relations: pa.Table) -> pa.Table:
    """Rows that a query of the merging engine makes of some tables in memory."""
    with merging_engine() as duck:
        for name, rows in relations.items():
            duck.register(name, rows)
        made: pa.Table = duck.sql(query).to_arrow_table()
        return made.cast(table.arrow_schema)
