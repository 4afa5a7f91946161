"""The part of Arrow and Plotly that results hand out, as types.

These libraries ship no types, so that a checker would take whatever comes from them as `Any`. At
run time the objects are the libraries' own, with all their methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd


class ArrowTable(Protocol):
    """A `pyarrow.Table`."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""

    def to_pylist(self) -> list[dict[str, object]]:
        """The rows as dictionaries."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas data frame."""


class PlotlyFigure(Protocol):
    """A `plotly.graph_objects.Figure`."""

    def show(self) -> None:
        """Show it in the notebook or the browser."""

    def update_layout(self, **changes: object) -> PlotlyFigure:
        """Change its layout; see Plotly's reference."""

    def to_json(self) -> str:
        """Traces and layout as JSON."""

    def write_html(self, file: str) -> None:
        """Write it as one HTML file."""
