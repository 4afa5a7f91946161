"""A result of the front door: the value, its rows as data frames, its figures, and its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ettr.api.rows import pandas_frame, polars_frame
from ettr.errors import UsageError
from ettr.report.rows import FlatRows, JsonValue, lists_of, rows_of, rows_with_costs
from ettr.report.section import Section

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from _typeshed import DataclassInstance

    from ettr.api.rows import ArrowTable, PlotlyFigure
    from ettr.plan.cost import Price

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Result(Generic[ValueT]):
    """One result, as the report has it.

    Attributes:
        value: The frozen dataclass with every number.
        main: Name of the list that `to_pandas` and the like return by default; empty for the value
            itself as one row.
    """

    value: ValueT
    main: str
    _document: Callable[[], JsonValue]
    _sections: Callable[[], tuple[Section, ...]]
    _price: Price | None = None

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the lists in the value, each of which can be had as a data frame."""
        return tuple(lists_of(type(self.value)))

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that the report has of it."""
        return tuple(figure.slug for section in self._sections() for figure in section.figures)

    def to_dict(self) -> dict[str, JsonValue]:
        """The value as the JSON of the report has it; what the logs do not bear is None."""
        document = self._document()
        return document if isinstance(document, dict) else {}

    def to_pyarrow(self, rows: str | None = None) -> ArrowTable:
        """A list of the result as an Arrow table, one column a number; empty for no result.

        Args:
            rows: Which of `lists`; the main one where None.

        Raises:
            UsageError: there is no such list.
        """
        return cast("ArrowTable", self._rows(rows).to_arrow())

    def to_pandas(self, rows: str | None = None) -> pd.DataFrame:
        """The same as a pandas data frame.

        Raises:
            UsageError: pandas is not installed, or there is no such list.
        """
        return pandas_frame(self._rows(rows).to_arrow())

    def to_polars(self, rows: str | None = None) -> pl.DataFrame:
        """The same as a polars data frame.

        Raises:
            UsageError: polars is not installed, or there is no such list.
        """
        return polars_frame(self._rows(rows).to_arrow())

    def plot(self, figure: str | None = None) -> PlotlyFigure:
        """A figure as the report draws it.

        Args:
            figure: Which of `figures`; the first where None.

        Raises:
            UsageError: there is no such figure.
        """
        from ettr.report.html import plotly_figure

        drawn = [one for section in self._sections() for one in section.figures]
        chosen = [one for one in drawn if figure in {None, one.slug}]
        if not chosen:
            there = ", ".join(one.slug for one in drawn)
            raise UsageError(
                f"no figure named {figure!r}; there are: {there}"
                if drawn
                else "the report draws no figure of this result; use to_pandas"
            )
        return cast("PlotlyFigure", plotly_figure(chosen[0]))

    def __str__(self) -> str:
        """The text that the command prints."""
        from ettr.report.section import joined
        from ettr.words import harmless

        return harmless(joined(self._sections()))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ettr.report.html import sections_html

        return sections_html(self._sections())

    def _rows(self, name: str | None) -> FlatRows:
        if self.value is None:
            return FlatRows((), ())
        wanted = self.main if name is None else name
        if wanted and wanted not in self.lists:
            raise UsageError(
                f"no list named {wanted!r}; there are: {', '.join(self.lists) or 'none'}"
            )
        rows = rows_of(cast("DataclassInstance", self.value), self._document(), wanted)
        return rows_with_costs(rows, self._price)
