"""Fault rates of a fleet: how often its nodes break, whether or not a job ran on them.

Some logs record faults as such, each with its end (`recorded_faults`). From others
they are put together: the critical errors and unplanned outages of one node that follow each other
within a gap are one fault (`observed_faults`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.spread import FleetSpread, Spread
from ettr.facts import Facts
from ettr.metrics.availability import Service
from ettr.metrics.instants import Floats, Period, to_seconds
from ettr.metrics.outages import Outage
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, estimated_rate, symptom_rate
from ettr.metrics.survival import Durations, durations
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

# -- Faults of nodes, one after another: as logs record them, or put together from errors and
#    outages
#
# They are columns, not objects: a fleet has hundreds of thousands.

Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Places = npt.NDArray[np.int64]
NodeKey = tuple[str, str | None]
"""Cluster and node; the node is None where the log names none."""

UNKNOWN_CATEGORY = "unknown"
_WITH_ENDS = frozenset({"infinitehbd", "lanl"})
"""Sources that record ends: there a fault without one is not over. Elsewhere it is a moment."""
_NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Faults of nodes, a column for each fact; all columns are of one length.

    Attributes:
        node: Place in `nodes` of the node of each fault.
        down_s: How long the node was out of service for it so far; NaN where no log says.
    """

    nodes: tuple[NodeKey, ...]
    node: Places
    category: Texts
    start_s: Floats
    down_s: Floats
    is_over: Flags
    has_error: Flags
    has_outage: Flags

    def __len__(self) -> int:
        return len(self.node)

    @property
    def by_node(self) -> dict[NodeKey, int]:
        """How many faults each node had that had any."""
        counts = np.bincount(self.node, minlength=len(self.nodes)).tolist()
        return {node: n for node, n in zip(self.nodes, counts, strict=True) if n}

    def of_nodes(self, wanted: Sequence[bool]) -> NodeFaults:
        """Those of some of the nodes, one flag for each of `nodes`."""
        return self.only(np.asarray(wanted, dtype=np.bool_)[self.node])

    def only(self, kept: Flags) -> NodeFaults:
        """Those with a flag that is true, one flag for each fault."""
        return NodeFaults(
            self.nodes,
            self.node[kept],
            self.category[kept],
            self.start_s[kept],
            self.down_s[kept],
            self.is_over[kept],
            self.has_error[kept],
            self.has_outage[kept],
        )


def recorded_faults(facts: Facts, period: Period) -> NodeFaults:
    """The faults of logs that record faults, each with its category: its code up to a slash.

    Each event of their checks (`infinitehbd`, `lanl`, and `fault` for tables of a site's own) is
    one fault, with its end where it is over. Raw messages such as XIDs are not among them: one
    fault may write any number of them.
    """
    rows = facts.columns("recorded_faults")
    nodes, node = _distinct(rows["cluster"].tolist(), rows["node"].tolist())
    start_s, end_s = (rows[name] / MICROSECONDS_PER_SECOND for name in ("time_us", "time_end_us"))
    is_over = ~np.isnan(end_s)
    has_ends = np.array([one in _WITH_ENDS for one in rows["source"].tolist()], dtype=np.bool_)
    until_s = np.where(is_over, end_s, np.where(has_ends, to_seconds(period.end), np.nan))
    return NodeFaults(
        nodes=nodes,
        node=node,
        category=np.array(
            [(code or "").split("/", 1)[0] or UNKNOWN_CATEGORY for code in rows["code"].tolist()],
            dtype=object,
        ),
        start_s=start_s,
        down_s=np.maximum(until_s - start_s, 0.0),
        is_over=is_over,
        has_error=np.ones(len(node), dtype=np.bool_),
        has_outage=np.zeros(len(node), dtype=np.bool_),
    )


def _distinct(
    clusters: Sequence[str], names: Sequence[str | None]
) -> tuple[tuple[NodeKey, ...], Places]:
    """The distinct nodes, those without a name last, and the place of each row's among them."""
    keys = list(zip(clusters, names, strict=True))
    ordered = sorted(set(keys), key=lambda key: (key[0], key[1] is None, key[1]))
    place = {key: at for at, key in enumerate(ordered)}
    return tuple(ordered), np.array([place[key] for key in keys], dtype=np.int64)


