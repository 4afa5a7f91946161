"""States of nodes from the controller's own log, where no other log has them.

`slurmctld.log` says when a node was drained or went down, why, and when it came back. It is read
line by line as events; here they become the intervals that `sacctmgr show event` would give. Its
files are rotated, so that the end of an interval may stand in another file than its beginning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import ibis
import pyarrow as pa
from ibis.expr.types import Table

from ettr.attribution.verdicts import SLURMCTLD
from ettr.tables import NODE_STATES

# what each line begins: the state, its flags, and the reason where no line gives one
_BEGINS = {
    "DRAIN": ("DRAIN", None, None),
    "EPILOG_ERROR": ("DRAIN", None, "Epilog error"),
    "NODE_FAILING": ("FAIL", None, None),
    "NODE_DOWN": ("DOWN", None, None),
    "STATE_MAINT": ("MAINT", None, None),
    # a node that registers with less than configured, where the line says that it is out for it
    "CONFIG_MISMATCH": ("INVALID_REG", None, None),
}
_INVALID = re.compile(r"\bto INVAL")
_ENDS, _REASON, _MISMATCH = "NODE_RESUMED", "REASON", "CONFIG_MISMATCH"
_SILENT = ("NOT_RESPONDING", "Not responding")
_SET_REASON = re.compile(r"reason set to: ?(.*)")
_OWN_REASON = re.compile(r"(?:state set to [A-Z_+*]+: ?|with reason: ?)(.*)")
# of one update Slurm writes reason and state next to each other, in either order
_ONE_UPDATE = timedelta(seconds=2)
# the clock of the accounting may lag behind that of the log
_SAME_START = timedelta(minutes=1)

Node = tuple[str, str]
Span = tuple[datetime, datetime | None]


@dataclass(frozen=True, slots=True)
class _StateLine:
    """One line of the controller's log that says something of a node's state."""

    cluster: str
    node: str
    time: datetime
    code: str
    message: str | None
    source: str
    file_id: str
    line: int


@dataclass(slots=True)
class _State:
    """One interval of one node, and the line that begins it."""

    state: str
    flags: str | None
    reason: str | None
    start: datetime
    end: datetime | None
    line: _StateLine


def with_controller_states(node_states: Table, events: Table, allocations: Table) -> Table:
    """The same states, and those that only the controller's log has.

    An interval that meets one of the same node from another log is that one again, and is left
    out. One whose end no line gives lasts until a job starts on the node.

    Args:
        node_states: the table `node_states`.
        events: the table `events`.
        allocations: the table `allocations`.
    """
    lines = _lines(events)
    if not lines:
        return node_states
    known = _spans(node_states, lines)
    found: list[_State] = []
    for node, of_node in sorted(lines.items()):
        spans = known.get(node, ())
        found += [one for one in _intervals(of_node) if not any(_meet(one, s) for s in spans)]
    if not found:
        return node_states
    _close(found, allocations)
    rows = [_row(one) for one in found]
    made = ibis.memtable(pa.Table.from_pylist(rows, schema=NODE_STATES.arrow_schema))
    stored = node_states.select(*NODE_STATES.names)
    return ibis.union(stored, made.cast(stored.schema()), distinct=False)


def _lines(events: Table) -> dict[Node, list[_StateLine]]:
    """The lines that say something of a node's state, of each node in order of time."""
    codes = [*_BEGINS, _ENDS, _REASON]
    of_state = events.filter(
        (events.check == SLURMCTLD) & events.code.isin(codes) & events.node.notnull()
    )
    rows = of_state.select(
        "cluster", "node", "time", "code", "message", "source", "file_id", "line"
    )
    of_node: dict[Node, list[_StateLine]] = defaultdict(list)
    for row in rows.order_by("time", "file_id", "line").to_pyarrow().to_pylist():
        of_node[row["cluster"], row["node"]].append(_StateLine(**row))
    return of_node


def _intervals(lines: Sequence[_StateLine]) -> list[_State]:
    """States of one node from its lines; the last may be open."""
    found: list[_State] = []
    open_states: list[_State] = []
    reason: tuple[datetime, str] | None = None
    for line in lines:
        time, code, message = line.time, line.code, line.message or ""
        if code == _REASON:
            given = _SET_REASON.search(message)
            reason = (time, given[1].strip()) if given else None
            for one in open_states:
                if reason and one.reason is None and time - one.start <= _ONE_UPDATE:
                    one.reason = reason[1]
        elif code == _ENDS:
            for one in open_states:
                one.end = time
            open_states = []
        elif code != _MISMATCH or _INVALID.search(message):
            state, flags, usual = _BEGINS[code]
            if any(one.state == state for one in open_states):
                continue
            own = _OWN_REASON.search(message)
            text = own[1].strip() if own else None
            if text is None and reason and time - reason[0] <= _ONE_UPDATE:
                text = reason[1]
            if state == "DOWN" and "not responding" in message:
                flags, usual = _SILENT
            if text and code == _MISMATCH:
                # the drain that follows is for the same
                reason = (time, text)
            open_states.append(_State(state, flags, text or usual, time, None, line))
            found.append(open_states[-1])
    return found


def _spans(node_states: Table, nodes: Iterable[Node]) -> dict[Node, list[Span]]:
    """When other logs have those nodes in some state."""
    names = sorted({node for _, node in nodes})
    rows = node_states.filter(node_states.node.isin(names)).select(
        "cluster", "node", "start", "end"
    )
    spans: dict[Node, list[Span]] = defaultdict(list)
    for row in rows.to_pyarrow().to_pylist():
        spans[row["cluster"], row["node"]].append((row["start"], row["end"]))
    return spans


def _meet(one: _State, span: Span) -> bool:
    start, end = span
    begins_before_its_end = end is None or one.start <= end + _SAME_START
    return begins_before_its_end and (one.end is None or one.end >= start - _SAME_START)


def _close(found: Sequence[_State], allocations: Table) -> None:
    """End the open states of nodes on which a job started later: there the node was back."""
    open_states = [one for one in found if one.end is None]
    if not open_states:
        return
    nodes = sorted({one.line.node for one in open_states})
    started: dict[Node, list[datetime]] = defaultdict(list)
    rows = allocations.filter(allocations.node.isin(nodes)).select("cluster", "node", "start")
    for row in rows.to_pyarrow().to_pylist():
        started[row["cluster"], row["node"]].append(row["start"])
    for one in open_states:
        later = [
            start
            for start in started[one.line.cluster, one.line.node]
            if start > one.start + _SAME_START
        ]
        one.end = min(later, default=None)


def _row(one: _State) -> dict[str, object]:
    kept = ("cluster", "node", "source", "file_id", "line")
    return {
        **{name: getattr(one.line, name) for name in kept},
        "state": one.state,
        "flags": one.flags,
        "reason": one.reason or None,
        "user": None,
        "start": one.start,
        "end": one.end,
    }
