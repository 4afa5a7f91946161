"""The InfiniteHBD fault trace: starts and ends of faults of a GPU fleet.

The trace names only nodes that failed, and counts days since it began, so the size of the fleet is
asked for. Day 0 is 2024-03-30 UTC unless a start is given.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ettr.errors import UsageError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.json_records import JsonObject, head_objects
from ettr.sources.limits import MOST_NODES
from ettr.sources.lines import BadRecordError
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch, clean
from ettr.words import by_number, counted

NAME = "infinitehbd"
CLUSTER = "infinitehbd"
DAY_ZERO = datetime(2024, 3, 30, tzinfo=UTC)
_MOST_DAYS = 36_500.0


@dataclass(slots=True)
class _Fault:
    """One fault of a node: its type in one string, its days, and the line of its start."""

    node: str
    kind: str
    start_day: float
    line: int
    end_day: float | None = None


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Nodes of the whole fleet, an event for each fault, and the intervals in which nodes are down.

    A fault's start and end pair by node and fault type, first in first out. Overlapping faults of
    one node make one interval of DOWN; the events keep each.

    Raises:
        UsageError: the size of the fleet was not given, or is less than the nodes that failed.
    """
    rows = LogRows(NAME, origin, options)
    zero = (options.start or DAY_ZERO).astimezone(UTC)
    faults: list[_Fault] = []
    days: list[float] = []
    open_faults: dict[tuple[str, str], deque[_Fault]] = defaultdict(deque)

    def keep(line: int, value: JsonObject) -> None:
        node, day, kind, is_start = _parts(value)
        days.append(day)
        waiting = open_faults[node, kind]
        if is_start:
            faults.append(_Fault(node, kind, day, line))
            waiting.append(faults[-1])
        elif waiting and waiting[0].start_day <= day:
            waiting.popleft().end_day = day
            rows.count_folded()
        else:
            detail = f"node {node}: no open fault of type {kind}"
            raise BadRecordError("end-without-start", detail)

    yield from rows.each_object(keep)
    failed = sorted({fault.node for fault in faults})
    _check_fleet(rows, len(failed))
    if n_open := sum(map(len, open_faults.values())):
        rows.note(f"{counted(n_open, 'fault')} had not ended when the trace did")
    if options.start is None:
        rows.note("day 0 of the trace was taken as 2024-03-30 UTC")
    for fault in faults:
        _add_event(rows, fault, zero)
    _add_nodes(rows, failed, zero, zero + timedelta(days=max(days, default=0.0)))
    _add_down_intervals(rows, faults, zero)
    yield rows.batch()


def _check_fleet(rows: LogRows, n_failed: int) -> None:
    n_nodes = rows.options.n_nodes
    if n_nodes is None:
        raise UsageError(
            f"{rows.origin}: the trace names the {n_failed} nodes that failed and not how many "
            "there are; say so with --nodes N (the published trace has 400)"
        )
    if not n_failed <= n_nodes <= MOST_NODES:
        raise UsageError(
            f"{rows.origin}: --nodes {n_nodes}: give at least the {n_failed} nodes that the trace "
            f"names, and at most {MOST_NODES}"
        )


def _parts(value: JsonObject) -> tuple[str, float, str, bool]:
    """Node, day and kind of a fault, and whether it starts."""
    node, day, fault = clean(value.get("node_id")), value.get("event_time"), value.get("fault_type")
    event = value.get("event_type")
    if node is None or not isinstance(fault, dict) or event not in {"fault_start", "fault_end"}:
        detail = "needs node_id, event_type fault_start or fault_end, and fault_type"
        raise BadRecordError("missing-field", detail)
    if isinstance(day, bool) or not isinstance(day, int | float) or not 0 <= day <= _MOST_DAYS:
        raise BadRecordError("bad-timestamp", f"event_time is {day!r:.100}")
    words = [clean(fault.get(part)) or "" for part in ("Level", "Class", "Desc")]
    return node, float(day), "/".join(words), event == "fault_start"


def _add_event(rows: LogRows, fault: _Fault, zero: datetime) -> None:
    end = None if fault.end_day is None else zero + timedelta(days=fault.end_day)
    rows.events.add(
        line=fault.line,
        time=zero + timedelta(days=fault.start_day),
        time_end=end,
        node=fault.node,
        check=NAME,
        code=fault.kind,
        message=fault.kind.rsplit("/", 1)[-1] or None,
        cluster=CLUSTER,
    )


def _add_nodes(rows: LogRows, failed: list[str], begin: datetime, end: datetime) -> None:
    n_others = (rows.options.n_nodes or 0) - len(failed)
    others = [f"unseen-{number:05d}" for number in range(1, n_others + 1)]
    if others:
        rows.note(
            by_number(
                "{n} [node|nodes] without a fault [is|are] not in the trace; [it is|they are] "
                "named unseen-N",
                n_others,
            )
        )
    for node in (*failed, *others):
        rows.derive(
            "nodes",
            line=1,
            cluster=CLUSTER,
            node=node,
            n_gpus=rows.options.gpus_per_node,
            in_service_from=begin,
            in_service_to=end,
        )


def _add_down_intervals(rows: LogRows, faults: list[_Fault], zero: datetime) -> None:
    by_node: dict[str, list[_Fault]] = defaultdict(list)
    for fault in faults:
        by_node[fault.node].append(fault)
    for node, own in by_node.items():
        for fault, end_day, kinds in _union(sorted(own, key=lambda f: f.start_day)):
            rows.derive(
                "node_states",
                line=fault.line,
                cluster=CLUSTER,
                node=node,
                state="DOWN",
                reason="; ".join(dict.fromkeys(kinds)),
                start=zero + timedelta(days=fault.start_day),
                end=None if end_day is None else zero + timedelta(days=end_day),
            )


def _union(faults: list[_Fault]) -> Iterator[tuple[_Fault, float | None, list[str]]]:
    """Intervals that cover the faults: the first fault of each, its end, and all their types."""
    first, end, kinds = faults[0], faults[0].end_day, [faults[0].kind]
    for fault in faults[1:]:
        if end is None or fault.start_day <= end:
            end = None if end is None or fault.end_day is None else max(end, fault.end_day)
            kinds.append(fault.kind)
        else:
            yield first, end, kinds
            first, end, kinds = fault, fault.end_day, [fault.kind]
    yield first, end, kinds


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is an InfiniteHBD fault trace."""
    for value in head_objects(head, most=3):
        if "node_id" in value and "fault_type" in value and "event_type" in value:
            return 0.95
    return 0.9 if b'"fault_type"' in head and b'"node_id"' in head else 0.0


SOURCE = Source(
    name=NAME,
    title="InfiniteHBD fault trace (JSON)",
    tables=("nodes", "events", "node_states"),
    matches=matches,
    read=read,
    options=("--nodes", "--gpus-per-node", "--start"),
    how_to_get="github.com/stepfun-ai/InfiniteHBD-Trace",
)
