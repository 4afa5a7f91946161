"""The tables of a store as an analysis takes them: one cluster, whole jobs, who cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ibis.expr.types import Table

from ettr.analysis.assumptions import Assumptions
from ettr.attribution.cancellations import with_cancellers
from ettr.attribution.controller_states import with_controller_states
from ettr.metrics.instants import fetch, has_rows
from ettr.metrics.unended_states import UnendedStates, with_known_ends
from ettr.store import Store
from ettr.tables import TABLES
from ettr.tables.het_jobs import WholeJobs, whole_jobs
from ettr.tables.materialize import as_view, materialize
from ettr.tables.unnamed_clusters import Naming, named_clusters

_CONTROLLER = "slurmctld-log"


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The tables of a store by name.

    Attributes:
        parts: As the logs have them: one row for each part of a heterogeneous job.
        jobs: The same with whole jobs, and the ids under which their parts go.
        tables: What every stage reads: whole jobs, and who cancelled one wherever any log says it.
        unended_states: States of nodes that no log ends, though they are over; None: there is none.
        naming: Of which clusters those rows are that name none.
    """

    parts: Mapping[str, Table]
    jobs: WholeJobs
    tables: dict[str, Table]
    naming: Naming
    unended_states: UnendedStates | None = None


def stored_tables(store: Store, given: Assumptions) -> StoredTables:
    """The tables of a store under what was assumed of it."""
    read = {name: store.table(name) for name in TABLES}
    named, naming = named_clusters(read)
    for name, table in named.items():
        if table is not read[name]:
            # else every query would ask again which cluster a row is of
            named[name] = materialize(table) if store.is_small(name) else as_view(table)
    parts = _with_gpus(_with_accounted_gpus(named), given.gpus_per_node)
    jobs = whole_jobs(parts)
    attempts = with_cancellers(jobs.tables["attempts"], jobs.tables["events"], given.matching)
    states, unended = with_known_ends(
        *(jobs.tables[name] for name in ("node_states", "allocations", "attempts"))
    )
    tables = {**jobs.tables, "attempts": attempts, "node_states": states}
    if any(file.source == _CONTROLLER for file in store.files()):
        tables["node_states"] = with_controller_states(
            tables["node_states"], tables["events"], tables["allocations"]
        )
    for name, table in tables.items():
        if store.is_small(name) and table is not named[name]:
            # else what was changed would be worked out again in every query
            tables[name] = materialize(table)
    return StoredTables(parts, jobs, tables, naming, unended)


def _with_accounted_gpus(tables: dict[str, Table]) -> dict[str, Table]:
    """The same tables, where no GPUs in any job is not known, unless an inventory has none either.

    A scheduler that does not account GPUs lists none for any job, as one does whose jobs used none.
    Where nodes have GPUs it may be either; where they have none, no job had any. Each cluster has a
    scheduler of its own.
    """
    attempts, held = tables["attempts"], tables["allocations"]
    unknown = _clusters_without_gpus(attempts, tables["nodes"])
    if not unknown:
        return tables
    of_jobs, of_nodes = (rows["cluster"].isin(unknown) for rows in (attempts, held))
    return {
        **tables,
        "attempts": attempts.mutate(
            n_gpus=of_jobs.ifelse(attempts["n_gpus"].nullif(0), attempts["n_gpus"])
        ),
        "allocations": held.mutate(
            n_gpus=of_nodes.ifelse(held["n_gpus"].nullif(0.0), held["n_gpus"])
        ),
    }


def _clusters_without_gpus(attempts: Table, nodes: Table) -> list[str]:
    """Clusters of whose jobs none lists a GPU, though their nodes may have some."""
    if not has_rows(attempts.filter(attempts["n_gpus"] == 0)):
        return []
    listed = attempts.filter(attempts["n_gpus"].notnull())
    most = fetch(listed.group_by("cluster").aggregate(n_gpus=listed["n_gpus"].max())).to_pylist()
    counted = nodes.filter(nodes["n_gpus"].notnull())
    of_nodes = fetch(counted.group_by("cluster").aggregate(n_gpus=counted["n_gpus"].max()))
    bare = {row["cluster"] for row in of_nodes.to_pylist() if row["n_gpus"] == 0}
    return [row["cluster"] for row in most if row["n_gpus"] == 0 and row["cluster"] not in bare]


def _with_gpus(tables: dict[str, Table], per_node: float | None) -> dict[str, Table]:
    """The same tables, where GPUs that no log names are those of a given node."""
    if per_node is None:
        return tables
    attempts, held = tables["attempts"], tables["allocations"]
    counted = (attempts["n_nodes"] * per_node).round().cast("int64")
    return {
        **tables,
        "attempts": attempts.mutate(n_gpus=attempts["n_gpus"].coalesce(counted)),
        "allocations": held.mutate(n_gpus=held["n_gpus"].fill_null(float(per_node))),
    }
