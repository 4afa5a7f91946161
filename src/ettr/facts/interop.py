"""The bridge while the analysis moves from Ibis expressions to facts; it goes when nothing uses it.

Facts read what Ibis still makes (`give`), and Ibis reads facts (`as_ibis`).
"""

from __future__ import annotations

from itertools import count

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
from ibis.expr.types import Table

from ettr.facts.facts import Facts
from ettr.tables.materialize import as_view

_NUMBER = count()


def give(facts: Facts, name: str, some: Table) -> str:
    """Name an Ibis expression in the engine as facts read it: times as `*_us`; returns the name."""
    source = _source(facts, some)
    columns = [
        f'epoch_us("{column}") AS "{column}_us"' if kind.is_timestamp() else f'"{column}"'
        for column, kind in some.schema().items()
    ]
    physical = f"given_{name}_{next(_NUMBER)}"
    facts.engine.create(physical, f"SELECT {', '.join(columns)} FROM {source}", {}, view=True)
    return physical


def as_ibis(facts: Facts, name: str, *, only: tuple[str, ...] = ()) -> Table:
    """A fact as an Ibis table: `*_us` as timestamps under their stored names."""
    physical = facts.table(name)
    kinds = facts.engine.run(f"DESCRIBE {physical}").fetchall()
    columns = [
        f'make_timestamptz("{column}") AS "{column[:-3]}"'
        if column.endswith("_us")
        else f'"{column}"'
        for column, *_ in kinds
        if not only or column.removesuffix("_us") in only
    ]
    view = f"ibis_{physical}_{next(_NUMBER)}"
    facts.engine.create(view, f"SELECT {', '.join(columns)} FROM {physical}", {}, view=True)
    schema = {}
    for column, kind, *_ in facts.engine.run(f"DESCRIBE {view}").fetchall():
        schema[column] = _KINDS[kind]
    place = ops.Namespace(catalog="temp", database="main")
    return ops.DatabaseTable(
        view, schema=ibis.schema(schema), source=facts.given("backend"), namespace=place
    ).to_expr()


_KINDS: dict[str, dt.DataType] = {
    "VARCHAR": dt.string,
    "BIGINT": dt.int64,
    "INTEGER": dt.int64,
    "HUGEINT": dt.int64,
    "DOUBLE": dt.float64,
    "BOOLEAN": dt.boolean,
    "TIMESTAMP WITH TIME ZONE": dt.Timestamp("UTC", 6),
    "VARCHAR[]": dt.Array(dt.string),
}


def _source(facts: Facts, some: Table) -> str:
    named = as_view(some)
    op = named.op()
    if isinstance(op, ops.DatabaseTable):
        place = ".".join(
            f'"{part}"' for part in (op.namespace.catalog, op.namespace.database, op.name) if part
        )
        facts.engine.keep_alive(named)
        return place
    # nothing but tables in memory
    name = f"given_rows_{next(_NUMBER)}"
    rows = some.to_pyarrow()
    facts.engine.connection.register("given_rows", rows)
    facts.engine.run(f"CREATE TEMP TABLE {name} AS SELECT * FROM given_rows")
    facts.engine.connection.unregister("given_rows")
    return name
