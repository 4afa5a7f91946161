"""The fleet's failures at larger scales: MTTF and ETTR with their bands, spare nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from ettr.analysis.forecasting import AheadForecast, FailureForecast
from ettr.analysis.projecting import (
    CheckpointAdvice,
    ScalePoint,
    ScaleProjection,
    SizeAdvice,
    checkpoint_advice,
    projection_of,
)
from ettr.estimates.interval import Interval
from ettr.report.charts import (
    BarSeries,
    column_chart,
    limit_line,
    log_axis,
    point_line,
    share_axis,
    size_axis,
)
from ettr.report.numbers import (
    DASH,
    and_confidence,
    between,
    duration,
    number,
    percent,
    ratio,
    ratio_between,
    share_between,
    time_between,
)
from ettr.report.registry import NO_JOBS, Part
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import counted, spell

if TYPE_CHECKING:
    from ettr.analysis import Analysis


_TITLE = "At larger scales"
_UNKNOWN = Interval.unknown()


def projection_section(projection: ScaleProjection | None) -> Section:
    """MTTF and ETTR at each scale, with bands and warnings."""
    if projection is None:
        return Section("projection", _TITLE, "Nothing ran, so there is no rate to project.")
    meanings = [point.projection.meaning for point in projection.points]
    lead = " ".join(dict.fromkeys((meanings[0], meanings[-1])))
    tables = [_table(projection)]
    if any(point.projection.spares is not None for point in projection.points):
        tables.append(_spares_table(projection))
    return Section(
        "projection",
        _TITLE,
        lead,
        _figures(projection),
        tuple(tables),
        _notes(projection),
        careful="This assumes that only the size changes: the same nodes, network and software.",
    )


def _notes(projection: ScaleProjection) -> tuple[str, ...]:
    rate = projection.rate
    chosen_at = "upper end of the rate" if rate and not rate.failures else "estimated rate"
    return (
        *_warnings(projection),
        *_evidence(projection),
        *_standstill(projection),
        *_counted_while_held(projection),
        *_scatter(projection),
        f"ETTR by the exact form with writes of {spell(projection.write_s)}, restarts of "
        f"{spell(projection.restart_s)} and a queue of {spell(projection.queue_s)}. The "
        f"checkpoint interval is the best one at the {chosen_at}.",
        *projection.notes,
    )


def _evidence(projection: ScaleProjection) -> tuple[str, ...]:
    """What the rate rests on; nothing where it was typed in, which a note of its own says."""
    rate = projection.rate
    if rate is None:
        return ()
    return (
        f"From {counted(rate.failures, 'failure')} in {number(rate.node_days, 6)} node-days "
        f"({projection.jobs}{and_confidence(projection.by_confidence)}). Intervals reach from the "
        f"lowest to the highest end of {_models(projection.models)} at "
        f"{percent(projection.confidence, 2)}.",
    )


def _standstill(projection: ScaleProjection) -> tuple[str, ...]:
    """What spares do to the ETTR, where they are given with a repair time."""
    if all(point.projection.spares is None for point in projection.points):
        return ()
    return (
        "ETTR is that of the run while it has all its nodes, times the share of time covered by "
        "spares: nodes do not fail while the job waits for one.",
    )


def _counted_while_held(projection: ScaleProjection) -> tuple[str, ...]:
    """Which part of the run fails, where it waits for anything."""
    made = [point.projection for point in projection.points]
    waits = projection.queue_s > 0 or any(one.spares is not None for one in made)
    if not waits or all(one.failures_in_run is None for one in made):
        return ()
    return (
        "Failures in the run are those while it holds its nodes: none while it waits in the queue "
        "or for a repair.",
    )


def _scatter(projection: ScaleProjection) -> tuple[str, ...]:
    """What the band of failures in the run is, where the rate was typed in."""
    runs = (point.projection.failures_in_run for point in projection.points)
    if projection.rate is not None or all(run is None for run in runs):
        return ()
    return (
        "The interval of failures in the run is the scatter of one run alone, at the rate or at "
        "the ends of its interval.",
    )


def _models(names: tuple[str, ...]) -> str:
    return f"the {names[0]} model" if len(names) == 1 else f"the models {', '.join(names)}"


def _warnings(projection: ScaleProjection) -> list[str]:
    """What holds of several scales once: of sentences that differ in numbers, the largest one's."""
    by_kind: dict[str, str] = {}
    for point in sorted(projection.points, key=lambda point: point.size):
        for warning in point.projection.warnings:
            by_kind[re.sub(r"[\d.,]+", "0", warning.text)] = warning.text
    return list(by_kind.values())


