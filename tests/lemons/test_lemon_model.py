"""The model of lemons on fleets with known truth; the whole table is the campaign `lemons`."""

from __future__ import annotations

import numpy as np
import pytest

from ettr.lemons import model
from ettr.lemons.candidates import LEAST_PROBABLE, claim_in_turn, claimed, days_to_decide
from ettr.lemons.fleet import burst_weights, workload_parts
from ettr.lemons.model import NodeCounts, SharedFailure, fit_lemons

DAYS = 28.0


def fleet(times: float, seed: int, nodes: int = 1000, lemons: int = 12):
    rng = np.random.default_rng(seed)
    theta = np.ones(nodes)
    theta[:lemons] = times
    return rng.poisson(0.0065 * DAYS * theta).astype(float), np.full(nodes, DAYS)


def test_lemons_forty_times_as_bad_are_found_and_hardly_another():
    failures, days = fleet(40, seed=1)
    chosen = claimed(fit_lemons(NodeCounts(days, failures)).posterior, 0.1)
    assert chosen[:12].sum() >= 10
    assert chosen[12:].sum() <= 3


def test_a_fleet_without_lemons_has_no_claim_though_its_nodes_are_unequal():
    rng = np.random.default_rng(2)
    failures = rng.poisson(0.0065 * DAYS * rng.gamma(4.0, 0.25, 1000)).astype(float)
    fit = fit_lemons(NodeCounts(np.full(1000, DAYS), failures))
    assert not claimed(fit.posterior, 0.1).any()


def test_more_failures_in_less_time_is_more_suspicious():
    failures, days = fleet(1, seed=3)
    failures[:2], days[:2] = 4, (DAYS, 4 * DAYS)
    posterior = fit_lemons(NodeCounts(days, failures)).posterior
    assert posterior[0] > posterior[1]


def test_probabilities_do_not_depend_on_the_order_of_nodes():
    failures, days = fleet(20, seed=4)
    order = np.random.default_rng(0).permutation(len(days))
    straight = fit_lemons(NodeCounts(days, failures)).posterior
    shuffled = fit_lemons(NodeCounts(days[order], failures[order])).posterior
    assert shuffled == pytest.approx(straight[order], abs=1e-9)


def test_shared_failures_are_divided_and_none_is_lost():
    failures, days = fleet(20, seed=5)
    rng = np.random.default_rng(6)
    shared = tuple(SharedFailure(rng.choice(1000, 8, replace=False)) for _ in range(30))
    fit = fit_lemons(NodeCounts(days, failures, shared))
    assert fit.failures.sum() == pytest.approx(failures.sum() + 30)


@pytest.mark.slow
def test_shared_failures_weigh_on_a_node_that_is_named_elsewhere():
    failures, days = fleet(20, seed=7)
    failures[0] = 2.0
    rng = np.random.default_rng(8)
    shared = tuple(
        SharedFailure(np.append(1 + rng.choice(999, 7, replace=False), 0)) for _ in range(6)
    )
    without = fit_lemons(NodeCounts(days, failures)).posterior[0]
    assert fit_lemons(NodeCounts(days, failures, shared)).posterior[0] > without + 0.2


@pytest.mark.slow
def test_a_signal_that_lemons_show_raises_them_and_one_of_chance_does_not():
    failures, days = fleet(10, seed=9)
    rng = np.random.default_rng(10)
    base = rng.poisson(0.1, 1000).astype(float)
    telling = base + np.where(np.arange(1000) < 12, rng.poisson(2.0, 1000), 0)
    alone = fit_lemons(NodeCounts(days, failures))
    with_signal = fit_lemons(NodeCounts(days, failures, (), {"outages": telling}))
    with_chance = fit_lemons(NodeCounts(days, failures, (), {"outages": base}))
    assert with_signal.posterior[:12].mean() > 2 * alone.posterior[:12].mean()
    assert with_signal.signals["outages"].ratio > 3
    assert with_chance.posterior[:12].mean() < 2 * alone.posterior[:12].mean() + 0.05


@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_jobs_hardly_use_are_no_lemons_for_what_happens_to_them_while_idle(seed: int):
    """All have outages alike in 120 days of service; jobs ran on a half of them for hours."""
    rng = np.random.default_rng(seed)
    days, service = np.repeat([80.0, 0.05], 20), np.full(40, 120.0)
    failures = rng.poisson(0.005 * days).astype(float)
    outages = rng.poisson(5.0, 40).astype(float)
    signals = {"outages": outages}
    fit = fit_lemons(NodeCounts(days, failures, (), signals, service))
    assert not claimed(fit.posterior, 0.1).any()
    assert fit.signals["outages"].base_per_node_day == pytest.approx(outages.sum() / 4800, rel=0.2)
    # outages still speak against one whose jobs fail, too
    failures[0], outages[0] = 4.0, 30.0
    bare = fit_lemons(NodeCounts(days, failures, (), {}, service)).posterior
    fit = fit_lemons(NodeCounts(days, failures, (), {"outages": outages}, service))
    assert np.flatnonzero(claimed(fit.posterior, 0.1)).tolist() == [0]
    assert fit.posterior[0] > bare[0]


