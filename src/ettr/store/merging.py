"""How the rows of one file join those that a store holds: the newer row of each key stands.

A known value is never overwritten by nothing. Which columns keep their values is said in the schema
(`Column.keeps`): of several rows with one key one is kept, its nulls in those columns filled from
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ettr.store.base import newest_first, with_every_column
from ettr.store.computing import Computing
from ettr.tables import ALLOCATIONS, ATTEMPTS, EVENTS, Kind, Table

if TYPE_CHECKING:
    import pyarrow as pa


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


def standing(table: Table, new: str, old: str, file_id: str) -> str:
    """Query for rows of a file, each as it stands next to an older row of its key, if there is one.

    An open row never replaces a closed one, nor one of a job that had run for longer, unless that
    is of the same file. What only the other row knows is kept (`Column.keeps`).
    """
    ahead = "false"
    if "end" in table.names and "end" not in table.key:
        ahead = 'old."end" IS NOT NULL'
        if "elapsed_s" in table.names:
            ahead += " OR old.elapsed_s > coalesce(new.elapsed_s, -1)"
        ahead = f"""new."end" IS NULL AND old.file_id <> '{file_id}' AND ({ahead})"""
    kept, columns = keeping_columns(table), []
    for name in map(_quoted, table.names):
        first, other = f"new.{name}", f"old.{name}"
        if name.strip('"') in kept:
            same = [f"old.{c} IS NOT DISTINCT FROM new.{c}" for c in kept[name.strip('"')]]
            is_same = " AND ".join(same) or "true"
            first, other = (
                f"coalesce({one}, CASE WHEN {is_same} THEN {two} END)"
                for one, two in ((first, other), (other, first))
            )
        columns.append(f"CASE WHEN {ahead} THEN {other} ELSE {first} END AS {name}")
    return f"SELECT {', '.join(columns)} FROM {new} new LEFT JOIN {old} old ON {same_key(table)}"  # noqa: S608


def _quoted(name: str) -> str:
    return f'"{name}"'


class Merge:
    """Lets the rows of a new part supersede those of older parts with the same key."""

    def __init__(
        self,
        duck: Callable[[], Any],
        table: Table,
        file_id: str,
        part: Callable[[str, str], Path],
    ) -> None:
        self._duck, self._table, self._file_id, self._part = duck, table, file_id, part
        self._key = ", ".join(f'"{name}"' for name in table.key)
        self._same_key = same_key(table)

    def run(
        self, old: list[Path], new: Path | None, *, again: bool, distinct: bool = False
    ) -> list[Path]:
        """Paths that make up the table afterwards.

        Args:
            again: the store knows the file.
            distinct: no two rows of the new part have the same key, as is known.
        """
        kept: list[Path | None] = self._without_file(old) if again else [*old]
        if new is None:
            return [path for path in kept if path is not None]
        new = new if distinct else self._one_per_key(new)
        join = f"JOIN {in_parquet(new)} new ON {self._same_key}"
        holding = self._holding(kept, f"SEMI {join}")
        left = [
            self._left(f"{in_parquet(path)} old ANTI {join}", f"left{index}")
            if path is not None and index in holding
            else path
            for index, path in enumerate(kept)
        ]
        older = old if again else [old[index] for index in sorted(holding)]
        changes = "end" in self._table.names or keeping_columns(self._table)
        if older and changes:
            new = self._rewrite(
                standing(self._table, in_parquet(new), self._whole(older), self._file_id), "stands"
            )
        return [*(path for path in left if path is not None), new]

    def _whole(self, parts: list[Path]) -> str:
        """SQL of the rows of some parts, with every column of the table."""
        import pyarrow.parquet as pq

        there = {name for part in parts for name in pq.read_schema(part).names}
        return f"({with_every_column(self._table, there, in_parquet(*parts))})"

    def is_in(self, paths: list[Path]) -> bool:
        """Whether some parts hold rows of the file."""
        return bool(self._holding(paths, f"WHERE file_id = '{self._file_id}'"))

    def together(self, paths: list[Path]) -> Path:
        """One part with the rows of several; row groups hold few clusters and little time."""
        order = ' ORDER BY cluster, "start"' if "start" in self._table.names else ""
        return self._rewrite(f"SELECT * FROM {in_parquet(*paths)}{order}", "whole")  # noqa: S608

    def _rewrite(self, query: str, label: str) -> Path:
        target = self._part(self._table.name, label)
        if together := TOGETHER.get(self._table.name):
            query = f"SELECT * FROM ({query}) ORDER BY {together}"  # noqa: S608
        self._duck().execute(
            f"COPY ({query}) TO {quoted(target)} "
            f"(FORMAT parquet, COMPRESSION {codec_of(self._table)}, USE_TMP_FILE false)"
        )
        return target

    def _holding(self, paths: Sequence[Path | None], condition: str) -> set[int]:
        """Indices of those parts of one table that hold a row `old` for which a condition holds."""
        parts = [
            f"SELECT {index} AS part, * FROM {in_parquet(path)}"  # noqa: S608
            for index, path in enumerate(paths)
            if path is not None
        ]
        if not parts:
            return set()
        rows = " UNION ALL BY NAME ".join(parts)
        found = self._duck().execute(f"SELECT DISTINCT old.part FROM ({rows}) old {condition}")  # noqa: S608
        return {index for (index,) in found.fetchall()}

    def _without_file(self, old: list[Path]) -> list[Path | None]:
        """Drop what an earlier reading of the same file left."""
        if "file_id" not in self._table.names:
            return [*old]
        holding = self._holding(old, f"WHERE file_id = '{self._file_id}'")
        return [
            self._left(f"{in_parquet(path)} WHERE file_id <> '{self._file_id}'", f"refiled{index}")
            if index in holding
            else path
            for index, path in enumerate(old)
        ]

    def _left(self, rows: str, label: str) -> Path | None:
        """A part of some rows, unless there are none."""
        path = self._rewrite(f"SELECT * FROM {rows}", label)  # noqa: S608
        return path if _n_rows(path) else None

    def _one_per_key(self, new: Path) -> Path:
        """Within one file the last of several rows with the same key stands."""
        if _n_rows(new) == 1:
            return new
        if not self._repeats_a_key(new):
            return new
        return self._rewrite(one_per_key(self._table, in_parquet(new)), "distinct")

    def _repeats_a_key(self, new: Path) -> bool:
        """Whether two rows have the same key."""
        twice = f"SELECT 1 FROM read_parquet(?) GROUP BY {self._key} HAVING count(*) > 1 LIMIT 1"  # noqa: S608
        return bool(self._duck().execute(twice, [str(new)]).fetchall())


MOST_OF_A_LEVEL = 7
"""Parts of a table of about one size that a store keeps; one more, and they become one part."""
_LEVEL_BYTES, _LARGEST_BYTES = 1 << 16, 1 << 30


def compacted(merge: Merge, paths: list[Path], most: int = MOST_OF_A_LEVEL) -> list[Path]:
    """Paths of the same rows in fewer parts, where a level holds more parts than `most`.

    Parts of each level are up to eight times as large as those below. A row is so written again
    once a level, and the parts of a table grow with the logarithm of its rows. Very large parts
    stay as they are.

    Args:
        most: of parts of one level; 1 for all in one part.
    """
    while True:
        by_level: dict[int, list[Path]] = {}
        for path in paths:
            size_bytes = path.stat().st_size
            if size_bytes < _LARGEST_BYTES:
                level = 0 if most == 1 else max(size_bytes // _LEVEL_BYTES, 1).bit_length() // 3
                by_level.setdefault(level, []).append(path)
        full = next((level for level in sorted(by_level) if len(by_level[level]) > most), None)
        if full is None:
            return paths
        # with those of lower levels, which are fewer and smaller
        several = [path for level in by_level if level <= full for path in by_level[level]]
        paths = [*(path for path in paths if path not in several), merge.together(several)]


def same_key(table: Table) -> str:
    """SQL's condition that a row `old` and a row `new` have the same key."""
    return " AND ".join(f'old."{name}" {_equals(table, name)} new."{name}"' for name in table.key)


