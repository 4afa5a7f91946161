"""Sections as text for a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable

from ettr.report.section import Section, TextTable

WIDTH = 100
CELL_WIDTH = 48


def section_text(section: Section) -> str:
    """A section's lead, tables, notes and listings as lines of text."""
    parts = [f"{section.title}\n{'=' * len(section.title)}", wrapped(section.lead)]
    parts += [table_text(table) for table in section.tables if table.rows]
    parts += [wrapped(f"* {note}", "  ") for note in section.notes]
    parts += [f"{wrapped(listing.title)}\n\n{listing.text}" for listing in section.listings]
    return "\n\n".join(part for part in parts if part)


def joined(sections: Iterable[Section]) -> str:
    """Several sections, two blank lines apart."""
    return "\n\n\n".join(section_text(section) for section in sections)


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines of at most `WIDTH` columns, broken at spaces only."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def table_text(table: TextTable) -> str:
    """A table in columns; a cell of more than `CELL_WIDTH` characters takes several lines."""
    shown = table.rows[: table.shown_rows]
    grid = [[_lines(cell) for cell in row] for row in (table.headers, *shown)]
    widths = [max(_columns(line) for row in grid for line in row[i]) for i in range(len(grid[0]))]
    lines = [line for row in grid for line in _row_lines(row, widths, table.numeric)]
    lines.insert(max(map(len, grid[0])), "  ".join("-" * width for width in widths))
    if len(table.rows) > len(shown):
        left = len(table.rows) - len(shown)
        lines.append(f"... and {left:,} more row{'' if left == 1 else 's'}")
    return "\n".join([table.title, "", *lines] if table.title else lines)


def _lines(cell: str) -> list[str]:
    return textwrap.wrap(cell, CELL_WIDTH, break_on_hyphens=False) or [""]


def _row_lines(row: list[list[str]], widths: list[int], numeric: frozenset[int]) -> list[str]:
    height = max(map(len, row))
    padded = [lines + [""] * (height - len(lines)) for lines in row]
    return [
        "  ".join(
            _set(padded[i][line], width, i in numeric) for i, width in enumerate(widths)
        ).rstrip()
        for line in range(height)
    ]


def _columns(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _set(cell: str, width: int, right: bool) -> str:
    pad = " " * (width - _columns(cell))
    return pad + cell if right else cell + pad
