"""Tables of nccl-tests: the bus bandwidth by size, of the nodes that its header lists.

Format: nccl-tests' README and `doc/PERFORMANCE.md`. A table states no time: it is taken from when
the file was last changed. The largest size of a table is an event of each of its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import BadRecordError, first_texts, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.origin import Origin
from ettr.tables.rows import Batch

NAME = "nccl-tests"
CHECK = "nccl-tests"
_HEAD = re.compile(r"#\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes\s+\d+")
_RANK = re.compile(r"#\s*Rank\s+\d+\s.*?\bon\s+(\S+)\s+device\s+\d+")
_COMMAND = re.compile(r"\b((?:all_reduce|all_gather|reduce_scatter|alltoall|broadcast)_perf)\b")
_ROW = re.compile(
    r"\s*(\d{1,18})\s+\d+\s+\w+\s+\w+\s+-?\d+"
    r"\s+[\d.e+]+\s+[\d.e+]+\s+([\d.e+]+)\s+(\d+|N/A)"
    r"(?:\s+[\d.e+]+\s+[\d.e+]+\s+([\d.e+]+)\s+(\d+|N/A))?\s*$"
)
_TABLE_LINE = re.compile(r"\s*\d{1,18}\s+\d+\s+\w+\s")


@dataclass(slots=True)
class _Table:
    """What is known of the table that is being read."""

    operation: str = "all_reduce_perf"
    nodes: list[str] = field(default_factory=list)
    ranks: int = 0
    line: int = 0
    size_bytes: int = 0
    busbw: float = 0.0
    wrong: int = 0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """The bandwidth at the largest size, an event of each node; wrong values are critical."""
    rows = LogRows(NAME, origin, options)
    rows.note_time_of_file("tables")
    table, operation = _Table(), ""

    def keep(number: int, line: str) -> None:
        nonlocal table, operation
        if found := _COMMAND.search(line):
            operation = found[1]
        if _HEAD.search(line):
            _keep(rows, table)
            table = _Table(operation or "all_reduce_perf")
        if found := _RANK.search(line):
            table.ranks += 1
            table.nodes += [] if found[1] in table.nodes else [found[1]]
            rows.count_folded()
        elif found := _ROW.match(line):
            _see(table, number, found)
            rows.count_folded()
        elif _TABLE_LINE.match(line):
            raise BadRecordError("bad-number", "a torn row of the table")
        else:
            rows.count_skipped()

    yield from rows.each(numbered_texts(origin), keep)
    _keep(rows, table)
    yield rows.batch()


def _see(table: _Table, number: int, found: re.Match[str]) -> None:
    """The row of the largest size so far."""
    counts = (found[3], found[5])
    table.wrong += sum(int(one[:15]) for one in counts if one and one.isdecimal())
    size = int(found[1])
    if size >= table.size_bytes:
        table.size_bytes, table.line = size, number
        shares = [float(one) for one in (found[2], found[4]) if one and _is_float(one)]
        table.busbw = max(shares, default=0.0)


def _is_float(text: str) -> bool:
    try:
        return 0.0 <= float(text) < 1e9
    except ValueError:
        return False


def _keep(rows: LogRows, table: _Table) -> None:
    if not table.size_bytes:
        return
    nodes: list[str | None] = [*table.nodes]
    says = (
        f"busbw {table.busbw:g} GB/s of {table.operation} at {table.size_bytes} bytes on "
        f"{len(table.nodes) or 1} nodes, {table.ranks} ranks"
    )
    for node in nodes or [rows.node_of_file()]:
        rows.derives("events")
        rows.events.add(
            line=table.line,
            time=rows.origin.changed,
            node=node,
            check=CHECK,
            code="wrong-values" if table.wrong else "busbw",
            severity="critical" if table.wrong else "ok",
            message=f"{table.wrong} wrong values; {says}" if table.wrong else says,
            # the table that it is of: nodes of one table were measured together
            entity_type="TEST",
            entity=f"{rows.origin.file_id[:12]}:{table.line}",
        )


def matches(head: bytes, _name: str) -> float:
    """How sure it is that this holds tables of nccl-tests."""
    lines = list(first_texts(head))
    return 0.95 if any(_HEAD.search(one) for one in lines) else 0.0


SOURCE = Source(
    name=NAME,
    title="nccl-tests: bus bandwidth by size, with the nodes",
    tables=("events",),
    matches=matches,
    read=read,
    options=("--cluster",),
    guide="sources/validation.md",
    how_to_get="all_reduce_perf -b 8 -e 8G -f 2 -g 1 > FILE",
)
