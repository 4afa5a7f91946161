"""A part of a report before it is rendered, its words, tables and figures; and as text."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

RowT = TypeVar("RowT")
Trace = dict[str, object]
Layout = dict[str, object]


GpuHours = tuple[int, tuple[float | None, ...]]
"""A column of a table that counts GPU-hours, by place, and its values unrounded, a row each."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text; columns that `numeric` names by place are set flush right.

    A table with a `slug` may be long: the page shows a part of it at a time, sorted and filtered.
    `lists_all` is the command that prints all of its rows, for paper, which gets the first ones.
    Of a section a terminal shows the tables `in_brief`, else the first, without `detail_columns`.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    shown_rows: int = 50
    slug: str = ""
    lists_all: str = ""
    gpu_hours: tuple[GpuHours, ...] = ()
    in_brief: bool = False
    detail_columns: tuple[str, ...] = ()


def table_of_rows(
    title: str, rows: Iterable[RowT], *columns: tuple[str, Callable[[RowT], str]], **more: Any
) -> TextTable:
    """A table with a row for each of `rows`.

    Args:
        columns: The heading of each, with `>` in front where it is set flush right, and the text of
            its cell.
        more: Further fields of the table.
    """
    return TextTable(
        title,
        tuple(heading.removeprefix(">") for heading, _ in columns),
        tuple(tuple(text(row) for _, text in columns) for row in rows),
        frozenset(at for at, (heading, _) in enumerate(columns) if heading.startswith(">")),
        **more,
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: Plotly traces and layout, and a caption that says what it shows.

    Texts in traces are plain; the renderer escapes them.
    """

    slug: str
    title: str
    caption: str
    traces: tuple[Trace, ...]
    layout: Layout = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be copied as they stand, such as rows of a configuration file."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """One section: a lead that gives the answer first, then the evidence.

    `gpu_hours` are the totals that the lead is about, each with what it counts. A terminal shows
    `answer` (of the lead the first sentence, where it is empty), `careful`, and of the notes those
    that were `asked` for.
    """

    slug: str
    title: str
    lead: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[TextTable, ...] = ()
    notes: tuple[str, ...] = ()
    listings: tuple[Listing, ...] = ()
    gpu_hours: tuple[tuple[str, float | None], ...] = ()
    answer: str = ""
    careful: str = ""
    asked: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether it has neither a figure nor a row: one line says it all."""
        return not self.figures and not any(one.rows for one in self.tables)


# -- sections as text for a terminal -------------------------------------------------------------

WIDTH = 100
"""Columns of running text at most: longer lines are hard to read."""
LEAST_CELL_WIDTH = 16
BRIEF_ROWS = 10
LONGEST_ABOUT = 200
_BOUND = r"(?:[<>] )?(?:[-+\d.,e]+|[-+]?∞)(?: [^\W\d]+){0,2}"
_INTERVAL = re.compile(rf"(?<=[\w%]) \[{_BOUND}, {_BOUND}(?:; [^\]]*)?\]| \(\d+ % interval\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-z])")
_GAP = "  "


def screen_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def brief_text(sections: Sequence[Section], about: str = "", careful: str = "") -> str:
    """The answer in one line, its table, and one line of what to be careful with.

    Args:
        sections: Of one question; those after the first are for `--detail`.
        careful: What the reader must know of the selection; replaces the section's own.
    """
    first = sections[0]
    answer = without_intervals(first.answer or first_sentence(first.lead))
    tables = [table for table in first.tables if table.rows]
    shown = [table for table in tables if table.in_brief] or tables[:1]
    careful = careful or first.careful
    about = textwrap.shorten(about, LONGEST_ABOUT, placeholder=" ...")
    parts = [f"{answer}\n{about}".strip(), *(table_text(_brief(table)) for table in shown)]
    parts += ["\n".join(first.asked)] if first.asked else []
    last = [f"Careful: {without_intervals(careful)}"] if careful else []
    last.append("--detail shows intervals, the other tables and all notes.")
    return "\n\n".join([*parts, "\n".join(last)])


def without_intervals(text: str) -> str:
    """Text without the intervals of its numbers: 618 [322, 1,078] becomes 618."""
    return _INTERVAL.sub("", text)


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0]


def _brief(table: TextTable) -> TextTable:
    kept = [at for at, name in enumerate(table.headers) if name not in table.detail_columns]
    return replace(
        table,
        title="",
        headers=tuple(table.headers[at] for at in kept),
        rows=tuple(tuple(without_intervals(row[at]) for at in kept) for row in table.rows),
        numeric=frozenset(new for new, at in enumerate(kept) if at in table.numeric),
        shown_rows=BRIEF_ROWS,
        lists_all=table.lists_all and "--detail",
        gpu_hours=(),
    )


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
    """Text in lines of at most `WIDTH` columns or the terminal's, broken at spaces only."""
    width = min(WIDTH, max(screen_width() or WIDTH, LEAST_CELL_WIDTH))
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


def table_text(table: TextTable, width: int | None = None) -> str:
    """A table in columns; where it is wider than `width`, long cells of words take several lines.

    Nothing is cut: numbers stay on one line, and a row stays on one line in a pipe or a file.

    Args:
        width: Columns to fit it into; those of the terminal by default, without limit in a pipe.
    """
    shown = table.rows[: table.shown_rows]
    rows = [[" ".join(cell.splitlines()) for cell in row] for row in (table.headers, *shown)]
    natural = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    widths = _fitted(natural, table.numeric, width or screen_width())
    grid = [
        [_lines(cell, at_most) for cell, at_most in zip(row, widths, strict=True)] for row in rows
    ]
    widths = [max(_columns(line) for row in grid for line in row[i]) for i in range(len(widths))]
    lines = [line for row in grid for line in _row_lines(row, widths, table.numeric)]
    lines.insert(max(map(len, grid[0])), _GAP.join("-" * one for one in widths))
    if len(table.rows) > len(shown):
        left = len(table.rows) - len(shown)
        lines.append(f"... and {left:,} more row{'' if left == 1 else 's'}; {_where_all(table)}")
    return "\n".join([table.title, "", *lines] if table.title else lines)


def _where_all(table: TextTable) -> str:
    """How to see the rows that a terminal is spared."""
    return f"`{table.lists_all}` lists all" if table.lists_all else "--json has all"


def _fitted(natural: Sequence[int], numeric: frozenset[int], width: int | None) -> list[int]:
    """Widths of columns that fit: the widest columns of words are narrowed first."""
    widths = list(natural)
    words = [i for i, one in enumerate(widths) if i not in numeric and one > LEAST_CELL_WIDTH]
    if width is None or not words:
        return widths
    left = width - len(_GAP) * (len(widths) - 1) - sum(widths)
    while left < 0:
        widest = max(words, key=lambda i: widths[i])
        if widths[widest] <= LEAST_CELL_WIDTH:
            break
        widths[widest] -= 1
        left += 1
    return widths


def _lines(cell: str, width: int) -> list[str]:
    if _columns(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, max(width, 1), break_on_hyphens=False) or [""]


def _row_lines(row: list[list[str]], widths: list[int], numeric: frozenset[int]) -> list[str]:
    height = max(map(len, row))
    padded = [lines + [""] * (height - len(lines)) for lines in row]
    return [
        _GAP.join(
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
