"""One record for each node, and failure rates of racks, pods and switches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.facts import Facts
from ettr.facts.files import Columns
from ettr.facts.stored import kinds_of_nodes
from ettr.metrics.availability import Service
from ettr.metrics.goodput import lost_gpu_s
from ettr.metrics.instants import moment, to_datetime
from ettr.metrics.outages import Outage
from ettr.metrics.rates import PER_NODE_DAYS, FailuresByConfidence, counted_confidences
from ettr.metrics.run_rules import LOST_CAP_MIN
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

NodeName = tuple[str, str]
_PLACES = ("rack", "pod", "switch")
GPU_CHECKS = ("xid", "sxid")
"""Checks whose codes are of a GPU or NVSwitch."""


@dataclass(frozen=True, slots=True)
class CodeCount:
    """How often the kernel log of a node shows one code of its GPUs or NVSwitches."""

    check: str
    code: str
    events: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """The outages of a node with one class of reasons."""

    reason_class: str
    is_planned: bool
    outages: int
    hours: float


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is known of one node; None where no log says it.

    Attributes:
        blame: Its weights of the table `blame`: those, and its part of failures that blame no
            single node.
        lost_gpu_hours: What these failures lost, at most the cap each; None where that of any is
            not known.
        expected_failures: Those that a node of its class (without GPUs, or of its type of GPU) with
            as many node-days has on average.
        chance: Probability that chance alone gives some node of the fleet so many more failures
            than expected as this one has.
        failed_attempts: Attempts that ended as a failure while they held it, whichever node is
            blamed.
        codes: XIDs and SXIDs in its kernel log, most frequent first.
    """

    cluster: str
    node: str
    gpu_type: str | None
    partitions: str | None
    rack: str | None
    pod: str | None
    switch: str | None
    in_service_h: float | None
    node_days: float | None
    failures: int | None
    blame: float | None
    lost_gpu_hours: float | None
    expected_failures: float | None
    chance: float | None
    failed_attempts: int | None
    unplanned_outages: int | None
    unplanned_h: float | None
    planned_h: float | None
    outages_by_reason: tuple[ReasonCount, ...]
    codes: tuple[CodeCount, ...]
    last_repair: datetime | None
    is_out: bool | None


@dataclass(frozen=True, slots=True)
class PlaceRate:
    """Failures blamed on the nodes of one rack, pod or switch; `chance` as for a node.

    `blame` is the sum over the nodes. Its rate has no interval: how a failure that blames no single
    node is divided among racks says little of each, however many there are.
    """

    kind: str
    cluster: str
    name: str
    nodes: int
    failures: int
    node_days: float
    per_1000_node_days: Interval
    chance: float | None
    blame: float
    blame_per_1000_node_days: float | None


@dataclass(frozen=True, slots=True)
class NodeRecords:
    """Every node, the most remarkable first, and the rates of the places they are in.

    Attributes:
        nodes: In order of `chance`, then failures, then hours out of service.
        blamed_failures: Failures that are blamed on one node; None without job accounting.
        failures: All failures; None likewise.
    """

    nodes: tuple[NodeRecord, ...]
    places: tuple[PlaceRate, ...]
    blamed_failures: int | None
    failures: int | None
    with_node_states: bool
    with_codes: bool
    by_confidence: FailuresByConfidence | None = None


