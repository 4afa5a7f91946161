"""DuckDB as the engine of facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ettr.facts.files import Columns, Rows
from ettr.store.computing import with_arrow

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Duck:
    """Statements on one connection of DuckDB, whose facts are temporary tables and views."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def run(self, sql: str, bound: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run one statement."""
        return self.connection.execute(sql, dict(bound) if bound else None)

    def create(self, name: str, sql: str, bound: Mapping[str, Any], *, view: bool) -> None:
        """Keep what a statement selects, as a table or as a view."""
        if view and bound:
            raise ValueError(f"{name} is a view, which binds nothing: {', '.join(bound)}")
        self.run(f"CREATE TEMP {'VIEW' if view else 'TABLE'} {name} AS {sql}", bound)

    def put(self, name: str, columns: Sequence[tuple[str, str]], rows: Rows) -> None:
        """Keep few rows that were made elsewhere."""
        if not rows:
            typed = ", ".join(f'"{column}" {kind}' for column, kind in columns)
            self.run(f"CREATE TEMP TABLE {name} ({typed})")
            return
        # a statement with thousands of marks takes DuckDB a hundred times as long
        given = {
            column: _objects(values)
            for (column, _), values in zip(columns, zip(*rows, strict=True), strict=True)
        }
        cast = ", ".join(f'CAST("{column}" AS {kind}) AS "{column}"' for column, kind in columns)
        self.connection.register("given_rows", given)
        self.run(f"CREATE TEMP TABLE {name} AS SELECT {cast} FROM given_rows")
        self.connection.unregister("given_rows")

    def put_arrow(self, name: str, rows: pa.Table) -> None:
        """Keep rows that were made elsewhere, in Arrow's types."""
        with_arrow(self.connection).register("given_rows", rows)
        self.run(f"CREATE TEMP TABLE {name} AS FROM given_rows")
        self.connection.unregister("given_rows")

    def names(self, sql: str) -> list[str]:
        """Names of the columns of a statement."""
        return [column[0] for column in self.run(sql).description or ()]

    def rows(self, sql: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a statement as dictionaries."""
        found = self.run(sql, bound)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def columns(self, sql: str, bound: Mapping[str, Any]) -> Columns:
        """Columns of a statement as arrays."""
        found = self.run(sql, bound).fetchnumpy()
        return {name: _plain(values) for name, values in found.items()}

    def arrow(self, sql: str, bound: Mapping[str, Any]) -> pa.Table:
        """Rows of a statement as an Arrow table."""
        return with_arrow(self.connection).sql(sql, params=dict(bound) or None).to_arrow_table()


def _objects(values: Sequence[object]) -> npt.NDArray[Any]:
    found = np.empty(len(values), dtype=np.object_)
    found[:] = values
    return found


def _plain(values: Any) -> npt.NDArray[Any]:
    """A fetched column as a plain array: null is NaN in numbers, None elsewhere."""
    if type(values) is np.ndarray:
        return values
    absent = np.ma.getmaskarray(values)
    if not absent.any():
        return np.asarray(values.data)
    if values.dtype.kind in "iuf":
        numbers = np.asarray(values.data, dtype=np.float64).copy()
        numbers[absent] = np.nan
        return numbers
    found = np.asarray(values.data).astype(object)
    found[absent] = None
    return found
