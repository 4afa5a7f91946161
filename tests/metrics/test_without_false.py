"""A failure rate without the failures that chance explains: its interval holds the true rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ettr.estimates import Interval
from ettr.metrics.rates import estimated_rate, rate_without_false

NODE_DAYS = 4000.0


def without(failures: int, false: Interval) -> Interval:
    rate = estimated_rate(failures, NODE_DAYS)
    return rate_without_false(rate, 40, false).without_false_per_1000_node_days


def test_no_false_failure_leaves_the_rate_as_it_is():
    rate = estimated_rate(50, NODE_DAYS)
    assert without(50, Interval(0.0, 0.0, 0.0)) == rate.per_1000_node_days


def test_the_interval_is_that_of_the_rest_and_wider_by_what_is_not_known_of_the_false():
    known, unknown = without(50, Interval(10.0, 10.0, 10.0)), without(50, Interval(10.0, 5.0, 17.0))
    # Garwood's interval of 40 events at 90 %: 30.196 to 52.069
    assert known.estimate == pytest.approx(40 / 4)
    assert known.low == pytest.approx(30.196 / 4, rel=1e-4)
    assert known.high == pytest.approx(52.069 / 4, rel=1e-4)
    assert unknown.low == pytest.approx((40 - math.hypot(40 - 30.196, 7)) / 4, rel=1e-4)
    assert unknown.high == pytest.approx((40 + math.hypot(52.069 - 40, 5)) / 4, rel=1e-4)


def test_without_a_rate_of_faults_any_that_rest_on_a_check_may_be_false():
    left, most = without(50, Interval(None, 0.0, 40.0)), estimated_rate(50, NODE_DAYS)
    assert left.estimate is None
    assert left.low == estimated_rate(10, NODE_DAYS).per_1000_node_days.low
    assert left.high == most.per_1000_node_days.high


def test_without_exposure_nothing_is_known():
    left = rate_without_false(estimated_rate(0, 0.0), 0, Interval(0.0, 0.0, 0.0))
    assert left.without_false_per_1000_node_days == Interval(None, 0.0, math.inf)


@pytest.mark.slow
def test_the_interval_holds_the_true_rate_as_often_as_it_says():
    """40 true failures on average and 10 false ones, estimated from 60 episodes of noise."""
    draw, held, draws = np.random.default_rng(3), 0, 2000
    for _ in range(draws):
        true, false, episodes = draw.poisson(40), draw.poisson(10), draw.poisson(60)
        expected = 10 * episodes / 60
        # the number scatters as a count does, and its mean with the episodes behind it
        reach = 1.645 * math.sqrt(expected + expected**2 / max(episodes, 1))
        number = Interval(expected, max(0.0, expected - reach), expected + reach)
        held += without(int(true + false), number).contains(40 / 4)
    assert 0.88 <= held / draws <= 0.95
