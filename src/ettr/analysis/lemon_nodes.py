"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.analysis.lemon_signals import fleet_signals
from ettr.lemons.candidates import LemonReport, lemon_report
from ettr.lemons.fleet import Stratum, strata, unplaced_failures
from ettr.lemons.signals import FleetSignals, NodeName

if TYPE_CHECKING:
    from ettr.analysis.shared import SharedStages


def lemons_of(
    stages: SharedStages, false_discovery: float, asked: NodeName | None = None
) -> LemonReport:
    """Nodes of a store that may be lemons.

    Args:
        stages: of the store.
        false_discovery: largest expected share of ordinary nodes among the claimed.
        asked: a node to list whatever its rank is.
    """
    fleet, signals = fleet_of(stages)
    exposed, allocations = stages.exposure.by_node, stages.tables["allocations"]
    unplaced = unplaced_failures(exposed, stages.failures, allocations)
    return lemon_report(fleet, unplaced, false_discovery, asked=asked, signals=signals.by_node)


def fleet_of(stages: SharedStages) -> tuple[tuple[Stratum, ...], FleetSignals]:
    """The nodes of a store in groups that are comparable, and their signals."""
    tables, signals = stages.tables, fleet_signals(stages)
    exposed = stages.exposure.by_node
    groups = strata(exposed, stages.failures, tables["allocations"], tables["nodes"], signals)
    return groups, signals
