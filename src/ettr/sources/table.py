"""Any CSV or Parquet file, given which of its columns is which column of one of our tables.

The column map names our column first: `{"node": "hostname", "time": "ts", "check": "=site-check"}`;
a value that begins with `=` is a constant. Columns that bear our names need no entry.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from ettr.errors import SourceError, UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.limits import LONGEST_S, MOST_GPUS_PER_NODE, MOST_NODES, most_gpus
from ettr.sources.lines import BadRecordError, numbered_lines
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import time_of, within_years
from ettr.tables import ATTEMPTS, EVENTS, TABLES, Column, Kind, Table
from ettr.tables.rows import Batch, attempt_id, clean, text_of

NAME = "table"

_PARQUET = b"PAR1"
# of one record of CSV, with line breaks in quotes
_MOST_LINES = 200
_OWN = ("source", "file_id", "line")
# what this source makes, or fills in, where the file has no such column
_MADE_COLUMNS = ("cluster", "event_id", "attempt_id")
_FILLED = {"severity": "unknown", "rank": 0}
_TABLES = ("attempts", "allocations", "nodes", "node_states", "events", "progress")
_TRUE, _FALSE = {"true", "yes", "1", "t", "y"}, {"false", "no", "0", "f", "n"}
_NOTHING = {"", "null", "none", "nan", "na", "n/a", "nat", "\\n"}
_SEVERITIES = {
    "ok": "ok",
    "info": "ok",
    "warning": "warning",
    "warn": "warning",
    "critical": "critical",
    "error": "critical",
    "fatal": "critical",
    "unknown": "unknown",
}
# the columns that only this table has, so that a file which bears our names needs no --table
_OWN_COLUMNS = {
    "attempts": {"job_id", "submit", "state"},
    "allocations": {"attempt_id", "node", "elapsed_s"},
    "node_states": {"node", "state", "start"},
    "events": {"node", "time", "check"},
    "progress": {"run_id", "time", "event"},
    "nodes": {"node", "n_gpus"},
}


# beyond these a cell is no count and no length of time
_MOST = {
    "n_nodes": MOST_NODES,
    "n_gpus": MOST_GPUS_PER_NODE * MOST_NODES,
    "requested_gpus": MOST_GPUS_PER_NODE * MOST_NODES,
    "elapsed_s": LONGEST_S,
    "duration_s": LONGEST_S,
}
_MOST_OF_A_NODE = {"nodes", "allocations"}


# a record's cells by the file's own column names
Cells = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which table the rows become, and where each of its columns comes from."""

    table: Table
    from_column: dict[str, str]
    constant: dict[str, str]

    def cell(self, column: str, cells: Cells) -> object:
        """What the file, or the user, says of a column; None for nothing."""
        given = self.constant.get(column)
        return cells.get(self.from_column.get(column, "")) if given is None else given


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Rows of the one table that was asked for.

    Raises:
        UsageError: the table, or a column that it cannot do without, was not given.
        SourceError: the file is neither CSV nor Parquet.
    """
    rows = LogRows(NAME, origin, options)
    plan: _Plan | None = None
    for names, line, cells in _records(origin):
        if plan is None:
            plan = _plan(origin, options, names)
        if cells is None:
            continue
        rows.count_read()
        if isinstance(cells, str):
            rows.reject(line, "wrong-width", f"not {len(names)} cells", cells)
            continue
        if not any(str(cell).strip() for cell in cells.values() if cell is not None):
            rows.count_skipped()
            continue
        rows.keep_or_reject(line, cells, partial(_keep, rows, plan), _shown)
        if rows.is_full:
            yield rows.batch()
    if plan is None:
        raise SourceError(f"{origin}: holds no header")
    yield rows.batch()


def _shown(cells: Cells) -> str:
    return ",".join("" if cell is None else str(cell) for cell in cells.values())


def _records(origin: Origin) -> Iterator[tuple[list[str], int, Cells | str | None]]:
    """Column names, line, and the cells by name; cells None once for the header alone."""
    yield from (_parquet_records if origin.head.startswith(_PARQUET) else _csv_records)(origin)


def _parquet_records(origin: Origin) -> Iterator[tuple[list[str], int, Cells | None]]:
    import pyarrow.parquet as pq

    line = 0
    try:
        with pq.ParquetFile(origin.path) as file:
            names = list(file.schema_arrow.names)
            yield names, 0, None
            for batch in file.iter_batches(batch_size=20_000):
                for cells in batch.to_pylist():
                    line += 1
                    yield names, line, cells
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise SourceError(f"{origin}: cannot be read as Parquet: {error}") from error


def _csv_records(origin: Origin) -> Iterator[tuple[list[str], int, Cells | str | None]]:
    delimiter = _delimiter(origin.head)
    names: list[str] = []
    held: list[tuple[int, str]] = []
    for number, line in numbered_lines(origin):
        held.append((number, text_of(line).replace("\x00", "\ufffd")))
        parsed = _parsed("\n".join(text for _, text in held), delimiter)
        if parsed is None and len(held) < _MOST_LINES:
            continue
        if not names and parsed is None:
            raise SourceError(f"{origin}: cannot be read as CSV: a quote of its header is open")
        if not names:
            cells = [cell.strip().lstrip("\ufeff") for cell in parsed or ()]
            names = cells if any(cells) else []
            yield cells, held[0][0], None
        elif parsed is not None and (len(held) == 1 or len(parsed) == len(names)):
            yield names, held[0][0], _cells(names, parsed, delimiter)
        else:
            yield from _alone(names, held, delimiter)
        held = []
    yield from _alone(names, held, delimiter)


def _parsed(text: str, delimiter: str) -> list[str] | None:
    """The cells of a record; None where a quote is open at its end."""
    # a record of several lines keeps to the rules for quotes
    for strict in (True,) if "\n" in text else (True, False):
        try:
            return next(csv.reader([text], delimiter=delimiter, strict=strict), [])
        except csv.Error as error:
            if strict and "end of data" in str(error):
                return None
    return [text]


def _alone(
    names: list[str], held: list[tuple[int, str]], delimiter: str
) -> Iterator[tuple[list[str], int, Cells | str | None]]:
    """Lines behind a quote that is not closed: each is a record of its own."""
    for number, text in held:
        parsed = _parsed(text, delimiter)
        yield names, number, text if parsed is None else _cells(names, parsed, delimiter)


def _cells(names: list[str], parsed: list[str], delimiter: str) -> Cells | str:
    """Cells by name, or the record's text where they are not as many."""
    if not any(cell.strip() for cell in parsed):
        return dict.fromkeys(names, "")
    if len(parsed) != len(names):
        return delimiter.join(parsed)
    return dict(zip(names, parsed, strict=True))


