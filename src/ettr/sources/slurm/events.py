"""`sacctmgr show event -P`: the history of nodes going down and being drained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa

from ettr.errors import SourceError
from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.lines import BadRecordError, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.slurm.fields import NOTHING, duration_s
from ettr.sources.slurm.times import TimeColumns
from ettr.sources.times import BY_STATE, has_local_times
from ettr.tables import NODE_STATES
from ettr.tables.rows import Batch, text_of
from ettr.words import by_number

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
_BATCH_RECORDS = 100_000


def matches(head: bytes, file_name: str) -> float:
    """1 for a header of `sacctmgr show event`."""
    fields = _fields(text_of(head.split(b"\n", 1)[0]))
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
    header = text_of(origin.head.split(b"\n", 1)[0]).rstrip("\r")
    given = "|".join(options.fields) if options.fields else header
    fields = _fields(given)
    lacking = [name for name in ("node", "start", "state") if name not in fields]
    if lacking:
        wanted = {"node": "NodeName", "start": "TimeStart", "state": "State"}
        raise SourceError(
            f"{origin}: needs {', '.join(wanted[name] for name in lacking)}; found "
            f"{given.strip()[:200]!r} (sacctmgr -P show event prints them)"
        )
    rows = LogRows(NAME, origin, options)
    history = _NodeHistory(rows, fields)
    for number, line in numbered_texts(origin):
        if number == 1 and options.fields is None:
            continue
        yield from rows.each([(number, line)], partial(history.add, header))
        if history.is_full:
            history.make_rows()
            yield rows.batch()
    history.make_rows()
    history.note()
    yield rows.batch()


@dataclass(frozen=True, slots=True)
class _Record:
    """One event of the history: its line, its fields by name, and its text."""

    line: int
    fields: dict[str, str]
    text: str


class _NodeHistory:
    """Turns the records of one file into rows of `node_states`, their times by whole columns."""

    def __init__(self, rows: LogRows, fields: list[str]) -> None:
        self._rows, self._fields = rows, fields
        self._times = TimeColumns(rows.options.timezone, str(rows.origin), BY_STATE)
        self._records: list[_Record] = []
        self._n_cluster_events = self._n_ends_by_duration = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        return len(self._records) >= _BATCH_RECORDS

    def add(self, header: str, number: int, line: str) -> None:
        """Take one line: a record for the next batch, or one to skip."""
        if not line.strip() or line == header:
            self._rows.count_skipped()
            return
        parts = self._parts(line)
        if parts is None:
            detail = f"{line.count('|') + 1} fields where the header has {len(self._fields)}"
            raise BadRecordError("bad-fields", detail)
        fields = {name: part.strip() for name, part in zip(self._fields, parts, strict=True)}
        if not fields["node"]:
            self._rows.count_skipped()
            self._n_cluster_events += 1
            return
        self._records.append(_Record(number, fields, line))

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

    def make_rows(self) -> None:
        """Keep the rows of the records that were taken since the last call."""
        records, self._records = self._records, []
        if not records:
            return
        starts, bad_start = self._read_times("start", records)
        ends, bad_end = self._read_times("end", records)
        lasted = [_seconds(record.fields.get("duration", "")) for record in records]
        settled = self._times.settle({"start": starts, "end": ends}, pa.array(lasted, pa.float64()))
        start, end = settled["start"].to_pylist(), settled["end"].to_pylist()

        def keep(k: int, record: _Record) -> None:
            is_backward = start[k] is not None and end[k] is not None and end[k] < start[k]
            if bad_start[k] or bad_end[k] or start[k] is None or is_backward:
                given = f"start is {record.fields['start']!r}, end is {record.fields.get('end')!r}"
                raise BadRecordError("bad-timestamp", given)
            self._keep(record, start[k], end[k])

        for k, record in enumerate(records):
            try:
                keep(k, record)
            except BadRecordError as bad:
                self._rows.reject(record.line, bad.reason, str(bad), record.text)

    def _read_times(self, field: str, records: list[_Record]) -> tuple[pa.Array, list[bool]]:
        texts = [record.fields.get(field, "") for record in records]
        found, bad = self._times.read(pa.array(texts, pa.string()), field)
        return found, bad.tolist()

    def _keep(self, record: _Record, start: datetime, end: datetime | None) -> None:
        fields = record.fields
        state, flags = node_state(fields["state"])
        if "end" not in self._fields and fields.get("duration"):
            end = self._end_by_duration(start, fields["duration"])
        reason = fields.get("reason", "")
        self._rows.add(
            NODE_STATES.name,
            line=record.line,
            cluster=self._rows.options.cluster or fields.get("cluster") or None,
            node=fields["node"],
            state=state,
            flags=flags,
            reason=None if reason in NOTHING else reason,
            user=user_name(fields.get("user", "")),
            start=start,
            end=end,
        )

    def _end_by_duration(self, start: datetime, text: str) -> datetime | None:
        seconds = _seconds(text)
        try:
            end = None if seconds is None else start + timedelta(seconds=seconds)
        except OverflowError:
            return None
        self._n_ends_by_duration += 1
        return end

    def note(self) -> None:
        """Note what was assumed over the whole file."""
        if self._n_cluster_events:
            self._rows.note(
                by_number(
                    "{n} [event is|events are] about the whole cluster (its size, its controller) "
                    "and [is|are] no node's state",
                    self._n_cluster_events,
                )
            )
        if self._n_ends_by_duration:
            self._rows.note(
                by_number(
                    "{n} [event ends where its|events end where their] duration says, as the log "
                    "has no end",
                    self._n_ends_by_duration,
                )
            )
        for sentence in self._times.notes():
            self._rows.note(sentence)


def _seconds(text: str) -> float | None:
    try:
        return duration_s(text)
    except (ValueError, OverflowError):
        return None


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Slurm node history, sacctmgr show event -P",
    tables=("node_states",),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_times,
    options=("--timezone", "--cluster"),
    how_to_get="TZ=UTC sacctmgr -P show event Start=START Format=Cluster,NodeName,TimeStart,"
    "TimeEnd,State,Reason,User > events.psv   # then --timezone UTC",
)


# marks that sinfo and sacctmgr put behind a state
_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "",
}
# words of sinfo for a base state with a flag
_SPELLED = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "MAINTENANCE": ("MAINT",),
    "ALLOC": ("ALLOCATED",),
    "MIX": ("MIXED",),
    "COMP": ("COMPLETING",),
    "RESV": ("RESERVED",),
    "INVAL": ("INVALID_REG",),
    "INVALID": ("INVALID_REG",),
    "FUTR": ("FUTURE",),
    "FAILG": ("ALLOCATED", "FAIL"),
    "POW_DN": ("POWERING_DOWN",),
    "POW_UP": ("POWERING_UP",),
    "PLND": ("PLANNED",),
    "UNK": ("UNKNOWN",),
}
# of several, the first of these says why the node gets no work
_BY_RANK = (
    "DOWN",
    "ERROR",
    "FAIL",
    "DRAIN",
    "INVALID_REG",
    "MAINT",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "REBOOT_ISSUED",
    "FUTURE",
    "UNKNOWN",
    "POWERING_UP",
)
OUT_OF_SERVICE = frozenset(_BY_RANK) - {"UNKNOWN"}


def node_state(text: str) -> tuple[str, str | None]:
    """The state that counts, such as DOWN or DRAIN, and its other flags, comma-separated.

    Takes `DOWN*`, `IDLE+DRAIN`, `drained`, `DOWN+DRAIN+NOT_RESPONDING`.

    Raises:
        BadRecordError: no state.
    """
    marks: list[str] = []
    word = text.strip().upper()
    while word and word[-1] in _MARKS:
        marks.append(_MARKS[word[-1]])
        word = word[:-1]
    parts: list[str] = []
    for part in word.split("+"):
        bare = part.rstrip("".join(_MARKS))
        marks += [_MARKS[mark] for mark in part[len(bare) :]]
        if not re.fullmatch(r"[A-Z][A-Z_]{1,40}", bare):
            raise BadRecordError("unknown-state", f"{text!r} is no state of a node")
        parts += _SPELLED.get(bare, (bare,))
    parts += [mark for mark in marks if mark]
    state = next((name for name in _BY_RANK if name in parts), parts[0])
    flags = [name for name in dict.fromkeys(parts) if name not in {state, "IDLE"}]
    return state, ",".join(flags) or None


_USER = re.compile(r"(.*?)\((\d+)\)\Z")


def user_name(text: str) -> str | None:
    """`root` of `root(0)`; None where nobody is named."""
    if not text or text in {"None", "Unknown"}:
        return None
    match = _USER.match(text)
    return (match[1] or match[2]) if match else text
