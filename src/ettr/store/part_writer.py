"""How one part of a table is written: Parquet, in row groups that a query can pass over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ettr.tables import ALLOCATIONS, ATTEMPTS, EVENTS, Kind, Table

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
        if waiting := self._waiting.pop(value, []):
            self._file.write_table(pa.concat_tables(waiting))
