"""The stored tables as every fact reads them, under the names of the schema, times as `*_us`.

Each is a chain of views of which a store passes through few: `raw_X` is what lies in the store,
`named_X` has the cluster of rows that name none (`ettr.facts.naming`), `parts_X` knows GPUs that
were not accounted, and `X` has heterogeneous jobs whole (`ettr.facts.het_jobs`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.tables import TABLES, Table
from ettr.tables.columns import Kind

if TYPE_CHECKING:
    import pyarrow as pa


SQL_TYPES = {
    Kind.STRING: "VARCHAR",
    Kind.INT: "BIGINT",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOL: "BOOLEAN",
    Kind.TIME: "BIGINT",
}


def narrow_columns(table: Table) -> dict[str, str]:
    """Columns of a stored table as facts have them, with their SQL types."""
    return {
        f"{column.name}_us" if column.kind is Kind.TIME else column.name: SQL_TYPES[column.kind]
        for column in table
    }


def selected(table: Table, source: str, changed: Mapping[str, str] | None = None) -> str:
    """Columns of a stored table for a SELECT, some of them as other expressions."""
    changed = changed or {}
    return ", ".join(
        f'{changed[name]} AS "{name}"' if name in changed else f'{source}."{name}"'
        for name in narrow_columns(table)
    )


def raw_sql(table: Table, source: str) -> str:
    """A SELECT of a table as it is stored, its times as microseconds."""
    columns = ", ".join(
        f'epoch_us("{column.name}") AS "{column.name}_us"'
        if column.kind is Kind.TIME
        else f'"{column.name}"'
        for column in table
    )
    return f"SELECT {columns} FROM {source}"


def stored_sql(table: Table, source: str, *names: str) -> str:
    """A SELECT of rows of a fact in the columns of a table, times as timestamps."""
    columns = ", ".join(
        f'make_timestamptz("{column.name}_us") AS "{column.name}"'
        if column.kind is Kind.TIME
        else f'"{column.name}"'
        for column in table
        if not names or column.name in names
    )
    return f"SELECT {columns} FROM {source}"


def stored_rows(facts: Facts, name: str, *names: str) -> pa.Table:
    """Rows of a stored table in memory, as questions read them, times as timestamps."""
    return facts.engine.arrow(stored_sql(TABLES[name], facts.table(name), *names), {})


def kept(facts: Facts, name: str, sql: str, of: str) -> str:
    """Keep changed rows of a stored table: small ones as a table, large ones as a view."""
    return facts.keep(name, sql, view=of not in facts.given("small"))


def _with_gpus(table: str) -> Callable[[Facts], str]:
    """GPUs of attempts or allocations where they are not accounted, or assumed."""

    def make(facts: Facts) -> str:
        named = facts.table(f"named_{table}")
        unknown = facts.given("gpuless")
        per_node = facts.given("gpus_per_node")
        if not unknown and per_node is None:
            return named
        zero, count = ("0", "n_nodes") if table == "attempts" else ("0.0", "")
        known = "r.n_gpus"
        if unknown:
            clusters = facts.table("clusters_without_gpus")
            known = (
                f"CASE WHEN r.cluster IN (SELECT cluster FROM {clusters}) AND r.n_gpus = {zero} "
                "THEN NULL ELSE r.n_gpus END"
            )
        if per_node is not None:
            assumed = f"CAST({float(per_node)!r} AS DOUBLE)"
            if count:
                assumed = f"CAST(round(r.{count} * {assumed}) AS BIGINT)"
            known = f"coalesce({known}, {assumed})"
        columns = selected(TABLES[table], "r", {"n_gpus": known})
        return kept(facts, f"parts_{table}", f"SELECT {columns} FROM {named} r", table)

    return make


def gpuless_of(facts: Facts) -> tuple[str, ...]:
    """Clusters of whose jobs none lists a GPU, though their nodes may have some."""
    return tuple(row["cluster"] for row in facts.rows("gpus_of_clusters") if row["is_unknown"])


@made("clusters_without_gpus", (("cluster", "VARCHAR"),), takes=("gpuless",))
def _clusters_without_gpus(facts: Facts) -> list[tuple[object, ...]]:
    return [(name,) for name in facts.given("gpuless")]


for _table in ("attempts", "allocations"):
    made(
        f"parts_{_table}",
        (),
        reads=(f"named_{_table}", "clusters_without_gpus"),
        takes=("gpus_per_node", "small"),
    )(_with_gpus(_table))


# -- lives of nodes: what class a node is of, and from when to when --------------------------------
# `node_classes` holds them. A node has a new life where jobs hold another type of GPU on it from
# some moment on.


NO_GPUS = "cpu"
"""What is asked for in place of a type of GPU to get the nodes without any."""
_MODELS = re.compile(
    r"(?<![a-z0-9])((?:gb?|[abhlptv])\d{1,3}0{1,2}|[alt]\d{1,2}s?|mi\d{3}[ax]?|gaudi\d?)(?![a-z0-9])"
)


@made(
    "partition_models",
    (("cluster", "VARCHAR"), ("partition", "VARCHAR"), ("gpu_type", "VARCHAR")),
    reads=("attempts",),
)
def _partition_models(facts: Facts) -> list[tuple[object, ...]]:
    """Partitions that are called by a model of GPU, such as `gpu-h100`."""
    named = facts.distinct("attempts", "cluster", "partition")
    models = ((*key, _MODELS.findall((key[1] or "").lower())) for key in sorted(named, key=str))
    return [(cluster, name, found[0]) for cluster, name, found in models if len(found) == 1]


def in_life(lives: str, rows: str) -> str:
    """The condition that a row of an attempt began in a life of `node_classes`."""
    began = f"coalesce({rows}.start_us, 0)"
    return f"{began} >= {lives}.from_us AND {began} < {lives}.to_us"


def kinds_of_nodes(facts: Facts) -> dict[tuple[str, str], tuple[bool, str | None]]:
    """Whether each node has GPUs, and their type, in its last life."""
    names = ("from_us", "cluster", "node", "has_gpus", "gpu_type")
    lives = sorted(facts.distinct("node_classes", *names), key=lambda life: life[0])
    return {(cluster, node): (has_gpus, kind) for _, cluster, node, has_gpus, kind in lives}


def nodes_of_types(facts: Facts, names: Sequence[str]) -> set[tuple[str, str]]:
    """The nodes of these types of GPU in any of their lives; `cpu` are those without GPUs."""
    lives = facts.distinct("node_classes", "cluster", "node", "has_gpus", "gpu_type")
    return {
        (cluster, node)
        for cluster, node, has_gpus, kind in lives
        if (kind if has_gpus else NO_GPUS) in names
    }
