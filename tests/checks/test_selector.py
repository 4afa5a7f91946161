"""Beliefs and the selector: against brute force, an ODE, and fleets of known truth."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from checks.known_fleet import (
    Fleet,
    daily,
    estimated,
    every,
    none,
    run,
    select,
    true_knowledge,
)
from ettr.checks.selector import (
    Offer,
    Prospect,
    after_idle,
    after_pass,
    after_survival,
    choose,
    expected_node_h,
    survival,
)

JOBS = 40


def prospect(rng, nodes, kinds, incident_node_h, restarts=False):
    belief = rng.random((nodes, kinds)) * 0.1
    clean, bad = survival(np.full((nodes, kinds), 1e-4), np.full(kinds, 0.1), 24.0)
    return Prospect(belief, clean, bad, incident_node_h, restarts)


def offer(rng, checks, kinds, waits):
    coverage = rng.random((checks, kinds)) * (rng.random((checks, kinds)) < 0.4)
    hours = rng.uniform(0.02, 0.6, checks)
    return Offer(coverage, hours, rng.uniform(0, 0.01, checks), waits)


def test_beliefs_follow_their_equation():
    assert after_idle(0.0, 0.01, 100.0) == pytest.approx(1 - np.exp(-1.0))
    for belief, rate, strike in ((0.3, 0.01, 0.2), (0.0, 0.05, 0.05), (0.9, 0.2, 0.01)):
        path = solve_ivp(
            lambda _, b, r=rate, s=strike: (1 - b) * (r - s * b), (0, 24), [belief], rtol=1e-10
        )
        found = after_survival(belief, rate, strike, 24.0)
        assert found == pytest.approx(path.y[0, -1], rel=1e-3)
    assert after_pass(0.5, 0.9) == pytest.approx(0.05 / 0.55)
    assert after_pass(0.5, 0.0) == 0.5


def test_survival_is_that_of_drawn_lives():
    rng = np.random.default_rng(1)
    arise, strike = rng.exponential(1 / 0.02, 200_000), rng.exponential(1 / 0.1, 200_000)
    clean, bad = survival(0.02, 0.1, 24.0)
    assert clean == pytest.approx(np.mean(arise + strike > 24), abs=0.005)
    assert bad == pytest.approx(np.exp(-2.4))


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_for_a_job_is_within_a_hundredth_of_the_best_subset(seed):
    rng = np.random.default_rng(seed)
    job, checks = prospect(rng, 6, 4, rng.uniform(2, 60), seed % 2 == 1), offer(rng, 7, 4, True)
    found = expected_node_h(job, checks, choose(job, checks).runs)
    usable = job.belief @ checks.coverage.T > 0
    best = min(
        expected_node_h(job, checks, np.array(subset)[:, None] & usable.T)
        for subset in product((False, True), repeat=7)
    )
    assert found <= best * 1.01


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_of_nodes_is_within_a_hundredth_of_the_best_pairs(seed):
    rng = np.random.default_rng(seed)
    job, checks = prospect(rng, 3, 3, rng.uniform(2, 20)), offer(rng, 4, 3, False)
    found = expected_node_h(job, checks, choose(job, checks).runs)
    best = min(
        expected_node_h(job, checks, np.array(pairs).reshape(4, 3))
        for pairs in product((False, True), repeat=12)
    )
    assert found <= best * 1.01


def test_nothing_pays_where_incidents_cost_less_than_the_checks():
    rng = np.random.default_rng(0)
    for waits in (True, False):
        choice = choose(prospect(rng, 20, 4, 0.1), offer(rng, 6, 4, waits))
        assert not choice.pays
        assert choice.saved_node_h == 0
        assert choice.struck_after == choice.struck_before


def test_only_the_suspect_nodes_are_checked_where_the_others_do_not_wait():
    belief = np.full((50, 1), 1e-4)
    belief[7] = 0.5
    clean, bad = survival(np.full((50, 1), 1e-6), np.array([1.0]), 24.0)
    checks = Offer(np.array([[0.9]]), np.array([0.2]), np.zeros(1), False)
    choice = choose(Prospect(belief, clean, bad, 100.0), checks)
    assert np.flatnonzero(choice.runs[0]).tolist() == [7]


@pytest.mark.parametrize("waits", [True, False])
def test_two_thousand_nodes_and_thirty_checks_take_a_cpu_second(waits):
    rng = np.random.default_rng(3)
    belief = rng.random((2000, 15)) * 1e-4
    clean, bad = survival(np.full((2000, 15), 1e-7), np.full(15, 0.1), 24.0)
    coverage = np.zeros((30, 15))
    for check in range(30):
        coverage[check, rng.choice(15, 2, replace=False)] = rng.uniform(0.3, 0.95, 2)
    checks = Offer(coverage, rng.uniform(0.02, 0.5, 30), np.full(30, 1e-4), waits)
    began = time.process_time()
    choice = choose(Prospect(belief, clean, bad, 8000.0), checks)
    assert time.process_time() - began < 1.0
    assert choice.pays


def test_useful_share_of_ten_fleets_of_known_truth():
    known, guessed, over_daily = [], [], []
    for seed in range(10):
        fleet = Fleet.drawn(seed)
        truth, luck = true_knowledge(fleet), 100 + seed
        nothing = run(fleet, none, truth, JOBS, luck).useful_share
        everything = run(fleet, every, truth, JOBS, luck).useful_share
        oracle = run(fleet, None, truth, JOBS, luck).useful_share
        chosen = run(fleet, select(fleet), truth, JOBS, luck).useful_share
        past = estimated(fleet, run(fleet, none, truth, JOBS, 200 + seed))
        learned = run(fleet, select(fleet), past, JOBS, luck).useful_share
        assert chosen >= max(nothing, everything)
        over_daily.append(chosen - run(fleet, daily, truth, JOBS, luck).useful_share)
        known.append((chosen - nothing) / (oracle - nothing))
        guessed.append((learned - nothing) / (oracle - nothing))
    assert np.mean(known) >= 0.5
    assert np.mean(guessed) >= 0.4
    assert min(over_daily) > 0.0


def test_incidents_that_cost_little_leave_hardly_a_check():
    fleet = Fleet.drawn(3, incident_h=0.02)
    truth = true_knowledge(fleet)
    assert run(fleet, select(fleet), truth, 20, 1).checks == 0
