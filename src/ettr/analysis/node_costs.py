"""Nodes ranked by what they cost, and the GPUs that reported an XID."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ettr.analysis.failure_list import failure_list
from ettr.analysis.lemon_nodes import SERIAL
from ettr.metrics.instants import moment

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis

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
