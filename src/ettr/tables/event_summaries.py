"""What is asked of all events: how many of a kind a day has, on which days those of a node came.

A store of files keeps both for its large parts, so that a report does not read tens of millions of
events for a few thousand numbers. Summaries of parts are summed to that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ettr.tables.columns import Column, Kind, Table
from ettr.tables.schemas import EVENTS

if TYPE_CHECKING:
    from ibis.expr.types import Table as IbisTable

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
        table: its schema.
        counted: a statement of DuckDB that makes it of rows of the table `events`; `{events}` is
            where these stand.
        of: the summary of rows of the table `events`.
        summed: the summary of all, from rows of summaries of their parts.
    """

    table: Table
    counted: str
    of: Callable[[IbisTable], IbisTable]
    summed: Callable[[IbisTable], IbisTable]


def census(events: IbisTable, kind: tuple[str, ...] = KIND) -> IbisTable:
    """Events of each kind and UTC day.

    Columns: those of `kind`, `day`, `events` (how many), `first` and `last` (times of the first and
    the last), `first_end` and `last_end` (the same of `time_end`).

    Args:
        events: the table `events`.
        kind: the columns that make a kind.
    """
    from ettr.tables.ibis_time import epoch_day

    daily = events.mutate(day=epoch_day(events["time"]))
    return daily.group_by(*kind, "day").aggregate(
        events=daily.count(),
        first=daily["time"].min(),
        last=daily["time"].max(),
        first_end=daily["time_end"].min(),
        last_end=daily["time_end"].max(),
    )


def summed_census(parts: IbisTable) -> IbisTable:
    """The census of all events from those of their parts."""
    return parts.group_by(*KIND, "day").aggregate(
        events=parts["events"].sum(),
        first=parts["first"].min(),
        last=parts["last"].max(),
        first_end=parts["first_end"].min(),
        last_end=parts["last_end"].max(),
    )


def node_days(events: IbisTable) -> IbisTable:
    """Events of each node and UTC day; those that name no node are left out.

    Columns: `cluster`, `node`, `day`, and `errors`: how many of the events are kernel messages and
    health checks, which the node's own logs hold. It is 0 where only the controller names the node.

    Args:
        events: the table `events`.
    """
    from ettr.tables.ibis_time import epoch_day

    named = events.filter(events["node"].notnull())
    own = named["check"] != CONTROLLER_CHECK
    keyed = named.select("cluster", "node", day=epoch_day(named["time"]), own=own)
    return keyed.group_by("cluster", "node", "day").aggregate(
        errors=keyed.count(where=keyed["own"])
    )


def summed_node_days(parts: IbisTable) -> IbisTable:
    """The days of all events from those of their parts."""
    return parts.group_by("cluster", "node", "day").aggregate(errors=parts["errors"].sum())


def node_kinds(events: IbisTable) -> IbisTable:
    """Events of each kind of each node; those that name no node are left out.

    Columns: `cluster`, `node`, `check`, `code`, `severity`, `events`: how many, `first` and `last`.

    Args:
        events: the table `events`.
    """
    named = events.filter(events["node"].notnull())
    return named.group_by(*_NODE_KIND).aggregate(
        events=named.count(), first=named["time"].min(), last=named["time"].max()
    )


def summed_node_kinds(parts: IbisTable) -> IbisTable:
    """The kinds of all events by node from those of their parts."""
    return parts.group_by(*_NODE_KIND).aggregate(
        events=parts["events"].sum(), first=parts["first"].min(), last=parts["last"].max()
    )


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
    census,
    summed_census,
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
    node_days,
    summed_node_days,
)
EVENT_NODE_KINDS = EventSummary(
    Table(
        "event_node_kinds",
        "the events of one kind of one node",
        _NODE_KIND,
        (
            _COLUMNS["cluster"],
            _NODE,
            *(_COLUMNS[name] for name in _NODE_KIND[2:]),
            _EVENTS,
            *_ENDS,
        ),
    ),
    (
        'SELECT cluster, node, "check", code, severity, count(*) AS events, min("time") AS first, '
        'max("time") AS last FROM {events} WHERE node IS NOT NULL '
        'GROUP BY cluster, node, "check", code, severity'
    ),
    node_kinds,
    summed_node_kinds,
)
EVENT_SUMMARIES = {one.table.name: one for one in (EVENT_CENSUS, EVENT_NODE_DAYS, EVENT_NODE_KINDS)}
