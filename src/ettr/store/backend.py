"""A store in a database: a DuckDB file, or the PostgreSQL that a site already has.

A file's rows replace those with the same keys, in one transaction over all tables: a process that
is killed leaves the store as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ettr.errors import StoreError
from ettr.store.base import Ingestion, Store, known, no_rows_of, with_every_column
from ettr.store.computing import Computing, with_arrow
from ettr.store.engines import Engine
from ettr.store.merging import keeping_columns, merging_engine, one_per_key, same_key, standing
from ettr.tables import FILES, TABLES, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class BackendStore(Store):
    """Tables of a database, under their own names."""

    def __init__(self, engine: Engine, computing: Computing | None = None) -> None:
        self._engine = engine
        self.computing = computing or Computing()
        self._sources: dict[str, str] = {}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection | None:
        """The database itself where it is a DuckDB file."""
        return self._engine.connection

    @property
    def where(self) -> str:
        """The file or URL, without a password."""
        return self._engine.where

    @property
    def file_mode(self) -> int:
        """Permissions of a file; a server's tables are the owner's."""
        place = Path(self.where)
        return 0o600 | (place.stat().st_mode & 0o044 if place.is_file() else 0)

    def source(self, name: str) -> str:
        """The named table of a DuckDB file, as a view with every column."""
        duck = self.connection
        schema = known(name)
        if duck is None:
            return super().source(name)
        if name not in self._sources:
            there = self._stored(schema)
            columns, place = there or {}, self._engine.place(name)
            rows = f"{place}" if there is not None else "(SELECT 1) one"
            nothing = "" if there is not None else " WHERE FALSE"
            sql = with_every_column(schema, columns, rows) + nothing
            duck.execute(f"CREATE OR REPLACE TEMP VIEW stored_{name} AS {sql}")
            self._sources[name] = f'"temp"."main"."stored_{name}"'
        return self._sources[name]

    def rows(self, name: str) -> pa.Table:
        """All rows of the named table."""
        import pyarrow as pa

        schema = known(name)
        there = self._stored(schema)
        if there is None:
            return no_rows_of(schema)
        names = [column.name for column in schema if column.name in there]
        found = self._engine.rows(name, names)
        for place, column in enumerate(schema):
            if column.name not in there:
                nulls = pa.nulls(found.num_rows, column.kind.arrow)
                found = found.add_column(place, column.name, nulls)
        return found.select(list(schema.names)).cast(no_rows_of(schema).schema)

    def _stored(self, table: Table) -> dict[str, bool] | None:
        """Columns of the table of that name, and which may be null; None where there is none."""
        stored = self._engine.columns(table.name)
        if stored is None:
            return None
        missing = [column.name for column in table.absent(stored) if not column.nullable]
        if missing:
            raise StoreError(
                f"{self.where}: ettr did not make its table `{table.name}` (no column "
                f"{', '.join(missing)}); give ettr a database, or a schema, of its own"
            )
        return stored

    @contextmanager
    def ingestion(self, file_id: str) -> Iterator[Ingestion]:
        """Start to ingest one file; no other process can until the end."""
        with self._engine.writing():
            self._sources.clear()  # a file that was open to read has another connection now
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
        import pyarrow as pa
        import pyarrow.compute as pc

        refusals: tuple[type[Exception], ...] = (OSError, *self._engine.errors)
        try:
            with self._engine.transaction():
                for name, table in TABLES.items():
                    if name != FILES.name:
                        self._merge(table, file_id, rows.get(name, table.empty()))
                latest = pc.max(self.rows(FILES.name)["ingested"]).as_py()
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
        import pyarrow as pa
        import pyarrow.compute as pc

        name = table.name
        stored = self._stored(table)
        if stored is None:
            if not rows.num_rows:
                return
            self._engine.make(table)
            stored = {column.name: column.nullable for column in table}
        old = self.rows(name)
        if rows.num_rows and old.num_rows:
            query = standing(table, "new_rows", "old_rows", file_id)
            rows = _by_engine(table, query, new_rows=rows, old_rows=old)
        left = old
        if "file_id" in table.names:
            left = old.filter(pc.not_equal(old["file_id"], file_id))
        if rows.num_rows:
            query = _WITHOUT.format(same=same_key(table))
            left = _by_engine(table, query, old_rows=left, new_rows=rows)
        if not _takes_all_rows(table, stored) or left.num_rows < old.num_rows:
            parts = [some.cast(table.arrow_schema) for some in (left, rows)]
            self._engine.replace(table, pa.concat_tables(parts))
        elif rows.num_rows:
            self._engine.append(table, rows)


_WITHOUT = "SELECT * FROM old_rows old WHERE NOT EXISTS (SELECT 1 FROM new_rows new WHERE {same})"


def _takes_all_rows(table: Table, stored: Mapping[str, bool]) -> bool:
    """Whether a table has every column, and takes null wherever ours may be null."""
    return not table.absent(stored) and all(
        stored[column.name] for column in table if column.nullable
    )


class _BackendIngestion(Ingestion):
    """Rows of one file, held until the commit."""

    def __init__(self, store: BackendStore, file_id: str) -> None:
        self._store, self._file_id = store, file_id
        self._rows: dict[str, list[pa.Table]] = {}

    def write(self, name: str, rows: pa.Table) -> None:
        self._rows.setdefault(name, []).append(known(name).check(rows))

    def commit(self, file_row: dict[str, Any], distinct: Collection[str] = ()) -> None:
        import pyarrow as pa

        rows = {name: pa.concat_tables(parts) for name, parts in self._rows.items()}
        for name in rows.keys() - set(distinct):
            rows[name] = _last_per_key(TABLES[name], rows[name])
        self._store.commit(self._file_id, rows, file_row)


def _last_per_key(table: Table, rows: pa.Table) -> pa.Table:
    """Within one file the last of several rows with the same key stands, a closed one first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    key, n_rows = list(table.key), rows.num_rows
    places = pa.array(range(n_rows), pa.int64())
    if "end" in table.names and "end" not in table.key:
        closed = pc.cast(pc.is_valid(rows.column("end")), pa.int64())
        places = pc.add(places, pc.multiply(closed, n_rows))
    placed = rows.select(key).append_column("place", places)
    # one thread takes half the CPU seconds, and never waits for another, which may not start
    found = (
        placed.group_by(key, use_threads=False).aggregate([("place", "max")]).column("place_max")
    )
    if len(found) == n_rows:
        return rows
    if keeping_columns(table):
        return _by_engine(table, one_per_key(table, "new_rows"), new_rows=rows)
    # places beyond the last are those of closed rows
    kept = pc.if_else(pc.less(found, n_rows), found, pc.subtract(found, n_rows))
    return rows.take(kept.take(pc.sort_indices(kept)))


def _by_engine(table: Table, query: str, **relations: pa.Table) -> pa.Table:
    """Rows that a query of the merging engine makes of some tables in memory."""
    with with_arrow(merging_engine()) as duck:
        for name, rows in relations.items():
            duck.register(name, rows)
        made: pa.Table = duck.sql(query).to_arrow_table()
        return made.cast(table.arrow_schema)
