"""What an engine of facts does; statements are in DuckDB's dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ettr.facts.files import Columns, Rows

if TYPE_CHECKING:
    import pyarrow as pa


class FactEngine(Protocol):
    """Statements on one engine, which keeps facts under names."""

    def create(self, name: str, sql: str, bound: Mapping[str, Any], *, view: bool) -> None:
        """Keep what a statement selects, as rows or as a view."""

    def put(self, name: str, columns: Sequence[tuple[str, str]], rows: Rows) -> None:
        """Keep few rows that were made elsewhere."""

    def put_arrow(self, name: str, rows: pa.Table) -> None:
        """Keep rows that were made elsewhere, in Arrow's types."""

    def names(self, sql: str) -> list[str]:
        """Names of the columns of a statement."""

    def rows(self, sql: str, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a statement as dictionaries."""

    def columns(self, sql: str, bound: Mapping[str, Any]) -> Columns:
        """Columns of a statement as arrays."""

    def arrow(self, sql: str, bound: Mapping[str, Any]) -> pa.Table:
        """Rows of a statement as an Arrow table."""
