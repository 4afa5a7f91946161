"""Fault rates of a fleet: how often its nodes break, whether or not a job ran on them.

Some logs record faults as such, each with its end (`faults_of_nodes.recorded_faults`). From others
they are put together: the critical errors and unplanned outages of one node that follow each other
within a gap are one fault (`faults_of_nodes.observed_faults`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.spread import FleetSpread, Spread
from ettr.metrics.availability import Service
from ettr.metrics.faults_of_nodes import Flags, NodeFaults, NodeKey
from ettr.metrics.instants import Floats
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, estimated_rate, symptom_rate
from ettr.metrics.survival import Durations, durations
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class CategoryFaults:
    """Faults of one category: their share, rate and time to repair."""

    category: str
    share: Interval
    in_service: EstimatedRate
    repair_h: Durations


@dataclass(frozen=True, slots=True)
class FaultEvidence:
    """What faults rest on."""

    error_and_outage: int
    error_only: int
    outage_only: int


@dataclass(frozen=True, slots=True)
class FleetFaults:
    """Faults per 1,000 node-days in service.

    The intervals admit the clustering of the faults (`clustering`). `gap_variation` is the
    coefficient of variation of the times between faults of the fleet, and `node_dispersion` the
    variance of the counts of nodes over their mean: both are 1 for independent faults of equal
    nodes. `basis` is `records` where a log records faults as such, else `observed`; then `evidence`
    says what they rest on. Where `fleet_is_known` is false only nodes with trouble are named: the
    rate has an upper end and no estimate.
    """

    nodes: int
    faults: int
    node_mtbf_days: Interval
    in_service: EstimatedRate
    by_category: tuple[CategoryFaults, ...]
    repair_h: Durations
    gap_variation: float | None
    node_dispersion: float | None
    clustering: FleetSpread | None = None
    basis: str = "records"
    evidence: FaultEvidence | None = None
    fleet_is_known: bool = True


SpreadOfFaults = Callable[[Floats, dict[NodeKey, int]], FleetSpread]
"""From when faults began (seconds since 1970) and how many each node had, to their spread."""


def fleet_faults(
    faults: NodeFaults,
    fleet: Service,
    *,
    confidence: float = CONFIDENCE,
    spread_of: SpreadOfFaults | None = None,
    observed: bool = False,
) -> FleetFaults | None:
    """Fault rates by category, and time to repair of each fault; None without any fault.

    Args:
        spread_of: how faults cluster; the intervals are exact where None.
    """
    if not len(faults):
        return None
    counts = faults.by_node
    clustering = None if spread_of is None else spread_of(faults.start_s, counts)
    spread = None if clustering is None else clustering.believed
    node_days = fleet.node_s / SECONDS_PER_DAY
    total = estimated_rate(len(faults), node_days, confidence, spread)
    parts = _by_category(faults, total, confidence, spread, spread_of)
    return FleetFaults(
        nodes=len(fleet.spans_s),
        faults=len(faults),
        node_mtbf_days=_mtbf_days(total, fleet.is_known),
        in_service=_bounded(total, fleet.is_known),
        by_category=tuple(part if fleet.is_known else _bounded_part(part) for part in parts),
        repair_h=_repair(faults.down_s, faults.is_over, confidence),
        gap_variation=_variation(np.diff(np.sort(faults.start_s))),
        node_dispersion=_dispersion(counts, fleet) if fleet.is_known else None,
        clustering=clustering,
        basis="observed" if observed else "records",
        evidence=_evidence(faults) if observed else None,
        fleet_is_known=fleet.is_known,
    )


def _evidence(faults: NodeFaults) -> FaultEvidence:
    both = faults.has_error & faults.has_outage
    return FaultEvidence(
        error_and_outage=int(both.sum()),
        error_only=int((faults.has_error & ~both).sum()),
        outage_only=int((~faults.has_error).sum()),
    )


def _repair(down_s: Floats, is_over: Flags, confidence: float) -> Durations:
    """Repair times of the faults of which a log says how long the node was away."""
    known = ~np.isnan(down_s)
    return durations(down_s[known] / SECONDS_PER_HOUR, is_over[known], confidence)


def _bounded(rate: EstimatedRate, is_known: bool) -> EstimatedRate:
    """The rate where more nodes may have been in service than are named: at most its upper end."""
    if is_known:
        return rate
    return EstimatedRate(
        rate.failures,
        rate.node_days,
        Interval(None, 0.0, rate.per_1000_node_days.high),
        Interval(None, 0.0, rate.exact_per_1000_node_days.high),
    )


def _bounded_part(part: CategoryFaults) -> CategoryFaults:
    return replace(part, in_service=_bounded(part.in_service, False))


def _by_category(
    faults: NodeFaults,
    total: EstimatedRate,
    confidence: float,
    spread: Spread | None,
    spread_of: SpreadOfFaults | None,
) -> tuple[CategoryFaults, ...]:
    """The faults of each category, the most frequent first; intervals as of `symptom_rate`."""
    counts = Counter(faults.category.tolist())
    found = []
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        own = faults.category == name
        theirs = faults.only(own)
        alone = None if spread_of is None else spread_of(theirs.start_s, theirs.by_node).believed
        rate = symptom_rate(count, total.node_days, total.failures, confidence, spread, alone)
        found.append(
            CategoryFaults(
                category=name,
                share=share_interval(count, total.failures, confidence),
                in_service=rate,
                repair_h=_repair(theirs.down_s, theirs.is_over, confidence),
            )
        )
    return tuple(found)


def _mtbf_days(rate: EstimatedRate, is_known: bool) -> Interval:
    """Days between faults of a node; a lower bound where nodes may be missing."""
    if rate.node_days <= 0:
        return Interval.unknown()
    return _bounded(rate, is_known).per_1000_node_days.inverse(PER_NODE_DAYS)


def _variation(gaps_s: Floats) -> float | None:
    if len(gaps_s) < 2 or gaps_s.mean() <= 0:
        return None
    return float(gaps_s.std(ddof=1) / gaps_s.mean())


def _dispersion(faults: Mapping[NodeKey, int], fleet: Service) -> float | None:
    """Variance over mean of the faults of each node, nodes without any included."""
    counts = np.array([faults.get(node, 0) for node in fleet.spans_s], dtype=float)
    if len(counts) < 2 or counts.mean() <= 0:
        return None
    return float(counts.var(ddof=1) / counts.mean())
