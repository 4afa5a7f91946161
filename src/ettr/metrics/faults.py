"""Fault rates of a fleet: how often its nodes break, whether or not a job ran on them.

Some logs record faults as such, each with its end (`recorded_faults`). From others they are put
together: the critical errors and unplanned outages of one node that follow each other within a gap
are one fault (`observed_faults`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import ibis
import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.spread import FleetSpread, Spread
from ettr.metrics.availability import Service
from ettr.metrics.instants import Floats, Period, fetch, seconds_of, to_seconds
from ettr.metrics.outages import Outage
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, estimated_rate, part_rate
from ettr.metrics.survival import Durations, durations
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

FAULT_CHECKS = ("infinitehbd", "lanl", "fault")
"""Checks of which each event is one fault; `fault` is for tables of a site's own."""
UNKNOWN_CATEGORY = "unknown"
_WITH_ENDS = frozenset({"infinitehbd", "lanl"})
"""Sources that record ends: there a fault without one is not over. Elsewhere it is a moment."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """One fault of one node, times in seconds since 1970.

    Attributes:
        cluster: Of the node.
        node: Which; None where the log names none.
        category: What kind of fault.
        start_s: When it began.
        down_s: How long the node was out of service for it so far; None where no log says.
        is_over: Whether that time has ended.
        has_error: Whether an error of the node was seen.
        has_outage: Whether the node went out of service.
    """

    cluster: str
    node: str | None
    category: str
    start_s: float
    down_s: float | None
    is_over: bool
    has_error: bool
    has_outage: bool


@dataclass(frozen=True, slots=True)
class NodeError:
    """One episode of a critical error of a node, times in seconds since 1970."""

    cluster: str
    node: str
    symptom: str
    rank: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class CategoryFaults:
    """Faults of one category: their share, rate and time to repair."""

    category: str
    share: Interval
    in_service: EstimatedRate
    repair_h: Durations


@dataclass(frozen=True, slots=True)
class FaultEvidence:
    """What faults rest on.

    Attributes:
        error_and_outage: An error was seen and the node went out of service.
        error_only: An error was seen.
        outage_only: The node went out of service, and no error was found.
    """

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


SpreadOfFaults = Callable[[Floats, dict[tuple[str, str | None], int]], FleetSpread]
"""From when faults began (seconds since 1970) and how many each node had, to their spread."""


def recorded_faults(
    events: ibis.Table, period: Period, checks: tuple[str, ...] = FAULT_CHECKS
) -> tuple[NodeFault, ...]:
    """The faults of logs that record faults, each with its category: its code up to a slash.

    Args:
        events: observations; each of the named checks is one fault, with its end where it is over.
        period: a fault that is not over has lasted until its end.
        checks: which checks record faults. Raw messages such as XIDs are not among them: one
            fault may write any number of them.
    """
    recorded = events.filter(events["check"].isin(list(checks)))
    rows = fetch(recorded, "cluster", "node", "code", "source", "time", "time_end")
    starts_s, ends_s = seconds_of(rows["time"]), seconds_of(rows["time_end"])
    until_s = to_seconds(period.end)
    return tuple(
        NodeFault(
            cluster,
            node,
            (code or UNKNOWN_CATEGORY).split("/", 1)[0] or UNKNOWN_CATEGORY,
            start_s,
            _down_s(start_s, end_s, until_s, has_ends=source in _WITH_ENDS),
            is_over=not np.isnan(end_s),
            has_error=True,
            has_outage=False,
        )
        for cluster, node, code, source, start_s, end_s in zip(
            *(rows[name].to_pylist() for name in ("cluster", "node", "code", "source")),
            starts_s.tolist(),
            ends_s.tolist(),
            strict=True,
        )
    )


def _down_s(start_s: float, end_s: float, until_s: float, *, has_ends: bool) -> float | None:
    if not np.isnan(end_s):
        return max(end_s - start_s, 0.0)
    return max(until_s - start_s, 0.0) if has_ends else None


def observed_faults(
    errors: Iterable[NodeError], outages: Iterable[Outage], gap_s: float
) -> tuple[NodeFault, ...]:
    """Faults put together from errors and unplanned outages of nodes, in order of node and time.

    What follows on one node within `gap_s` of what came before belongs to the same fault. Its
    category is the symptom of its strongest error; without any, the class of the outage's reason.

    Args:
        errors: episodes of critical errors.
        outages: outages of nodes; planned ones are no faults.
        gap_s: the longest silence within one fault, in seconds.
    """
    seen: list[NodeError | Outage] = [*errors]
    seen += [outage for outage in outages if not outage.is_planned]
    parts: list[_Part] = [
        (one.cluster, one.node, one.start_s, max(one.start_s, one.end_s), one) for one in seen
    ]
    parts.sort(key=lambda part: part[:4])
    return tuple(
        _joined([part[4] for part in members])
        for _, own in groupby(parts, key=lambda part: part[:2])
        for members in _in_groups(list(own), gap_s)
    )


_Part = tuple[str, str, float, float, NodeError | Outage]


def _in_groups(parts: list[_Part], gap_s: float) -> Iterator[list[_Part]]:
    group, reach_s = [parts[0]], parts[0][3]
    for part in parts[1:]:
        if part[2] > reach_s + gap_s:
            yield group
            group = []
        group.append(part)
        reach_s = max(reach_s, part[3])
    yield group


def _joined(parts: list[NodeError | Outage]) -> NodeFault:
    only = parts[0]
    if len(parts) == 1 and isinstance(only, NodeError):
        # most faults by far
        return NodeFault(
            only.cluster,
            only.node,
            only.symptom,
            only.start_s,
            None,
            is_over=True,
            has_error=True,
            has_outage=False,
        )
    errors = [part for part in parts if isinstance(part, NodeError)]
    down = [part for part in parts if isinstance(part, Outage)]
    if errors:
        category = min(errors, key=lambda error: (error.rank, error.start_s)).symptom
    else:
        category = down[0].reason_class
    return NodeFault(
        parts[0].cluster,
        parts[0].node,
        category,
        min(part.start_s for part in parts),
        sum(outage.end_s - outage.start_s for outage in down) if down else None,
        is_over=not any(outage.is_open for outage in down),
        has_error=bool(errors),
        has_outage=bool(down),
    )


def fleet_faults(
    faults: tuple[NodeFault, ...],
    fleet: Service,
    *,
    confidence: float = CONFIDENCE,
    spread_of: SpreadOfFaults | None = None,
    observed: bool = False,
) -> FleetFaults | None:
    """Fault rates by category, and time to repair of each fault; None without any fault.

    Args:
        faults: as `recorded_faults` or `observed_faults` gives them.
        fleet: nodes and their time in service (`availability.service`).
        confidence: of the intervals, between 0 and 1.
        spread_of: how faults cluster; the intervals are exact where None.
        observed: whether they were put together from errors and outages.
    """
    if not faults:
        return None
    starts_s = np.array([fault.start_s for fault in faults])
    owners = Counter((fault.cluster, fault.node) for fault in faults)
    clustering = None if spread_of is None else spread_of(starts_s, dict(owners))
    spread = None if clustering is None else clustering.believed
    node_days = fleet.node_s / SECONDS_PER_DAY
    total = estimated_rate(len(faults), node_days, confidence, spread)
    parts = _by_category(faults, total, confidence, spread)
    return FleetFaults(
        nodes=len(fleet.spans_s),
        faults=len(faults),
        node_mtbf_days=_mtbf_days(total, fleet.is_known),
        in_service=_bounded(total, fleet.is_known),
        by_category=tuple(part if fleet.is_known else _bounded_part(part) for part in parts),
        repair_h=_repair(faults, confidence),
        gap_variation=_variation(np.diff(np.sort(starts_s))),
        node_dispersion=_dispersion(owners, fleet) if fleet.is_known else None,
        clustering=clustering,
        basis="observed" if observed else "records",
        evidence=_evidence(faults) if observed else None,
        fleet_is_known=fleet.is_known,
    )


def _evidence(faults: tuple[NodeFault, ...]) -> FaultEvidence:
    return FaultEvidence(
        error_and_outage=sum(fault.has_error and fault.has_outage for fault in faults),
        error_only=sum(fault.has_error and not fault.has_outage for fault in faults),
        outage_only=sum(not fault.has_error for fault in faults),
    )


def _repair(faults: Iterable[NodeFault], confidence: float) -> Durations:
    """Repair times of the faults of which a log says how long the node was away."""
    known = [fault for fault in faults if fault.down_s is not None]
    hours = np.array([(fault.down_s or 0.0) / SECONDS_PER_HOUR for fault in known])
    over = np.array([fault.is_over for fault in known], dtype=np.bool_)
    return durations(hours, over, confidence)


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
    faults: tuple[NodeFault, ...],
    total: EstimatedRate,
    confidence: float,
    spread: Spread | None,
) -> tuple[CategoryFaults, ...]:
    """The faults of each category, the most frequent first."""
    counts = Counter(fault.category for fault in faults)
    return tuple(
        CategoryFaults(
            category=name,
            share=share_interval(count, total.failures, confidence),
            in_service=part_rate(count, total.node_days, total.failures, confidence, spread),
            repair_h=_repair([one for one in faults if one.category == name], confidence),
        )
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def _mtbf_days(rate: EstimatedRate, is_known: bool) -> Interval:
    """Days between faults of a node; a lower bound where nodes may be missing."""
    if rate.node_days <= 0:
        return Interval.unknown()
    return _bounded(rate, is_known).per_1000_node_days.inverse(PER_NODE_DAYS)


def _variation(gaps_s: Floats) -> float | None:
    if len(gaps_s) < 2 or gaps_s.mean() <= 0:
        return None
    return float(gaps_s.std(ddof=1) / gaps_s.mean())


def _dispersion(owners: Counter[tuple[str, str | None]], fleet: Service) -> float | None:
    """Variance over mean of the faults of each node, nodes without any included."""
    counts = np.array([owners[name] for name in fleet.spans_s], dtype=float)
    if len(counts) < 2 or counts.mean() <= 0:
        return None
    return float(counts.var(ddof=1) / counts.mean())
