"""Burn alerts: the false-alarm rate that is computed is the one that comes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ettr.analysis.objectives import SINKS, BurnAlert, burn, burn_rule, dispersion_of_losses


def failures(rng: np.random.Generator, ratio: float, end: float, phi: float) -> np.ndarray:
    """Times of failures in clusters of geometric size, in failures that the budget expects."""
    size = (phi + 1.0) / 2.0
    at = np.sort(rng.uniform(0.0, end, rng.poisson(ratio * end / size)))
    return np.repeat(at, rng.geometric(1.0 / size, len(at)))


@pytest.mark.parametrize(
    ("false_alarms", "phi"), [(0.2, 1.0), (0.02, 1.0), (0.005, 1.0), (0.05, 3.0), (0.01, 8.0)]
)
def test_alarms_come_as_often_as_stated(false_alarms: float, phi: float) -> None:
    rule = burn_rule(false_alarms, phi)
    end = 500 / false_alarms
    seen = len(burn(failures(np.random.default_rng(7), 1.0, end, phi), end, rule).alerts)
    stated = rule.false_alarms * end
    assert false_alarms * 0.93 < rule.false_alarms <= false_alarms
    assert abs(seen - stated) < 4 * math.sqrt(stated)


def test_half_the_budget_is_quiet_and_twice_of_it_is_found_soon() -> None:
    rng, rule = np.random.default_rng(8), burn_rule(0.01)
    quiet = [len(burn(failures(rng, 0.5, 100.0, 1.0), 100.0, rule).alerts) for _ in range(50)]
    found = [burn(failures(rng, 2.0, 100.0, 1.0), 100.0, rule).alerts for _ in range(200)]
    assert sum(quiet) <= 2
    assert all(found)
    # Lorden's bound of the delay: log of the mean time between false alarms over the information
    information = 2.0 * math.log(2.0) - 1.0
    assert np.mean([one[0].since for one in found]) < math.log(100.0) / information * 1.0


def test_an_alert_lasts_until_the_budget_has_made_up_for_it() -> None:
    rule = burn_rule(0.01)
    n = math.ceil(rule.threshold)
    found = burn([1.0] * n, 100.0, rule)
    assert found.alerts == (BurnAlert(1.0, pytest.approx(1.0 + rule.threshold / SINKS)),)
    assert found.level == 0.0
    open_one = burn([1.0] * n, 1.5, rule)
    assert open_one.alerts == (BurnAlert(1.0, None),)
    assert open_one.level == pytest.approx(1.0 - 0.5 * SINKS / rule.threshold)


@pytest.mark.parametrize(("alike", "truth"), [(True, 3.0), (False, 1.0 + 2.0 * math.exp(-1.0))])
def test_losses_vary_with_a_burst_as_far_as_its_failures_lose_alike(
    alike: bool, truth: float
) -> None:
    """Bursts of two on average, whose losses are log-normal: 1 + 2 E(ab) / E(a^2) of a pair."""
    rng, day_s = np.random.default_rng(5), 86400.0
    end_s = 5000 * day_s
    begun = rng.uniform(0.0, end_s, 20000)
    burst = np.repeat(np.arange(begun.size), rng.geometric(0.5, begun.size))
    times = begun[burst] + rng.uniform(0.0, day_s, burst.size)
    drawn = rng.standard_normal(burst.size)
    lost = np.exp(drawn[burst] if alike else drawn)
    edges = np.array([0.0, end_s])
    found = dispersion_of_losses(3.0, times, lost, edges, edges / end_s)
    assert found == pytest.approx(truth, abs=0.35)
    assert dispersion_of_losses(1.0, times, lost, edges, edges / end_s) == 1.0
