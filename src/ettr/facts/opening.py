"""The facts of a store, before any question is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred, Facts
from ettr.facts.files import made
from ettr.facts.het_jobs import het_jobs_of
from ettr.facts.interop import give
from ettr.facts.naming import naming_of
from ettr.facts.stored import gpuless_of
from ettr.store import Store
from ettr.tables import TABLES


def facts_of_store(store: Store, **given: Any) -> Facts:
    """The facts of a store on DuckDB; `given`: further values that facts take."""
    logs = {
        "backend": store.backend,
        "small": frozenset(name for name in TABLES if store.is_small(name)),
        "sources": store.table,
        "files": Deferred(lambda _: store.part_files()),
        "naming": Deferred(naming_of),
        "gpuless": Deferred(gpuless_of),
        "gpus_per_node": None,
        "het_jobs": Deferred(het_jobs_of),
    }
    return Facts(Duck(store.backend.con), logs | given, {})


def _raw(name: str) -> Callable[[Facts], str]:
    return lambda facts: give(facts, f"raw_{name}", facts.given("sources")(name))


for _table in TABLES:
    made(f"raw_{_table}", (), takes=("sources",))(_raw(_table))
