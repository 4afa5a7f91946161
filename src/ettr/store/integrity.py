"""Whether what a store keeps is still what was written, and if not, what to say of it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ettr.errors import EttrError, StoreError
from ettr.tables import Table

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
