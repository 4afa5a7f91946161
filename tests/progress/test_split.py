"""The one split: against a painter of microseconds, and against runs whose truth is known."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.progress import EVENTS, Goodput, ProgressEvent, RunState, goodput_of_events
from ettr.progress.goodput import in_order, merged
from ettr.progress.split import WallClockSplit, WallClockSplitter
from ettr.progress.timeline import ScheduledAttempt

PARTS = (
    *("productive", "redone", "unsaved", "save", "restore", "stall"),
    *("restart", "suspended", "idle"),
)


def split_of(
    rows, state: RunState = RunState.RUNNING, attempts: list[tuple[int, ...]] | None = None
) -> WallClockSplit:
    given_attempts = None if attempts is None else [ScheduledAttempt(*a) for a in attempts]
    splitter = WallClockSplitter(given_attempts)
    for row in rows:
        splitter.add(*row)
    return splitter.split(state)


def parts(split: WallClockSplit) -> dict[str, int]:
    values = {name: getattr(split, f"{name}_us") for name in PARTS}
    return {name: value for name, value in values.items() if value}


# -- every event paints the time it covers; whoever comes first, keeps it ---------------------


def painted(rows, attempts: list[tuple[int, int]], horizon: int) -> dict[str, int]:
    """The same rule, a microsecond at a time, for steps that never go back and have durations."""
    owner: list[str | None] = [None] * horizon
    scheduled = [any(start <= t < end for start, end in attempts) for t in range(horizon)]
    locked = [not inside for inside in scheduled]
    phase = ["restart"] * horizon
    last = -1
    for event, _, time, duration in rows:
        begin = time if duration is None else max(time - duration, 0)
        starts = [start for start, _ in attempts if start < time]
        if event in ("start", "restart") or not starts:
            starts = [start for start, _ in attempts if start <= time]
        attempt_start = max(starts, default=0)
        for t in range(max(begin, attempt_start), time):
            if owner[t] is None and not locked[t]:
                owner[t] = event
        if event in ("start", "restart"):
            settled_from = max(last, attempt_start)  # what an attempt left is settled
            for t in range(settled_from):
                locked[t] = True
            for t in range(settled_from, horizon):
                phase[t] = "restart"
        if event == "step":
            for t in range(time):
                locked[t] = True
            later = [start for start, _ in attempts if start > attempt_start]
            next_start = min(later, default=horizon)
            for t in range(time, next_start):
                phase[t] = "idle"
        last = max(last, time)
    names = {"start": "restart", "end": "idle", "step": "productive"}
    found: dict[str, int] = {}
    for t in range(horizon):
        if scheduled[t]:
            name = phase[t] if owner[t] is None else names.get(owner[t], owner[t])
            found[name] = found.get(name, 0) + 1
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.integers(1, 12),
            st.none() | st.integers(0, 25),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 40), min_size=2, max_size=6),
)
def test_the_gaps_are_kept_as_a_painter_would_keep_them(raw: list, edges: list[int]) -> None:
    bounds = [sum(edges[: n + 1]) for n in range(len(edges))]
    attempts = list(zip(bounds[::2], bounds[1::2], strict=False))
    rows, time, step = [], 0, 0
    for event, gap, duration in raw:
        time += gap
        if event == "restore" or (event == "step" and duration is None):
            continue
        step += event == "step"  # none is missing
        rows.append((event, step, time, duration))
    horizon = max(time, bounds[-1]) + 1
    split = split_of(rows, RunState.COMPLETED, attempts)
    assert parts(split) == painted(rows, attempts, horizon)


# -- runs whose truth is known ----------------------------------------------------------------


@dataclass
class Run:
    """A training run as it happened, in microseconds, and what its clock wrote."""

    rng: random.Random
    now: int = 1_000_000_000_000
    clock_off: int = 0
    rows: list = field(default_factory=list)
    truth: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    spent: dict[int, int] = field(default_factory=dict)
    step: int = 0
    saved: int = 0

    def tell(self, event: str, step: int, duration: int | None) -> None:
        self.rows.append((event, step, self.now - self.clock_off, duration))

    def spend(self, event: str, bucket: str, length: int) -> None:
        self.now += length
        self.truth[bucket] += length
        self.tell(event, self.step, length)

    def train(self) -> None:
        self.step += 1
        length = self.rng.randrange(900, 1100)
        self.now += length
        self.spent[self.step] = length
        self.tell("step", self.step, length)

    def lose_to(self, step: int) -> None:
        for number in range(step + 1, self.step + 1):
            self.truth["redone"] += self.spent.pop(number)
        self.step = step

    def fail(self, *, set_back: int, says_so: bool) -> None:
        """Dies; where the clock is set back, how long it was gone nothing says."""
        gone = self.rng.randrange(1, 5_000)
        if set_back:
            self.now = self.rows[-1][2] + self.clock_off
            self.clock_off += set_back
        else:
            self.now += gone
            self.truth["restart"] += gone
        self.tell("start", 0, None)
        if says_so:
            self.now += 70
            self.truth["restore"] += 70
            self.tell("restore", self.saved, 70)
        self.lose_to(self.saved)


def simulated(seed: int, *, clocks: bool) -> Run:
    rng = random.Random(seed)
    run = Run(rng)
    run.tell("start", 0, None)
    for _ in range(rng.randrange(5, 120)):
        run.train()
        chance = rng.random()
        if chance < 0.1:
            run.spend("save", "save", rng.randrange(0, 300))
            run.saved = run.step
        elif chance < 0.15:
            run.spend("stall", "stall", rng.randrange(1, 9_000))
        elif chance < 0.2:
            idle = rng.randrange(1, 400)
            run.now += idle
            run.truth["idle"] += idle
        elif chance < 0.26:
            set_back = rng.randrange(10_000, 90_000) if clocks and rng.random() < 0.5 else 0
            run.fail(set_back=set_back, says_so=rng.random() < 0.5)
            run.train()
    run.tell("end", run.step, None)
    run.truth["productive"] = sum(run.spent.values())
    return run


def assert_true(split: WallClockSplit, run: Run) -> None:
    assert parts(split) == {name: us for name, us in run.truth.items() if us}
    assert split.wall_us == sum(run.truth.values())
    assert split.productive_low_us == split.productive_us == split.productive_high_us


@pytest.mark.parametrize("seed", range(40))
def test_the_split_is_the_truth(seed: int) -> None:
    run = simulated(seed, clocks=False)
    assert_true(split_of(run.rows), run)


@pytest.mark.parametrize("seed", range(40))
def test_lines_that_repeat_and_lines_in_any_order_change_nothing(seed: int) -> None:
    run = simulated(seed, clocks=False)
    doubled = [row for row in run.rows for _ in range(2)]
    assert_true(split_of(doubled), run)  # live, too
    again = [*run.rows, *run.rows[: len(run.rows) // 2]]
    assert_true(split_of(in_order(again)), run)
    shuffled = list(run.rows)
    random.Random(seed).shuffle(shuffled)
    # Rows of one moment have no order but that of the lines, which is lost.
    moments = {row[2] for row in shuffled}
    if len(moments) == len(shuffled):
        assert_true(split_of(in_order(shuffled)), run)


def test_files_put_together_in_the_wrong_order_are_put_right() -> None:
    first = [("start", 0, 0, None), *(("step", n, 10 * n, 10) for n in range(1, 11))]
    second = [("start", 0, 150, None), ("restore", 8, 160, 10)]
    second += [("step", n, 160 + 10 * (n - 8), 10) for n in range(9, 21)]
    right = split_of([*first, *second])
    assert parts(right) == {"productive": 200, "redone": 20, "restart": 50, "restore": 10}
    assert split_of(in_order([*second, *first])) == right
    assert split_of(merged([second, first])) == right


@pytest.mark.parametrize("seed", range(80))
def test_a_clock_that_is_set_back_costs_the_time_of_the_failure_only(seed: int) -> None:
    run = simulated(seed, clocks=True)
    assert_true(split_of(run.rows), run)
    assert_true(split_of(in_order(run.rows)), run)
    assert_true(split_of(merged([in_order(run.rows)])), run)
    if run.clock_off:
        assert split_of(run.rows).clock_set_back > 0


def test_a_clock_set_back_within_a_run_is_noticed_by_the_next_step() -> None:
    rows = [("step", n, 1000 * n, 900) for n in range(1, 6)]
    rows += [("step", n, 1000 * n - 3000, 900) for n in range(6, 11)]
    split = split_of(rows)
    # The gap between steps 5 and 6 is what nothing tells: 0.1 ms.
    assert parts(split) == {"productive": 9000, "idle": 800}
    assert split.clock_set_back == 1
    assert split_of(in_order(rows)) == split


def test_in_the_attempts_of_a_scheduler_a_clock_set_back_goes_on_with_the_next() -> None:
    rows = [("start", 0, 0, None), ("step", 1, 100, 100), ("save", 1, 100, 0)]
    rows += [("start", 1, 10, None), ("step", 2, 60, 50)]
    split = split_of(rows, RunState.COMPLETED, [(0, 100), (150, 200)])
    assert parts(split) == {"productive": 150}


def test_a_late_line_takes_what_is_left() -> None:
    rows = [("step", 1, 10, 10), ("save", 1, 30, 5), ("stall", 1, 20, 4), ("step", 2, 40, 10)]
    split = split_of(rows)
    assert parts(split) == {"productive": 20, "save": 5, "stall": 4, "idle": 11}
    assert split.out_of_order == 1


# -- durations --------------------------------------------------------------------------------


def test_durations_that_lie_far_apart_count_exactly() -> None:
    day = 86_400_000_000
    rows = [("step", n, 12 * n * day, 3 * day) for n in range(1, 10)]
    split = split_of(rows, RunState.COMPLETED, [(0, 108 * day)])
    assert parts(split) == {"productive": 27 * day, "restart": 9 * day, "idle": 72 * day}
    assert split.productive_low_us == split.productive_high_us == 27 * day


def test_durations_that_overlap_count_once_and_widen_the_band() -> None:
    """A job of 48 h whose steps claim 24, 48 and 48 h."""
    hour = 3_600_000_000
    rows = [("step", 1, 24 * hour, 24 * hour), ("step", 2, 36 * hour, 48 * hour)]
    rows += [("step", 3, 48 * hour, 48 * hour)]
    split = split_of(rows, RunState.COMPLETED, [(0, 48 * hour)])
    assert parts(split) == {"productive": 48 * hour}
    assert split.overlap_us == (36 + 36) * hour
    assert (split.productive_low_us, split.productive_high_us) == (0, 48 * hour)


DAY_US = 86_400_000_000


@pytest.mark.parametrize("seed", range(10))
def test_ten_lines_without_durations_over_108_days_are_a_band(seed: int) -> None:
    """Between two lines lie twelve days; what the slower ones lost is up to 15 % of them."""
    rng = random.Random(seed)
    rows, step = [("start", 0, 0, None)], 0
    for n in range(1, 10):
        step += round(10_000 * rng.uniform(0.85, 1.0))
        rows.append(("step", step, 12 * n * DAY_US, None))
    split = split_of(rows, RunState.COMPLETED, [(0, 108 * DAY_US)])
    low = split.productive_low_us / split.wall_us
    assert 0.7 < low < 0.93
    assert split.productive_high_us == split.wall_us
    assert low < split.productive_us / split.wall_us < 1
    assert sum(parts(split).values()) == split.wall_us


def test_ten_lines_of_one_pace_still_leave_room_for_what_all_of_them_lost() -> None:
    rows = [("step", 10_000 * n, 10_800_000 * n, None) for n in range(1, 11)]
    split = split_of(rows, RunState.COMPLETED, [(0, 108_000_000)])
    assert split.productive_us == split.wall_us
    assert split.productive_low_us / split.wall_us == pytest.approx(10 / 11, rel=1e-6)


def test_many_lines_without_durations_show_their_outages_and_a_narrow_band() -> None:
    """A line a step of 1 s ± 2 %; every 500 steps the loop stands still for 100 s."""
    rng = random.Random(3)
    rows, now, steps_us = [("start", 0, 0, None)], 60_000_000, 0
    for n in range(1, 20_001):
        length = round(rng.gauss(1e6, 2e4))
        now, steps_us = now + length, steps_us + length
        rows.append(("step", n, now, None))
        now += 100_000_000 if n % 500 == 0 else 0
    rows.append(("end", 20_000, now, None))
    split = split_of(rows)
    assert split.productive_us == pytest.approx(steps_us, rel=0.01)
    assert split.productive_low_us == pytest.approx(steps_us, rel=0.05)
    assert split.productive_low_us < steps_us < split.productive_high_us
    assert split.restart_us == pytest.approx(60_000_000, rel=0.01)  # not the first step's


def test_lines_of_one_second_are_one_line() -> None:
    """Four steps a second, stamped in whole seconds."""
    rows = [("start", 0, 0, None)]
    rows += [("step", n, (n // 4) * 1_000_000, None) for n in range(1, 401)]
    split = split_of(rows, RunState.COMPLETED)
    assert split.productive_us == split.wall_us == 100_000_000
    assert split.productive_low_us / split.wall_us > 0.95


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.integers(0, 30),
            st.integers(-20, 60),
            st.none() | st.integers(0, 50),
        ),
        max_size=30,
    ),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 50)), max_size=4),
    st.sampled_from(RunState),
)
def test_every_microsecond_lies_in_one_bucket_whatever_is_given(raw, spans, state) -> None:
    rows, now = [], 0
    for event, step, gap, duration in raw:
        now += gap
        rows.append((event, step, now, duration))
    attempts, at = [], 0
    for gap, length, suspended in spans:
        attempts.append((at + gap - 10, at + gap + length, suspended))  # some overlap
        at += gap + length
    for split in (split_of(rows, state), split_of(rows, state, attempts)):
        assert sum(parts(split).values()) == split.wall_us
        assert all(value > 0 for value in parts(split).values())
        assert 0 <= split.productive_low_us <= split.productive_us <= split.productive_high_us
        assert split.productive_high_us <= split.wall_us
        assert 0 <= split.at_risk_us <= split.productive_high_us
    passed = {moment for start, end, _ in attempts for moment in range(start, end)}
    assert split_of(rows, state, attempts).wall_us == len(passed)


# -- what was saved, what was suspended -------------------------------------------------------


def test_a_record_without_any_save_leaves_open_what_was_lost() -> None:
    rows = [("step", n, 10 * n, 10) for n in range(1, 11)]
    split = split_of(rows, RunState.INTERRUPTED)
    assert parts(split) == {"unsaved": 100}
    assert (split.productive_low_us, split.productive_high_us) == (0, 100)


def test_suspended_time_is_taken_from_idle_time_first_and_then_from_steps() -> None:
    rows = [("step", 1, 10, 10), ("step", 2, 50, 10), ("step", 3, 60, 10), ("step", 4, 160, 100)]
    whole = [(0, 100), (100, 160)]
    plain = split_of(rows, RunState.COMPLETED, whole)
    assert parts(plain) == {"productive": 90, "idle": 70}
    idle = split_of(rows, RunState.COMPLETED, [(0, 100, 25), (100, 160)])
    assert parts(idle) == {"productive": 90, "suspended": 25, "idle": 45}
    assert idle.productive_low_us == idle.productive_high_us == 90
    within = split_of(rows, RunState.COMPLETED, [(0, 100), (100, 160, 40)])
    assert parts(within) == {"productive": 50, "suspended": 40, "idle": 70}
    assert (within.productive_low_us, within.productive_high_us) == (50, 90)


def test_suspended_time_between_lines_without_durations_is_none_of_theirs() -> None:
    rows = [("step", n, 10 * n + (500 if n > 5 else 0), None) for n in range(1, 11)]
    split = split_of(rows, RunState.COMPLETED, [(0, 600, 500)])
    assert parts(split) == {"productive": 100, "suspended": 500}


# -- through the door -------------------------------------------------------------------------


def events_of(rows) -> list[ProgressEvent]:
    return [
        ProgressEvent(event, step, time / 1e6, None if duration is None else duration / 1e6)
        for event, step, time, duration in rows
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_file_has_the_goodput_of_the_whole_one(seed: int) -> None:
    run = simulated(seed, clocks=False)
    live = Goodput()
    for event in events_of(run.rows):
        live.add(event)
    doubled = goodput_of_events(events_of([*run.rows, *run.rows]))
    assert doubled.repeats == len(run.rows)
    assert math.isclose(doubled.goodput, live.split().goodput)
    assert live.split().goodput_band == (live.split().goodput, live.split().goodput)


# -- a clock that is wrong from an attempt on ---------------------------------------------------

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US


def two_attempts(back_us: int, gap_us: int) -> tuple[list, list[tuple[int, int]], int]:
    """Ten and eight steps of an hour, the second attempt by a clock that is `back_us` behind."""
    rows = [("start", 0, 0, None), *(("step", n, n * HOUR_US, HOUR_US) for n in range(1, 11))]
    rows.append(("save", 10, 10 * HOUR_US, None))
    begin_us = 10 * HOUR_US + gap_us
    rows.append(("start", 10, begin_us - back_us, None))
    dated = [begin_us - back_us + n * HOUR_US for n in range(1, 9)]
    rows += [("step", 10 + n, time_us, HOUR_US) for n, time_us in enumerate(dated, 1)]
    return rows, [(0, 10 * HOUR_US), (begin_us, begin_us + 9 * HOUR_US)], 18 * HOUR_US


@pytest.mark.parametrize("back_h", [-12, -2, 0, 2, 5])
@pytest.mark.parametrize("gap_h", [1, 4])
def test_a_clock_that_is_wrong_from_an_attempt_on_leaves_a_band_that_holds_the_truth(
    back_h: int, gap_h: int
) -> None:
    rows, attempts, truth_us = two_attempts(back_h * HOUR_US, gap_h * HOUR_US)
    split = split_of(rows, RunState.COMPLETED, attempts)
    assert split.wall_us == 19 * HOUR_US
    assert split.productive_low_us <= truth_us <= split.productive_high_us
    is_narrow = split.productive_low_us == split.productive_high_us
    assert is_narrow == (split.outside_steps == 0)
    if back_h == 0:
        assert (is_narrow, split.clock_set_back) == (True, 0)


def test_steps_after_the_last_attempt_of_a_run_that_goes_on_are_of_attempts_not_known_yet() -> None:
    rows = [("step", n, n * HOUR_US, HOUR_US) for n in range(1, 6)]
    going_on = split_of(rows, RunState.RUNNING, [(0, 3 * HOUR_US)])
    assert going_on.productive_low_us == going_on.productive_high_us == 3 * HOUR_US
    assert going_on.outside_steps == 0


def test_an_attempt_that_ends_in_whole_seconds_cuts_no_step() -> None:
    rows = [("step", n, n * HOUR_US + 700_000, HOUR_US) for n in range(1, 4)]
    split = split_of(rows, RunState.COMPLETED, [(0, 3 * HOUR_US)])
    assert split.productive_low_us == split.productive_high_us
    assert split.outside_steps == 0


@pytest.mark.parametrize("duration_us", [HOUR_US, None])
def test_what_ends_with_an_attempt_is_of_it_though_the_next_starts_at_that_moment(
    duration_us: int | None,
) -> None:
    """Three attempts of two hours, back to back: a step and a save end with each."""
    minute_us = HOUR_US // 60
    rows: list[tuple[str, int, int, int | None]] = []
    for n in range(3):
        begin_us, end_us = 2 * n * HOUR_US, 2 * (n + 1) * HOUR_US
        rows.append(("start", 0, begin_us + HOUR_US - minute_us, None))
        rows.append(("step", n + 1, end_us - minute_us, duration_us))
        rows.append(("save", n + 1, end_us, minute_us))
    attempts = [(2 * n * HOUR_US, 2 * (n + 1) * HOUR_US) for n in range(3)]
    split = split_of(rows, RunState.INTERRUPTED, attempts)
    assert parts(split) == {
        "productive": 3 * HOUR_US,
        "save": 3 * minute_us,
        "restart": 3 * (HOUR_US - minute_us),
    }
    assert split.steps_in_attempts == 3
    # nothing but a step at the very end
    alone = [("step", n + 1, 2 * (n + 1) * HOUR_US, HOUR_US) for n in range(3)]
    split = split_of(alone, RunState.COMPLETED, attempts)
    assert parts(split) == {"productive": 3 * HOUR_US, "restart": 3 * HOUR_US}
    assert split.productive_low_us == split.productive_high_us


def test_a_step_without_a_duration_outside_the_attempts_may_have_taken_what_is_free() -> None:
    rows = [("start", 0, 0, None), ("step", 1, HOUR_US, None), ("step", 2, 5 * HOUR_US, None)]
    split = split_of(rows, RunState.COMPLETED, [(0, HOUR_US), (6 * HOUR_US, 8 * HOUR_US)])
    assert split.open_steps == 1
    assert split.productive_high_us == 3 * HOUR_US


@pytest.mark.parametrize("back_h", [-12, -2, 2, 5])
def test_missing_steps_of_a_wrong_clock_have_all_the_time_that_no_event_covers(
    back_h: int,
) -> None:
    rows, attempts, truth_us = two_attempts(back_h * HOUR_US, 4 * HOUR_US)
    every_other = [row for row in rows if row[0] != "step" or row[1] % 2 == 0]
    split = split_of(every_other, RunState.COMPLETED, attempts)
    assert split.productive_low_us <= truth_us <= split.productive_high_us
