"""Ends of the exact Poisson interval, held to SciPy's gamma quantiles and to closed forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammainccinv, gammaincinv

from ettr.estimates.exact import mean_above, mean_below, poisson_interval

tails = st.floats(1e-12, 0.499)


@given(st.integers(1, 20_000), tails)
def test_the_lower_end_is_the_gamma_quantile(count: int, tail: float) -> None:
    assert mean_below(count, tail) == pytest.approx(float(gammaincinv(count, tail)), rel=1e-11)


@given(st.integers(0, 20_000), tails)
def test_the_upper_end_is_the_gamma_quantile(count: int, tail: float) -> None:
    high = float(gammainccinv(count + 1, tail))
    assert mean_above(count, tail) == pytest.approx(high, rel=1e-11)


@given(tails)
def test_no_event_and_one_have_closed_forms(tail: float) -> None:
    assert mean_above(0, tail) == pytest.approx(-math.log(tail), rel=1e-13)
    assert mean_below(1, tail) == pytest.approx(-math.log1p(-tail), rel=1e-13)


@pytest.mark.parametrize("count", [99_999, 100_000, 100_001, 1_000_000, 10**12])
def test_the_ends_go_on_where_the_sums_stop(count: int) -> None:
    low, high = poisson_interval(count)
    assert low == pytest.approx(float(gammaincinv(count, 0.05)), rel=1e-11)
    assert high == pytest.approx(float(gammaincinv(count + 1, 0.95)), rel=1e-11)
    # 1.645 standard deviations to either side, as for any large count
    assert (count - low) / math.sqrt(count) == pytest.approx(1.645, abs=0.02)
    assert (high - count) / math.sqrt(count) == pytest.approx(1.645, abs=0.02)


def test_published_ends() -> None:
    """Garwood's table: 10 events, 95 %: 4.80 to 18.39."""
    low, high = poisson_interval(10, 0.95)
    assert (round(low, 2), round(high, 2)) == (4.80, 18.39)
