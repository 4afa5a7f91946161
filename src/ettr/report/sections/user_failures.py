"""Failures of the users' own making, whose they are and what they held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ettr.analysis import questions
from ettr.metrics.sizes import FailureGroup, UserFailures
from ettr.report.charts import BarSeries, row_chart
from ettr.report.numbers import DASH, number, percent
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, Section, TextTable
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_MOST = 0.5


def user_failures_section(found: UserFailures, gpu_hours: float | None) -> Section:
    """Failures of users; `gpu_hours` is what ran in all, None if unknown."""
    if not found.attempts:
        return Section("user-failures", "Failures of users' jobs", "No failures of users' jobs.")
    return Section(
        "user-failures",
        "Failures of users' jobs",
        " ".join(_lead(found, gpu_hours)),
        (_figure(found),),
        tables=tuple(
            _table(title, name, groups, some_without=found.attempts_without_gpus > 0)
            for title, name, groups in (
                ("Failures of users by end state", "state", found.by_state),
                ("Failures by user", "user", found.by_user),
                ("Failures by account", "account", found.by_account),
                ("Failures by exit code", "exit code or signal", found.by_exit),
                ("Failures of jobs on one node, by node", "node", found.by_node),
            )
        ),
        notes=(
            "Attempts that ended FAILED, OUT_OF_MEMORY, TIMEOUT or DEADLINE and for which no fault "
            "of a node was found; where logs of nodes are missing, such faults are among them. "
            f"Lists have the {found.listed} largest groups; GPU-hours are those that the attempts "
            "held. A time limit that was reached may be meant so.",
            *_notes(found, gpu_hours),
        ),
        gpu_hours=((_held_by_them(found), found.gpu_hours),),
        answer=_answer(found),
        careful="Where logs of nodes are missing, failures of nodes are among them.",
    )


def _answer(found: UserFailures) -> str:
    held = "" if found.gpu_hours is None else f" and held {number(found.gpu_hours)} GPU-hours"
    first = next(iter(found.by_user), None)
    whose = f"; most often {first.name}, {first.attempts:,}" if first and first.name else ""
    return f"{counted(found.attempts, 'job')} failed by errors of their own{held}{whose}."


def _held_by_them(found: UserFailures) -> str:
    return "held by them, a lower bound" if found.attempts_without_gpus else "held by them"


def _notes(found: UserFailures, gpu_hours: float | None) -> Iterator[str]:
    """What GPU-hours leave out; of no GPU-hours at all the report speaks elsewhere."""
    if gpu_hours is not None and found.attempts_without_gpus:
        yield by_number(
            "{n} [attempt|attempts] without a GPU count or a runtime [adds|add] nothing to the "
            "GPU-hours: those of a row with such attempts are a lower bound.",
            found.attempts_without_gpus,
        )


def _figure(found: UserFailures) -> Figure:
    counts = [one.attempts for one in found.by_user]
    words = [counted(count, "attempt") for count in counts]
    return row_chart(
        "user-failures",
        "Failures of users' jobs by user",
        f"Those with the most, {found.listed} at most.",
        [one.name or "unknown" for one in found.by_user],
        [BarSeries("attempts", counts, words)],
        axis_title="attempts that failed",
    )


def _lead(found: UserFailures, gpu_hours: float | None) -> Iterator[str]:
    held = ""
    if gpu_hours is not None and found.gpu_hours is None:
        held = "What they held is not measured: no log has both their GPUs and their runtimes."
    elif gpu_hours and found.gpu_hours is not None:
        part = percent(found.gpu_hours / gpu_hours)
        least = "at least " if found.attempts_without_gpus else ""
        held = f" They held {least}{number(found.gpu_hours)} GPU-hours, {part} of all that ran."
    words = counted(found.attempts, "attempt")
    yield f"{words} failed without a failure of the infrastructure in the logs.{held}"
    yield from _first("of user", found.by_user, found.attempts, "")
    yield from _first("on", found.by_node, found.one_node_attempts, " of those on one node alone")


def _first(where: str, groups: Sequence[FailureGroup], total: int, of_what: str) -> Iterator[str]:
    """Whose are most, or the most of one."""
    if not groups or not groups[0].name:
        return
    first = groups[0]
    most = "Most" if (first.share_of_attempts or 0.0) > _MOST else "The largest part"
    verb = "are" if most == "Most" else "is"
    yield f"{most}{of_what} {verb} {where} {first.name}: {first.attempts:,} of {total:,}."


def _table(
    title: str, name: str, groups: tuple[FailureGroup, ...], *, some_without: bool
) -> TextTable:
    return TextTable(
        title,
        (name, "attempts", "share", "GPU-hours", *(("without GPUs",) if some_without else ())),
        tuple(
            (
                one.name or DASH,
                number(one.attempts),
                percent(one.share_of_attempts),
                number(one.gpu_hours, 4),
                *((number(one.attempts_without_gpus),) if some_without else ()),
            )
            for one in groups
        ),
        frozenset({1, 2, 3, 4} if some_without else {1, 2, 3}),
        gpu_hours=((3, tuple(one.gpu_hours for one in groups)),),
        in_brief=name == "user",
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    ran = analysis.totals.gpu_hours if analysis.gpus_are_known else None
    return (user_failures_section(analysis.user_failures, ran),)


USER_FAILURES = Part(
    "user_failures",
    place=190,
    question=questions.user_failures,
    sections=_sections,
    main="by_user",
    title="Failures of users' jobs",
    command=Command(
        help="Failures of users' own making by user, account, exit code and node, and what they "
        "held.",
        options=(*CAUSES, "gpus_per_node"),
        place=50,
        examples=("ettr user-failures site --since 2026-03-01",),
    ),
)
