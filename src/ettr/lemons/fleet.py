"""A store's failures by node, stratum by stratum: what the model of lemons is fitted to.

Failures of several nodes at nearly the same moment, more than chance brings together, are one
event of what they share: each of the nodes has a part of one failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from ettr.estimates.special import gammaincinv, pdtrc
from ettr.facts import Facts, made
from ettr.facts.stored import NO_GPUS, kinds_of_nodes
from ettr.lemons.model import (
    FleetSignals,
    Floats,
    NodeCounts,
    NodeName,
    SharedFailure,
    Times,
    apart,
)
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

BURST_GAP_S = 600.0
BURST_NODES = 3
BURST_CHANCE = 1e-3


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
        cells_node_days: Node-days by cell of time, shape (nodes, cells); no cell where no edges
            were given.
        spans_s: When each node was in service, shape (nodes, 2), in seconds since 1970; None where
            that is not known of all.
    """

    cluster: str
    hardware: str | None
    nodes: tuple[str, ...]
    counts: NodeCounts
    named: tuple[tuple[BlamedFailure, ...], ...]
    bursts: int
    earlier: frozenset[str] = frozenset()
    shared: tuple[tuple[str, float], ...] = ()
    signals_s: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    cells_node_days: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    spans_s: Floats | None = None

    def service_node_days(self, from_s: float = -np.inf, to_s: float = np.inf) -> Floats | None:
        """Days in service of each node within a period, shape (nodes,); None: not known."""
        if self.spans_s is None:
            return None
        inside = np.clip(self.spans_s, from_s, to_s)
        return np.asarray((inside[:, 1] - inside[:, 0]) / SECONDS_PER_DAY)


@dataclass(frozen=True, slots=True)
class UnplacedFailures:
    """Failures that speak for or against no node of the groups.

    Attributes:
        blame_unexposed_node: They blame a node on which no log shows that a job ran.
        without_nodes: They blame no node, and no log names a node of their job with exposure.
    """

    blame_unexposed_node: int
    without_nodes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where jobs ran and what failed without blame, read once for all who ask."""

    node_days: Mapping[NodeName, float]
    nodes_of: Mapping[str, Sequence[NodeName]]


def placement(facts: Facts, node_days: Mapping[NodeName, float]) -> Placement:
    """The nodes of a fleet and of its failures."""
    ran = {node: days for node, days in node_days.items() if days > 0}
    nodes_of: dict[str, list[NodeName]] = {}
    for row in facts.rows("unblamed_held"):
        nodes_of.setdefault(row["attempt_id"], []).append((row["cluster"], row["node"]))
    return Placement(ran, nodes_of)


def unplaced_failures(facts: Facts, placed: Placement) -> UnplacedFailures:
    """How many failures `strata` can put on no node; each of the others is in a stratum."""
    days, nodes_of = placed.node_days, placed.nodes_of
    rows = facts.rows("failures")
    nobody = [row["attempt_id"] for row in rows if row["node"] is None]
    return UnplacedFailures(
        sum(row["node"] is not None and (row["cluster"], row["node"]) not in days for row in rows),
        sum(not any(node in days for node in nodes_of.get(one, ())) for one in nobody),
    )


def strata(
    facts: Facts,
    placed: Placement,
    signals: FleetSignals | None = None,
    edges_s: Sequence[float] = (),
    workload_weights: Mapping[str, float] | None = None,
    service_s: Mapping[NodeName, tuple[float, float]] | None = None,
) -> tuple[Stratum, ...]:
    """The fleet by cluster and hardware; nodes that ran no job are left out.

    Args:
        signals: of the nodes, and their repairs: a node and what it was before are two nodes.
        workload_weights: part of each failed attempt that is put down to its nodes; 1 where
            absent.
    """
    lives = _Lives({} if signals is None else signals.repairs_s)
    held = _held_on_repaired(facts, lives, placed.node_days)
    days = lives.split_days(held, placed.node_days)
    cells = [
        lives.split_days(_cut(held, *cell), of_nodes)
        for cell, of_nodes in zip(
            pairwise(edges_s), _node_days_of_cells(facts, edges_s), strict=True
        )
    ]
    kinds = node_kinds(facts)
    groups: dict[tuple[str, str | None], list[NodeName]] = {}
    for node in sorted(days):
        groups.setdefault((node[0], kinds.get(lives.whole(node))), []).append(node)
    rows = sorted(facts.rows("failures"), key=lambda row: (row["end_us"], row["attempt_id"]))
    listed = [
        lives.of_failure({**row, "end_s": row["end_us"] / MICROSECONDS_PER_SECOND}) for row in rows
    ]
    ends_s = {row["attempt_id"]: row["end_s"] for row in listed}
    lived = {
        attempt_id: [lives.at(node, ends_s[attempt_id]) for node in nodes]
        for attempt_id, nodes in placed.nodes_of.items()
    }
    times_s = {} if signals is None else signals.times_s
    moved = {name: lives.of_times(times) for name, times in times_s.items()}
    weights = {} if workload_weights is None else workload_weights
    return tuple(
        _with_service(
            _stratum(cluster, kind, nodes, days, listed, lived, moved, weights),
            [lives.span_s(node, service_s or {}) for node in nodes],
            earlier=frozenset(name for _, name in nodes if lives.is_earlier((cluster, name))),
            cells_node_days=np.array(
                [[cell.get(node, 0.0) for cell in cells] for node in nodes], dtype=np.float64
            ),
        )
        for (cluster, kind), nodes in groups.items()
    )


def _with_service(
    group: Stratum,
    spans_s: Sequence[tuple[float, float] | None],
    earlier: frozenset[str],
    cells_node_days: Floats,
) -> Stratum:
    """The group with its nodes' time in service, where that is known of all."""
    known = [span for span in spans_s if span is not None]
    spans = np.array(known, dtype=np.float64) if len(known) == len(spans_s) else None
    made = replace(group, earlier=earlier, cells_node_days=cells_node_days, spans_s=spans)
    counts = replace(group.counts, service_node_days=made.service_node_days())
    return replace(made, counts=counts)


