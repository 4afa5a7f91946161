"""Two rates against each other: bursts are no difference; the same nodes are compared as such."""

import math

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.models.compare import PairedCounts, compare_rates, compare_same_nodes, compare_spread
from ettr.models.data import Counts
from ettr.models.dispersion import FailureTimeline, spread_over_nodes, spread_over_time

DAYS, NODES = 90.0, 500
EDGES = np.linspace(0.0, DAYS, 181)


def spreads(rng, times):
    by_node = Counts(np.bincount(rng.choice(NODES, times.size), minlength=NODES), DAYS)
    return [
        spread_over_time(FailureTimeline(times, EDGES, EDGES * NODES)),
        spread_over_nodes(by_node),
    ]


def bursts(rng, expected, size=4.0):
    parents = rng.uniform(0.0, DAYS, rng.poisson(expected / size))
    times = np.repeat(parents, rng.geometric(1.0 / size, parents.size))
    times = times + rng.uniform(0.0, 1.0, times.size)
    return times[times < DAYS]


def compared(rng, times_a, times_b):
    rates = [FailureRate(times.size, DAYS * NODES) for times in (times_a, times_b)]
    return compare_spread(*rates, spreads(rng, times_a), spreads(rng, times_b))


def test_without_clustering_it_is_the_exact_ratio():
    rng = np.random.default_rng(1)
    a, b = np.linspace(0.5, 89.5, 60), np.linspace(0.7, 89.7, 30)
    done = compared(rng, a, b)
    exact = compare_rates(FailureRate(60, DAYS * NODES), FailureRate(30, DAYS * NODES))
    assert (done.low, done.high, done.p_value) == (exact.low, exact.high, exact.p_value)
    assert "fails more often" in done.meaning


def test_one_burst_is_no_upgrade_gone_wrong():
    rng = np.random.default_rng(2)
    b = np.sort(rng.uniform(0.0, DAYS, 20))
    a = np.concatenate([np.sort(rng.uniform(0.0, DAYS, 20)), 40.0 + np.linspace(0.0, 0.1, 20)])
    exact = compare_rates(FailureRate(40, DAYS * NODES), FailureRate(20, DAYS * NODES))
    assert exact.low > 1.0
    done = compared(rng, a, b)
    assert done.low < 1.0
    assert done.dispersion > 3.0


def test_few_failures_say_that_nothing_is_known_of_clustering():
    done = compared(np.random.default_rng(3), np.array([1.0, 2.0]), np.array([5.0]))
    assert "cannot be known from 3 failures" in done.meaning


def frail(rng, failures, ratio):
    """The same nodes twice, their proneness gamma with CV squared 4."""
    proneness = rng.gamma(0.25, 4.0, NODES)
    mean = failures / NODES
    a, b = rng.poisson(mean * ratio * proneness), rng.poisson(mean * proneness)
    return PairedCounts(a, np.full(NODES, DAYS), b, np.full(NODES, DAYS))


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "most"), [(30, 0.12), (100, 0.12)])
def test_the_same_nodes_before_and_after_hold_their_level(failures, most):
    rng = np.random.default_rng(4)
    rejected, halved = [], []
    for _ in range(1000):
        rejected.append(compare_same_nodes(frail(rng, failures, 1.0), ()).p_value < 0.1)
        halved.append(compare_same_nodes(frail(rng, failures, 0.5), ()).high < 1.0)
    assert 0.04 <= np.mean(rejected) <= most
    assert np.mean(halved) >= (0.65 if failures == 30 else 0.95)


def test_nodes_that_shared_the_periods_unequally_are_standardised():
    """A prone node that ran mostly after the upgrade is no sign of the upgrade."""
    days_a, days_b = np.array([90.0, 10.0]), np.array([10.0, 90.0])
    prone = np.array([0.1, 2.0])
    pairs = PairedCounts(prone * days_a, days_a, prone * days_b, days_b)
    crude = compare_rates(FailureRate(29, 100.0), FailureRate(181, 100.0))
    assert crude.high < 0.5
    done = compare_same_nodes(pairs, ())
    assert done.ratio == pytest.approx(1.0, rel=0.02)
    assert done.low < 1.0 < done.high


def test_nothing_common_cannot_be_paired():
    with pytest.raises(UsageError, match="no node was in use in both periods"):
        compare_same_nodes(
            PairedCounts(*(np.array(v) for v in ([1, 0], [9, 0], [0, 1], [0, 9]))), ()
        )


@pytest.mark.slow
def test_size_and_power():
    rng = np.random.default_rng(5)
    for expected in (30, 100):
        false = [compared(rng, bursts(rng, expected), bursts(rng, expected)) for _ in range(400)]
        assert np.mean([done.p_value < 0.1 for done in false]) <= 0.12
        exact = [compare_rates(done.a, done.b).p_value < 0.1 for done in false]
        assert np.mean(exact) > 0.35, "the bursts of this test must be able to show the defect"
    for a, b, least in ((60, 30, 0.85), (200, 100, 0.98)):
        draws = [
            compared(
                rng,
                rng.uniform(0.0, DAYS, rng.poisson(a)),
                rng.uniform(0.0, DAYS, rng.poisson(b)),
            )
            for _ in range(400)
        ]
        assert np.mean([done.low > 1.0 for done in draws]) >= least
        assert all(math.isfinite(done.p_value) for done in draws)
