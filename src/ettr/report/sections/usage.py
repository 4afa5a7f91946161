"""What ran and how it ended: status mix and job sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.analysis import questions
from ettr.metrics.sizes import SizeClass, SizeMix, SizeUnit
from ettr.metrics.status import StatusMix, StatusShare, status_mix
from ettr.report.charts import BarSeries, column_chart, percent_axis
from ettr.report.numbers import number, percent
from ettr.report.registry import Command, Part
from ettr.report.section import Figure, Section, TextTable
from ettr.words import counted

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
        (_status_table(states),),
        gpu_hours=(("held in all", total),),
        careful="FAILED says that the program failed, not why; `ettr causes` says who caused it.",
    )


def _status_table(states: tuple[StatusShare, ...]) -> TextTable:
    return TextTable(
        "End states",
        ("state", "attempts", "share", "GPU-hours", "share", "node-hours", "share"),
        tuple(
            (
                state.state,
                number(state.attempts),
                percent(state.share_of_attempts),
                number(state.gpu_hours, 4),
                percent(state.share_of_gpu_hours),
                number(state.node_hours, 4),
                percent(state.share_of_node_hours),
            )
            for state in states
        ),
        frozenset(range(1, 7)),
        gpu_hours=((3, tuple(state.gpu_hours for state in states)),),
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
    return TextTable(
        f"Job sizes in {unit}",
        (unit, "attempts", "share", "job-hours", "GPU-hours", "share", "node-hours", "share"),
        tuple(
            (
                one.size.label,
                number(one.attempts),
                percent(one.share_of_attempts),
                number(one.job_hours, 4),
                number(one.gpu_hours, 4),
                percent(one.share_of_gpu_hours),
                number(one.node_hours, 4),
                percent(one.share_of_node_hours),
            )
            for one in mix.classes
        ),
        frozenset(range(8)),
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
