"""Gaps in the logs: what each source recorded on each day, and holes beyond chance."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

import numpy as np

from ettr.facts import Facts

HOLE_CHANCE = 1e-4
_EPOCH = date(1970, 1, 1)
_DATED = ("attempts", "node_states", "events", "progress")


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


def coverage(facts: Facts) -> tuple[Coverage, ...]:
    """Days that each source of attempts, states of nodes, events and progress covers, and holes."""
    by_source: dict[tuple[str, str], dict[date, int]] = defaultdict(dict)
    for row in facts.rows("rows_by_day"):
        day = _EPOCH + timedelta(days=row["day"])
        by_source[row["table_name"], row["source"]][day] = row["n_rows"]
    ordered = sorted(by_source, key=lambda key: (_DATED.index(key[0]), key[1]))
    return tuple(_coverage(*key, by_source[key]) for key in ordered)


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
