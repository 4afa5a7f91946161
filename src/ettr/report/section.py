"""A part of a report before it is rendered: words, tables and figures for a page or a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    `answer` (of the lead the first sentence, where it is empty) and `careful`.
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

    @property
    def is_quiet(self) -> bool:
        """Whether it has neither a figure nor a row: one line says it all."""
        return not self.figures and not any(one.rows for one in self.tables)
