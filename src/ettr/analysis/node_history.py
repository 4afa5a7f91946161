"""Nodes ranked by what they cost, GPUs that reported an XID, and the history of one node.

The history: its record, the failures of jobs on it, its outages, the places it is in.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ettr.analysis.assumptions import Assumptions
from ettr.analysis.failure_questions import failure_list
from ettr.analysis.lemon_nodes import SERIAL
from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.metrics.availability import Service, outages_in_service
from ettr.metrics.black_holes import BlackHole, HungRun, black_holes, hung_runs
from ettr.metrics.instants import Period, moment, to_datetime, to_seconds
from ettr.metrics.node_records import GPU_CHECKS, NodeRecord, NodeRecords, PlaceRate, node_records
from ettr.metrics.outages import Outage, SymptomTimes, recovery_times
from ettr.metrics.rates import FailuresByConfidence, counted_confidences

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis
    from ettr.lemons.candidates import Blame
    from ettr.metrics.availability import LogsRead
    from ettr.selection import Selection

_OnNode = TypeVar("_OnNode", BlackHole, HungRun)
_SIMILAR = 5


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """An attempt that ended as a failure while it held the node.

    `blamed` is the node that the failure is blamed on; None where no single one can be.
    """

    end: datetime
    job_id: str
    user: str | None
    state: str
    n_nodes: int | None
    symptom: str
    confidence: str
    blamed: str | None


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """One outage; `end` is None where it is not over."""

    start: datetime
    end: datetime | None
    hours: float
    is_planned: bool
    reason_class: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """How often the kernel log shows one code of one GPU or NVSwitch of the node.

    `device` is its PCI address, or what else the line names it by; None where it names none.
    """

    check: str
    code: str
    device: str | None
    events: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What the logs hold of one node, in order of time; its devices by their number of codes.

    `by_confidence` says how sure the failures are that are blamed on it; None without job
    accounting. `black_holes` and `hung_runs` are failures of it that do not count as such.
    """

    record: NodeRecord
    nodes_compared: int
    failures: tuple[NodeFailure, ...]
    outages: tuple[NodeOutage, ...] | None
    places: tuple[PlaceRate, ...]
    devices: tuple[DeviceCode, ...]
    by_confidence: FailuresByConfidence | None
    black_holes: tuple[BlackHole, ...] = ()
    hung_runs: tuple[HungRun, ...] = ()


class OfRecords(Protocol):
    """What records of nodes, and times of their recovery, take."""

    assumptions: Assumptions
    logs_read: LogsRead
    gpus_are_known: bool
    selection: Selection
    selected: object
    period: Period
    fleet: Service
    logs_period: Period
    logs_fleet: Service
    outages: tuple[Outage, ...]
    blame: list[Blame]

    def outages_in(self, period: Period) -> tuple[Outage, ...]:
        """Outages of a period; open ones are cut at its end."""
        ...


def records_of(facts: Facts, given: OfRecords) -> NodeRecords:
    """Each node: exposure, failures against those expected, outages, last repair."""
    from ettr.analysis.lemon_nodes import summed

    return node_records(
        facts,
        given.fleet,
        _outages(given, given.period, given.fleet),
        summed(given.blame) if given.logs_read.jobs else {},
        only_fleet=given.selected is not None,
        has_jobs=given.logs_read.jobs,
        cap_min=given.assumptions.lost_cap_min if given.gpus_are_known else None,
        confidence=given.assumptions.confidence,
    )


def recovery_of(facts: Facts, given: OfRecords) -> tuple[SymptomTimes, ...]:
    """From the first error to a node that works again, by symptom.

    Of the selected failures; what followed them is read beyond the ends of a period.
    """
    return recovery_times(
        facts,
        _outages(given, given.logs_period, given.logs_fleet),
        given.logs_period,
        given.assumptions.confidence,
    )


def _outages(given: OfRecords, period: Period, fleet: Service) -> list[Outage] | None:
    if not given.logs_read.node_states:
        return None
    if period == given.logs_period:
        return outages_in_service(given.outages, fleet)
    touching = (one for one in given.outages_in(period) if _reaches_into(one, given.selection))
    return outages_in_service(touching, fleet)


def _reaches_into(outage: Outage, selection: Selection) -> bool:
    """Whether an outage has time in the selected period; one that only meets its ends has none."""
    since, until = selection.since, selection.until
    if until is not None and outage.start_s >= to_seconds(until):
        return False
    if since is None or outage.start_s >= to_seconds(since):
        return True
    return outage.end_s > to_seconds(since)


