"""The table `blame` of a store: each failure divided over the nodes of its attempt."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from ettr.analysis.lemon_nodes import fleet_of, workload_weights
from ettr.lemons.blame import PlacedFailure, blame, rates_of
from ettr.lemons.candidates import MIN_NODES
from ettr.lemons.model import fit_lemons
from ettr.lemons.signals import NodeName
from ettr.metrics.instants import fetch
from ettr.tables.schemas import BLAME

if TYPE_CHECKING:
    from ettr.analysis.shared import SharedStages


def weights_by_node(stages: SharedStages) -> dict[NodeName, float]:
    """The weights of each node over all failures; where every culprit is named, its failures.

    Args:
        stages: of the store.
    """
    made: dict[NodeName, float] = defaultdict(float)
    for row in blame_table(stages).to_pylist():
        if row["node"] is not None:
            made[row["cluster"], row["node"]] += row["weight"]
    return dict(made)


def blame_table(stages: SharedStages) -> pa.Table:
    """The table `blame`.

    Args:
        stages: of the store.
    """
    fleet, _ = fleet_of(stages)
    fits = [fit_lemons(group.counts) if len(group.nodes) >= MIN_NODES else None for group in fleet]
    parts = {
        failure.attempt_id: failure.weight
        for group in fleet
        for named in group.named
        for failure in named
    }
    rows = fetch(
        stages.failures.order_by("end", "attempt_id"), "cluster", "attempt_id", "node"
    ).to_pylist()
    held = stages.tables["allocations"].semi_join(stages.failures, "attempt_id")
    nodes: dict[str, set[str]] = defaultdict(set)
    for row in fetch(held, "attempt_id", "node").to_pylist():
        if row["node"] is not None:
            nodes[row["attempt_id"]].add(row["node"])
    failures = (
        PlacedFailure(
            row["cluster"],
            row["attempt_id"],
            row["node"],
            tuple(sorted(nodes.get(row["attempt_id"], ()))),
        )
        for row in rows
    )
    made = blame(failures, rates_of(fleet, fits), parts, workload_weights(stages))
    columns = {name: [getattr(one, name) for one in made] for name in BLAME.names}
    return BLAME.check(pa.table(columns, schema=BLAME.arrow_schema))
