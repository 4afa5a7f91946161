"""Published runs: what a fitted rate implies for their ETTR."""

import pytest

from ettr.models.constant import ConstantRate
from ettr.models.data import Counts
from ettr.plan.intervals import with_best_interval
from ettr.plan.renewal import ettr_by_rate, exact_ettr
from ettr.plan.run import PlannedRun
from ettr.projection.scale import Scale, Seen, project

LLAMA = ConstantRate().fit(Counts([419], [2048 * 54.0], unit="fleet"))
RATE = LLAMA.rate_per_node_day.estimate


@pytest.mark.parametrize(("write_s", "over"), [(10.0, 0.90), (60.0, 0.85)])
def test_llama_3_405b_beside_its_published_over_90_percent(write_s, over):
    """Dubey et al. (2024): over 90 % effective training time; writes and restarts are assumed."""
    run = with_best_interval(
        PlannedRun(
            failures_per_node_day=RATE,
            n_nodes=2048,
            interval_s=600.0,
            write_s=write_s,
            restart_s=300.0,
        )
    )
    found = project([LLAMA], Scale(2048, run_days=54), Seen(2048), ettr_by_rate(run))
    assert found.ettr.estimate == pytest.approx(exact_ettr(run))
    assert over < found.ettr.low < found.ettr.estimate < found.ettr.high < 1.0
    assert found.ettr.high - found.ettr.low < 0.03
    assert found.failures_in_run.low < 419 < found.failures_in_run.high
    assert found.warnings == ()


def test_the_rate_of_the_run_itself_is_not_used():
    run = PlannedRun(failures_per_node_day=RATE, n_nodes=2048, interval_s=600.0, write_s=0.0)
    other = PlannedRun(
        failures_per_node_day=100 * RATE, n_nodes=2048, interval_s=600.0, write_s=0.0
    )
    assert ettr_by_rate(run)(5.0) == ettr_by_rate(other)(5.0)


def test_rsc1_at_16000_gpus():
    """Monte Carlo of the reference: 0.722 at 60 min, 0.934 at 5 min, restarts of 5 min."""
    fit = ConstantRate().fit(Counts([650], [100_000.0]))
    for interval_s, expected in ((3600.0, 0.722), (300.0, 0.934)):
        run = PlannedRun(
            failures_per_node_day=0.0065,
            n_nodes=2000,
            interval_s=interval_s,
            restart_s=300.0,
            write_s=0.0,
        )
        found = project([fit], Scale(2000), Seen(512), ettr_by_rate(run))
        assert found.ettr.estimate == pytest.approx(expected, abs=0.002)
