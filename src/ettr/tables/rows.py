"""How rows are made: identifiers, event rows, rejected records, and batches for a store.

Whoever writes rows imports this module: a log source, a simulator, a live collector. Most need
`BatchBuilder` only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, cast

from ettr.errors import SchemaError
from ettr.tables.columns import Table
from ettr.tables.schemas import ALLOCATIONS, ATTEMPTS, EVENTS, LOG_DAYS, REJECTS, TABLES

if TYPE_CHECKING:
    import pyarrow as pa


# what `surrogateescape` makes of bytes that are not UTF-8: this number more than in Latin-1
_ESCAPED = 0xDC00
_NOT_UTF_8 = re.compile(f"[{chr(_ESCAPED + 0x80)}-{chr(_ESCAPED + 0xFF)}]")


_ASCII = bytes(range(0x80))
_LATIN_1 = {_ESCAPED + byte: byte for byte in range(0x80, 0x100)}
# of so many bytes one that is not UTF-8: to look for fewer takes a tenth of what `translate` takes,
# to look for each of many takes five times as long
_FEW = 50


def text_of(data: bytes) -> str:
    """The bytes as text: UTF-8, and Latin-1 for those bytes alone that are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        n_bad = len(data) - len(text.encode("utf-8", "ignore"))
        if n_bad == len(data.translate(None, _ASCII)):
            return data.decode("latin-1")  # a tenth of the time
        if n_bad * _FEW > len(data):
            return text.translate(_LATIN_1)
        return _NOT_UTF_8.sub(_latin_1, text)


def _latin_1(escaped: re.Match[str]) -> str:
    return chr(ord(escaped[0]) - _ESCAPED)


def storable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def clean(value: object) -> str | None:
    """A stripped text that every engine can hold, or None for nothing; numbers become text."""
    if type(value) is str and value.isascii():
        return value.strip() or None
    if value is None or isinstance(value, bool | dict | list):
        return None
    return storable(str(value)).strip() or None


# what a column of a row holds before it is an Arrow array
Cell = str | int | float | bool | datetime | None
Row = dict[str, Cell]

TEXT_LIMIT = 500
# the source whose files hold no rows but a text of the site on its own logs
SITE_NOTE = "note"
# the source of rows that no cluster logged: every report of such a store says so first
SIMULATION = "simulation"
DEFAULT_CLUSTER = "cluster"
# how a note on records without a cluster ends
UNNAMED_NOTE = f"taken as {DEFAULT_CLUSTER!r} (--cluster names it)"
_THE_ONLY_ONE = ", the only one that other logs name"
_NO_LONGER = (
    ", the only one that logs had named when it was read: others do now; read it into a new store "
    "behind them, or with --cluster"
)
BATCH_ROWS = 200_000
BATCH_RECORDS = 2_000_000

# tables whose rows are no records that were kept
NOT_RECORDS = frozenset({LOG_DAYS.name, REJECTS.name})

