"""Node availability: repair, time out of service by reason, capacity lost; faults of the fleet."""

from __future__ import annotations

from ettr.metrics.availability import Availability
from ettr.metrics.faults import FleetFaults
from ettr.report.numbers import between, counted, duration, number, percent, share_between
from ettr.report.section import Figure, Section, Table


def nodes_section(seen: Availability) -> Section:
    """Where node time went, and how long repair takes."""
    if not seen.in_service_node_hours:
        return Section("nodes", "Nodes", "No node is named in the logs.")
    repair = seen.repair_h
    lead = (
        f"{counted(seen.nodes, 'node')} over {duration(86400 * seen.period_days)}: "
        f"{percent(seen.down_share)} of {number(seen.in_service_node_hours, 5)} node-hours in "
        f"service went to {counted(repair.count, 'unplanned outage')}"
    )
    if repair.count:
        lead += (
            f"; repair takes {between(repair.mean_h)} h on average, {between(repair.median_h)} h "
            "in the median"
        )
    lead += f". Capacity lost: {number(seen.lost_node_hours, 4)} node-hours" + (
        "." if seen.lost_gpu_hours is None else f", {number(seen.lost_gpu_hours, 4)} GPU-hours."
    )
    reasons = seen.by_reason
    figure = Figure(
        "nodes",
        "Time out of service by reason",
        "Node-hours in which a node was down or drained, by class of the reason given.",
        (
            {
                "type": "bar",
                "orientation": "h",
                "y": [r.reason_class for r in reasons][::-1],
                "x": [r.node_hours for r in reasons][::-1],
                "customdata": [[r.outages, r.nodes] for r in reasons][::-1],
                "hovertemplate": "%{y}: %{x:.4g} node-hours<br>%{customdata[0]} outages of "
                "%{customdata[1]} nodes<extra></extra>",
            },
        ),
        {"xaxis": {"title": {"text": "node-hours"}, "rangemode": "tozero"}, "margin": {"l": 140}},
    )
    notes = []
    if seen.draining_with_jobs_node_hours:
        notes.append(
            f"{number(seen.draining_with_jobs_node_hours, 4)} node-hours of the outages were not "
            "lost: the nodes were draining and still ran their last jobs."
        )
    if seen.nodes_without_gpu_count:
        notes.append(
            f"{seen.nodes_without_gpu_count:,} nodes have no GPU count; GPU-hours leave them out "
            "(--gpus-per-node, or an inventory, gives it)."
        )
    if repair.still_open:
        notes.append(
            f"{repair.still_open:,} outages were not over when the logs ended; they count as "
            "lasting at least so long (Kaplan-Meier)."
        )
    return Section(
        "nodes",
        "Nodes",
        lead,
        (figure,) if reasons else (),
        (_reasons(seen), _worst(seen)),
        tuple(notes),
    )


def _reasons(seen: Availability) -> Table:
    return Table(
        "Outages by reason",
        ("reason", "planned", "outages", "open", "nodes", "node-hours", "GPU-hours", "median, h"),
        tuple(
            (
                r.reason_class,
                "yes" if r.is_planned else "no",
                number(r.outages),
                number(r.still_open),
                number(r.nodes),
                number(r.node_hours, 4),
                number(r.gpu_hours, 4),
                between(r.median_h),
            )
            for r in seen.by_reason
        ),
        frozenset(range(2, 8)),
    )


def _worst(seen: Availability) -> Table:
    return Table(
        "Nodes with the most unplanned time out of service",
        ("cluster", "node", "outages", "node-hours"),
        tuple(
            (n.cluster, n.node, number(n.outages), number(n.node_hours, 4))
            for n in seen.worst_nodes
        ),
        frozenset({2, 3}),
    )


def faults_section(faults: FleetFaults) -> Section:
    """Fault rates of a fleet whose log tells of faults and not of jobs."""
    whole = faults.in_service
    lead = (
        f"{counted(faults.faults, 'fault')} on {counted(faults.nodes, 'node')} in "
        f"{number(whole.node_days, 6)} "
        f"node-days in service: {between(whole.per_1000_node_days)} per 1,000 node-days; a node "
        f"runs {between(faults.node_mtbf_days)} days between faults. Repair takes "
        f"{between(faults.repair_h.mean_h)} h on average, {between(faults.repair_h.median_h)} h in "
        "the median."
    )
    categories = faults.by_category
    figure = Figure(
        "faults",
        "Faults by category",
        "Per 1,000 node-days in service, with exact intervals.",
        (
            {
                "type": "bar",
                "x": [c.category for c in categories],
                "y": [c.in_service.per_1000_node_days.estimate for c in categories],
                "customdata": [[c.in_service.failures] for c in categories],
                "hovertemplate": "%{x}: %{y:.3g}<br>%{customdata[0]} faults<extra></extra>",
            },
        ),
        {"yaxis": {"title": {"text": "faults per 1,000 node-days"}, "rangemode": "tozero"}},
    )
    table = Table(
        "Faults by category",
        ("category", "faults", "share", "per 1,000 node-days", "repair, mean h", "median h"),
        tuple(
            (
                c.category,
                number(c.in_service.failures),
                share_between(c.share),
                between(c.in_service.per_1000_node_days),
                between(c.repair_h.mean_h),
                between(c.repair_h.median_h),
            )
            for c in categories
        ),
        frozenset(range(1, 6)),
    )
    notes = (
        f"The gaps between faults have a coefficient of variation of "
        f"{number(faults.gap_variation)}, the counts of nodes a variance of "
        f"{number(faults.node_dispersion)} times their mean; both are 1 for independent faults of "
        "equal nodes, and well above 1 the intervals are too narrow.",
    )
    return Section("faults", "Faults of the fleet", lead, (figure,), (table,), notes)
