"""Checks that were always there and are called new, and new ones that are found.

180 days of a log that always has some check's events. Each further check reports at the row's
constant rate, from the first day on, or from the row's day on. `called new`: share of such checks
that get a marker.
"""

from __future__ import annotations

from datetime import UTC, datetime

import ibis
import numpy as np

from campaigns import Table
from ettr.metrics.trend import check_markers

TITLE = "Markers of new checks"
SIZE = 2000
DAYS, MONTH = 180.0, 30.0
WHEN = "timestamp('UTC', 6)"
START = np.datetime64(datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), "us")


def share_called_new(
    rng: np.random.Generator, per_month: float, from_day: float, size: int
) -> tuple[float, int]:
    """Share of checks that get a marker, and how many reported at all."""
    times, names = [np.linspace(0.0, DAYS, 721)], [np.full(721, "always")]
    for number in range(size):
        count = rng.poisson(per_month * (DAYS - from_day) / MONTH)
        times.append(rng.uniform(from_day, DAYS, count))
        names.append(np.full(count, f"check-{number}"))
    days = np.concatenate(times)
    events = ibis.memtable(
        {
            "time": START + (days * 86_400e6).astype("timedelta64[us]"),
            "time_end": np.full(days.size, np.datetime64("NaT", "us")),
            "check": np.concatenate(names).tolist(),
        },
        schema={"time": WHEN, "time_end": WHEN, "check": "string"},
    )
    markers = [one for one in check_markers(events) if one.check != "always"]
    return sum(one.is_new for one in markers) / len(markers), len(markers)


def run(size: int) -> Table:
    """Share of checks called new, over `size` checks a row."""
    rows = []
    for from_day in (0.0, 90.0):
        for per_month in (0.5, 1.0, 3.0, 10.0, 30.0):
            rng = np.random.default_rng([int(from_day), int(10 * per_month)])
            share, reported = share_called_new(rng, per_month, from_day, size)
            since = "always" if from_day == 0.0 else f"since day {from_day:.0f}"
            rows.append((since, f"{per_month:g}", str(reported), f"{share:.3f}"))
    return Table(
        ("there", "events a month", "checks that reported", "called new"),
        tuple(rows),
        "[day from which the check is there, 10 x events a month]",
        "at most .05 of checks that were always there",
    )
