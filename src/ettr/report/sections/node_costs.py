"""Nodes ranked by what they cost, and GPUs that reported an XID, for the terminal."""

from __future__ import annotations

from ettr.analysis.node_costs import FAILURES, HOURS_OUT, LOST, NodeCosts, XidDevices, cost_of
from ettr.report.numbers import DASH, moment, number, percent
from ettr.report.section import Section, TextTable
from ettr.words import counted

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
    table = TextTable(
        "Nodes by cost",
        ("cluster", "node", "GPU-hours lost", "failures", "hours out", "XIDs"),
        tuple(
            (
                one.cluster,
                one.node,
                number(one.lost_gpu_hours, 4),
                number(one.failures),
                number(one.unplanned_h),
                ", ".join(one.codes),
            )
            for one in found.nodes
        ),
        frozenset({2, 3, 4}),
        gpu_hours=((2, tuple(one.lost_gpu_hours for one in found.nodes)),),
    )
    careful = "A failure loses at most half a checkpoint interval; --interval sets yours."
    return Section(
        "node-costs",
        "Nodes by cost",
        _answer(found),
        tables=(table,),
        careful=careful if found.by == LOST and found.lost_gpu_hours else "",
    )


def _answer(found: NodeCosts) -> str:
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
    table = TextTable(
        f"GPUs with XID {found.code}",
        ("last, UTC", "cluster", "node", "device", "serial", "lines", "first, UTC"),
        tuple(
            (
                moment(one.last),
                one.cluster,
                one.node,
                one.device or DASH,
                one.serial or DASH,
                number(one.events),
                moment(one.first),
            )
            for one in found.devices
        ),
        frozenset({5}),
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
