"""Fits against planted parameters, published runs and an independent implementation."""

import warnings

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.models.constant import ConstantRate
from ettr.models.data import Counts, Lifetimes, fleet_on_calendar
from ettr.models.gamma_mixed import GammaMixed
from ettr.models.log_location_scale import Lognormal, Weibull
from ettr.models.piecewise import PiecewiseConstant
from ettr.models.registry import compare_models

pytestmark = pytest.mark.slow

DAY_S = 86400.0


def censored(lifetimes_s, rng, window_s, truncated=False):
    """Spans that end at the failure or at the end of observation, begun late if truncated."""
    until = window_s * rng.uniform(0.3, 1.0, lifetimes_s.size)
    entry = until * rng.uniform(0.0, 0.5, lifetimes_s.size) * truncated
    kept = lifetimes_s > entry
    return Lifetimes(np.minimum(lifetimes_s, until)[kept], (lifetimes_s < until)[kept], entry[kept])


def test_llama_3_405b():
    """Dubey et al. (2024): 419 unexpected interruptions in 54 days of 16,384 GPUs, 8 a node."""
    fit = ConstantRate().fit(Counts([419], [2048 * 54.0], unit="fleet"))
    rate = fit.parameter("rate")
    assert rate.estimate * 1000 == pytest.approx(3.789, abs=5e-4)
    # R's poisson.test(419, 2048 * 54, conf.level = 0.9), by its definition through chi-square
    from scipy.stats import chi2

    assert rate.low == pytest.approx(chi2.ppf(0.05, 2 * 419) / 2 / (2048 * 54))
    assert rate.high == pytest.approx(chi2.ppf(0.95, 2 * 420) / 2 / (2048 * 54))
    assert 1000 * rate.low == pytest.approx(3.490, abs=2e-3)
    assert 1000 * rate.high == pytest.approx(4.110, abs=4e-3)
    assert fit.rate.mttf_h(2048).estimate == pytest.approx(54 * 24 / 419)


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("name", ["Weibull", "lognormal"])
def test_estimates_agree_with_lifelines(name, truncated):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lifelines import LogNormalFitter, WeibullFitter
    rng = np.random.default_rng(8)
    raw = 40 * DAY_S * rng.weibull(0.8, 2000)
    data = censored(raw, rng, 90 * DAY_S, truncated)
    days, entry = data.duration_s / DAY_S, data.entry_s / DAY_S
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = (WeibullFitter() if name == "Weibull" else LogNormalFitter()).fit(
            days, data.observed, entry=entry if truncated else None
        )
    fit = (Weibull() if name == "Weibull" else Lognormal()).fit(data)
    if name == "Weibull":
        assert fit.parameter("shape").estimate == pytest.approx(oracle.rho_, rel=1e-3)
        assert fit.parameter("scale").estimate / DAY_S == pytest.approx(oracle.lambda_, rel=1e-3)
    else:
        assert fit.parameter("sigma").estimate == pytest.approx(oracle.sigma_, rel=1e-3)
        assert np.log(fit.parameter("median").estimate / DAY_S) == pytest.approx(
            oracle.mu_, abs=2e-3
        )
    # same likelihood in other units: a density in days is one in seconds times 86,400
    shift = data.failures * np.log(DAY_S)
    assert fit.log_likelihood + shift == pytest.approx(oracle.log_likelihood_, abs=0.05)


@pytest.mark.parametrize("model", [ConstantRate(), Weibull(), Lognormal(), PiecewiseConstant()])
def test_nothing_failed_still_bounds_the_rate(model):
    fit = model.fit(Lifetimes(np.full(10, DAY_S), np.zeros(10, bool)))
    assert fit.rate_per_node_day.low == 0.0
    assert fit.rate_per_node_day.high == pytest.approx(0.29957, rel=1e-4)
    assert fit.log_likelihood is None
    assert fit.aic is None


