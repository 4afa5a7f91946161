"""Faults of a fleet from a log that records faults and no jobs."""

from __future__ import annotations

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import FailureRate
from ettr.metrics.faults import FleetFaults
from ettr.report.charts import BarSeries, column_chart, value_axis
from ettr.report.numbers import between, counted, hours_between, number, share_between
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.rate_intervals import intervals_table


def faults_section(faults: FleetFaults, confidence: float = CONFIDENCE) -> Section:
    """Fault rates by category, and time to repair."""
    fleet = faults.in_service
    lead = (
        f"{counted(faults.faults, 'fault')} on {counted(faults.nodes, 'node')} in "
        f"{number(fleet.node_days, 6)} node-days in service: "
        f"{between(fleet.per_1000_node_days)} per 1,000 node-days; a node runs "
        f"{between(faults.node_mtbf_days)} days between faults. Time to repair: mean "
        f"{hours_between(faults.repair_h.mean_h)}, median "
        f"{hours_between(faults.repair_h.median_h)}."
    )
    notes = (
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
    return intervals_table(rate, faults.clustering, confidence, "fault")


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
