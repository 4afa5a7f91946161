"""Clustering over time and over nodes: what is seen, what an interval makes of it."""

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import fleet_spread
from ettr.models.data import Counts
from ettr.models.dispersion import (
    FailureTimeline,
    spread_over_nodes,
    spread_over_time,
)

DAYS, NODES = 90.0, 500


def timeline(times_days, days=DAYS, nodes=NODES):
    edges = np.linspace(0.0, days, int(days * 2) + 1)
    return FailureTimeline(np.asarray(times_days, dtype=float), edges, edges * nodes)


def bursts(rng, expected, size=4.0, lasts_days=1.0, days=DAYS):
    """Fleet-wide bursts at a constant rate: Poisson in time, geometric in size."""
    parents = rng.uniform(0.0, days, rng.poisson(expected / size))
    times = np.repeat(parents, rng.geometric(1.0 / size, parents.size))
    times = times + rng.uniform(0.0, lasts_days, times.size)
    return times[times < days]


def alone(rng, expected, days=DAYS):
    return rng.uniform(0.0, days, rng.poisson(expected))


def width(interval):
    return interval.high - interval.low


def holds(interval, truth):
    return interval.low <= truth <= interval.high


def test_twelve_failures_at_once_every_week_are_seen_as_bursts():
    times = np.repeat(np.arange(3.5, DAYS, 14.0), 12) + np.tile(np.linspace(0, 0.01, 12), 7)
    spread = spread_over_time(timeline(times))
    rate = FailureRate(times.size, DAYS * NODES)
    assert spread.is_clustered
    assert spread.p_value < 1e-6
    # a burst of 12 counts as one event: the variance is about 12 times that of single failures
    assert 8.0 < spread.index < 14.0
    assert width(spread.interval(rate)) > 2.5 * width(rate.interval())


def test_which_nodes_a_burst_hits_does_not_hide_it():
    rng = np.random.default_rng(1)
    times = bursts(rng, 120)
    by_node = Counts(np.bincount(rng.choice(NODES, times.size), minlength=NODES), DAYS)
    over_time, over_nodes = spread_over_time(timeline(times)), spread_over_nodes(by_node)
    assert not over_nodes.is_clustered
    assert fleet_spread(over_time, over_nodes).believed is over_time


def test_a_few_bad_nodes_are_seen_between_nodes():
    rng = np.random.default_rng(2)
    failures = np.zeros(NODES, dtype=int)
    failures[:5] = 12
    over_time = spread_over_time(timeline(alone(rng, 60)))
    spread = fleet_spread(over_time, spread_over_nodes(Counts(failures, DAYS))).believed
    assert spread.over == "nodes"
    assert spread.is_clustered


def test_exposure_that_comes_and_goes_is_no_clustering():
    """A fleet that runs on weekdays only fails on weekdays only."""
    rng = np.random.default_rng(3)
    edges = np.linspace(0.0, 84.0, 169)
    open_ = (edges[:-1] % 7.0) < 5.0
    node_days = np.concatenate(([0.0], np.cumsum(open_ * 0.5 * NODES)))
    clustered = []
    for _ in range(100):
        weeks, within = rng.integers(0, 12, 100), rng.uniform(0.0, 5.0, 100)
        spread = spread_over_time(FailureTimeline(weeks * 7.0 + within, edges, node_days))
        clustered.append(spread.is_clustered)
    assert np.mean(clustered) <= 0.25


def test_below_ten_failures_nothing_is_known_and_the_exact_interval_stands():
    spread = spread_over_time(timeline([1.0, 1.1, 1.2, 1.3]))
    rate = FailureRate(4, DAYS * NODES)
    assert not spread.is_known
    found, exact = spread.interval(rate), rate.interval()
    assert found.estimate == exact.estimate
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-10)


def test_a_part_of_the_failures_is_less_clustered_than_all_of_them():
    rng = np.random.default_rng(4)
    kept = [times[rng.random(times.size) < 0.25] for times in (bursts(rng, 4000, 8.0, 0.2),)]
    whole = spread_over_time(timeline(bursts(rng, 4000, 8.0, 0.2)))
    part = spread_over_time(timeline(kept[0]))
    assert whole.thinned(0.25).inflation() == pytest.approx(part.inflation(), rel=0.35)
    assert whole.thinned(0.0).inflation() == 1.0
    with pytest.raises(UsageError, match="share is 2; give a share between 0 and 1"):
        whole.thinned(2)


