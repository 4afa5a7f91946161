"""Laws: samples follow the model's own law, new, aged and in service; repairs; files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammainc, ndtr
from scipy.stats import kstest

from ettr.errors import UsageError
from ettr.models.data import LifeLaw, Lifetimes, NodeRepair
from ettr.models.law_file import fit_of_text, fit_text, read_fit, write_fit
from ettr.models.log_location_scale import LogLocationScale, Weibull
from ettr.models.registry import COUNT_MODELS, MODELS, law_of_age, life_law, model_of_key
from ettr.projection.scale import renewals
from ettr.units import SECONDS_PER_DAY
from models.conformance import counts, lifetimes

DAY_S = float(SECONDS_PER_DAY)
LAWS: dict[str, dict[str, float]] = {
    "constant": {"rate": 0.01},
    "gamma-mixed": {"rate": 0.01, "spread": 0.6},
    "weibull": {"shape": 0.6, "scale": 70 * DAY_S},
    "lognormal": {"median": 60 * DAY_S, "sigma": 1.1},
    "piecewise": {"rate 1": 0.03, "rate 2": 0.0, "rate 3": 0.01, "step 1": 2e6, "step 2": 4e6},
}
DRAWS = 4000


def named(key: str) -> LifeLaw:
    return model_of_key(key).law_of(LAWS[key])


def expected_cdf(key: str, clock_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chance that a new node has failed, from textbooks and not from the code."""
    days = clock_s / DAY_S
    if key == "constant":
        return 1.0 - np.exp(-0.01 * days)
    if key == "gamma-mixed":
        return 1.0 - (1.0 + 0.6 * 0.01 * days) ** (-1.0 / 0.6)
    if key == "weibull":
        return 1.0 - np.exp(-((days / 70.0) ** 0.6))
    if key == "lognormal":
        return ndtr(np.log(np.maximum(days, 1e-300) / 60.0) / 1.1)
    hazard = 0.03 * np.minimum(clock_s, 2e6) + 0.01 * np.maximum(clock_s - 4e6, 0.0)
    return 1.0 - np.exp(-hazard / DAY_S)


def test_every_model_is_tried() -> None:
    assert set(LAWS) == set(MODELS)


@pytest.mark.parametrize("key", LAWS)
@pytest.mark.parametrize("age_days", [0.0, 3.0, 90.0])
def test_lives_follow_the_law_given_the_age_survived(key: str, age_days: float) -> None:
    age_s = age_days * DAY_S
    left_s = named(key).sample(DRAWS, np.random.default_rng(5), age_s)
    gone = float(expected_cdf(key, np.array([age_s]))[0])

    def cdf(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return (expected_cdf(key, age_s + t) - gone) / (1.0 - gone)

    assert kstest(left_s, cdf).pvalue > 0.01


@pytest.mark.parametrize("key", LAWS)
def test_ages_may_differ_and_the_seed_decides(key: str) -> None:
    law = named(key)
    ages = np.linspace(0.0, 200 * DAY_S, 50)
    first, second = (law.sample(50, np.random.default_rng(9), ages) for _ in range(2))
    assert np.array_equal(first, second)
    one_by_one = np.random.default_rng(9)
    singly = [float(law.sample(1, one_by_one, age)[0]) for age in ages]
    assert np.allclose(first, singly, rtol=1e-9)


IN_SERVICE: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "constant": lambda days: 1.0 - np.exp(-0.01 * days),
    # the integral of survival over the mean life
    "weibull": lambda days: gammainc(1.0 / 0.6, (days / 70.0) ** 0.6),
    "lognormal": lambda days: (
        days * ndtr(-np.log(days / 60.0) / 1.1) / (60.0 * math.exp(1.1**2 / 2.0))
        + ndtr(np.log(days / 60.0) / 1.1 - 1.1)
    ),
}


@pytest.mark.parametrize("key", IN_SERVICE)
def test_a_fleet_in_service_has_the_ages_of_renewal_theory(key: str) -> None:
    age_s, left_s = named(key).sample_in_service(DRAWS, np.random.default_rng(11))
    for drawn in (age_s, left_s):
        assert kstest(drawn / DAY_S, IN_SERVICE[key]).pvalue > 0.01


