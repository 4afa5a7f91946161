"""A store's failures by node, stratum by stratum: what the model of lemons is fitted to.

Nodes are compared within a cluster and a kind of hardware: the group that the inventory names, or
the GPU model, or all. Failures of several nodes at nearly the same moment, more than chance brings
together, are one event of what they share: each of the nodes has a part of one failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np
from scipy import stats

from ettr.lemons.model import Floats, NodeCounts, SharedFailure
from ettr.tables.schemas import FAILURES
from ettr.units import SECONDS_PER_DAY

IDLE_OUTAGES = "outages without a failed job"
BURST_GAP_S = 600.0
BURST_NODES = 3
BURST_CHANCE = 1e-3
SAME_S = 3600.0
"""An outage and a failure of one node this close to each other are one event."""
NodeName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BlamedFailure:
    """A failure, as far as a node's history needs it. `weight` is below 1 within a burst."""

    job_id: str
    attempt_id: str
    end_s: float
    symptom: str
    n_nodes: int | None
    weight: float


@dataclass(frozen=True, slots=True)
class Stratum:
    """Nodes that are compared with each other.

    Attributes:
        cluster: Of the nodes.
        hardware: What they have in common; None where the inventory does not say.
        nodes: Names, in the order of the counts.
        counts: What the model is fitted to.
        named: For each node the failures that blame it.
        bursts: How many bursts were folded.
    """

    cluster: str
    hardware: str | None
    nodes: tuple[str, ...]
    counts: NodeCounts
    named: tuple[tuple[BlamedFailure, ...], ...]
    bursts: int


@dataclass(frozen=True, slots=True)
class UnplacedFailures:
    """Failures that speak for or against no node of the groups.

    Attributes:
        blame_unexposed_node: They blame a node on which no log shows that a job ran.
        without_nodes: They blame no node, and no log names a node of their job with exposure.
    """

    blame_unexposed_node: int
    without_nodes: int


def unplaced_failures(
    exposed: ibis.Table, failures: ibis.Table, allocations: ibis.Table
) -> UnplacedFailures:
    """How many failures `strata` can put on no node; each of the others is in a stratum.

    Args:
        exposed: `Exposure.by_node`.
        failures: the table `failures`.
        allocations: the table `allocations`.
    """
    days, placed = _node_days(exposed), _nodes_of(failures, allocations)
    rows = failures.select("attempt_id", "cluster", "node").to_pyarrow().to_pylist()
    nobody = [row["attempt_id"] for row in rows if row["node"] is None]
    return UnplacedFailures(
        sum(row["node"] is not None and (row["cluster"], row["node"]) not in days for row in rows),
        sum(not any(node in days for node in placed.get(one, ())) for one in nobody),
    )


def strata(
    exposed: ibis.Table,
    failures: ibis.Table,
    allocations: ibis.Table,
    inventory: ibis.Table,
    outage_starts_s: Mapping[NodeName, Sequence[float]] | None = None,
) -> tuple[Stratum, ...]:
    """The fleet by cluster and hardware; nodes that ran no job are left out.

    Args:
        exposed: `Exposure.by_node`.
        failures: the table `failures`.
        allocations: the table `allocations`, for the nodes of failures that blame none.
        inventory: the table `nodes`.
        outage_starts_s: when each node went out of service unplanned, in seconds since 1970; None
            where no log says. Those that ended no job become a signal.
    """
    days = _node_days(exposed)
    kinds = _kinds(inventory)
    groups: dict[tuple[str, str | None], list[NodeName]] = {}
    for node in sorted(days):
        groups.setdefault((node[0], kinds.get(node)), []).append(node)
    rows = failures.order_by("end", "attempt_id").to_pyarrow().cast(FAILURES.arrow_schema)
    listed = rows.to_pylist()
    placed = _nodes_of(failures, allocations)
    return tuple(
        _stratum(cluster, kind, nodes, days, listed, placed, outage_starts_s)
        for (cluster, kind), nodes in groups.items()
    )


def _node_days(exposed: ibis.Table) -> dict[NodeName, float]:
    held = exposed.filter(exposed["node"].notnull() & (exposed["elapsed_s"] > 0))
    rows = held.group_by("cluster", "node").agg(seconds=held["elapsed_s"].sum()).to_pyarrow()
    return {
        (row["cluster"], row["node"]): row["seconds"] / SECONDS_PER_DAY for row in rows.to_pylist()
    }


