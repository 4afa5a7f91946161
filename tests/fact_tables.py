"""Facts over tables that a test makes itself, on a DuckDB of its own."""

from __future__ import annotations

import ibis
import pyarrow as pa

import ettr.analysis.given_facts  # noqa: F401  # names the stored tables
from ettr.facts import Facts
from ettr.facts.duck import Duck
from ettr.metrics.selected import SelectedJobs
from synthetic.tables import on_duckdb


def facts_of(tables: dict[str, pa.Table | ibis.Table] | None = None, **given: object) -> Facts:
    """Facts of stored tables by name; those that are left out have no rows.

    All attempts are chosen. `given`: values that facts take, for example `all_listed` or `jobs`.

    Args:
        tables: rows in the tables' schemas; Ibis tables are all of one backend.
    """
    rows = tables or {}
    made = {name: table for name, table in rows.items() if isinstance(table, pa.Table)}
    there = on_duckdb(made) | {name: rows[name] for name in rows.keys() - made.keys()}
    named = there["attempts"]
    backend = named.get_backend()
    values = {
        "backend": backend,
        "tables": there,
        "parts": there,
        "jobs": SelectedJobs(named, there["allocations"]),
        "accounted_rows": named,
        "all_listed": False,
    }
    return Facts(Duck(backend.con), values | given, {})
