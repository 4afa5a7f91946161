"""Failures one by one: when, whose, where, why, how sure, what it cost, and on what lines."""

from __future__ import annotations

from ettr.analysis.failure_list import EvidenceLine, FailureList, ListedFailure
from ettr.report.numbers import DASH, moment, number
from ettr.report.section import Section, TextTable
from ettr.words import counted

_HEADERS = (
    *("time, UTC", "job", "user", "nodes", "cause", "confidence", "GPU-hours lost"),
    *("in preempted jobs", "evidence"),
)
_LONGEST_NODES = 60
_MOST_LINES = 3


def failure_list_section(found: FailureList) -> Section:
    """The failures in order of time."""
    total = counted(len(found.failures), "failure")
    return Section(
        "failure-list",
        "Failures one by one",
        f"{total}, each with the lines of the logs behind its cause."
        if found.failures
        else "No failures.",
        tables=(failure_table(found),),
        notes=(
            f"A failure loses its job's runtime, at most {number(found.cap_min)} minutes of it, "
            "times its GPUs. A node in brackets is the one blamed. `ettr explain STORE JOB` shows "
            "all that was seen around a job's end.",
        )
        if found.failures
        else (),
        gpu_hours=(
            ("lost in the failed jobs", sum(one.lost_gpu_hours or 0.0 for one in found.failures)),
            ("in preempted jobs", sum(one.preempted_gpu_hours or 0.0 for one in found.failures)),
        ),
    )


def failure_table(found: FailureList) -> TextTable:
    """One row for each failure."""
    return TextTable(
        "Failures",
        _HEADERS,
        tuple(_row(one) for one in found.failures),
        frozenset({6, 7}),
        shown_rows=len(found.failures),
        gpu_hours=(
            (6, tuple(one.lost_gpu_hours for one in found.failures)),
            (7, tuple(one.preempted_gpu_hours for one in found.failures)),
        ),
        slug="failures",
        lists_all="ettr failures STORE --list",
    )


def _row(one: ListedFailure) -> tuple[str, ...]:
    return (
        moment(one.time),
        f"{one.job_id} {one.name}" if one.name else one.job_id,
        one.user or DASH,
        _nodes(one),
        one.symptom,
        one.confidence,
        number(one.lost_gpu_hours, 4),
        number(one.preempted_gpu_hours, 4),
        _lines(one),
    )


def _nodes(one: ListedFailure) -> str:
    nodes = one.nodes or DASH
    if len(nodes) > _LONGEST_NODES:
        nodes = f"{nodes[:_LONGEST_NODES]}…"
    return f"{nodes} ({one.node})" if one.node and one.node != nodes else nodes


def _lines(one: ListedFailure) -> str:
    lines = [_line(line) for line in one.evidence[:_MOST_LINES]]
    if len(one.evidence) > _MOST_LINES:
        lines.append(f"{len(one.evidence) - _MOST_LINES:,} more")
    return "; ".join([f"{one.state} {one.file}:{one.line}", *lines])


def _line(line: EvidenceLine) -> str:
    return f"{line.file}:{line.line} {line.text}"
