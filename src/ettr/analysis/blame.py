"""The table `blame` of a store: each failure divided over the nodes of its attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ettr.facts import Facts
from ettr.lemons.candidates import MIN_NODES, Blame, PlacedFailure, blame, rates_of
from ettr.lemons.fleet import Placement, Stratum
from ettr.lemons.model import FleetSignals, LemonFit, NodeCounts, NodeName
from ettr.tables.schemas import BLAME

if TYPE_CHECKING:
    import pyarrow as pa


class OfBlame(Protocol):
    """What blame takes."""

    facts: Facts
    lemon_strata: tuple[tuple[Stratum, ...], FleetSignals]
    placement: Placement
    workload_weights: dict[str, float]

    def lemon_fit(self, counts: NodeCounts) -> LemonFit:
        """The model of the lemons of a group."""
        ...


def summed(weights: Iterable[Blame]) -> dict[NodeName, float]:
    """The weights of each node; where every culprit is named, its failures."""
    made: dict[NodeName, float] = defaultdict(float)
    for one in weights:
        if one.node is not None:
            made[one.cluster, one.node] += one.weight
    return dict(made)


def placed(weights: Iterable[Blame], attempts: Container[str]) -> dict[NodeName, float]:
    """Failures by the node that they happened on, whoever is to blame for them.

    What a burst or a workload is to blame for happened on nodes too: the weights of a failure on
    its nodes are taken to sum to one.
    """
    kept = [one for one in weights if one.node is not None and one.attempt_id in attempts]
    total: dict[str, float] = defaultdict(float)
    for one in kept:
        total[one.attempt_id] += one.weight
    return summed(replace(one, weight=one.weight / total[one.attempt_id]) for one in kept)


def blame_table(made: Iterable[Blame]) -> pa.Table:
    """The table `blame`."""
    import pyarrow as pa

    made = list(made)
    columns = {name: [getattr(one, name) for one in made] for name in BLAME.names}
    return BLAME.check(pa.table(columns, schema=BLAME.arrow_schema))


def blame_of(stages: OfBlame) -> list[Blame]:
    """Each failure divided over the nodes of its attempt."""
    fleet, _ = stages.lemon_strata
    parts = {
        failure.attempt_id: failure.weight
        for group in fleet
        for named in group.named
        for failure in named
    }
    found = stages.facts.rows("failures")
    rows = sorted(found, key=lambda row: (row["end_us"], row["attempt_id"]))
    nodes = {
        attempt_id: {node for _, node in held if node is not None}
        for attempt_id, held in stages.placement.nodes_of.items()
    }
    failures = (
        PlacedFailure(
            row["cluster"],
            row["attempt_id"],
            row["node"],
            tuple(sorted(nodes.get(row["attempt_id"], ()))),
        )
        for row in rows
    )
    rates = rates_of(fleet, [_fit(group, stages) for group in fleet])
    return blame(failures, rates, parts, stages.workload_weights)


def _fit(group: Stratum, stages: OfBlame) -> LemonFit | None:
    """The model of a group; None where the group is too small, or has no failure to divide."""
    if len(group.nodes) < MIN_NODES or not group.counts.shared:
        return None
    return stages.lemon_fit(group.counts)
