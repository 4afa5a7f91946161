"""Health checks: what each found before failures, what it missed, its false alarms, its cost."""

from __future__ import annotations

from collections.abc import Iterable

from ettr.analysis.node_checks import ANY, CheckAdvice, CheckRecord, ChecksReport, HelpedReport
from ettr.report.findings import TOO_HIGH, TOO_LOW, Effect, Finding
from ettr.report.numbers import DASH, hours_between, number, percent, ratio_between, share_between
from ettr.report.section import Section, TextTable, table_of_rows
from ettr.words import by_number

NOT_KNOWN = "not known"


def checks_section(report: ChecksReport) -> Section:
    """The best check in a sentence, then each with what it covers."""
    tables = (
        table_of_rows(
            "Firings and cost",
            report.checks,
            ("check", lambda one: one.name),
            (">runs", lambda one: NOT_KNOWN if one.runs is None else number(one.runs)),
            (
                ">node-hours",
                lambda one: NOT_KNOWN if one.node_hours is None else number(one.node_hours),
            ),
            (">firings", lambda one: number(one.alarms.firings)),
            (">before failures", lambda one: number(one.alarms.before_failure)),
            (">at failures", lambda one: number(one.alarms.at_failure)),
            (">taken out", lambda one: number(one.alarms.taken_out)),
            (">false", lambda one: number(one.alarms.false_alarms)),
            (">not known", lambda one: number(one.alarms.unknown)),
            (">false share", lambda one: share_between(one.alarms.false_share)),
            in_brief=True,
        ),
        _coverage(report),
    )
    notes = (
        f"Before a failure is a firing that was over at most {number(report.horizon_h)} h before a "
        "job failed by that node. By chance: the share of any moments with such a firing.",
        *report.notes,
    )
    careful = "A check that fires all day covers everything: compare with the share by chance."
    wrong = [one.says for one in coverage_findings(report.checks)]
    return Section(
        *("checks", "Health checks", _checks_lead(report), (), tables, notes),
        careful=" ".join([*wrong, careful]) if report.checks else "",
    )


def coverage_findings(checks: Iterable[CheckRecord]) -> tuple[Finding, ...]:
    """Checks whose stated coverage does not agree with what came after they passed."""
    found = []
    for record in checks:
        one = record.history
        if one is None or one.agrees:
            continue
        whose = "The catalogue" if one.by_catalogue else "The first half of the logs"
        high = one.missed > one.expected_missed
        ratio = one.missed / one.expected_missed if one.expected_missed else None
        says = (
            f"THE COVERAGE OF {record.name} DOES NOT HOLD: {whose} says "
            f"{percent(one.stated_share)}, so that of "
            f"{by_number('{n} [defect|defects]', one.caught + one.missed)} "
            f"{number(one.expected_missed)} should have come without an alarm, and {one.missed} "
            "did. "
            + (
                "It finds less, or ran too rarely: what it is expected to save is too high."
                if high
                else "It finds more: what it is expected to save is too low."
            )
        )
        moved = Effect(("saving by checks",), TOO_HIGH if high else TOO_LOW, ratio)
        found.append(Finding("check-coverage", says, moved, one.caught + one.missed))
    return tuple(found)


def helped_section(found: HelpedReport) -> Section:
    """Whether one check helped."""
    effect = found.effect
    says = {
        "fewer": "fewer failures since it came",
        "more": "more failures since it came",
        "not decided": "not decided",
    }[found.verdict]
    lead = (
        f"{found.check} against {found.symptom}: {says}. Rate after over rate before, each node "
        f"with itself: {ratio_between(effect.rate_ratio)}."
    )
    table = TextTable(
        "Before and after the check came to a node",
        ("", "failures", "node-days"),
        (
            ("before", number(effect.failures_before), number(effect.node_days_before, 4)),
            ("after", number(effect.failures_after), number(effect.node_days_after, 4)),
        ),
        frozenset({1, 2}),
    )
    note = (
        f"{by_number('{n} [node|nodes]', effect.nodes)} ran jobs before and after. What changed "
        "for the whole fleet at the same time is part of the ratio."
    )
    return Section("helped", "Did the check help", lead, (), (table,), (note,))


