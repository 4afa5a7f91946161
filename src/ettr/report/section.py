"""A part of a report before it is rendered: words, tables and figures, whatever shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Trace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; columns that `numeric` names by place are set flush right."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    shown_rows: int = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart: Plotly traces and layout, and one sentence that says what it shows.

    Texts in traces are plain; the renderer escapes them.
    """

    slug: str
    title: str
    says: str
    traces: tuple[Trace, ...]
    layout: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """One section: a lead that gives the answer first, then the evidence."""

    slug: str
    title: str
    lead: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
