"""Failures of which no log says that they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from ettr.metrics.black_holes import BlackHole, HungRun
from ettr.metrics.outages import SetDown
from ettr.metrics.rates import ClassRate
from ettr.report.numbers import between, duration, moment, number, percent
from ettr.words import by_number, counted


def black_hole_says(one: BlackHole) -> str:
    """What happened on a black hole, and what is not counted for it."""
    elsewhere = (
        f"on other nodes {percent(one.elsewhere)} fail that early and "
        f"{percent(one.failed_elsewhere)} fail at all"
        if one.elsewhere is not None
        else "no other node ran jobs"
    )
    uncounted = by_number(
        "No log says why: {n} of them [is|are] not counted as [a failure|failures].", one.uncounted
    )
    return (
        f"{one.early:,} of {counted(one.starts, 'attempt')} that began on {one.node} ended FAILED "
        f"within {one.within_s} s, from {moment(one.first)} to {moment(one.last)}. They belonged "
        f"to {counted(one.users, 'user')}; {elsewhere}. {uncounted}"
    )


def hangs_say(hung: Sequence[HungRun]) -> str:
    """How many runs probably hung, and what that makes of the failures; empty without any."""
    if not hung:
        return ""
    states = Counter(one.state for one in hung)
    ended = ", ".join(f"{n:,} {state}" for state, n in states.most_common())
    lasted = duration(median((one.end - one.fault).total_seconds() for one in hung))
    sure = sum(one.is_sure for one in hung)
    progress = f" The recorded progress of {sure:,} had already stopped." if sure else ""
    hours = sum(one.gpu_hours or 0.0 for one in hung)
    held = f" They held {number(hours)} GPU-hours after the fault." if hours else ""
    return (
        f"{counted(len(hung), 'run')} ended ({ended}) after a fault on a node that was then taken "
        f"out of service, {lasted} after it at the median: they probably hung, and are not counted "
        f"as failures; the high end of the rate includes them.{progress}{held}"
    )


def set_down_says(found: SetDown, failures: int) -> str:
    """How many failures rest on a node that was set DOWN by hand."""
    who = [f"by a person in {found.by_person:,}"] if found.by_person else []
    if found.by_unknown:
        who.append(f"by a person or by Slurm, not known which, in {found.by_unknown:,}")
    says = (
        f"In {found.by_person + found.by_unknown:,} of {counted(failures, 'failure')} the node was "
        f"set DOWN when the job ended: {', '.join(who)}."
    )
    if not found.without_fault:
        return says
    typed = ", ".join(f"“{reason}”" for reason in found.reasons)
    return (
        f"{says} No log names a fault for {found.without_fault:,} of them"
        f"{f' ({typed})' if typed else ''}: if that was planned work, say so in a file for "
        "`--taxonomy`, and they no longer count as failures."
    )


def classes_say(classes: Sequence[ClassRate], of_nodes: str) -> str:
    """What rates are of, and those of each class of node; empty where there is but one.

    Args:
        classes: Of nodes.
        of_nodes: Those that the rates are of, in words; empty for all.
    """
    if not classes:
        return ""
    each = "; ".join(
        f"{one.name}: {between(one.per_1000_node_days)} ({counted(one.failures, 'failure')} in "
        f"{number(one.node_days, 5)} node-days)"
        for one in classes
    )
    only = f"These rates are of {of_nodes} alone. " if of_nodes else ""
    return f"{only}By class of node, per 1,000 node-days: {each}."