def _delimiter(head: bytes) -> str:
    first = text_of(head).split("\n", 1)[0]
    return max((",", "\t", ";", "|"), key=first.count)


def _plan(origin: Origin, options: ReadOptions, names: list[str]) -> _Plan:
    given = dict(options.column_map or {})
    name = options.table or _guess({*names, *given})
    if name is None:
        raise UsageError(
            f"{origin}: name the table of its rows with --table, one of {', '.join(_TABLES)}; "
            f"its columns are {', '.join(names[:40])}"
        )
    if name not in _TABLES:
        raise UsageError(f"{origin}: no table {name!r} to read; there are: {', '.join(_TABLES)}")
    table = TABLES[name]
    problems = []
    for ours, theirs in given.items():
        if ours not in table.names or ours in _OWN:
            problems.append(
                f"{ours}: no column of `{name}`; there are: "
                f"{', '.join(n for n in table.names if n not in _OWN)}"
            )
        elif not theirs.startswith("=") and theirs not in names:
            problems.append(
                f"{ours}={theirs}: the file has no column {theirs!r}; it has: "
                f"{', '.join(names[:40])}"
            )
    constant = {k: v[1:] for k, v in given.items() if v.startswith("=")}
    from_column = {n: n for n in table.names if n in names and n not in _OWN and n not in given}
    from_column |= {k: v for k, v in given.items() if not v.startswith("=")}
    for column in table:
        known = column.name in constant or column.name in from_column
        if (
            not known
            and not column.nullable
            and column.name not in (*_MADE_COLUMNS, *_FILLED, *_OWN)
        ):
            problems.append(
                f"{column.name}: the file has no such column; map one with "
                f"--columns {column.name}=THEIRS, or a constant with "
                f"--columns {column.name}==VALUE"
            )
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise UsageError(f"{origin}: cannot be read as `{name}`:{lines}")
    return _Plan(table, from_column, constant)


def _guess(names: set[str]) -> str | None:
    fits = [table for table, own in _OWN_COLUMNS.items() if own <= names]
    return fits[0] if fits else None


