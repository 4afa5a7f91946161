"""Logs that name no cluster: of which one their rows are.

A kernel log names its nodes and nothing else. Its rows are kept under a placeholder and named when
the tables are used, so that the order in which files are read changes nothing:

- Where the logs name one cluster, the rows are that cluster's.
- Where they name several, the nodes of a file decide. If at least half of them are nodes of named
  clusters, a row is of the cluster of its node where just one has a node of that name; other rows
  of the file are of the cluster of those rows, if all of them are of one.
- Every other row stays under the placeholder. So does a row of an inventory whose node does not say
  whose it is: two inventories share that row, and the file read last would decide.

A cluster may really have the name of the placeholder, as in Slurm's example configuration: then
nothing is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.facts.stored import kept, narrow_columns, selected
from ettr.tables import TABLES
from ettr.tables.columns import Table
from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE, taken_note

# -- nodes whose logs call them otherwise than their scheduler: with a domain, or in capitals ------
# A name of a log that the scheduler does not know is another name of one of its nodes where an
# inventory says so (`NodeHostName`, `NodeAddr`), or where just one of its nodes has that host name
# (up to the first dot, in lower case) and the logs have it under one domain only. Its events and
# days of logs are then of that node, for every question alike. A host name of digits alone is an
# address.


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


# -- logs that name no cluster: of which one their rows are ----------------------------------------


_NAMED = ("attempts", "allocations", "nodes", "node_states", "events", "log_days")
# tables whose rows are of their node's cluster; an allocation is of its attempt's
_OF_NODES = frozenset({"nodes", "node_states", "events", "log_days"})
# whose row of a node is one, however many logs have it
_SHARED_ROWS = frozenset({"nodes"})
_WITHOUT_KEYS = frozenset({"events", "log_days"})
_CLUSTER = f"'{DEFAULT_CLUSTER}'"

_BY_NODES = (
    "taken as the cluster of their nodes where these are nodes of one cluster only, else as "
    f"{DEFAULT_CLUSTER!r} (--cluster names it)"
)


@dataclass(frozen=True, slots=True)
class Naming:
    """How rows that name no cluster are named."""

    cluster: str | None = None
    is_by_node: bool = False
    tables: tuple[str, ...] = ()

    def words(self, note: str) -> str:
        """A note of the reading (`UNNAMED_NOTE`) in the words of what became of the rows."""
        if self.cluster is not None:
            return note.replace(UNNAMED_NOTE, taken_note(self.cluster))
        return note.replace(UNNAMED_NOTE, _BY_NODES) if self.is_by_node else note


def naming_of(facts: Facts) -> Naming:
    """How the rows of a store that name no cluster are named."""
    unnamed = {row["name"] for row in facts.rows("unnamed_tables")}
    if not unnamed:
        return Naming()
    found = facts.rows("naming_files")
    guesses = (UNNAMED_NOTE, taken_note(DEFAULT_CLUSTER))
    guessed = {
        row["file_id"]
        for row in facts.rows("raw_files")
        if any(guess in (row["notes"] or "") for guess in guesses)
    }
    named_so = {row["file_id"] for row in found if row["cluster"] == DEFAULT_CLUSTER}
    known_files = {row["file_id"] for row in facts.rows("raw_files")}
    if (named_so & known_files) - guessed:
        return Naming()  # a log itself gives a cluster the placeholder's name
    names = {row["cluster"] for row in found} - {DEFAULT_CLUSTER}
    tables = tuple(name for name in _NAMED if name in unnamed)
    if len(names) < 2:
        return Naming(names.pop(), tables=tables) if names else Naming()
    return Naming(None, is_by_node=True, tables=tables)


@made("cluster_name", (("cluster", "VARCHAR"),), takes=("naming",))
def _cluster_name(facts: Facts) -> list[tuple[object, ...]]:
    return [(facts.given("naming").cluster,)]


def _named(table: str) -> Callable[[Facts], str]:
    """Rows of one table, each with its cluster and each thing once."""

    def make(facts: Facts) -> str:
        raw, naming = facts.table(f"raw_{table}"), facts.given("naming")
        if table not in naming.tables:
            return raw
        if table == "allocations":
            sql = _with_names(facts, table)
            if _has_named(facts, table, naming):
                attempts = facts.table("named_attempts")
                theirs = f"SELECT attempt_id FROM {attempts}"
                sql = f"SELECT * FROM ({sql}) a WHERE attempt_id IN ({theirs})"
        elif table in _WITHOUT_KEYS or not _has_named(facts, table, naming):
            sql = _with_names(facts, table)
        else:
            sql = _without_repeats(facts, TABLES[table])
        return kept(facts, f"named_{table}", sql, table)

    return make


def _has_named(facts: Facts, table: str, naming: Naming) -> bool:
    """Whether a table has rows with a cluster's name as well as rows without."""
    if table not in naming.tables:
        return False
    sql = f"SELECT 1 AS one FROM {facts.table(f'raw_{table}')} WHERE cluster <> {_CLUSTER} LIMIT 1"
    return bool(facts.engine.rows(sql, {}))


