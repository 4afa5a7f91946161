"""Lemons of a store: its failures by node, the nodes' outages, and the model's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.lemons.candidates import LemonReport, lemon_report
from ettr.lemons.fleet import NodeName, strata, unplaced_failures
from ettr.metrics.instants import to_seconds

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
    tables = stages.tables
    first_s, last_s = to_seconds(stages.period.start), to_seconds(stages.period.end)
    down: dict[tuple[str, str], list[float]] = {}
    for one in stages.outages_in(stages.period):
        if not one.is_planned and first_s <= one.start_s < last_s:
            down.setdefault((one.cluster, one.node), []).append(one.start_s)
    fleet = strata(
        stages.exposure.by_node,
        stages.failures,
        tables["allocations"],
        tables["nodes"],
        down if stages.logs_read.node_states else None,
    )
    unplaced = unplaced_failures(stages.exposure.by_node, stages.failures, tables["allocations"])
    return lemon_report(fleet, unplaced, false_discovery, asked=asked)
