"""A known value is never overwritten by nothing, as SQL for the merging engine.

Which columns keep their values is said in the schema (`Column.keeps`). Of several rows with the
same key one is kept, and its nulls in those columns are filled from the others.
"""

from __future__ import annotations

from collections.abc import Collection

from ettr.store.base import newest_first
from ettr.tables import Table


def keeping_columns(table: Table) -> dict[str, tuple[str, ...]]:
    """Columns of a table that keep their values, and which others must be the same for it."""
    return {column.name: column.same for column in table if column.keeps}


def one_per_key(table: Table, relation: str) -> str:
    """Query for the newest of the rows of each key, its nulls filled from the next newest."""
    key = [_quoted(name) for name in table.key]
    newest = ", ".join(f"{column} {way}" for column, way in newest_first(table)) or ", ".join(key)
    filled = [
        f"first_value({_quoted(name)} IGNORE NULLS) OVER "
        f"(PARTITION BY {', '.join([*key, *map(_quoted, same)])} ORDER BY {newest} "
        f"ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS {_quoted(name)}"
        for name, same in keeping_columns(table).items()
    ]
    columns = f"* REPLACE ({', '.join(filled)})" if filled else "*"
    return (
        f"SELECT {columns} FROM {relation} QUALIFY row_number() OVER "  # noqa: S608
        f"(PARTITION BY {', '.join(key)} ORDER BY {newest}) = 1"
    )


class Filling:
    """Fills the nulls of rows from others of which none has the key of another."""

    def __init__(
        self,
        table: Table,
        same_key: str,
        rows: str,
        has: Collection[str],
        givers: str,
        give: Collection[str],
    ) -> None:
        self._table, self._has = table, has
        self._both = f"{rows} new {{}} JOIN {givers} old ON {same_key}"
        self._given = {n: same for n, same in keeping_columns(table).items() if n in give}

    @property
    def count(self) -> str:
        """Query for the number of rows that it would change."""
        changed = [
            f"({self._value(name)} IS NULL AND {self._offer(name)} IS NOT NULL)"
            for name in self._given
        ]
        return (
            f"SELECT count(*) FROM {self._both.format('')} WHERE {' OR '.join(changed) or 'false'}"  # noqa: S608
        )

    @property
    def query(self) -> str:
        """Query for all rows, filled, with the columns that the table and `rows` have."""
        columns = [
            f"coalesce({self._value(name)}, {self._offer(name)}) AS {_quoted(name)}"
            if name in self._given
            else f"new.{_quoted(name)}"
            for name in self._table.names
            if name in self._has or name in self._given
        ]
        return f"SELECT {', '.join(columns)} FROM {self._both.format('LEFT')}"  # noqa: S608

    def _value(self, name: str) -> str:
        return f"new.{_quoted(name)}" if name in self._has else "NULL"

    def _offer(self, name: str) -> str:
        """The other row's value, where it may be taken."""
        value = f"old.{_quoted(name)}"
        same = [
            f"old.{column} IS NOT DISTINCT FROM new.{column}"
            for column in map(_quoted, self._given[name])
        ]
        return f"CASE WHEN {' AND '.join(same)} THEN {value} END" if same else value


def _quoted(name: str) -> str:
    return f'"{name}"'
