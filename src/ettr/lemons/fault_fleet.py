"""Groups of nodes of logs without jobs: faults of nodes by their time in service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ettr.lemons.fleet import BlamedFailure, Stratum, burst_weights
from ettr.lemons.model import NodeCounts
from ettr.lemons.signals import NodeName
from ettr.units import SECONDS_PER_DAY

FaultAt = tuple[NodeName, float, str]
"""Node, beginning in seconds since 1970, and category of a fault."""


def fault_strata(
    spans_s: Mapping[NodeName, tuple[float, float]],
    faults: Sequence[FaultAt],
    kinds: Mapping[NodeName, str | None],
    edges_s: Sequence[float] = (),
) -> tuple[Stratum, ...]:
    """Groups whose failures are the faults of the nodes, each placed by the log that records it.

    Args:
        spans_s: when each node was in service, in seconds since 1970.
    """
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