def _table(projection: ScaleProjection) -> TextTable:
    timed = any(point.projection.failures_in_run is not None for point in projection.points)
    in_gpus = projection.unit != "nodes"
    headers = (
        *((projection.unit, "nodes") if in_gpus else ("nodes",)),
        *("MTTF", "checkpoint every", "ETTR", f"ETTR at {_published(projection)}"),
        *(("failures in the run",) if timed else ()),
    )

    def row(point: ScalePoint) -> tuple[str, ...]:
        made = point.projection
        count = made.failures_in_run
        return (
            *((number(round(point.size), 7),) if in_gpus else ()),
            number(made.scale.n_nodes, 7),
            time_between(made.mttf_h),
            DASH if point.interval_s is None else spell(point.interval_s),
            ratio_between(made.ettr),
            number(point.ettr_at_published, 3),
            *((DASH if count is None else between(count),) if timed else ()),
        )

    return TextTable(
        "MTTF and ETTR by scale",
        headers,
        tuple(row(point) for point in projection.points),
        frozenset(range(7)),
    )


def _published(projection: ScaleProjection) -> str:
    """The published rate in a few words."""
    return f"{projection.published}'s {number(projection.published_per_1000_node_days, 3)}"


def _spares_table(projection: ScaleProjection) -> TextTable:
    rows = []
    for point in projection.points:
        spares = point.projection.spares
        if spares is not None:
            rows.append(
                (
                    number(round(point.size), 7),
                    number(point.projection.scale.spares),
                    between(spares.in_repair),
                    ratio_between(spares.full_share),
                    number(spares.needed_for_99),
                )
            )
    return TextTable(
        "Spare nodes",
        (projection.unit, "spares", "nodes in repair", "share of time covered", "spares for 99 %"),
        tuple(rows),
        frozenset(range(5)),
    )


def _drawn(intervals: list[Interval]) -> list[float | None]:
    return [end for one in intervals for end in (one.estimate, one.low, one.high)]


