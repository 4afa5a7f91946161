"""Arrow tables as data frames of libraries that ettr does not bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from ettr.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """The table as a pandas data frame. Raises UsageError: pandas is not installed."""
    try:
        import pandas  # noqa: F401 - Arrow's own complaint names an internal
    except ModuleNotFoundError:
        raise UsageError(
            "pandas is not installed: `pip install pandas`, or use to_pyarrow or to_polars"
        ) from None
    return cast("pd.DataFrame", table.to_pandas())


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """The table as a polars data frame. Raises UsageError: polars is not installed."""
    try:
        import polars
    except ModuleNotFoundError:
        raise UsageError(
            "polars is not installed: `pip install polars`, or use to_pandas or to_pyarrow"
        ) from None
    made = polars.from_arrow(table)
    return made if isinstance(made, polars.DataFrame) else made.to_frame()


# -- The part of Arrow and Plotly that results hand out, as types ---------------------------------
#
# These libraries ship no types, so that a checker would take whatever comes from them as `Any`.
# At run time the objects are the libraries' own, with all their methods.


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
