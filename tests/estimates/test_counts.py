"""Quantiles and probabilities of counts, against `scipy.stats`."""

import numpy as np
import pytest
from scipy import stats

from ettr.estimates.exact import (
    FailureRate,
    negative_binomial_probability,
    negative_binomial_quantile,
    poisson_probability,
    poisson_quantile,
)

SHARES = (0.0005, 0.05, 0.5, 0.95, 0.9995)
MEANS = (1e-9, 0.01, 0.7, 3.0, 42.5, 1e3, 1e5)


@pytest.mark.parametrize("mean", MEANS)
def test_quantile_of_a_poisson_count(mean):
    assert poisson_quantile(SHARES, mean).tolist() == stats.poisson.ppf(SHARES, mean).tolist()


def test_no_count_is_expected_of_no_exposure():
    assert poisson_quantile(0.95, 0.0) == 0.0


@pytest.mark.parametrize("mean", MEANS)
def test_quantile_is_the_least_count_that_reaches_its_share(mean):
    counts = poisson_quantile(SHARES, mean)
    assert np.all(stats.poisson.cdf(counts, mean) >= SHARES)
    assert np.all(stats.poisson.cdf(counts - 1, mean) < SHARES)


def test_probabilities_of_a_poisson_count():
    counts = np.arange(200)
    expected = stats.poisson.pmf(counts, 42.5)
    assert poisson_probability(counts, 42.5) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("index", [1.000001, 1.3, 4.0, 50.0])
def test_quantile_of_a_negative_binomial_count(mean, index):
    size = mean / (index - 1.0)
    found = [negative_binomial_quantile(share, size, 1.0 / index) for share in SHARES]
    assert found == stats.nbinom.ppf(SHARES, size, 1.0 / index).tolist()


def test_probability_of_a_negative_binomial_count():
    counts = np.arange(60)
    expected = stats.nbinom.pmf(counts, 2.5, 0.2)
    assert negative_binomial_probability(counts, 2.5, 0.2) == pytest.approx(expected, rel=1e-11)


def test_a_job_fails_as_often_as_all_its_nodes_together() -> None:
    """10 failures in 1,000 node-days, 8 nodes: one in 12.5 days."""
    rate = FailureRate(10, 1000.0)
    assert rate.mttf_h(8).estimate == pytest.approx(300.0)
    assert rate.mttf_h(8).low == pytest.approx(rate.mttf_h(1).low / 8)
