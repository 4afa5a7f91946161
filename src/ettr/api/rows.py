"""Rows of a table or of a statement, as the front door hands them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ettr.api.frames import pandas_frame, polars_frame
from ettr.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ettr.api.frames import ArrowTable
    from ettr.facts.duck import Duck

_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Rows of a fleet, fetched each time they are asked for; `len` counts them where they are.

    Iterated, they are dictionaries; null is None. Printed, they are the first ten.
    """

    columns: tuple[str, ...]
    _engine: Duck
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
        from ettr.report.characters import harmless
        from ettr.report.section import TextTable
        from ettr.report.text import table_text

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


def rows_of(engine: Duck, sql: str) -> Rows:
    """Rows of a SELECT of names in the engine, checked but not fetched."""
    select = sql.strip().rstrip(";")
    found = engine.run(Rows((), engine, select)._wrapped("SELECT *", 0))
    return Rows(tuple(column[0] for column in found.description or ()), engine, select)