def test_nodes_that_jobs_use_more_are_no_lemons_for_what_happens_under_load():
    """Half of them are busy a tenth of the time; all have XIDs as their jobs run, and only then."""
    rng = np.random.default_rng(6)
    days, service = np.repeat([100.0, 10.0], 100), np.full(200, 110.0)
    failures, xids = (rng.poisson(rate * days).astype(float) for rate in (0.005, 0.1))
    fit = fit_lemons(NodeCounts(days, failures, (), {"xids": xids}, service))
    assert not claimed(fit.posterior, 0.1).any()
    assert fit.signals["xids"].ratio < 2.0


def test_claims_keep_the_expected_share_of_good_nodes_and_leave_improbable_ones():
    posterior = np.array([1.0, 1.0, 1.0, 1.0, 0.95, 0.6, 0.2, 0.0])
    chosen = claimed(posterior, 0.1)
    assert chosen.tolist() == [True] * 6 + [False] * 2
    assert (1 - posterior[chosen]).mean() <= 0.1
    assert posterior[chosen].min() >= LEAST_PROBABLE
    # eleven certain nodes would pay for one improbable one: it is left alone all the same
    many = np.append(np.ones(11), 0.01)
    assert claimed(many, 0.1).sum() == 11


@pytest.mark.slow
def test_decisions_come_sooner_for_worse_lemons():
    better, worse = (fit_lemons(NodeCounts(*reversed(fleet(times, 11)))) for times in (20, 40))
    assert days_to_decide(worse, 0.1)[0] < days_to_decide(better, 0.1)[0]
    assert days_to_decide(worse, 0.999)[0] == 0


def test_a_rack_that_goes_down_at_once_counts_as_one_failure():
    times_s = np.array([0.0, 5e5, 5e5 + 30, 5e5 + 60, 5e5 + 90, 9e5])
    weights, bursts = burst_weights(times_s, ["a", "b", "c", "d", "e", "b"], 13.0)
    assert bursts == 1
    assert weights.tolist() == [1, 0.25, 0.25, 0.25, 0.25, 1]


def test_failures_of_one_node_in_a_row_are_no_burst():
    weights, bursts = burst_weights(np.array([0.0, 60, 120, 180]), ["a"] * 4, 0.1)
    assert bursts == 0
    assert weights.tolist() == [1] * 4


@pytest.mark.parametrize(
    ("days", "failures"), [([1.0, 0.0], [0.0, 0.0]), ([1.0], [0.0, 1.0]), ([1.0], [-1.0])]
)
def test_counts_that_cannot_be_are_refused(days, failures):
    with pytest.raises(ValueError, match=r"node|0 or more"):
        fit_lemons(NodeCounts(np.array(days), np.array(failures)))


@pytest.mark.slow
def test_moderate_lemons_are_found_next_to_extreme_ones():
    rng, found = np.random.default_rng(12), np.zeros(2)
    for _ in range(4):
        theta = np.ones(2000)
        theta[:6], theta[6:30] = 150, 15
        counts = NodeCounts(np.full(2000, DAYS), rng.poisson(0.0065 * DAYS * theta).astype(float))
        alone = claimed(fit_lemons(counts).posterior, 0.1)
        _, in_turn = claim_in_turn(counts, 0.1)
        assert in_turn[:6].all()
        assert (in_turn | ~alone).all(), "a turn takes no claim back"
        found += alone[6:30].sum(), in_turn[6:30].sum()
    assert found[1] > found[0] + 10


@pytest.mark.slow
def test_one_users_bug_on_many_nodes_accuses_none_of_them():
    rng = np.random.default_rng(13)
    nodes, days = 1000, np.full(1000, DAYS)
    named = rng.poisson(0.0065 * DAYS, nodes).astype(float)
    # 60 failures of 16 of the same 64 nodes, of a user with 64 * 28 of all node-days
    own = [rng.choice(64, 16, replace=False) for _ in range(60)]
    parts = workload_parts(np.array([60.0, 20.0]), np.array([64 * DAYS, 936 * DAYS]))
    for weight, is_claimed in ((1.0, True), (float(parts[0]), False)):
        shared = tuple(SharedFailure(one, weight) for one in own)
        _, chosen = claim_in_turn(NodeCounts(days, named, shared), 0.1)
        assert chosen.any() == is_claimed


def test_few_failures_are_no_workload():
    assert workload_parts(np.array([3.0, 40.0]), np.array([1.0, 40.0])) == pytest.approx([1, 1])
    # a user alone has nobody to be compared with
    assert workload_parts(np.array([30.0]), np.array([100.0])) == pytest.approx([1])


@pytest.mark.parametrize(("log_odds", "is_lemon"), [(900.0, False), (1200.0, True)])
def test_signals_and_failures_beyond_what_floats_hold_weigh_against_each_other(
    log_odds: float, is_lemon: bool
):
    """Without failures where 240 are usual, a lemon of five times the rate has odds of e^-960."""
    days, named = np.full(40, 20000.0), np.full(40, 240.0)
    named[0] = 0.0
    favours = np.zeros(40)
    favours[0] = log_odds
    counts = NodeCounts(days, named, [])
    found = model._average(
        counts, model._Pairs(counts), model._Grid(counts), favours, np.ones(40), exist=0.8
    )
    assert found.posterior[0] == pytest.approx(float(is_lemon), abs=1e-9)
    assert found.posterior.max() <= 1.0
    assert found.posterior[1:].max() < 1e-6
