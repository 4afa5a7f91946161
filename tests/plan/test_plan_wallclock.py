"""Quantiles of a run's wall-clock against the same Monte Carlo idea, played attempt by attempt."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.plan.run import PlannedRun, nodes_of
from ettr.plan.wallclock import wallclock

pytestmark = pytest.mark.slow

N_RUNS = 6_000


def simulated_s(run: PlannedRun, rng: np.random.Generator) -> np.ndarray:
    clock = np.zeros(N_RUNS)
    saved = np.zeros(N_RUNS)
    active = np.arange(N_RUNS)
    while active.size:
        left = run.productive_s - saved[active]
        fails = rng.exponential(1 / run.failures_per_s, active.size)
        whole = run.restart_s + left + np.ceil(left / run.interval_s - 1e-9) * run.write_s
        done = fails >= whole
        trained = np.maximum(fails - run.restart_s, 0)
        kept = np.floor(trained / (run.interval_s + run.write_s)) * run.interval_s
        clock[active] += run.queue_s + np.where(done, whole, fails)
        saved[active] += np.where(done, left, np.minimum(kept, left))
        active = active[~done]
    return clock


@pytest.mark.parametrize("n_gpus", [8, 1_024, 16_384, 131_072])
@pytest.mark.parametrize("hours", [0.6, 8.0, 30.0])
def test_distribution_is_that_of_simulated_runs(n_gpus: int, hours: float) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes_of(n_gpus),
        interval_s=900.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=120.0,
        productive_s=hours * 3600,
    )
    clocks_s = simulated_s(run, np.random.default_rng(11))
    law = wallclock(run)
    error = 4 * math.sqrt(0.25 / N_RUNS)
    for p in (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        at_s = law.quantile_s(p)
        assert np.mean(clocks_s < at_s - 1e-3) <= p + error
        assert np.mean(clocks_s <= at_s + 1e-3) >= p - error
    # where some runs have failures by the dozen and most none, variances are noise
    if n_gpus >= 16_384:
        assert law.sd_s == pytest.approx(clocks_s.std(), rel=0.06)
    grid_s = np.quantile(clocks_s, np.linspace(0.01, 0.99, 30))
    for at_s in grid_s:
        share = np.mean(clocks_s <= at_s + 1e-3)
        assert law.within(float(at_s) + 1e-3) == pytest.approx(share, abs=error)


@pytest.mark.parametrize("n_gpus", [1_024, 16_384, 65_536])
def test_mean_of_the_law_is_the_exact_mean(n_gpus: int) -> None:
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=nodes_of(n_gpus),
        interval_s=900.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=120.0,
        productive_s=20 * 3600,
    )
    law = wallclock(run)
    # E[W] = shortest + the integral of P(W > t)
    grid_s = np.linspace(law.shortest_s, law.mean_s + 20 * law.sd_s, 1_500)
    late = np.array([1 - law.within(float(t)) for t in grid_s])
    assert law.shortest_s + np.trapezoid(late, grid_s) == pytest.approx(law.mean_s, rel=2e-4)


def test_a_run_that_never_fails_has_one_length() -> None:
    run = PlannedRun(
        failures_per_node_day=0.0,
        n_nodes=16,
        interval_s=900.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=120.0,
        productive_s=3600.0,
    )
    law = wallclock(run)
    assert law.sd_s == 0
    assert law.quantile_s(0.01) == law.quantile_s(0.99) == law.mean_s == 120 + 300 + 3600 + 4 * 30


def test_what_has_no_distribution_gets_a_sentence() -> None:
    run = PlannedRun(failures_per_node_day=6.5e-3, n_nodes=2048, interval_s=600.0, write_s=0.0)
    with pytest.raises(UsageError, match="give productive_s"):
        wallclock(run)
    with pytest.raises(UsageError, match="will not end; shorten the interval"):
        wallclock(replace(run, productive_s=1e9, interval_s=1e8))
    with pytest.raises(UsageError, match=r"not a probability; give 0.9"):
        wallclock(replace(run, productive_s=1e5)).quantile_s(90)


def hard_run(load: float, queue_s: float = 0.0) -> PlannedRun:
    """One segment of an hour in which `load` failures are expected."""
    return PlannedRun(
        failures_per_node_day=load * 24.0,
        n_nodes=1,
        interval_s=3600.0,
        queue_s=queue_s,
        productive_s=3600.0,
        write_s=0.0,
    )


@pytest.mark.parametrize("queue_s", [0.0, 7200.0])
@pytest.mark.parametrize("load", [12.0, 16.0, 19.9])
def test_a_run_that_is_hard_to_end_takes_an_exponential_time(load: float, queue_s: float) -> None:
    """A rare end among many tries: the law tends to the exponential one (Renyi 1956)."""
    law = wallclock(hard_run(load, queue_s))
    for p in (0.1, 0.5, 0.9, 0.99):
        assert law.quantile_s(p) == pytest.approx(-law.mean_s * math.log1p(-p), rel=3e-4)
    assert law.sd_s == pytest.approx(law.mean_s, rel=1e-4)


@pytest.mark.parametrize("load", [20.1, 50.0, 299.0, 800.0])
def test_a_run_that_will_not_end_is_refused(load: float) -> None:
    with pytest.raises(UsageError, match=r"will not end; shorten the interval or the restart"):
        wallclock(hard_run(load))


@pytest.mark.parametrize("load", [40.0, 50.0, 299.0])
def test_the_window_of_a_law_lost_in_rounding_is_refused(
    load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ettr.plan.wallclock._HIGHEST_LOAD", math.inf)
    with pytest.raises(
        UsageError, match=r"hardly ever ends, so its distribution is unknown; shorten"
    ):
        wallclock(hard_run(load))
