"""`sacctmgr show event -P`: the history of nodes going down and being drained."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import numbered_texts
from ettr.sources.origin import Origin
from ettr.sources.slurm.fields import NOTHING, duration_s
from ettr.sources.slurm.node_states import node_state, user_name
from ettr.sources.slurm.times import TimeColumns
from ettr.sources.times import has_local_times
from ettr.tables import NODE_STATES
from ettr.tables.rows import DEFAULT_CLUSTER, Batch, Rejects, table_of

NAME = "slurm-events"
_NAMES = {
    "timestart": "start",
    "start": "start",
    "timeend": "end",
    "end": "end",
    "nodename": "node",
    "node": "node",
    "state": "state",
    "reason": "reason",
    "user": "user",
    "cluster": "cluster",
    "duration": "duration",
    "event": "event",
    "eventraw": "eventraw",
    "stateraw": "stateraw",
    "clusternodes": "clusternodes",
    "tres": "tres",
}
_BATCH_ROWS = 100_000


def matches(head: bytes, file_name: str) -> float:
    """1 for a header of `sacctmgr show event`."""
    fields = _fields(head.split(b"\n", 1)[0].decode("utf-8", "replace"))
    return 1.0 if {"node", "start", "state"} <= set(fields) and "reason" in fields else 0.0


def _fields(line: str) -> list[str]:
    parts = line.lstrip("\ufeff").rstrip("\r\n").split("|")
    if len(parts) < 3:
        return []
    return [_NAMES.get(part.strip().replace(" ", "").lower(), "") for part in parts]


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Batches of node_states, in the file's order.

    Raises:
        SourceError: the first line is no header of `sacctmgr show event`, or lacks a field.
        UsageError: the times have no zone and the user gave none.
    """
    first = origin.head.split(b"\n", 1)[0].decode("utf-8", "replace")
    given = "|".join(options.fields) if options.fields else first
    fields = _fields(given)
    lacking = [name for name in ("node", "start", "state") if name not in fields]
    if lacking:
        wanted = {"node": "NodeName", "start": "TimeStart", "state": "State"}
        raise SourceError(
            f"{origin}: needs {', '.join(wanted[name] for name in lacking)}; found "
            f"{given.strip()[:200]!r} (sacctmgr -P show event prints them)"
        )
    reader = _Reader(origin, options, fields)
    skip_header = options.fields is None
    header = first.rstrip("\r\n")
    for number, line in numbered_texts(origin):
        if skip_header and number == 1:
            continue
        reader.add(number, line, header)
        if reader.waiting >= _BATCH_ROWS:
            yield reader.batch()
    yield reader.batch(last=True)