# equal events are looked for among at least this many before them, so that memory stays bounded
REPEATS_WITHIN_EVENTS = 200_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of some tables, and how many records they came from.

    Attributes:
        rows_rejected: records that could not be read, each a row of `rejects`.
        rows_skipped: records that are no rows of ours by design, such as blank lines.
        rows_folded: records that became part of another record's row, such as a job's steps.
        derived: tables whose rows follow from several records, such as intervals of a node.
        counted_notes: the same with `{n}` in place of a number, and that number.
        nodes_once: no two allocations of an attempt are on the same node, as is known.

    The counts are of this batch only. Over all batches of a log every record read is kept,
    rejected, folded or skipped.

    Raises:
        SchemaError: rows do not match the schema of their table, or there is no such table.
    """

    tables: dict[str, pa.Table]
    rows_read: int
    rows_rejected: int = 0
    rows_skipped: int = 0
    notes: tuple[str, ...] = ()
    rows_folded: int = 0
    derived: frozenset[str] = frozenset()
    counted_notes: Mapping[str, int] = field(default_factory=dict)
    nodes_once: bool = False

    def __post_init__(self) -> None:
        checked = {name: _schema_of(name).check(rows) for name, rows in self.tables.items()}
        object.__setattr__(self, "tables", checked)

    @property
    def rows_kept(self) -> int:
        """Records that made rows, counted by the lines on which the rows say that they begin."""
        import pyarrow as pa

        others = self.derived | NOT_RECORDS
        if ATTEMPTS.name in self.tables:  # an allocation is part of its attempt
            others |= {ALLOCATIONS.name}
        ours = [rows.column("line") for name, rows in self.tables.items() if name not in others]
        lines = pa.chunked_array([chunk for column in ours for chunk in column.chunks], pa.int64())
        numbers = lines.to_numpy()
        if (numbers[1:] > numbers[:-1]).all():  # as in most files; counting takes ten times as long
            return len(numbers)
        import pyarrow.compute as pc  # .05 s, and a report keeps no rows

        return int(pc.count_distinct(lines).as_py())


_MAY_LACK_CLUSTER = frozenset(
    table.name for table in TABLES.values() for c in table if c.name == "cluster" and c.nullable
)


def _schema_of(name: str) -> Table:
    if name not in TABLES:
        raise SchemaError(name, [f"no such table; there are: {', '.join(TABLES)}"])
    return TABLES[name]


@cache
def _columns_of(name: str) -> frozenset[str]:
    return frozenset(_schema_of(name).names)


@dataclass(slots=True)
class Rejects:
    """Collects the records that could not be read."""

    source: str
    file_id: str
    rows: list[Row] = field(default_factory=list)

    def add(self, line: int, reason: str, detail: str, raw: str | bytes) -> None:
        """Keep one record with its line, a slug to count it by, and what was wrong in words."""
        text = text_of(raw[: 4 * TEXT_LIMIT]) if isinstance(raw, bytes) else raw
        self.rows.append(
            {
                "source": self.source,
                "file_id": self.file_id,
                "line": line,
                "reason": reason,
                "detail": storable(detail[:TEXT_LIMIT]),
                "raw": storable(text[:TEXT_LIMIT]),
            }
        )

    def sort(self) -> None:
        """Put the records in the order of their lines."""
        self.rows.sort(key=lambda row: cast(int, row["line"]))

    def table(self) -> pa.Table:
        """The collected records as a `rejects` table."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows, schema=REJECTS.arrow_schema)


