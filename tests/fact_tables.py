"""Facts over tables that a test makes itself, on a DuckDB of its own."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow as pa

import ettr.analysis.given_facts  # noqa: F401  # names the stored tables
from ettr.facts import Facts
from ettr.facts.chosen import microseconds
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred
from ettr.facts.het_jobs import het_jobs_of
from ettr.facts.naming import naming_of
from ettr.facts.stored import gpuless_of
from ettr.selection import Selection
from synthetic.tables import on_duckdb


class _AsStored(dict[str, Any]):
    """Tables that no rule of the analysis has changed."""

    def is_as_stored(self, name: str) -> bool:
        return True


def facts_of(tables: dict[str, pa.Table | ibis.Table] | None = None, **given: Any) -> Facts:
    """Facts of stored tables by name; those that are left out have no rows.

    `given`: values that facts take, such as `selection` (everything without it), `logs_end_us`, or
    `all_listed`.

    Args:
        tables: rows in the tables' schemas; those of Ibis are copied.
    """
    rows = {
        name: table if isinstance(table, pa.Table) else table.to_pyarrow()
        for name, table in (tables or {}).items()
    }
    there = on_duckdb(rows)
    backend = there["attempts"].get_backend()
    selection = given.get("selection", Selection())
    values = {
        "backend": backend,
        "small": frozenset(there),
        "sources": there.__getitem__,
        "tables": _AsStored(there),
        "naming": Deferred(naming_of),
        "gpuless": (),
        "gpus_per_node": None,
        "het_jobs": Deferred(het_jobs_of),
        "selection": selection,
        "since_us": microseconds(selection.since),
        "until_us": microseconds(selection.until),
        "logs_end_us": 0,
        "all_listed": False,
    }
    return Facts(Duck(backend.con), values | given, {})


def with_rules(tables: dict[str, pa.Table | ibis.Table], **given: Any) -> Facts:
    """The same under all rules of stored tables, such as GPUs that were not accounted."""
    return facts_of(tables, **{"gpuless": Deferred(gpuless_of)} | given)
