"""How rows are made: identifiers, event rows, rejected records, and batches for a store.

Whoever writes rows imports this module: a log source, a simulator, a live collector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ettr.tables.schemas import EVENTS, REJECTS, TABLES

TEXT_LIMIT = 500

# equal events are looked for among at least this many before them, so that memory stays bounded
REPEATS_WITHIN_EVENTS = 200_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of some tables, and how many records they came from.

    `tables` maps a table's name to rows that pass its schema. The counts are of this batch only;
    rows_read includes rejected and skipped records. Notes are assumptions made, one sentence each.
    """

    tables: dict[str, pa.Table]
    rows_read: int
    rows_rejected: int = 0
    rows_skipped: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Rejects:
    """Collects the records that could not be read."""

    source: str
    file_id: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: int, reason: str, detail: str, raw: str | bytes) -> None:
        """Keep one record with its line, a slug to count it by, and what was wrong in words."""
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        self.rows.append(
            {
                "source": self.source,
                "file_id": self.file_id,
                "line": line,
                "reason": reason,
                "detail": detail[:TEXT_LIMIT],
                "raw": text[:TEXT_LIMIT],
            }
        )

    def table(self) -> pa.Table:
        """The collected records as a `rejects` table."""
        return pa.Table.from_pylist(self.rows, schema=REJECTS.arrow_schema)


def table_of(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows as dictionaries -> an Arrow table of the named schema; absent keys become null."""
    return pa.Table.from_pylist(list(rows), schema=TABLES[name].arrow_schema)


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
    """Collects rows of `events`, giving each its id."""

    def __init__(self, source: str, file_id: str, cluster: str) -> None:
        self._source, self._file_id, self._cluster = source, file_id, cluster
        self._rows: list[dict[str, Any]] = []
        self._seen: dict[str, int] = {}
        self._seen_before: dict[str, int] = {}

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
        **more: Any,
    ) -> None:
        """Keep one event; `more` takes the other columns of `events` by name."""
        where = cluster or self._cluster
        text = None if message is None else message[:TEXT_LIMIT]
        entity = more.get("entity")
        first = event_id(where, node, time, check, code, entity, text)
        repeat = self._repeat(first)
        self._rows.append(
            {
                "event_id": first
                if not repeat
                else event_id(where, node, time, check, code, entity, text, repeat),
                "cluster": where,
                "node": node,
                "time": time,
                "check": check,
                "code": code,
                "severity": severity,
                "message": text,
                "source": self._source,
                "file_id": self._file_id,
                "line": line,
                **more,
            }
        )

    def _repeat(self, found: str) -> int:
        """How often the id was there before; those long past are forgotten, in file order."""
        repeat = self._seen.get(found, self._seen_before.get(found, 0))
        if len(self._seen) >= REPEATS_WITHIN_EVENTS:
            self._seen_before, self._seen = self._seen, {}
        self._seen[found] = repeat + 1
        return repeat

    def take(self) -> pa.Table:
        """The rows so far as an `events` table; the collector starts anew, ids stay unique."""
        table = pa.Table.from_pylist(self._rows, schema=EVENTS.arrow_schema)
        self._rows = []
        return table