def table_of(name: str, rows: Iterable[Row]) -> pa.Table:
    """Rows as dictionaries -> an Arrow table of the named schema; absent keys become null."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=TABLES[name].arrow_schema)


def taken_note(cluster: str) -> str:
    """What `UNNAMED_NOTE` says once other logs name a cluster, and only that one."""
    return f"taken as {cluster!r}{_THE_ONLY_ONE}"


def still_taken(note: str, has_clusters: bool) -> str:
    """A note that an earlier version took, no longer so where logs of other clusters came later."""
    if not has_clusters or not is_taken_note(note):
        return note
    return note.removesuffix(_THE_ONLY_ONE) + _NO_LONGER


def is_taken_note(note: str) -> bool:
    """Whether a note only says `taken_note`: nothing else could have been meant."""
    return note.endswith(_THE_ONLY_ONE)


def attempt_id(cluster: str, job_id: str, submit: datetime) -> str:
    """The key of an attempt in one string; `submit` is aware, the text is UTC to the second."""
    return f"{cluster}/{job_id}@{submit.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def event_id(
    cluster: str,
    node: str | None,
    time: datetime,
    check: str,
    code: str | None,
    entity: str | None,
    message: str | None,
    repeat: int = 0,
) -> str:
    """Hash of an event's content: the same line read twice, from whatever file, is one event.

    `repeat` counts equal lines near each other in one file from 0, so that a log that writes a line
    twice in the same second keeps both, and the same log read again still keeps both.
    """
    parts = (cluster, node, f"{time.timestamp():.6f}", check, code, entity, message, str(repeat))
    text = "\x1f".join("\x00" if part is None else part for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class EventRows:
    """Collects rows of `events`, giving each its id.

    `n_unnamed` counts the events that took the collector's cluster, as they named none.
    """

    def __init__(self, source: str, file_id: str, cluster: str) -> None:
        self._source, self._file_id, self._cluster = source, file_id, cluster
        self._rows: list[Row] = []
        self._seen: dict[str, int] = {}
        self._seen_before: dict[str, int] = {}
        self.n_unnamed = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        *,
        line: int,
        time: datetime,
        check: str,
        node: str | None,
        code: str | None = None,
        severity: str = "unknown",
        message: str | None = None,
        cluster: str | None = None,
        time_end: datetime | None = None,
        entity_type: str | None = None,
        entity: str | None = None,
        action: str | None = None,
        job_id: str | None = None,
        related_job_id: str | None = None,
        known_id: str | None = None,
    ) -> None:
        """Keep one event; the arguments are columns of `events`.

        Its id is a hash of its content, unless it is known (`known_id`). The message is cut at
        `TEXT_LIMIT` characters.
        """
        where = cluster or self._cluster
        self.n_unnamed += cluster is None
        text = None if message is None else message[:TEXT_LIMIT]
        own_id = self._own_id(where, node, time, check, code, entity, text)
        self._rows.append(
            {
                "event_id": known_id or own_id,
                "cluster": where,
                "node": node,
                "time": time,
                "time_end": time_end,
                "check": check,
                "code": code,
                "severity": severity,
                "entity_type": entity_type,
                "entity": entity,
                "action": action,
                "job_id": job_id,
                "related_job_id": related_job_id,
                "message": text,
                "source": self._source,
                "file_id": self._file_id,
                "line": line,
            }
        )

    def _own_id(
        self,
        cluster: str,
        node: str | None,
        time: datetime,
        check: str,
        code: str | None,
        entity: str | None,
        message: str | None,
    ) -> str:
        """The id of an event, another one for each equal event near it."""
        first = event_id(cluster, node, time, check, code, entity, message)
        repeat = self._repeat(first)
        if not repeat:
            return first
        return event_id(cluster, node, time, check, code, entity, message, repeat)

    def _repeat(self, found: str) -> int:
        """How often the id was there before; those long past are forgotten, in file order."""
        repeat = self._seen.get(found, self._seen_before.get(found, 0))
        if len(self._seen) >= REPEATS_WITHIN_EVENTS:
            self._seen_before, self._seen = self._seen, {}
        self._seen[found] = repeat + 1
        return repeat

    def take(self) -> pa.Table:
        """The rows so far as an `events` table; ids stay unique over all calls."""
        import pyarrow as pa

        table = pa.Table.from_pylist(self._rows, schema=EVENTS.arrow_schema)
        self._rows = []
        return table


class BatchBuilder:
    """Collects what one log yields: rows of any table, rejects, counts and notes.

    Call `count_read` for every record found; then keep it (`events.add`, `add_attempt`, `add`),
    `reject` it, `count_folded` or `count_skipped`. Rows that follow from several records are added
    with `derive`. Yield `batch()` whenever `is_full`, and once at the end.

    Attributes:
        source: name of the source; it stands in each row, and so does `file_id`.
        file_id: key of the log in the table `files`.
        events: collects the rows of `events`.
    """

    def __init__(self, source: str, file_id: str, cluster: str | None = None) -> None:
        self.source, self.file_id = source, file_id
        self.cluster = cluster or DEFAULT_CLUSTER
        self.events = EventRows(source, file_id, self.cluster)
        self._cluster_given = cluster
        self._rows: dict[str, list[Row]] = {}
        self._rejects = Rejects(source, file_id)
        self._n_read = self._n_skipped = self._n_folded = self._n_unnamed = 0
        self._derived: set[str] = set()
        self._notes: dict[str, None] = {}

    def count_read(self, records: int = 1) -> None:
        """Count records found."""
        self._n_read += records

    def count_skipped(self, records: int = 1) -> None:
        """Count records that are no rows of ours by design."""
        self._n_skipped += records

    def count_folded(self, records: int = 1) -> None:
        """Count records that became part of another record's row."""
        self._n_folded += records

    def reject(self, line: int, reason: str, detail: str, raw: str | bytes) -> None:
        """Keep one record that could not be read: a slug to count it by, and why in words.

        One reject for each line; the key of `rejects` is the file and the line.
        """
        self._rejects.add(line, reason, detail or reason, raw)

    def note(self, sentence: str) -> None:
        """Keep an assumption made; the same sentence counts once."""
        self._notes[sentence] = None

    def add(self, name: str, /, *, line: int, cluster: str | None = None, **columns: Cell) -> None:
        """Keep one row of the named table; columns left out are null.

        Raises:
            SchemaError: the table has no such column, or a time has no zone.
        """
        known = _columns_of(name)
        wrong = [f"{column}: no such column" for column in columns.keys() - known]
        for column, value in columns.items():
            if isinstance(value, datetime) and value.tzinfo is None:
                wrong.append(f"{column}: {value} has no zone")
        if wrong:
            raise SchemaError(name, sorted(wrong))
        row = {**columns, "source": self.source, "file_id": self.file_id, "line": line}
        if name in _MAY_LACK_CLUSTER:
            row["cluster"] = cluster or self._cluster_given
        elif "cluster" in known:
            row["cluster"] = cluster or self.cluster
            self._n_unnamed += cluster is None
        self._rows.setdefault(name, []).append(row)

    def derive(
        self, name: str, /, *, line: int, cluster: str | None = None, **columns: Cell
    ) -> None:
        """Keep a row of a table whose rows follow from several records, each kept elsewhere.

        Raises:
            SchemaError: the table has no such column, or a time has no zone.
        """
        self.derives(name)
        self.add(name, line=line, cluster=cluster, **columns)

    def derives(self, name: str) -> None:
        """Rows of the named table follow from several records, each kept elsewhere."""
        self._derived.add(name)

    def add_attempt(
        self,
        *,
        line: int,
        job_id: str,
        submit: datetime,
        state: str,
        nodes: Sequence[str] | None = None,
        cluster: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        elapsed_s: float | None = None,
        n_gpus: int | None = None,
        **columns: Cell,
    ) -> str:
        """Keep one attempt and an allocation for each of its nodes; returns its `attempt_id`.

        Args:
            nodes: names of its nodes; None where the log does not say, empty where it had none.
            elapsed_s: seconds that it ran; end less start if None.
            **columns: other columns of `attempts`; `n_nodes` and `node_list` follow from `nodes`.
        """
        key = attempt_id(cluster or self.cluster, job_id, submit)
        if elapsed_s is None and start is not None and end is not None:
            elapsed_s = (end - start).total_seconds()
        row: Row = dict(columns)
        if nodes is not None:
            row.setdefault("n_nodes", len(nodes))
            row.setdefault("node_list", ",".join(nodes) or None)
        row |= {"attempt_id": key, "job_id": job_id, "submit": submit, "state": state}
        row |= {"start": start, "end": end, "elapsed_s": elapsed_s, "n_gpus": n_gpus}
        self.add(ATTEMPTS.name, line=line, cluster=cluster, **row)
        if start is not None and elapsed_s is not None and nodes:
            share = None if n_gpus is None else n_gpus / len(nodes)
            run: Row = {"attempt_id": key, "start": start, "end": end, "elapsed_s": elapsed_s}
            for node in nodes:
                self.add(
                    ALLOCATIONS.name, line=line, cluster=cluster, node=node, n_gpus=share, **run
                )
        return key

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        n_rows = len(self.events) + len(self._rejects.rows)
        n_rows += sum(len(rows) for rows in self._rows.values())
        return n_rows >= BATCH_ROWS or self._n_read >= BATCH_RECORDS

    def batch(self, **more: pa.Table) -> Batch:
        """What was collected since the last batch, and tables that were made otherwise.

        Raises:
            SchemaError: a row lacks what its table needs, or holds a value of another type.
        """
        tables: dict[str, pa.Table] = {}
        if len(self.events):
            tables[EVENTS.name] = self.events.take()
        tables |= {name: table_of(name, rows) for name, rows in self._rows.items()}
        tables |= {name: table for name, table in more.items() if table.num_rows}
        n_rejected = len(self._rejects.rows)
        if n_rejected:
            tables[REJECTS.name] = self._rejects.table()
        if self._cluster_given is None and self._n_unnamed + self.events.n_unnamed:
            self.note(f"records without a cluster's name were {UNNAMED_NOTE}")
        made = Batch(
            tables,
            self._n_read,
            n_rejected,
            self._n_skipped,
            tuple(self._notes),
            self._n_folded,
            frozenset(self._derived),
        )
        self._rows, self._rejects = {}, Rejects(self.source, self.file_id)
        self._n_read = self._n_skipped = self._n_folded = 0
        return made
