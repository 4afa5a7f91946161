"""Summaries of large parts of the events, made as the parts are ingested.

A report asks of all events how many of each kind a day has, and on which days those of each node
came. A part never changes, so neither do its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import ibis
import pyarrow.parquet as pq
from ibis.backends.duckdb import Backend

from ettr.store.base import with_every_column
from ettr.tables import EVENTS
from ettr.tables.event_summaries import EVENT_SUMMARIES, EventSummary

LEAST_ROWS = 100_000
"""Rows of a part that has summaries; fewer are as soon read as their summary."""


def summaries_of(
    backend: Callable[[], Backend],
    parts: Iterable[Path],
    kept: Iterable[Path],
    new_summary: Callable[[str, Path], Path],
) -> dict[str, list[Path]]:
    """Paths of the summaries of those parts of the events, by the name of the summary.

    Args:
        backend: opens an embedded DuckDB, where one is needed.
        parts: parts of the events.
        kept: summaries that are there; those of other parts are left out.
        new_summary: an empty file for a summary of that name of that part.
    """
    there = {(path.parent.name, path.name): path for path in kept}
    large = [part for part in parts if pq.read_metadata(part).num_rows >= LEAST_ROWS]
    found: dict[str, list[Path]] = {name: [] for name in EVENT_SUMMARIES}
    opened: Backend | None = None
    for name, summary in EVENT_SUMMARIES.items():
        for part in large:
            path = there.get((name, part.name))
            if path is None:
                opened = opened or backend()
                path = new_summary(name, part)
                _write(opened, summary, part, path)
            found[name].append(path)
    if opened is not None:
        opened.disconnect()
    return found


def summary_rows(
    backend: Backend, summary: EventSummary, parts: list[Path], kept: list[Path]
) -> ibis.Table:
    """Rows of a summary, to be summed: those that are kept, and those of parts that have none."""
    rows = backend.read_parquet([str(path) for path in kept]).select(*summary.table.names)
    summed_up = {path.name for path in kept}
    rest = [str(part) for part in parts if part.name not in summed_up]
    if not rest:
        return rows
    events = with_every_column(EVENTS, backend.read_parquet(rest, union_by_name=True))
    return ibis.union(rows, summary.of(events).select(*summary.table.names), distinct=False)


def _write(backend: Backend, summary: EventSummary, part: Path, target: Path) -> None:
    events = with_every_column(EVENTS, backend.read_parquet(str(part)))
    query = backend.compile(summary.of(events).select(*summary.table.names))
    quoted = str(target).replace("'", "''")
    backend.raw_sql(
        f"COPY ({query}) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
    )
