"""Faults of a store's nodes: from logs that record faults, else from errors and outages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ettr.analysis.assumptions import Assumptions
from ettr.analysis.clustering import fault_clustering
from ettr.errors import UsageError
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead, Service
from ettr.metrics.faults import (
    FleetFaults,
    NodeFaults,
    NodeKey,
    fleet_faults,
    observed_faults,
    recorded_faults,
)
from ettr.metrics.instants import Floats, Period, to_datetime
from ettr.metrics.outages import Outage
from ettr.models.data import Counts
from ettr.selection import Selection
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    import pyarrow as pa


class OfFaults(Protocol):
    """What faults of nodes take."""

    assumptions: Assumptions
    selection: Selection
    period: Period
    logs_period: Period
    fleet: Service
    outages: tuple[Outage, ...]


class OfCounts(OfFaults, Protocol):
    """What counts of faults by node take."""

    facts: Facts
    logs_read: LogsRead


def faults_of(facts: Facts, given: OfFaults) -> tuple[NodeFaults, bool]:
    """The faults of a store's nodes, and whether they are put together from errors and outages.

    A log that records faults decides; an outage that it names is the same fault again. Errors and
    outages belong to one fault of a node where no silence between them is longer than the window
    in which an event explains an end. Those of machines outside the fleet do not count: there is no
    exposure for them.
    """
    chosen = given.selection
    recorded = recorded_faults(facts, given.logs_period)
    if len(recorded):
        return (recorded if chosen.is_everything else _selected(recorded, given)), False
    gap_s = given.assumptions.window.length_s
    found = observed_faults(facts, given.outages, gap_s)
    in_fleet = given.fleet.spans_s
    here = found.of_nodes([node in in_fleet for node in found.nodes])
    return (here if chosen.is_everything else _selected(here, given)), True


def _selected(faults: NodeFaults, given: OfFaults) -> NodeFaults:
    """The faults that began in the selected period, on selected nodes."""
    chosen, in_fleet = given.selection, given.fleet.spans_s

    def is_selected(cluster: str, node: str | None) -> bool:
        if chosen.cluster and cluster not in chosen.cluster:
            return False
        if node is None:
            return not (chosen.of_nodes or chosen.partition)
        return (cluster, node) in in_fleet

    here = faults.of_nodes([is_selected(cluster, node) for cluster, node in faults.nodes])
    inside = np.array([chosen.holds(start_s) for start_s in here.start_s.tolist()], dtype=np.bool_)
    return here.only(inside)


def node_faults(facts: Facts, given: OfFaults) -> FleetFaults | None:
    """Faults of the fleet; None where the logs hold none."""
    faults, observed = faults_of(facts, given)
    confidence = given.assumptions.confidence
    fleet, period = given.fleet, given.period

    def spread_of(starts_s: Floats, counts: dict[NodeKey, int]) -> FleetSpread:
        return fault_clustering(starts_s, counts, fleet, period, confidence)

    clustered = spread_of if fleet.node_s > 0 else None
    return fleet_faults(
        faults, fleet, confidence=confidence, spread_of=clustered, observed=observed
    )


def fault_counts(analysis: OfCounts, name: str) -> Counts:
    """Faults and days in service of each node, as failure models take them.

    Raises:
        UsageError: no fault or no time in service is known, or not how many nodes there were.
    """
    fleet = analysis.fleet
    faults, _ = faults_of(analysis.facts, analysis)
    if not len(faults) and not analysis.logs_read.errors and not analysis.logs_read.node_states:
        raise UsageError(f"{name}: no job has run and no fault of a node is recorded")
    if not fleet.is_known:
        nodes = counted(len(fleet.spans_s), "node")
        raise UsageError(
            f"{name}: the logs name only the {nodes} that had trouble; say with --fleet-nodes N "
            "how many there are, or ingest the inventory (`scontrol show node`)"
        )
    node_days = np.array([fleet.served_s(node) for node in fleet.spans_s]) / SECONDS_PER_DAY
    if not node_days.sum() > 0:
        raise UsageError(
            f"{name}: the logs span no time, so there is no exposure; give logs of more than one "
            "moment"
        )
    owned = faults.by_node
    served = node_days > 0
    counts = np.array([owned.get(node, 0) for node in fleet.spans_s])
    names = np.array([f"{cluster}/{node}" for cluster, node in fleet.spans_s])
    placed = int(counts[served].sum())
    return Counts(counts[served], node_days[served], names[served], "node", len(faults) - placed)


def fault_tables(analysis: OfCounts) -> tuple[pa.Table, pa.Table]:
    """Faults as rows of failures (end, node, symptom), and time in service (node, start, ...).

    A node's name holds over several clusters. The second table has `start`, `elapsed_s` and
    `n_nodes`, one row a time of a node in service.
    """
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    faults, _ = faults_of(analysis.facts, analysis)
    named = faults.of_nodes([node is not None for _, node in faults.nodes])
    names = [f"{cluster}/{node}" for cluster, node in named.nodes]
    ended = pa.table(
        {
            "end": pa.array([to_datetime(start_s) for start_s in named.start_s], moment),
            "node": pa.array([names[place] for place in named.node], pa.string()),
            "symptom": pa.array(named.category, pa.string()),
        }
    )
    fleet = analysis.fleet
    pieces = [
        (f"{node[0]}/{node[1]}", *piece)
        for node in fleet.spans_s
        for piece in fleet.pieces_of(node)
    ]
    served = pa.table(
        {
            "node": pa.array([node for node, _, _ in pieces], pa.string()),
            "start": pa.array([to_datetime(start_s) for _, start_s, _ in pieces], moment),
            "elapsed_s": pa.array([end_s - start_s for _, start_s, end_s in pieces]),
            "n_nodes": pa.array([1] * len(pieces), pa.int64()),
        }
    )
    return ended, served
