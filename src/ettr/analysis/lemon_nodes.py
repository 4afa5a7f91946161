"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from ettr.analysis.lemon_signals import OfSignals, fleet_signals
from ettr.analysis.node_faults import OfFaults, faults_of
from ettr.facts import Facts
from ettr.lemons.candidates import LemonReport, lemon_report
from ettr.lemons.fleet import (
    Placement,
    Stratum,
    UnplacedFailures,
    fault_strata,
    likely_renames,
    node_kinds,
    placement,
    strata,
    unplaced_failures,
    workload_parts,
)
from ettr.lemons.model import FleetSignals, LemonFit, NodeCounts, NodeName, NodeSignals
from ettr.metrics.availability import Service
from ettr.metrics.exposure import NodeJobs
from ettr.metrics.instants import to_datetime
from ettr.metrics.logs_read import LogsRead
from ettr.metrics.node_records import ran_node_days
from ettr.selection import Selection
from ettr.units import SECONDS_PER_DAY

BY_FAULTS = (
    "The logs hold no jobs: failures are faults of nodes, and node-days are those in service."
)


class OfPlacement(Protocol):
    """What the places of failures take."""

    facts: Facts
    node_jobs: Mapping[NodeName, NodeJobs]

    @property
    def selected(self) -> Selection | None:
        """The selection; None where nothing is left out."""
        ...


class OfStrata(OfSignals, Protocol):
    """What groups of comparable nodes take, in addition to the signals."""

    fleet: Service
    placement: Placement
    workload_weights: dict[str, float]


class OfRanking(OfPlacement, OfFaults, Protocol):
    """What the ranking of lemons takes, by failures of jobs or by faults of nodes."""

    logs_read: LogsRead
    placement: Placement
    lemon_strata: tuple[tuple[Stratum, ...], FleetSignals]
    node_signals: Mapping[NodeName, NodeSignals]

    def lemon_fit(self, counts: NodeCounts) -> LemonFit:
        """The model of the lemons of a group."""
        ...


class OfLemons(Protocol):
    """What `lemons` takes."""

    lemon_nodes: LemonReport


def lemons(_: Facts, given: OfLemons) -> LemonReport:
    """Nodes that may be lemons, with a probability each."""
    return given.lemon_nodes


def lemons_of(
    stages: OfRanking, false_discovery: float, asked: NodeName | None = None
) -> LemonReport:
    """Nodes of a store that may be lemons: by failures of jobs, without jobs by faults of nodes."""
    if not stages.logs_read.jobs:
        return _by_faults(stages, false_discovery, asked)
    fleet, _ = stages.lemon_strata
    unplaced = unplaced_failures(stages.facts, stages.placement)
    found = lemon_report(
        *(fleet, unplaced, false_discovery),
        asked=asked,
        signals=stages.node_signals,
        fit=stages.lemon_fit,
    )
    return replace(found, notes=(*found.notes, *_rename_notes(stages)))


def _rename_notes(stages: OfPlacement) -> list[str]:
    if stages.selected is not None:
        # a selection begins and ends nodes by itself
        return []
    spans = {
        node: (one.first_s, one.last_s)
        for node, one in stages.node_jobs.items()
        if one.first_s is not None and one.last_s is not None
    }
    return [
        f"From {to_datetime(one.time_s):%Y-%m-%d} on {one.began} nodes of {one.cluster} "
        f"ran their first jobs, and {one.ended} others ran their last in the 3 days "
        "before. If they were renamed, each has two histories here and is judged twice "
        "by half of its failures: give each node one name in the logs before the ingest."
        for one in likely_renames(spans)
    ]


def _by_faults(analysis: OfRanking, false_discovery: float, asked: NodeName | None) -> LemonReport:
    fleet = fault_fleet_of(analysis.facts, analysis)
    found = lemon_report(fleet, UnplacedFailures(0, 0), false_discovery, asked=asked)
    return replace(found, notes=(*found.notes, BY_FAULTS))


def placement_of(stages: OfPlacement) -> Placement:
    """Node-days of each node of a store, and the nodes of failures that blame none."""
    if stages.selected is None:
        ran = {node: one.elapsed_s / SECONDS_PER_DAY for node, one in stages.node_jobs.items()}
    else:
        # what ran outside of the selected period does not count
        ran = ran_node_days(stages.facts)
    return placement(stages.facts, ran)


def fleet_of(
    stages: OfStrata, edges_s: Sequence[float] = ()
) -> tuple[tuple[Stratum, ...], FleetSignals]:
    """The nodes of a store in groups that are comparable, and their signals."""
    signals = fleet_signals(stages)
    groups = strata(
        stages.facts,
        stages.placement,
        signals,
        edges_s,
        stages.workload_weights,
        stages.fleet.spans_s,
    )
    return groups, signals


def workload_weights(facts: Facts) -> dict[str, float]:
    """Part of each failure without a culprit that is put down to its nodes, not to its workload.

    Of all of the logs: whose jobs fail far more often than those of others no selection can show.
    """
    failed = facts.rows("unblamed_failures")
    if not failed:
        return {}
    days_of: dict[str, dict[str, float]] = defaultdict(dict)
    held = [row for row in facts.rows("hours_of_users") if row["user"] is not None]
    for row in sorted(held, key=lambda row: (row["cluster"], row["user"])):
        days_of[row["cluster"]][row["user"]] = row["held_s"] / SECONDS_PER_DAY
    counts = Counter((row["cluster"], row["user"]) for row in failed)
    part: dict[tuple[str, str | None], float] = {}
    for cluster, of_user in days_of.items():
        parts = workload_parts(
            np.array([counts[cluster, user] for user in of_user], dtype=np.float64),
            np.array(list(of_user.values())),
        )
        part.update(
            {(cluster, user): one for user, one in zip(of_user, parts.tolist(), strict=True)}
        )
    return {row["attempt_id"]: part.get((row["cluster"], row["user"]), 1.0) for row in failed}


def fault_fleet_of(
    facts: Facts, given: OfFaults, edges_s: Sequence[float] = ()
) -> tuple[Stratum, ...]:
    """The nodes of a store without jobs: faults by time in service."""
    fleet = given.fleet
    if not fleet.is_known:
        return ()
    faults, _ = faults_of(facts, given)
    listed = [
        ((cluster, node), start_s, category)
        for (cluster, node), start_s, category in zip(
            (faults.nodes[place] for place in faults.node.tolist()),
            faults.start_s.tolist(),
            faults.category.tolist(),
            strict=True,
        )
        if node is not None
    ]
    return fault_strata(fleet.spans_s, listed, node_kinds(facts), edges_s)
