"""LANL's failure records of 1995 to 2005 (LA-UR-05-7318), as its CSV file has them.

Each system becomes a cluster `lanl-N`. The times are local to Los Alamos and carry no zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError, csv_lines, integer_of, text_in
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch, clean, text_of
from ettr.words import by_number

NAME = "lanl"

_NEEDED = ("System", "nodenum", "nodenumz", "Prob Started", "Prob Fixed", "Down Time")
_CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
_LEAST = ("System", "Prob Started")


@dataclass(slots=True)
class _Outage:
    """One failure: where, from, to, why, its line, and what its node is made of."""

    cluster: str
    node: str | None
    start: datetime
    end: datetime | None
    code: str | None
    line: int
    group: str | None
    n_cpus: int | None


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """An event for each record, the intervals in which nodes were down, and the nodes named.

    Raises:
        SourceError: the header is not that of the file.
        UsageError: no zone was given.
    """
    rows = LogRows(NAME, origin, options)
    rows.zone()
    header, lines = csv_lines(origin)
    if missing := [name for name in _NEEDED if name not in header]:
        raise SourceError(f"{origin}: not LANL's file: no column {', '.join(missing)}")
    outages: list[_Outage] = []

    def keep(line: int, record: dict[str, str]) -> None:
        outages.append(_outage(rows, record, line))
        _add_event(rows, outages[-1], record)

    yield from rows.each_row(keep, header, lines, by_hand=True)
    rows.note("each LANL system was taken as a cluster of its own; a node's GPUs are not known")
    _add_nodes(rows, outages)
    _add_down_intervals(rows, outages)
    yield rows.batch()


def _outage(rows: LogRows, record: dict[str, str], line: int) -> _Outage:
    """The outage that a record reports."""
    system = text_in(record["System"], "System")
    start = _time(record["Prob Started"], rows)
    if start is None:
        raise BadRecordError("bad-timestamp", f"Prob Started is {record['Prob Started']!r:.100}")
    end = _time(record["Prob Fixed"], rows)
    minutes = integer_of(record["Down Time"])
    if end is None or end < start:
        # a repair over the hour that clocks go back seems to end before it began: its length holds
        rows.note("records whose fix lies before their start took their end from Down Time")
        end = _after(start, minutes)
    group = (f"{name} {record[name]}" for name in ("cputype", "memtype") if record.get(name))
    return _Outage(
        f"lanl-{system}",
        _node(rows, record),
        start,
        end,
        _code(record),
        line,
        ", ".join(group) or None,
        integer_of(record.get("procsinnode")),
    )


def _after(start: datetime, minutes: int | None) -> datetime | None:
    try:
        return None if minutes is None else start + timedelta(minutes=minutes)
    except OverflowError:
        return None


def _node(rows: LogRows, record: dict[str, str]) -> str | None:
    zero_based, as_named = clean(record.get("nodenumz")), clean(record.get("nodenum"))
    if zero_based:
        return f"node{zero_based}"
    if as_named:
        rows.note("records without a zero-based node number took the other one, as node-N")
        return f"node-{as_named}"
    return None


def _time(text: str, rows: LogRows) -> datetime | None:
    for form in ("%m/%d/%Y %H:%M", "%m/%d/%y %H:%M"):
        try:
            stamp = datetime.strptime(text, form)  # noqa: DTZ007
            return rows.utc(stamp, is_ordered=False) if stamp.year >= 1980 else None
        except (ValueError, OverflowError):
            continue
    return None


def _code(record: dict[str, str]) -> str | None:
    """The cause as `Category/text`, or the category where the text only repeats it."""
    for category in _CAUSES:
        text = clean(record.get(category))
        if text:
            return category if text == category else f"{category}/{text}"
    return None


def _add_event(rows: LogRows, outage: _Outage, record: dict[str, str]) -> None:
    rows.events.add(
        line=outage.line,
        time=outage.start,
        time_end=outage.end,
        node=outage.node,
        cluster=outage.cluster,
        check=NAME,
        code=outage.code,
        message=clean(record.get("purpose")),
    )


def _add_nodes(rows: LogRows, outages: list[_Outage]) -> None:
    first: dict[tuple[str, str], _Outage] = {}
    for outage in outages:
        if outage.node:
            first.setdefault((outage.cluster, outage.node), outage)
    for outage in first.values():
        rows.derive(
            "nodes",
            line=outage.line,
            cluster=outage.cluster,
            node=outage.node,
            n_cpus=outage.n_cpus,
            hardware_group=outage.group,
        )


def _add_down_intervals(rows: LogRows, outages: list[_Outage]) -> None:
    """Intervals of DOWN, one for each node and start: of records that share both, the longest."""
    longest: dict[tuple[str, str, datetime], _Outage] = {}
    n_without_node = n_same_start = 0
    for outage in outages:
        if outage.node is None:
            n_without_node += 1
            continue
        key = (outage.cluster, outage.node, outage.start)
        known = longest.get(key)
        n_same_start += known is not None
        if known is None or (known.end or known.start) < (outage.end or outage.start):
            longest[key] = outage
    if n_same_start:
        rows.note(
            by_number(
                "{n} [record shares|records share] node and start with another; the longer of each "
                "is the interval of DOWN, and the events keep all",
                n_same_start,
            )
        )
    if n_without_node:
        rows.note(by_number("{n} [record names|records name] no node: events only", n_without_node))
    for outage in longest.values():
        rows.derive(
            "node_states",
            line=outage.line,
            cluster=outage.cluster,
            node=outage.node,
            state="DOWN",
            reason=outage.code,
            start=outage.start,
            end=outage.end,
        )


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this is LANL's file."""
    first = text_of(head[:4096]).split("\n", 1)[0].lstrip("\ufeff")
    cells = {cell.strip() for cell in first.split(",")}
    if set(_NEEDED) <= cells:
        return 1.0
    return 0.8 if set(_LEAST) <= cells and "Prob Fixed" in cells else 0.0


SOURCE = Source(
    name=NAME,
    title="LANL failure records LA-UR-05-7318 (CSV)",
    tables=("events", "node_states", "nodes"),
    matches=matches,
    read=read,
    local_time=True,
    options=("--timezone",),
    how_to_get="usrc.lanl.gov, LA-UR-05-7318; --timezone America/Denver",
)