def _equals(table: Table, name: str) -> str:
    """SQL's comparison of one column of a key; in a key null equals null."""
    nullable = any(column.name == name and column.nullable for column in table)
    return "IS NOT DISTINCT FROM" if nullable else "="


def _n_rows(path: Path) -> int:
    """Rows of a part, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def merging_engine(computing: Computing | None = None) -> Any:
    """A DuckDB of its own for the length of one commit, its clock UTC; close it afterwards."""
    duck = (computing or Computing()).connect()
    duck.execute("SET preserve_insertion_order = false")
    return duck


def duck_errors() -> type[Exception]:
    """What the merging engine raises where it cannot read or write, a full disk among others."""
    import duckdb

    return duckdb.Error


def in_parquet(*paths: Path) -> str:
    """SQL of the rows in some parts."""
    return f"read_parquet([{', '.join(map(quoted, paths))}], union_by_name = true)"


def quoted(path: Path) -> str:
    """A path as a text of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


# -- How one part of a table is written: Parquet, in row groups that a query can pass over --------

TOGETHER = {EVENTS.name: "severity"}
"""Of these tables, rows with one value of the column share row groups.

Most events of a large site are checks that passed. Who asks for faults then reads the few row
groups that hold any; the ids of the others are nine tenths of what there is to decompress.
"""
ROWS_TOGETHER = 1 << 17
"""Rows of one value that wait to be a row group, at most; four severities bound the memory."""
_READ_THROUGHOUT = frozenset({ATTEMPTS.name, ALLOCATIONS.name})
"""Every command reads these tables from end to end, a report a dozen times."""
# a dictionary of texts of which each row has its own takes time and room; so does one of numbers
_NEVER_REPEAT = frozenset({"attempt_id", "job_id", "job_id_raw", "event_id"})