def observed_faults(facts: Facts, outages: Sequence[Outage], gap_s: float) -> NodeFaults:
    """Faults put together from errors and unplanned outages of nodes, in order of node and time.

    What follows on one node within `gap_s` of what came before belongs to the same fault. Its
    category is the symptom of its strongest error; without any, the class of the outage's reason.
    """
    unplanned = [outage for outage in outages if not outage.is_planned]
    parts = _ErrorsAndOutages.of(facts.columns("all_episodes", *_EPISODE), unplanned)
    begins = parts.begins(gap_s)
    (first,) = np.nonzero(begins)
    fault = np.cumsum(begins) - 1
    # of the parts of one fault the strongest error comes first, and outages after all errors
    strongest = np.lexsort((parts.rank, fault))[first]
    down_s = np.bincount(fault, weights=parts.down_s, minlength=len(first))
    has_outage = np.bincount(fault, weights=parts.is_outage, minlength=len(first)) > 0
    is_open = np.bincount(fault, weights=parts.is_open, minlength=len(first)) > 0
    return NodeFaults(
        nodes=parts.nodes,
        node=parts.node[first],
        category=parts.category[strongest],
        start_s=parts.start_s[first],
        down_s=np.where(has_outage, down_s, np.nan),
        is_over=~is_open,
        has_error=~parts.is_outage[strongest],
        has_outage=has_outage,
    )


_EPISODE = ("cluster", "node", "symptom", "rank", "first_us", "last_us")


@dataclass(frozen=True, slots=True)
class _ErrorsAndOutages:
    """Errors and outages in order of node, start and end; columns of one length."""

    nodes: tuple[NodeKey, ...]
    node: Places
    start_s: Floats
    end_s: Floats
    category: Texts
    rank: Places
    is_outage: Flags
    is_open: Flags
    down_s: Floats

    @staticmethod
    def of(errors: Mapping[str, npt.NDArray[Any]], outages: Sequence[Outage]) -> _ErrorsAndOutages:
        n_errors, n_outages = len(errors["node"]), len(outages)
        nodes, node = _distinct(
            [*errors["cluster"].tolist(), *(outage.cluster for outage in outages)],
            [*errors["node"].tolist(), *(outage.node for outage in outages)],
        )
        down = np.array([(o.start_s, o.end_s, o.is_open) for o in outages]).reshape(-1, 3)
        first_s, last_s = (
            errors[name] / MICROSECONDS_PER_SECOND for name in ("first_us", "last_us")
        )
        start_s = np.concatenate([first_s, down[:, 0]])
        end_s = np.maximum(np.concatenate([last_s, down[:, 1]]), start_s)
        category = [*errors["symptom"].tolist(), *(outage.reason_class for outage in outages)]
        ranks = errors["rank"].astype(np.int64)
        is_outage = np.repeat([False, True], [n_errors, n_outages])
        order = np.lexsort((end_s, start_s, node))
        return _ErrorsAndOutages(
            nodes=nodes,
            node=node[order],
            start_s=start_s[order],
            end_s=end_s[order],
            category=np.array(category, dtype=object)[order],
            rank=np.concatenate([ranks, np.full(n_outages, _NO_RANK)])[order],
            is_outage=is_outage[order],
            is_open=np.concatenate([np.zeros(n_errors), down[:, 2]]).astype(np.bool_)[order],
            down_s=np.concatenate([np.zeros(n_errors), down[:, 1] - down[:, 0]])[order],
        )

    def begins(self, gap_s: float) -> Flags:
        """Whether a fault begins with each part: a new node, or a silence longer than the gap."""
        found = np.ones(len(self.node), dtype=np.bool_)
        if not len(self.node):
            return found
        # the latest end so far on the node, exactly: by the place of each end among all ends
        by_end = np.argsort(self.end_s, kind="stable")
        place = np.empty(len(by_end), dtype=np.int64)
        place[by_end] = np.arange(len(by_end))
        latest = np.maximum.accumulate(self.node * len(by_end) + place) % len(by_end)
        reach_s = self.end_s[by_end][latest]
        same_node = self.node[1:] == self.node[:-1]
        found[1:] = ~same_node | (self.start_s[1:] > reach_s[:-1] + gap_s)
        return found


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
    """Fault rates by category, and time to repair of each fault; None without any fault."""
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
        by_category=tuple(
            replace(part, in_service=_bounded(part.in_service, fleet.is_known)) for part in parts
        ),
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