@pytest.mark.parametrize("model", [Weibull(), Lognormal()])
def test_one_failure_gives_intervals_and_no_error(model):
    fit = model.fit(Lifetimes([3.0 * DAY_S, 9 * DAY_S, 9 * DAY_S], [True, False, False]))
    for parameter in fit.parameters:
        assert parameter.low <= parameter.estimate <= parameter.high
    assert "too few failures to test the fit" in fit.meaning


def test_units_do_not_change_the_shape():
    rng = np.random.default_rng(3)
    raw = rng.weibull(1.4, 300)
    a = Weibull().fit(Lifetimes(raw, np.ones(300, bool)))
    b = Weibull().fit(Lifetimes(1e6 * raw, np.ones(300, bool)))
    for end in ("estimate", "low", "high"):
        assert getattr(a.parameter("shape"), end) == pytest.approx(
            getattr(b.parameter("shape"), end), rel=1e-3
        )


def test_folding_long_tables_moves_nothing(monkeypatch):
    from ettr.models import log_location_scale

    rng = np.random.default_rng(3)
    data = censored(50 * DAY_S * rng.weibull(0.7, 20_000), rng, 60 * DAY_S, True)
    folded = [Weibull().fit(data), Lognormal().fit(data)]
    monkeypatch.setattr(log_location_scale, "_CELLS", 10**9)
    for fit, exact in zip(folded, [Weibull().fit(data), Lognormal().fit(data)], strict=True):
        for a, b in zip(fit.parameters, exact.parameters, strict=True):
            assert abs(a.estimate - b.estimate) < 2e-3 * (b.high - b.low)
            assert a.low == pytest.approx(b.low, rel=1e-3)
            assert a.high == pytest.approx(b.high, rel=1e-3)


def test_rows_that_share_bad_nodes_widen_the_intervals():
    rng = np.random.default_rng(12)
    rate = rng.gamma(0.3, 1 / 0.3, 60)
    node = np.repeat(np.arange(60), 20)
    raw = 30 * DAY_S * rng.standard_exponential(1200) / rate[node]
    alone = Weibull().fit(Lifetimes(np.minimum(raw, DAY_S), raw < DAY_S))
    shared = Weibull().fit(Lifetimes(np.minimum(raw, DAY_S), raw < DAY_S, group=node))
    assert shared.dispersion > 1.5
    for name in ("shape", "scale"):
        a, b = alone.parameter(name), shared.parameter(name)
        assert b.low < a.low
        assert b.high > a.high
    assert shared.rate_per_node_day.high > alone.rate_per_node_day.high


def test_change_points_are_found_where_they_were_planted():
    rng = np.random.default_rng(5)
    nodes, days = 400, np.array([0.0, 60.0, 90.0, 150.0])
    rows = []
    for low, high, rate in zip(days[:-1], days[1:], (0.004, 0.016, 0.006), strict=True):
        n = rng.poisson(nodes * (high - low) * rate)
        rows.append(rng.uniform(low, high, n))
    data = fleet_on_calendar(np.concatenate(rows), 0.0, 150.0, nodes)
    assert data.node_days == pytest.approx(nodes * 150.0)
    fit = PiecewiseConstant().fit(data)
    steps = [p for p in fit.parameters if p.name.startswith("step")]
    assert len(steps) == 2
    for step, truth in zip(steps, (60.0, 90.0), strict=True):
        assert step.low <= truth * DAY_S <= step.high
    for i, rate in enumerate((0.004, 0.016, 0.006)):
        found = fit.parameter(f"rate {i + 1}")
        assert found.low * 0.95 <= rate <= found.high * 1.05
    assert "The rate steps at day" in fit.meaning


