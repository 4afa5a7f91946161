"""A period against the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ettr.analysis.comparing import PeriodFigures, PeriodTrend, previous
from ettr.estimates.interval import Interval
from ettr.report.charts import rates_chart
from ettr.report.numbers import DASH, between, by_confidence, left_out, moment, number, percent
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable
from ettr.report.sections.compare import ratios_table
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_TITLE = "This period against the one before"


def previous_section(trend: PeriodTrend) -> Section:
    """The tested sentence first, then both periods."""
    shown = [("this", trend.this)]
    if trend.before is not None:
        shown.append(("before", trend.before))
    figures = [one for _, one in shown]
    table = TextTable(
        "Both periods" if trend.before else "The period",
        (
            *("period", "from", "until before", "failures", "node-days"),
            *("failures per 1,000 node-days", "GPU-hours that ran", "GPU-hours lost", "share lost"),
            "by confidence",
        ),
        tuple((name, *_cells(one)) for name, one in shown),
        frozenset({3, 4, 5, 6, 7, 8}),
        gpu_hours=(
            (6, tuple(one.ran_gpu_hours for one in figures)),
            (7, tuple(_estimate(one.lost_gpu_hours) for one in figures)),
        ),
    )
    tables: tuple[TextTable, ...] = (table,)
    if trend.comparison is not None:
        tables += (ratios_table(trend.comparison.pairs),)
    charts = () if trend.before is None else (_figure(shown),)
    return Section(
        "previous",
        _TITLE,
        trend.meaning,
        charts,
        tables,
        tuple(_notes(trend)),
        careful="Other jobs or other nodes in one of the periods change the rate as well.",
    )


def _figure(shown: Sequence[tuple[str, PeriodFigures]]) -> Figure:
    return rates_chart(
        "previous",
        "Failure rates of both periods",
        "Of all jobs, with the intervals of the table.",
        {f"{name} period": one.per_1000_node_days for name, one in reversed(shown)},
    )


def _cells(one: PeriodFigures) -> tuple[str, ...]:
    return (
        moment(one.start),
        moment(one.end),
        number(one.failures),
        number(one.node_days, 5),
        between(one.per_1000_node_days),
        "not measured" if one.ran_gpu_hours is None else number(one.ran_gpu_hours, 5),
        "not measured" if one.lost_gpu_hours is None else between(one.lost_gpu_hours, 4),
        percent(one.lost_share),
        by_confidence(one.by_confidence) or DASH,
    )


def _estimate(value: Interval | None) -> float | None:
    return None if value is None else value.estimate


def _notes(trend: PeriodTrend) -> list[str]:
    notes = []
    for name, one in (("this period", trend.this), ("the period before", trend.before)):
        if one is None:
            continue
        whole_days = (one.end - one.start).total_seconds() / SECONDS_PER_DAY
        if one.measured_days < 0.999 * whole_days:
            notes.append(
                f"Of the {counted(round(whole_days), 'day')} of {name} the logs cover "
                f"{number(one.measured_days)}: compare its rate and its share, not its totals."
            )
        without = left_out(one)
        if without:
            notes.append(f"In {name} {without}")
    if any(
        one is not None and one.lost_gpu_hours is not None for one in (trend.this, trend.before)
    ):
        notes.append(
            f"An interruption loses its job's runtime, at most {number(trend.cap_min)} minutes of "
            "it: half of an assumed checkpoint interval."
        )
    jobs = {fleet.jobs for fleet in trend.comparison.fleets} if trend.comparison else {"all jobs"}
    if jobs != {"all jobs"}:
        notes.append(f"The ratios are of {', '.join(sorted(jobs))}; both periods show all jobs.")
    notes.append(
        "Intervals of rates and of lost GPU-hours are of what such a period holds on average, and "
        "admit the clustering of its failures."
    )
    return notes


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    found = analysis.ask(previous)
    return () if found is None else (previous_section(found),)


PREVIOUS = Part(
    "previous",
    place=40,
    question=previous,
    sections=_sections,
    title=_TITLE,
)
