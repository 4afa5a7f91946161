"""Failures one by one: when, whose, where, why, how sure, what it cost, and on what lines."""

from __future__ import annotations

from collections.abc import Iterator

from ettr.analysis.failure_list import EvidenceLine, FailureList, ListedFailure, failure_list
from ettr.report.numbers import DASH, moment, number
from ettr.report.registry import Part
from ettr.report.section import Section, TextTable
from ettr.words import by_number, counted

_HEADERS = (
    *("time, UTC", "job", "user", "nodes", "cause", "confidence", "GPU-hours lost"),
    *("in preempted jobs", "evidence"),
)
_LONGEST_NODES = 60
_MOST_LINES = 3


def failure_list_section(found: FailureList) -> Section:
    """The failures, the newest first."""
    total = counted(len(found.failures), "failure")
    return Section(
        "failure-list",
        "Failures one by one",
        f"{total}, each with the lines of the logs behind its cause."
        if found.failures
        else "No failures.",
        tables=(failure_table(found),),
        notes=(
            f"A failure loses the runtime of its job, at most {number(found.cap_min)} "
            "minutes of it, times its GPUs. The node in brackets gets the blame. `ettr "
            "explain STORE JOB` shows all that happened around a job's end.",
            *_not_measured(found),
        )
        if found.failures
        else (),
        gpu_hours=(
            _total("lost in the failed jobs", _lost(found), _unmeasured(found)),
            _total("in preempted jobs", _preempted(found), _unmeasured_preemptions(found)),
        ),
        answer=f"{total}, {number(sum(_lost(found)))} GPU-hours lost in the jobs; the newest first."
        if found.failures
        else "",
    )


def _total(what: str, known: list[float], unmeasured: int) -> tuple[str, float | None]:
    """The sum of what is known; None where that is nothing, since a bound of 0 says nothing."""
    hours = sum(known)
    if not unmeasured:
        return what, hours
    return f"{what}, a lower bound", hours or None


def _lost(found: FailureList) -> list[float]:
    return [one.lost_gpu_hours for one in found.failures if one.lost_gpu_hours is not None]


def _preempted(found: FailureList) -> list[float]:
    hours = (one.preempted_gpu_hours for one in found.failures)
    return [one for one in hours if one is not None]


def _unmeasured(found: FailureList) -> int:
    return sum(one.lost_gpu_hours is None for one in found.failures)


def _unmeasured_preemptions(found: FailureList) -> int:
    return sum(one.preemptions_unmeasured for one in found.failures)


def _not_measured(found: FailureList) -> Iterator[str]:
    """How many losses are not known, which sums leave out."""
    for words, n in (
        ("{n} [failure|failures]", _unmeasured(found)),
        ("{n} [preempted job|preempted jobs]", _unmeasured_preemptions(found)),
    ):
        if n:
            says = "[does not say its|do not say their] GPUs or how long [it|they] ran"
            yield by_number(f"{words} {says}: what [it|they] lost is not measured.", n)


def failure_table(found: FailureList) -> TextTable:
    """One row for each failure, the newest first."""
    newest = found.failures[::-1]
    return TextTable(
        "Failures",
        _HEADERS,
        tuple(_row(one) for one in newest),
        frozenset({6, 7}),
        shown_rows=len(found.failures),
        gpu_hours=(
            (6, tuple(one.lost_gpu_hours for one in newest)),
            (7, tuple(one.preempted_gpu_hours for one in newest)),
        ),
        detail_columns=("confidence", "in preempted jobs", "evidence"),
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


FAILURE_LIST = Part(
    "failure_list",
    place=50,
    question=failure_list,
    section=failure_list_section,
    main="failures",
    title="Failures one by one",
)
