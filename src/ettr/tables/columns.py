"""Columns and tables: what a row means, and the check at each door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

from ettr.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StrEnum):
    """The column types in use; few, so that DuckDB, Spark and Parquet agree on each."""

    STRING = "string"
    INT = "int64"
    FLOAT = "float64"
    BOOL = "bool"
    TIME = "timestamp('UTC', 6)"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of this column kind."""
        return _arrow_types()[self]


@cache
def _arrow_types() -> dict[Kind, pa.DataType]:
    import pyarrow as pa

    return {
        Kind.STRING: pa.string(),
        Kind.INT: pa.int64(),
        Kind.FLOAT: pa.float64(),
        Kind.BOOL: pa.bool_(),
        Kind.TIME: pa.timestamp("us", tz="UTC"),
    }


class Keeps(StrEnum):
    """When a newer row that holds null keeps the value of an older row with the same key.

    Columns whose null says something (it has not started, it does not wait) or that change with
    every reading (its state, its times) do not. What an attempt had and how it ended is kept for
    the same end alone: until then a null may say that it has none yet.
    """

    NEVER = ""
    ALWAYS = "a known value is kept"
    SAME_STATE = "a known value is kept while `state` is the same"
    SAME_END = "a known value is kept while `state` and `end` are the same"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its kind, what it means, what null means (empty: null is not allowed).

    `keeps` says when a value outlives a newer row that does not know it.
    """

    name: str
    kind: Kind
    means: str
    null: str = ""
    keeps: Keeps = Keeps.NEVER

    @property
    def same(self) -> tuple[str, ...]:
        """Columns that must be equal in both rows for a value to be kept."""
        return {Keeps.SAME_STATE: ("state",), Keeps.SAME_END: ("state", "end")}.get(self.keeps, ())

    @property
    def nullable(self) -> bool:
        """Whether the column may hold nulls."""
        return bool(self.null)


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, its columns, and the key that makes a later dump an update.

    In a key null equals null: two rows are one where their keys hold null in the same columns.
    """

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    _made: list[pa.Schema] = field(default_factory=list, init=False, repr=False, compare=False)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        import pyarrow as pa

        if not self._made:
            fields = [pa.field(c.name, c.kind.arrow, nullable=c.nullable) for c in self.columns]
            self._made.append(pa.schema(fields))
        return self._made[0]

    def absent(self, names: Iterable[str]) -> tuple[Column, ...]:
        """The columns that `names` lacks, in order."""
        there = set(names)
        return tuple(column for column in self.columns if column.name not in there)

    def empty(self) -> pa.Table:
        """A table without rows."""
        return self.arrow_schema.empty_table()

    def check(self, given: pa.Table) -> pa.Table:
        """Return `given` with its columns in schema order.

        Raises:
            SchemaError: a column is missing, unknown, of another type, or null where it may not be;
                all problems in one message.
        """
        schema = self.arrow_schema
        if given.schema == schema and not any(
            data.null_count
            for column, data in zip(self.columns, given.columns, strict=True)
            if not column.nullable
        ):
            return given
        problems = list(self._problems(given))
        if problems:
            raise SchemaError(self.name, problems)
        return given.select(list(self.names)).cast(schema)

    def _problems(self, given: pa.Table) -> Iterator[str]:
        present = set(given.column_names)
        for column in self.columns:
            if column.name not in present:
                yield f"{column.name}: missing (expected {column.kind})"
                continue
            data = given.column(column.name)
            if data.type != column.kind.arrow:
                yield f"{column.name}: {data.type} (expected {column.kind})"
            elif data.null_count and not column.nullable:
                yield f"{column.name}: {data.null_count} of {len(data)} rows are null"
        own = set(self.names)
        for name in given.column_names:
            if name not in own:
                yield f"{name}: no such column"
