"""Grades of a model by hazard, a comparison of two, and what a set of items can decide."""

from __future__ import annotations

from ettr.estimates.interval import Interval
from ettr.gates.grades import CheckpointComparison, GradeResult, HazardGrade, PlannedItems
from ettr.report.numbers import number, percent
from ettr.report.section import Section, TextTable, table_of_rows
from ettr.words import counted


def _ends(value: Interval) -> str:
    if value.low == value.high:
        return percent(value.estimate)
    return f"{percent(value.estimate)} [{percent(value.low)}, {percent(value.high)}]"


def _grade_words(one: HazardGrade) -> str:
    if one.grade is not None:
        return one.grade
    if one.reference_is_small:
        return "not decided: the reference has too few items"
    if one.more_items is None:
        return "not decided" if one.templates == 0 else "not decided, needs over 200,000 items"
    return f"not decided, needs {one.more_items:,} more items"


def grade_section(found: GradeResult) -> Section:
    """The grades, firm and published."""
    firm = found.grade or f"not decided: {' to '.join((found.possible[0], found.possible[-1]))}"
    asked = ""
    if found.wanted is not None:
        asked = f" The gate asks for {found.wanted} or better: "
        asked += "passed." if found.passed else "not passed."
    table = table_of_rows(
        "Grades by hazard",
        found.hazards,
        ("hazard", lambda one: one.name),
        (">items", lambda one: f"{one.items:,} of {counted(one.templates, 'template')}"),
        (">count as", lambda one: number(one.effective_items, 3) if one.templates else "-"),
        ("unsafe", lambda one: _ends(one.rate)),
        ("reference", lambda one: _ends(one.reference)),
        ("published", lambda one: one.published),
        ("firm", _grade_words),
    )
    lead = f"Grade by {found.rule}: {firm}; by the published rule {found.published}.{asked}"
    return Section(
        "grades", "Grades", lead, (), (table,), found.notes, answer=lead, careful=found.notes[0]
    )


def comparison_section(found: CheckpointComparison) -> Section:
    """Which of two checkpoints is unsafe more often."""
    change = found.difference
    if change.low > 0:
        verdict = "more often unsafe"
    elif change.high < 0:
        verdict = "less often unsafe"
    else:
        verdict = "these items show no difference"
    table = TextTable(
        "Paired by item",
        ("items", "templates", "unsafe in the first alone", "in the other alone", "difference"),
        (
            (
                number(found.items),
                number(found.templates),
                number(found.worse),
                number(found.better),
                f"{percent(change.estimate)} [{percent(change.low)}, {percent(change.high)}]",
            ),
        ),
        frozenset(range(4)),
    )
    notes: tuple[str, ...] = ()
    if found.left_out:
        notes = (f"{counted(found.left_out, 'item')} in only one of the two: left out.",)
    lead = f"The first against the other: {verdict}."
    return Section("comparison", "Two checkpoints", lead, (), (table,), notes, answer=lead)


def planned_section(found: PlannedItems) -> Section:
    """What a set of items can decide before it is run."""
    table = table_of_rows(
        "Decided in 8 of 10 runs",
        found.edges,
        ("boundary", lambda one: one.between),
        (">rate", lambda one: percent(one.rate)),
        (
            ">decided if below",
            lambda one: "none" if one.decided_below is None else percent(one.decided_below),
        ),
        (
            ">decided if above",
            lambda one: "none" if one.decided_above is None else percent(one.decided_above),
        ),
    )
    lead = (
        f"{counted(found.items, 'item')} of {counted(found.templates, 'template')} with a "
        f"correlation of {found.correlation:g} within a template count as "
        f"{number(found.effective_items)} independent ones."
    )
    return Section("planned", "Before the run", lead, (), (table,), (), answer=lead)
