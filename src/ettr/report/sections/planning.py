"""The best checkpoint interval for runs of the sizes seen."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from ettr.analysis.checkpoint_advice import CheckpointAdvice, SizeAdvice, checkpoint_advice
from ettr.report.charts import BarSeries, column_chart, share_axis
from ettr.report.numbers import DASH, number, ratio
from ettr.report.registry import NO_JOBS, Part
from ettr.report.section import Figure, Section, TextTable
from ettr.units import SECONDS_PER_HOUR
from ettr.words import spell

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_TITLE = "Checkpoint interval"


def planning_section(advice: CheckpointAdvice | None) -> Section:
    """The best interval by size of run, and what it gains over hourly checkpoints."""
    if advice is None or not advice.sizes:
        return Section("planning", _TITLE, "No run of known size was seen.")
    largest = max(advice.sizes, key=lambda one: one.n_nodes)
    lead = (
        f"At {number(advice.per_1000_node_days)} failures per 1,000 node-days, writes of "
        f"{spell(advice.write_s)} and restarts of {spell(advice.restart_s)}, the best interval "
        f"for a run on {largest.size} is {spell(largest.best_interval_s)}: ETTR "
        f"{ratio(largest.ettr_at_best)}, and {ratio(largest.ettr_at_hourly)} with hourly "
        "checkpoints."
    )
    notes = [
        "Writes and restarts are assumed, as in Kokolis et al. (HPCA 2025); `ettr plan STORE` "
        "takes your own and ranks checkpoint schemes."
    ]
    if advice.sizes_found > len(advice.sizes):
        notes.append(
            f"The {len(advice.sizes)} sizes with the most GPU-hours of {advice.sizes_found:,}."
        )
    if advice.from_upper_end:
        notes.append("Nothing has failed yet, so the upper end of the rate is used.")
    return Section("planning", _TITLE, lead, (_figure(advice),), (_table(advice),), tuple(notes))


def _by_shape(advice: CheckpointAdvice) -> list[SizeAdvice]:
    return sorted(advice.sizes, key=lambda one: (one.n_nodes, one.n_gpus or 0))


def _figure(advice: CheckpointAdvice) -> Figure:
    ordered = _by_shape(advice)

    def series(name: str, ettr: Callable[[SizeAdvice], float]) -> BarSeries:
        values = [ettr(one) for one in ordered]
        return BarSeries(name, values, [f"ETTR {ratio(value)} {name}" for value in values])

    return column_chart(
        "planning",
        "ETTR by size of run",
        "With a checkpoint at the best interval, and every hour.",
        [one.size for one in ordered],
        [
            series("at the best interval", attrgetter("ettr_at_best")),
            series("hourly", attrgetter("ettr_at_hourly")),
        ],
        axis=share_axis("ETTR"),
    )


def _table(advice: CheckpointAdvice) -> TextTable:
    ordered = _by_shape(advice)
    return TextTable(
        "Best checkpoint interval by size of run",
        (
            "size",
            "runs",
            "GPU-hours",
            "MTTF",
            "best interval",
            "ETTR at best",
            "ETTR hourly",
            "GPU-hours gained over hourly",
        ),
        tuple(
            (
                one.size,
                number(one.runs),
                number(one.gpu_hours, 5),
                DASH if one.mttf_h is None else spell(SECONDS_PER_HOUR * one.mttf_h),
                spell(one.best_interval_s),
                ratio(one.ettr_at_best),
                ratio(one.ettr_at_hourly),
                number(one.gpu_hours_gained),
            )
            for one in ordered
        ),
        frozenset(range(1, 8)),
        gpu_hours=(
            (2, tuple(one.gpu_hours for one in ordered)),
            (7, tuple(one.gpu_hours_gained for one in ordered)),
        ),
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    if not analysis.logs_read.jobs:
        return (Section("planning", _TITLE, NO_JOBS),)
    return (planning_section(analysis.checkpoint_advice),)


PLANNING = Part("planning", place=130, question=checkpoint_advice, sections=_sections, main="sizes")
