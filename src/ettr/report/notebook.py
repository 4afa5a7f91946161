"""Sections of a report in a notebook: as HTML without a script, and their figures as Plotly's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ettr.report.charts import INK
from ettr.report.html import Card, environment, escaped
from ettr.report.section import Figure, Section

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROWS_SHOWN = 50
_TEMPLATE = "plotly_white"
_INK = "#2a3f5f"  # the text of that template


def sections_html(sections: Sequence[Section]) -> str:
    """Leads, tables and notes of sections; whatever came from a log is escaped."""
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(sections=sections, rows_shown=ROWS_SHOWN)
    )


def cards_html(title: str, caution: str | None, cards: Sequence[Card]) -> str:
    """The key numbers of a report, and what must be read before them."""
    return (
        environment()
        .get_template("notebook_cards.html.j2")
        .render(title=title, caution=caution, cards=cards)
    )


def plotly_figure(figure: Figure) -> go.Figure:
    """A figure of the report as Plotly's own object, with its title over it."""
    import plotly.graph_objects as go

    made = go.Figure(
        {"data": [_inked(escaped(trace)) for trace in figure.traces], "layout": figure.layout}
    )
    made.update_layout(escaped(figure.layout), template=_TEMPLATE)
    made.update_layout(title={"text": str(escaped(figure.title, is_text=True))})
    return made


def _inked(trace: object) -> object:
    """The trace with the colour of the text, which the page puts in by its theme."""
    if isinstance(trace, dict):
        return {key: _inked(value) for key, value in trace.items()}
    return _INK if trace == INK else trace
