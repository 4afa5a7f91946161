"""Who is to blame for each failure: a weight for each node, and one for no node at all.

A node that a log names has all of the weight. Within a burst over n nodes it has 1 / n of it, and
what the nodes share has the rest. A failure that names no node is divided among the nodes of the
attempt by the rates that the model of lemons gives them, those of today where a node was repaired
since; where no log names its nodes, no node is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ettr.lemons.fleet import Stratum
from ettr.lemons.model import LemonFit
from ettr.lemons.signals import NodeName

NAMED, BURST, SHARED, NOBODY, WORKLOAD = "named", "burst", "shared", "nobody", "workload"
"""Grounds of a weight: a log names the node; what the nodes of a burst share; divided; no node is
known; a user whose jobs fail far more often than those of others."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A node's part of one failure; `node` None is no node of the attempt."""

    cluster: str
    attempt_id: str
    node: str | None
    weight: float
    basis: str


@dataclass(frozen=True, slots=True)
class PlacedFailure:
    """A failure, the node that it names, and the nodes of its attempt."""

    cluster: str
    attempt_id: str
    named: str | None
    nodes: tuple[str, ...]


def rates_of(fleet: Sequence[Stratum], fits: Sequence[LemonFit | None]) -> dict[NodeName, float]:
    """Failures per node-day of each node as the model has it; those of groups without one alike."""
    rates = {}
    for group, fit in zip(fleet, fits, strict=True):
        if fit is None:
            days = group.counts.exposure_node_days.sum()
            count = group.counts.named.sum() + sum(one.weight for one in group.counts.shared)
            rates.update(dict.fromkeys(_names(group), float(max(count, 0.5) / days)))
        else:
            own = fit.bulk_per_node_day * fit.mean_theta
            rates.update(zip(_names(group), own.tolist(), strict=True))
    return rates


def _names(group: Stratum) -> list[NodeName]:
    return [(group.cluster, name) for name in group.nodes]


def blame(
    failures: Iterable[PlacedFailure],
    rates: Mapping[NodeName, float],
    burst_parts: Mapping[str, float],
    workload_parts: Mapping[str, float],
) -> list[Blame]:
    """The weights of each failure, which sum to one.

    Args:
        rates: of the nodes, per node-day; nodes without one get no part where others have one.
        burst_parts: by attempt, the part of the node that a failure within a burst names.
    """
    made: list[Blame] = []
    for one in failures:
        parts = burst_parts if one.named is not None else workload_parts
        made += _blamed(one, rates, parts.get(one.attempt_id, 1.0))
    return made


def _blamed(one: PlacedFailure, rates: Mapping[NodeName, float], part: float) -> list[Blame]:
    head = (one.cluster, one.attempt_id)
    if one.named is not None:
        named = Blame(*head, one.named, part, NAMED)
        return [named] if part == 1.0 else [named, Blame(*head, None, 1.0 - part, BURST)]
    if not one.nodes:
        return [Blame(*head, None, 1.0, NOBODY)]
    own = [rates.get((one.cluster, node), 0.0) for node in one.nodes]
    total = sum(own)
    if not total:
        own, total = [1.0] * len(own), float(len(own))
    made = [
        Blame(*head, node, part * rate / total, SHARED)
        for node, rate in zip(one.nodes, own, strict=True)
    ]
    return made if part == 1.0 else [*made, Blame(*head, None, 1.0 - part, WORKLOAD)]
