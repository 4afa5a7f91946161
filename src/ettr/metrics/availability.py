"""Node availability: time to repair, time out of service by reason, capacity lost."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.metrics.instants import Floats, Period, fetch, floats_of, has_rows, seconds_of, to_seconds
from ettr.metrics.outages import Outage, outages
from ettr.metrics.status import share
from ettr.metrics.survival import Durations, durations
from ettr.selection import Selection
from ettr.tables.ibis_time import epoch_s
from ettr.taxonomy import Taxonomy
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

LISTED_NODES = 20
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

    `measured_node_hours` = available + unplanned + planned outages: the hours in service of
    clusters of which the logs hold states of nodes. Outages of the others are unknown, and what
    counts outages is None where no cluster is left. A node that drains still runs its last jobs:
    `draining_with_jobs_node_hours` of the outages were not lost, so lost capacity is the outages
    less that time. `repair_h` is over unplanned outages. Where `fleet_is_known` is false only nodes
    with trouble are named: `nodes` and hours in service are lower bounds, shares and rates upper
    bounds. Of the `nodes_without_gpu_count`, which no inventory describes,
    `nodes_with_gpus_of_jobs` count with the most GPUs that one job held there.
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

    `is_known` is false where only nodes with trouble are named, in states or events: how many
    others there were is not known. `gpus_of_jobs` are the nodes whose GPUs only jobs show.
    """

    spans_s: dict[tuple[str, str], tuple[float, float]]
    gpus: dict[tuple[str, str], float]
    is_known: bool = True
    gpus_of_jobs: frozenset[tuple[str, str]] = frozenset()

    @property
    def node_s(self) -> float:
        """Node-seconds in service."""
        return sum(end_s - start_s for start_s, end_s in self.spans_s.values())


@dataclass(frozen=True, slots=True)
class WholeLogs:
    """What the logs cover where only a selection of it is asked for."""

    fleet: Service
    period: Period
    selection: Selection


def service(
    nodes: ibis.Table,
    node_states: ibis.Table,
    period: Period,
    allocations: ibis.Table | None = None,
    events: ibis.Table | None = None,
    *,
    log_days: ibis.Table | None = None,
    worked: frozenset[tuple[str, str]] | None = None,
    n_nodes: int | None = None,
    gpus_per_node: float | None = None,
) -> Service:
    """The fleet: the inventory, and nodes that other tables name and it lacks, all the period.

    Args:
        nodes: the inventory.
        node_states: scheduler states of the nodes.
        period: time that the logs cover.
        allocations: which nodes worked when.
        events: observations; the nodes that they name count where no inventory and no job names
            any.
        log_days: days on which logs of nodes arrived; the nodes count where those of events do.
        worked: nodes of the allocations (`named_nodes`), where they are at hand.
        n_nodes: how many nodes there are, where the logs do not name them all.
        gpus_per_node: of nodes whose GPUs no log names.

    Raises:
        UsageError: fewer nodes than the logs name.
    """
    first_s, last_s = to_seconds(period.start), to_seconds(period.end)
    rows = fetch(nodes, "cluster", "node", "n_gpus", "in_service_from", "in_service_to")
    names = list(zip(rows["cluster"].to_pylist(), rows["node"].to_pylist(), strict=True))
    begins_s = np.nan_to_num(seconds_of(rows["in_service_from"]), nan=first_s)
    ends_s = np.nan_to_num(seconds_of(rows["in_service_to"]), nan=last_s)
    spans = {}
    for name, begin_s, end_s in zip(names, begins_s.tolist(), ends_s.tolist(), strict=True):
        low_s = max(begin_s, first_s)
        spans[name] = (low_s, max(min(end_s, last_s), low_s))
    gpus = dict(zip(names, floats_of(rows["n_gpus"]).tolist(), strict=True))
    if worked is None:
        worked = frozenset() if allocations is None else named_nodes(allocations)
    troubled = named_nodes(node_states)
    if events is not None and not names and not worked:
        troubled |= named_nodes(events)
        troubled |= frozenset() if log_days is None else named_nodes(log_days)
    for name in sorted(worked | troubled):
        spans.setdefault(name, (first_s, last_s))
        gpus.setdefault(name, float("nan"))
    for name in _unnamed(spans, n_nodes):
        spans[name] = (first_s, last_s)
        gpus[name] = float("nan")
    if gpus_per_node is not None:
        gpus = {name: gpus_per_node if np.isnan(n) else n for name, n in gpus.items()}
    of_jobs: dict[tuple[str, str], float] = {}
    if allocations is not None and any(np.isnan(gpus[name]) for name in worked):
        of_jobs = {
            name: n for name, n in _gpus_held(allocations).items() if np.isnan(gpus.get(name, 0.0))
        }
    is_known = bool(names or worked or n_nodes is not None)
    return Service(spans, gpus | of_jobs, is_known, frozenset(of_jobs))


def _gpus_held(allocations: ibis.Table) -> dict[tuple[str, str], float]:
    """The most GPUs that one job held on each node; empty where no job is known to have held any.

    Jobs can share a node, so that it may have more.
    """
    held = allocations.filter(allocations["n_gpus"].notnull() & allocations["node"].notnull())
    rows = fetch(held.group_by("cluster", "node").aggregate(n_gpus=held["n_gpus"].max()))
    most = floats_of(rows["n_gpus"]).tolist()
    names = zip(rows["cluster"].to_pylist(), rows["node"].to_pylist(), strict=True)
    return dict(zip(names, most, strict=True)) if any(most) else {}


