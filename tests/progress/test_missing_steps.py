"""Steps that ran without a line: every k-th logged, lines lost; the truth is a simulated run's."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ettr.progress.split import RunState, WallClockSplit, WallClockSplitter
from ettr.progress.timeline import ScheduledAttempt

HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
PARTS = ("productive", "redone", "unsaved", "save", "restore", "stall", "restart", "idle")


def split_of(rows, state: RunState = RunState.COMPLETED, attempts=None) -> WallClockSplit:
    given = None if attempts is None else [ScheduledAttempt(*one) for one in attempts]
    splitter = WallClockSplitter(given)
    for row in rows:
        splitter.add(*row)
    split = splitter.split(state)
    assert sum(getattr(split, f"{name}_us") for name in PARTS) == split.wall_us
    assert split.productive_low_us <= split.productive_us <= split.productive_high_us
    return split


@dataclass
class Run:
    """Steps of about 1 s, a save of 10 s every 250, failures that go back to the last save."""

    rng: random.Random
    logged_is_slower: float = 1.0
    every: int = 1
    now: int = 0
    rows: list = field(default_factory=list)
    took: dict[int, int] = field(default_factory=dict)
    redone_us: int = 0
    ran: int = 0

    def simulate(self, steps: int, chance: float = 0.0) -> Run:
        step = saved = 0
        self.begin(0)
        while step < steps:
            step += 1
            logged = step % self.every == 0
            length = round(1e6 * self.rng.uniform(0.97, 1.03))
            length = round(length * (self.logged_is_slower if logged else 1.0))
            self.now += length
            self.took[step], self.ran = length, self.ran + 1
            if logged:
                self.rows.append(("step", step, self.now, length))
            if step % 250 == 0:
                self.now += 10_000_000
                self.rows.append(("save", step, self.now, 10_000_000))
                saved = step
            elif self.rng.random() < chance:
                for number in range(saved + 1, step + 1):
                    self.redone_us += self.took.pop(number)
                step = saved
                self.begin(saved)
        self.rows.append(("end", step, self.now, None))
        return self

    def begin(self, step: int) -> None:
        self.now += 120_000_000
        self.rows.append(("start", step, self.now, 120_000_000))
        if step:
            self.rows.append(("restore", step, self.now, 0))

    @property
    def productive_us(self) -> int:
        return sum(self.took.values())


@pytest.mark.parametrize("every", [2, 10, 100])
@pytest.mark.parametrize("slower", [1.0, 1.3])
@pytest.mark.parametrize("seed", range(3))
def test_every_kth_step_with_its_own_duration(seed: int, slower: float, every: int) -> None:
    run = Run(random.Random(seed), slower, every).simulate(5000, chance=1 / 1000)
    split = split_of(run.rows)
    assert split.productive_us == pytest.approx(run.productive_us, rel=0.02)
    assert split.productive_low_us < run.productive_us <= split.productive_high_us
    # The steps between the last line before a failure and the failure are in no record.
    assert split.redone_us <= run.redone_us
    assert split.redone_us == pytest.approx(run.redone_us, rel=0.1, abs=every * 10e6)
    assert split.save_us == 20 * 10_000_000


def test_an_engineer_who_logs_every_tenth_step_reads_the_ettr_of_the_run() -> None:
    """8,800 s of steps in 10,000 s, of which the lines hold a tenth."""
    rows = [("start", 0, 120 * 10**6, 120 * 10**6)]
    for step in range(10, 8801, 10):
        rows.append(("step", step, (120 + step) * 10**6, 10**6))
    split = split_of(rows, attempts=[(0, 10_000 * 10**6)])
    assert split.productive_us / split.wall_us == pytest.approx(0.88)
    assert split.productive_low_us / split.wall_us == pytest.approx(0.088)
    assert split.productive_high_us / split.wall_us == pytest.approx(0.88)
    assert split.unrecorded_steps == 8800 * 9 // 10


@pytest.mark.parametrize("seed", range(5))
def test_lost_lines_open_the_band_by_the_time_of_their_steps(seed: int) -> None:
    run = Run(random.Random(seed)).simulate(3000, chance=1 / 1000)
    rng = random.Random(seed)
    kept = [row for row in run.rows if row[0] != "step" or rng.random() > 0.1]
    split, whole = split_of(kept), split_of(run.rows)
    assert whole.productive_us == whole.productive_high_us == run.productive_us
    assert split.productive_us == pytest.approx(run.productive_us, rel=0.002)
    assert split.productive_low_us < 0.92 * run.productive_us
    assert split.productive_high_us > 0.999 * run.productive_us
    assert split.redone_us == pytest.approx(run.redone_us, rel=0.02)
    assert split.unrecorded_steps == pytest.approx(0.1 * run.ran, rel=0.2)


def test_a_missing_step_is_not_taken_to_fill_an_outage() -> None:
    """One line of 100 is lost, and with it lies an hour in which the loop stood still."""
    rows = [("step", n, n * 10**6 + (HOUR_US if n > 50 else 0), 10**6) for n in range(1, 101)]
    del rows[49]
    split = split_of(rows)
    assert split.productive_us == split.productive_high_us == 100 * 10**6
    assert split.productive_low_us == 99 * 10**6
    assert split.idle_us == HOUR_US


def test_the_duration_of_all_steps_since_the_line_before() -> None:
    """As the docs ask for: every hundredth step, 100 s for all hundred; 5 s between are open."""
    rows = [("step", 100 * n, 105 * n * 10**6, 100 * 10**6) for n in range(1, 101)]
    split = split_of(rows)
    assert split.productive_us == split.productive_low_us == 10_000 * 10**6
    assert split.productive_high_us == pytest.approx(10_500 * 10**6, rel=0.01)
    assert split.unrecorded_steps == 10_000 - 100


def test_durations_far_apart_whose_numbers_leave_steps_out_are_a_band() -> None:
    rows = [("step", 1000 * n, 12 * n * DAY_US, 3 * DAY_US) for n in range(1, 10)]
    split = split_of(rows, attempts=[(0, 108 * DAY_US)])
    assert split.productive_us == split.productive_low_us == 27 * DAY_US
    assert split.productive_high_us > 99 * DAY_US


def test_a_start_that_names_no_step_is_not_filled_with_steps() -> None:
    """Started from a checkpoint at 5,000, told as `start(0)`: 300 s of loading are loading."""
    rows = [("start", 0, 300 * 10**6, 300 * 10**6)]
    rows += [("step", 5000 + n, (330 + n) * 10**6, 10**6) for n in range(1, 101)]
    split = split_of(rows, attempts=[(0, 430 * 10**6)])
    assert (split.productive_us, split.restart_us) == (100 * 10**6, 330 * 10**6)
    assert split.productive_high_us == 130 * 10**6
    assert split.unrecorded_steps == 0


def test_steps_before_the_last_save_are_saved_though_the_next_line_is_not() -> None:
    """Lines 10, 20, ..., a save at 25, killed after 30: 21 to 25 stay, 26 to 30 are lost."""
    rows = [("step", n, n * 10**6, 10**6) for n in (10, 20)]
    rows += [("save", 25, 25 * 10**6, 0), ("step", 30, 30 * 10**6, 10**6)]
    split = split_of(rows, RunState.INTERRUPTED, [(0, 30 * 10**6)])
    assert split.productive_us == 25 * 10**6
    assert split.unsaved_us == 5 * 10**6


def test_steps_that_only_a_save_or_the_end_names_ran() -> None:
    """Every hundredth line; a save at 250, dead at 290, restored: 201 to 250 stay."""
    rows = [("start", 0, 0, None)]
    rows += [("step", n, n * 10**6, 10**6) for n in (100, 200)]
    rows += [("save", 250, 250 * 10**6, 0)]
    killed = split_of(rows, RunState.INTERRUPTED, [(0, 290 * 10**6)])
    assert killed.productive_us == 250 * 10**6
    rows += [("start", 0, 350 * 10**6, 60 * 10**6), ("restore", 250, 360 * 10**6, 10 * 10**6)]
    rows += [("step", 300, 410 * 10**6, 10**6), ("end", 350, 460 * 10**6, None)]
    split = split_of(rows)
    assert split.productive_us == 350 * 10**6
    assert split.restart_us == (40 + 60) * 10**6


def test_a_late_line_is_not_missing() -> None:
    rows = [("step", 1, 10, 10), ("step", 3, 30, 10), ("step", 2, 20, 10), ("step", 4, 40, 10)]
    assert split_of(rows).unrecorded_steps == 0


def test_suspended_time_is_no_time_of_missing_steps() -> None:
    rows = [("step", 10 * n, (10 * n + (500 if n > 5 else 0)) * 10**6, 10**6) for n in range(1, 11)]
    split = split_of_suspended(rows, [(0, 600 * 10**6, 500 * 10**6)])
    assert split.suspended_us == 500 * 10**6
    assert split.productive_us == 100 * 10**6


def split_of_suspended(rows, attempts) -> WallClockSplit:
    splitter = WallClockSplitter([ScheduledAttempt(*one) for one in attempts])
    for row in rows:
        splitter.add(*row)
    return splitter.split(RunState.COMPLETED)


@pytest.mark.parametrize("last", ["save", "end"])
def test_steps_of_no_line_that_a_later_event_names_are_in_the_band(last: str) -> None:
    """Lines of every hundredth step, one a second, without durations; a crash at step 450."""
    lines = [("step", number, number * 10**6, None) for number in range(100, 500, 100)]
    found = split_of([("start", 0, 0, None), *lines, (last, 450, 500 * 10**6, None)])
    assert found.wall_us == 500 * 10**6
    # fifty steps ran since the last line: at the pace of the others, or all the time since then
    assert found.productive_us == 450 * 10**6
    assert found.productive_high_us == 500 * 10**6
    assert found.productive_low_us <= 400 * 10**6
