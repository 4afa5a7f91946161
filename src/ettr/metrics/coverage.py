"""The days that each source covers, holes beyond chance, and the time with errors of nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

import numpy as np

from ettr.facts import Facts
from ettr.metrics.instants import Period, to_datetime, to_seconds
from ettr.units import SECONDS_PER_DAY

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


# -- The part of the time in which errors of nodes were recorded, where logs of them begin late ---
#
# Of jobs that end FAILED only kernel messages and health checks name a cause. Where these begin
# a hundred days after the accounting, the failure rate seems to rise on that day.

LEAST_DAYS = 3
"""Days with rows, below which it is not known how regularly a log arrives."""
LEAST_SHARE = 0.5
"""Of the days from its first row to its last: a log that is silent when all is well says nothing
by its silence."""
_KERNEL = "kernel-xid"


@dataclass(frozen=True, slots=True)
class CoveredTime:
    """Where kernel messages and health checks cover part of a period.

    Attributes:
        since: Midnight UTC from which they arrive; None where they cover the beginning.
        until: Midnight UTC after their last day; None where they cover the end.
    """

    what: str
    since: datetime | None
    until: datetime | None
    covered_days: float
    days: float

    @property
    def bounds(self) -> str:
        """From when to when: `Kernel logs begin 2026-06-20`."""
        begin = f"begin {self.since:%Y-%m-%d}" if self.since else ""
        end = f"end {self.until:%Y-%m-%d}" if self.until else ""
        return f"{self.what} {' and '.join(filter(None, (begin, end)))}"

    @property
    def sentence(self) -> str:
        """What is wrong, and what counts instead."""
        return (
            f"{self.bounds}: they cover {self.covered_days:.3g} of {self.days:.3g} days. MTTF, the "
            "rate over time and comparisons are of these days alone; of the others, jobs that a "
            "node's fault ended as FAILED are not counted as failures."
        )

    def within(self, period: Period) -> Period:
        """The covered part of a period; a moment where there is none."""
        start = period.start if self.since is None else max(period.start, self.since)
        end = period.end if self.until is None else min(period.end, self.until)
        return Period(min(start, period.end), max(end, min(start, period.end)))


def covered_time(facts: Facts, period: Period, cluster: str) -> CoveredTime | None:
    """The time that logs of errors cover; None where they cover all, or nothing is known of it.

    They begin, or end, within the period where a silence so long before, or after, has a chance of
    less than one in ten thousand at the share of days on which they arrive otherwise.
    """
    rows = facts.rows("cluster_error_days")
    days = sorted(row["day"] for row in rows if row["cluster"] == cluster)
    first = int(to_seconds(period.start) // SECONDS_PER_DAY)
    last = math.ceil(to_seconds(period.end) / SECONDS_PER_DAY) - 1
    days = [day for day in days if first <= day <= last]
    if len(days) < LEAST_DAYS:
        return None
    span = days[-1] - days[0] + 1
    if len(days) < LEAST_SHARE * span:
        return None
    silent = 1.0 - len(days) / (span + 1)
    since, until = (
        to_datetime(day * SECONDS_PER_DAY) if silent**lead < HOLE_CHANCE else None
        for lead, day in ((days[0] - first, days[0]), (last - days[-1], days[-1] + 1))
    )
    if since is None and until is None:
        return None
    sources = {row["source"] for row in facts.rows("error_sources")}
    what = "Kernel logs" if sources == {_KERNEL} else "Kernel logs and health checks"
    found = CoveredTime(what, since, until, 0.0, period.days)
    return CoveredTime(what, since, until, found.within(period).days, period.days)
