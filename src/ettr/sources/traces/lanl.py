"""LANL's failure records of 1995 to 2005 (LA-UR-05-7318), as its CSV file has them.

Each system becomes a cluster `lanl-N`. The times are local to Los Alamos and carry no zone.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import numbered_lines
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.sources.times import need_zone, utc_of_local
from ettr.tables.rows import BATCH_ROWS, Batch, table_of
from ettr.tables.text import clean, text_of

NAME = "lanl"

_NEEDED = ("System", "nodenum", "nodenumz", "Prob Started", "Prob Fixed", "Down Time")
_CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
_LEAST = ("System", "Prob Started")


@dataclass(slots=True)
class _Outage:
    """One failure: where, from, to, why, and its line."""

    cluster: str
    node: str | None
    start: datetime
    end: datetime | None
    code: str | None
    line: int


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """An event for each record, the intervals in which nodes were down, and the nodes named.

    Raises:
        SourceError: the header is not that of the file.
        UsageError: no zone was given.
    """
    zone = need_zone(options.timezone, str(origin))
    file = LogRows(NAME, origin, options)
    outages: list[_Outage] = []
    hardware: dict[tuple[str, str], tuple[str | None, int | None, int]] = {}
    header: list[str] | None = None
    for number, line in numbered_lines(origin):
        text = text_of(line).lstrip("\ufeff")
        cells = _cells(text)
        if header is None:
            header = [cell.strip() for cell in cells or ()]
            if missing := [name for name in _NEEDED if name not in header]:
                raise SourceError(f"{origin}: not LANL's file: no column {', '.join(missing)}")
            continue
        file.count_read()
        if cells is None:
            file.reject(number, "bad-csv", "not a line of CSV", text)
            continue
        if not any(cells):
            file.count_skipped()
            continue
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        outage = _outage(file, row, number, text, zone)
        if outage is None:
            continue
        _add_event(file, outage, row)
        outages.append(outage)
        if outage.node:
            key = (outage.cluster, outage.node)
            hardware.setdefault(key, (_group(row), _whole(row.get("procsinnode")), number))
        if len(file.events) >= BATCH_ROWS:
            yield file.batch()
    file.note("each LANL system was taken as a cluster of its own; a node's GPUs are not known")
    yield file.batch(nodes=_nodes(file, hardware), node_states=_down(file, outages))


def _cells(text: str) -> list[str] | None:
    try:
        return next(csv.reader([text.replace("\x00", "")]), [])
    except csv.Error:
        return None


def _outage(
    file: LogRows, row: dict[str, str], number: int, text: str, zone: str
) -> _Outage | None:
    system = clean(row.get("System"))
    if system is None:
        file.reject(number, "missing-field", "System is empty", text)
        return None
    start = _time(row.get("Prob Started", ""), zone)
    if start is None:
        detail = f"Prob Started is {row.get('Prob Started', '')!r:.100}"
        file.reject(number, "bad-timestamp", detail, text)
        return None
    end = _time(row.get("Prob Fixed", ""), zone)
    minutes = _whole(row.get("Down Time"))
    if end is None or end < start:
        # a repair over the hour that clocks go back seems to end before it began: its length holds
        file.note("records whose fix lies before their start took their end from Down Time")
        end = start + timedelta(minutes=minutes) if minutes is not None else None
    cluster = f"lanl-{system}"
    return _Outage(cluster, _node(file, row), start, end, _code(row), number)


def _node(file: LogRows, row: dict[str, str]) -> str | None:
    zero_based, as_named = clean(row.get("nodenumz")), clean(row.get("nodenum"))
    if zero_based:
        return f"node{zero_based}"
    if as_named:
        file.note("records without a zero-based node number took the other one, as node-N")
        return f"node-{as_named}"
    return None


def _time(text: str, zone: str) -> datetime | None:
    for form in ("%m/%d/%Y %H:%M", "%m/%d/%y %H:%M"):
        try:
            stamp = datetime.strptime(text, form)  # noqa: DTZ007
            return utc_of_local(stamp, zone) if stamp.year >= 1980 else None
        except (ValueError, OverflowError):
            continue
    return None


def _whole(text: str | None) -> int | None:
    plain = (text or "").strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 9 else None


def _code(row: dict[str, str]) -> str | None:
    """The cause as `Category/text`, or the category where the text only repeats it."""
    for category in _CAUSES:
        text = clean(row.get(category))
        if text:
            return category if text == category else f"{category}/{text}"
    return None


def _group(row: dict[str, str]) -> str | None:
    parts = [
        f"{name} {value}" for name in ("cputype", "memtype") if (value := clean(row.get(name)))
    ]
    return ", ".join(parts) or None


def _add_event(file: LogRows, outage: _Outage, row: dict[str, str]) -> None:
    file.events.add(
        line=outage.line,
        time=outage.start,
        time_end=outage.end,
        node=outage.node,
        cluster=outage.cluster,
        check=NAME,
        code=outage.code,
        message=clean(row.get("purpose")),
    )


def _nodes(
    file: LogRows, hardware: dict[tuple[str, str], tuple[str | None, int | None, int]]
) -> pa.Table:
    return table_of(
        "nodes",
        (
            {
                "cluster": cluster,
                "node": node,
                "n_cpus": n_cpus,
                "hardware_group": group,
                "source": NAME,
                "file_id": file.origin.file_id,
                "line": line,
            }
            for (cluster, node), (group, n_cpus, line) in hardware.items()
        ),
    )


def _down(file: LogRows, outages: list[_Outage]) -> pa.Table:
    """Intervals of DOWN, one for each node and start: of records that share both, the longest."""
    longest: dict[tuple[str, str, datetime], _Outage] = {}
    n_shared: dict[str, int] = defaultdict(int)
    for outage in outages:
        if outage.node is None:
            n_shared["no node"] += 1
            continue
        key = (outage.cluster, outage.node, outage.start)
        known = longest.get(key)
        n_shared["same start"] += known is not None
        if known is None or (known.end or known.start) < (outage.end or outage.start):
            longest[key] = outage
    if n_shared["same start"]:
        file.note(
            f"{n_shared['same start']} records share node and start with another; the longer "
            "of each is the interval of DOWN, and the events keep all"
        )
    if n_shared["no node"]:
        file.note(f"{n_shared['no node']} records name no node: events only")
    return table_of(
        "node_states",
        (
            {
                "cluster": outage.cluster,
                "node": outage.node,
                "state": "DOWN",
                "reason": outage.code,
                "start": outage.start,
                "end": outage.end,
                "source": NAME,
                "file_id": file.origin.file_id,
                "line": outage.line,
            }
            for outage in longest.values()
        ),
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
    names_cluster=True,
    options=("--timezone",),
    how_to_get="usrc.lanl.gov, LA-UR-05-7318; --timezone America/Denver",
)