def codec_of(table: Table) -> str:
    """How the parts of a table are compressed, by DuckDB's name.

    LZ4 is decompressed four times as fast as Zstandard, and takes two thirds more room.
    """
    return "lz4_raw" if table.name in _READ_THROUGHOUT else "zstd"


class PartWriter:
    """Writes rows of one table into one file; nothing can be read before `close`."""

    def __init__(self, path: Path, table: Table) -> None:
        import pyarrow.parquet as pq

        self._by = TOGETHER.get(table.name)
        self._waiting: dict[str, list[pa.Table]] = {}
        self._file = pq.ParquetWriter(
            path,
            table.arrow_schema,
            # what Arrow calls lz4 is the format that others call lz4_raw
            compression=codec_of(table).removesuffix("_raw"),
            use_dictionary=[
                column.name
                for column in table
                if column.kind is Kind.STRING and column.name not in _NEVER_REPEAT
            ],
        )

    def write(self, rows: pa.Table) -> None:
        """Add rows, whose schema is that of the table."""
        import pyarrow.compute as pc

        if self._by is None:
            self._file.write_table(rows)
            return
        values = rows.column(self._by)
        for value in pc.unique(values).to_pylist():
            waiting = self._waiting.setdefault(value, [])
            waiting.append(rows.filter(pc.equal(values, value)))
            if sum(some.num_rows for some in waiting) >= ROWS_TOGETHER:
                self._put(value)

    def close(self) -> None:
        """Write what waits, and the footer."""
        try:
            for value in sorted(self._waiting):
                self._put(value)
        finally:
            self._file.close()

    def _put(self, value: str) -> None:
        import pyarrow as pa

        if waiting := self._waiting.pop(value, []):
            self._file.write_table(pa.concat_tables(waiting))
