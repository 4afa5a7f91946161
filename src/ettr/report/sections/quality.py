"""How far the logs can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from ettr.metrics.coverage import Coverage
from ettr.metrics.quality import DataQuality
from ettr.report.numbers import DASH, counted, number, percent
from ettr.report.section import Figure, Section, Table

_FEW_DAYS = 3
_DAY_MS = 86_400_000


def quality_section(quality: DataQuality) -> Section:
    """Rejects, gaps, clocks, what the logs do not say, and the assumptions used."""
    lead = (
        f"{counted(quality.rows_read, 'record')} read from {counted(len(quality.files), 'file')}: "
        f"{quality.rows_rejected:,} rejected, {quality.rows_skipped:,} skipped by design. "
        f"When the logs ended, {counted(quality.running_attempts, 'attempt')} still ran and "
        f"{quality.pending_attempts:,} waited."
    )
    figures = (_coverage_figure(quality.coverage),) if quality.coverage else ()
    tables = (_files(quality), _rejects(quality), _coverage(quality.coverage))
    notes = (*_doubts(quality), *quality.assumptions)
    return Section("quality", "Data quality and assumptions", lead, figures, tables, notes)


def _files(quality: DataQuality) -> Table:
    return Table(
        "Files",
        ("file", "source", "read", "rejected", "skipped", "zone"),
        tuple(
            (
                file.name,
                file.source,
                number(file.rows_read),
                number(file.rows_rejected),
                number(file.rows_skipped),
                file.timezone or DASH,
            )
            for file in quality.files
        ),
        frozenset({2, 3, 4}),
    )


def _rejects(quality: DataQuality) -> Table:
    return Table(
        "Rejected records by reason",
        ("source", "reason", "records", "first at", "what was wrong"),
        tuple(
            (
                r.source,
                r.reason,
                number(r.rows),
                f"line {r.first_line}",
                r.first_detail,
            )
            for r in quality.rejected
        ),
        frozenset({2}),
    )


def _coverage(coverage: tuple[Coverage, ...]) -> Table:
    return Table(
        "Days with rows",
        ("table", "source", "rows", "first day", "last day", "days with rows", "gaps"),
        tuple(
            (
                c.table,
                c.source,
                number(c.rows),
                c.first_day,
                c.last_day,
                number(c.days_with_rows),
                "; ".join(
                    f"{hole.first_day} to {hole.last_day} ({hole.days} days)" for hole in c.holes
                )
                or "none",
            )
            for c in coverage
        ),
        frozenset({2, 5}),
    )


def _coverage_figure(coverage: tuple[Coverage, ...]) -> Figure:
    return Figure(
        "coverage",
        "Rows per day",
        "What each source delivered; a gap is a day without a row between days with some.",
        tuple(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{c.table} ({c.source})",
                "x": [day.day for day in c.rows_per_day],
                "y": [day.rows for day in c.rows_per_day],
                "marker": {"size": 4},
                "line": {"width": 1},
            }
            for c in coverage
        ),
        {
            "yaxis": {"type": "log", "dtick": 1, "title": {"text": "rows"}},
            "xaxis": {"type": "date", "tickformat": "%Y-%m-%d", **_few_days(coverage)},
        },
    )


def _few_days(coverage: tuple[Coverage, ...]) -> dict[str, object]:
    """An axis of whole days where there are so few that Plotly would draw seconds."""
    first = date.fromisoformat(min(c.first_day for c in coverage))
    last = date.fromisoformat(max(c.last_day for c in coverage))
    if (last - first).days > _FEW_DAYS:
        return {}
    margin = timedelta(days=1)
    ends = [(first - margin).isoformat(), (last + margin).isoformat()]
    return {"range": ends, "dtick": _DAY_MS}


def _doubts(quality: DataQuality) -> Iterator[str]:
    clocks = quality.clocks
    for count, what in (
        (clocks.attempts_started_before_submit, "attempts started before they were submitted"),
        (clocks.attempts_ended_before_start, "attempts ended before they started"),
        (clocks.attempts_elapsed_mismatch, "attempts ran for another time than from start to end"),
        (clocks.events_before_first_job, "events lie before the first job"),
        (clocks.events_after_last_job, "events lie after the last job"),
    ):
        if count:
            yield f"{count:,} {what}."
    if clocks.node_down_lag_s is not None:
        yield (
            f"A node's DOWN state begins {number(clocks.node_down_lag_s)} s after the end of the "
            f"attempt that it ended (median of {clocks.node_down_pairs:,})."
        )
    if quality.nodes_not_in_inventory:
        first = ", ".join(quality.nodes_not_in_inventory_first[:5])
        yield (
            f"{quality.nodes_not_in_inventory:,} nodes ran jobs and are not in the inventory "
            f"({first}): ingest `scontrol show node`."
        )
    if quality.attempts_without_nodes:
        yield (
            f"{quality.attempts_without_nodes:,} attempts that ran "
            f"({percent(quality.attempts_without_nodes_share)}) name no nodes; no event can "
            "explain them."
        )
    if quality.attempts_without_gpu_count:
        yield (
            f"{quality.attempts_without_gpu_count:,} attempts "
            f"({percent(quality.attempts_without_gpu_count_share)}) do not say how many GPUs they "
            "had; GPU-hours leave them out."
        )
