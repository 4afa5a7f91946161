"""Summaries of large parts of the events, made as the parts are ingested.

A report asks of all events how many of each kind a day has, and on which days those of each node
came. A part never changes, so neither do its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ettr.store.base import with_every_column
from ettr.tables import EVENTS
from ettr.tables.event_summaries import EVENT_SUMMARIES, EventSummary

if TYPE_CHECKING:
    import duckdb

LEAST_ROWS = 100_000
"""Rows of a part that has summaries; fewer are as soon read as their summary."""


def summaries_of(
    engine: Callable[[], duckdb.DuckDBPyConnection],
    parts: Iterable[Path],
    kept: Iterable[Path],
    new_summary: Callable[[str, Path], Path],
) -> dict[str, list[Path]]:
    """Paths of the summaries of those parts of the events, by the name of the summary."""
    there = {(path.parent.name, path.name): path for path in kept}
    large = [part for part in parts if pq.read_metadata(part).num_rows >= LEAST_ROWS]
    found: dict[str, list[Path]] = {name: [] for name in EVENT_SUMMARIES}
    opened: duckdb.DuckDBPyConnection | None = None
    for name, summary in EVENT_SUMMARIES.items():
        for part in large:
            path = there.get((name, part.name))
            if path is None:
                opened = opened or engine()
                path = new_summary(name, part)
                _write(opened, summary, part, path)
            found[name].append(path)
    if opened is not None:
        opened.close()
    return found


def summary_rows(
    duck: duckdb.DuckDBPyConnection, summary: EventSummary, parts: list[Path], kept: list[Path]
) -> str:
    """A SELECT of a summary's rows, to be summed: of what is kept, and of parts that have none."""
    columns = ", ".join(f'"{name}"' for name in summary.table.names)
    rows = f"SELECT {columns} FROM read_parquet([{_listed(kept)}])"  # noqa: S608 - names of ours
    summed_up = {path.name for path in kept}
    rest = [part for part in parts if part.name not in summed_up]
    if not rest:
        return rows
    return f"{rows} UNION ALL SELECT {columns} FROM ({_counted(duck, summary, rest)}) rest"  # noqa: S608


def _counted(duck: duckdb.DuckDBPyConnection, summary: EventSummary, parts: list[Path]) -> str:
    source = f"read_parquet([{_listed(parts)}], union_by_name = true)"
    there = duck.execute(f"SELECT * FROM {source} LIMIT 0").description or ()  # noqa: S608
    events = with_every_column(EVENTS, (column[0] for column in there), source)
    return summary.counted.format(events=f"({events}) events")


def _write(
    duck: duckdb.DuckDBPyConnection, summary: EventSummary, part: Path, target: Path
) -> None:
    columns = ", ".join(f'"{name}"' for name in summary.table.names)
    query = f"SELECT {columns} FROM ({_counted(duck, summary, [part])}) counted"  # noqa: S608
    duck.execute(
        f"COPY ({query}) TO {_listed([target])} "
        "(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
    )


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
