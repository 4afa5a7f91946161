"""Rates behind the beliefs, next to the exponential and the Cox fit of lifelines."""

from __future__ import annotations

import numpy as np
import pytest

from ettr.estimates.exact import FailureRate

lifelines = pytest.importorskip("lifelines")
pd = pytest.importorskip("pandas")
RATE_PER_DAY, TIMES, SINCE_DAYS = 0.01, 8.0, 60.0


@pytest.fixture(scope="module")
def lives() -> dict[str, np.ndarray]:
    """Days until the first incident of 400 nodes in 60 days; every tenth is 8 times as bad."""
    rng = np.random.default_rng(3)
    lemon = np.arange(400) % 10 == 0
    days = rng.exponential(1 / (RATE_PER_DAY * np.where(lemon, TIMES, 1.0)))
    return {"days": np.minimum(days, SINCE_DAYS), "ended": days <= SINCE_DAYS, "lemon": lemon}


def test_the_rate_is_that_of_the_exponential_fit(lives: dict[str, np.ndarray]) -> None:
    fit = lifelines.ExponentialFitter().fit(lives["days"], lives["ended"], alpha=0.1)
    ours = FailureRate(int(lives["ended"].sum()), float(lives["days"].sum())).interval(0.9)
    assert ours.estimate == pytest.approx(1 / fit.lambda_, rel=1e-4)
    # theirs is normal on the scale of the mean, ours is exact
    half = 1.645 * fit.summary["se(coef)"].iloc[0]
    assert ours.low == pytest.approx(1 / (fit.lambda_ + half), rel=0.05)
    assert ours.high == pytest.approx(1 / (fit.lambda_ - half), rel=0.05)


def test_how_much_worse_lemons_are_is_that_of_the_cox_fit(lives: dict[str, np.ndarray]) -> None:
    table = pd.DataFrame(lives).astype(float)
    fit = lifelines.CoxPHFitter(alpha=0.1).fit(table, "days", "ended")
    low, high = np.exp(fit.confidence_intervals_.loc["lemon"].to_numpy())

    def rate(chosen: np.ndarray) -> float:
        return float(lives["ended"][chosen].sum() / lives["days"][chosen].sum())

    assert low <= rate(lives["lemon"]) / rate(~lives["lemon"]) <= high
    assert low <= TIMES <= high
