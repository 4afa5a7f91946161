"""What a store offers, whatever keeps its rows.

A file is ingested as a whole or not at all. A row whose key is already there replaces the older
row, so that a later dump of a job updates it, with one exception: an open row (its `end` is null)
never replaces a closed one, so the order in which dumps are ingested does not matter. What only
the other row knows of the submission is kept (`Column.keeps`).
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from ettr.errors import EttrError, StoreError, UsageError
from ettr.store.computing import Computing
from ettr.tables import FILES, TABLES, Table
from ettr.tables.columns import Kind

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from ettr.tables.schemas import EventSummary


STORE_FORMAT = "ettr-store"
# 2: attempts hold what was requested, nodes their switch, and a step of progress may be null.
# 3: large parts of the events have summaries; 4: one more, of busy days. An older store is read as
# it is; its next ingestion makes it one of the latest version.
STORE_VERSION = 4


class Ingestion(ABC):
    """The rows of one file on their way into a store; nothing is seen until `commit`."""

    computing = Computing()

    @abstractmethod
    def write(self, name: str, rows: pa.Table) -> None:
        """Add rows to the named table.

        Raises:
            SchemaError: the rows do not match the table's schema.
            StoreError: they cannot be written (a full disk, say).
        """

    def adopt(self, name: str, path: Path) -> None:
        """Take over rows of the named table that another process wrote into a file.

        Raises:
            StoreError: they cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as part:
            for batch in part.iter_batches():
                self.write(name, pa.Table.from_batches([batch]))

    @abstractmethod
    def commit(self, file_row: dict[str, Any], distinct: Collection[str] = ()) -> None:
        """Make the rows part of the store, with `file_row` as the file's row in `files`.

        The column `ingested` is filled in here.

        Args:
            distinct: tables in which no two rows that were written have the same key.
        """


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What the store knows of a file; `rows_folded` and `reader` are None of an older ettr's."""

    file_id: str
    name: str
    source: str
    options: str
    rows_read: int
    rows_rejected: int
    rows_skipped: int
    rows_folded: int | None
    reader: int | None = None

    @property
    def rows_kept(self) -> int | None:
        """Records that stood as rows when it was read."""
        if self.rows_folded is None:
            return None
        return self.rows_read - self.rows_rejected - self.rows_folded - self.rows_skipped


class Store(ABC):
    """Tables by name."""

    computing = Computing()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection | None:
        """The DuckDB in which tables can be read by `source`; None where the engine is another."""
        return None

    def source(self, name: str) -> str:
        """The name in `connection` of the named table, with every column of its schema.

        Raises:
            UsageError: there is no such table, or no such connection.
        """
        raise UsageError(f"{self.where}: its engine is not DuckDB")

    @property
    @abstractmethod
    def where(self) -> str:
        """The place as the user named it."""

    @abstractmethod
    def rows(self, name: str) -> pa.Table:
        """All rows of the named table, in memory, as its schema has them."""

    @property
    def file_mode(self) -> int:
        """Permissions of what is written of it: those of its files; a server's are the owner's."""
        return 0o600

    def is_small(self, name: str) -> bool:
        """Whether the rows of a table are few enough to be held in the engine's memory."""
        return False

    def summary(self, summary: EventSummary) -> str | None:
        """The name in `connection` of summaries of parts of the events, to be summed.

        None where none is kept.
        """
        return None

    keeps_parquet = False
    """Whether its tables are files of Parquet, which another engine can read."""

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Paths of the files of one table, or of a summary; none where the engine has the rows."""
        return ()

    def part_files(self) -> tuple[str, ...]:
        """Files of which the tables are views; none where the engine has the rows."""
        return ()

    @abstractmethod
    def ingestion(self, file_id: str) -> AbstractContextManager[Ingestion]:
        """Start to ingest one file; leaving the context without a commit discards its rows.

        Rows that an earlier reading of the same file left are replaced at the commit.
        """

    def compact(self) -> tuple[int, int]:
        """Make few parts of many: how many there were, and are; none where an engine has the rows.

        Who reads meanwhile goes on with the old ones.

        Raises:
            StoreError: they cannot be written, or a part is corrupt; the store is as it was.
        """
        return 0, 0

    @abstractmethod
    def close(self) -> None:
        """Give the engine back."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if ran_short(error):
                first = str(error).splitlines()[0]
                raise StoreError(
                    f"{self.where}: {first}; raise --memory-limit, free memory, or free space in "
                    f"{gettempdir()} (TMPDIR), where the engine spills what does not fit"
                ) from error
            if may_be_corruption(error):
                self.check_integrity()
        finally:
            self.close()

    @abstractmethod
    def check_integrity(self) -> None:
        """Check all that is stored, once a query has failed, to separate corruption from a bug.

        Raises:
            StoreError: something is corrupt.
        """

    def files(self) -> tuple[IngestedFile, ...]:
        """The files ingested so far, in order."""
        rows = self.rows(FILES.name).sort_by("ingested").to_pylist()
        fields = IngestedFile.__dataclass_fields__
        return tuple(IngestedFile(**{name: row[name] for name in fields}) for row in rows)


