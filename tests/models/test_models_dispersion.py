import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.models.data import Counts
from ettr.models.dispersion import burstiness, dispersion, widest_window


def test_alike_nodes_keep_the_poisson_interval():
    rng = np.random.default_rng(1)
    found = dispersion(Counts(rng.poisson(0.5, 200), 100.0))
    assert found.believe == "poisson"
    assert found.interval == found.poisson
    assert found.index == pytest.approx(1.0, abs=0.25)


def test_a_few_bad_nodes_are_seen_and_widen_the_interval():
    rng = np.random.default_rng(2)
    counts = np.append(rng.poisson(0.3, 195), [9, 8, 7, 10, 9])
    found = dispersion(Counts(counts, 100.0))
    assert found.believe == "over-dispersed"
    assert found.test.p_value < 1e-6
    assert found.over_dispersed.low < found.poisson.low
    assert found.over_dispersed.high > found.poisson.high
    assert "believe the over-dispersed interval" in found.meaning


def test_below_ten_failures_dispersion_cannot_be_known():
    found = dispersion(Counts([9, 0, 0, 0], 10.0))
    assert found.believe == "unknown"
    assert found.index is None
    assert "cannot be known (9 failures have a node, too few; 10 over two or more" in found.meaning


def test_one_node_has_no_spread():
    found = dispersion(Counts([40], 10.0))
    assert found.believe == "unknown"
    assert "one node alone has no spread" in found.meaning


def test_nothing_failed():
    found = dispersion(Counts([0, 0], 10.0))
    assert found.poisson.low == 0.0
    assert found.poisson.high == pytest.approx(2.9957 / 20, rel=1e-4)


def test_test_statistic_is_pearsons():
    """The statistic of SciPy's chi-square test of equal counts."""
    from scipy.stats import chisquare

    seen = [4, 9, 2, 7, 5, 3]
    assert dispersion(Counts(seen, 10.0)).test.statistic == pytest.approx(chisquare(seen).statistic)


@pytest.mark.slow
def test_dispersion_test_holds_its_level_with_few_failures_a_node():
    rng = np.random.default_rng(4)
    for per_node in (0.05, 0.5, 5.0):
        p = [
            dispersion(Counts(x, 1.0)).test.p_value
            for x in rng.poisson(per_node, (1000, 400))
            if x.sum() >= 10
        ]
        assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.025)


def test_bursts_have_a_large_coefficient_of_variation():
    rng = np.random.default_rng(5)
    starts = np.cumsum(rng.exponential(10.0, 40))
    times = np.concatenate([start + rng.uniform(0, 0.1, 4) for start in starts])
    found = burstiness(times, np.random.default_rng(0))
    assert found.coefficient_of_variation > 1.5
    assert "come in bursts" in found.meaning


def test_independent_failures_are_no_bursts():
    times = np.cumsum(np.random.default_rng(6).exponential(1.0, 500))
    found = burstiness(times, np.random.default_rng(0), 0.99)
    assert "as independent ones do" in found.meaning


@pytest.mark.parametrize(("gaps", "off_by"), [(500, 0.004), (3000, 0.002)])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.98])
def test_the_band_of_many_gaps_is_that_of_draws(gaps: int, off_by: float, confidence: float):
    draws = np.random.default_rng(8).standard_exponential((8000, gaps))
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    drawn = np.quantile(draws.std(axis=1) / draws.mean(axis=1), tails)
    times = np.cumsum(np.random.default_rng(9).exponential(1.0, gaps + 1))
    found = burstiness(times, np.random.default_rng(0), confidence)
    assert [found.low, found.high] == pytest.approx(drawn, abs=off_by)


def test_few_gaps_say_so():
    found = burstiness(np.arange(5.0), np.random.default_rng(0))
    assert found.coefficient_of_variation is None
    assert "too few to see bursts" in found.meaning


def test_failures_of_one_moment_have_no_gaps_to_judge():
    """A switch that dies ends all of its jobs in the same second."""
    found = burstiness(np.full(16, 12.5), np.random.default_rng(0))
    assert (found.gaps, found.coefficient_of_variation) == (15, None)
    assert found.meaning == "All 16 failures came at one moment."


def test_bursts_of_days_show_in_windows_longer_than_they_last():
    rng = np.random.default_rng(7)
    starts = rng.uniform(0, 340, 30)
    times = np.concatenate([start + rng.uniform(0, 5, 6) for start in starts])
    days, found = widest_window(times, 0.0, 350.0, 100)
    assert days > 5
    assert found.believe == "over-dispersed"
    assert found.index > 3
    with pytest.raises(UsageError, match="give 12 days or more"):
        widest_window(times[:3], 0.0, 8.0, 100)