def node_records(
    facts: Facts,
    fleet: Service,
    outages: Sequence[Outage] | None,
    blame: Mapping[NodeName, float],
    *,
    has_jobs: bool,
    cap_min: float | None = LOST_CAP_MIN,
    only_fleet: bool = False,
    confidence: float = CONFIDENCE,
) -> NodeRecords:
    """Records of all nodes that any log names.

    Args:
        outages: of all nodes, cut to their time in service; None where no log has states of nodes.
        cap_min: the most that one failure loses, in minutes; None where no GPUs are known.
        only_fleet: leave out nodes that are not in `fleet`, such as those that are not selected.
    """
    days = ran_node_days(facts)
    failures = facts.columns("failures")
    failed = blamed_failures(facts)
    held = {_name(row): row["n_failed"] for row in facts.rows("failed_on_nodes")}
    codes, inventory = _codes(facts), {_name(row): row for row in facts.rows("nodes")}
    unknown: Mapping[str, Any] = dict.fromkeys(_INVENTORY)
    out = None if outages is None else outages_by_node(outages)
    names = sorted({*fleet.spans_s, *(() if only_fleet else (*days, *failed, *codes))})
    blamed = sum(failed.get(name, 0) for name in names)
    lost = {} if cap_min is None else _lost_gpu_hours(failures, cap_min)
    kind_of = kinds_of_nodes(facts) if has_jobs else {}
    of_kind: Counter[object] = Counter()
    days_of_kind: dict[object, float] = defaultdict(float)
    for name in names:
        of_kind[kind_of.get(name)] += failed.get(name, 0)
        days_of_kind[kind_of.get(name)] += days.get(name, 0.0)
    shares = {
        name: days.get(name, 0.0) / total if (total := days_of_kind[kind_of.get(name)]) else 0.0
        for name in names
    }
    records = [
        NodeRecord(
            cluster=name[0],
            node=name[1],
            **{column: inventory.get(name, unknown)[column] for column in _INVENTORY},
            in_service_h=fleet.served_s(name) / SECONDS_PER_HOUR if name in fleet.spans_s else None,
            node_days=days.get(name, 0.0) if has_jobs else None,
            failures=failed.get(name, 0) if has_jobs else None,
            blame=blame.get(name, 0.0) if has_jobs else None,
            lost_gpu_hours=lost.get(name, 0.0) if has_jobs and cap_min is not None else None,
            expected_failures=of_kind[kind_of.get(name)] * shares[name]
            if has_jobs and any(days_of_kind.values())
            else None,
            chance=_chance(
                failed.get(name, 0), of_kind[kind_of.get(name)], shares[name], len(days)
            ),
            failed_attempts=held.get(name, 0) if has_jobs else None,
            codes=codes.get(name, ()),
            **outage_facts(None if out is None else out.get(name, []), fleet.is_away_last(name)),
        )
        for name in names
    ]
    records.sort(
        key=lambda one: (
            1.0 if one.chance is None else one.chance,
            -(one.failures or 0),
            -(one.unplanned_h or 0.0),
            one.cluster,
            one.node,
        )
    )
    sure = counted_confidences(failures["confidence"].tolist()) if has_jobs else None
    return NodeRecords(
        nodes=tuple(records),
        places=tuple(_places(records, confidence)) if has_jobs else (),
        blamed_failures=blamed if has_jobs else None,
        failures=None if sure is None else sure.total,
        with_node_states=outages is not None,
        with_codes=bool(codes.keys() & set(names)),
        by_confidence=sure,
    )


def ran_node_days(facts: Facts) -> dict[NodeName, float]:
    """Node-days of each named node on which a chosen attempt ran."""
    return {
        _name(row): row["ran_s"] / SECONDS_PER_DAY
        for row in facts.rows("node_hours")
        if row["node"] is not None and row["ran_s"] is not None
    }


def blamed_failures(facts: Facts) -> dict[NodeName, int]:
    """How many failures of the selection blame each node."""
    failures = facts.columns("failures")
    names = zip(failures["cluster"].tolist(), failures["node"].tolist(), strict=True)
    return dict(Counter(name for name in names if name[1] is not None))


def _lost_gpu_hours(failures: Columns, cap_min: float) -> dict[NodeName, float | None]:
    """By node that failures blame, what they lost; None where that of any is not known."""
    sums: dict[NodeName, float | None] = {}
    names = ("cluster", "node", "elapsed_s", "n_gpus")
    for cluster, node, elapsed_s, n_gpus in zip(
        *(failures[name].tolist() for name in names), strict=True
    ):
        if node is None:
            continue
        ran_s, gpus = (None if n is None or math.isnan(n) else n for n in (elapsed_s, n_gpus))
        lost_s = lost_gpu_s(ran_s, gpus, cap_min * SECONDS_PER_MINUTE)
        before = sums.get((cluster, node), 0.0)
        sums[cluster, node] = (
            None if lost_s is None or before is None else before + lost_s / SECONDS_PER_HOUR
        )
    return sums


