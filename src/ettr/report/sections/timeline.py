"""Nodes and large jobs over time, in words and tables: for paper and for readers of text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ettr.analysis import questions
from ettr.analysis.timeline import JobEnd, OutageSpan, Timeline, TimelineJob
from ettr.metrics.outages import IncidentLedger, StatedLoss
from ettr.report.numbers import DASH, duration, moment, number
from ettr.report.registry import Part
from ettr.report.section import Section, TextTable, table_of_rows
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


LISTS_ALL = "ettr timeline STORE --json"
STILL = "goes on"
_FIRST = 10
ENDS = {
    JobEnd.COMPLETED: "completed",
    JobEnd.RUNNING: "still running",
    JobEnd.FAILURE: "ended by the infrastructure",
    JobEnd.PREEMPTION: "preempted",
    JobEnd.OTHER: "ended otherwise",
}


def timeline_section(found: Timeline) -> Section:
    """What the picture shows, what it leaves out, and the spans as tables."""
    return Section(
        "timeline",
        "Nodes and large jobs over time",
        _lead(found),
        (),
        (interruption_table(found), outage_table(found), job_table(found)),
        left_out_lines(found),
    )


def _lead(found: Timeline) -> str:
    size = unit_words(found).removesuffix("s")
    words = counted(len(found.nodes), "node")
    if found.has_jobs:
        words += f", {counted(len(found.jobs), 'attempt')}"
    if found.least_size is not None:
        words += f" of {counted(found.least_size, size)} and more"
    words += f" from {moment(found.since)} to {moment(found.until)} UTC. "
    failed = sum(one.ended is JobEnd.FAILURE for one in found.jobs)
    if found.has_jobs:
        words += f"{counted(failed, 'of them was', 'of them were')} ended by the infrastructure. "
    else:
        words += "Jobs are not measured: no job accounting. "
    if found.outages is None:
        return f"{words}Outages are not measured: no log has states of nodes (sacctmgr show event)."
    kinds = Counter(one.kind.value for one in found.outages)
    parts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))
    total = counted(len(found.outages), "state", "states")
    return f"{words}{total} out of service{f': {parts}' if parts else ''}."


def unit_words(found: Timeline) -> str:
    """What the size of a job is counted in."""
    return found.size_unit.replace("gpus", "GPUs")


def left_out_lines(found: Timeline) -> tuple[str, ...]:
    """What is not shown, a line each; that nothing is, where it is so."""
    if not found.left_out:
        return ("Nothing of the selection is left out.",)
    return tuple(f"Left out: {one.count:,} {one.what}: {one.why}." for one in found.left_out)


def interruption_table(found: Timeline) -> TextTable:
    """Failures in the order of time: of the jobs shown, then the marks of others."""
    rows = [
        (one.end, one.job_id, one.n_gpus, one.symptom, one.confidence, one.blamed)
        for one in found.jobs
        if one.ended is JobEnd.FAILURE
    ]
    rows += [
        (one.time, one.job_id, one.n_gpus, one.symptom, one.confidence, one.node)
        for one in found.marks
    ]
    rows.sort(key=lambda row: (row[0] or found.until, row[1]))
    return TextTable(
        "Failures",
        ("time, UTC", "job", "GPUs", "cause", "confidence", "node blamed"),
        tuple(
            (moment(time), job, number(gpus), cause or DASH, sure or DASH, node or DASH)
            for time, job, gpus, cause, sure, node in rows
        ),
        frozenset({2}),
        shown_rows=_FIRST,
        slug="interruptions",
        lists_all=LISTS_ALL,
    )


def outage_table(found: Timeline) -> TextTable:
    """States of nodes that take them out of service."""
    several = len(found.clusters) > 1
    return TextTable(
        "Time out of service",
        ("node", "kind", "from, UTC", "to, UTC", "length", "reason"),
        tuple(_outage_row(found, one, several) for one in found.outages or ()),
        frozenset({4}),
        shown_rows=_FIRST,
        slug="outages",
        lists_all=LISTS_ALL,
    )


def _outage_row(found: Timeline, one: OutageSpan, several: bool) -> tuple[str, ...]:
    length_s = ((one.end or found.until) - one.start).total_seconds()
    return (
        f"{one.cluster}/{one.node}" if several else one.node,
        one.kind.value,
        moment(one.start),
        STILL if one.end is None else moment(one.end),
        f"{'≥ ' if one.end is None else ''}{duration(length_s)}",
        one.reason or DASH,
    )


def job_table(found: Timeline) -> TextTable:
    """The attempts that are shown, the largest first."""
    jobs = sorted(found.jobs, key=lambda one: (-(one.n_gpus or 0), -(one.n_nodes or 0), one.start))
    return table_of_rows(
        "Large jobs",
        jobs,
        ("job", lambda one: one.job_id),
        ("name", lambda one: one.name or DASH),
        ("user", lambda one: one.user or DASH),
        (">GPUs", lambda one: number(one.n_gpus, 6)),
        (">nodes", lambda one: number(one.n_nodes, 6)),
        ("from, UTC", lambda one: moment(one.start)),
        ("to, UTC", lambda one: STILL if one.end is None else moment(one.end)),
        ("how it ended", end_words),
        shown_rows=_FIRST,
        slug="jobs",
        lists_all=LISTS_ALL,
    )


def end_words(one: TimelineJob) -> str:
    """How an attempt ended: the scheduler's state, and the cause of a failure."""
    words = f"{one.state}, {ENDS[one.ended]}" if one.ended is not JobEnd.COMPLETED else one.state
    if one.symptom is None:
        return words
    blamed = f", blamed on {one.blamed}" if one.blamed else ""
    return f"{words}: {one.symptom} (confidence {one.confidence}{blamed})"


# -- what incident ledgers state, apart from everything that was measured --------------------------


def incidents_section(ledger: IncidentLedger) -> Section:
    """Stated hours by kind of incident."""
    total = ledger.total
    lead = (
        f"{counted(total.incidents, 'incident')} from {moment(ledger.first)} to "
        f"{moment(ledger.last)}: {_hours(total)}."
    )
    if total.without_hours:
        lead += f" {counted(total.without_hours, 'of them states', 'of them state')} no hours."
    return Section(
        "incidents",
        "What incident ledgers state",
        lead,
        (),
        (
            TextTable(
                "Incidents by kind",
                ("kind", "incidents", "hours lost, stated", "GPU-hours lost, stated", "no hours"),
                tuple((one.kind, *_cells(one.stated)) for one in ledger.by_kind),
                frozenset(range(1, 5)),
                gpu_hours=((3, tuple(one.stated.lost_gpu_hours for one in ledger.by_kind)),),
            ),
        ),
        (
            "These hours are as people wrote them down. They are part of no other number of this "
            "report, and an incident may also be a failure that is counted there.",
        ),
        gpu_hours=(("lost, as stated", total.lost_gpu_hours),),
    )


def _hours(stated: StatedLoss) -> str:
    sums = [
        f"{number(value, 4)} {unit}"
        for value, unit in ((stated.lost_h, "hours"), (stated.lost_gpu_hours, "GPU-hours"))
        if value is not None
    ]
    return f"{' and '.join(sums)} lost, as stated" if sums else "none states what was lost"


def _cells(stated: StatedLoss) -> tuple[str, ...]:
    return (
        number(stated.incidents),
        number(stated.lost_h, 4),
        number(stated.lost_gpu_hours, 4),
        number(stated.without_hours),
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return () if analysis.incidents is None else (incidents_section(analysis.incidents),)


INCIDENTS = Part(
    "incidents", place=170, question=questions.incidents, sections=_sections, in_python=False
)