def without_nodes(group: Stratum, names: frozenset[str]) -> Stratum:
    """The group without some of its nodes; failures shared with them are the others' alone."""
    (kept,) = np.nonzero([name not in names for name in group.nodes])
    if len(kept) == len(group.nodes):
        return group
    place = np.full(len(group.nodes), -1)
    place[kept] = np.arange(len(kept))
    counts, shared = group.counts, []
    for at, one in zip(group.shared, group.counts.shared, strict=True):
        nodes = place[one.nodes]
        if (nodes >= 0).any():
            shared.append((at, replace(one, nodes=nodes[nodes >= 0])))
    return replace(
        group,
        nodes=tuple(group.nodes[at] for at in kept),
        counts=counts.of_nodes(kept, [one for _, one in shared]),
        named=tuple(group.named[at] for at in kept),
        shared=tuple(at for at, _ in shared),
        signals_s={n: tuple(some[at] for at in kept) for n, some in group.signals_s.items()},
        cells_node_days=group.cells_node_days[kept]
        if group.cells_node_days.size
        else np.zeros((0, 0)),
        spans_s=None if group.spans_s is None else group.spans_s[kept],
    )


class _Lives:
    """A node before and after a repair: two names, of which the later one is the node's own."""

    def __init__(self, repairs_s: Times) -> None:
        self._repairs_s = repairs_s
        self._whole: dict[NodeName, NodeName] = {}
        self._until_s: dict[NodeName, float] = {}

    def at(self, node: NodeName, time_s: float) -> NodeName:
        """The node as it was at that moment."""
        later = [one for one in self._repairs_s.get(node, ()) if one >= time_s]
        if not later:
            return node
        day = datetime.fromtimestamp(min(later), UTC).strftime("%Y-%m-%d %H:%M:%S")
        earlier = (node[0], f"{node[1]} until {day}")
        self._whole[earlier], self._until_s[earlier] = node, min(later)
        return earlier

    def whole(self, node: NodeName) -> NodeName:
        """The node that a name of an earlier life belongs to."""
        return self._whole.get(node, node)

    def is_earlier(self, node: NodeName) -> bool:
        return node in self._whole

    def span_s(
        self, node: NodeName, service_s: Mapping[NodeName, tuple[float, float]]
    ) -> tuple[float, float] | None:
        """When a node was in service in this life; None where that is not known."""
        whole = self.whole(node)
        if whole not in service_s:
            return None
        until_s = self._until_s.get(node, np.inf)
        from_s = max(
            (one for one in self._repairs_s.get(whole, ()) if one < until_s), default=-np.inf
        )
        begin_s, end_s = (min(max(one, from_s), until_s) for one in service_s[whole])
        return begin_s, end_s

    def of_failure(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["node"] is None:
            return row
        return {**row, "node": self.at((row["cluster"], row["node"]), row["end_s"])[1]}

    def of_times(self, times_s: Times) -> dict[NodeName, list[float]]:
        made: dict[NodeName, list[float]] = {}
        for node, some in times_s.items():
            if some and node not in self._repairs_s:
                made.setdefault(node, []).extend(some)
                continue
            for time_s in some:
                made.setdefault(self.at(node, time_s), []).append(time_s)
        return made

    def repaired(self, nodes: Iterable[NodeName]) -> list[NodeName]:
        """Those of the nodes that were repaired, in order."""
        return sorted(node for node in nodes if self._repairs_s.get(node))

    def split_days(
        self, held: Iterable[_Held], days: Mapping[NodeName, float]
    ) -> dict[NodeName, float]:
        """Node-days by life; those of a job that ran across a repair are divided at it."""
        split = {node: some for node, some in days.items() if not self._repairs_s.get(node)}
        for node, start_s, elapsed_s in held:
            end_s = start_s + elapsed_s
            cuts_s = sorted(self._repairs_s[node])
            edges_s = [start_s, *(cut for cut in cuts_s if start_s < cut < end_s), end_s]
            for first_s, last_s in pairwise(edges_s):
                # the middle lies in one life; an edge may be a repair
                life = self.at(node, (first_s + last_s) / 2)
                split[life] = split.get(life, 0.0) + (last_s - first_s) / SECONDS_PER_DAY
        return split


_Held = tuple[NodeName, float, float]
"""A node, when an attempt began to run on it, and for how many seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Nodes or edges as facts take them: distinguished from others by identity."""

    values: Sequence[Any]


@made("repaired_nodes", (("cluster", "VARCHAR"), ("node", "VARCHAR")), takes=("repaired",))
def _repaired_nodes(facts: Facts) -> list[tuple[object, ...]]:
    return list(facts.given("repaired").values)


@made(
    "time_cells", (("cell", "BIGINT"), ("from_s", "DOUBLE"), ("to_s", "DOUBLE")), takes=("edges",)
)
def _time_cells(facts: Facts) -> list[tuple[object, ...]]:
    return [(cell, *edges) for cell, edges in enumerate(pairwise(facts.given("edges").values))]


def _held_on_repaired(facts: Facts, lives: _Lives, nodes: Iterable[NodeName]) -> list[_Held]:
    """What ran on the nodes that were repaired and when."""
    repaired = lives.repaired(nodes)
    if not repaired:
        return []
    rows = facts.under(repaired=_Asked(repaired)).rows("held_on_repaired")
    return sorted(
        ((row["cluster"], row["node"]), row["start_us"] / MICROSECONDS_PER_SECOND, row["elapsed_s"])
        for row in rows
    )


def _node_days_of_cells(facts: Facts, edges_s: Sequence[float]) -> list[dict[NodeName, float]]:
    """Node-days of each node that ran a job in each cell."""
    found: list[dict[NodeName, float]] = [{} for _ in edges_s[1:]]
    if found:
        for row in facts.under(edges=_Asked(edges_s)).rows("node_cells"):
            found[row["cell"]][row["cluster"], row["node"]] = row["held_s"] / SECONDS_PER_DAY
    return found


def _cut(held: Iterable[_Held], from_s: float, to_s: float) -> list[_Held]:
    """The parts of what ran within a cell of time, from whole seconds on."""
    cut = []
    for node, start_s, elapsed_s in held:
        begun_s = max(start_s // 1, from_s)
        inside_s = min(start_s // 1 + elapsed_s, to_s) - begun_s
        if inside_s > 0:
            cut.append((node, float(round(begun_s)), inside_s))
    return cut


def node_kinds(facts: Facts) -> dict[NodeName, str | None]:
    """What the nodes are compared by: the group that the inventory names, or the GPU model."""
    kinds = {
        node: kind if has_gpus else NO_GPUS
        for node, (has_gpus, kind) in kinds_of_nodes(facts).items()
    }
    groups = facts.distinct("nodes", "cluster", "node", "hardware_group")
    return kinds | {(cluster, node): group for cluster, node, group in groups if group}


def _stratum(
    cluster: str,
    kind: str | None,
    nodes: Sequence[NodeName],
    days: dict[NodeName, float],
    rows: Sequence[dict[str, Any]],
    placed: dict[str, list[NodeName]],
    times_s: Mapping[str, Times],
    workload_weights: Mapping[str, float],
) -> Stratum:
    place = {node: position for position, node in enumerate(nodes)}
    exposure = np.array([days[node] for node in nodes])
    own = [row for row in rows if (row["cluster"], row["node"]) in place]
    weights, bursts = burst_weights(
        np.array([row["end_s"] for row in own]),
        [row["node"] for row in own],
        len(own) / exposure.sum() * len(nodes),
    )
    named: list[list[BlamedFailure]] = [[] for _ in nodes]
    for row, weight in zip(own, weights.tolist(), strict=True):
        named[place[cluster, row["node"]]].append(
            BlamedFailure(
                row["job_id"],
                row["attempt_id"],
                row["end_s"],
                row["symptom"],
                row["n_nodes"],
                weight,
            )
        )
    shared, shared_at = [], []
    for row in rows:
        at = [place[node] for node in placed.get(row["attempt_id"], []) if node in place]
        if row["node"] is None and at:
            weight = workload_weights.get(row["attempt_id"], 1.0)
            shared.append(SharedFailure(np.array(at, dtype=np.int64), weight))
            shared_at.append((row["attempt_id"], row["end_s"]))
    totals = np.array([sum(one.weight for one in failures) for failures in named])
    signals_s = {
        name: tuple(
            apart(name, some.get(node, ()), [one.end_s for one in named[place[node]]])
            for node in nodes
        )
        for name, some in times_s.items()
    }
    signals = {
        name: np.array([len(some) for some in by_node], dtype=np.float64)
        for name, by_node in signals_s.items()
    }
    return Stratum(
        cluster,
        kind,
        tuple(name for _, name in nodes),
        NodeCounts(exposure, totals, tuple(shared), signals),
        tuple(tuple(one) for one in named),
        bursts,
        shared=tuple(shared_at),
        signals_s=signals_s,
    )


def burst_weights(
    times_s: Floats, nodes: Iterable[str], failures_per_day: float
) -> tuple[Floats, int]:
    """What each failure counts for: 1, or within a burst over n nodes 1 / n.

    A burst is a chain of failures at most `BURST_GAP_S` apart, on `BURST_NODES` nodes or more,
    that the fleet's own rate brings together with a chance below `BURST_CHANCE`.
    """
    names = list(nodes)
    weights, bursts, first = np.ones(len(times_s)), 0, 0
    for at in range(1, len(times_s) + 1):
        if at < len(times_s) and times_s[at] - times_s[at - 1] <= BURST_GAP_S:
            continue
        members = names[first:at]
        span_days = (times_s[at - 1] - times_s[first] + BURST_GAP_S) / SECONDS_PER_DAY
        more = len(members) - 2
        chance = 1.0 if more < 0 else float(pdtrc(more, failures_per_day * span_days))
        if len(set(members)) >= BURST_NODES and chance < BURST_CHANCE:
            weights[first:at] = 1 / len(set(members))
            bursts += 1
        first = at
    return weights, bursts


# -- Failures that a workload brings with it: one user's bug is no fault of the nodes it runs on --
#
# Where a user's jobs fail like that far more often, by their node-days, than those of all
# others, the part above the others' rate is put down to the workload, and only the rest is
# divided among the nodes.

PRIOR_FAILURES = 1.0
"""Weight of equal users before the data, in failures."""
SURE = 0.95
"""Probability with which a user's rate is over the multiple that is taken off."""


def workload_parts(failures: Floats, node_days: Floats) -> Floats:
    """The part of each user's unplaced failures that is put down to nodes, shape (users,).

    It is 1 over the multiple of the others' rate that the user's rate is over with probability
    `SURE`, and 1 where that is below 1: few failures are nobody's workload.
    """
    others = failures.sum() - failures
    other_days = np.maximum(node_days.sum() - node_days, 1e-9)
    expected = node_days * (others + PRIOR_FAILURES / 2) / other_days
    least = gammaincinv(failures + PRIOR_FAILURES, 1 - SURE) / (expected + PRIOR_FAILURES)
    return np.asarray(1 / np.maximum(least, 1.0), dtype=np.float64)


# -- Groups of nodes of logs without jobs: faults of nodes by their time in service ---------------

FaultAt = tuple[NodeName, float, str]
"""Node, beginning in seconds since 1970, and category of a fault."""


def fault_strata(
    spans_s: Mapping[NodeName, tuple[float, float]],
    faults: Sequence[FaultAt],
    kinds: Mapping[NodeName, str | None],
    edges_s: Sequence[float] = (),
) -> tuple[Stratum, ...]:
    """Groups whose failures are the faults of the nodes, each placed by the log that records it."""
    groups: dict[tuple[str, str | None], list[NodeName]] = {}
    for node in sorted(one for one, (start_s, end_s) in spans_s.items() if end_s > start_s):
        groups.setdefault((node[0], kinds.get(node)), []).append(node)
    ordered = sorted(faults, key=lambda one: one[1])
    return tuple(
        _group(cluster, kind, nodes, spans_s, ordered, edges_s)
        for (cluster, kind), nodes in groups.items()
    )


def _group(
    cluster: str,
    kind: str | None,
    nodes: Sequence[NodeName],
    spans_s: Mapping[NodeName, tuple[float, float]],
    faults: Sequence[FaultAt],
    edges_s: Sequence[float],
) -> Stratum:
    place = {node: at for at, node in enumerate(nodes)}
    spans = np.array([spans_s[node] for node in nodes])
    own = [one for one in faults if one[0] in place]
    days = (spans[:, 1] - spans[:, 0]) / SECONDS_PER_DAY
    weights, bursts = burst_weights(
        np.array([at_s for _, at_s, _ in own], dtype=np.float64),
        [name for (_, name), _, _ in own],
        len(own) / days.sum() * len(nodes),
    )
    named: list[list[BlamedFailure]] = [[] for _ in nodes]
    for (node, at_s, category), weight in zip(own, weights.tolist(), strict=True):
        named[place[node]].append(BlamedFailure("", "", at_s, category, None, weight))
    cells = [
        np.clip(np.minimum(spans[:, 1], to_s) - np.maximum(spans[:, 0], from_s), 0.0, None)
        for from_s, to_s in pairwise(edges_s)
    ]
    totals = np.array([sum(one.weight for one in some) for some in named], dtype=np.float64)
    return Stratum(
        cluster,
        kind,
        tuple(name for _, name in nodes),
        NodeCounts(days, totals),
        tuple(tuple(one) for one in named),
        bursts,
        cells_node_days=np.stack(cells, axis=1) / SECONDS_PER_DAY if cells else np.zeros((0, 0)),
    )