def test_mean_lives() -> None:
    assert math.isclose(named("constant").mean_s(), 100 * DAY_S, rel_tol=1e-3)
    weibull = 70 * math.gamma(1.0 + 1.0 / 0.6) * DAY_S
    assert math.isclose(named("weibull").mean_s(), weibull, rel_tol=1e-3)
    assert math.isclose(
        named("lognormal").mean_s(), 60 * math.exp(1.1**2 / 2.0) * DAY_S, rel_tol=1e-3
    )
    assert math.isclose(named("gamma-mixed").mean_s(), 100 / 0.4 * DAY_S, rel_tol=1e-3)
    assert model_of_key("constant").law_of({"rate": 0.0}).mean_s() == math.inf


def test_nodes_of_a_mixed_fleet_keep_their_own_rate() -> None:
    """A factor for each node, then an exponential life, is the law of a node not known."""
    law, rng = named("gamma-mixed"), np.random.default_rng(2)
    factors = law.node_factors(DRAWS, rng)
    assert math.isclose(float(factors.mean()), 1.0, abs_tol=0.05)
    assert math.isclose(float(factors.var()), 0.6, abs_tol=0.06)
    lives_s = law.of_node().clock_at(rng.standard_exponential(DRAWS) / factors)
    assert kstest(lives_s, lambda t: expected_cdf("gamma-mixed", t)).pvalue > 0.01


def test_a_mixed_fleet_in_service_fails_at_the_mean_rate() -> None:
    """A node keeps its rate after a failure: the next one is that of a node not known."""
    _, left_s = named("gamma-mixed").sample_in_service(DRAWS, np.random.default_rng(6))
    assert kstest(left_s, lambda t: expected_cdf("gamma-mixed", t)).pvalue > 0.01


@pytest.mark.parametrize("key", ["weibull", "lognormal"])
@pytest.mark.parametrize("hazard", [1e-9, 0.3, 40.0])
def test_a_law_without_a_closed_inverse_is_inverted_by_search(key: str, hazard: float) -> None:
    law = named(key)
    closed = law.clock_at(np.array([hazard]))
    assert np.allclose(LifeLaw.clock_at(law, np.array([hazard])), closed, rtol=1e-7)
    assert np.allclose(law.cumulative_hazard(closed), hazard, rtol=1e-9)


def test_a_law_by_its_mean() -> None:
    for key, form, scale_s in (
        ("weibull", 0.5, 50 * DAY_S),
        ("weibull", 2.0, 100 * DAY_S / math.gamma(1.5)),
        ("lognormal", 1.0, 100 * DAY_S * math.exp(-0.5)),
    ):
        model = law_of_age(key)
        assert isinstance(model, LogLocationScale)
        law = model.law_with_mean(form, 100 * DAY_S)
        assert math.isclose(math.exp(law.location), scale_s, rel_tol=1e-3)
    with pytest.raises(UsageError, match="positive mean"):
        Weibull().law_with_mean(0.5, 0.0)


def failures(law: LifeLaw, repair: NodeRepair, ages: str, n: int, horizon_s: float) -> float:
    """Mean failures of a node up to a horizon, repaired at once."""
    rng = np.random.default_rng(31)
    age_s = np.zeros(n) if ages == "new" else law.sample_in_service(n, rng)[0]
    clock_s, total = np.zeros(n), 0
    while clock_s.size:
        left_s = law.sample(clock_s.size, rng, age_s)
        struck = clock_s + left_s < horizon_s
        total += int(struck.sum())
        clock_s, age_s = (clock_s + left_s)[struck], (age_s + left_s)[struck]
        age_s = repair.ages_after_s(age_s, rng)
    return total / n


S3 = {
    ("weibull", 0.5): (375.7, 280.4),
    ("weibull", 2.0): (66.2, 72.4),
    ("lognormal", 1.0): (158.4, 175.2),
}
"""Failures of 256 servers of mean life 100 days in 60 days: good as new, minimal repair."""


@pytest.mark.parametrize("law", S3)
def test_repair_laws_of_a_new_fleet(law: tuple[str, float]) -> None:
    lives = law_of_age(law[0]).law_with_mean(law[1], 100 * DAY_S)
    for as_new_share, expected in zip((1.0, 0.0), S3[law], strict=True):
        mean = 256 * failures(lives, NodeRepair(as_new_share), "new", 40_000, 60 * DAY_S)
        # four standard errors at the largest variance of a count seen here, 2.5 times its mean
        assert abs(mean - expected) < 4 * 256 * math.sqrt(2.5 * expected / 256 / 40_000)


