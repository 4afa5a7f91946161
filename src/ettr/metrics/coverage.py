"""Gaps in the logs: what each source recorded on each day, and holes beyond chance."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

import ibis
import numpy as np

from ettr.tables.ibis_time import epoch_s
from ettr.units import SECONDS_PER_DAY

HOLE_CHANCE = 1e-4
_DAY_S = int(SECONDS_PER_DAY)
_EPOCH = date(1970, 1, 1)
_DAY_OF = {
    "attempts": "submit",
    "node_states": "start",
    "events": "time",
    "progress": "time",
}


@dataclass(frozen=True, slots=True)
class Hole:
    """Days in a row, both ends included, without a row."""

    first_day: str
    last_day: str
    days: int


@dataclass(frozen=True, slots=True)
class DayCount:
    """Rows of one UTC day."""

    day: str
    rows: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one source put into one table, day by day.

    A hole is reported where the chance of so many days without a row, at the source's median rate
    on days with rows, is under one in ten thousand.
    """

    table: str
    source: str
    rows: int
    first_day: str
    last_day: str
    days_with_rows: int
    rows_per_day: tuple[DayCount, ...]
    holes: tuple[Hole, ...]


def coverage(
    tables: dict[str, ibis.Table], census: ibis.Table | None = None
) -> tuple[Coverage, ...]:
    """Days covered by each source, and their holes.

    Args:
        tables: any of attempts, node_states, events and progress, by name.
        census: of the events (`event_census`), where it is at hand; it saves reading them again.
    """
    found = []
    for name, column in _DAY_OF.items():
        if name not in tables:
            continue
        table = tables[name]
        if name == "events" and census is not None:
            counted = census.group_by("source", "day").aggregate(rows=census["events"].sum())
        else:
            counted = (
                table.mutate(day=(epoch_s(table[column]) // _DAY_S).cast("int64"))
                .group_by("source", "day")
                .aggregate(lambda t: t.count().name("rows"))
            )
        rows = counted.to_pyarrow().to_pylist()
        by_source: dict[str, dict[date, int]] = defaultdict(dict)
        for row in rows:
            by_source[row["source"]][_EPOCH + timedelta(days=row["day"])] = int(row["rows"])
        found += [_coverage(name, source, days) for source, days in sorted(by_source.items())]
    return tuple(found)


def _coverage(table: str, source: str, days: dict[date, int]) -> Coverage:
    order = sorted(days)
    usual = float(np.median(list(days.values())))
    holes = []
    for before, after in pairwise(order):
        missing = (after - before).days - 1
        if missing > 0 and np.exp(-usual * missing) < HOLE_CHANCE:
            first, last = before + timedelta(days=1), after - timedelta(days=1)
            holes.append(Hole(first.isoformat(), last.isoformat(), missing))
    return Coverage(
        table=table,
        source=source,
        rows=sum(days.values()),
        first_day=order[0].isoformat(),
        last_day=order[-1].isoformat(),
        days_with_rows=len(order),
        rows_per_day=tuple(DayCount(day.isoformat(), days[day]) for day in order),
        holes=tuple(holes),
    )
