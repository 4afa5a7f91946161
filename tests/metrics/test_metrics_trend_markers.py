"""New checks: those that were added, and not those that are merely rare."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from ettr.metrics.trend import check_markers
from ettr.tables import EVENTS
from fact_tables import facts_of

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 180.0


def events(**days_by_check):
    moments = [
        START + timedelta(days=float(day)) for days in days_by_check.values() for day in days
    ]
    checks = [check for check, days in days_by_check.items() for _ in days]
    columns = {name: [None] * len(checks) for name in EVENTS.names} | {
        "event_id": [str(n) for n in range(len(checks))],
        "cluster": ["c"] * len(checks),
        "check": checks,
        "severity": ["critical"] * len(checks),
        "time": moments,
        "source": ["t"] * len(checks),
        "file_id": ["t"] * len(checks),
        "line": list(range(len(checks))),
    }
    return facts_of({"events": pa.table(columns, schema=EVENTS.arrow_schema)})


def new_checks(**days_by_check):
    return {marker.check for marker in check_markers(events(**days_by_check)) if marker.is_new}


def test_a_check_that_reports_daily_from_march_on_is_new():
    assert new_checks(always=np.arange(0, DAYS, 2), added=np.arange(60, DAYS, 1)) == {"added"}


def test_a_rare_check_is_not_new():
    assert new_checks(always=np.arange(0, DAYS, 2), rare=[50.0, 120.0]) == set()


def test_a_thousand_lines_of_one_fault_say_no_more_than_one():
    burst = 100.0 + np.linspace(0.0, 0.1, 1000)
    assert new_checks(always=np.arange(0, DAYS, 2), burst=burst) == set()


def test_faults_that_report_on_both_sides_of_midnight_count_once():
    # six days with events, of three faults: silence before has the chance of three, .56 ** 3
    nights = [80.9, 81.1, 119.9, 120.1, 159.9, 160.1]
    assert new_checks(always=np.arange(0, DAYS, 2), nightly=nights) == set()
    assert new_checks(always=np.arange(0, DAYS, 2), apart=[80, 83, 119, 122, 159, 162]) == {"apart"}


def test_one_event_alone_and_no_events():
    assert new_checks(only=[5.0]) == set()
    assert check_markers(facts_of()) == ()


@pytest.mark.slow
@pytest.mark.parametrize("per_month", [0.5, 1.0, 3.0, 10.0, 30.0])
def test_checks_that_were_always_there_are_seldom_called_new(per_month):
    """Eight hundred checks in a log that begins with one that never rests.

    Of the others each is judged by its own days and by where the log begins and ends.
    """
    rng = np.random.default_rng(int(10 * per_month))
    rare = {
        f"check {i}": np.sort(rng.uniform(0, DAYS, max(1, rng.poisson(per_month * DAYS / 30))))
        for i in range(800)
    }
    called = new_checks(always=np.arange(0, DAYS, 0.5), **rare)
    assert len(called) / 800 <= 0.05
