"""Tables of a synthetic cluster as Ibis tables, on an engine whose clock is UTC."""

from __future__ import annotations

import ibis
import pyarrow as pa

from ettr.tables import DERIVED, TABLES


def on_duckdb(tables: dict[str, pa.Table]) -> dict[str, ibis.Table]:
    """All tables by name; those not given are there without rows."""
    backend = ibis.duckdb.connect()
    backend.raw_sql("SET TimeZone = 'UTC'")
    everything = {**TABLES, **DERIVED}
    return {
        name: backend.create_table(name, tables.get(name, schema.empty()))
        for name, schema in everything.items()
    }
