"""Three kinds of failure: the closed form against runs played second by second, kind by kind."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ettr.plan.levels import Levels, best_levels, levels_ettr
from ettr.plan.renewal import long_run_ettr


def played_ettr(at: Levels, n_blocks: int, rng: np.random.Generator) -> tuple[float, float]:
    """ETTR of a run of many durable blocks, and its standard error; lags are zero."""
    rates = np.array([at.soft_per_s, at.light_per_s, at.deep_per_s])
    length_s = at.interval_s * (1 + at.slowdown) + at.stall_s
    length_s += at.durable_stall_s / at.n_light_per_durable
    recovery_s = (at.soft_s, at.light_restart_s, at.deep_restart_s)
    times = []
    for _ in range(n_blocks):
        clock = position = 0.0
        while position < at.n_light_per_durable * length_s:
            to_next = math.floor(position / length_s + 1e-9) * length_s + length_s - position
            fails = rng.exponential(1 / rates.sum())
            if fails >= to_next:
                clock += to_next
                position += to_next
                continue
            clock += fails
            position += fails
            kind = rng.choice(3, p=rates / rates.sum())
            while True:
                clock += at.queue_s
                fails = rng.exponential(1 / rates.sum())
                if fails >= recovery_s[kind]:
                    clock += recovery_s[kind]
                    break
                clock += fails
                kind = max(kind, rng.choice(3, p=rates / rates.sum()))
            if kind == 1:
                position = math.floor(position / length_s + 1e-9) * length_s
            elif kind == 2:
                position = 0.0
        times.append(clock)
    productive_s = at.n_light_per_durable * at.interval_s
    mean = float(np.mean(times))
    error = float(np.std(times)) / math.sqrt(n_blocks)
    return productive_s / mean, productive_s / mean**2 * error


@pytest.mark.parametrize(
    "at",
    [
        Levels(60, 2, 0.01, 0, 5, 10, 0, 1e-3, 1e-3, 2e-4, 20, 60, 200, 15),
        Levels(600, 30, 0, 0, 1, 0, 0, 0, 1e-3, 0, 0, 300, 300, 60),
        Levels(100, 0, 0, 0, 8, 0, 0, 5e-4, 0, 8e-4, 90, 0, 300, 0),
        Levels(30, 1, 0.05, 0, 20, 5, 0, 3e-3, 0, 1e-4, 40, 0, 300, 0),
    ],
)
def test_closed_form_is_what_is_played(at: Levels) -> None:
    played, error = played_ettr(at, 2_000, np.random.default_rng(3))
    assert abs(levels_ettr(at) - played) < 4 * error


@pytest.mark.parametrize("rate", [1e-7, 1e-5, 1e-3, 5e-3])
def test_one_kind_is_the_exact_form(rate: float) -> None:
    at = Levels(600, 30, light_per_s=rate, light_restart_s=300, queue_s=60)
    assert levels_ettr(at) == pytest.approx(long_run_ettr(rate, 600, 30, 300, 60), rel=1e-9)
    # a durable checkpoint every time makes deep failures the same
    deep = Levels(600, 30, deep_per_s=rate, deep_restart_s=300, queue_s=60)
    assert levels_ettr(deep) == pytest.approx(long_run_ettr(rate, 600, 30, 300, 60), rel=1e-9)


@pytest.mark.parametrize("lag_s", [50.0, 400.0, 2500.0])
def test_a_lag_sends_some_failures_one_checkpoint_further_back(lag_s: float) -> None:
    at = Levels(600, 5, lag_s=lag_s, light_per_s=2e-4, light_restart_s=120)
    rng, length_s = np.random.default_rng(8), 605.0
    clock, saved_at, position, kept = 0.0, 0.0, 0.0, 0.0
    for _ in range(40_000):
        fails = rng.exponential(1 / at.light_per_s)
        clock += fails
        reached = position + fails
        usable = math.floor((reached - lag_s) / length_s) * length_s
        # what was usable at the start of the attempt stays so
        kept = saved_at = max(saved_at, usable)
        while True:
            fails = rng.exponential(1 / at.light_per_s)
            if fails >= at.light_restart_s:
                clock += at.light_restart_s
                break
            clock += fails
        position = saved_at
    assert levels_ettr(at) == pytest.approx(kept / length_s * 600 / clock, rel=0.01)


# a failure in 30 years at the least: below, 1 - P(no failure) drowns in rounding
RATES = st.floats(1e-9, 10.0) | st.just(0.0)
TIMES = st.floats(0.0, 1e6)


@given(
    st.builds(
        Levels,
        st.floats(1.0, 1e6),
        TIMES,
        lag_s=TIMES,
        n_light_per_durable=st.floats(1.0, 1e4),
        durable_lag_s=TIMES,
        soft_per_s=RATES,
        light_per_s=RATES,
        deep_per_s=RATES,
        soft_s=TIMES,
        light_restart_s=TIMES,
        deep_restart_s=TIMES,
        queue_s=TIMES,
    )
)
# a restart that always fails before it ends
@example(Levels(1.0, light_per_s=1.0, light_restart_s=3000.0))
@example(Levels(1.0, soft_per_s=1.0, soft_s=3000.0))
@example(Levels(1.0, soft_per_s=1.0, deep_per_s=1e-9, soft_s=3000.0, deep_restart_s=3000.0))
@example(Levels(1.0, light_per_s=0.0, deep_per_s=1.0, light_restart_s=3000.0))
def test_any_run_has_an_ettr_between_0_and_1(at: Levels) -> None:
    assert 0.0 <= levels_ettr(at) <= 1.0 + 1e-6


def test_a_restart_longer_than_hundreds_of_mttfs_leaves_nothing() -> None:
    assert levels_ettr(Levels(1.0, light_per_s=1.0, light_restart_s=3000.0)) == 0.0
    assert levels_ettr(Levels(1.0, soft_per_s=1.0, soft_s=3000.0)) == 0.0


def test_no_failure_leaves_the_overhead_alone() -> None:
    at = Levels(100, 5, 0.1, n_light_per_durable=10, durable_stall_s=50)
    assert levels_ettr(at) == pytest.approx(100 / (110 + 5 + 5))


def test_best_interval_is_the_exact_one_where_there_is_one_kind() -> None:
    from ettr.plan.intervals import exact_interval_s

    at = Levels(600, 30, light_per_s=1e-4, light_restart_s=300)
    interval_s, ettr = best_levels(lambda s: replace(at, interval_s=s), 1.0, 1e5)
    assert interval_s == pytest.approx(exact_interval_s(30, 1e4), rel=1e-3)
    assert ettr >= levels_ettr(replace(at, interval_s=interval_s * 1.1))
