"""How far the logs can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from ettr.analysis import loss_questions, questions
from ettr.metrics.coverage import LONGEST_NAME, Coverage
from ettr.metrics.quality import DataQuality
from ettr.report.charts import dotted_line, log_axis
from ettr.report.findings import Finding, findings
from ettr.report.numbers import DASH, moment, number
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Figure, Listing, Section, first_sentence, table_of_rows
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_FEW_DAYS = 3
_DAY_MS = 86_400_000


def quality_section(quality: DataQuality, findings: Sequence[Finding] = ()) -> Section:
    """Rejects, gaps, clocks, what the logs do not say, and the assumptions used."""
    return Section(
        "quality",
        "Data quality and assumptions",
        _lead(quality),
        (_coverage_figure(quality.coverage),) if _several_days(quality.coverage) else (),
        (
            table_of_rows(
                "Files",
                quality.files,
                ("file", lambda file: file.name),
                ("source", lambda file: file.source),
                (">read", lambda file: number(file.rows_read)),
                (">rejected", lambda file: number(file.rows_rejected)),
                (
                    ">folded",
                    lambda file: number(file.rows_folded),
                ),
                (">skipped", lambda file: number(file.rows_skipped)),
                ("time zone", lambda file: file.timezone or DASH),
            ),
            table_of_rows(
                "Rejected records by reason",
                quality.rejected,
                ("source", lambda r: r.source),
                ("reason", lambda r: r.reason),
                (">records", lambda r: number(r.rows)),
                ("first at", lambda r: f"line {r.first_line}"),
                ("what was wrong there", lambda r: r.first_detail),
            ),
            table_of_rows(
                "Events that the taxonomy does not know",
                quality.unknown_checks,
                ("check", lambda one: one.check),
                ("code", lambda one: one.code or DASH),
                (">events", lambda one: number(one.events)),
                (">critical", lambda one: number(one.critical_events)),
                (">nodes", lambda one: number(one.nodes)),
                ("first", lambda one: moment(one.first)),
                ("last", lambda one: moment(one.last)),
            ),
            table_of_rows(
                "Reasons of nodes that the taxonomy does not know",
                quality.unknown_reasons,
                ("reason", lambda one: one.reason[:LONGEST_NAME]),
                (">node states", lambda one: number(one.node_states)),
                (">nodes", lambda one: number(one.nodes)),
                ("first", lambda one: moment(one.first)),
                ("last", lambda one: moment(one.last)),
            ),
            table_of_rows(
                "Days with rows",
                quality.coverage,
                ("table", lambda c: c.table),
                ("source", lambda c: c.source),
                (">rows", lambda c: number(c.rows)),
                ("first day", lambda c: c.first_day),
                ("last day", lambda c: c.last_day),
                (">days with rows", lambda c: number(c.days_with_rows)),
                (
                    "gaps",
                    lambda c: (
                        "; ".join(
                            f"{hole.first_day} to {hole.last_day} ({counted(hole.days, 'day')})"
                            for hole in c.holes
                        )
                        or "none"
                    ),
                ),
            ),
        ),
        (*map(_doubt, findings), *quality.assumptions),
        (*_reason_rows(quality), *_taxonomy_rows(quality)),
        careful=first_sentence(next((one.says for one in findings if one.effect is not None), ""))
        or "No number of a report counts a record that was rejected.",
    )


def _lead(quality: DataQuality) -> str:
    folded = quality.rows_folded
    lead = (
        f"{counted(quality.rows_read, 'record')} read from {counted(len(quality.files), 'file')}: "
        f"{quality.rows_rejected:,} rejected, "
        + ("" if folded is None else f"{folded:,} folded into others, ")
        + f"{quality.rows_skipped:,} skipped by design."
    )
    if quality.running_attempts or quality.pending_attempts:
        lead += (
            f" When the logs ended, {counted(quality.running_attempts, 'attempt')} still ran and "
            f"{quality.pending_attempts:,} waited in the queue."
        )
    return lead


def _reason_rows(quality: DataQuality) -> tuple[Listing, ...]:
    """Rows that make the unknown reasons known, ready for a site's file."""
    if not quality.unknown_reasons:
        return ()
    states = sum(one.node_states for one in quality.unknown_reasons)
    rows = dict.fromkeys(one.taxonomy_row for one in quality.unknown_reasons)
    return (
        Listing(
            f"{counted(states, 'node state')} with a reason that the taxonomy does not know "
            f"{'names' if states == 1 else 'name'} no fault, so that a job that ended FAILED on "
            "such a node is no failure of the infrastructure by it. Put these rows into a file, "
            "say in them what each is a sign of, and give the file with `--taxonomy FILE.toml`:",
            "\n\n".join(rows),
        ),
    )


def _taxonomy_rows(quality: DataQuality) -> tuple[Listing, ...]:
    """Rows that make the unknown checks known, ready for a site's file."""
    if not quality.unknown_checks:
        return ()
    events = sum(one.events for one in quality.unknown_checks)
    return (
        Listing(
            f"{counted(events, 'event')} of checks or codes that the taxonomy does not know "
            f"{'explains' if events == 1 else 'explain'} no failure and "
            f"{'counts' if events == 1 else 'count'} as no fault. Put these rows into a file, say "
            "in them what each is a sign of, and give the file with `--taxonomy FILE.toml`:",
            "\n\n".join(one.taxonomy_row for one in quality.unknown_checks),
        ),
    )


def _several_days(coverage: tuple[Coverage, ...]) -> bool:
    """Whether there is a course of days to draw; of one day the table says all."""
    return len({day for one in coverage for day in (one.first_day, one.last_day)}) > 1


def _coverage_figure(coverage: tuple[Coverage, ...]) -> Figure:
    traces = [
        dotted_line(
            f"{one.table} ({one.source})",
            [day.day for day in one.rows_per_day],
            [day.rows for day in one.rows_per_day],
        )
        for one in coverage
    ]
    layout: dict[str, object] = {
        "yaxis": log_axis("rows", [day.rows for one in coverage for day in one.rows_per_day]),
        "xaxis": {"type": "date", "tickformat": "%Y-%m-%d", **_few_days(coverage)},
    }
    return Figure(
        "coverage",
        "Rows per day",
        "What each source delivered; a gap is a day without a row between days with some.",
        tuple(traces),
        layout,
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


def _doubt(found: Finding) -> str:
    """A finding with what it does to numbers."""
    effect = found.effect
    if effect is None:
        return found.says
    what = " and ".join(effect.moves)
    if effect.at_most is None:
        return f"{found.says} Effect: {what} {effect.direction}, by how much is not known."
    return f"{found.says} Effect: {what} at most {number(effect.at_most)} times {effect.direction}."


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return (quality_section(analysis.quality, findings(analysis)),)


LOGS = Part("logs", place=20, question=questions.logs, in_python=False)
QUALITY = Part(
    "quality",
    place=210,
    question=loss_questions.quality,
    sections=_sections,
    main="files",
    command=Command(
        help="Data quality: rejects, open jobs, gaps, clock skew, assumptions.",
        options=(*CAUSES, "above_gpus"),
        place=130,
        examples=("ettr quality site",),
        priced=False,
    ),
)
ASSUMPTIONS = Part("assumptions", place=220, question=questions.assumptions, in_python=False)