def _name(row: Mapping[str, Any]) -> NodeName:
    return row["cluster"], row["node"]


def _codes(facts: Facts) -> dict[NodeName, tuple[CodeCount, ...]]:
    of_period = facts.given("selection").has_period
    by_node: dict[NodeName, list[CodeCount]] = defaultdict(list)
    for row in facts.rows("node_codes_of_period" if of_period else "node_codes"):
        times = (moment(row[name]) for name in ("first_us", "last_us"))
        by_node[_name(row)].append(CodeCount(row["check"], row["code"], row["events"], *times))
    return {
        name: tuple(sorted(found, key=lambda one: (-one.events, one.check, one.code)))
        for name, found in by_node.items()
    }


_INVENTORY = ("gpu_type", "partitions", *_PLACES)


def outages_by_node(outages: Iterable[Outage]) -> dict[NodeName, list[Outage]]:
    """The outages of each node that had any."""
    groups: dict[NodeName, list[Outage]] = defaultdict(list)
    for one in outages:
        groups[one.cluster, one.node].append(one)
    return groups


def outage_facts(found: list[Outage] | None, is_away: bool = False) -> dict[str, Any]:
    """The fields of a record that outages fill; None for all where none are in the logs."""
    if found is None:
        unknown = ("unplanned_outages", "unplanned_h", "planned_h", "last_repair", "is_out")
        return {**dict.fromkeys(unknown), "outages_by_reason": ()}
    unplanned = [one for one in found if not one.is_planned]
    ended_s = [one.end_s for one in unplanned if not one.is_open]
    by_reason: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for one in found:
        by_reason[one.reason_class, one.is_planned].append(one.hours)
    reasons = [ReasonCount(*key, len(hours), sum(hours)) for key, hours in by_reason.items()]
    return {
        "unplanned_outages": len(unplanned),
        "unplanned_h": sum(one.hours for one in unplanned),
        "planned_h": sum(one.hours for one in found if one.is_planned),
        "outages_by_reason": tuple(sorted(reasons, key=lambda one: (-one.hours, one.reason_class))),
        "last_repair": to_datetime(max(ended_s)) if ended_s else None,
        "is_out": is_away or any(one.is_open for one in found),
    }


def _chance(failures: int, total: int, share: float, compared: int) -> float | None:
    """Probability of so many failures or more on one of several nodes if all are alike."""
    if not total or share <= 0:
        return None
    from ettr.estimates.special import betainc

    tail = float(betainc(failures, total - failures + 1.0, share)) if failures else 1.0
    return min(1.0, compared * tail)


def _places(records: Sequence[NodeRecord], confidence: float) -> Iterable[PlaceRate]:
    for kind in _PLACES:
        groups: dict[NodeName, list[NodeRecord]] = defaultdict(list)
        for record in records:
            name = getattr(record, kind)
            if name is not None:
                groups[record.cluster, name].append(record)
        total = sum(one.failures or 0 for group in groups.values() for one in group)
        days = sum(one.node_days or 0.0 for group in groups.values() for one in group)
        rates = []
        for (cluster, name), group in groups.items():
            failures = sum(one.failures or 0 for one in group)
            node_days = sum(one.node_days or 0.0 for one in group)
            per_1000 = FailureRate(failures, node_days).interval(confidence).scaled(PER_NODE_DAYS)
            chance = _chance(failures, total, node_days / days if days else 0.0, len(groups))
            blame = sum(one.blame or 0.0 for one in group)
            rates.append(
                PlaceRate(
                    *(kind, cluster, name, len(group), failures, node_days, per_1000, chance),
                    *(blame, PER_NODE_DAYS * blame / node_days if node_days else None),
                )
            )
        rates.sort(
            key=lambda one: (1.0 if one.chance is None else one.chance, one.cluster, one.name)
        )
        yield from rates
