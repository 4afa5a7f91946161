"""Nodes ranked by what they cost, and GPUs that reported an XID, for the terminal."""

from __future__ import annotations

from ettr.analysis.node_costs import FAILURES, LOST, NodeCosts, XidDevices
from ettr.report.numbers import DASH, moment, number, percent
from ettr.report.section import Section, TextTable
from ettr.words import counted

_WORST = 10


def costs_section(found: NodeCosts) -> Section:
    """The costliest nodes."""
    worst = found.nodes[:_WORST]
    if not worst:
        return Section("node-costs", "Nodes by cost", "No node is named in the logs.")
    first = worst[0]
    if found.by == LOST:
        share = sum(one.lost_gpu_hours or 0.0 for one in worst) / (found.lost_gpu_hours or 1.0)
        answer = (
            f"{first.node} cost most, {number(first.lost_gpu_hours)} GPU-hours; the first "
            f"{counted(len(worst), 'node')} cost {percent(min(share, 1.0), 2)} of all that "
            "failures lost."
        )
    elif found.by == FAILURES:
        answer = f"{first.node} has the most failures, {number(first.failures)}."
    else:
        answer = f"{first.node} was out of service longest, {number(first.unplanned_h)} h."
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
    careful = "A failure loses at most half of the checkpoint interval; --interval sets yours."
    return Section(
        "node-costs",
        "Nodes by cost",
        answer,
        tables=(table,),
        careful=careful if found.by == LOST else "",
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
