"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.analysis.lemon_signals import fleet_signals
from ettr.lemons.candidates import LemonReport, lemon_report
from ettr.lemons.fleet import strata, unplaced_failures
from ettr.lemons.signals import NodeName

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
    tables, signals = stages.tables, fleet_signals(stages)
    exposed = stages.exposure.by_node
    fleet = strata(exposed, stages.failures, tables["allocations"], tables["nodes"], signals)
    unplaced = unplaced_failures(exposed, stages.failures, tables["allocations"])
    return lemon_report(fleet, unplaced, false_discovery, asked=asked, signals=signals.by_node)
