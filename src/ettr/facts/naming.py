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

from collections.abc import Callable
from dataclasses import dataclass

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.facts.node_names import RENAMED
from ettr.facts.stored import kept, narrow_columns, selected
from ettr.tables import TABLES
from ettr.tables.columns import Table
from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE, taken_note

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
            sql = _renamed(facts, table)
            if _has_named(facts, table, naming):
                attempts = facts.table("named_attempts")
                theirs = f"SELECT attempt_id FROM {attempts}"
                sql = f"SELECT * FROM ({sql}) a WHERE attempt_id IN ({theirs})"
        elif table in _WITHOUT_KEYS or not _has_named(facts, table, naming):
            sql = _renamed(facts, table)
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


def _renamed(facts: Facts, table: str, where: str = "") -> str:
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
        f"unnamed AS ({_renamed(facts, table.name, f'WHERE r.cluster = {_CLUSTER}')})",
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


for _table in TABLES:
    if _table not in _NAMED:
        made(f"named_{_table}", (), reads=(f"raw_{_table}",))(
            lambda facts, name=f"raw_{_table}": facts.table(name)  # type: ignore[misc]
        )
        continue
    made(
        f"{'placed' if _table in RENAMED else 'named'}_{_table}",
        (),
        reads=(f"raw_{_table}", "raw_attempts", "cluster_name", "file_clusters", "node_clusters"),
        takes=("naming", "small"),
    )(_named(_table))
