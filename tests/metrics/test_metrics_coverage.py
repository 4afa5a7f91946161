"""Intervals must hold their confidence at every expected count, none included."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from ettr.estimates.exact import mean_time_interval, poisson_interval, share_interval
from ettr.metrics.rates import estimated_rate


@pytest.mark.slow
@pytest.mark.parametrize("expected", [0.0, 0.05, 1.0, 3.0, 10.0, 50.0])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_exact_coverage_of_rates_is_at_least_nominal(expected, confidence):
    counts = np.arange(0, 400)
    inside = np.array(
        [
            low <= expected <= high
            for low, high in (poisson_interval(int(n), confidence) for n in counts)
        ]
    )
    assert poisson.pmf(counts, expected)[inside].sum() >= confidence - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("expected", [0.0, 1.0, 3.0, 10.0, 50.0])
def test_simulated_rates_and_mean_times_are_covered(expected):
    rng = np.random.default_rng(17)
    node_days = 1000.0
    held = np.zeros(2)
    for count in rng.poisson(expected, 4000):
        found = estimated_rate(int(count), node_days)
        held[0] += found.per_1000_node_days.contains(expected)
        mean = mean_time_interval(int(count), node_days)
        held[1] += mean.contains(node_days / expected if expected else np.inf)
    assert (held / 4000 >= 0.9).all()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_exact_coverage_of_shares_is_at_least_nominal(share):
    from scipy.stats import binom

    parts = np.arange(0, 61)
    ends = [share_interval(int(k), 60) for k in parts]
    inside = np.array([e.low <= share <= e.high for e in ends])
    assert binom.pmf(parts, 60, share)[inside].sum() >= 0.9 - 1e-9
