"""How well failures are explained: which symptoms come together, how often the window errs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ettr.analysis import failure_questions
from ettr.analysis.causes import WITHOUT_JOBS, CauseSummary, causes
from ettr.analysis.evidence import EvidenceCoverage, evidence_coverage
from ettr.attribution.background import CoOccurrences, FalseAttribution, FalseFailuresBySize
from ettr.metrics.availability import LogsRead
from ettr.metrics.rates import RatesWithoutFalse
from ettr.report.charts import BarSeries, heat_map, row_chart
from ettr.report.findings import with_and_without
from ettr.report.numbers import DASH, between, number, percent, share_between
from ettr.report.registry import NO_JOBS, Part
from ettr.report.section import Figure, Section, TextTable, table_of_rows
from ettr.taxonomy import VENDORS
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis import Analysis


_TITLE = "How sure the causes are"
_NOT_MEASURED = (
    "Not measured: the logs hold no kernel messages, health checks or node states. "
    "Failures have no cause beyond what the scheduler says, so no cause can be wrong."
)


def attribution_section(
    together: CoOccurrences,
    chance: FalseAttribution,
    logs: LogsRead,
    false: FalseFailuresBySize,
    without_false: RatesWithoutFalse | None,
    evidence: EvidenceCoverage,
) -> Section:
    """Co-occurrence of symptoms and the rate of false attribution.

    Without any log of nodes neither was measured, which `logs` shows.
    """
    if not logs.errors and not logs.node_states:
        return Section("attribution", _TITLE, _NOT_MEASURED)
    tables = (
        table_of_rows(
            "Critical symptoms near the end of completed attempts",
            chance.by_symptom,
            ("symptom", lambda one: one.symptom),
            (">attempts", lambda one: number(one.n_attempts)),
            (">share", lambda one: share_between(one.share)),
        ),
        table_of_rows(
            "Symptoms seen in the same failure",
            together.pairs,
            ("symptom", lambda pair: pair.symptom),
            (">failures with it", lambda pair: number(pair.n_symptom)),
            ("also seen", lambda pair: pair.other),
            (">in both", lambda pair: number(pair.n_both)),
            (">share", lambda pair: share_between(pair.share)),
        ),
        table_of_rows(
            "Was evidence arriving? Node-days by kind of log",
            evidence.kinds,
            ("kind", lambda kind: kind.kind),
            (">node-days", lambda kind: number(kind.node_days)),
            (">heard", lambda kind: number(kind.heard_node_days)),
            (">silent", lambda kind: number(kind.silent_node_days)),
            (">uncovered", lambda kind: number(kind.uncovered_node_days)),
            (">nodes never heard", lambda kind: number(kind.nodes_never_heard)),
            ("such as", lambda kind: ", ".join(kind.nodes_never_heard_first[:3]) or DASH),
        ),
    )
    figures = (_co_occurrence(together),) if together.pairs else ()
    notes = (
        "Critical events on a failure's nodes within the window around its end explain it; "
        "repeated events count as one episode. A failure without such an event is “unattributed”.",
        *_no_error_found(evidence),
    )
    return Section(
        "attribution", _TITLE, _lead(together, chance, false, without_false), figures, tables, notes
    )


def _no_error_found(evidence: EvidenceCoverage) -> Iterator[str]:
    """What "no error found" rests on, for failures and for attempts that ended FAILED."""
    for found, one, several, verb in (
        (evidence.unattributed, "failure", "failures", "no error was found"),
        (
            evidence.failed,
            "attempt that ended FAILED",
            "attempts that ended FAILED",
            "no error was found, so none counts as a failure",
        ),
    ):
        if found.total:
            yield (
                f"For {counted(found.total, one, several)} {verb}: {found.heard:,} while every "
                f"node of theirs sent logs that day or the day before, {found.deaf:,} likewise, by "
                f"logs that never hold a line of the GPUs' driver, {found.silent:,} while some of "
                f"the nodes sent none and others of the cluster did, {found.uncovered:,} while no "
                "evidence arrived and none could be found."
            )
    yield (
        "A node counts as heard on a day with any row from it, passed checks included. A "
        "silent node is well, or its log is missing. Uncovered is time without a row "
        "from the whole cluster, longer than chance explains."
    )


def _lead(
    together: CoOccurrences,
    chance: FalseAttribution,
    false: FalseFailuresBySize,
    without_false: RatesWithoutFalse | None,
) -> str:
    if chance.n_completed:
        lead = (
            "How often the window blames hardware by chance: of "
            f"{counted(chance.n_completed, 'completed attempt')}, {chance.n_touched:,} had a "
            f"critical event in it, {share_between(chance.share)}. Published: {chance.published}."
        )
    else:
        lead = (
            "No attempt on known nodes completed, so how often the window blames hardware by "
            "chance is unknown."
        )
    if chance.n_on_evidence:
        lead += (
            f"{counted(chance.n_on_evidence, 'failure')} have no other evidence than such "
            f"events; {between(false.all_jobs.expected_false)} of them are expected to be "
            f"false, since {counted(false.background.episodes, 'critical episode')} in "
            f"{number(false.background.node_hours, 4)} node-hours ended nothing."
        )
        corrected = with_and_without(without_false)
        lead += f" {corrected}" if corrected else ""
    if together.n_failures:
        lead += (
            f" Of {counted(together.n_failures, 'explained failure')}, {together.n_several:,} "
            f"({share_between(together.several)}) show more than one symptom."
        )
    return lead


def _co_occurrence(together: CoOccurrences) -> Figure:
    names = sorted({pair.symptom for pair in together.pairs} | {p.other for p in together.pairs})
    shares = {(pair.symptom, pair.other): pair.share.estimate for pair in together.pairs}
    grid = [[shares.get((left, other)) for other in names] for left in names]
    hover = [
        [
            "" if share is None else f"{percent(share)} of {left} also show {other}"
            for other, share in zip(names, row, strict=True)
        ]
        for left, row in zip(names, grid, strict=True)
    ]
    return heat_map(
        "co-occurrence",
        "Symptoms seen in the same failure",
        "Of the failures with the symptom on the left, the share that also showed the other.",
        names,
        grid,
        hover,
    )


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    if not analysis.logs_read.jobs:
        return (Section("attribution", _TITLE, NO_JOBS),)
    return (
        attribution_section(
            analysis.co_occurrence,
            analysis.false_attribution,
            analysis.logs_read,
            analysis.false_failures,
            analysis.rates_without_false,
            analysis.evidence,
        ),
    )


ATTRIBUTION: Part[None] = Part(
    "attribution",
    place=100,
    in_python=False,
    sections=_sections,
    joined={
        "co_occurrence": failure_questions.co_occurrence,
        "false_attribution": failure_questions.false_attribution,
        "false_failures": failure_questions.false_failures,
        "evidence": evidence_coverage,
    },
)


# -- causes of interruptions: totals of their probabilities, and the catalogue behind them ---------


NAMES = {
    "node_hardware": "hardware of a node",
    "shared": "shared network or storage",
    "system_software": "system software",
    "user_program": "the user's program",
    "operator": "an operator",
    "unknown": "unknown",
}


TITLE = "Causes of interruptions"


def causes_section(found: CauseSummary | None) -> Section:
    """The likeliest cause in a sentence, and all totals; None is left to the command."""
    if found is None:
        lead = "Too many interruptions for a report: `ettr causes STORE` weighs them."
        return Section("causes", TITLE, lead)
    if found.interruptions is None:
        return Section("causes", TITLE, WITHOUT_JOBS)
    figures = (_figure(found),) if found.interruptions else ()
    lead = _causes_lead(found, found.interruptions, found.preemptions or 0)
    careful = "A share is a sum of probabilities; --detail shows how far those can be off."
    table = _totals(found)
    return Section(
        "causes",
        TITLE,
        lead,
        figures,
        (table,),
        found.notes,
        answer=_answer(found),
        careful=careful,
    )


def _answer(found: CauseSummary) -> str:
    if not found.interruptions:
        return ""
    ranked = sorted(found.totals, key=lambda one: -one.expected)
    shares = ", ".join(f"{NAMES[one.cause]} {percent(one.share.estimate, 2)}" for one in ranked[:3])
    shares = shares[:1].upper() + shares[1:]
    return f"{shares} of {by_number('{n} [interruption|interruptions]', found.interruptions)}."


def _figure(found: CauseSummary) -> Figure:
    values = [one.expected for one in found.totals]
    return row_chart(
        "causes",
        "Interruptions by cause",
        "Expected numbers: sums of the probabilities.",
        [NAMES[one.cause] for one in found.totals],
        [BarSeries("interruptions", values, [number(value, 4) for value in values])],
        axis_title="interruptions expected",
    )


def _causes_lead(found: CauseSummary, interruptions: int, preemptions: int) -> str:
    if not interruptions:
        return "No attempt was interrupted."
    first = max(found.totals, key=lambda one: one.expected)
    some = by_number("{n} [interruption|interruptions]", interruptions)
    left_out = by_number("{n} [preemption is|preemptions are] left out", preemptions)
    return (
        f"{percent(first.share.estimate, 2)} of {some} are due to {NAMES[first.cause]}, "
        f"more than to any other cause; {left_out}."
    )


def _totals(found: CauseSummary) -> TextTable:
    compared = any(one.by_default is not None for one in found.totals)
    return TextTable(
        "Interruptions by cause",
        (
            *("cause", "expected", "share", "interval", "likeliest of"),
            *(("catalogue as shipped", "change") if compared else ()),
        ),
        tuple(
            (
                *(NAMES[one.cause], number(one.expected, 4), percent(one.share.estimate, 3)),
                f"{percent(one.share.low, 3)} to {percent(one.share.high, 3)}",
                number(one.likeliest),
                *(
                    ()
                    if one.by_default is None
                    else (number(one.by_default, 4), f"{one.expected - one.by_default:+.1f}")
                ),
            )
            for one in found.totals
        ),
        frozenset(range(1, 7)),
    )


CAUSES = Part(
    "causes",
    place=60,
    question=causes,
    section=causes_section,
    main="totals",
    title=TITLE,
)


# -- The XID catalogue as a table -----------------------------------------------------------------


def catalog_table(rows: Iterable[Mapping[str, object]]) -> TextTable:
    """One row a code: its symptom, and whether each vendor calls it a fault of the node."""
    return TextTable(
        "XID codes: is it a fault of the node? (yes, no, – no statement)",
        ("xid", "symptom", "domain", "verdict", *VENDORS, "conflict", "description"),
        tuple(
            (
                str(row["xid"]),
                _text(row["symptom"]),
                _text(row["domain"]),
                _catalog_answer(row["node_fault"]),
                *(_catalog_answer(row.get(f"{vendor}_node_fault")) for vendor in VENDORS),
                "conflict" if row["conflict"] else "",
                _text(row["description"] or row["mnemonic"]),
            )
            for row in rows
        ),
        frozenset({0}),
        shown_rows=1000,
    )


def _text(value: object) -> str:
    return str(value) if value else DASH


def _catalog_answer(is_fault: object) -> str:
    if is_fault is None:
        return DASH
    return "yes" if is_fault else "no"
