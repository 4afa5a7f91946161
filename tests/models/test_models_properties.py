"""What must hold for any fleet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ettr.estimates.exact import FailureRate
from ettr.models.compare import compare_counts, compare_rates
from ettr.models.constant import ConstantRate
from ettr.models.data import Counts, Lifetimes, counts_by_window, fleet_on_calendar
from ettr.models.dispersion import dispersion
from ettr.models.log_location_scale import Lognormal, Weibull
from ettr.models.piecewise import PiecewiseConstant

counts = st.lists(st.tuples(st.integers(0, 40), st.floats(0.1, 1e4)), min_size=1, max_size=30).map(
    lambda rows: Counts([r[0] for r in rows], [r[1] for r in rows])
)


@given(counts)
def test_the_wide_interval_holds_the_narrow_one_and_both_the_estimate(data):
    found = dispersion(data)
    assert found.over_dispersed.low <= found.poisson.low <= found.poisson.estimate
    assert found.poisson.estimate <= found.poisson.high <= found.over_dispersed.high


@pytest.mark.slow
@given(counts, counts)
def test_swapping_fleets_inverts_the_ratio(a, b):
    for one, other in (
        (compare_counts(a, b), compare_counts(b, a)),
        (
            compare_rates(FailureRate(a.total, a.node_days), FailureRate(b.total, b.node_days)),
            compare_rates(FailureRate(b.total, b.node_days), FailureRate(a.total, a.node_days)),
        ),
    ):
        assert np.isclose(one.p_value, other.p_value, rtol=1e-6)
        if other.high < np.inf:
            assert np.isclose(one.low, 1 / other.high, rtol=1e-6)
        else:
            assert one.low < 1e-12


@st.composite
def spans(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    entry = rng.uniform(0, 10, n) * rng.integers(0, 2, n)
    scale = 10.0 ** draw(st.integers(-3, 9))
    duration = (entry + rng.exponential(5, n) + 1e-3) * scale
    return Lifetimes(duration, rng.random(n) < draw(st.floats(0, 1)), entry * scale)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(spans())
def test_any_lifetimes_get_a_fit_whose_intervals_hold_their_estimate(data):
    for model in (ConstantRate(), Weibull(), Lognormal(), PiecewiseConstant()):
        fit = model.fit(data)
        for parameter in fit.parameters:
            if parameter.estimate is not None:
                assert parameter.low <= parameter.estimate <= parameter.high
        if fit.log_likelihood is not None:
            assert np.isfinite(fit.log_likelihood)
        assert fit.rate.failures == data.failures


@given(st.lists(st.floats(0.01, 99.99), max_size=60, unique=True), st.integers(1, 9))
def test_dealing_failures_to_nodes_keeps_exposure_and_failures(times, nodes):
    data = fleet_on_calendar(times, 0.0, 100.0, nodes)
    assert data.failures == len(times)
    assert np.isclose(data.node_days, 100.0 * nodes)


@given(st.lists(st.floats(0, 99.9), max_size=60), st.floats(1, 50))
def test_whole_windows_hold_every_failure_in_them(times, window):
    found = counts_by_window(times, 0.0, 100.0, window, 3)
    whole = found.failures.size * window
    assert found.total == sum(t < whole for t in times)
    assert np.isclose(found.node_days, whole * 3)
