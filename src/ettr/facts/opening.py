"""The facts of a store as it is opened, and its tables under their own names."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ettr.errors import UsageError
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred, Facts
from ettr.facts.files import FactEngine, made
from ettr.facts.het_jobs import PARTS_HELD_S, het_jobs_of
from ettr.facts.naming import naming_of
from ettr.facts.stored import gpuless_of, kept, narrow_columns, raw_sql, selected
from ettr.store import Store
from ettr.store.computing import DUCKDB
from ettr.tables import NODE_STATES, TABLES
from ettr.tables.schemas import EVENT_SUMMARIES


def facts_of_store(store: Store, **given: Any) -> Facts:
    """The facts of a store on its engine; `given`: further values that facts take."""
    engine: FactEngine
    if store.computing.engine != DUCKDB:
        from ettr.facts.spark import spark_of

        engine, sources = spark_of(store)
        given |= {"sources": sources, "kept_summary": lambda _name: None}
    elif store.connection is None:
        raise UsageError(f"{store.where}: facts are made on a DuckDB; read it through on_duckdb")
    else:
        engine = Duck(store.connection)
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
    return Facts(engine, logs | given, {})


def _raw(name: str) -> Callable[[Facts], str]:
    """A stored table, its times as microseconds."""

    def make(facts: Facts) -> str:
        sql = raw_sql(TABLES[name], facts.given("sources")(name))
        return facts.keep(f"raw_{name}", sql, view=True)

    return make


for _table in TABLES:
    made(f"raw_{_table}", (), takes=("sources",))(_raw(_table))


# -- The stored tables under their own names, as every question reads them ------------------------
#
# Who cancelled a job is known where any log says it. States of nodes have an end where it shows
# that they are over, and those that only the controller's log has are among them.

_CONTROLLER = "slurmctld-log"


@made("attempts", (), reads=("whole_attempts", "cancellers"), takes=("small", "het_jobs"))
def _attempts(facts: Facts) -> str:
    """One row is an attempt, with who cancelled it where any log says it."""
    whole = facts.table("whole_attempts")
    if not facts.rows("cancellers"):
        return whole
    names = [*narrow_columns(TABLES["attempts"])]
    if facts.given("het_jobs").wholes:
        names += PARTS_HELD_S.values()
    columns = ", ".join(
        "coalesce(r.cancelled_by, c.uid) AS cancelled_by"
        if name == "cancelled_by"
        else f'r."{name}"'
        for name in names
    )
    joined = f"{whole} r LEFT JOIN {facts.table('cancellers')} c ON r.attempt_id = c.attempt_id"
    return kept(facts, "attempts", f"SELECT {columns} FROM {joined}", "attempts")


@made("ended_states", (), reads=("whole_node_states", "known_ends"), takes=("small",))
def _ended_states(facts: Facts) -> str:
    """One row is a state of a node, with an end where it shows that it is over."""
    whole = facts.table("whole_node_states")
    if not facts.rows("known_ends"):
        return whole
    columns = selected(NODE_STATES, "r", {"end_us": "coalesce(r.end_us, k.end_us)"})
    same = " AND ".join(f"r.{name} = k.{name}" for name in ("cluster", "node", "start_us", "state"))
    ends = facts.table("known_ends")
    sql = f"SELECT {columns} FROM {whole} r LEFT JOIN {ends} k ON {same}"
    return kept(facts, "ended_states", sql, "node_states")


@made("node_states", (), reads=("raw_files", "ended_states", "controller_states"), takes=("small",))
def _node_states(facts: Facts) -> str:
    """One row is a state of a node, those that only the controller's log has among them."""
    ended = facts.table("ended_states")
    sources = {row["source"] for row in facts.rows("raw_files")}
    if _CONTROLLER not in sources or not facts.rows("controller_states"):
        return ended
    own = facts.table("controller_states")
    sql = (
        f"SELECT {selected(NODE_STATES, 'r')} FROM {ended} r "
        f"UNION ALL SELECT {selected(NODE_STATES, 's')} FROM {own} s"
    )
    return kept(facts, "node_states", sql, "node_states")


for _name in TABLES.keys() - {"attempts", "node_states"}:
    made(_name, (), reads=(f"whole_{_name}",))(
        lambda facts, name=f"whole_{_name}": facts.table(name)  # type: ignore[misc]
    )
