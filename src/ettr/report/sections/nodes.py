"""Node availability and faults: repair, time out of service by reason, capacity lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ettr.analysis import loss_questions
from ettr.analysis.node_faults import node_faults
from ettr.analysis.node_history import FAILURES, HOURS_OUT, LOST, NodeCosts, XidDevices, cost_of
from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import FailureRate
from ettr.metrics.availability import Availability, ReasonOutages
from ettr.metrics.faults import FleetFaults
from ettr.report.charts import BarSeries, column_chart, row_chart, value_axis
from ettr.report.findings import without_states
from ettr.report.numbers import (
    DASH,
    between,
    duration,
    hours_between,
    moment,
    number,
    percent,
    share_between,
)
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.report.sections.models import intervals_table
from ettr.report.sections.node_records import records_section
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


def nodes_section(fleet: Availability, caution: str | None = None) -> Section:
    """Where node time went, and how long repair takes; the caution is the first note."""
    if not fleet.in_service_node_hours:
        return Section("nodes", "Nodes", "No node is known to have been in service.")
    return Section(
        "nodes",
        "Nodes",
        _lead(fleet),
        (_figure(fleet),) if fleet.by_reason else (),
        (
            table_of_rows(
                "Outages by reason",
                fleet.by_reason,
                ("reason", lambda reason: reason.reason_class),
                ("planned", lambda reason: "yes" if reason.is_planned else "no"),
                (">outages", lambda reason: number(reason.outages)),
                (">not ended", lambda reason: number(reason.still_open)),
                (">nodes", lambda reason: number(reason.nodes)),
                (">node-hours", lambda reason: number(reason.node_hours, 4)),
                (">GPU-hours", lambda reason: number(reason.gpu_hours, 4)),
                (">median, hours", lambda reason: between(reason.median_h)),
                gpu_hours=((6, tuple(reason.gpu_hours for reason in fleet.by_reason)),),
            ),
            table_of_rows(
                "Nodes with the most unplanned time out of service",
                fleet.worst_nodes,
                ("cluster", lambda node: node.cluster),
                ("node", lambda node: node.node),
                (">outages", lambda node: number(node.outages)),
                (">node-hours", lambda node: number(node.node_hours, 4)),
            ),
        ),
        (*([caution] if caution else ()), *_notes(fleet)),
        gpu_hours=(("of capacity lost to outages", fleet.lost_gpu_hours),),
        answer=_answer(fleet),
        careful=caution
        or next(_gpu_counts(fleet), "An outage lasts as long as the scheduler logged it."),
    )


def _answer(fleet: Availability) -> str:
    repair = fleet.repair_h
    if fleet.down_share is None:
        return ""
    if not repair.count:
        return f"100 % available: no unplanned outage of {counted(fleet.nodes, 'node')}."
    return (
        f"{percent(1.0 - fleet.down_share)} available of "
        f"{number(fleet.measured_node_hours, 5)} node-hours in service; time to repair: mean "
        f"{hours_between(repair.mean_h)}, median {hours_between(repair.median_h)} "
        f"({counted(repair.count, 'unplanned outage')} of {counted(fleet.nodes, 'node')})."
    )


def _lead(fleet: Availability) -> str:
    repair = fleet.repair_h
    nodes = f"{counted(fleet.nodes, 'node')} over {duration(SECONDS_PER_DAY * fleet.period_days)}"
    if not fleet.fleet_is_known:
        nodes = f"At least {nodes} (only those that had trouble are named)"
    if fleet.down_share is None:
        return (
            f"{nodes}, {number(fleet.in_service_node_hours, 5)} node-hours in service. Outages "
            "and repair times are not measured: the logs hold no states of nodes. `sacctmgr show "
            "event` has them (`ettr sources` lists the full command)."
        )
    lead = (
        f"{nodes}: {counted(repair.count, 'unplanned outage')} took "
        f"{'' if fleet.fleet_is_known else 'at most '}{percent(fleet.down_share)} of "
        f"{number(fleet.measured_node_hours, 5)} node-hours in service"
    )
    if repair.count:
        lead += (
            f". Time to repair: mean {hours_between(repair.mean_h)}, "
            f"median {hours_between(repair.median_h)}"
        )
    lost = f"{number(fleet.lost_node_hours, 4)} node-hours"
    if fleet.lost_gpu_hours is not None:
        lost += f", {number(fleet.lost_gpu_hours, 4)} GPU-hours"
    return f"{lead}. Capacity lost to outages, planned ones included: {lost}."


def _gpu_counts(fleet: Availability) -> Iterator[str]:
    """What the GPU-hours of nodes rest on that no inventory describes."""
    wanted = "Give --gpus-per-node, or ingest an inventory."
    of_jobs = fleet.nodes_with_gpus_of_jobs
    if of_jobs:
        yield (
            f"{counted(of_jobs, 'node')} without a GPU count in an inventory "
            f"{'counts' if of_jobs == 1 else 'count'} with the most GPUs that one job held there; "
            f"a node that jobs share may have more. {wanted}"
        )
    unknown = fleet.nodes_without_gpu_count - of_jobs
    if unknown and fleet.lost_gpu_hours is None:
        yield f"{counted(unknown, 'node')} without a GPU count: GPU-hours are not known. {wanted}"
    elif unknown:
        yield (
            f"{counted(unknown, 'node')} without a GPU count: in GPU-hours "
            f"{'it counts' if unknown == 1 else 'they count'} as the average of the others. "
            f"{wanted}"
        )


def _notes(fleet: Availability) -> list[str]:
    notes = []
    if fleet.draining_with_jobs_node_hours:
        notes.append(
            f"{number(fleet.draining_with_jobs_node_hours, 4)} node-hours of the outages were not "
            "lost: the nodes were draining and still ran their last jobs."
        )
    notes += _gpu_counts(fleet)
    if fleet.repair_h.still_open:
        notes.append(
            f"{counted(fleet.repair_h.still_open, 'outage')} had not ended when the logs did: "
            "counted as lasting at least that long (Kaplan-Meier)."
        )
    return notes


def _figure(fleet: Availability) -> Figure:
    hours: dict[str, float] = defaultdict(float)
    for reason in fleet.by_reason:
        hours[reason.reason_class] += reason.node_hours
    labels = sorted(hours, key=lambda name: (-hours[name], name))
    return row_chart(
        "nodes",
        "Time out of service by reason",
        "Node-hours in which a node was down or drained, by class of the reason given.",
        labels,
        [
            _bars("unplanned", labels, [one for one in fleet.by_reason if not one.is_planned]),
            _bars("planned", labels, [one for one in fleet.by_reason if one.is_planned]),
        ],
        axis_title="node-hours",
    )


def _bars(name: str, labels: list[str], reasons: list[ReasonOutages]) -> BarSeries:
    by_class = {reason.reason_class: reason for reason in reasons}

    def hover(label: str) -> str:
        reason = by_class.get(label)
        return (
            f"no {name} outage"
            if reason is None
            else f"{number(reason.node_hours, 4)} node-hours, {name}\n"
            f"{counted(reason.outages, 'outage')} of {counted(reason.nodes, 'node')}"
        )

    values = [by_class[one].node_hours if one in by_class else None for one in labels]
    return BarSeries(name, values, [hover(label) for label in labels])


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    """Nodes, and the faults of a log that records faults: first where it records nothing else."""
    nodes: tuple[Section, ...] = (nodes_section(analysis.nodes, without_states(analysis)),)
    if analysis.fleet.spans_s:
        nodes += (records_section(analysis.node_records, analysis.recovery_times),)
    if analysis.faults is None:
        return nodes
    faults = faults_section(analysis.faults, analysis.assumptions.confidence)
    return (*nodes, faults) if analysis.logs_read.jobs else (faults, *nodes)


NODES = Part(
    "nodes",
    place=140,
    question=loss_questions.nodes,
    sections=_sections,
    main="by_reason",
    joined={"faults": node_faults},
)


# -- Faults of a fleet from a log that records faults and no jobs ---------------------------------


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
        (_fault_figure(faults),),
        (
            table_of_rows(
                "Faults by category",
                faults.by_category,
                ("category", lambda one: one.category),
                (">faults", lambda one: number(one.in_service.failures)),
                (">share", lambda one: share_between(one.share)),
                (">per 1,000 node-days", lambda one: between(one.in_service.per_1000_node_days)),
                (">repair, mean hours", lambda one: between(one.repair_h.mean_h)),
                (">repair, median hours", lambda one: between(one.repair_h.median_h)),
            ),
            _rates(faults, confidence),
        ),
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


def _fault_figure(faults: FleetFaults) -> Figure:
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


# -- nodes ranked by what they cost, and GPUs that reported an XID, for the terminal ---------------


_WORST = 10
_UNKNOWN = {
    LOST: "no loss in GPU-hours is known",
    FAILURES: "the logs hold no job accounting",
    HOURS_OUT: "no log has states of nodes",
}
_NOTHING = {
    LOST: "No failure that is blamed on a node lost GPU-hours.",
    FAILURES: "No failure is blamed on a node.",
    HOURS_OUT: "No node was out of service unplanned.",
}


def costs_section(found: NodeCosts) -> Section:
    """The costliest nodes."""
    if not found.nodes:
        return Section("node-costs", "Nodes by cost", "No node is named in the logs.")
    table = table_of_rows(
        "Nodes by cost",
        found.nodes,
        ("cluster", lambda one: one.cluster),
        ("node", lambda one: one.node),
        (">GPU-hours lost", lambda one: number(one.lost_gpu_hours, 4)),
        (">failures", lambda one: number(one.failures)),
        (">hours out", lambda one: number(one.unplanned_h)),
        ("XIDs", lambda one: ", ".join(one.codes)),
        gpu_hours=((2, tuple(one.lost_gpu_hours for one in found.nodes)),),
    )
    careful = "A failure loses at most half a checkpoint interval; --interval sets yours."
    return Section(
        "node-costs",
        "Nodes by cost",
        _node_costs_answer(found),
        tables=(table,),
        careful=careful if found.by == LOST and found.lost_gpu_hours else "",
    )


def _node_costs_answer(found: NodeCosts) -> str:
    worst = found.nodes[:_WORST]
    first, most = worst[0], cost_of(worst[0], found.by)
    if most is None:
        return f"Not measured: {_UNKNOWN[found.by]}."
    if not most:
        return _NOTHING[found.by]
    if found.by == FAILURES:
        return f"{first.node} has the most failures, {number(first.failures)}."
    if found.by == HOURS_OUT:
        return f"{first.node} was out of service longest, {number(first.unplanned_h)} h."
    share = sum(one.lost_gpu_hours or 0.0 for one in worst) / (found.lost_gpu_hours or most)
    return (
        f"{first.node} cost most, {number(most)} GPU-hours; the first "
        f"{counted(len(worst), 'node')} cost {percent(min(share, 1.0), 2)} of all that failures "
        "lost."
    )


def xid_section(found: XidDevices) -> Section:
    """GPUs with one XID, the newest first."""
    nodes = {(one.cluster, one.node) for one in found.devices}
    known = sum(one.serial is not None for one in found.devices)
    answer = (
        f"XID {found.code}: {counted(found.events, 'line')} of "
        f"{counted(len(found.devices), 'GPU')} in {counted(len(nodes), 'node')}; "
        f"{'no serial number is' if not known else f'{known:,} serial numbers are'} known."
        if found.devices
        else f"XID {found.code}: none in the logs."
    )
    table = table_of_rows(
        f"GPUs with XID {found.code}",
        found.devices,
        ("last, UTC", lambda one: moment(one.last)),
        ("cluster", lambda one: one.cluster),
        ("node", lambda one: one.node),
        ("device", lambda one: one.device or DASH),
        ("serial", lambda one: one.serial or DASH),
        (">lines", lambda one: number(one.events)),
        ("first, UTC", lambda one: moment(one.first)),
    )
    return Section(
        "xids",
        f"XID {found.code}",
        answer,
        tables=(table,),
        careful="Serial numbers are known where a log reports them (check `serial`)."
        if found.devices and known < len(found.devices)
        else "",
    )
