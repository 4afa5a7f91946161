"""What is asked of all events: how many of a kind a day has, on which days those of a node came.

A store of files keeps both for its large parts, so that a report does not read tens of millions of
events for a few thousand numbers. Summaries of parts are summed to that of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.tables.columns import Column, Kind, Table
from ettr.tables.schemas import EVENTS

CONTROLLER_CHECK = "slurmctld"
KIND = ("source", "check", "code", "severity")
_NODE_KIND = ("cluster", "node", "check", "code", "severity")
_DAY = Column("day", Kind.INT, "UTC day, as days since 1970")
_NODE = Column("node", Kind.STRING, "the node")
_EVENTS = Column("events", Kind.INT, "how many")
_ENDS = (
    Column("first", Kind.TIME, "time of the first"),
    Column("last", Kind.TIME, "time of the last"),
)
_COLUMNS = {column.name: column for column in EVENTS}


@dataclass(frozen=True, slots=True)
class EventSummary:
    """A table of few rows that says of events what would take a pass over all of them.

    Attributes:
        counted: a statement of DuckDB that makes it of rows of the table `events`; `{events}` is
            where these stand.
    """

    table: Table
    counted: str


EVENT_CENSUS = EventSummary(
    Table(
        "event_census",
        "the events of one kind on one UTC day",
        (*KIND, "day"),
        (
            *(_COLUMNS[name] for name in KIND),
            _DAY,
            _EVENTS,
            *_ENDS,
            Column("first_end", Kind.TIME, "the first `time_end`", "none has one"),
            Column("last_end", Kind.TIME, "the last `time_end`", "none has one"),
        ),
    ),
    (
        'SELECT source, "check", code, severity, epoch_us("time") // 86400000000 AS day, '
        'count(*) AS events, min("time") AS first, max("time") AS last, '
        "min(time_end) AS first_end, max(time_end) AS last_end FROM {events} "
        'GROUP BY source, "check", code, severity, epoch_us("time") // 86400000000'
    ),
)
EVENT_NODE_DAYS = EventSummary(
    Table(
        "event_node_days",
        "the events of one node on one UTC day",
        ("cluster", "node", "day"),
        (
            _COLUMNS["cluster"],
            _NODE,
            _DAY,
            Column("errors", Kind.INT, "how many its own logs hold: not the controller's"),
        ),
    ),
    (
        'SELECT cluster, node, epoch_us("time") // 86400000000 AS day, '
        "count(*) FILTER (WHERE \"check\" <> 'slurmctld') AS errors FROM {events} "
        'WHERE node IS NOT NULL GROUP BY cluster, node, epoch_us("time") // 86400000000'
    ),
)
EVENT_NODE_KINDS = EventSummary(
    Table(
        "event_node_kinds",
        "the events of one kind of one node",
        _NODE_KIND,
        (_COLUMNS["cluster"], _NODE, *(_COLUMNS[name] for name in _NODE_KIND[2:]), _EVENTS, *_ENDS),
    ),
    (
        'SELECT cluster, node, "check", code, severity, count(*) AS events, min("time") AS first, '
        'max("time") AS last FROM {events} WHERE node IS NOT NULL '
        'GROUP BY cluster, node, "check", code, severity'
    ),
)
EVENT_SUMMARIES = {one.table.name: one for one in (EVENT_CENSUS, EVENT_NODE_DAYS, EVENT_NODE_KINDS)}
