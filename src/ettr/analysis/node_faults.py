"""Faults of a store's nodes: from logs that record faults, else from errors and outages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ettr.analysis.analysis import Analysis
from ettr.analysis.clustering import fault_clustering
from ettr.errors import UsageError
from ettr.estimates.spread import FleetSpread
from ettr.metrics.faults import (
    FleetFaults,
    NodeError,
    NodeFault,
    fleet_faults,
    observed_faults,
    recorded_faults,
)
from ettr.metrics.instants import Floats, fetch, seconds_of, to_datetime
from ettr.metrics.outages import outages
from ettr.models.data import Counts
from ettr.units import SECONDS_PER_DAY


def faults_of(analysis: Analysis) -> tuple[tuple[NodeFault, ...], bool]:
    """The faults of a store's nodes, and whether they are put together from errors and outages.

    A log that records faults decides; an outage that it names is the same fault again. Errors and
    outages belong to one fault of a node where no silence between them is longer than the window
    in which an event explains an end. Those of machines outside the fleet do not count: there is no
    exposure for them.
    """
    t, in_fleet = analysis.tables, analysis.fleet.spans_s
    recorded = recorded_faults(t["events"], analysis.logs_period)
    if recorded:
        return tuple(one for one in recorded if _is_selected(one, analysis)), False
    down = outages(t["node_states"], analysis.logs_period, analysis.taxonomy)
    gap_s = analysis.assumptions.window.length_s
    found = observed_faults(_errors(analysis), down, gap_s)
    here = (one for one in found if (one.cluster, one.node) in in_fleet)
    return tuple(one for one in here if _is_selected(one, analysis)), True


def _is_selected(fault: NodeFault, analysis: Analysis) -> bool:
    """Whether a fault began in the selected period, on a selected node."""
    chosen = analysis.selection
    if chosen.is_everything:
        return True
    if not chosen.holds(fault.start_s) or (chosen.cluster and fault.cluster not in chosen.cluster):
        return False
    if fault.node is None:
        return not (chosen.of_nodes or chosen.partition)
    return (fault.cluster, fault.node) in analysis.fleet.spans_s


def _errors(analysis: Analysis) -> Iterator[NodeError]:
    episodes = analysis.attribution.episodes
    rows = fetch(episodes, "cluster", "node", "symptom", "rank", "first", "last")
    firsts_s, lasts_s = seconds_of(rows["first"]).tolist(), seconds_of(rows["last"]).tolist()
    named = [rows[name].to_pylist() for name in ("cluster", "node", "symptom", "rank")]
    for cluster, node, symptom, rank, first_s, last_s in zip(
        *named, firsts_s, lasts_s, strict=True
    ):
        yield NodeError(cluster, node, symptom, rank, first_s, last_s)


def node_faults(analysis: Analysis) -> FleetFaults | None:
    """Fault rates of a store's nodes; None where the logs hold no fault."""
    faults, observed = faults_of(analysis)
    confidence = analysis.assumptions.confidence
    fleet, period = analysis.fleet, analysis.period

    def spread_of(starts_s: Floats, counts: dict[tuple[str, str | None], int]) -> FleetSpread:
        return fault_clustering(starts_s, counts, fleet, period, confidence)

    clustered = spread_of if fleet.node_s > 0 else None
    return fleet_faults(
        faults, fleet, confidence=confidence, spread_of=clustered, observed=observed
    )


def fault_counts(analysis: Analysis, name: str) -> Counts:
    """Faults and days in service of each node, as failure models take them.

    Args:
        analysis: of the store.
        name: what to call it in a message.

    Raises:
        UsageError: no fault or no time in service is known, or not how many nodes there were.
    """
    fleet = analysis.fleet
    faults, _ = faults_of(analysis)
    if not faults and not analysis.logs_read.node_checks and not analysis.logs_read.node_states:
        raise UsageError(f"{name}: no job has run and no fault of a node is recorded")
    if not fleet.is_known:
        raise UsageError(
            f"{name}: the logs name only the {len(fleet.spans_s)} nodes that had trouble; say with "
            "--fleet-nodes N how many there are, or ingest the inventory (`scontrol show node`)"
        )
    spans = np.array(list(fleet.spans_s.values()), dtype=np.float64).reshape(-1, 2)
    node_days = (spans[:, 1] - spans[:, 0]) / SECONDS_PER_DAY
    if not node_days.sum() > 0:
        raise UsageError(
            f"{name}: the logs span no time, so there is no exposure; give logs of more than one "
            "moment"
        )
    owned: dict[tuple[str, str | None], int] = {}
    for fault in faults:
        owned[fault.cluster, fault.node] = owned.get((fault.cluster, fault.node), 0) + 1
    served = node_days > 0
    counts = np.array([owned.get(node, 0) for node in fleet.spans_s])
    names = np.array([f"{cluster}/{node}" for cluster, node in fleet.spans_s])
    placed = int(counts[served].sum())
    return Counts(counts[served], node_days[served], names[served], "node", len(faults) - placed)


def fault_tables(analysis: Analysis) -> tuple[pa.Table, pa.Table]:
    """Faults as rows of failures (end, node, symptom), and time in service (node, start, ...).

    A node's name holds over several clusters. The second table has `start`, `elapsed_s` and
    `n_nodes`, one row a node.
    """
    moment = pa.timestamp("us", tz="UTC")
    faults, _ = faults_of(analysis)
    placed = [fault for fault in faults if fault.node is not None]
    ended = pa.table(
        {
            "end": pa.array([to_datetime(fault.start_s) for fault in placed], moment),
            "node": pa.array([f"{fault.cluster}/{fault.node}" for fault in placed], pa.string()),
            "symptom": pa.array([fault.category for fault in placed], pa.string()),
        }
    )
    spans = analysis.fleet.spans_s
    served = pa.table(
        {
            "node": pa.array([f"{cluster}/{node}" for cluster, node in spans], pa.string()),
            "start": pa.array([to_datetime(start_s) for start_s, _ in spans.values()], moment),
            "elapsed_s": pa.array([end_s - start_s for start_s, end_s in spans.values()]),
            "n_nodes": pa.array([1] * len(spans), pa.int64()),
        }
    )
    return ended, served