def named_nodes(table: ibis.Table) -> frozenset[tuple[str, str]]:
    """The nodes that a table names, as cluster and node."""
    seen = fetch(table.filter(table["node"].notnull()).select("cluster", "node").distinct())
    return frozenset(zip(seen["cluster"].to_pylist(), seen["node"].to_pylist(), strict=True))


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
    nodes: ibis.Table,
    node_states: ibis.Table,
    allocations: ibis.Table,
    period: Period,
    taxonomy: Taxonomy,
    *,
    confidence: float = CONFIDENCE,
    fleet: Service | None = None,
    logs: WholeLogs | None = None,
    down: Sequence[Outage] | None = None,
) -> Availability:
    """Time to repair with intervals, time out of service by reason, and capacity lost.

    Args:
        nodes: the inventory.
        node_states: scheduler states of the nodes.
        allocations: which nodes worked when; a draining node still works.
        period: time that the logs cover.
        taxonomy: classes of reasons.
        confidence: of the intervals, between 0 and 1.
        fleet: nodes and their time in service; those that the first three tables name where None.
        logs: where `fleet` and `period` are a part of what the logs cover, the whole. Hours out of
            service are then those within the period, while an outage counts where it began, with
            the whole time to its repair.
        down: outages of all nodes in all of the logs (`outages`), where they are at hand.
    """
    if fleet is None:
        fleet = service(nodes, node_states, period, allocations)
    known = down
    if known is None:
        known = outages(node_states, logs.period if logs else period, taxonomy)
    found = outages_in_service(known, fleet)
    begun = found if logs is None else _begun(known, fleet, logs)
    busy_h = _busy_hours(found, allocations)
    unplanned = [o for o in begun if not o.is_planned]
    planned_h = sum(o.hours for o in found if o.is_planned)
    unplanned_h = sum(o.hours for o in found if not o.is_planned)
    measured_s = _measured_s(fleet, node_states)
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
    return measured if has_rows(node_states) else _without_outages(measured)


def _measured_s(fleet: Service, node_states: ibis.Table) -> float:
    """Node-seconds in service of clusters of which there are states; of nodes of none, too."""
    known = set(fetch(node_states.select("cluster").distinct())["cluster"].to_pylist())
    spans = fleet.spans_s.items()
    return sum(
        end_s - begin_s for (name, _), (begin_s, end_s) in spans if name in known or not name
    )


def outages_in_service(down: Iterable[Outage], fleet: Service) -> list[Outage]:
    """Outages in their order, each cut to its node's time in service.

    Args:
        down: outages of all nodes (`outages`).
        fleet: nodes and their time in service.
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


def _busy_hours(found: list[Outage], allocations: ibis.Table) -> list[float]:
    """Hours of each outage in which the node still ran jobs, jobs side by side counted once."""
    busy = [0.0] * len(found)
    if not found:
        return busy
    longest = allocations["elapsed_s"].max().to_pyarrow().as_py()
    if longest is None:
        return busy
    # As wide as the longest allocation, so that one which reaches into an outage began in one of
    # the outage's buckets or in the one before its first.
    width_s = int(max(longest, SECONDS_PER_DAY)) + 2
    start_s = epoch_s(allocations["start"])
    held = allocations.select(
        "cluster",
        "node",
        start_s=start_s,
        end_s=epoch_s(allocations["end"]).fill_null(
            start_s + allocations["elapsed_s"].cast("int64")
        ),
        bucket=(start_s // width_s).cast("int64"),
    )
    met = held.inner_join(_buckets(found, width_s), ["cluster", "node", "bucket"])
    met = met.filter((met["start_s"] < met["out_end_s"]) & (met["end_s"] > met["out_start_s"]))
    rows = fetch(met, "place", "start_s", "end_s", "out_start_s", "out_end_s")
    places = rows["place"].to_numpy()
    starts_s, ends_s, from_s, to_s = (floats_of(column) for column in rows.columns[1:])
    covered_s = _covered_s(places, np.maximum(starts_s, from_s), np.minimum(ends_s, to_s))
    for place, held_s in zip(*covered_s, strict=True):
        busy[place] = float(held_s) / SECONDS_PER_HOUR
    return busy


def _buckets(found: list[Outage], width_s: int) -> ibis.Table:
    """Each outage in every bucket of time in which an allocation that meets it may have begun."""
    firsts = [int(outage.start_s // width_s) - 1 for outage in found]
    buckets = [
        range(first, int(outage.end_s // width_s) + 1)
        for first, outage in zip(firsts, found, strict=True)
    ]
    places = np.repeat(np.arange(len(found)), [len(some) for some in buckets])
    columns = {
        "cluster": pa.array([outage.cluster for outage in found], pa.string()),
        "node": pa.array([outage.node for outage in found], pa.string()),
        "out_start_s": pa.array([outage.start_s for outage in found], pa.float64()),
        "out_end_s": pa.array([outage.end_s for outage in found], pa.float64()),
        "place": pa.array(range(len(found)), pa.int64()),
    }
    made = pa.table(columns).take(places)
    return ibis.memtable(
        made.append_column("bucket", pa.array(chain.from_iterable(buckets), pa.int64()))
    )


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
