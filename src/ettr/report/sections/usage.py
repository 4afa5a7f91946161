"""What ran and how it ended: status mix and job sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ettr.analysis import questions
from ettr.metrics.sizes import FailureGroup, SizeClass, SizeMix, SizeUnit, UserFailures
from ettr.metrics.status import StatusMix, Totals, status_mix, totals
from ettr.report.charts import BarSeries, column_chart, percent_axis, row_chart
from ettr.report.numbers import DASH, NOT_MEASURED, number, percent
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.metrics.black_holes import BlackHole


_GPU_TIME = "GPU time"
_NODE_TIME = "node time"
_NOT_ENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING"})


def status_section(mix: StatusMix) -> Section:
    """How attempts end, by count and by the GPU time they held."""
    states = mix.states
    if not states:
        return Section("status", "How jobs end", "No attempts.")
    has_gpus = any(state.share_of_gpu_hours is not None for state in states)
    held = _GPU_TIME if has_gpus else _NODE_TIME
    shares = [
        state.share_of_gpu_hours if has_gpus else state.share_of_node_hours for state in states
    ]
    ends = ", ".join(f"{state.state} {percent(state.share_of_attempts)}" for state in states[:4])
    lead = f"Of {counted(sum(state.attempts for state in states), 'attempt')}: {ends}."
    heaviest = max(range(len(states)), key=lambda place: shares[place] or 0.0)
    if shares[heaviest]:
        state = states[heaviest].state
        ended = f"are {state}" if state in _NOT_ENDED else f"ended in {state}"
        lead += (
            f" The largest share of {held} went to attempts that {ended} "
            f"({percent(shares[heaviest])})."
        )
    figure = _share_chart(
        "status",
        "How attempts end",
        f"Share of attempts, and share of {held}, by end state.",
        [state.state for state in states],
        [state.share_of_attempts for state in states],
        held,
        shares,
    )
    known = [state.gpu_hours for state in states if state.gpu_hours is not None]
    total = sum(known) if known else None
    return Section(
        "status",
        "How jobs end",
        lead,
        (figure,),
        (
            table_of_rows(
                "End states",
                states,
                ("state", lambda state: state.state),
                (">attempts", lambda state: number(state.attempts)),
                (">share", lambda state: percent(state.share_of_attempts)),
                (">GPU-hours", lambda state: number(state.gpu_hours, 4)),
                (">share", lambda state: percent(state.share_of_gpu_hours)),
                (">node-hours", lambda state: number(state.node_hours, 4)),
                (">share", lambda state: percent(state.share_of_node_hours)),
                gpu_hours=((3, tuple(state.gpu_hours for state in states)),),
            ),
        ),
        gpu_hours=(("held in all", total),),
        careful="FAILED says that the program failed, not why; `ettr causes` says who caused it.",
    )


def sizes_section(mix: SizeMix) -> Section:
    """Job sizes by count and by the time they held."""
    classes = mix.classes
    if not classes:
        return Section("sizes", "Job sizes", "No attempts.")
    has_gpus = mix.size_unit == SizeUnit.GPUS
    unit, held = ("GPU", _GPU_TIME) if has_gpus else ("node", _NODE_TIME)
    shares = [one.share_of_gpu_hours if has_gpus else one.share_of_node_hours for one in classes]
    commonest = max(classes, key=lambda one: one.attempts)
    lead = (
        f"The most common size is {_sized(commonest.size, unit)} "
        f"({percent(commonest.share_of_attempts)} of attempts)."
    )
    heaviest = max(range(len(classes)), key=lambda place: shares[place] or 0.0)
    if shares[heaviest]:
        lead += (
            f" The largest share of {held} went to jobs of "
            f"{_sized(classes[heaviest].size, unit)} ({percent(shares[heaviest])})."
        )
    figure = _share_chart(
        "sizes",
        "Job sizes",
        f"Share of attempts, and share of {held}, by {unit}s allocated.",
        [one.size.label for one in classes],
        [one.share_of_attempts for one in classes],
        held,
        shares,
        label_title=f"{unit}s",
    )
    return Section(
        "sizes",
        "Job sizes",
        lead,
        (figure,),
        (_sizes_table(mix, f"{unit}s"),),
        careful="Hours are those that jobs held, used or not.",
    )


def _sized(size: SizeClass, unit: str) -> str:
    if size.size_from is None:
        return f"an unknown number of {unit}s"
    return f"{size.label} {unit if size.label == '1' else f'{unit}s'}"


def _sizes_table(mix: SizeMix, unit: str) -> TextTable:
    return table_of_rows(
        f"Job sizes in {unit}",
        mix.classes,
        (">" + unit, lambda one: one.size.label),
        (">attempts", lambda one: number(one.attempts)),
        (">share", lambda one: percent(one.share_of_attempts)),
        (">job-hours", lambda one: number(one.job_hours, 4)),
        (">GPU-hours", lambda one: number(one.gpu_hours, 4)),
        (">share", lambda one: percent(one.share_of_gpu_hours)),
        (">node-hours", lambda one: number(one.node_hours, 4)),
        (">share", lambda one: percent(one.share_of_node_hours)),
        gpu_hours=((4, tuple(one.gpu_hours for one in mix.classes)),),
    )


def _share_chart(
    slug: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    of_attempts: Sequence[float | None],
    held: str,
    of_time: Sequence[float | None],
    label_title: str = "",
) -> Figure:
    """Two bars for each label: its share of attempts, and of the GPU or node time held."""
    series = [
        BarSeries(
            name,
            [None if share is None else share * 100 for share in shares],
            [f"{percent(share)} of {name}" for share in shares],
        )
        for name, shares in (("attempts", of_attempts), (held, of_time))
    ]
    return column_chart(
        slug, title, caption, labels, series, axis=percent_axis(), label_title=label_title
    )


STATUS = Part(
    "status",
    place=180,
    question=status_mix,
    section=status_section,
    main="states",
    title="How jobs end",
    command=Command(
        help="How jobs end, by count and by the GPU time they held.",
        options=("gpus_per_node",),
        place=10,
        examples=("ettr status site",),
    ),
)
SIZES = Part(
    "sizes",
    place=200,
    question=questions.sizes,
    section=sizes_section,
    main="classes",
    title="Job sizes",
    command=Command(
        help="Job sizes, by count and by the GPU time they held.",
        options=("gpus_per_node",),
        place=20,
        examples=("ettr sizes site",),
    ),
)


# -- failures of the users' own making, whose they are and what they held --------------------------


_MOST = 0.5
_LIMITS = ("TIMEOUT", "DEADLINE")


def user_failures_section(
    found: UserFailures, gpu_hours: float | None, holes: Sequence[BlackHole] = ()
) -> Section:
    """Failures of users; `gpu_hours` is what ran in all, None if unknown.

    Args:
        holes: nodes that ended some of them, in truth, within seconds of their start.
    """
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
        careful=_of_holes(holes)
        or "Where logs of nodes are missing, failures of nodes are among them.",
    )


def _answer(found: UserFailures) -> str:
    held = "" if found.gpu_hours is None else f" and held {number(found.gpu_hours)} GPU-hours"
    first = next(iter(found.by_user), None)
    whose = f"; most often {first.name}, {first.attempts:,}" if first and first.name else ""
    jobs = counted(found.attempts, "job")
    return f"{jobs} failed by errors of their own{_at_a_limit(found)}{held}{whose}."


def _at_a_limit(found: UserFailures) -> str:
    """How many of them ran into a time limit, which is no error, and what they held."""
    ended = [one for one in found.by_state if one.name in _LIMITS]
    if not ended:
        return ""
    hours = [one.gpu_hours for one in ended if one.gpu_hours is not None]
    held = f", {number(sum(hours))} GPU-hours" if hours else ""
    return f" or at a time limit ({sum(one.attempts for one in ended):,}{held})"


def _of_holes(holes: Sequence[BlackHole]) -> str:
    """How many of them a node ended, probably; empty for none."""
    ended = Counter[str]()
    for one in holes:
        ended[one.node] += one.uncounted
    each = ", ".join(f"{node} {n:,}" for node, n in ended.most_common() if n)
    return (
        f"Nodes probably ended some of them within seconds of their start: {each}." if each else ""
    )


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
    return (user_failures_section(analysis.user_failures, ran, analysis.black_holes),)


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


# -- jobs, attempts and the hours that they held ---------------------------------------------------


def totals_section(found: Totals) -> Section:
    """The counts in a sentence, and the hours."""
    hours = (found.cpu_hours, found.node_hours, found.gpu_hours)
    table = TextTable(
        "Hours that jobs held",
        ("CPU-hours", "node-hours", "GPU-hours"),
        (tuple(NOT_MEASURED if one is None else number(one, 6) for one in hours),),
        frozenset(range(3)),
        gpu_hours=((2, (found.gpu_hours,)),),
    )
    lead = f"{counted(found.jobs, 'job')} in {counted(found.attempts, 'attempt')}."
    return Section("totals", "Jobs and hours", lead, (), (table,))


TOTALS = Part(
    "totals",
    place=10,
    question=totals,
    section=totals_section,
    title="Jobs and hours",
    on_page=False,
)