def test_gamma_mixed_agrees_with_a_direct_maximisation():
    from scipy.optimize import minimize
    from scipy.stats import nbinom

    rng = np.random.default_rng(9)
    exposure = rng.uniform(20, 300, 250)
    x = rng.poisson(0.01 * exposure * rng.gamma(0.8, 1 / 0.8, 250))

    def minus(theta):
        rate, shape = np.exp(theta)
        return -nbinom.logpmf(x, shape, shape / (shape + rate * exposure)).sum()

    oracle = minimize(minus, [-4.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8})
    fit = GammaMixed().fit(Counts(x, exposure))
    assert fit.log_likelihood == pytest.approx(-oracle.fun, abs=1e-4)
    assert fit.parameter("rate").estimate == pytest.approx(np.exp(oracle.x[0]), rel=1e-3)
    assert fit.parameter("spread").estimate == pytest.approx(np.exp(-oracle.x[1]), rel=5e-3)


def test_gamma_mixed_below_ten_failures_says_that_it_cannot_know():
    fit = GammaMixed().fit(Counts([3, 0, 4, 0], 10.0))
    assert fit.parameter("spread").estimate is None
    assert "cannot be known from 7 failures" in fit.meaning


@pytest.mark.parametrize(
    ("shape", "name"), [(1.0, "constant rate"), (0.5, "Weibull"), (2.0, "Weibull")]
)
def test_the_right_model_wins_on_weibull_data(shape, name):
    rng = np.random.default_rng(1)
    data = censored(100 * DAY_S * rng.weibull(shape, 3000), rng, 150 * DAY_S)
    found = compare_models(data)
    assert found.best.model == name
    assert sum(found.weights) == pytest.approx(1.0)
    assert found.fits[0] is found.best


def test_the_right_model_wins_on_lognormal_steps_and_mixtures():
    rng = np.random.default_rng(2)
    lognormal = censored(100 * DAY_S * np.exp(rng.standard_normal(3000)), rng, 200 * DAY_S)
    assert compare_models(lognormal).best.model == "lognormal"
    raw = 100 * DAY_S * rng.standard_exponential(3000)
    stepped = np.where(raw < 30 * DAY_S, raw, 30 * DAY_S + (raw - 30 * DAY_S) / 4)
    assert compare_models(censored(stepped, rng, 150 * DAY_S)).best.model == "piecewise constant"
    mixed = rng.poisson(2.0 * rng.gamma(0.7, 1 / 0.7, 300))
    assert compare_models(Counts(mixed, 100.0)).best.model == "gamma-mixed"
    assert compare_models(Counts(rng.poisson(2.0, 300), 100.0)).best.model == "constant rate"


def test_few_failures_cannot_tell_models_apart():
    found = compare_models(Lifetimes([1.0, 2.0, 3.0], [True, False, True]))
    assert found.best.model == "constant rate"
    assert "2 failures are too few to decide between models" in found.meaning


def test_goodness_of_fit_rejects_the_wrong_model_only():
    rng = np.random.default_rng(4)
    data = censored(60 * DAY_S * rng.weibull(0.5, 2000), rng, 90 * DAY_S, True)
    assert ConstantRate().fit(data).goodness.p_value < 1e-6
    assert Weibull().fit(data).goodness.p_value > 0.05
    assert "contradict this model" in ConstantRate().fit(data).meaning


def test_expected_failures_of_a_constant_rate():
    """256 servers that live 100 days on average fail 256 * 0.6 times in 60 days."""
    rng = np.random.default_rng(0)
    data = Lifetimes(100 * DAY_S * rng.standard_exponential(20_000), np.ones(20_000, bool))
    fit = ConstantRate().fit(data)
    assert fit.expected_failures(256, 0, 60 * DAY_S) == pytest.approx(256 * 0.6, rel=0.03)
    with pytest.raises(UsageError, match="is not a span"):
        fit.expected_failures(256, 5.0, 5.0)
    with pytest.raises(UsageError, match="without a clock"):
        GammaMixed().fit(Counts([9, 8], 10.0)).expected_failures(1, 0, 1)


def test_an_unknown_parameter_names_the_known_ones():
    with pytest.raises(UsageError, match="it has rate"):
        ConstantRate().fit(Lifetimes([1.0], [True])).parameter("shape")
