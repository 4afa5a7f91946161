"""Tables as files that other programs read: Parquet, CSV, a DuckDB file."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ettr.analysis import Analysis
from ettr.analysis.derived import table_sql
from ettr.analysis.given_facts import documented_facts
from ettr.errors import UsageError
from ettr.facts.duck import Duck
from ettr.files import DRAFT_ENDING, written_whole
from ettr.report.rows import write_header, write_rows
from ettr.selection import Selection
from ettr.tables import DERIVED, TABLES
from ettr.tables.columns import Kind

if TYPE_CHECKING:
    import duckdb

PLACE_OF_TABLE = "{table}"
ENDINGS = (".parquet", ".csv", ".duckdb")
SIMULATED_COLUMN = "simulated"
"""Of derived tables of a store that is simulated: that it is, in a sentence."""
FACTS = "facts"
"""The schema of a DuckDB file that has what `ettr sql` reads."""
_ROWS_AT_ONCE = 100_000
_OF_JOBS = frozenset({"interruptions", "failures", "blame"})


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """One table in a file."""

    table: str
    rows: int
    file: str
    not_measured: str | None


def check_target(to: str, tables: Sequence[str], selection: Selection) -> tuple[str, ...]:
    """The tables to write; where none is named, all of a store and the derived of a selection.

    Raises:
        UsageError: a stored table of a selection, an unknown table or ending, several tables for a
            file that holds one, or a DuckDB file that is there already.
    """
    every = (*TABLES, *DERIVED)
    unknown = [name for name in tables if name not in every]
    if unknown:
        raise UsageError(f"no table named {unknown[0]!r}; there are: {', '.join(every)}")
    path = Path(to)
    if path.suffix not in ENDINGS:
        raise UsageError(f"--to {to}: give a name that ends in {', '.join(ENDINGS)}")
    whole = [name for name in tables if name in TABLES]
    if whole and not selection.is_everything:
        raise UsageError(
            f"--table {whole[0]}: a stored table is exported whole, so that --since and the like "
            f"do not apply; leave them out, or name a derived table: {', '.join(DERIVED)}"
        )
    chosen = tuple(dict.fromkeys(tables)) or (every if selection.is_everything else tuple(DERIVED))
    if path.suffix == ".duckdb":
        if path.exists():
            raise UsageError(
                f"--to {to}: is there already, and may be a store; remove it or give another name"
            )
    elif len(chosen) > 1 and PLACE_OF_TABLE not in to:
        raise UsageError(
            f"--to {to}: a {path.suffix[1:]} file holds one table and {len(chosen)} are asked for; "
            f"name one with --table, or give a name with {PLACE_OF_TABLE} in it, such as "
            f"{path.with_name(f'{PLACE_OF_TABLE}{path.suffix}')}"
        )
    return chosen


def export(
    analysis: Analysis, to: str, tables: Sequence[str], *, with_facts: bool = False
) -> list[ExportedTable]:
    """Write tables to a file, or one file each; a file is written whole or not at all.

    Who may read the store may read them.

    Args:
        to: The file; a place for the table's name in it makes one file a table.
        tables: Their names, as `check_target` gives them.
        with_facts: Whether a DuckDB file has what `ettr sql` reads too, in the schema `facts`.

    Raises:
        OSError: a file cannot be written.
    """
    ending = Path(to).suffix
    Path(to).parent.mkdir(parents=True, exist_ok=True)
    if ending == ".duckdb":
        counts = _write_duckdb(analysis, Path(to), tables, with_facts)
        return [_exported(analysis, name, n, to) for name, n in counts.items()]
    write = _write_csv if ending == ".csv" else _write_parquet
    done, file = [], to
    try:
        # all or none: a table of an export that failed looks as if it were one of a whole one
        with ExitStack() as files:
            for name in tables:
                file = to.replace(PLACE_OF_TABLE, name)
                out = files.enter_context(written_whole(Path(file), analysis.store.file_mode))
                done.append(_exported(analysis, name, write(analysis, name, out), file))
                out.flush()
    except OSError as error:
        number = errno.EIO if error.errno is None else error.errno
        raise OSError(number, error.strerror or str(error), file) from error
    return done


def _exported(analysis: Analysis, name: str, n_rows: int, file: str) -> ExportedTable:
    logs = analysis.logs_read
    reason = None
    if name in _OF_JOBS and not logs.jobs:
        reason = "no log holds jobs"
    elif name == "runs" and not (logs.jobs or logs.progress):
        reason = "no log holds jobs or progress"
    elif name == "outages" and not logs.node_states:
        reason = "no log holds states of nodes"
    return ExportedTable(name, n_rows, file, reason)


def _rows(analysis: Analysis, name: str) -> pa.Table:
    """The rows of a table in the types of its schema, in memory."""
    schema = (TABLES | DERIVED)[name].arrow_schema
    rows = analysis.facts.engine.arrow(table_sql(analysis, name), {}).cast(schema)
    words = analysis.selection_head.simulated
    if not words or name not in DERIVED:
        return rows
    return rows.append_column(SIMULATED_COLUMN, pa.array([words] * rows.num_rows, pa.string()))


def _write_parquet(analysis: Analysis, name: str, out: BinaryIO) -> int:
    import pyarrow.parquet as pq

    rows = _rows(analysis, name)
    pq.write_table(rows, out, compression="zstd")
    n_rows: int = rows.num_rows
    return n_rows


def _write_csv(analysis: Analysis, name: str, out: BinaryIO) -> int:
    rows = _rows(analysis, name)
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    write_header(text, rows.column_names)
    for batch in rows.to_batches(_ROWS_AT_ONCE):
        columns = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
        write_rows(text, zip(*columns, strict=True))
    text.detach()
    n_rows: int = rows.num_rows
    return n_rows


def _write_duckdb(
    analysis: Analysis, path: Path, tables: Sequence[str], with_facts: bool
) -> dict[str, int]:
    import duckdb

    # the beginning of a relative name such as sqlite:x is the kind of a database to DuckDB
    draft = path.absolute().with_name(f".{os.urandom(8).hex()}{DRAFT_ENDING}")
    counts = {}
    try:
        with _as_of_disk(path), closing(duckdb.connect(str(draft))) as database:
            draft.chmod(analysis.store.file_mode & 0o600)
            for name in tables:
                rows = _rows(analysis, name)
                database.register("rows_of_a_table", rows)
                database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM rows_of_a_table')  # noqa: S608 - of ours
                database.unregister("rows_of_a_table")
                counts[name] = rows.num_rows
            if with_facts:
                _write_facts(analysis, database, tables)
        draft.chmod(analysis.store.file_mode)
        draft.replace(path)
    except BaseException:
        for left in (draft, draft.with_name(f"{draft.name}.wal")):
            left.unlink(missing_ok=True)
        raise
    return counts


def _write_facts(
    analysis: Analysis, database: duckdb.DuckDBPyConnection, tables: Sequence[str]
) -> None:
    """What `ettr sql` reads, each with what it means; stored tables are views of those exported."""
    engine = analysis.facts.engine
    database.execute(f"CREATE SCHEMA {FACTS}")
    for one in documented_facts():
        kind, place = "TABLE", f'{FACTS}."{one.name}"'
        if one.name in TABLES:
            if one.name not in tables:
                continue
            kind = "VIEW"
            columns = ", ".join(
                f'epoch_us("{column.name}") AS "{column.name}_us"'
                if column.kind is Kind.TIME
                else f'"{column.name}"'
                for column in TABLES[one.name]
            )
            database.execute(f'CREATE VIEW {place} AS SELECT {columns} FROM main."{one.name}"')  # noqa: S608 - of ours
        else:
            source = analysis.facts.table(one.name)
            types = {}
            if isinstance(engine, Duck):
                types = {row[0]: row[1] for row in engine.run(f"DESCRIBE {source}").fetchall()}
            wide = [
                f'CAST("{name}" AS DECIMAL(38, 0)) AS "{name}"'
                for name in types
                if types[name] == "HUGEINT"
            ]
            # Arrow has no integers so wide
            changed = f" REPLACE ({', '.join(wide)})" if wide else ""
            rows = engine.arrow(f"SELECT *{changed} FROM {source}", {})  # noqa: S608 - of ours
            database.register("rows_of_a_fact", rows)
            database.execute(f"CREATE TABLE {place} AS SELECT * FROM rows_of_a_fact")  # noqa: S608 - of ours
            database.unregister("rows_of_a_fact")
        means = one.means.replace("'", "''")
        database.execute(f"COMMENT ON {kind} {place} IS '{means}'")


@contextmanager
def _as_of_disk(path: Path) -> Iterator[None]:
    """DuckDB's trouble with a file as trouble of the disk."""
    import duckdb

    try:
        yield
    except (duckdb.IOException, duckdb.TransactionException) as error:
        words = str(error)
        number = errno.ENOSPC if "No space left" in words else errno.EIO
        reason = os.strerror(number) if number == errno.ENOSPC else words.splitlines()[0]
        raise OSError(number, reason, str(path)) from error