def _with_names(facts: Facts, table: str, where: str = "") -> str:
    """Rows of one table, those that name no cluster under the one that they are of."""
    raw, naming = facts.table(f"raw_{table}"), facts.given("naming")
    if naming.cluster is not None:
        joins, found = f"CROSS JOIN {facts.table('cluster_name')} f", "f.cluster"
    else:
        joins = f"LEFT JOIN {facts.table('file_clusters')} f ON r.file_id = f.file_id"
        found = "f.cluster"
        if table in _OF_NODES:
            nodes = facts.table("node_clusters")
            joins += f" LEFT JOIN {nodes} n ON r.node = n.node AND n.n_clusters = 1"
            # a node of a file that is not known says nothing
            of_node = "CASE WHEN f.file_id IS NOT NULL THEN n.cluster END"
            found = of_node if table in _SHARED_ROWS else f"coalesce({of_node}, f.cluster)"
    cluster = (
        f"CASE WHEN r.cluster = {_CLUSTER} THEN coalesce({found}, r.cluster) ELSE r.cluster END"
    )
    columns = selected(TABLES[table], "r", {"cluster": cluster})
    return f"SELECT {columns} FROM {raw} r {joins} {where}"


def _without_repeats(facts: Facts, table: Table) -> str:
    """One row for each thing in rows with and without a cluster's name."""
    raw = facts.table(f"raw_{table.name}")
    columns = selected(table, "r")
    same = _same_key(table)
    steps = [
        f"named AS (SELECT {columns} FROM {raw} r WHERE r.cluster <> {_CLUSTER})",
        f"unnamed AS ({_with_names(facts, table.name, f'WHERE r.cluster = {_CLUSTER}')})",
    ]
    if "end" not in table.names:
        final = (
            f"{_filled(table, 'named', 'unnamed')} UNION ALL SELECT {columns} FROM unnamed r "
            f"WHERE NOT EXISTS (SELECT 1 FROM named g WHERE {same})"
        )
    else:
        steps += [
            f"stale AS (SELECT {columns} FROM named r WHERE r.end_us IS NULL AND EXISTS "
            f"(SELECT 1 FROM unnamed g WHERE g.end_us IS NOT NULL AND {same}))",
            f"standing AS (SELECT {columns} FROM named r WHERE NOT EXISTS "
            f"(SELECT 1 FROM stale g WHERE {same}))",
            f"others AS (SELECT {columns} FROM unnamed r WHERE NOT EXISTS "
            f"(SELECT 1 FROM standing g WHERE {same}))",
        ]
        final = (
            f"{_filled(table, 'standing', 'unnamed')} UNION ALL {_filled(table, 'others', 'stale')}"
        )
    return f"WITH {', '.join(steps)} {final}"


def _same_key(table: Table) -> str:
    columns = dict(zip(table.names, narrow_columns(table), strict=True))
    return " AND ".join(f'r."{columns[name]}" = g."{columns[name]}"' for name in table.key)


def _filled(table: Table, rows: str, givers: str) -> str:
    """Rows of a table, their nulls filled with what rows of the same key know, where it is kept."""
    names = dict(zip(table.names, narrow_columns(table), strict=True))
    changed = {}
    for column in table:
        if not column.keeps:
            continue
        own, given = (f'{side}."{names[column.name]}"' for side in ("r", "g"))
        agree = " AND ".join(
            f'r."{names[name]}" IS NOT DISTINCT FROM g."{names[name]}"' for name in column.same
        )
        offer = f"CASE WHEN {agree} THEN {given} END" if agree else given
        changed[names[column.name]] = f"coalesce({own}, {offer})"
    columns = selected(table, "r", changed)
    join = f"LEFT JOIN {givers} g ON {_same_key(table)}" if changed else ""
    return f"SELECT {columns} FROM {rows} r {join}"


for _kept in TABLES:
    if _kept not in _NAMED:
        made(f"named_{_kept}", (), reads=(f"raw_{_kept}",))(
            lambda facts, name=f"raw_{_kept}": facts.table(name)  # type: ignore[misc]
        )
        continue
    made(
        f"{'placed' if _kept in RENAMED else 'named'}_{_kept}",
        (),
        reads=(
            f"raw_{_kept}",
            "raw_attempts",
            "cluster_name",
            "file_clusters",
            "node_clusters",
        ),
        takes=("naming", "small"),
    )(_named(_kept))
