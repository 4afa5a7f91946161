"""Whether the site's objectives hold: what each budget allowed, what came, and its alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ettr.analysis.objectives import ObjectivesHeld, ObjectiveState, objectives_held
from ettr.report.numbers import between, moment, number
from ettr.report.registry import CAUSES, Command, Part
from ettr.report.section import Section, TextTable
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis

_TITLE = "Objectives of the site"
_NONE = (
    "Not measured: define budgets in [[slo]] tables of ettr.toml or of the --slo file, "
    "and ingest job accounting."
)
_HEADERS = (
    *("objective", "jobs", "verdict", "allowed", "observed", "observed / allowed"),
    *("alert since", "alerts in all"),
)


def objectives_section(held: ObjectivesHeld) -> Section:
    """One row an objective."""
    silent = "".join(
        f" {log.source} has been silent since {log.last_day}: without it no objective is met."
        for log in held.silent
    )
    if not held.objectives:
        return Section("slo", _TITLE, _NONE + silent)
    burning = [one for one in held.objectives if one.is_burning]
    verdicts = ", ".join(
        f"{n} {name}"
        for name in ("missed", "undecided", "met", "unknown")
        if (n := sum(one.verdict == name for one in held.objectives))
    )
    lead = f"Of {counted(len(held.objectives), 'objective')}: {verdicts}. "
    lead += (
        f"Alert: {', '.join(one.name for one in burning)}." if burning else "No alert is raised."
    )
    lead += silent
    return Section(
        "slo",
        _TITLE,
        lead,
        tables=(
            TextTable(
                f"At {moment(held.at)} UTC",
                _HEADERS,
                tuple(map(_row, held.objectives)),
                frozenset(range(3, 8)),
            ),
        ),
        notes=tuple(_note(one) for one in held.objectives if one.false_alarms_per_year),
        careful="A verdict covers the window; an alert means that the rate exceeds the budget now.",
    )


def _row(one: ObjectiveState) -> tuple[str, ...]:
    since = moment(one.alerts[-1].since) if one.is_burning else "none"
    return (
        f"{one.name}: {one.objective}",
        one.of_jobs or "all",
        one.verdict,
        number(one.allowed, 3),
        number(one.came, 3),
        between(one.burn),
        since,
        number(len(one.alerts)),
    )


def _note(one: ObjectiveState) -> str:
    alarms = number(one.false_alarms_per_year, 2)
    return (
        f"{one.name}: {alarms} false alarms a year where its rate is just that of the budget; "
        f"failures vary {number(one.dispersion, 2)} times as much as independent ones. The last "
        f"{one.window_days:g} days decide the verdict."
    )


def _has_objectives(analysis: Analysis) -> bool:
    return bool(analysis.assumptions.objectives)


SLO = Part(
    "slo",
    place=85,
    question=objectives_held,
    section=objectives_section,
    main="objectives",
    on_page=_has_objectives,
    command=Command(
        help="Check the budgets of a site: which hold, and which burns too fast.",
        options=(*CAUSES, "slo", "confidence", "gpus_per_node"),
        place=82,
        examples=("ettr slo site", "ettr slo site --slo budgets.toml --since 90d"),
        priced=False,
    ),
)
