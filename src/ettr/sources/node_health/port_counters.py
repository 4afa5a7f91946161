"""Port counters of `perfquery` and ibdiagnet's db_csv: links that err.

Format: infiniband-diags' `perfquery`; the section PM_INFO of `ibdiagnet2.db_csv`. Counters are
totals since they were cleared: what is above zero is an event, of the file's time and node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError, first_texts, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch

NAME = "port-counters"
CHECK = "ib port counters"
ERRORS = {
    "symbolerrorcounter": "symbol-errors",
    "symbolerrors": "symbol-errors",
    "symbol_error_counter": "symbol-errors",
    "linkerrorrecoverycounter": "link-recovered",
    "linkrecovers": "link-recovered",
    "link_error_recovery_counter": "link-recovered",
    "linkdownedcounter": "link-downed",
    "linkdowned": "link-downed",
    "link_downed_counter": "link-downed",
    "portrcverrors": "receive-errors",
    "rcverrors": "receive-errors",
    "port_rcv_errors": "receive-errors",
    "locallinkintegrityerrors": "link-integrity",
    "linkintegrityerrors": "link-integrity",
    "local_link_integrity_errors": "link-integrity",
}
"""Counters of a link's own errors; discards and waits are congestion."""
_PORT = re.compile(r"#\s*Port (?:extended )?counters: Lid (\d+) (?:port (\d+)|all ports)")
_COUNTER = re.compile(r"([A-Za-z]\w+):\.*(\d{1,20})\s*$")
_TORN = re.compile(r"[A-Za-z]\w+:\.*\s*$")
_BEGIN, _END = "START_PM_INFO", "END_PM_INFO"


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """One event for each error counter above zero, and a pass for each port without any."""
    rows = LogRows(NAME, origin, options)
    rows.note(
        "counters are totals since they were cleared; their time is when the file was last "
        f"changed ({origin.changed:%Y-%m-%d})"
    )
    node, port, first, seen = None, "", 0, dict[str, int]()
    columns: list[str] | None = None

    def keep(number: int, line: str) -> None:
        nonlocal node, port, first, seen, columns
        if found := _PORT.search(line):
            _keep(rows, first, node, port, seen)
            node = node or rows.node_of_file()
            port, first, seen = f"lid {found[1]} port {found[2] or 'all'}", number, {}
            rows.count_folded()
        elif line.strip() in (_BEGIN, _END):
            columns = [] if line.strip() == _BEGIN else None
            rows.count_skipped()
        elif columns is not None:
            columns = _of_csv(rows, number, line, columns)
        elif found := _COUNTER.match(line):
            seen[found[1].lower()] = int(found[2])
            rows.count_folded()
        elif _TORN.match(line):
            raise BadRecordError("bad-number", "a torn counter")
        else:
            rows.count_skipped()

    yield from rows.each(numbered_texts(origin), keep)
    _keep(rows, first, node, port, seen)
    yield rows.batch()


def _of_csv(rows: LogRows, number: int, line: str, columns: list[str]) -> list[str]:
    """A line of PM_INFO: its head, or the counters of a port. Returns the columns."""
    cells = [one.strip() for one in line.split(",")]
    if not columns:
        rows.count_skipped()
        return [one.lower() for one in cells]
    if len(cells) != len(columns):
        raise BadRecordError("bad-number", f"{len(cells)} cells, not {len(columns)}")
    values = dict(zip(columns, cells, strict=True))
    seen = {name: int(value) for name, value in values.items() if re.fullmatch(r"\d{1,20}", value)}
    port = f"{values.get('nodeguid', '?')} port {values.get('portnumber', '?')}"
    rows.count_folded()
    # a GUID is no node: what link it is stands in the entity
    _keep(rows, number, None, port, seen)
    return columns


def _keep(rows: LogRows, line: int, node: str | None, port: str, seen: dict[str, int]) -> None:
    if not port:
        return
    errors = {ERRORS[name]: value for name, value in seen.items() if name in ERRORS and value > 0}
    if not errors and not ERRORS.keys() & seen.keys():
        return
    for code, value in errors.items() or [(None, 0)]:
        down = code == "link-downed"
        rows.derives("events")
        rows.events.add(
            line=line,
            time=rows.origin.changed,
            node=node,
            check=CHECK,
            code=code,
            severity="ok" if code is None else "critical" if down else "warning",
            entity_type="LINK",
            entity=port,
            message=None if code is None else f"{value} {code.replace('-', ' ')}",
        )


def matches(head: bytes, _name: str) -> float:
    """How sure it is that these are counters of InfiniBand ports."""
    lines = list(first_texts(head))
    if any(_PORT.search(one) for one in lines):
        return 0.95
    return 0.95 if any(one.strip() == _BEGIN for one in lines) else 0.0


SOURCE = Source(
    name=NAME,
    title="InfiniBand port counters: perfquery, ibdiagnet's db_csv",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    guide="sources/validation.md",
    how_to_get="perfquery > NODE.txt on each node; ibdiagnet -o DIR, ibdiagnet2.db_csv",
)
