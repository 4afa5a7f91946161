"""The XID catalogue as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ettr.report.numbers import DASH
from ettr.report.section import Table

_VENDORS = ("nvidia", "gpud", "gcm", "aws", "aznhc")


def catalog_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row a code: symptom, and whether each vendor takes it for a fault of the node."""
    return Table(
        "XID codes: is it a fault of the node? (yes, no, – not said)",
        ("xid", "symptom", "domain", "verdict", *_VENDORS, "conflict", "description"),
        tuple(
            (
                str(row["xid"]),
                row["symptom"] or DASH,
                row["domain"] or DASH,
                _answer(row["node_fault"]),
                *(_answer(row.get(f"{vendor}_node_fault")) for vendor in _VENDORS),
                "conflict" if row["conflict"] else "",
                row["description"] or row["mnemonic"] or DASH,
            )
            for row in rows
        ),
        frozenset({0}),
        shown_rows=1000,
    )


def _answer(says: bool | None) -> str:
    return DASH if says is None else "yes" if says else "no"