def known(name: str) -> Table:
    """The schema of a stored table. Raises UsageError: there is no such table."""
    if name not in TABLES:
        raise UsageError(f"no table named {name!r}; there are: {', '.join(TABLES)}")
    return TABLES[name]


def newest_first(table: Table) -> Iterator[tuple[str, str]]:
    """Order in which one of several rows with the same key is kept: (column, SQL direction)."""
    if "end" in table.names and "end" not in table.key:
        yield '("end" IS NULL)', "ASC"
    if "line" in table.names:
        yield "line", "DESC"


def with_every_column(table: Table, stored: Iterable[str], source: str) -> str:
    """A SELECT of a table's columns, null where an older ettr did not write one."""
    there = set(stored)
    columns = ", ".join(
        f'"{column.name}"'
        if column.name in there
        else f'CAST(NULL AS {SQL_TYPES[column.kind]}) AS "{column.name}"'
        for column in table
    )
    return f"SELECT {columns} FROM {source}"  # noqa: S608 - names of ours


SQL_TYPES = {
    Kind.STRING: "VARCHAR",
    Kind.INT: "BIGINT",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOL: "BOOLEAN",
    Kind.TIME: "TIMESTAMP WITH TIME ZONE",
}


def no_rows_of(table: Table) -> pa.Table:
    """A table without rows of whose columns all may be null, as those that an engine hands out."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, column.kind.arrow) for column in table]).empty_table()


# -- Whether what a store keeps is still what was written, and if not, what to say of it ----------

_CHUNK_BYTES = 1 << 20


def crc32_of(path: Path) -> str:
    """CRC-32 of a file's bytes in eight hexadecimal digits; about 0.7 s a gigabyte."""
    found = 0
    with path.open("rb", buffering=0) as file:
        chunk = bytearray(_CHUNK_BYTES)
        while n_bytes := file.readinto(chunk):
            found = zlib.crc32(memoryview(chunk)[:n_bytes], found)
    return f"{found:08x}"


def corrupt(where: Path | str, why: object) -> StoreError:
    """The error for a part, or a table, that is no longer what was written."""
    # DuckDB draws under its first line where in the query it stood
    first = (str(why).strip() or type(why).__name__).splitlines()[0].strip()
    return StoreError(
        f"{where}: a part of the store is corrupt or missing: {first}; restore it from a "
        "backup, or ingest the logs into a new store"
    )


def check_part(path: Path, crc32: str | None, table: Table) -> None:
    """See that a part is there and whole: by its checksum, or by its footer where it has none.

    Args:
        table: the table that it is a part of. A column that may be null may be absent: an older
            ettr did not write it.

    Raises:
        StoreError: it is not.
    """
    try:
        if crc32 is None:
            import pyarrow.parquet as pq

            absent = table.absent(pq.read_metadata(path).schema.names)
            if missing := [column.name for column in absent if not column.nullable]:
                raise corrupt(path, f"it has no column {', '.join(missing)}")
        elif (found := crc32_of(path)) != crc32:
            raise corrupt(path, f"its checksum is {found}, and {crc32} was written")
    except refusals() as error:
        raise corrupt(path, error) from error


def check_values(path: Path) -> None:
    """Read a part from end to end, by Arrow and by DuckDB; what neither refuses may be wrong still.

    Raises:
        StoreError: one of them cannot read it.
    """
    import duckdb
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as part:
            for batch in part.iter_batches():
                batch.validate(full=True)
        with duckdb.connect() as duck:
            quoted = str(path).replace("'", "''")
            decode_all(duck, f"read_parquet('{quoted}')")
    except refusals() as error:
        raise corrupt(path, error) from error


def decode_all(duck: Any, relation: str) -> None:
    """Let DuckDB decode every value of a table."""
    duck.execute(f"SELECT bit_xor(hash(t)) FROM {relation} t").fetchall()  # noqa: S608


def refusals() -> tuple[type[Exception], ...]:
    """What Arrow and DuckDB raise where they cannot read."""
    import duckdb
    import pyarrow as pa

    return (OSError, ValueError, pa.ArrowException, duckdb.Error)


def ran_short(error: BaseException | None) -> bool:
    """Whether DuckDB ended a query for want of memory, or of room for what it had put aside."""
    if error is None:
        return False
    import duckdb

    short = isinstance(error, duckdb.OutOfMemoryException)
    return short or (isinstance(error, duckdb.IOException) and "No space left" in str(error))


def may_be_corruption(error: BaseException | None) -> bool:
    """Whether an error that ends the use of a store may come from what the store keeps.

    Wrong bytes reach the engine, Arrow and our own code alike, so only that is left out which
    speaks for itself: a sentence for the user, or a file of another kind that cannot be written.
    """
    if not isinstance(error, Exception) or isinstance(error, EttrError):
        return False
    return not isinstance(error, OSError) or error.errno is None