def test_an_exposure_of_seconds_is_still_an_exposure():
    edges = np.linspace(0.0, 2.0, 49)
    times = np.repeat(np.linspace(0.1, 1.9, 6), 5)
    large = spread_over_time(FailureTimeline(times, edges, edges * NODES))
    small = spread_over_time(FailureTimeline(times, edges, edges * 1e-9))
    assert small.index == pytest.approx(large.index)
    assert small.is_clustered


def test_a_log_of_a_few_hours_has_windows_too():
    times = np.repeat(np.linspace(0.1, 1.9, 6), 5)
    assert spread_over_time(timeline(times, days=2.0)).is_clustered


@pytest.mark.slow
@pytest.mark.parametrize("expected", [30, 100])
@pytest.mark.parametrize("lasts_days", [0.05, 1.0, 4.0])
def test_intervals_hold_when_failures_come_in_bursts(expected, lasts_days):
    rng = np.random.default_rng(5)
    inside, exact = [], []
    for _ in range(400):
        times = bursts(rng, expected, 4.0, lasts_days)
        rate = FailureRate(times.size, DAYS * NODES)
        truth = expected / (DAYS * NODES)
        inside.append(holds(spread_over_time(timeline(times)).interval(rate), truth))
        exact.append(holds(rate.interval(), truth))
    assert np.mean(inside) >= 0.88
    assert np.mean(exact) < 0.7, "the bursts of this test must be able to show the defect"


@pytest.mark.slow
@pytest.mark.parametrize("expected", [10, 30, 100, 300])
def test_independent_failures_pay_little_for_it(expected):
    rng = np.random.default_rng(6)
    wider = []
    for _ in range(400):
        times = alone(rng, expected)
        rate = FailureRate(times.size, DAYS * NODES)
        wide = spread_over_time(timeline(times)).interval(rate)
        wider.append(width(wide) / width(rate.interval()))
    assert np.median(wider) <= 1.10
    assert np.mean(wider) <= 1.25


def runs_that_failures_end(rng, runs, fail_days, days=60.0, nodes=64):
    """Failures of few large jobs, one hazard for all; the exposure of a job ends where it fails."""
    start = rng.uniform(0.0, days - 1.05, runs)
    length = rng.uniform(1 / 24, 1.0, runs)
    until_failure = rng.exponential(fail_days, runs)
    has_failed = until_failure < length
    end = np.ceil((start + np.minimum(until_failure, length)) * 86_400) / 86_400
    edges = np.linspace(0.0, days, int(days * 24) + 1)
    before = np.clip(edges[:, None] - start, 0, None) - np.clip(edges[:, None] - end, 0, None)
    return FailureTimeline(end[has_failed], edges, nodes * before.sum(axis=1))


@pytest.mark.parametrize(("runs", "fail_days"), [(120, 1.5), (400, 5.0)])
def test_a_failure_that_ends_the_exposure_of_its_window_is_no_burst(runs: int, fail_days: float):
    rng = np.random.default_rng(5)
    draws = [spread_over_time(runs_that_failures_end(rng, runs, fail_days)) for _ in range(150)]
    known = [one for one in draws if one.is_known]
    assert len(known) > 140
    assert sum(one.is_clustered for one in known) < 0.25 * len(known)
    assert sum(one.p_value < 0.01 for one in known) <= 0.04 * len(known)


def test_less_spread_than_independent_failures_have_is_no_clustering():
    rng = np.random.default_rng(6)
    for _ in range(100):
        spread = spread_over_time(runs_that_failures_end(rng, 150, 1.5))
        assert not (spread.is_clustered and spread.index <= 1.0)


def test_what_few_failures_would_hide_is_said():
    """Evenly spread failures, as no cluster looks: twelve show nothing, sixty do."""
    for n, may_hide in ((12, True), (60, False)):
        found = fleet_spread(spread_over_time(timeline(np.linspace(1, 89, n))), None)
        assert "show no clustering" in found.meaning
        assert ("would hide bursts" in found.meaning) is may_hide
