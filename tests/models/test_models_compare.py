import math

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.models.compare import compare_counts, compare_rates, compare_symptoms, funnel
from ettr.models.data import Counts


def test_ratio_agrees_with_the_conditional_binomial_test_of_scipy():
    from scipy.stats import binomtest

    ratio = compare_rates(FailureRate(18, 1200.0), FailureRate(9, 2100.0))
    share = 1200.0 / 3300.0
    oracle = binomtest(18, 27, share)
    interval = oracle.proportion_ci(0.9, "exact")
    odds = 2100.0 / 1200.0
    assert ratio.low == pytest.approx(interval.low / (1 - interval.low) * odds)
    assert ratio.high == pytest.approx(interval.high / (1 - interval.high) * odds)
    assert ratio.ratio == pytest.approx(18 / 1200 / (9 / 2100))
    upper = binomtest(18, 27, share, "greater").pvalue
    assert ratio.p_value == pytest.approx(2 * upper)
    assert "a fails more often than b" in ratio.meaning


def test_rsc1_fails_more_than_rsc2():
    """6.50 and 2.34 per 1,000 node-days on 2,000 and 1,000 nodes over a month."""
    ratio = compare_rates(FailureRate(390, 60_000.0), FailureRate(70, 30_000.0))
    assert ratio.low < 6.5 / 2.34 < ratio.high
    assert ratio.p_value < 1e-9


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 5), (5, 0)])
def test_no_failure_on_a_side_still_has_an_interval(a, b):
    ratio = compare_rates(FailureRate(a, 100.0), FailureRate(b, 100.0))
    assert 0.0 <= ratio.low <= ratio.high
    assert (ratio.low == 0.0) == (a == 0)
    assert (ratio.high == np.inf) == (b == 0)


def test_interval_and_test_agree_about_one():
    for a in range(12):
        for b in range(12):
            ratio = compare_rates(FailureRate(a, 70.0), FailureRate(b, 100.0))
            assert (ratio.p_value < 0.1 - 1e-9) <= (not ratio.low <= 1.0 <= ratio.high)
            assert (ratio.p_value > 0.1 + 1e-9) <= (ratio.low <= 1.0 <= ratio.high)


def test_a_fleet_without_exposure_is_refused():
    with pytest.raises(UsageError, match=r"before has an exposure of 0\.0 node-days"):
        compare_rates(FailureRate(0, 0.0), FailureRate(1, 2.0), names=("before", "after"))


def test_bursts_widen_the_ratio():
    bursty = Counts([0, 0, 12, 0, 0, 0, 9, 0], 10.0)
    even = Counts([2, 3, 2, 3, 3, 2, 3, 3], 10.0)
    wide = compare_counts(bursty, even)
    narrow = compare_rates(FailureRate(21, 80.0), FailureRate(21, 80.0))
    assert wide.dispersion > 2
    assert wide.low < narrow.low
    assert wide.high > narrow.high


def test_few_failures_say_that_dispersion_is_unknown():
    ratio = compare_counts(Counts([1, 2], 10.0), Counts([0, 1], 10.0))
    assert ratio.dispersion == 1.0
    assert "cannot be known from 4 failures" in ratio.meaning
    ratio = compare_counts(Counts([1, 0], 10.0), Counts([0, 0], 10.0))
    assert "cannot be known from 1 failure: " in ratio.meaning


def test_symptoms_are_corrected_for_their_number():
    ratios = compare_symptoms(
        {"infiniband": 30, "pcie": 5, "nvlink": 4}, 1000.0, {"infiniband": 8, "pcie": 6}, 1000.0
    )
    assert next(iter(ratios)) == "infiniband"
    alone = compare_rates(FailureRate(30, 1000.0), FailureRate(8, 1000.0))
    assert ratios["infiniband"].p_value == pytest.approx(3 * alone.p_value)
    assert ratios["nvlink"].ratio is None
    assert ratios["infiniband"].meaning.startswith("a fails more often than b (p ")


def test_a_verdict_on_a_symptom_that_its_correction_takes_back_is_not_given():
    """12 against 4 in equal exposure: p of 16 fair coins, 2 * P(4 or fewer); twice among two."""
    a, b = {"infiniband": 12, "pcie": 5}, {"infiniband": 4, "pcie": 6}
    p = 2 * sum(math.comb(16, k) for k in range(5)) / 2**16
    alone = compare_symptoms({"infiniband": 12}, 1000.0, {"infiniband": 4}, 1000.0)["infiniband"]
    assert alone.meaning == f"a fails more often than b (p {p:.2g})."
    among = compare_symptoms(a, 1000.0, b, 1000.0, names=("after", "before"))["infiniband"]
    assert among.p_value == pytest.approx(2 * p)
    assert among.low > 1.0
    assert among.meaning == (
        "No difference between after and before is shown: among 2 symptoms one as large as this "
        f"is within chance (p {2 * p:.2g})."
    )


def test_funnel_finds_the_bad_fleet_and_no_other():
    rng = np.random.default_rng(3)
    fleets = [
        (f"f{i}", FailureRate(int(rng.poisson(0.005 * e)), float(e)))
        for i, e in enumerate(np.geomspace(200, 50_000, 20))
    ]
    fleets.append(("bad", FailureRate(150, 10_000.0)))
    plot = funnel(fleets)
    assert [p.name for p in plot.points if p.place == "above 99.8 %"] == ["bad"]
    widths = [high - low for low, high in plot.curve_998]
    assert widths[0] > widths[-1]
    assert funnel(fleets, over_dispersed=True).dispersion >= 1.0


def test_one_fleet_makes_no_funnel():
    with pytest.raises(UsageError, match="give two or more fleets"):
        funnel([("a", FailureRate(3, 10.0))])


@pytest.mark.slow
@pytest.mark.parametrize("expected", [0, 1, 3, 10, 50])
def test_ratio_covers_at_every_count(expected):
    rng = np.random.default_rng(11)
    x, y = rng.poisson(expected, 1500), rng.poisson(2 * expected, 1500)
    inside = [
        (r := compare_rates(FailureRate(int(a), 100.0), FailureRate(int(b), 200.0))).low
        <= 1.0
        <= r.high
        for a, b in zip(x, y, strict=True)
    ]
    assert np.mean(inside) >= 0.9 - 0.01
