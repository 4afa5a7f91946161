"""Node availability: time to repair, time out of service by reason, capacity lost."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.facts import Facts, made
from ettr.metrics.coverage import HOLE_CHANCE
from ettr.metrics.instants import Floats, Period, to_seconds
from ettr.metrics.outages import Outage
from ettr.metrics.status import share
from ettr.metrics.survival import Durations, durations
from ettr.selection import Selection
from ettr.tables.schemas import CONTROLLER_CHECK
from ettr.taxonomy import Taxonomy
from ettr.taxonomy.rules import KERNEL_CHECK
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

LISTED_NODES = 20
NodeKey = tuple[str, str]
Span = tuple[float, float]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReasonOutages:
    """Outages of one class of reasons. GPU-hours are None where no node's GPUs are known."""

    reason_class: str
    is_planned: bool
    outages: int
    still_open: int
    nodes: int
    node_hours: float
    gpu_hours: float | None
    median_h: Interval


@dataclass(frozen=True, slots=True)
class NodeOutages:
    """What one node spent out of service, unplanned."""

    cluster: str
    node: str
    outages: int
    node_hours: float


@dataclass(frozen=True, slots=True)
class Availability:
    """Node time and where it went.

    Outages of the others are unknown, and what counts outages is None where no cluster is left. A
    node that drains still runs its last jobs: `draining_with_jobs_node_hours` of the outages were
    not lost, so lost capacity is the outages less that time. `repair_h` is over unplanned outages.
    Where `fleet_is_known` is false only nodes with trouble are named: `nodes` and hours in service
    are lower bounds, shares and rates upper bounds. Of the `nodes_without_gpu_count`, which no
    inventory describes, `nodes_with_gpus_of_jobs` count with the most GPUs that one job held
    there.
    """

    nodes: int
    period_days: float
    in_service_node_hours: float
    measured_node_hours: float | None
    available_node_hours: float | None
    unplanned_node_hours: float | None
    planned_node_hours: float | None
    draining_with_jobs_node_hours: float | None
    down_share: float | None
    lost_node_hours: float | None
    lost_gpu_hours: float | None
    nodes_without_gpu_count: int
    nodes_with_gpus_of_jobs: int
    outages_per_1000_node_days: float | None
    repair_h: Durations
    by_reason: tuple[ReasonOutages, ...]
    worst_nodes: tuple[NodeOutages, ...]
    fleet_is_known: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """When each node was in service, in seconds since 1970, and its GPUs (NaN: not known).

    `away_s` are the times within, in order, in which a node was powered down or not there yet.
    `is_known` is false where only nodes with trouble are named, in states or events: how many
    others there were is not known. `gpus_of_jobs` are the nodes whose GPUs only jobs show.
    """

    spans_s: dict[tuple[str, str], tuple[float, float]]
    gpus: dict[tuple[str, str], float]
    is_known: bool = True
    gpus_of_jobs: frozenset[tuple[str, str]] = frozenset()
    away_s: dict[NodeKey, tuple[Span, ...]] = field(default_factory=dict)

    @property
    def node_s(self) -> float:
        """Node-seconds in service."""
        return sum(map(self.served_s, self.spans_s))

    def served_s(self, node: NodeKey) -> float:
        """Seconds that a node was in service."""
        begin_s, end_s = self.spans_s[node]
        return end_s - begin_s - sum(to_s - from_s for from_s, to_s in self.away_s.get(node, ()))

    def is_away_last(self, node: tuple[str, str]) -> bool:
        """Whether a node is no part of the fleet when its time ends: powered down, or FUTURE."""
        away_s = self.away_s.get(node, ())
        return bool(away_s) and away_s[-1][1] >= self.spans_s[node][1]

    @property
    def pieces_s(self) -> Floats:
        """Beginning and end of each time of a node in service, shape (n, 2), by node."""
        pieces = [piece for node in self.spans_s for piece in self.pieces_of(node)]
        return np.array(pieces, dtype=np.float64).reshape(-1, 2)

    def pieces_of(self, node: NodeKey) -> list[Span]:
        """Each time of one node in service."""
        begin_s, end_s = self.spans_s[node]
        cuts = [begin_s, *(cut for away in self.away_s.get(node, ()) for cut in away), end_s]
        return list(zip(cuts[::2], cuts[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class WholeLogs:
    """What the logs cover where only a selection of it is asked for."""

    fleet: Service
    period: Period
    selection: Selection


def service(
    facts: Facts, period: Period, *, n_nodes: int | None = None, gpus_per_node: float | None = None
) -> Service:
    """The fleet: the inventory, and nodes that other tables name and it lacks.

    A node is in service as the inventory says, else from its first trace: a job, a state, an event
    or a day of its log. One that the inventory names without a date is so from the beginning where
    chance explains how long it ran nothing. Where no job is known, nodes leave a trace when they
    have trouble, and all are in service all the time. Powered down, and before it exists, a node
    is not in service. Nodes of events, and of logs of nodes, count where no inventory and no job
    names any.

    Args:
        n_nodes: how many nodes there are, where the logs do not name them all.

    Raises:
        UsageError: fewer nodes than the logs name.
    """
    first_s, last_s = to_seconds(period.start), to_seconds(period.end)
    rows = facts.columns("nodes")
    names = list(zip(rows["cluster"].tolist(), rows["node"].tolist(), strict=True))
    begins_s, ends_s = (
        np.nan_to_num(rows[name].astype(np.float64) / MICROSECONDS_PER_SECOND, nan=otherwise_s)
        for name, otherwise_s in (("in_service_from_us", first_s), ("in_service_to_us", last_s))
    )
    spans = {}
    for name, begin_s, end_s in zip(names, begins_s.tolist(), ends_s.tolist(), strict=True):
        low_s = max(begin_s, first_s)
        spans[name] = (low_s, max(min(end_s, last_s), low_s))
    gpus = dict(zip(names, rows["n_gpus"].astype(np.float64).tolist(), strict=True))
    worked, troubled = nodes_of(facts, "allocations"), nodes_of(facts, "node_states")
    if not names and not worked:
        troubled |= event_nodes(facts) | nodes_of(facts, "log_days")
    dated = {
        name
        for name, since_us in zip(names, rows["in_service_from_us"].tolist(), strict=True)
        if not math.isnan(since_us)
    }
    for name in sorted(worked | troubled):
        spans.setdefault(name, (first_s, last_s))
        gpus.setdefault(name, float("nan"))
    for name, since_s in _first_traces(facts, set(names), spans.keys() - dated, period).items():
        _, end_s = spans[name]
        spans[name] = (min(since_s, end_s), end_s)
    for name in _unnamed(spans, n_nodes):
        spans[name] = (first_s, last_s)
        gpus[name] = float("nan")
    if gpus_per_node is not None:
        gpus = {name: gpus_per_node if np.isnan(n) else n for name, n in gpus.items()}
    of_jobs: dict[tuple[str, str], float] = {}
    if any(np.isnan(gpus[name]) for name in worked):
        of_jobs = {name: n for name, n in _gpus_held(facts).items() if np.isnan(gpus[name])}
    is_known = bool(names or worked or n_nodes is not None)
    return Service(spans, gpus | of_jobs, is_known, frozenset(of_jobs), _away(facts, spans))


def _first_traces(
    facts: Facts, listed: Collection[NodeKey], undated: Collection[NodeKey], period: Period
) -> dict[NodeKey, float]:
    """Of nodes that appear after the logs begin, the second of the first trace."""
    first_s, last_s = to_seconds(period.start), to_seconds(period.end)
    starts_s = _firsts_s(facts)
    worked = {name: int(n_jobs) for name, n_jobs in _named(facts, "allocations", "n_rows").items()}
    late = {name for name in undated if starts_s.get(name, -math.inf) > first_s}
    if not worked or not late:
        return {}
    rows = facts.columns("event_nodes")
    for cluster, node, day in zip(
        *(rows[name].tolist() for name in ("cluster", "node", "first_day")), strict=True
    ):
        if (cluster, node) in late:
            starts_s[cluster, node] = min(starts_s[cluster, node], day * SECONDS_PER_DAY)
    found = {}
    for name in late:
        if name in listed:
            known_s = max(last_s - starts_s[name], 1.0)
            usual = worked.get(name, 0) / known_s
            if math.exp(-usual * (starts_s[name] - first_s)) >= HOLE_CHANCE:
                continue
        found[name] = max(starts_s[name], first_s)
    return found


def _firsts_s(facts: Facts) -> dict[NodeKey, float]:
    """The first beginning of a job, of a state or of a day of the log of each node."""
    rows, found = facts.columns("node_mentions"), dict[NodeKey, float]()
    firsts_s = rows["first_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
    for cluster, node, at_s in zip(
        rows["cluster"].tolist(), rows["node"].tolist(), firsts_s.tolist(), strict=True
    ):
        if not math.isnan(at_s):
            found[cluster, node] = min(at_s, found.get((cluster, node), math.inf))
    return found


def _away(facts: Facts, spans: Mapping[NodeKey, Span]) -> dict[NodeKey, tuple[Span, ...]]:
    """Times in which nodes were powered down or not there yet, and not out of service besides."""
    away = _states_s(facts, "away_states", spans)
    if not away:
        return {}
    last_job_s = {
        name: us / MICROSECONDS_PER_SECOND
        for name, us in _named(facts, "allocations", "last_us").items()
    }
    out = _states_s(facts, "out_states", {name: spans[name] for name in away})
    found = {}
    for name, parts in away.items():
        over = [
            (from_s, to_s)
            for from_s, to_s, is_open in parts
            # a dump may be older than the jobs that ran afterwards
            if not (is_open and last_job_s.get(name, -math.inf) > from_s)
        ]
        without = _merged([(from_s, to_s) for from_s, to_s, _ in out.get(name, ())])
        if left := _less(_merged(over), without):
            found[name] = left
    return found


def _states_s(
    facts: Facts, fact: str, spans: Mapping[NodeKey, Span]
) -> dict[NodeKey, list[tuple[float, float, bool]]]:
    """States of nodes within their spans: from, to, and whether no log ends them."""
    rows = facts.columns(fact)
    found: dict[NodeKey, list[tuple[float, float, bool]]] = defaultdict(list)
    for cluster, node, start_us, end_us in zip(
        *(rows[name].tolist() for name in ("cluster", "node", "start_us", "end_us")), strict=True
    ):
        if (cluster, node) not in spans:
            continue
        low_s, high_s = spans[cluster, node]
        is_open = math.isnan(end_us)
        from_s = max(start_us / MICROSECONDS_PER_SECOND, low_s)
        to_s = high_s if is_open else min(end_us / MICROSECONDS_PER_SECOND, high_s)
        if to_s > from_s:
            found[cluster, node].append((from_s, to_s, is_open))
    return found


def _merged(parts: Iterable[Span]) -> tuple[Span, ...]:
    """Intervals in order, those that overlap or touch as one."""
    found: list[Span] = []
    for from_s, to_s in sorted(parts):
        if found and from_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], to_s))
        else:
            found.append((from_s, to_s))
    return tuple(found)


def _less(parts: Iterable[Span], without: Sequence[Span]) -> tuple[Span, ...]:
    """What is left of intervals without others; both in order and apart."""
    gaps = [(-math.inf, math.inf)]
    if without:
        between = [(one[1], other[0]) for one, other in pairwise(without)]
        gaps = [(-math.inf, without[0][0]), *between, (without[-1][1], math.inf)]
    return clipped(parts, gaps)


def clipped(parts: Iterable[Span], within: Iterable[Span]) -> tuple[Span, ...]:
    """The parts of intervals that lie within others, in order."""
    within = list(within)
    return tuple(
        (max(from_s, low_s), min(to_s, high_s))
        for from_s, to_s in parts
        for low_s, high_s in within
        if min(to_s, high_s) > max(from_s, low_s)
    )


def _gpus_held(facts: Facts) -> dict[tuple[str, str], float]:
    """The most GPUs that one job held on each node; empty where no job is known to hold any."""
    most = {
        name: float(n_gpus)
        for name, n_gpus in _named(facts, "allocations", "n_gpus").items()
        if not np.isnan(n_gpus)
    }
    return most if any(most.values()) else {}


def nodes_of(facts: Facts, table: str) -> frozenset[tuple[str, str]]:
    """The nodes that allocations, states of nodes or days of their logs name, with clusters."""
    return frozenset(_named(facts, table, "n_gpus"))


def _named(facts: Facts, table: str, column: str) -> dict[tuple[str, str], float]:
    """What the fact `node_mentions` says of the nodes that a table names."""
    rows = facts.columns("node_mentions")
    mine = rows["table_name"] == table
    names = (rows[name][mine].tolist() for name in ("cluster", "node"))
    values = rows[column][mine].astype(np.float64).tolist()
    return dict(zip(zip(*names, strict=True), values, strict=True))


def event_nodes(facts: Facts) -> frozenset[tuple[str, str]]:
    """The nodes that events name, with their clusters."""
    rows = facts.columns("event_nodes")
    return frozenset(zip(rows["cluster"].tolist(), rows["node"].tolist(), strict=True))


def _unnamed(named: Collection[tuple[str, str]], n_nodes: int | None) -> list[tuple[str, str]]:
    """Names for the nodes of a fleet of `n_nodes` that no log names."""
    if n_nodes is None:
        return []
    if n_nodes < len(named):
        raise UsageError(
            f"{n_nodes} nodes: the logs name {len(named)}; give at least so many, or leave it out"
        )
    return [("", f"unnamed-{place:05d}") for place in range(1, n_nodes - len(named) + 1)]


def availability(
    facts: Facts,
    period: Period,
    fleet: Service,
    down: Sequence[Outage],
    clusters: Collection[str],
    *,
    confidence: float = CONFIDENCE,
    logs: WholeLogs | None = None,
) -> Availability:
    """Time to repair with intervals, time out of service by reason, and capacity lost.

    Args:
        logs: where `fleet` and `period` are a part of what the logs cover, the whole. Hours out of
            service are then those within the period, while an outage counts where it began, with
            the whole time to its repair.
    """
    found = outages_in_service(down, fleet) if clusters else []
    begun = found if logs is None or not clusters else _begun(down, fleet, logs)
    busy_h = _busy_hours(facts, found)
    unplanned = [o for o in begun if not o.is_planned]
    planned_h = sum(o.hours for o in found if o.is_planned)
    unplanned_h = sum(o.hours for o in found if not o.is_planned)
    # of clusters of which there are states; of nodes of none, too
    of_measured = [node for node in fleet.spans_s if node[0] in clusters or not node[0]]
    measured_s = sum(map(fleet.served_s, of_measured))
    measured_h = measured_s / SECONDS_PER_HOUR
    without = sum(np.isnan(gpus) for gpus in fleet.gpus.values()) + len(fleet.gpus_of_jobs)
    lost_h = [o.hours - busy for o, busy in zip(found, busy_h, strict=True)]
    measured = Availability(
        nodes=len(fleet.spans_s),
        period_days=period.days,
        in_service_node_hours=fleet.node_s / SECONDS_PER_HOUR,
        measured_node_hours=measured_h,
        available_node_hours=measured_h - planned_h - unplanned_h,
        unplanned_node_hours=unplanned_h,
        planned_node_hours=planned_h,
        draining_with_jobs_node_hours=sum(busy_h),
        down_share=share(unplanned_h, measured_h),
        lost_node_hours=sum(lost_h),
        lost_gpu_hours=_gpu_hours(found, lost_h, fleet),
        nodes_without_gpu_count=int(without),
        nodes_with_gpus_of_jobs=len(fleet.gpus_of_jobs),
        outages_per_1000_node_days=share(len(unplanned) * 1000.0, measured_s / SECONDS_PER_DAY),
        repair_h=_lasting(unplanned, confidence),
        by_reason=_by_reason(found, begun, fleet, confidence),
        worst_nodes=_worst(found, unplanned),
        fleet_is_known=fleet.is_known,
    )
    return measured if clusters else _without_outages(measured)


def outages_in_service(down: Iterable[Outage], fleet: Service) -> list[Outage]:
    """Outages in their order, each cut to its node's time in service.

    Args:
        down: outages of all nodes (`outages`).
    """
    return [cut for outage in down if (cut := _within(outage, fleet))]


def _without_outages(fleet: Availability) -> Availability:
    return replace(
        fleet,
        measured_node_hours=None,
        available_node_hours=None,
        unplanned_node_hours=None,
        planned_node_hours=None,
        draining_with_jobs_node_hours=None,
        down_share=None,
        lost_node_hours=None,
        lost_gpu_hours=None,
        outages_per_1000_node_days=None,
    )


def _begun(known: Iterable[Outage], fleet: Service, logs: WholeLogs) -> list[Outage]:
    """Whole outages of the fleet's nodes that begin in the selected period."""
    return [
        cut
        for outage in known
        if logs.selection.holds(outage.start_s)
        and (outage.cluster, outage.node) in fleet.spans_s
        and (cut := _within(outage, logs.fleet))
    ]


def _within(outage: Outage, fleet: Service) -> Outage | None:
    """The part of an outage that lies in the node's time in service; None for other nodes."""
    span_s = fleet.spans_s.get((outage.cluster, outage.node))
    if span_s is None:
        return None
    low_s, high_s = span_s
    # nearly all: each report asks it several times of every outage
    if low_s <= outage.start_s <= outage.end_s <= high_s:
        return outage
    start_s, end_s = max(outage.start_s, low_s), min(outage.end_s, high_s)
    if end_s < start_s:
        return None
    return replace(
        outage, start_s=start_s, end_s=end_s, is_open=outage.is_open or end_s < outage.end_s
    )


def _lasting(found: list[Outage], confidence: float) -> Durations:
    hours = np.array([outage.hours for outage in found])
    over = np.array([not outage.is_open for outage in found], dtype=bool)
    return durations(hours, over, confidence)


def _gpu_hours(found: list[Outage], hours: list[float], fleet: Service) -> float | None:
    """GPU-hours; a node of unknown GPUs is taken as the average of the known. None: none known."""
    known = [gpus for gpus in fleet.gpus.values() if not np.isnan(gpus)]
    if not known:
        return None
    average = float(np.mean(known))
    gpus = [fleet.gpus[outage.cluster, outage.node] for outage in found]
    return float(
        sum(h * (average if math.isnan(g) else g) for h, g in zip(hours, gpus, strict=True))
    )


def _by_reason(
    found: list[Outage], begun: list[Outage], fleet: Service, confidence: float
) -> tuple[ReasonOutages, ...]:
    """Counts and repair times of the outages that began, hours of all that were found."""
    groups: dict[tuple[bool, str], list[Outage]] = defaultdict(list)
    hours: dict[tuple[bool, str], list[Outage]] = defaultdict(list)
    for outage in found:
        hours[outage.is_planned, outage.reason_class].append(outage)
    for outage in begun:
        groups[outage.is_planned, outage.reason_class].append(outage)
    rows = [
        ReasonOutages(
            reason_class=name,
            is_planned=is_planned,
            outages=len(members),
            still_open=sum(o.is_open for o in members),
            nodes=len({(o.cluster, o.node) for o in members}),
            node_hours=sum(o.hours for o in hours[is_planned, name]),
            gpu_hours=_gpu_hours(
                hours[is_planned, name], [o.hours for o in hours[is_planned, name]], fleet
            ),
            median_h=_lasting(members, confidence).median_h,
        )
        for is_planned, name in dict.fromkeys((*hours, *groups))
        for members in [groups[is_planned, name]]
    ]
    return tuple(sorted(rows, key=lambda row: (row.is_planned, -row.node_hours, row.reason_class)))


def _worst(found: list[Outage], begun: list[Outage]) -> tuple[NodeOutages, ...]:
    """The nodes longest out of service unplanned: outages that began, and hours of all."""
    count = Counter((outage.cluster, outage.node) for outage in begun)
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for outage in found:
        if not outage.is_planned:
            hours[outage.cluster, outage.node] += outage.hours
    rows = [
        NodeOutages(cluster, node, count[cluster, node], hours[cluster, node])
        for cluster, node in dict.fromkeys((*hours, *count))
    ]
    rows.sort(key=lambda row: (-row.node_hours, -row.outages, row.cluster, row.node))
    return tuple(rows[:LISTED_NODES])


@dataclass(frozen=True, slots=True, eq=False)
class _Down:
    """Outages as facts take them: distinguished from others by identity."""

    outages: Sequence[Outage]


def _busy_hours(facts: Facts, found: Sequence[Outage]) -> list[float]:
    """Hours of each outage in which the node still ran jobs, jobs side by side counted once."""
    busy = [0.0] * len(found)
    longest = [s for s in _named(facts, "allocations", "longest_s").values() if not math.isnan(s)]
    if not found or not longest:
        return busy
    # As wide as the longest allocation, so that one which reaches into an outage began in one of
    # the outage's buckets or in the one before its first.
    width_s = int(max(*longest, SECONDS_PER_DAY)) + 2
    met = facts.under(down=_Down(found), bucket_us=width_s * int(MICROSECONDS_PER_SECOND))
    rows = met.columns("held_in_outages")
    places = rows["outage"].astype(np.int64)
    starts_s = rows["start_us"] // MICROSECONDS_PER_SECOND
    ends_s = rows["end_us"].astype(np.float64) // MICROSECONDS_PER_SECOND
    ends_s = np.where(np.isnan(ends_s), starts_s + np.rint(rows["elapsed_s"]), ends_s)
    from_s, to_s = (
        np.array([getattr(one, name) for one in found], dtype=np.float64)[places]
        for name in ("start_s", "end_s")
    )
    inside = (starts_s < to_s) & (ends_s > from_s)
    covered_s = _covered_s(
        places[inside], np.maximum(starts_s, from_s)[inside], np.minimum(ends_s, to_s)[inside]
    )
    for place, held_s in zip(*covered_s, strict=True):
        busy[place] = float(held_s) / SECONDS_PER_HOUR
    return busy


@made(
    "outage_buckets",
    (
        ("outage", "BIGINT"),
        ("cluster", "VARCHAR"),
        ("node", "VARCHAR"),
        ("bucket", "BIGINT"),
        ("from_us", "BIGINT"),
        ("to_us", "BIGINT"),
    ),
    takes=("down", "bucket_us"),
)
def _outage_buckets(facts: Facts) -> list[tuple[object, ...]]:
    """Each outage in every bucket of time in which an allocation that meets it may have begun."""
    width_us, rows = facts.given("bucket_us"), list[tuple[object, ...]]()
    for place, one in enumerate(facts.given("down").outages):
        from_us, to_us = (
            round(moment_s * MICROSECONDS_PER_SECOND) for moment_s in (one.start_s, one.end_s)
        )
        rows += (
            (place, one.cluster, one.node, bucket, from_us, to_us)
            for bucket in range(from_us // width_us - 1, to_us // width_us + 1)
        )
    return rows


def _covered_s(groups: Integers, starts_s: Floats, ends_s: Floats) -> tuple[Integers, Floats]:
    """Length of the union of the intervals of each group that has any, and its group."""
    order = np.lexsort((ends_s, starts_s, groups))
    groups, starts_s, ends_s = groups[order], starts_s[order], ends_s[order]
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    # ends as ranks, those of later groups higher, so that none reaches into the next group
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[np.lexsort((ends_s, groups))] = np.arange(len(order))
    by_rank = np.empty(len(order))
    by_rank[ranks] = ends_s
    reach_s = by_rank[np.maximum.accumulate(ranks)]
    prior_s = np.concatenate([[-np.inf], reach_s[:-1]])
    prior_s[firsts] = -np.inf
    covered_s = np.maximum(ends_s - np.maximum(starts_s, prior_s), 0.0)
    return groups[firsts], np.add.reduceat(covered_s, firsts) if len(firsts) else covered_s


# -- which kinds of logs were read: what none of them records was not measured ---------------------


_AMD = "amdgpu"
"""Beginning of the codes of AMD's driver."""


@dataclass(frozen=True, slots=True)
class LogsRead:
    """Kinds of logs that a store holds.

    Attributes:
        node_checks: Checks with events about nodes that the taxonomy understands, by name: kernel
            messages and health checks. The scheduler's own log is not among them.
        unknown_checks: Checks with events of which the taxonomy knows no code: these events can
            explain nothing.
        node_logs: Logs of nodes that arrived, whether or not their lines report anything.
        gpu_errors: Whether any line was an error of a GPU's driver (XID, SXID, amdgpu), or any
            health check reported: where none was, a log may be one in which none would stand.
    """

    jobs: bool
    node_checks: tuple[str, ...]
    node_states: bool
    progress: bool
    unknown_checks: tuple[str, ...] = ()
    controller: bool = False
    node_logs: bool = False
    gpu_errors: bool = False

    @property
    def errors(self) -> bool:
        """Whether kernel messages or health checks of nodes arrived, with errors or without."""
        return bool(self.node_checks) or self.node_logs

    @property
    def failures_are_lower_bound(self) -> bool:
        """Whether failures go uncounted: of jobs that end FAILED only such checks name a cause."""
        return self.jobs and not self.errors


def logs_read(facts: Facts, taxonomy: Taxonomy, clusters: Collection[str] = ()) -> LogsRead:
    """Which kinds of logs the store holds.

    Args:
        clusters: only of these, since what arrived from one says nothing of another; all if empty.
    """
    if clusters and len(named_clusters(facts)) > 1:
        codes = facts.distinct("events", "cluster", "check", "code")
        kinds = {(check, code) for cluster, check, code in codes if cluster in clusters}
    else:
        clusters = ()
        codes = facts.distinct("event_census", "check", "code")
        kinds = {(check, code) for check, code in codes}
    pairs = [(check, code) for check, code in kinds if check != CONTROLLER_CHECK]
    understood = {check for check, code in pairs if taxonomy.knows(check, code)}

    def has_rows(table: str) -> bool:
        return any(
            row["table_name"] == table and (not clusters or row["cluster"] in clusters)
            for row in facts.rows("rows_by_cluster")
        )

    return LogsRead(
        jobs=has_rows("attempts"),
        node_checks=tuple(sorted(understood)),
        node_states=has_rows("node_states"),
        progress=has_rows("progress"),
        unknown_checks=tuple(sorted({check for check, _ in pairs} - understood)),
        controller=len(pairs) < len(kinds),
        node_logs=has_rows("log_days"),
        gpu_errors=any(
            check in understood and (check != KERNEL_CHECK or str(code).startswith(_AMD))
            for check, code in pairs
        ),
    )


def clusters_of(facts: Facts, *tables: str) -> frozenset[str]:
    """The clusters that rows of stored tables name (`rows_by_cluster` has which tables)."""
    rows = facts.rows("rows_by_cluster")
    named = {row["cluster"] for row in rows if row["table_name"] in tables}
    return frozenset(named - {None})


def named_clusters(facts: Facts) -> tuple[str, ...]:
    """Names of the clusters in the logs."""
    named = clusters_of(facts, "attempts", "nodes", "events", "incidents")
    if not named:
        held = {cluster for cluster, _ in nodes_of(facts, "allocations")}
        named = clusters_of(facts, "node_states", "progress") | held
    return tuple(sorted(named))
