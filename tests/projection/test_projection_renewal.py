"""Repair laws against fleets that are simulated, renewed or repaired to what they were."""

import numpy as np
import pytest
from scipy.special import gamma

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.models.data import Lifetimes
from ettr.models.log_location_scale import Weibull
from ettr.projection.scale import RepairLaw, failures_between, fit_at_ages, renewals

DAY_S = 86400.0
SHAPE = 0.7
SCALE_DAYS = 80.0 / gamma(1.0 + 1.0 / SHAPE)


def hazard(clock_s):
    return (np.asarray(clock_s) / (SCALE_DAYS * DAY_S)) ** SHAPE


def renewed(rng, nodes, days, age_days=0.0):
    """Failures of each node that is new after each repair, by simulation."""
    lives = SCALE_DAYS * rng.weibull(SHAPE, (nodes, 40))
    if age_days:
        # the life that is left of one that has lasted so long
        left = rng.exponential(size=nodes) + hazard(age_days * DAY_S)
        lives[:, 0] = SCALE_DAYS * left ** (1.0 / SHAPE) - age_days
    ends = np.cumsum(lives, axis=1)
    assert ends[:, -1].min() > days
    return np.sum(ends <= days, axis=1)


def test_300_new_nodes_of_the_review():
    """Weibull .7, mean 80 d, 45 days: 266 failures if repairs renew, 236 if they do not."""
    new = failures_between(hazard, 0.0, 45 * DAY_S, RepairLaw.GOOD_AS_NEW)
    old = failures_between(hazard, 0.0, 45 * DAY_S, RepairLaw.MINIMAL)
    assert 300 * new == pytest.approx(266, abs=1)
    assert 300 * old == pytest.approx(236, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("age_days", [0.0, 10.0, 100.0])
def test_nodes_of_any_age_against_a_simulation(age_days):
    rng = np.random.default_rng(1)
    counts = renewed(rng, 100_000, 45.0, age_days)
    expected = renewals(hazard, 45.0 * DAY_S, age_s=age_days * DAY_S)
    error = counts.std() / counts.size**0.5
    assert expected == pytest.approx(counts.mean(), abs=4 * error)


def test_without_memory_both_laws_agree_at_any_age():
    def flat(clock_s):
        return np.asarray(clock_s) / (10.0 * DAY_S)

    for law in RepairLaw:
        for age_s in (0.0, 5.0 * DAY_S):
            found = failures_between(flat, age_s, age_s + 30.0 * DAY_S, law)
            assert found == pytest.approx(3.0, rel=1e-4)


def test_a_fleet_that_renews_is_recovered_and_the_wrong_law_misses_it():
    """400 days of 300 nodes, new after each failure; then 300 new nodes for 45 days."""
    rng = np.random.default_rng(2)
    lives = SCALE_DAYS * rng.weibull(SHAPE, (300, 200))
    ends = np.cumsum(lives, axis=1)
    begins = ends - lives
    seen = begins < 400.0
    duration = np.where(ends < 400.0, lives, 400.0 - begins)[seen] * DAY_S
    data = Lifetimes(duration, (ends < 400.0)[seen])
    level = FailureRate(data.failures, data.node_days)
    truth = failures_between(hazard, 0.0, 45 * DAY_S, RepairLaw.GOOD_AS_NEW) / 45.0
    new, old = (
        fit_at_ages(Weibull(), data, (0.0, 45.0), level, repair_law=law).rate_per_node_day
        for law in (RepairLaw.GOOD_AS_NEW, RepairLaw.MINIMAL)
    )
    assert new.contains(truth)
    assert new.estimate == pytest.approx(truth, rel=0.06)
    assert old.estimate < 0.95 * new.estimate


def test_spans_that_are_none_are_refused():
    with pytest.raises(UsageError, match="is not a span"):
        failures_between(hazard, 5.0, 5.0, RepairLaw.MINIMAL)
    with pytest.raises(UsageError, match="0 or more seconds"):
        renewals(hazard, 5.0, age_s=-1.0)
