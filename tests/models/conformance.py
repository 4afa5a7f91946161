"""What every failure model must do, whatever its law; `docs/how-to/add-a-failure-model.md`."""

from __future__ import annotations

import math

import numpy as np

from ettr.estimates import Interval
from ettr.models.base import FailureModel, Fit
from ettr.models.data import Counts, LifeLaw, Lifetimes
from ettr.models.log_location_scale import LogLocationScale
from ettr.report.rows import plain
from ettr.units import SECONDS_PER_DAY

NODES, SPAN_DAYS, MEAN_DAYS = 60, 40.0, 30.0


def lifetimes(seed: int = 3, mean_days: float = MEAN_DAYS) -> Lifetimes:
    """Nodes that are repaired at once: spans from one failure to the next, the last one cut."""
    rng = np.random.default_rng(seed)
    spans, observed = [], []
    for _ in range(NODES):
        left = SPAN_DAYS
        while left > 0:
            span = float(rng.weibull(0.9)) * mean_days
            spans.append(min(span, left))
            observed.append(span <= left)
            left -= span
    return Lifetimes(np.array(spans) * SECONDS_PER_DAY, observed)


def counts(seed: int = 3, mean_days: float = MEAN_DAYS) -> Counts:
    """Failures of nodes that were in use for unequal times."""
    rng = np.random.default_rng(seed)
    node_days = rng.uniform(0.2, 1.0, NODES) * SPAN_DAYS
    return Counts(rng.poisson(node_days / mean_days), node_days)


def check_counts(model: FailureModel[Counts]) -> None:
    """A model that is fitted to counts by node."""
    data = counts()
    fit = model.fit(data)
    _check(fit, data)
    _check_samples(model.law(fit))
    _check_wider(fit, model.fit(data, 0.99))
    _check_again(fit, model.fit(data))
    _check_nothing_failed(model.fit(Counts(np.zeros(NODES), data.exposure_node_days)))


def check_lifetimes(model: FailureModel[Lifetimes]) -> None:
    """A model that is fitted to spans of observation."""
    data = lifetimes()
    fit = model.fit(data)
    _check(fit, data)
    _check_samples(model.law(fit))
    _check_wider(fit, model.fit(data, 0.99))
    _check_again(fit, model.fit(data))
    _check_nothing_failed(model.fit(Lifetimes(data.duration_s, np.zeros(data.duration_s.size))))
    hazard = fit.cumulative_hazard
    assert hazard is not None
    clock_s = np.linspace(1.0, float(data.duration_s.max()), 200)
    assert np.all(np.diff(hazard(clock_s)) >= 0)
    # the law expects about as many failures as it was fitted to
    expected = float(np.sum(hazard(data.duration_s) - hazard(data.entry_s)))
    assert math.isclose(expected, data.failures, rel_tol=0.15)


def check_law_of_age(law: LogLocationScale) -> None:
    """The hazards of a law agree with each other, and its parameters lead back to its scale."""
    z = np.linspace(-6.0, 3.0, 901)
    step = float(z[1] - z[0])
    inner = slice(1, -1)
    slope = np.gradient(law.cumulative(z), step)[inner]
    assert np.allclose(law.hazard(z)[inner], slope, rtol=1e-3, atol=1e-6)
    assert np.allclose(law.log_hazard(z), np.log(law.hazard(z)))
    slope = np.gradient(law.log_hazard(z), step)[inner]
    assert np.allclose(law.log_hazard_slope(z)[inner], slope, rtol=1e-3, atol=1e-3)
    scale = law.log_scale(law.fit(lifetimes()))
    _check_interval(scale)
    assert 0.0 < scale.low < scale.high < math.inf
    assert not law.meaning(scale).endswith(".")


def _check(fit: Fit, data: Counts | Lifetimes) -> None:
    assert (fit.rate, fit.confidence) == (data.rate, 0.9)
    _check_interval(fit.rate_per_node_day)
    assert math.isclose(fit.rate_per_node_day.estimate or 0.0, data.rate.per_node_day or 0.0)
    names = [parameter.name for parameter in fit.parameters]
    assert names
    assert len(names) == len(set(names))
    for parameter in fit.parameters:
        assert parameter.unit
        assert fit.parameter(parameter.name) is parameter
        _check_interval(parameter)
    assert fit.log_likelihood is not None
    assert math.isfinite(fit.log_likelihood)
    assert 1 <= fit.n_parameters <= data.rate.failures
    assert fit.dispersion >= 1.0
    assert fit.goodness is None or 0.0 <= fit.goodness.p_value <= 1.0
    assert fit.meaning.endswith(".")
    assert fit.assumptions
    assert plain(fit)


def _check_samples(law: LifeLaw) -> None:
    """The hazard that a life has gone through is exponential of mean 1, from any age on."""
    for age_days in (0.0, 10.0):
        age_s = age_days * SECONDS_PER_DAY
        ends_s = age_s + law.sample(2000, np.random.default_rng(8), age_s)
        gone = law.cumulative_hazard(ends_s) - law.cumulative_hazard(np.array([age_s]))
        assert abs(float(gone.mean()) - 1.0) < 4.0 / math.sqrt(2000)
        assert abs(float(np.mean(gone < math.log(2.0))) - 0.5) < 4.0 * 0.5 / math.sqrt(2000)


def _check_interval(interval: Interval) -> None:
    assert interval.estimate is not None
    assert interval.low <= interval.estimate <= interval.high


def _check_wider(narrow: Fit, wide: Fit) -> None:
    assert wide.confidence == 0.99
    for inner, outer in zip(narrow.parameters, wide.parameters, strict=True):
        assert outer.low <= inner.low <= inner.high <= outer.high, inner.name
    inner, outer = narrow.rate_per_node_day, wide.rate_per_node_day
    assert outer.low < inner.low < inner.high < outer.high


def _check_again(first: Fit, second: Fit) -> None:
    """A fit draws no random numbers of its own."""
    assert first == second


def _check_nothing_failed(fit: Fit) -> None:
    """Without failures there is an upper end of the rate, and nothing that needs a failure."""
    assert fit.rate.failures == 0
    assert fit.rate_per_node_day.low == 0.0
    assert 0.0 < fit.rate_per_node_day.high < math.inf
    assert fit.log_likelihood is None
    assert fit.aic is None
    assert fit.goodness is None
    assert fit.meaning.endswith(".")
