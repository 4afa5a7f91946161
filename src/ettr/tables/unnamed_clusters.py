"""Logs that name no cluster, in a store that knows one: they are that cluster's.

A kernel log names its nodes and nothing else. Read after the accounting it takes the cluster's name
from the store; read before, its rows are kept under a placeholder. So that the order in which files
are read changes nothing, the placeholder is replaced when the tables are used. A cluster may really
have the name of the placeholder, as in Slurm's example configuration: then nothing is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

import ibis
from ibis.expr.types import Table

from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE, taken_note
from ettr.tables.schemas import TABLES

_NAMING = ("attempts", "nodes", "node_states")
_NAMED = ("attempts", "allocations", "nodes", "node_states", "events", "log_days")


def with_one_cluster(tables: Mapping[str, Table]) -> tuple[dict[str, Table], str | None]:
    """The same tables, and the cluster to which rows that name none were given, if any were.

    Only where the logs name exactly one cluster. Of rows that then have the same key the one that
    named its cluster stands, unless it is open and the other has ended; what only the other knows
    is kept (`Column.keeps`).

    Args:
        tables: the store's tables by name.
    """
    unnamed = [name for name in _NAMED if _has(tables[name], is_named=False)]
    if not unnamed or _is_a_name(tables):
        return dict(tables), None
    names: set[str] = set()
    for name in _NAMING:
        found = tables[name].select("cluster").distinct().to_pyarrow().column("cluster")
        names |= set(found.to_pylist())
    names.discard(DEFAULT_CLUSTER)
    if len(names) != 1:
        return dict(tables), None
    (cluster,) = names
    made = dict(tables)
    for name in unnamed:
        both = name not in ("events", "log_days") and _has(tables[name], is_named=True)
        made[name] = with_cluster(_without_repeats(tables, name) if both else tables[name], cluster)
    return made, cluster


def _is_a_name(tables: Mapping[str, Table]) -> bool:
    """Whether a log itself gives a cluster the name of the placeholder."""
    notes = tables["files"].notes.fill_null("")
    guessed = notes.contains(UNNAMED_NOTE) | notes.contains(taken_note(DEFAULT_CLUSTER))
    naming = tables["files"].filter(~guessed)
    return any(
        _any(tables[name].semi_join(naming, "file_id").filter(ibis._.cluster == DEFAULT_CLUSTER))
        for name in _NAMING
    )


def _has(table: Table, *, is_named: bool) -> bool:
    same = table.cluster != DEFAULT_CLUSTER if is_named else table.cluster == DEFAULT_CLUSTER
    return _any(table.filter(same))


def _any(table: Table) -> bool:
    return bool(table.limit(1).count().to_pyarrow().as_py())


def with_cluster(table: Table, cluster: str) -> Table:
    """The same rows, those that name no cluster taken for this one's."""
    name = ibis.cases((table.cluster == DEFAULT_CLUSTER, cluster), else_=table.cluster)
    return table.mutate(cluster=name).select(*table.columns)


def _without_repeats(tables: Mapping[str, Table], name: str) -> Table:
    """Rows of one table, each thing once."""
    table = tables[name]
    if name == "allocations":
        attempts = _without_repeats(tables, "attempts")
        return table.semi_join(attempts, "attempt_id")
    key = [column for column in TABLES[name].key if column != "cluster"]
    named = table.filter(table.cluster != DEFAULT_CLUSTER)
    unnamed = table.filter(table.cluster == DEFAULT_CLUSTER)
    if "end" not in table.columns:
        filled = _filled(named, unnamed, name, key)
        return ibis.union(filled, unnamed.anti_join(named, key), distinct=False)
    ended = unnamed.filter(unnamed.end.notnull())
    stale = named.filter(named.end.isnull()).semi_join(ended, key)
    standing = named.anti_join(stale, ["cluster", *key])
    left = _filled(unnamed.anti_join(standing, key), stale, name, key)
    return ibis.union(_filled(standing, unnamed, name, key), left, distinct=False)


def _filled(rows: Table, givers: Table, name: str, key: list[str]) -> Table:
    """Rows of a table, their nulls filled with what rows of the same key know, where it is kept."""
    keeps = {column.name: column.same for column in TABLES[name] if column.keeps}
    if not keeps:
        return rows
    needed = set(keeps).union(*keeps.values())
    given = givers.select(*key, **{f"{one}_given": givers[one] for one in sorted(needed)})
    both = rows.left_join(given, key)
    made = {}
    for one, same in keeps.items():
        offer = both[f"{one}_given"]
        for column in same:
            offer = both[column].identical_to(both[f"{column}_given"]).ifelse(offer, None)
        made[one] = both[one].coalesce(offer)
    return both.mutate(**made).select(*rows.columns)
