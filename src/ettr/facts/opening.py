"""The facts of a store, before any question is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ettr.errors import UsageError
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred, Facts
from ettr.facts.files import made
from ettr.facts.het_jobs import het_jobs_of
from ettr.facts.naming import naming_of
from ettr.facts.stored import gpuless_of
from ettr.store import Store
from ettr.tables import TABLES
from ettr.tables.columns import Kind
from ettr.tables.event_summaries import EVENT_SUMMARIES


def facts_of_store(store: Store, **given: Any) -> Facts:
    """The facts of a store on DuckDB; `given`: further values that facts take."""
    duck = store.connection
    if duck is None:
        raise UsageError(f"{store.where}: facts are made on a DuckDB; read it through on_duckdb")
    logs = {
        "small": frozenset(name for name in TABLES if store.is_small(name)),
        "sources": store.source,
        "kept_summary": cache(lambda name: store.summary(EVENT_SUMMARIES[name])),
        "files": Deferred(lambda _: store.part_files()),
        "naming": Deferred(naming_of),
        "gpuless": Deferred(gpuless_of),
        "gpus_per_node": None,
        "het_jobs": Deferred(het_jobs_of),
    }
    return Facts(Duck(duck), logs | given, {})


def _raw(name: str) -> Callable[[Facts], str]:
    """A stored table, its times as microseconds."""
    columns = ", ".join(
        f'epoch_us("{column.name}") AS "{column.name}_us"'
        if column.kind is Kind.TIME
        else f'"{column.name}"'
        for column in TABLES[name]
    )

    def make(facts: Facts) -> str:
        source = facts.given("sources")(name)
        return facts.keep(f"raw_{name}", f"SELECT {columns} FROM {source}", view=True)

    return make


for _table in TABLES:
    made(f"raw_{_table}", (), takes=("sources",))(_raw(_table))
