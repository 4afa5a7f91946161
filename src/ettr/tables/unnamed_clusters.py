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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import ibis
from ibis.expr.types import Table

from ettr.tables.materialize import materialize
from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE, taken_note
from ettr.tables.schemas import TABLES

_NAMING = ("attempts", "nodes", "node_states")
_NAMED = ("attempts", "allocations", "nodes", "node_states", "events", "log_days")
# tables whose rows are of their node's cluster; an allocation is of its attempt's
_OF_NODES = frozenset({"nodes", "node_states", "events", "log_days"})
# whose row of a node is one, however many logs have it
_SHARED_ROWS = frozenset({"nodes"})
_HAVE_NODES = ("allocations", "nodes", "node_states")
_IS_UNNAMED = ibis._.cluster == DEFAULT_CLUSTER

_BY_NODES = (
    "taken as the cluster of their nodes where these are nodes of one cluster only, else as "
    f"{DEFAULT_CLUSTER!r} (--cluster names it)"
)


@dataclass(frozen=True, slots=True)
class Naming:
    """How rows that name no cluster are named.

    Attributes:
        cluster: The only cluster that logs name; None: none or several.
        of_nodes: `node` and `cluster`, of nodes whose name just one cluster has.
        of_files: `file_id` and `file_cluster` of files whose nodes are known; the cluster is null
            where they are of several.
    """

    cluster: str | None = None
    of_nodes: Table | None = None
    of_files: Table | None = None

    @property
    def is_known(self) -> bool:
        """Whether any row can be named."""
        return self.cluster is not None or self.is_by_node

    @property
    def is_by_node(self) -> bool:
        """Whether the nodes of a file decide."""
        return self.of_files is not None

    def words(self, note: str) -> str:
        """A note of the reading (`UNNAMED_NOTE`) in the words of what became of the rows."""
        if self.cluster is not None:
            return note.replace(UNNAMED_NOTE, taken_note(self.cluster))
        return note.replace(UNNAMED_NOTE, _BY_NODES) if self.is_by_node else note

    def named(self, rows: Table, table: str) -> Table:
        """The same rows, each with its cluster.

        Args:
            rows: Rows of that table, or of a summary of it, which has no files: unless
                `is_by_node`, only their `cluster` is looked at.
            table: Its name: it says whether its rows are of their node, of their file or of both.
        """
        if self.cluster is not None:
            return _renamed(rows, ibis.literal(self.cluster))
        if self.of_files is None or self.of_nodes is None:
            return rows
        both = rows.left_join(self.of_files, "file_id")
        if table not in _OF_NODES:
            return _renamed(both, both["file_cluster"]).select(*rows.columns)
        of_nodes = self.of_nodes.rename(named_node="node", node_cluster="cluster")
        both = both.left_join(of_nodes, both["node"] == of_nodes["named_node"])
        # a node of a file that is not known says nothing
        of_node = both["known_file"].notnull().ifelse(both["node_cluster"], None)
        of_either = of_node.coalesce(both["file_cluster"])
        found = of_node if table in _SHARED_ROWS else of_either
        return _renamed(both, found).select(*rows.columns)


def _renamed(rows: Table, cluster: ibis.Value) -> Table:
    """The same rows, those that name no cluster of the given one, where there is one."""
    name = rows["cluster"]
    is_unnamed = name == DEFAULT_CLUSTER
    return rows.mutate(cluster=ibis.cases((is_unnamed, cluster.coalesce(name)), else_=name))


def named_clusters(tables: Mapping[str, Table]) -> tuple[dict[str, Table], Naming]:
    """The same tables, rows that name no cluster under the one that they are of.

    Of rows that then have the same key the one that named its cluster stands, unless it is open and
    the other has ended; what only the other knows is kept (`Column.keeps`).

    Args:
        tables: the store's tables by name.
    """
    unnamed = _with_rows({name: tables[name].filter(_IS_UNNAMED) for name in _NAMED})
    if not unnamed or _is_a_name(tables):
        return dict(tables), Naming()
    naming = _naming(tables, unnamed)
    if not naming.is_known:
        return dict(tables), naming
    made = dict(tables)
    keyed = [name for name in unnamed if name not in ("events", "log_days")]
    both = _with_rows({name: tables[name].filter(~_IS_UNNAMED) for name in keyed})
    for name in unnamed:
        made[name] = (
            _without_repeats(tables, name, naming)
            if name in both
            else naming.named(tables[name], name)
        )
    return made, naming


