"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ettr.analysis.lemon_signals import fleet_signals
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
from ettr.lemons.signals import FleetSignals, NodeName
from ettr.metrics.instants import to_datetime
from ettr.metrics.node_records import ran_node_days
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis
    from ettr.analysis.shared import SharedStages

BY_FAULTS = (
    "The logs hold no jobs: failures are faults of nodes, and node-days are those in service."
)


class OfLemons(Protocol):
    """What `lemons` takes."""

    lemon_nodes: LemonReport


def lemons(_: Facts, given: OfLemons) -> LemonReport:
    """Nodes that may be lemons, with a probability each."""
    return given.lemon_nodes


def lemons_of(
    stages: Analysis, false_discovery: float, asked: NodeName | None = None
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


def _rename_notes(stages: SharedStages) -> list[str]:
    if stages.selected is not None:
        # a selection begins and ends nodes by itself
        return []
    spans = {
        node: (one.first_s, one.last_s)
        for node, one in stages.node_jobs.items()
        if one.first_s is not None and one.last_s is not None
    }
    return [
        f"From {to_datetime(one.time_s):%Y-%m-%d} on {one.began} nodes of {one.cluster} ran their "
        f"first jobs, and {one.ended} others ran their last in the 3 days before. If they were "
        "renamed, each has two histories here and is judged twice by half of its failures: give "
        "the logs one name for each node before the ingest."
        for one in likely_renames(spans)
    ]


def _by_faults(analysis: Analysis, false_discovery: float, asked: NodeName | None) -> LemonReport:
    fleet = fault_fleet_of(analysis)
    found = lemon_report(fleet, UnplacedFailures(0, 0), false_discovery, asked=asked)
    return replace(found, notes=(*found.notes, BY_FAULTS))


def placement_of(stages: SharedStages) -> Placement:
    """Node-days of each node of a store, and the nodes of failures that blame none."""
    if stages.selected is None:
        ran = {node: one.elapsed_s / SECONDS_PER_DAY for node, one in stages.node_jobs.items()}
    else:
        # what ran outside of the selected period does not count
        ran = ran_node_days(stages.facts)
    return placement(stages.facts, ran)


def fleet_of(
    stages: SharedStages, edges_s: Sequence[float] = ()
) -> tuple[tuple[Stratum, ...], FleetSignals]:
    """The nodes of a store in groups that are comparable, and their signals.

    Args:
        edges_s: of the cells by which the exposure is cut, in seconds since 1970.
    """
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


def fault_fleet_of(analysis: Analysis, edges_s: Sequence[float] = ()) -> tuple[Stratum, ...]:
    """The nodes of a store without jobs: faults by time in service. None where no log names all.

    Args:
        edges_s: as for `fleet_of`.
    """
    from ettr.analysis.node_faults import faults_of

    fleet = analysis.fleet
    if not fleet.is_known:
        return ()
    faults, _ = faults_of(analysis)
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
    return fault_strata(fleet.spans_s, listed, node_kinds(analysis.facts), edges_s)
