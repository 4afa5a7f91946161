"""Causes of interruptions: totals of their probabilities, and the catalogue behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ettr.analysis.causes import WITHOUT_JOBS, CauseSummary, causes
from ettr.report.charts import BarSeries, row_chart
from ettr.report.numbers import DASH, number, percent
from ettr.report.registry import Part
from ettr.report.section import Figure, Section, TextTable
from ettr.words import by_number

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
    lead = _lead(found, found.interruptions, found.preemptions or 0)
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


def _lead(found: CauseSummary, interruptions: int, preemptions: int) -> str:
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

_VENDORS = ("nvidia", "gpud", "gcm", "aws", "aznhc")


def catalog_table(rows: Iterable[Mapping[str, object]]) -> TextTable:
    """One row a code: its symptom, and whether each vendor calls it a fault of the node."""
    return TextTable(
        "XID codes: is it a fault of the node? (yes, no, – no statement)",
        ("xid", "symptom", "domain", "verdict", *_VENDORS, "conflict", "description"),
        tuple(
            (
                str(row["xid"]),
                _text(row["symptom"]),
                _text(row["domain"]),
                _catalog_answer(row["node_fault"]),
                *(_catalog_answer(row.get(f"{vendor}_node_fault")) for vendor in _VENDORS),
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