class OfHistory(OfRecords, Protocol):
    """What the history of a node takes."""

    facts: Facts
    node_records: NodeRecords


def node_history(analysis: OfHistory, name: str) -> NodeHistory:
    """The history of a node.

    Args:
        name: as its scheduler or a log writes it; with its cluster, `CLUSTER/NODE`, where several
            have it.

    Raises:
        UsageError: no log names such a node, or nodes of several clusters have the name.
    """
    records = analysis.node_records
    aliases = analysis.facts.rows("node_aliases")
    record = _named(records.nodes, name, aliases)
    outages = _outages(analysis, analysis.period, analysis.fleet)
    places = {("rack", record.rack), ("pod", record.pod), ("switch", record.switch)}
    failures = _failures(analysis, record)
    return NodeHistory(
        record,
        sum(1 for one in records.nodes if one.node_days),
        failures,
        None
        if outages is None
        else tuple(
            _outage(one)
            for one in outages
            if (one.cluster, one.node) == (record.cluster, record.node)
        ),
        tuple(
            one
            for one in records.places
            if one.cluster == record.cluster and (one.kind, one.name) in places
        ),
        _devices(analysis, record),
        counted_confidences(one.confidence for one in failures if one.blamed == record.node)
        if analysis.logs_read.jobs
        else None,
        _of_node(black_holes(analysis.facts), record) if analysis.logs_read.jobs else (),
        _of_node(hung_runs(analysis.facts), record) if analysis.logs_read.jobs else (),
    )


def _of_node(found: Iterable[_OnNode], record: NodeRecord) -> tuple[_OnNode, ...]:
    node = record.cluster, record.node
    return tuple(one for one in found if (one.cluster, one.node) == node)


def _named(
    records: tuple[NodeRecord, ...], name: str, aliases: Iterable[Mapping[str, Any]] = ()
) -> NodeRecord:
    """The node of that name, or which a log calls so."""
    matching = [one for one in records if name in {one.node, f"{one.cluster}/{one.node}"}]
    if not matching:
        called = {
            (row["cluster"], row["scheduler_node"])
            for row in aliases
            if name in {row["node"], f"{row['cluster']}/{row['node']}"}
        }
        matching = [one for one in records if (one.cluster, one.node) in called]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(f"{one.cluster}/{one.node}" for one in matching)
        raise UsageError(f"node {name!r} is in several clusters; give one of {names}")
    similar = _similar(records, name)
    hint = f"similar names: {', '.join(similar)}" if similar else "`ettr node STORE` lists all"
    raise UsageError(f"no log names a node {name!r}; {hint}")


def _similar(records: tuple[NodeRecord, ...], name: str) -> list[str]:
    """Names that can be given instead: with the cluster where there are several."""
    is_single = len({one.cluster for one in records}) == 1
    bare = name.rsplit("/", 1)[-1]
    near = difflib.get_close_matches(bare, {one.node for one in records}, _SIMILAR)
    # the same name in another cluster is the nearest
    near.sort(key=lambda one: one != bare)
    return [
        one.node if is_single else f"{one.cluster}/{one.node}"
        for node in near
        for one in records
        if one.node == node
    ][:_SIMILAR]


def facts_on(facts: Facts, node: tuple[str, str]) -> Facts:
    """The facts of the selection that ask about one node, by cluster and name."""
    return facts.under(asked_cluster=node[0], asked_node=node[1])


def _failures(analysis: OfHistory, record: NodeRecord) -> tuple[NodeFailure, ...]:
    if not analysis.logs_read.jobs:
        return ()
    found = facts_on(analysis.facts, (record.cluster, record.node)).rows("failures_on_node")
    columns = ("job_id", "user", "state", "n_nodes", "symptom", "confidence")
    return tuple(
        NodeFailure(
            end=moment(row["end_us"]), blamed=row["node"], **{name: row[name] for name in columns}
        )
        for row in sorted(found, key=lambda row: (row["end_us"], row["job_id"]))
    )


