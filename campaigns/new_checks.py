"""Checks that were always there and are called new, and new ones that are found.

180 days of a log that always has some check's events. Each further check reports at the row's
constant rate, from the first day on, or from the row's day on. `called new`: share of such checks
that get a marker.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import numpy as np

from campaigns import Table
from campaigns.false_attribution import TESTS, filled
from ettr.metrics.trend import check_markers
from ettr.tables import EVENTS

TITLE = "Markers of new checks"
SIZE = 2000
DAYS, MONTH = 180.0, 30.0
US_PER_DAY = 86_400e6
START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)


def share_called_new(
    rng: np.random.Generator, per_month: float, from_day: float, size: int
) -> tuple[float, int]:
    """Share of checks that get a marker, and how many reported at all."""
    sys.path.insert(0, str(TESTS))
    from fact_tables import facts_of

    times, names = [np.linspace(0.0, DAYS, 721)], [np.full(721, "always")]
    for number in range(size):
        count = rng.poisson(per_month * (DAYS - from_day) / MONTH)
        times.append(rng.uniform(from_day, DAYS, count))
        names.append(np.full(count, f"check-{number}"))
    days = np.concatenate(times)
    checks = np.concatenate(names)
    events = {
        "event_id": np.arange(days.size).astype(str),
        "time": START_US + (days * US_PER_DAY).astype(np.int64),
        "check": checks,
        "severity": np.full(days.size, "warning"),
        "text": np.full(days.size, ""),
    }
    facts = facts_of({"events": filled(EVENTS, events)})
    markers = [one for one in check_markers(facts) if one.check != "always"]
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