class _Reader:
    """Records of one file on their way to rows."""

    def __init__(self, origin: Origin, options: ReadOptions, fields: list[str]) -> None:
        self._origin, self._fields, self._options = origin, fields, options
        self._times = TimeColumns(options.timezone, str(origin))
        self._rows: list[tuple[int, dict[str, str], str]] = []
        self._rejects = Rejects(NAME, origin.file_id)
        self._read = self._skipped = 0
        self._whole_cluster = self._no_cluster = self._by_duration = 0
        self._last: tuple[int, dict[str, str], str] | None = None

    @property
    def waiting(self) -> int:
        return len(self._rows) + len(self._rejects.rows)

    def add(self, number: int, line: str, header: str) -> None:
        self._read += 1
        if not line.strip() or line == header:
            self._skipped += 1
            return
        parts = self._parts(line)
        if parts is None:
            self._rejects.add(
                number,
                "bad-fields",
                f"{line.count('|') + 1} fields where the header has {len(self._fields)}",
                line,
            )
            return
        row = {name: part for name, part in zip(self._fields, parts, strict=True) if name}
        if not row["node"].strip():
            self._skipped += 1
            self._whole_cluster += 1
            return
        self._rows.append((number, row, line))

    def _parts(self, line: str) -> list[str] | None:
        """The fields; a reason may hold the separator, and it alone."""
        parts = line.split("|")
        excess = len(parts) - len(self._fields)
        if excess > 0 and "reason" in self._fields:
            at = self._fields.index("reason")
            parts[at : at + excess + 1] = ["|".join(parts[at : at + excess + 1])]
        elif excess == 1 and not parts[-1]:
            parts.pop()
        return parts if len(parts) == len(self._fields) else None

    def batch(self, last: bool = False) -> Batch:
        rows = self._made()
        tables: dict[str, pa.Table] = {}
        if rows:
            tables[NODE_STATES.name] = table_of(NODE_STATES.name, rows)
        rejected = len(self._rejects.rows)
        if rejected:
            tables["rejects"] = self._rejects.table()
        done = Batch(tables, self._read, rejected, self._skipped, self._notes() if last else ())
        self._rows, self._rejects = [], Rejects(NAME, self._origin.file_id)
        self._read = self._skipped = 0
        return done

    def _made(self) -> list[dict[str, Any]]:
        given = self._rows
        start, bad_start = self._read_times([row["start"] for _, row, _ in given])
        end, bad_end = self._read_times([row.get("end", "") for _, row, _ in given])
        made = []
        for k, (number, row, line) in enumerate(given):
            if bad_start[k] or bad_end[k] or start[k] is None:
                self._rejects.add(
                    number,
                    "bad-timestamp",
                    f"start is {row['start']!r}, end is {row.get('end', '')!r}",
                    line,
                )
                continue
            try:
                state, flags = node_state(row["state"])
            except ValueError as error:
                self._rejects.add(number, "unknown-state", str(error), line)
                continue
            made.append(self._row(number, row, state, flags, start[k], end[k]))
        return made

    def _read_times(self, texts: list[str]) -> tuple[list[Any], list[bool]]:
        if not texts:
            return [], []
        found, bad = self._times.read(pa.array([text.strip() for text in texts], pa.string()))
        return found.to_pylist(), bad.tolist()

    def _row(
        self, number: int, row: dict[str, str], state: str, flags: str | None, start: Any, end: Any
    ) -> dict[str, Any]:
        cluster = self._options.cluster or row.get("cluster", "").strip()
        if not cluster:
            self._no_cluster += 1
        if "end" not in self._fields and row.get("duration"):
            end = self._end_by_duration(start, row["duration"])
        reason = row.get("reason", "").strip()
        return {
            "cluster": cluster or DEFAULT_CLUSTER,
            "node": row["node"].strip(),
            "state": state,
            "flags": flags,
            "reason": None if reason in NOTHING else reason,
            "user": user_name(row.get("user", "").strip()),
            "start": start,
            "end": end,
            "source": NAME,
            "file_id": self._origin.file_id,
            "line": number,
        }

    def _end_by_duration(self, start: Any, text: str) -> Any:
        try:
            seconds = duration_s(text)
            end = None if seconds is None else start + timedelta(seconds=seconds)
        except (ValueError, OverflowError):
            return None
        self._by_duration += 1
        return end

    def _notes(self) -> tuple[str, ...]:
        found = [
            text
            for count, text in (
                (
                    self._whole_cluster,
                    f"{self._whole_cluster} events are about the whole cluster "
                    "(its size, its controller) and are no node's state",
                ),
                (
                    self._no_cluster,
                    f"{self._no_cluster} events name no cluster; taken as "
                    f"{DEFAULT_CLUSTER} (--cluster names it)",
                ),
                (
                    self._by_duration,
                    f"{self._by_duration} events end where their duration says, "
                    "as the log has no end",
                ),
            )
            if count
        ]
        return (*found, *self._times.notes())


SOURCE = Source(
    name=NAME,
    title="Slurm node history, sacctmgr show event -P",
    tables=("node_states",),
    matches=matches,
    read=read,
    names_cluster=True,
    local_time=True,
    prints_local=has_local_times,
    options=("--timezone", "--cluster"),
    how_to_get="TZ=UTC sacctmgr -P show event Start=START Format=Cluster,NodeName,TimeStart,"
    "TimeEnd,State,Reason,User > events.psv   # then --timezone UTC",
)
