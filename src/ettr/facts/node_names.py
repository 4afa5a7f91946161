"""Nodes whose logs call them otherwise than their scheduler: with a domain, or in capitals.

A name of a log that the scheduler does not know is another name of one of its nodes where an
inventory says so (`NodeHostName`, `NodeAddr`), or where just one of its nodes has that host name
(up to the first dot, in lower case) and the logs have it under one domain only. Its events and days
of logs are then of that node, for every question alike. A host name of digits alone is an address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.facts.stored import kept, selected
from ettr.tables import TABLES

RENAMED = ("events", "log_days")
_OF_SCHEDULER = ("allocations", "nodes", "node_states")
_COLUMNS = (("cluster", "VARCHAR"), ("node", "VARCHAR"), ("scheduler_node", "VARCHAR"))

_Pair = tuple[str, str]


def host_of(node: str) -> str:
    """The host name in a name, in lower case; empty for an address."""
    host = node.partition(".")[0].lower()
    return "" if host.isdigit() else host


def joined_names(
    known: Iterable[_Pair], logged: Iterable[_Pair], stated: Iterable[tuple[str, str, str]]
) -> tuple[dict[_Pair, str], dict[_Pair, tuple[str, ...]]]:
    """Names of logs with the scheduler's, and those that may be of several nodes.

    Args:
        stated: cluster, name and another name of a node, as an inventory has them.

    Returns:
        The scheduler's name of each that is sure; the candidates of each that is not.
    """
    nodes = set(known)
    strange = {pair for pair in logged if pair not in nodes}
    if not strange:
        return {}, {}
    by_host: dict[_Pair, set[str]] = defaultdict(set)
    for cluster, node in nodes:
        by_host[cluster, host_of(node)].add(node)
    by_other: dict[_Pair, set[str]] = defaultdict(set)
    for cluster, node, other in stated:
        by_other[cluster, other.lower()].add(node)
        by_other[cluster, host_of(other)].add(node)
    domains: dict[_Pair, set[str]] = defaultdict(set)
    for cluster, node in strange:
        if domain := node.partition(".")[2].lower():
            domains[cluster, host_of(node)].add(domain)
    sure: dict[_Pair, str] = {}
    open_: dict[_Pair, tuple[str, ...]] = {}
    for cluster, node in sorted(strange):
        host = cluster, host_of(node)
        by_inventory = by_other.get((cluster, node.lower())) or (
            by_other.get(host, set()) if host[1] and len(domains[host]) <= 1 else set()
        )
        candidates = by_inventory or (by_host.get(host, set()) if host[1] else set())
        if len(candidates) == 1 and (by_inventory or len(domains[host]) <= 1):
            sure[cluster, node] = min(candidates)
        elif candidates:
            open_[cluster, node] = tuple(sorted(candidates))
    return sure, open_


def _names(facts: Facts) -> tuple[dict[_Pair, str], dict[_Pair, tuple[str, ...]]]:
    logged: set[_Pair] = set(facts.distinct("placed_log_days", "cluster", "node"))
    logged |= set(facts.distinct("logged_nodes", "cluster", "node"))
    logged = {pair for pair in logged if pair[1] is not None}
    inventory = facts.table("named_nodes")
    known = set(facts.distinct("named_nodes", "cluster", "node"))
    if logged <= known:
        return {}, {}
    for table in _OF_SCHEDULER:
        known |= set(facts.distinct(f"named_{table}", "cluster", "node"))
    rows = facts.engine.rows(
        f"SELECT cluster, node, other_names FROM {inventory} WHERE other_names IS NOT NULL", {}
    )
    stated = [
        (row["cluster"], row["node"], other)
        for row in rows
        for other in row["other_names"].split(",")
    ]
    return joined_names({pair for pair in known if pair[1] is not None}, logged, stated)


_READS = ("placed_log_days", "logged_nodes", *(f"named_{table}" for table in _OF_SCHEDULER))


@made("node_aliases", _COLUMNS, reads=_READS)
def _node_aliases(facts: Facts) -> list[tuple[object, ...]]:
    return [(*pair, node) for pair, node in _names(facts)[0].items()]


@made("unsure_aliases", _COLUMNS, reads=_READS)
def _unsure_aliases(facts: Facts) -> list[tuple[object, ...]]:
    return [(*pair, node) for pair, nodes in _names(facts)[1].items() for node in nodes]


def under_one_name(facts: Facts, rows: str) -> tuple[str, str]:
    """The expression of a node's name and the join that it takes, for rows of some alias `r`.

    Returns:
        The name as it is and no join, where no log calls a node otherwise.
    """
    if not facts.rows("node_aliases"):
        return f"{rows}.node", ""
    aliases = facts.table("node_aliases")
    join = f" LEFT JOIN {aliases} m ON {rows}.cluster = m.cluster AND {rows}.node = m.node"
    return f"coalesce(m.scheduler_node, {rows}.node)", join


def _renamed(table: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        placed = facts.table(f"placed_{table}")
        name, join = under_one_name(facts, "r")
        if not join:
            return placed
        columns = selected(TABLES[table], "r", {"node": name})
        return kept(facts, f"named_{table}", f"SELECT {columns} FROM {placed} r{join}", table)

    return make


for _table in RENAMED:
    made(f"named_{_table}", (), reads=(f"placed_{_table}", "node_aliases"), takes=("small",))(
        _renamed(_table)
    )