def _devices(analysis: OfHistory, record: NodeRecord) -> tuple[DeviceCode, ...]:
    by_device: dict[tuple[str, str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for row in facts_on(analysis.facts, (record.cluster, record.node)).rows("node_checks"):
        if row["check"] in GPU_CHECKS and row["code"] is not None:
            by_device[row["check"], row["code"], row["entity"]].append(row)
    found = [
        DeviceCode(
            *device,
            sum(row["events"] for row in rows),
            moment(min(row["first_us"] for row in rows)),
            moment(max(row["last_us"] for row in rows)),
        )
        for device, rows in by_device.items()
    ]
    return tuple(
        sorted(found, key=lambda one: (-one.events, one.check, one.code, one.device or ""))
    )


def _outage(one: Outage) -> NodeOutage:
    return NodeOutage(
        to_datetime(one.start_s),
        None if one.is_open else to_datetime(one.end_s),
        one.hours,
        one.is_planned,
        one.reason_class,
        one.reason,
    )


LOST, FAILURES, HOURS_OUT = "lost-gpu-hours", "failures", "hours-out"


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What the failures that are blamed on one node cost.

    Attributes:
        failures: Failures that are blamed on it; null without job accounting.
        lost_gpu_hours: What those lost in the failed jobs and in jobs preempted for them; null
            where that of any failed job is not known.
        unplanned_h: Hours out of service unplanned; null where no log has states of nodes.
        codes: XIDs and SXIDs in its kernel log, most frequent first.
    """

    cluster: str
    node: str
    failures: int | None
    lost_gpu_hours: float | None
    unplanned_h: float | None
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """All nodes, the costliest first.

    Attributes:
        lost_gpu_hours: What all failures lost, those included that are blamed on no node; null
            where the logs do not say.
    """

    by: str
    lost_gpu_hours: float | None
    nodes: tuple[NodeCost, ...]


def node_costs(analysis: Analysis, by: str) -> NodeCosts:
    """Nodes with what their failures cost, ranked by `LOST`, `FAILURES` or `HOURS_OUT`."""
    driven_out: dict[tuple[str, str], float] = defaultdict(float)
    total = 0.0
    for failure in analysis.ask(failure_list).failures:
        preempted = failure.preempted_gpu_hours or 0.0
        total += (failure.lost_gpu_hours or 0.0) + preempted
        if failure.node is not None:
            driven_out[failure.cluster, failure.node] += preempted
    nodes = [
        NodeCost(
            one.cluster,
            one.node,
            one.failures,
            None
            if one.lost_gpu_hours is None
            else one.lost_gpu_hours + driven_out[one.cluster, one.node],
            one.unplanned_h,
            tuple(f"{code.check} {code.code}" for code in one.codes),
        )
        for one in analysis.node_records.nodes
    ]

    def rank(one: NodeCost) -> tuple[bool, float, str, str]:
        cost = cost_of(one, by)
        return cost is None, -(cost or 0.0), one.cluster, one.node

    is_known = analysis.logs_read.jobs and analysis.gpus_are_known
    return NodeCosts(by, total if is_known else None, tuple(sorted(nodes, key=rank)))


def cost_of(one: NodeCost, by: str) -> float | None:
    """What a node is ranked by; None where the logs do not say."""
    return {LOST: one.lost_gpu_hours, FAILURES: one.failures, HOURS_OUT: one.unplanned_h}[by]


@dataclass(frozen=True, slots=True)
class XidDevice:
    """A GPU that reported one XID.

    Attributes:
        node: The node.
        device: Its PCI address, or what else the line names it by; null where it names none.
        serial: The latest serial number that it, or its node, reported; null where no log has one.
    """

    cluster: str
    node: str
    device: str | None
    serial: str | None
    events: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class XidDevices:
    """GPUs that reported one XID, the newest first."""

    code: str
    events: int
    devices: tuple[XidDevice, ...]


def xid_devices(analysis: Analysis, code: int) -> XidDevices:
    """GPUs that reported an XID in the selected period."""
    serials: dict[tuple[str, str, str | None], str] = {}
    for row in sorted(analysis.facts.rows("tickets"), key=lambda row: row["time_us"]):
        if row["check"] == SERIAL and row["code"]:
            serials[row["cluster"], row["node"], row["entity"]] = row["code"]
    chosen = {(one.cluster, one.node) for one in analysis.node_records.nodes}
    devices = [
        XidDevice(
            row["cluster"],
            row["node"],
            row["entity"],
            serials.get((row["cluster"], row["node"], row["entity"]))
            or serials.get((row["cluster"], row["node"], None)),
            row["events"],
            moment(row["first_us"]),
            moment(row["last_us"]),
        )
        for row in analysis.facts.rows("xid_devices")
        if row["code"] == str(code) and (row["cluster"], row["node"]) in chosen
    ]
    devices.sort(key=lambda one: (one.last, one.cluster, one.node, one.device or ""), reverse=True)
    return XidDevices(str(code), sum(one.events for one in devices), tuple(devices))
