"""Facts over tables that a test makes itself, in a database of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from ettr.analysis.assumptions import Assumptions
from ettr.analysis.given_facts import attribution_values  # also names the stored tables
from ettr.defaults import LARGE_JOB_GPUS
from ettr.facts import Facts
from ettr.facts.chosen import microseconds
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred
from ettr.facts.het_jobs import het_jobs_of
from ettr.facts.naming import naming_of
from ettr.facts.stored import gpuless_of
from ettr.selection import Selection
from ettr.tables import DERIVED, TABLES
from ettr.taxonomy import load_taxonomy
from held_engines import database

_KINDS = (
    'SELECT "check", code, severity, count(*) AS events FROM {} GROUP BY "check", code, severity'
)
Rows = dict[str, pa.Table]


def facts_of(tables: Rows | None = None, **given: Any) -> Facts:
    """Facts of stored tables by name; those that are left out have no rows.

    `given`: values that facts take, such as `selection` (everything without it), `logs_end_us`, or
    `all_listed`.

    Args:
        tables: rows in the tables' schemas.
    """
    rows = dict(tables or {})
    engine, catalog = database()
    engine.execute("SET TimeZone = 'UTC'")

    @cache
    def place(name: str) -> str:
        given_rows = rows[name] if name in rows else TABLES[name].empty()
        engine.register("given_rows", given_rows)
        held = f'{catalog}."main"."{name}"'
        engine.execute(f"CREATE TABLE {held} AS FROM given_rows")
        engine.unregister("given_rows")
        return held

    for name in rows:
        place(name)
    selection = given.get("selection", Selection())
    values = {
        "small": frozenset(TABLES),
        "sources": place,
        "naming": Deferred(naming_of),
        "gpuless": (),
        "gpus_per_node": None,
        "het_jobs": Deferred(het_jobs_of),
        "selection": selection,
        "since_us": microseconds(selection.since),
        "until_us": microseconds(selection.until),
        "logs_end_us": 0,
        "all_listed": False,
        "kept_summary": _nothing_kept,
        "every_cluster": not selection.cluster,
        "of_record": False,
        "runs_may_split": selection.may_split_runs,
        "above_gpus": LARGE_JOB_GPUS,
        "tolerance_us": 600_000_000,
    }
    facts = Facts(Duck(engine), values | given, {})
    for name in DERIVED:
        # others are made from the logs where a test gives none
        if name in rows:
            facts.store(name, facts.keep(name, _narrow(rows[name], place(name)), view=True))
    if "failures" in rows:
        facts.store("all_failures", facts.table("failures"))
    return facts


def put(facts: Facts, name: str, rows: pa.Table) -> None:
    """Let some rows stand under the name of a fact, their times as microseconds."""
    assert isinstance(facts.engine, Duck)
    facts.engine.run("DROP TABLE IF EXISTS put_rows")
    facts.engine.put_arrow("put_rows", rows)
    facts.store(name, facts.keep(name, _narrow(rows, "put_rows"), view=False))


def _narrow(rows: pa.Table, place: str) -> str:
    """A SELECT of rows as facts have them: times as microseconds."""
    columns = ", ".join(
        f'epoch_us("{column.name}") AS "{column.name}_us"'
        if pa.types.is_timestamp(column.type)
        else f'"{column.name}"'
        for column in rows.schema
    )
    return f"SELECT {columns} FROM {place}"  # noqa: S608 - names of ours


def _nothing_kept(_: str) -> None:
    """A store that keeps no summaries of its events."""


def with_rules(tables: Rows, **given: Any) -> Facts:
    """The same under all rules of stored tables, such as GPUs that were not accounted."""
    return facts_of(tables, **{"gpuless": Deferred(gpuless_of)} | given)


def attributed(tables: Rows, assumed: Assumptions | None = None, **given: Any) -> Facts:
    """The same with what attribution takes: the package's own taxonomy, and rules."""
    assumed = assumed or Assumptions()
    values = {"assumptions": assumed, "taxonomy": load_taxonomy(), **attribution_values(assumed)}
    facts = facts_of(tables, **values | given)
    kinds = facts.keep("event_kinds", _KINDS.format(facts.table("events")), view=False)
    return facts.over(event_kinds=kinds)
