"""The part of Ibis, Arrow and Plotly that results hand out, as types.

These libraries ship no types, so that a checker would take whatever comes from them as `Any`. At
run time the objects are the libraries' own, with all their methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


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


class IbisColumn(Protocol):
    """A column of an Ibis table, or an expression of columns."""

    def __eq__(self, other: object) -> IbisColumn:  # type: ignore[override]
        """Where it equals a value."""

    def __ne__(self, other: object) -> IbisColumn:  # type: ignore[override]
        """Where it differs from a value."""

    def __hash__(self) -> int:
        """Its hash: two expressions that are written alike have one."""

    def __lt__(self, other: object) -> IbisColumn:
        """Where it is less than a value."""

    def __le__(self, other: object) -> IbisColumn:
        """Where it is at most a value."""

    def __gt__(self, other: object) -> IbisColumn:
        """Where it is greater than a value."""

    def __ge__(self, other: object) -> IbisColumn:
        """Where it is at least a value."""

    def __and__(self, other: object) -> IbisColumn:
        """Where both hold."""

    def __or__(self, other: object) -> IbisColumn:
        """Where either holds."""

    def __invert__(self) -> IbisColumn:
        """Where it does not hold."""

    def __add__(self, other: object) -> IbisColumn:
        """The sum."""

    def __sub__(self, other: object) -> IbisColumn:
        """The difference."""

    def __mul__(self, other: object) -> IbisColumn:
        """The product."""

    def __truediv__(self, other: object) -> IbisColumn:
        """The quotient."""

    def isin(self, values: Sequence[object]) -> IbisColumn:
        """Where it is one of these values."""

    def isnull(self) -> IbisColumn:
        """Where it is null."""

    def notnull(self) -> IbisColumn:
        """Where it is not null."""

    def sum(self) -> IbisColumn:
        """Its sum."""

    def mean(self) -> IbisColumn:
        """Its mean."""

    def min(self) -> IbisColumn:
        """Its smallest value."""

    def max(self) -> IbisColumn:
        """Its greatest value."""

    def nunique(self) -> IbisColumn:
        """Its number of distinct values."""

    def name(self, name: str) -> IbisColumn:
        """The same under another name."""

    def execute(self) -> object:
        """Its value, where it is one, such as a count; else a pandas series."""

    def to_pandas(self) -> object:
        """The same as `execute`."""


class IbisGroups(Protocol):
    """A grouped Ibis table."""

    def aggregate(self, *metrics: IbisColumn, **named: IbisColumn) -> IbisTable:
        """One row a group."""

    def count(self) -> IbisTable:
        """Rows of each group."""


class IbisTable(Protocol):
    """An `ibis.Table`: an expression, computed by `to_pandas`, `to_polars` or `to_pyarrow`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    def __getitem__(self, column: str) -> IbisColumn:
        """A column."""

    def filter(self, *predicates: IbisColumn) -> IbisTable:
        """The rows where all predicates hold."""

    def select(self, *columns: str | IbisColumn, **named: IbisColumn) -> IbisTable:
        """These columns."""

    def mutate(self, **named: IbisColumn) -> IbisTable:
        """The table with further columns."""

    def order_by(self, *columns: str | IbisColumn) -> IbisTable:
        """The rows in order."""

    def limit(self, n: int) -> IbisTable:
        """The first rows."""

    def distinct(self) -> IbisTable:
        """The rows without repetitions."""

    def group_by(self, *columns: str | IbisColumn) -> IbisGroups:
        """The table grouped."""

    def aggregate(self, *metrics: IbisColumn, **named: IbisColumn) -> IbisTable:
        """One row of sums."""

    def count(self) -> IbisColumn:
        """Number of rows."""

    def join(self, right: IbisTable, on: str | Sequence[str], how: str = "inner") -> IbisTable:
        """The table joined with another."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas data frame."""

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars data frame."""

    def to_pyarrow(self) -> ArrowTable:
        """The rows as an Arrow table."""


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