def _checks_lead(report: ChecksReport) -> str:
    if not report.checks:
        return (
            "Not measured: the logs hold no result of a health check (`ettr sources` lists what "
            "can be read)."
        )
    best = max(report.checks, key=lambda one: _any(one)[1])
    failures, before = _any(best)
    if not before:
        blaming = by_number("{n} [failure that blames|failures that blame]", report.failures)
        return f"No check fired before any of {blaming} a node."
    return (
        f"{best.name} fired before {before} of {by_number('{n} [failure|failures]', failures)} "
        "that blame a node and that it watched: more than any other check."
    )


def _any(record: CheckRecord) -> tuple[int, int]:
    found = next((one for one in record.coverage if one.symptom == ANY), None)
    return (found.failures, found.fired_before) if found else (0, 0)


def _coverage(report: ChecksReport) -> TextTable:
    return TextTable(
        "Coverage",
        (
            *("check", "symptom", "failures", "fired before", "missed", "coverage"),
            *("by chance", "median lead"),
        ),
        tuple(
            (
                record.name,
                one.symptom,
                number(one.failures),
                number(one.fired_before),
                number(one.missed),
                share_between(one.coverage_share) if one.failures else DASH,
                percent(one.by_chance_share, 2),
                hours_between(one.lead_h) if one.fired_before else DASH,
            )
            for record in report.checks
            for one in record.coverage
            if one.fired_before or one.symptom == ANY
        ),
        frozenset(range(2, 8)),
    )


def advice_section(found: CheckAdvice, doubts: Iterable[Finding] = ()) -> Section:
    """Which checks to run before a job, and on which nodes, with what contradicts it."""
    return Section(
        "before",
        f"Before {found.nodes:,} nodes for {number(found.hours)} h",
        _advice_lead(found),
        (),
        (
            _to_run(found),
            table_of_rows(
                "Not worth it, or not known",
                found.not_run,
                ("check", lambda one: one.name),
                (">minutes", lambda one: NOT_KNOWN if one.minutes is None else number(one.minutes)),
                ("why", lambda one: one.why),
                in_brief=True,
            ),
        ),
        (
            f"The job is taken to get {found.node_list}: of the nodes in service those least "
            f"likely to be struck. An incident costs it {number(found.incident_h)} h on all nodes "
            "(--incident), as often as it is struck.",
            "The whole job waits for the checks; with --while-idle only the nodes checked do."
            if found.waits
            else "Only the nodes that are checked are held up.",
            *found.assumed,
            "Judge it by the useful share of the node time, not by the time between incidents: "
            "checking everything lengthens that, and may cost more than it saves.",
        ),
        careful=" ".join(one.says for one in doubts),
    )


def _advice_lead(found: CheckAdvice) -> str:
    if not found.run:
        return (
            "Nothing pays: no check that is known costs less than what it prevents. The job is "
            f"struck with a probability of {percent(found.struck_before)}."
        )
    checks = by_number("Run {n} [check|checks]", len(found.run))
    return (
        f"{checks}: {', '.join(one.name for one in found.run)}. The probability of being struck "
        f"falls from {percent(found.struck_before)} to {percent(found.struck_after)}, for "
        f"{number(found.checks_node_hours)} node-hours; expected saving beyond that "
        f"{number(found.saved_node_hours)} node-hours."
    )


def _to_run(found: CheckAdvice) -> TextTable:
    idle = {True: "yes", False: "no", None: NOT_KNOWN}
    return table_of_rows(
        "Run",
        found.run,
        ("check", lambda one: one.name),
        (">nodes", lambda one: number(one.nodes)),
        (">minutes", lambda one: number(one.minutes)),
        ("needs the node idle", lambda one: idle[one.needs_idle]),
        ("command", lambda one: one.command or NOT_KNOWN),
        ("on", lambda one: one.node_list),
    )