def _kinds(inventory: ibis.Table) -> dict[NodeName, str | None]:
    columns = inventory.select("cluster", "node", "hardware_group", "gpu_type").to_pyarrow()
    return {
        (row["cluster"], row["node"]): row["hardware_group"] or row["gpu_type"]
        for row in columns.to_pylist()
    }


def _nodes_of(failures: ibis.Table, allocations: ibis.Table) -> dict[str, list[NodeName]]:
    """The nodes of failed attempts of which no node is blamed."""
    nobody = failures.filter(failures["node"].isnull()).select("attempt_id")
    rows = allocations.semi_join(nobody, "attempt_id").select("attempt_id", "cluster", "node")
    made: dict[str, list[NodeName]] = {}
    for row in rows.to_pyarrow().to_pylist():
        made.setdefault(row["attempt_id"], []).append((row["cluster"], row["node"]))
    return made


def _stratum(
    cluster: str,
    kind: str | None,
    nodes: Sequence[NodeName],
    days: dict[NodeName, float],
    rows: Sequence[dict[str, Any]],
    placed: dict[str, list[NodeName]],
    outage_starts_s: Mapping[NodeName, Sequence[float]] | None,
) -> Stratum:
    place = {node: position for position, node in enumerate(nodes)}
    exposure = np.array([days[node] for node in nodes])
    own = [row for row in rows if (row["cluster"], row["node"]) in place]
    weights, bursts = burst_weights(
        np.array([row["end"].timestamp() for row in own]),
        [row["node"] for row in own],
        len(own) / exposure.sum() * len(nodes),
    )
    named: list[list[BlamedFailure]] = [[] for _ in nodes]
    for row, weight in zip(own, weights.tolist(), strict=True):
        named[place[cluster, row["node"]]].append(_failure(row, weight))
    shared = []
    for row in rows:
        at = [place[node] for node in placed.get(row["attempt_id"], []) if node in place]
        if row["node"] is None and at:
            shared.append(SharedFailure(np.array(at, dtype=np.int64)))
    totals = np.array([sum(one.weight for one in failures) for failures in named])
    signals = {}
    if outage_starts_s is not None:
        idle = [_idle(outage_starts_s.get(node, ()), named[place[node]]) for node in nodes]
        signals[IDLE_OUTAGES] = np.array(idle, dtype=np.float64)
    return Stratum(
        cluster,
        kind,
        tuple(name for _, name in nodes),
        NodeCounts(exposure, totals, tuple(shared), signals),
        tuple(tuple(one) for one in named),
        bursts,
    )


def _idle(starts_s: Sequence[float], failures: Sequence[BlamedFailure]) -> int:
    """How many of a node's outages began far from the end of any job that it failed."""
    ends_s = [one.end_s for one in failures]
    return sum(all(abs(start_s - end_s) > SAME_S for end_s in ends_s) for start_s in starts_s)


def _failure(row: dict[str, Any], weight: float) -> BlamedFailure:
    return BlamedFailure(
        row["job_id"],
        row["attempt_id"],
        row["end"].timestamp(),
        row["symptom"],
        row["n_nodes"],
        weight,
    )


def burst_weights(
    times_s: Floats, nodes: Iterable[str], failures_per_day: float
) -> tuple[Floats, int]:
    """What each failure counts for: 1, or within a burst over n nodes 1 / n.

    A burst is a chain of failures at most `BURST_GAP_S` apart, on `BURST_NODES` nodes or more, that
    the fleet's own rate brings together with a chance below `BURST_CHANCE`.

    Args:
        times_s: when, in order, in seconds since 1970.
        nodes: which node each blames.
        failures_per_day: of the whole fleet, on average.
    """
    names = list(nodes)
    weights, bursts, first = np.ones(len(times_s)), 0, 0
    for at in range(1, len(times_s) + 1):
        if at < len(times_s) and times_s[at] - times_s[at - 1] <= BURST_GAP_S:
            continue
        members = names[first:at]
        span_days = (times_s[at - 1] - times_s[first] + BURST_GAP_S) / SECONDS_PER_DAY
        chance = stats.poisson.sf(len(members) - 2, failures_per_day * span_days)
        if len(set(members)) >= BURST_NODES and chance < BURST_CHANCE:
            weights[first:at] = 1 / len(set(members))
            bursts += 1
        first = at
    return weights, bursts