@pytest.mark.parametrize("law", S3)
def test_a_fleet_in_service_fails_once_a_mean_life(law: tuple[str, float]) -> None:
    lives = law_of_age(law[0]).law_with_mean(law[1], 100 * DAY_S)
    mean = 256 * failures(lives, NodeRepair(1.0), "in service", 40_000, 60 * DAY_S)
    assert abs(mean - 153.6) < 4 * 256 * math.sqrt(2.5 * 0.6 / 40_000)


@pytest.mark.parametrize("share", [0.25, 0.7])
def test_imperfect_repair_lies_where_brown_and_proschan_put_it(share: float) -> None:
    """Repairs as new are renewals of share times the hazard, and a share of the failures."""
    lives = law_of_age("weibull").law_with_mean(0.5, 100 * DAY_S)
    horizon_s = 60 * DAY_S
    expected = renewals(lambda clock_s: share * lives.cumulative_hazard(clock_s), horizon_s) / share
    mean = failures(lives, NodeRepair(share), "new", 40_000, horizon_s)
    assert abs(mean - expected) < 4 * math.sqrt(2.5 * expected / 40_000)
    assert 280.4 < 256 * expected < 375.7


def test_a_repair_share_is_a_share() -> None:
    with pytest.raises(UsageError, match="from 0"):
        NodeRepair(1.2)


@pytest.mark.parametrize("key", MODELS)
def test_a_fit_comes_back_from_its_file(key: str, tmp_path: Path) -> None:
    data = counts() if key in COUNT_MODELS else lifetimes()
    fit = model_of_key(key).fit(data)
    path = tmp_path / "nodes.toml"
    write_fit(path, fit, 'fleet "A", 60 nodes')
    again = read_fit(path)
    assert again == fit
    drawn, drawn_again = (
        life_law(one).sample(20, np.random.default_rng(1)) for one in (fit, again)
    )
    assert np.array_equal(drawn, drawn_again)
    if again.cumulative_hazard is not None and fit.cumulative_hazard is not None:
        clock_s = np.array([1e5, 1e6])
        assert np.allclose(again.cumulative_hazard(clock_s), fit.cumulative_hazard(clock_s))


def test_a_fit_without_failures_comes_back_and_draws_nothing() -> None:
    quiet = Lifetimes(np.full(5, 9 * DAY_S), np.zeros(5))
    fit = Weibull().fit(quiet)
    assert fit_of_text(fit_text(fit, "quiet")) == fit
    with pytest.raises(UsageError, match="shape is not known from 0 failures"):
        life_law(fit)


WRITTEN = """
format = "ettr failure model 1"
model = "weibull"
[parameters.shape]
value = 0.7
source = "assumed"
[parameters.scale_s]
value = 6048000.0
source = "Acme"
"""


def test_a_file_by_hand_needs_values_and_sources_alone() -> None:
    law = life_law(fit_of_text(WRITTEN))
    expected = (30.0 / 70.0) ** 0.7
    assert math.isclose(float(law.cumulative_hazard(np.array([30 * DAY_S]))[0]), expected)


@pytest.mark.parametrize(
    ("given", "written", "message"),
    [
        ('source = "Acme"', "", "parameters.scale_s has no source"),
        ('"weibull"', '"gompertz"', "'gompertz' is unknown; give one of constant"),
        ("0.7", "-0.7", "shape: -0.7; give a number above 0"),
        ("0.7", '"0.7"', "is not a number"),
        ("shape", "form", "shape: absent"),
        ("model 1", "model 9", "begins with"),
        ("[parameters.shape]", "[parameters.shape", "no TOML"),
    ],
)
def test_a_file_that_cannot_be_says_why(given: str, written: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        fit_of_text(WRITTEN.replace(given, written), "nodes.toml")


def test_negative_ages_are_refused() -> None:
    with pytest.raises(UsageError, match="0 or more seconds"):
        named("weibull").sample(3, np.random.default_rng(0), -1.0)
