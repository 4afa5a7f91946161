"""Means of a run: from its events as they come, and from the split of its record."""

import pytest

from ettr.progress import Goodput, ProgressEvent
from ettr.recovery.restore_costs import Measuring, interval_steps, measured_by


def follow(*events: tuple[str, int, float, float | None]) -> tuple[Goodput, Measuring]:
    goodput, measuring = Goodput(), Measuring()
    for event, step, time_s, duration_s in events:
        goodput.add(ProgressEvent(event, step, time_s, duration_s))
        measuring.add(event, duration_s)
    return goodput, measuring


def test_the_split_of_a_record_gives_the_means_of_its_events():
    goodput, measuring = follow(
        ("start", 0, 100.0, 30.0),
        ("step", 1, 102.0, 2.0),
        ("step", 2, 106.0, 4.0),
        ("save", 2, 111.0, 5.0),
        ("step", 3, 114.0, 3.0),
        ("restart", 3, 134.0, 20.0),
        ("restore", 2, 144.0, 10.0),
        ("step", 3, 147.0, 3.0),
    )
    measured = measured_by(goodput.split())
    assert measured == measuring.run()
    assert (measured.step_s, measured.restart_s, measured.restore_s) == (3.0, 20.0, 10.0)
    assert interval_steps(measured, mttf_s=10_000) == interval_steps(measuring.run(), mttf_s=10_000)


def test_a_restart_without_a_duration_is_measured_by_the_clock():
    goodput, measuring = follow(
        ("start", 0, 0.0, None),
        ("step", 1, 40.0, 2.0),  # 38 s of start-up are no restart
        ("start", 1, 100.0, None),
        ("restore", 1, 110.0, 10.0),
        ("step", 2, 120.0, 2.0),
    )
    assert measuring.run().restart_s is None
    assert measured_by(goodput.split()).restart_s == pytest.approx(60 + 8)


def test_of_a_record_without_steps_nothing_is_measured():
    goodput, _ = follow(("start", 0, 0.0, None))
    measured = measured_by(goodput.split())
    assert (measured.step_s, measured.restart_s, measured.saves) == (0.0, None, 0)