def _figures(projection: ScaleProjection) -> tuple[Figure, Figure]:
    """MTTF and ETTR, one above the other over the same sizes: two axes in one frame mislead."""
    sizes = [point.size for point in projection.points]
    ends = "Upright lines reach from the lowest to the highest end of all models."
    mttf = [point.projection.mttf_h or _UNKNOWN for point in projection.points]
    ettr = [point.projection.ettr or _UNKNOWN for point in projection.points]
    published = [point.ettr_at_published for point in projection.points]
    across = size_axis(projection.unit, [round(size) for size in sizes])
    return (
        Figure(
            "projection",
            "MTTF by scale",
            f"Hours to a failure of a job of each size. {ends}",
            (point_line("MTTF, hours", sizes, mttf),),
            {"xaxis": across, "yaxis": log_axis("MTTF, hours", _drawn(mttf))},
        ),
        Figure(
            "projection-ettr",
            "ETTR by scale",
            f"Share of the wall clock in which a job of each size trains, at the fleet's own rate "
            f"and at {_published(projection)} failures per 1,000 node-days, as published. {ends}",
            (
                point_line("ETTR", sizes, ettr),
                limit_line(
                    f"at {_published(projection)}", sizes, published, "dash", in_legend=True
                ),
            ),
            {"xaxis": across, "yaxis": share_axis("ETTR")},
        ),
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    found = analysis.ask(projection_of)
    if found is None and not analysis.logs_read.jobs:
        from ettr.analysis.fleet_evidence import why_nothing_to_plan_with

        words = f"No rate to project: {why_nothing_to_plan_with(analysis)}."
        return (Section("projection", _TITLE, words),)
    return (projection_section(found),)


PROJECTION = Part(
    "projection",
    place=120,
    question=projection_of,
    sections=_sections,
    main="points",
    in_python=False,
)


# -- Failures to come, with bands, and how often such bands held in the past ----------------------


def forecast_section(forecast: FailureForecast) -> Section:
    """One row for each length of time; the sentences first."""
    return Section(
        "forecast",
        f"{forecast.of_what.capitalize()} to come",
        " ".join(one.meaning for one in forecast.ahead),
        (),
        (
            table_of_rows(
                "Forecasts",
                forecast.ahead,
                (">ahead", lambda one: duration(SECONDS_PER_DAY * one.ahead_days)),
                (">windows of the past", lambda one: number(one.windows)),
                (">node-days", lambda one: number(one.node_days, 4)),
                (
                    f">{forecast.of_what} expected",
                    lambda one: DASH if one.failures.estimate is None else between(one.failures),
                ),
                (">bands checked", lambda one: number(one.backtests)),
                (">held", lambda one: share_between(one.held_share, 2)),
                (">past counts half after", _memory),
            ),
        ),
        (
            f"From {number(forecast.events)} {forecast.of_what} in "
            f"{duration(SECONDS_PER_DAY * forecast.history_days)} of logs"
            f"{and_confidence(forecast.by_confidence)}; bands at "
            f"{percent(forecast.confidence, 2)}.",
            *forecast.notes,
        ),
        careful="A forecast assumes that the days to come are like those of the logs.",
    )


def _memory(one: AheadForecast) -> str:
    if one.half_life_windows is None:
        return DASH
    if math.isinf(one.half_life_windows):
        return "never"
    return duration(SECONDS_PER_DAY * one.ahead_days * one.half_life_windows)


# -- the best checkpoint interval for runs of the sizes seen ---------------------------------------


_PLANNING_TITLE = "Checkpoint interval"


def planning_section(advice: CheckpointAdvice | None) -> Section:
    """The best interval by size of run, and what it gains over hourly checkpoints."""
    if advice is None or not advice.sizes:
        return Section("planning", _PLANNING_TITLE, "No run of known size was seen.")
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
    return Section(
        "planning",
        _PLANNING_TITLE,
        lead,
        (_figure(advice),),
        (_size_table(advice),),
        tuple(notes),
    )


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


def _size_table(advice: CheckpointAdvice) -> TextTable:
    ordered = _by_shape(advice)
    return table_of_rows(
        "Best checkpoint interval by size of run",
        ordered,
        ("size", lambda one: one.size),
        (">runs", lambda one: number(one.runs)),
        (">GPU-hours", lambda one: number(one.gpu_hours, 5)),
        (">MTTF", lambda one: DASH if one.mttf_h is None else spell(SECONDS_PER_HOUR * one.mttf_h)),
        (">best interval", lambda one: spell(one.best_interval_s)),
        (">ETTR at best", lambda one: ratio(one.ettr_at_best)),
        (">ETTR hourly", lambda one: ratio(one.ettr_at_hourly)),
        (">GPU-hours gained over hourly", lambda one: number(one.gpu_hours_gained)),
        gpu_hours=(
            (2, tuple(one.gpu_hours for one in ordered)),
            (7, tuple(one.gpu_hours_gained for one in ordered)),
        ),
    )


def _planned(analysis: Analysis) -> tuple[Section, ...]:
    if not analysis.logs_read.jobs:
        return (Section("planning", _PLANNING_TITLE, NO_JOBS),)
    return (planning_section(analysis.checkpoint_advice),)


PLANNING = Part("planning", place=130, question=checkpoint_advice, sections=_planned, main="sizes")
