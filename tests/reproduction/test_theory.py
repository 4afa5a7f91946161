"""The bounds against simulations, and the trap in κ; golden numbers were simulated beforehand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from reproduction.scar import theory
from reproduction.scar.bounds import bounds_of
from reproduction.scar.trials import Settings

EIGENVALUES = np.array([1.0, 0.55, 0.25, 0.05])
STEP = 1.0  # gradient descent on ½ xᵀ diag(EIGENVALUES) x contracts with c = 1 − 0.05
C = 0.95
EPSILON = 1e-3


def descend(x: np.ndarray) -> np.ndarray:
    return x - STEP * EIGENVALUES * x


def costs(adversarial: bool, trials: int = 300) -> dict[str, int]:
    """Violations of each bound over random starts, moments and perturbations."""
    rng = np.random.default_rng(7)
    over = {"worst": 0, "real": 0, "anchored": 0}
    for _ in range(trials):
        start = rng.normal(size=4)
        at = int(rng.integers(1, 60))
        states = theory.run(descend, start, 400)
        clean = theory.distances(states, np.zeros(4))
        size = rng.uniform(0.1, 1.0) * np.linalg.norm(start)
        direction = np.array([0, 0, 0, math.copysign(1.0, states[at][3])])
        if not adversarial:
            direction = rng.normal(size=4)
            direction /= np.linalg.norm(direction)
        delta = size * direction
        moved = theory.distances(
            theory.run(
                descend, start, 400, perturb=lambda k, y, at=at, d=delta: d if k == at else 0 * y
            ),
            np.zeros(4),
        )
        kappa = theory.crossing(moved, EPSILON, logarithmic=True).iteration
        norms = [0.0] * at + [float(size)]
        bound = theory.worst_case_cost(norms, float(clean[0]), C)
        real = theory.crossing(clean, EPSILON, logarithmic=True).iteration
        over["worst"] += kappa - theory.worst_case_count(clean[0], EPSILON, C) > bound + 1e-9
        over["real"] += kappa - real > bound + 1e-9
        over["anchored"] += (
            kappa > theory.anchored_count(at, float(clean[at]), float(size), EPSILON, C) + 1e-9
        )
    return over


@pytest.mark.slow
@pytest.mark.parametrize("adversarial", [False, True])
def test_the_bound_holds_against_the_worst_case_count_and_not_against_the_real_one(adversarial):
    over = costs(adversarial)
    assert over["worst"] == 0
    assert over["anchored"] == 0
    assert over["real"] > 30  # the trap: the real clean run is faster than its worst case


@pytest.mark.slow
def test_an_adversary_violates_the_misread_bound_more_often_than_chance():
    assert costs(adversarial=True)["real"] > costs(adversarial=False)["real"]


def test_the_floor_under_perpetual_perturbation_is_reached():
    assert theory.error_floor(0.01, 0.95) == pytest.approx(0.1900, abs=5e-5)
    states = theory.run(
        lambda x: 0.95 * x, np.array([1.0, 0.0]), 600, perturb=lambda _k, y: 0.01 * np.array([1, 0])
    )
    assert theory.distances(states, np.zeros(2))[-1] == pytest.approx(0.1900, abs=5e-5)


def test_perturbations_that_die_out_leave_no_floor():
    states = theory.run(
        lambda x: 0.9 * x, np.ones(3), 2000, perturb=lambda k, y: np.full(3, 1.0 / (k + 1))
    )
    assert theory.distances(states, np.zeros(3))[-1] < 0.02


@pytest.mark.parametrize(("lost", "golden"), [(0.25, 0.250), (0.5, 0.500), (0.75, 0.751)])
def test_partial_recovery_keeps_the_lost_share_of_the_squared_perturbation(lost, golden):
    rng = np.random.default_rng(3)
    delta = rng.normal(size=64) * rng.uniform(0.1, 3, size=64)
    seen = []
    for _ in range(4000):
        units = rng.choice(64, size=round(lost * 64), replace=False)
        seen.append(np.sum(delta[units] ** 2))
    share = np.mean(seen) / np.sum(delta**2)
    assert share == pytest.approx(golden, abs=0.01)
    assert theory.expected_squared_perturbation(1.0, lost) == lost


def test_a_crossing_is_interpolated_and_a_run_that_never_arrives_is_censored():
    assert theory.crossing([4.0, 2.0, 1.0], 1.5) == theory.Crossing(1.5, censored=False)
    assert theory.crossing([4.0, 2.0, 1.0], 0.5) == theory.Crossing(2.0, censored=True)
    assert theory.crossing([1.0, 0.5], 2.0) == theory.Crossing(0.0, censored=False)
    assert theory.crossing([4.0, 2.0], 3.0, first_iteration=10).iteration == 10.5
    halves = theory.crossing([4.0, 1.0], 2.0, logarithmic=True)
    assert halves.iteration == pytest.approx(0.5)


def test_a_trace_that_touches_and_leaves_has_not_arrived_yet():
    trace = [3.0, 1.0, 3.0, 1.0, 0.5]
    assert theory.crossing(trace, 2.0).iteration == pytest.approx(2.5)
    assert theory.crossing(trace, 2.0, stays=False).iteration == pytest.approx(0.5)
    assert theory.crossing([3.0, 1.0, math.nan], 2.0).censored


def test_no_perturbation_costs_nothing_and_a_censored_cost_is_a_lower_bound():
    clean = 0.9 ** np.arange(100)
    assert theory.iteration_cost(clean, clean, 1e-3).iterations == 0
    cut = theory.iteration_cost(clean[:40], clean, 1e-3)
    assert cut.censored
    assert theory.worst_case_cost([0.0, 0.0], 1.0, 0.9) == 0
    assert theory.anchored_cost(1.0, 0.0, 0.9) == 0


def test_a_rollback_costs_the_iterations_rolled_back_and_the_anchored_bound_says_so():
    clean = 0.9 ** np.arange(200)
    rolled_back = np.concatenate([clean[:50], clean[40:]])
    cost = theory.iteration_cost(rolled_back, clean, 1e-6, logarithmic=True)
    assert cost.iterations == pytest.approx(10)
    bound = theory.anchored_cost(float(clean[50]), float(clean[40] - clean[50]), 0.9)
    assert bound == pytest.approx(10)


@given(
    c=st.floats(0.5, 0.99),
    start=st.floats(0.1, 10),
    size=st.floats(0, 10),
    at=st.integers(0, 30),
)
def test_the_anchored_bound_is_exact_for_a_plain_geometric_run(c, start, size, at):
    moved = [start * c**k for k in range(at + 1)]
    moved[at] += size
    while moved[-1] > 1e-2:
        moved.append(moved[-1] * c)
    seen = theory.crossing(moved, 1e-2, logarithmic=True).iteration
    bound = theory.anchored_count(at, start * c**at, size, 1e-2, c)
    assert seen <= bound + 1e-6


def test_c_is_recovered_from_a_noisy_run_with_an_interval_that_covers_it():
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(60):
        trace = np.exp(np.cumsum(np.log(0.93) + 0.02 * rng.normal(size=150)))
        found = theory.estimate_contraction(trace, rng, resamples=400)
        covered += found.lower <= 0.93 <= found.upper
        assert found.worst_step >= found.c
    assert covered >= 50


def test_c_from_the_losses_of_a_quadratic_is_its_slowest_eigenvalue():
    states = theory.run(descend, np.ones(4), 300)
    losses = 0.5 * np.sum(EIGENVALUES * states**2, axis=1)
    near = theory.distances_from_losses(losses, 0.0)[150:]
    found = theory.estimate_contraction(near, np.random.default_rng(0))
    assert found.c == pytest.approx(C, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.error_floor(0.1, 1.0), "a contraction has 0 < c < 1"),
        (lambda: theory.worst_case_cost([1.0], 0.0, 0.9), "initial_distance is 0"),
        (lambda: theory.anchored_cost(1.0, -1.0, 0.9), "a norm is 0 or more"),
        (lambda: theory.expected_squared_perturbation(1.0, 1.5), "must lie in 0 to 1"),
        (lambda: theory.crossing([], 1.0), "one number per iteration"),
        (lambda: theory.crossing([1.0, -1.0], 0.5, logarithmic=True), "positive trace"),
        (lambda: theory.iteration_cost([1.0], [1.0], 0.5), "run it longer"),
        (lambda: theory.distances_from_losses([1.0, 0.5], 0.5), "1 of 2 losses"),
        (
            lambda: theory.estimate_contraction([1.0] * 4, np.random.default_rng(0)),
            "at least 9 distances",
        ),
        (
            lambda: theory.estimate_contraction([0.0] * 10, np.random.default_rng(0)),
            "positive and finite",
        ),
        (
            lambda: theory.estimate_contraction(np.ones(20), np.random.default_rng(0), block=99),
            "must lie in 1 to 19",
        ),
    ],
)
def test_a_wrong_call_says_what_is_allowed(call, message):
    with pytest.raises(UsageError, match=message):
        call()


class Shrinking:
    """x(k+1) = c x(k) in two units; below -1 every second step leads away from the end."""

    name, random, offsets = "shrinking", False, np.array([0, 1, 2])

    def __init__(self, c: float) -> None:
        self.c = c

    def start(self, stream: int) -> np.ndarray:
        return np.ones((2, 1))

    def advance(self, states, iteration: int, stream: int):
        return [self.c * state for state in states], np.zeros(len(states))

    def moved(self, now: np.ndarray, saved: np.ndarray) -> np.ndarray:
        return np.abs(now - saved)[:, 0]


def test_the_bounds_of_a_model_are_those_of_its_worst_step():
    c, interval = 0.9, 8
    settings = Settings(iterations=32, interval=interval, grid="large")
    found = bounds_of(Shrinking(c), settings, trials=50)
    assert found.worst_step == pytest.approx(c, abs=1e-6)
    # one unit of two is lost: of the last full checkpoint, or one of two units saved a step
    for arm, oldest in (("partial/full/50", interval - 1), ("partial/priority-8/50", 1)):
        most = math.log1p((c**-oldest - 1) / math.sqrt(2)) / -math.log(c)
        assert 0 < found.costs[arm] < most
    assert bounds_of(Shrinking(-1.01), settings).costs is None
