"""Rows of a table or of a statement, as the front door hands them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from ettr.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ettr.facts.files import FactEngine


_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Rows of a fleet, fetched each time they are asked for; `len` counts them where they are.

    Iterated, they are dictionaries; null is None. Printed, they are the first ten.
    """

    columns: tuple[str, ...]
    _engine: FactEngine
    _sql: str

    def to_pyarrow(self) -> ArrowTable:
        """The rows as an Arrow table.

        Raises:
            UsageError: the engine cannot answer the statement, as a text that is no number.
        """
        return cast("ArrowTable", self._arrow(self._sql))

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas data frame. Raises UsageError: pandas is not installed."""
        return pandas_frame(self._arrow(self._sql))

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars data frame. Raises UsageError: polars is not installed."""
        return polars_frame(self._arrow(self._sql))

    def to_rows(self) -> list[dict[str, object]]:
        """The rows as dictionaries."""
        rows: list[dict[str, object]] = self._arrow(self._sql).to_pylist()
        return rows

    def __iter__(self) -> Iterator[dict[str, object]]:
        for batch in self._arrow(self._sql).to_batches():
            yield from batch.to_pylist()

    def __len__(self) -> int:
        (row,) = self._engine.rows(self._wrapped("SELECT count(*) AS n"), {})
        return int(row["n"])

    def __repr__(self) -> str:
        """The first rows, and how many there are."""
        from ettr.report.section import TextTable, table_text
        from ettr.words import harmless

        first = self._arrow(self._wrapped("SELECT *", _SHOWN)).to_pylist()
        cells = tuple(
            tuple("" if value is None else str(value) for value in row.values()) for row in first
        )
        numeric = frozenset(
            place
            for place, name in enumerate(self.columns)
            if any(isinstance(row[name], int | float) for row in first)
        )
        text = table_text(TextTable("", self.columns, cells, numeric, _SHOWN))
        n_rows = len(self)
        return harmless(f"{text}\n{n_rows:,} row{'' if n_rows == 1 else 's'}")

    def _wrapped(self, select: str, most: int | None = None) -> str:
        """A SELECT of what is selected."""
        limit = "" if most is None else f" LIMIT {most}"
        return f"{select} FROM ({self._sql}\n) found{limit}"

    def _arrow(self, sql: str) -> pa.Table:
        """Rows of a statement; whole numbers as integers, of which the engine sums wider ones."""
        import duckdb
        import pyarrow as pa

        try:
            found = self._engine.arrow(sql, {})
        except duckdb.Error as error:
            raise UsageError(f"DuckDB: {error}") from error
        for place, field in enumerate(found.schema):
            if pa.types.is_decimal(field.type) and field.type.scale == 0:
                column = found.column(place)
                try:
                    whole = column.cast(pa.int64())
                except pa.ArrowInvalid:
                    whole = column.cast(pa.float64())
                found = found.set_column(place, field.name, whole)
        return found


def rows_of(engine: FactEngine, sql: str) -> Rows:
    """Rows of a SELECT of names in the engine, checked but not fetched."""
    select = sql.strip().rstrip(";")
    names = engine.names(Rows((), engine, select)._wrapped("SELECT *", 0))
    return Rows(tuple(names), engine, select)


# -- Arrow tables as data frames of libraries that ettr does not bring ----------------------------


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