def _keep(rows: LogRows, plan: _Plan, line: int, cells: Cells) -> None:
    """Keep the row that the cells make."""
    row = {
        column.name: _value(rows, column, plan.cell(column.name, cells))
        for column in plan.table
        if column.name not in _OWN
    }
    cluster = row.pop("cluster", None)
    one_node = plan.table.name in _MOST_OF_A_NODE
    most = most_gpus(1 if one_node else row.get("n_nodes"))
    if (row.get("n_gpus") or 0) > most:
        raise BadRecordError("bad-gpu-count", f"{row['n_gpus']} GPUs, where {most} are possible")
    if plan.table is ATTEMPTS and row["attempt_id"] is None and row["job_id"] and row["submit"]:
        row["attempt_id"] = attempt_id(cluster or rows.cluster, row["job_id"], row["submit"])
    if plan.table is EVENTS:
        row["severity"] = _SEVERITIES.get((row["severity"] or "unknown").lower(), "unknown")
    for column in plan.table:
        if column.name in row and row[column.name] is None and not column.nullable:
            if column.name in _FILLED:
                row[column.name] = _FILLED[column.name]
            elif column.name != "event_id":
                raise BadRecordError("missing-field", f"{column.name} is empty")
    if plan.table is EVENTS:
        rows.events.add(line=line, cluster=cluster, known_id=row.pop("event_id"), **row)
    else:
        rows.add(plan.table.name, line=line, cluster=cluster, **row)


def _value(rows: LogRows, column: Column, given: object) -> Any:
    if given is None or (isinstance(given, str) and given.strip().lower() in _NOTHING):
        return None
    kind = column.kind
    if kind is Kind.TIME:
        return _time(rows, column, given)
    if kind is Kind.STRING:
        return clean(given)
    try:
        if kind is Kind.BOOL:
            return _truth(given)
        number = _integer(given) if kind is Kind.INT else _finite(given)
    except (ValueError, TypeError, OverflowError):
        raise BadRecordError("bad-number", f"{column.name} is {given!r:.100}") from None
    if column.name in _MOST and number > _MOST[column.name]:
        detail = f"{column.name} is {given!r:.100}, at most {_MOST[column.name]:,}"
        raise BadRecordError("bad-number", detail)
    return number


def _finite(given: object) -> float:
    number = float(given if isinstance(given, int | float) else str(given))
    if not math.isfinite(number):
        raise ValueError(given)
    return number


def _integer(given: object) -> int:
    text = str(given).strip()
    # through float only where need be: it would round a large id
    number = int(text) if re.fullmatch(r"-?\d{1,19}", text) else _finite(given)
    if number != int(number) or abs(number) >= 2**63:
        raise ValueError(given)
    return int(number)


def _truth(given: object) -> bool:
    text = str(given).strip().lower()
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError(text)


def _time(rows: LogRows, column: Column, given: object) -> datetime:
    zone = rows.options.timezone
    if isinstance(given, datetime):
        given = given.astimezone(UTC).isoformat() if given.tzinfo else given.isoformat()
    local = _naive(given) if zone is not None else None
    stamp = rows.utc(local, is_ordered=False) if local is not None else time_of(given, zone)
    if stamp is not None and within_years(stamp) is not None:
        return stamp
    if isinstance(given, str) and zone is None and time_of(given, "UTC") is not None:
        raise UsageError(
            f"{rows.origin}: column {column.name} holds local times without a zone, such as "
            f"{given!r:.40}; give their zone with --timezone ZONE, for example --timezone UTC"
        )
    raise BadRecordError("bad-timestamp", f"{column.name} is {given!r:.100}")


def _naive(given: object) -> datetime | None:
    """A local time without an offset, or None for all else."""
    try:
        stamp = datetime.fromisoformat(given.strip()) if isinstance(given, str) else None
    except ValueError:
        return None
    return stamp if stamp is not None and stamp.tzinfo is None else None


def matches(head: bytes, name: str) -> float:
    """How sure it is that this is a table: Parquet, or a CSV file whose header has our names."""
    if head.startswith(_PARQUET):
        return 0.7
    first = text_of(head[:65536]).lstrip("\ufeff").split("\n", 1)[0].strip()
    cells = [cell.strip().strip('"') for cell in first.split(_delimiter(head))]
    return 0.7 if len(cells) > 1 and _guess(set(cells)) else 0.0


def prints_local(_head: bytes) -> bool:
    """False: whether the times have a zone shows only in their cells, and is asked for there."""
    return False


SOURCE = Source(
    name=NAME,
    title="any CSV or Parquet file, with a map of its columns",
    tables=_TABLES,
    matches=matches,
    read=read,
    local_time=True,
    prints_local=prints_local,
    options=("--table", "--columns", "--timezone", "--cluster"),
    how_to_get="an export of whatever the site keeps",
)
