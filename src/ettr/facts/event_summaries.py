"""What is asked of all events: of each kind by day, of each node by day and by kind.

A store of files keeps these of its large parts, so that a report does not read tens of millions of
events for a few thousand numbers. The facts are counted in the events where nothing is kept.

- `event_census` is one row a kind (`source`, `check`, `code`, `severity`) and UTC day (`day`, as
  days since 1970): `events`, how many; `first_us`, `last_us`; `first_end_us`, `last_end_us` of
  `time_end`, null where none has one.
- `event_days` is one row a node that events name and UTC day: `errors`, how many of them its own
  logs hold; 0 where only the controller names the node.
- `event_node_kinds` is one row a node and kind (`check`, `code`, `severity`): `events`, `first_us`,
  `last_us`.
"""

from __future__ import annotations

from collections.abc import Callable

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.facts.naming import under_one_name
from ettr.facts.stored import selected
from ettr.tables.columns import Kind
from ettr.tables.rows import DEFAULT_CLUSTER
from ettr.tables.schemas import EVENT_SUMMARIES

_SUMMARIES = {
    "event_census": "event_census",
    "event_days": "event_node_days",
    "event_node_kinds": "event_node_kinds",
}
"""Names of the facts, and of the tables that a store keeps for them."""


def _register() -> None:
    takes = ("kept_summary", "naming")
    days = _SUMMARIES["event_days"]
    made("logged_nodes", (), reads=("cluster_name", "placed_events"), takes=takes)(_nodes(days))
    for name, kept in _SUMMARIES.items():
        reads = ("cluster_name", "node_aliases")
        made(f"{name}_parts", (), reads=reads, takes=takes)(_parts(kept))
        either = (f"{name}_counted", f"{name}_summed")
        made(name, (), reads=either, takes=takes)(_whole(name, kept))


def _place(facts: Facts, kept: str) -> str | None:
    """Where a store keeps a summary; None where it keeps no summary of all rows."""
    if "cluster" in EVENT_SUMMARIES[kept].table.names and facts.given("naming").is_by_node:
        return None
    place: str | None = facts.given("kept_summary")(kept)
    return place


def _parts(kept: str) -> Callable[[Facts], str]:
    """A summary under names of clusters and of the scheduler's nodes, times as microseconds."""
    table = EVENT_SUMMARIES[kept].table

    def make(facts: Facts) -> str:
        placed = _placed(facts, kept)
        name, join = under_one_name(facts, "r") if "node" in table.names else ("", "")
        if not join:
            return placed
        columns = selected(table, "r", {"node": name})
        sql = f"SELECT {columns} FROM {placed} r{join}"
        return facts.keep(f"{kept}_parts", sql, view=True)

    return make


def _nodes(kept: str) -> Callable[[Facts], str]:
    """Cluster and name of nodes that events name, as their logs do; rows may repeat."""

    def make(facts: Facts) -> str:
        is_kept = _place(facts, kept) is not None
        return _placed(facts, kept) if is_kept else facts.table("placed_events")

    return make


def _placed(facts: Facts, kept: str) -> str:
    """A summary under names of clusters, its times as microseconds."""
    place, columns, joined = _place(facts, kept), [], ""
    for column in EVENT_SUMMARIES[kept].table:
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
    return facts.keep(f"{kept}_placed", sql, view=True)


def _whole(name: str, kept: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        is_kept = _place(facts, kept) is not None
        return facts.table(f"{name}_summed" if is_kept else f"{name}_counted")

    return make


_register()
