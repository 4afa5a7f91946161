"""The XID catalogue as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ettr.report.numbers import DASH
from ettr.report.section import TextTable

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
                _answer(row["node_fault"]),
                *(_answer(row.get(f"{vendor}_node_fault")) for vendor in _VENDORS),
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


def _answer(is_fault: object) -> str:
    if is_fault is None:
        return DASH
    return "yes" if is_fault else "no"
