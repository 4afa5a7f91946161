"""Sections as text for a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable

from ettr.report.section import Section, Table

WIDTH = 100
CELL_WIDTH = 48


def section_text(section: Section) -> str:
    """A section's lead, tables and notes as lines of text."""
    parts = [f"{section.title}\n{'=' * len(section.title)}", wrapped(section.lead)]
    parts += [table_text(table) for table in section.tables if table.rows]
    parts += [wrapped(f"* {note}", "  ") for note in section.notes]
    return "\n\n".join(part for part in parts if part)


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines of at most `WIDTH` columns."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent)


def table_text(table: Table) -> str:
    """A table in columns of equal width, long cells cut."""
    shown = table.rows[: table.shown_rows]
    cells = [[_cut(cell) for cell in row] for row in (table.headers, *shown)]
    widths = [max(_columns(row[i]) for row in cells) for i in range(len(table.headers))]
    lines = [
        "  ".join(
            _set(cell, width, i in table.numeric)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if len(table.rows) > len(shown):
        lines.append(f"... and {len(table.rows) - len(shown):,} more rows")
    return "\n".join([table.title, "", *lines] if table.title else lines)


def _cut(cell: str) -> str:
    flat = " ".join(cell.split())
    return flat if len(flat) <= CELL_WIDTH else flat[: CELL_WIDTH - 1] + "…"


def _columns(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _set(cell: str, width: int, right: bool) -> str:
    pad = " " * (width - _columns(cell))
    return pad + cell if right else cell + pad


def joined(sections: Iterable[Section]) -> str:
    """Several sections, two blank lines apart."""
    return "\n\n\n".join(section_text(section) for section in sections)
