"""Tables in the middle that others build on: small ones computed once, large ones named once."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

import duckdb
import ibis
import ibis.expr.operations as ops
from ibis.expr.types import Table

if TYPE_CHECKING:
    from ibis.backends.duckdb import Backend


def materialize(some: Table) -> Table:
    """The same rows, computed once and kept as long as the result is referred to.

    An expression on nothing but tables in memory (a log that was never ingested) becomes another
    table in memory: to keep it on a backend would bind it to one that is not the others'. Left as
    it is, it would be translated again within every query that refers to it.
    """
    physical = some.op().find(ops.PhysicalTable)
    if all(isinstance(table, ops.InMemoryTable) for table in physical):
        return ibis.memtable(some.to_pyarrow(), schema=some.schema())
    bound = some.op().find(ops.DatabaseTable)
    if bound and all(table.source.name == "duckdb" for table in bound):
        return _temporary_table(some, bound[0].source)
    if any(getattr(table, "source", None) and table.source.name != "duckdb" for table in physical):
        some.limit(0).to_pyarrow()  # on Spark only an execution makes tables in memory known
    return some.cache()


def _temporary_table(some: Table, backend: Backend) -> Table:
    """The same rows as a temporary table of DuckDB, dropped with the last reference to it.

    Ibis's own `cache` asks three more questions of the engine for each table, which for a small
    store takes as long as the rest of it.
    """
    backend._run_pre_execute_hooks(some)  # makes tables in memory known, as every execution does
    name, schema = ibis.util.gen_name("kept"), some.schema()
    columns = schema.to_sqlglot_column_defs(backend.dialect)
    typed = ", ".join(column.sql(backend.dialect) for column in columns)
    backend.raw_sql(f'CREATE TEMP TABLE "{name}" ({typed})')
    backend.raw_sql(f'INSERT INTO "{name}" {backend.compile(some)}')
    kept = _in_temporary(name, schema, backend)
    weakref.finalize(kept, _drop, backend.con, name).atexit = False
    return kept.to_expr()


def _in_temporary(name: str, schema: ibis.Schema, backend: Backend) -> ops.DatabaseTable:
    place = ops.Namespace(catalog="temp", database="main")
    return ops.DatabaseTable(name, schema=schema, source=backend, namespace=place)


def _drop(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a temporary table, unless it went with its connection."""
    with contextlib.suppress(duckdb.ConnectionException):
        connection.execute(f'DROP TABLE "{name}"')


def as_view(some: Table) -> Table:
    """The same rows as a view of DuckDB, so that what builds on them is short.

    Ibis translates an expression again within every query that refers to it, which for a deep one
    over wide tables takes longer than the engine needs for a small store. The view computes
    nothing. What it refers to is kept as long as the result is referred to.

    On other engines, and of nothing but tables in memory, it is the expression itself.
    """
    bound = some.op().find(ops.DatabaseTable)
    if not bound or any(one.source.name != "duckdb" for one in bound):
        return some
    backend, name = bound[0].source, ibis.util.gen_name("view")
    backend._run_pre_execute_hooks(some)  # makes tables in memory known, as every execution does
    backend.raw_sql(f'CREATE TEMP VIEW "{name}" AS {backend.compile(some)}')
    view = _in_temporary(name, some.schema(), backend)
    weakref.finalize(view, _release, some).atexit = False
    return view.to_expr()


def _release(_: Table) -> None:
    """Nothing is left to do once what a view referred to is let go of."""
