"""Faults of a fleet from a log that records faults and no jobs."""

from __future__ import annotations

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import FailureRate
from ettr.metrics.faults import FleetFaults
from ettr.report.charts import BarSeries, column_chart, value_axis
from ettr.report.numbers import between, hours_between, number, share_between
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.models import intervals_table
from ettr.words import counted


def faults_section(faults: FleetFaults, confidence: float = CONFIDENCE) -> Section:
    """Fault rates by category, and time to repair."""
    fleet = faults.in_service
    lead = (
        f"{counted(faults.faults, 'fault')} on {counted(faults.nodes, 'node')} in "
        f"{number(fleet.node_days, 6)} node-days in service: "
        f"{between(fleet.per_1000_node_days)} per 1,000 node-days; a node runs "
        f"{between(faults.node_mtbf_days)} days between faults. {_repair(faults)}"
    )
    notes = (
        *_basis(faults),
        f"Gaps between faults have a coefficient of variation of {number(faults.gap_variation)}, "
        f"and counts by node a variance of {number(faults.node_dispersion)} times their mean. Both "
        "are 1 for independent faults of equal nodes; the intervals admit more.",
    )
    return Section(
        "faults",
        "Faults of the fleet",
        lead,
        (_figure(faults),),
        (_table(faults), _rates(faults, confidence)),
        notes,
    )


def _rates(faults: FleetFaults, confidence: float) -> TextTable:
    fleet = faults.in_service
    rate = FailureRate(fleet.failures, fleet.node_days)
    at_most = not faults.fleet_is_known
    return intervals_table(rate, faults.clustering, confidence, "fault", at_most=at_most)


def _repair(faults: FleetFaults) -> str:
    repair = faults.repair_h
    if not repair.count:
        return "Time to repair is not measured: no log says when the nodes were back."
    of_all = "" if repair.count == faults.faults else f" ({counted(repair.count, 'fault')})"
    return (
        f"Time to repair{of_all}: mean {hours_between(repair.mean_h)}, median "
        f"{hours_between(repair.median_h)}."
    )


def _basis(faults: FleetFaults) -> tuple[str, ...]:
    """What the faults and their exposure rest on."""
    words = []
    evidence = faults.evidence
    if evidence is not None:
        words.append(
            "Critical errors and unplanned outages of one node that follow each other within the "
            f"window count as one fault: {evidence.error_and_outage:,} with an error and an "
            f"outage, {evidence.error_only:,} with an error alone, {evidence.outage_only:,} with "
            "an outage alone. A kind of log that was not read shows none."
        )
    if not faults.fleet_is_known:
        words.append(
            f"The logs name only the {counted(faults.nodes, 'node')} that had trouble, so the "
            "rate is at most the one shown: give --fleet-nodes N, or ingest the inventory "
            "(`scontrol show node`)."
        )
    words.append(
        "Nodes count as in service from the first to the last moment in the logs, unless the "
        "inventory says otherwise."
    )
    return tuple(words)


def _figure(faults: FleetFaults) -> Figure:
    bounds = [one.in_service.per_1000_node_days for one in faults.by_category]
    return column_chart(
        "faults",
        "Faults by category",
        "Per 1,000 node-days in service; thin lines are exact intervals.",
        [one.category for one in faults.by_category],
        [
            BarSeries(
                "faults",
                [one.estimate for one in bounds],
                [
                    f"{between(one.in_service.per_1000_node_days)} per 1,000 node-days\n"
                    f"{counted(one.in_service.failures, 'fault')}"
                    for one in faults.by_category
                ],
                bounds,
            )
        ],
        axis=value_axis("faults per 1,000 node-days"),
    )


def _table(faults: FleetFaults) -> TextTable:
    return TextTable(
        "Faults by category",
        (
            "category",
            "faults",
            "share",
            "per 1,000 node-days",
            "repair, mean hours",
            "repair, median hours",
        ),
        tuple(
            (
                one.category,
                number(one.in_service.failures),
                share_between(one.share),
                between(one.in_service.per_1000_node_days),
                between(one.repair_h.mean_h),
                between(one.repair_h.median_h),
            )
            for one in faults.by_category
        ),
        frozenset(range(1, 6)),
    )