def _naming(tables: Mapping[str, Table], unnamed: list[str]) -> Naming:
    found = ibis.union(*(tables[name].select("cluster").distinct() for name in _NAMING))
    names = {*found.to_pyarrow().column("cluster").to_pylist()} - {DEFAULT_CLUSTER}
    if len(names) < 2:
        return Naming(names.pop() if names else None)
    nodes = materialize(_nodes_by_cluster(tables))
    of_one_cluster = nodes.filter(nodes["n_clusters"] == 1).select("node", "cluster")
    unnamed_rows = [
        tables[name].filter(tables[name]["cluster"] == DEFAULT_CLUSTER) for name in unnamed
    ]
    return Naming(None, of_one_cluster, materialize(_files(unnamed_rows, nodes)))


def _nodes_by_cluster(tables: Mapping[str, Table]) -> Table:
    """Each name of a node with the clusters that have it: `node`, `cluster`, `n_clusters`."""
    parts = (tables[name].select("node", "cluster") for name in _HAVE_NODES)
    rows = reduce(ibis.union, (part.filter(part["cluster"] != DEFAULT_CLUSTER) for part in parts))
    grouped = rows.group_by("node")
    return grouped.aggregate(cluster=rows["cluster"].min(), n_clusters=rows["cluster"].nunique())


def _files(unnamed: list[Table], nodes: Table) -> Table:
    """Files at least half of whose nodes are known: `file_id`, `known_file`, `file_cluster`."""
    rows = reduce(ibis.union, map(_places, unnamed)).distinct()
    rows = rows.filter(rows["node"].notnull()).left_join(nodes, "node")
    sure = (rows["n_clusters"] == 1).ifelse(rows["cluster"], None)
    files = rows.group_by("file_id").aggregate(
        n_nodes=rows.count(),
        n_known=rows["n_clusters"].count(),
        n_clusters=sure.nunique(),
        cluster=sure.min(),
    )
    files = files.filter(2 * files["n_known"] >= files["n_nodes"])
    agreed = (files["n_clusters"] == 1).ifelse(files["cluster"], None)
    return files.select("file_id", known_file=files["file_id"], file_cluster=agreed)


def _places(rows: Table) -> Table:
    """File and node of each row; null where it has none."""
    if "node" not in rows.columns:
        return rows.select("file_id", node=ibis.null("string"))
    node = rows["node"]
    # a union is of columns of which all may be null, or none
    return rows.select("file_id", node=(node != "").ifelse(node, None))


def _is_a_name(tables: Mapping[str, Table]) -> bool:
    """Whether a log itself gives a cluster the name of the placeholder."""
    notes = tables["files"].notes.fill_null("")
    guessed = notes.contains(UNNAMED_NOTE) | notes.contains(taken_note(DEFAULT_CLUSTER))
    naming = tables["files"].filter(~guessed)
    rows = {name: tables[name].filter(_IS_UNNAMED) for name in _NAMING}
    of_naming = {name: each.semi_join(naming, "file_id") for name, each in rows.items()}
    return bool(_with_rows(of_naming))


def _with_rows(tables: Mapping[str, Table]) -> list[str]:
    """Names of the tables that have a row; one query, as each costs more than it reads."""
    if not tables:
        return []
    found = ibis.union(
        *(each.limit(1).select(table=ibis.literal(name)) for name, each in tables.items())
    )
    there = found.to_pyarrow().column("table").to_pylist()
    return [name for name in tables if name in there]


def _without_repeats(tables: Mapping[str, Table], name: str, naming: Naming) -> Table:
    """Rows of one table, each with its cluster and each thing once."""
    table = tables[name]
    if name == "allocations":
        attempts = _without_repeats(tables, "attempts", naming)
        return naming.named(table, name).semi_join(attempts, "attempt_id")
    key = list(TABLES[name].key)
    named = table.filter(table.cluster != DEFAULT_CLUSTER)
    unnamed = table.filter(table.cluster == DEFAULT_CLUSTER)
    unnamed = naming.named(unnamed, name)
    if "end" not in table.columns:
        filled = _filled(named, unnamed, name, key)
        return ibis.union(filled, unnamed.anti_join(named, key), distinct=False)
    ended = unnamed.filter(unnamed.end.notnull())
    stale = named.filter(named.end.isnull()).semi_join(ended, key)
    standing = named.anti_join(stale, key)
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
