"""A run under failures that are not independent, against the exact form and against hand counts."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ettr.analysis.own_failures import (
    AgeingNodes,
    FailureLaw,
    ReplayedTimeline,
    progress,
    simulated_run,
)
from ettr.errors import UsageError
from ettr.plan.intervals import with_best_interval
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import wallclock
from projection.constant_rate import Independent

DAY = 86400.0
RUN = with_best_interval(
    PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=2048,
        interval_s=600.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=60.0,
    )
)


class TestProgress:
    """Runs short enough to count by hand: intervals of 100 s, writes of 10, restarts of 20."""

    run = PlannedRun(
        failures_per_node_day=1.0,
        n_nodes=1,
        interval_s=100.0,
        write_s=10.0,
        restart_s=20.0,
        productive_s=250.0,
    )

    def test_without_failures(self) -> None:
        # restart 20, two intervals with writes 220, the last 50 and its write 60
        assert progress(self.run, []).wallclock_s == 300.0

    def test_a_failure_loses_the_work_since_the_last_write(self) -> None:
        # at 200 one interval is saved (130); 70 s are lost, a restart follows, 150 s are left
        assert progress(self.run, [200.0]).wallclock_s == 200.0 + 20.0 + 150.0 + 20.0

    def test_a_failure_in_a_write_loses_its_interval(self) -> None:
        assert progress(self.run, [125.0]).wallclock_s == 125.0 + 300.0

    def test_a_failure_in_a_restart_restarts_it(self) -> None:
        assert progress(self.run, [15.0]).wallclock_s == 15.0 + 300.0

    def test_nothing_fails_while_it_waits(self) -> None:
        waiting = replace(self.run, queue_s=50.0)
        assert progress(waiting, [10.0]).wallclock_s == 350.0
        # fails at 100, waits until 150; the failure at 120 meets nothing
        assert progress(waiting, [100.0, 120.0]).wallclock_s == 150.0 + 300.0

    def test_the_long_run_ends_at_the_horizon(self) -> None:
        endless = replace(self.run, productive_s=math.inf)
        assert progress(endless, [200.0], 500.0).productive_s == 100.0 + 200.0


class TestAgainstTheExactForm:
    @pytest.mark.parametrize("n_nodes", [64, 2048, 16384])
    def test_independent_failures_give_it(self, n_nodes: int) -> None:
        run = with_best_interval(replace(RUN, n_nodes=n_nodes))
        found = simulated_run(run, Independent(), "")
        assert found.ettr == pytest.approx(found.exact_ettr, abs=4 * found.ettr_error)

    def test_and_its_quantiles(self) -> None:
        run = replace(RUN, productive_s=10 * DAY)
        found = simulated_run(run, Independent(), "")
        law = wallclock(run)
        assert found.mean_s == pytest.approx(law.mean_s, rel=0.005)
        for share, at_s in found.quantiles[:3]:
            assert at_s == pytest.approx(law.quantile_s(share), rel=0.02)

    def test_a_replay_of_independent_failures_gives_it_too(self) -> None:
        rng = np.random.default_rng(3)
        law = ReplayedTimeline(np.sort(rng.uniform(0, 300 * DAY, 4000)), 300 * DAY, DAY)
        found = simulated_run(RUN, law, "")
        assert found.ettr == pytest.approx(found.exact_ettr, abs=4 * found.ettr_error + 0.003)

    def test_lives_of_shape_1_give_it(self) -> None:
        found = simulated_run(RUN, AgeingNodes(RUN.n_nodes, 1.0), "")
        assert found.ettr == pytest.approx(found.exact_ettr, abs=4 * found.ettr_error)


def burst_timeline(size: int) -> ReplayedTimeline:
    """50 bursts in 100 days, their failures a minute apart."""
    rng = np.random.default_rng(5)
    begins = np.sort(rng.uniform(0, 99 * DAY, 50))
    times = np.sort((begins[:, None] + 60.0 * np.arange(size)).ravel())
    return ReplayedTimeline(times, 100 * DAY, DAY)


class TestBursts:
    def test_failures_close_together_cost_little_more_than_one(self) -> None:
        run = with_best_interval(replace(RUN, n_nodes=64, failures_per_node_day=2.0 / 64))
        law = burst_timeline(4)
        found = simulated_run(run, law, "Failures come in bursts.")
        # four within a restart are one longer restart: about a quarter of the events at that rate
        events = replace(run, failures_per_node_day=run.failures_per_node_day / 4)
        longer = replace(events, restart_s=run.restart_s + 180.0)
        from ettr.plan.renewal import exact_ettr

        assert found.ettr == pytest.approx(exact_ettr(longer), abs=0.003)
        assert found.off_by < -5 * found.ettr_error
        assert "too low" in found.sentence
        assert found.best_interval_s > run.interval_s

    @pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
    def test_a_law_keeps_the_rate(self, factor: float) -> None:
        law, rng = burst_timeline(4), np.random.default_rng(1)
        per_s = factor * 200 / (100 * DAY)
        counts = [law.times_s(per_s, 400 * DAY, rng).size for _ in range(30)]
        expected = per_s * 400 * DAY
        assert np.mean(counts) == pytest.approx(expected, rel=0.05)
        # bursts of four stay together where each failure is met, and are thinned where not
        assert np.var(counts) > (1.5 if factor >= 1 else 1.1) * expected * 0.6

    @pytest.mark.parametrize("law", [Independent(), AgeingNodes(500, 0.6), AgeingNodes(500, 2.0)])
    def test_laws_of_nodes_keep_the_rate(self, law: FailureLaw) -> None:
        rng = np.random.default_rng(2)
        per_s = 500 * 6.5e-3 / DAY
        counts = [law.times_s(per_s, 200 * DAY, rng).size for _ in range(30)]
        assert np.mean(counts) == pytest.approx(per_s * 200 * DAY, rel=0.05)

    def test_nothing_to_replay_is_refused(self) -> None:
        with pytest.raises(UsageError):
            ReplayedTimeline(np.empty(0), DAY, DAY)
