"""The exact form against a Monte Carlo that shares nothing with it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.plan.intervals import first_form_ettr, general_form_ettr, second_form_ettr
from ettr.plan.renewal import (
    exact_ettr,
    expected_failures,
    expected_segment_s,
    expected_wallclock_s,
    long_run_ettr,
    segments,
    time_shares,
)
from ettr.plan.run import PlannedRun, nodes_of


def simulated_wallclocks_s(run: PlannedRun, n_runs: int, rng: np.random.Generator) -> np.ndarray:
    """Wall-clock of runs played attempt by attempt: wait, restart, train and save, or fail.

    A failure comes after an exponential time of holding nodes; work goes back to the last save.
    """
    clock = np.zeros(n_runs)
    saved = np.zeros(n_runs)
    active = np.arange(n_runs)
    rate = run.failures_per_s
    while active.size:
        left = run.productive_s - saved[active]
        fails = rng.exponential(1 / rate, active.size) if rate else np.full(active.size, np.inf)
        n_saves = np.ceil(left / run.interval_s - 1e-9)
        whole = run.restart_s + left + n_saves * run.write_s
        done = fails >= whole
        trained = np.maximum(fails - run.restart_s, 0)
        kept = np.floor(trained / (run.interval_s + run.write_s)) * run.interval_s
        clock[active] += run.queue_s + np.where(done, whole, fails)
        saved[active] += np.where(done, left, np.minimum(kept, left))
        active = active[~done]
    return clock


@pytest.mark.parametrize("n_gpus", [8, 128, 1_024, 8_192, 16_384, 65_536, 131_072])
@pytest.mark.parametrize("queue_s", [0.0, 240.0])
def test_exact_form_at_every_scale(n_gpus: int, queue_s: float) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes_of(n_gpus),
        interval_s=900.0,
        write_s=40.0,
        restart_s=300.0,
        queue_s=queue_s,
        productive_s=20.3 * 3600,
    )
    # where failures are rare, more runs, so that enough of them fail for a standard error
    n_runs = 200_000 if n_gpus < 1_000 else 4_000
    clocks_s = simulated_wallclocks_s(run, n_runs, np.random.default_rng(2_026))
    error_s = clocks_s.std() / math.sqrt(clocks_s.size)
    assert abs(expected_wallclock_s(run) - clocks_s.mean()) < 3.5 * error_s + 1e-6
    # on small runs failures are rare, and a mean that ignored them would pass; here they count
    if n_gpus >= 8_192:
        ideal_s = replace(run, failures_per_node_day=0.0)
        assert expected_wallclock_s(run) > expected_wallclock_s(ideal_s) + 20 * error_s


@pytest.mark.parametrize("n_gpus", [16_000, 65_536, 100_000])
def test_long_form_is_the_limit_of_runs_that_get_longer(n_gpus: int) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes_of(n_gpus),
        interval_s=420.0,
        write_s=15.0,
        restart_s=200.0,
        queue_s=30.0,
    )
    finite = replace(run, productive_s=420.0 * 1_000_000)
    assert exact_ettr(finite) == pytest.approx(exact_ettr(run), rel=1e-5)


@pytest.mark.parametrize("interval_min", [7, 14, 21])
def test_paper_form_is_pessimistic_from_four_tenths_up(interval_min: float) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=12_500,
        interval_s=interval_min * 60,
        write_s=0.0,
        restart_s=300.0,
    )
    assert run.lost_share >= 0.4
    assert exact_ettr(run) - second_form_ettr(run) > 0.08
    assert exact_ettr(run) - first_form_ettr(run) > 0.08
    long = replace(run, productive_s=400 * run.interval_s)
    clocks_s = simulated_wallclocks_s(long, 600, np.random.default_rng(5))
    simulated = long.productive_s / clocks_s.mean()
    assert abs(exact_ettr(long) - simulated) < abs(general_form_ettr(long) - simulated) / 10


runs = st.builds(
    PlannedRun,
    failures_per_node_day=st.floats(1e-5, 0.05),
    n_nodes=st.integers(1, 16_384),
    interval_s=st.floats(10, 7200),
    write_s=st.floats(0, 600),
    restart_s=st.floats(0, 1800),
    queue_s=st.floats(0, 3600),
)


@given(runs)
def test_shares_of_time_sum_to_one(run: PlannedRun) -> None:
    shares = time_shares(run)
    parts = (
        shares.productive,
        shares.writing,
        shares.lost,
        shares.restarting,
        shares.queued,
    )
    assert sum(parts) == pytest.approx(1.0)
    assert all(part >= -1e-12 for part in parts)
    assert shares.productive == exact_ettr(run)


@given(runs)
def test_exact_form_is_never_under_the_paper_form_of_long_runs(run: PlannedRun) -> None:
    if run.lost_share < 1 and run.write_s == 0:
        assert exact_ettr(replace(run, queue_s=0.0)) >= second_form_ettr(run) - 1e-12


@given(runs, st.floats(1.0, 500.0))
def test_wallclock_is_the_sum_of_what_was_run_and_waited(run: PlannedRun, length: float) -> None:
    run = replace(run, productive_s=run.interval_s * length)
    n_full, last_s = segments(run)
    assert n_full * run.interval_s + last_s == pytest.approx(run.productive_s)
    assert 0 < last_s <= run.interval_s * (1 + 1e-9)
    # failures = λ times the time that nodes are held
    waited_s = (expected_failures(run) + 1) * run.queue_s
    held_s = expected_wallclock_s(run) - waited_s
    if math.isfinite(held_s):
        # expm1 of a large load leaves less than full precision
        assert run.failures_per_s * held_s == pytest.approx(expected_failures(run), rel=1e-6)


def test_no_failures_leave_the_plain_sum() -> None:
    run = PlannedRun(
        failures_per_node_day=0.0,
        n_nodes=4,
        interval_s=600.0,
        write_s=30.0,
        restart_s=120.0,
        queue_s=60.0,
        productive_s=1500.0,
    )
    assert expected_wallclock_s(run) == 60 + 120 + 1500 + 3 * 30
    assert expected_failures(run) == 0
    assert exact_ettr(replace(run, productive_s=math.inf)) == 600 / 630


def test_rates_from_nothing_to_absurd_stay_numbers() -> None:
    for rate in (0.0, 1e-320, 1e-30, 1e-12, 1e-3, 1.0, 1e6):
        ettr = long_run_ettr(rate, 600.0, 30.0, 300.0, 60.0)
        assert 0.0 <= ettr <= 600 / 630 + 1e-12
    assert (
        expected_segment_s(
            PlannedRun(failures_per_node_day=1e9, n_nodes=1000, interval_s=600.0, write_s=0.0),
            600.0,
        )
        == math.inf
    )
