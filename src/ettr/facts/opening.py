"""The facts of a store as it is opened, its tables under their own names, and events in short.

A store of files keeps these of its large parts, so that a report does not read tens of millions of
events for a few thousand numbers. The facts are counted in the events where nothing is kept.

- `event_census` is one row a kind (`source`, `check`, `code`, `severity`) and UTC day (`day`, as
  days since 1970): `events`, how many; `first_us`, `last_us`; `first_end_us`, `last_end_us` of
  `time_end`, null where none has one.
- `event_days` is one row a node that events name and UTC day: `errors`, how many of them its own
  logs hold; 0 where only the controller names the node.
- `busy_days` are nodes on days on which they logged much; none where nothing is kept.
- `event_node_kinds` is one row a node and kind (`check`, `code`, `severity`): `events`, `first_us`,
  `last_us`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ettr.errors import UsageError
from ettr.facts.duck import Duck
from ettr.facts.facts import Deferred, Facts
from ettr.facts.files import FactEngine, Rows, made
from ettr.facts.het_jobs import PARTS_HELD_S, het_jobs_of
from ettr.facts.naming import naming_of, under_one_name
from ettr.facts.stored import gpuless_of, kept, narrow_columns, raw_sql, selected
from ettr.store import Store
from ettr.store.computing import DUCKDB
from ettr.tables import NODE_STATES, TABLES
from ettr.tables.columns import Kind
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.tables.schemas import EVENT_SUMMARIES

_SUMMARIES = {
    "event_census": "event_census",
    "event_days": "event_node_days",
    "event_node_kinds": "event_node_kinds",
}
"""Names of the facts, and of the tables that a store keeps for them."""
_BUSY = "event_busy_days"


def _register() -> None:
    takes = ("kept_summary", "naming")
    days = _SUMMARIES["event_days"]
    made("logged_nodes", (), reads=("cluster_name", "placed_events"), takes=takes)(_nodes(days))
    of_names = ("cluster_name", "node_aliases")
    made("busy_days_parts", (), reads=of_names, takes=takes)(_parts(_BUSY))
    for name, summary in _SUMMARIES.items():
        made(f"{name}_parts", (), reads=of_names, takes=takes)(_parts(summary))
        either = (f"{name}_counted", f"{name}_summed")
        made(name, (), reads=either, takes=takes)(_whole(name, summary))


def _place(facts: Facts, summary: str) -> str | None:
    """Where a store keeps a summary; None where it keeps no summary of all rows."""
    if "cluster" in EVENT_SUMMARIES[summary].table.names and facts.given("naming").is_by_node:
        return None
    place: str | None = facts.given("kept_summary")(summary)
    return place


def _parts(summary: str) -> Callable[[Facts], str]:
    """A summary under names of clusters and of the scheduler's nodes, times as microseconds."""
    table = EVENT_SUMMARIES[summary].table

    def make(facts: Facts) -> str:
        placed = _placed(facts, summary)
        name, join = under_one_name(facts, "r") if "node" in table.names else ("", "")
        if not join:
            return placed
        columns = selected(table, "r", {"node": name})
        sql = f"SELECT {columns} FROM {placed} r{join}"
        return facts.keep(f"{summary}_parts", sql, view=True)

    return make


def _nodes(summary: str) -> Callable[[Facts], str]:
    """Cluster and name of nodes that events name, as their logs do; rows may repeat."""

    def make(facts: Facts) -> str:
        is_kept = _place(facts, summary) is not None
        return _placed(facts, summary) if is_kept else facts.table("placed_events")

    return make


def _placed(facts: Facts, summary: str) -> str:
    """A summary under names of clusters, its times as microseconds."""
    place, columns, joined = _place(facts, summary), [], ""
    for column in EVENT_SUMMARIES[summary].table:
        if column.kind is Kind.TIME:
            columns.append(f'epoch_us(r."{column.name}") AS "{column.name}_us"')
        elif column.name == "cluster" and facts.given("naming").cluster is not None:
            joined = f" CROSS JOIN {facts.table('cluster_name')} f"
            columns.append(
                f"CASE WHEN r.cluster = '{DEFAULT_CLUSTER}' THEN f.cluster ELSE r.cluster END "
                "AS cluster"
            )
        else:
            columns.append(f'r."{column.name}"')
    sql = f"SELECT {', '.join(columns)} FROM {place} r{joined}"
    return facts.keep(f"{summary}_placed", sql, view=True)


def _whole(name: str, summary: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        is_kept = _place(facts, summary) is not None
        return facts.table(f"{name}_summed" if is_kept else f"{name}_counted")

    return make


_register()


@made(
    "busy_days",
    (("cluster", "VARCHAR"), ("node", "VARCHAR"), ("day", "BIGINT")),
    reads=("busy_days_parts",),
    takes=("kept_summary", "naming"),
)
def _busy_days(facts: Facts) -> Rows | str:
    """One row is a node on a UTC day in more than five hours of which its own logs have an event
    that is not ok, where a store keeps that: without rows nothing is known. Rows may repeat.
    """
    return [] if _place(facts, _BUSY) is None else facts.table("busy_days_parts")


# -- the facts of a store, and its tables under their own names ----------------------------------


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
