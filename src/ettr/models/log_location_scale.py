"""What Weibull and lognormal share: a law of (log clock - location) / scale.

The likelihood is nested: the best location for a scale, then the scale. Intervals come from the
profile likelihood, its cut widened for few failures, because Wald's interval covers far too seldom
below some thirty failures.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import inflated_interval
from ettr.models.base import (
    FEW_FAILURES,
    FailureModel,
    Fit,
    Parameter,
    age_test,
    checked_values,
    minimum,
    root,
    verdict,
)
from ettr.models.data import Floats, LifeLaw, Lifetimes
from ettr.models.dispersion import spread_index
from ettr.words import significant

_CELLS = 2048
_LOG_SCALE = (-4.0, 4.0)


class LogLocationScale(FailureModel[Lifetimes]):
    """A law of the logarithm of the lifetime, known up to location and scale."""

    # how much the mean of the likelihood ratio exceeds that of chi-square, times the failures;
    # tests/models/test_models_coverage.py shows that it suffices
    correction = 2.0

    @abstractmethod
    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""

    def standardised_at(self, hazard: Floats) -> Floats | None:
        """Standardised log clock at which the cumulative hazard reaches values above 0.

        None where the law has no inverse in closed form: it is then found by bisection.
        """
        del hazard
        return None

    @abstractmethod
    def hazard(self, z: Floats) -> Floats:
        """Its derivative in `z`."""

    @abstractmethod
    def log_hazard(self, z: Floats) -> Floats:
        """Logarithm of `hazard`."""

    @abstractmethod
    def log_hazard_slope(self, z: Floats) -> Floats:
        """Derivative of `log_hazard` in `z`."""

    @abstractmethod
    def parameters(self, location: Interval, scale: Interval) -> tuple[Parameter, ...]:
        """The model's own parameters from location and scale of the log lifetime in seconds."""

    @abstractmethod
    def log_scale(self, fit: Fit) -> Interval:
        """Scale of the logarithm of the lifetime, from the parameters of a fit of this law."""

    @abstractmethod
    def meaning(self, scale: Interval) -> str:
        """What the scale says about ageing, without a full stop."""

    def fit(self, data: Lifetimes, confidence: float = CONFIDENCE) -> Fit:
        """The law with profile-likelihood intervals, and the mean rate over the exposure."""
        rate = data.rate
        if not data.failures:
            return self._nothing(rate, confidence)
        likelihood = _Likelihood(self, data)
        log_scale, best = likelihood.maximum()
        place = likelihood.location(math.exp(log_scale))
        scale = math.exp(log_scale)

        def cumulative_hazard(clock_s: Floats) -> Floats:
            return _at(self, np.asarray(clock_s, dtype=np.float64), place, scale)

        index, degrees = self._clusters(data, cumulative_hazard)
        drop = _drop(data.failures, confidence, self.correction, index, degrees)
        scale_ends = likelihood.scale_ends(log_scale, best - drop)
        place_ends = likelihood.location_ends(place, scale, scale_ends, best - drop)
        goodness = age_test(data, cumulative_hazard, 2)
        exact = float(
            np.sum(self.log_hazard((np.log(data.duration_s[data.observed]) - place) / scale))
            - data.failures * math.log(scale)
            - np.sum(np.log(data.duration_s[data.observed]))
            - np.sum(cumulative_hazard(data.duration_s) - cumulative_hazard(data.entry_s))
        )
        scale_interval = Interval(scale, *scale_ends)
        return Fit(
            model=self.name,
            parameters=self.parameters(Interval(place, *place_ends), scale_interval),
            rate=rate,
            rate_per_node_day=inflated_interval(rate, index, degrees, confidence),
            log_likelihood=exact,
            n_parameters=2,
            goodness=goodness,
            meaning=f"{self.meaning(scale_interval)}; {verdict(goodness)}.",
            assumptions=(
                "one law for all nodes",
                "failures independent of each other"
                if index <= 1.0
                else "intervals widened for rows that share a group (index "
                f"{significant(index, 2)})",
            ),
            confidence=confidence,
            dispersion=index,
            cumulative_hazard=cumulative_hazard,
        )

    def law_of(self, values: Mapping[str, float]) -> LogLocationScaleLife:
        """The law by the parameters that its fits have: one in seconds, one without unit."""
        fit = self._nothing(FailureRate(0, 1.0), CONFIDENCE)
        known = checked_values(self.name, values, tuple(p.name for p in fit.parameters))
        given = tuple(
            replace(parameter, estimate=value, low=value, high=value)
            for parameter, value in zip(fit.parameters, known, strict=True)
        )
        (place_s,) = (one.estimate for one in given if one.unit == "s")
        scale = self.log_scale(replace(fit, parameters=given)).estimate
        if place_s is None or scale is None:
            raise UsageError(f"{self.name} has no scale at {dict(values)}; give values above 0")
        return LogLocationScaleLife(self, math.log(place_s), scale)

    def law_with_mean(self, form: float, mean_s: float) -> LogLocationScaleLife:
        """The law with a mean life and a value of its parameter without unit (shape, sigma).

        Raises:
            UsageError: a value that cannot be, or one so extreme that the law has no mean.
        """
        names = self._nothing(FailureRate(0, 1.0), CONFIDENCE).parameters
        unit = self.law_of({one.name: 1.0 if one.unit == "s" else form for one in names})
        unit_mean_s = unit.mean_s()
        if not (0 < mean_s < math.inf and 0 < unit_mean_s < math.inf):
            raise UsageError(
                f"{self.name} lives of mean {mean_s:g} s at {form:g} are not possible; give a "
                "positive mean and a form that is less extreme"
            )
        return replace(unit, location=math.log(mean_s / unit_mean_s))

    def _nothing(self, rate: FailureRate, confidence: float) -> Fit:
        return Fit(
            model=self.name,
            parameters=self.parameters(Interval.unknown(), Interval(None, 0.0, math.inf)),
            rate=rate,
            rate_per_node_day=rate.interval(confidence),
            log_likelihood=None,
            n_parameters=2,
            goodness=None,
            meaning=(
                "Nothing failed, so nothing is known about ageing; only the upper end of the rate "
                "is."
            ),
            assumptions=("one law for all nodes", "failures independent of each other"),
            confidence=confidence,
        )

    def _clusters(
        self, data: Lifetimes, cumulative_hazard: Callable[[Floats], Floats]
    ) -> tuple[float, float]:
        """Spread between groups beyond chance; 1 and no degrees where there is none to admit."""
        if data.group is None or data.failures < FEW_FAILURES:
            return 1.0, 0.0
        _, group = np.unique(data.group, return_inverse=True)
        hazard = cumulative_hazard(data.duration_s) - cumulative_hazard(data.entry_s)
        expected = np.bincount(group, hazard).astype(np.float64)
        seen = np.bincount(group, data.observed).astype(np.float64)
        index, degrees = spread_index(seen, expected)
        return (index, degrees) if index > 1.0 and degrees else (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class LogLocationScaleLife(LifeLaw):
    """Lives whose logarithm has a law of a location and a scale."""

    form: LogLocationScale
    location: float
    scale: float

    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures up to an age in seconds."""
        return _at(self.form, np.asarray(clock_s, dtype=np.float64), self.location, self.scale)

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value."""
        hazard = np.asarray(hazard, dtype=np.float64)
        positive = hazard > 0
        z = self.form.standardised_at(np.where(positive, hazard, 1.0))
        if z is None:
            return LifeLaw.clock_at(self, hazard)
        with np.errstate(over="ignore"):
            return np.where(positive, np.exp(self.location + self.scale * z), 0.0)


def exponential(log_interval: Interval) -> Interval:
    """The interval of a value from that of its logarithm; what overflows is infinite."""

    def exp(value: float) -> float:
        return math.exp(value) if value < 700.0 else math.inf

    estimate = log_interval.estimate
    return Interval(
        None if estimate is None else exp(estimate), exp(log_interval.low), exp(log_interval.high)
    )


def _at(model: LogLocationScale, clock_s: Floats, place: float, scale: float) -> Floats:
    result = np.zeros_like(clock_s)
    positive = clock_s > 0
    result[positive] = model.cumulative((np.log(clock_s[positive]) - place) / scale)
    return result


def _drop(
    failures: int, confidence: float, correction: float, index: float, degrees: float
) -> float:
    """How far the log-likelihood may fall inside an interval."""
    tail = (1.0 - confidence) / 2.0
    student = (
        float(special.stdtrit(degrees, tail) / special.ndtri(tail)) ** 2 if degrees > 0 else 1.0
    )
    cut = float(special.chdtri(1, 1.0 - confidence)) / 2.0
    return cut * (1.0 + correction / failures) * index * student


def _cells(log_clock: Floats) -> tuple[Floats, Floats]:
    """Values and weights, equal ones once; long lists fold into cells that keep their mean."""
    if log_clock.size <= _CELLS:
        values, counts = np.unique(log_clock, return_counts=True)
        return values, counts.astype(np.float64)
    low, high = float(log_clock.min()), float(log_clock.max())
    cell = ((log_clock - low) * ((_CELLS - 1) / max(high - low, 1e-12))).astype(np.int64)
    weight = np.bincount(cell, minlength=_CELLS).astype(np.float64)
    total = np.bincount(cell, log_clock, _CELLS)
    used = weight > 0
    return total[used] / weight[used], weight[used]


class _Likelihood:
    def __init__(self, model: LogLocationScale, data: Lifetimes) -> None:
        logs = np.log(data.duration_s)
        self.model = model
        self.failures = data.failures
        self.seen, self.seen_n = _cells(logs[data.observed])
        self.exits, self.exits_n = _cells(logs)
        self.entries, self.entries_n = _cells(np.log(data.entry_s[data.entry_s > 0]))
        self.middle = float(self.seen @ self.seen_n) / self.failures

    def value(self, place: float, scale: float) -> float:
        """Log-likelihood, up to a constant of the data."""
        model = self.model
        with np.errstate(over="ignore", invalid="ignore"):
            result = (
                self.seen_n @ model.log_hazard((self.seen - place) / scale)
                - self.failures * math.log(scale)
                - self.exits_n @ model.cumulative((self.exits - place) / scale)
            )
            if self.entries.size:
                result += self.entries_n @ model.cumulative((self.entries - place) / scale)
        return float(result) if math.isfinite(result) else -1e300

    def score(self, place: float, scale: float) -> float:
        """Minus scale times the derivative of the log-likelihood in the location."""
        model = self.model
        result = self.seen_n @ model.log_hazard_slope((self.seen - place) / scale)
        result -= self.exits_n @ model.hazard((self.exits - place) / scale)
        if self.entries.size:
            result += self.entries_n @ model.hazard((self.entries - place) / scale)
        # both hazards overflow only where the location is far too low
        return -1e300 if math.isnan(result) else float(result)

    @np.errstate(over="ignore", invalid="ignore")
    def location(self, scale: float) -> float:
        """Most likely location for a scale."""
        # where the location rises the score does: from minus infinity to the failures
        low = high = self.middle
        at_low = at_high = self.score(low, scale)
        step = scale
        while at_low > 0 and step < 1e6 * scale:
            low -= step
            step *= 2.0
            at_low = self.score(low, scale)
        step = scale
        while at_high < 0 and step < 1e6 * scale:
            high += step
            step *= 2.0
            at_high = self.score(high, scale)
        if low == high or at_low > 0 or at_high < 0:
            return low
        return root(lambda at: self.score(at, scale), low, high, within=1e-9, relative=1e-12)

    def profile(self, log_scale: float) -> float:
        """Log-likelihood at the best location for that scale."""
        scale = math.exp(log_scale)
        return self.value(self.location(scale), scale)

    def maximum(self) -> tuple[float, float]:
        """Most likely logarithm of the scale, and the log-likelihood there."""
        place, lost = minimum(lambda v: -self.profile(v), *_LOG_SCALE, within=1e-6)
        return place, -lost

    def scale_ends(self, log_scale: float, level: float) -> tuple[float, float]:
        """Where the profile of the scale falls to `level`; 0 and infinity where it never does."""
        low = _crossing(lambda v: self.profile(v) - level, log_scale, _LOG_SCALE[0])
        high = _crossing(lambda v: self.profile(v) - level, log_scale, _LOG_SCALE[1])
        return (0.0 if low is None else math.exp(low), math.inf if high is None else math.exp(high))

    def location_ends(
        self, place: float, scale: float, scale_ends: tuple[float, float], level: float
    ) -> tuple[float, float]:
        """Where the profile of the location falls to `level`."""
        least = max(_LOG_SCALE[0], math.log(scale_ends[0]) if scale_ends[0] else -math.inf)
        bounds = (least, min(_LOG_SCALE[1], math.log(scale_ends[1])))

        def above(value: float) -> float:
            _, lost = minimum(lambda v: -self.value(value, math.exp(v)), *bounds, within=1e-4)
            return -lost - level

        # the band of scales holds every point above the level, so the far ends are finite
        far = 40.0 * max(scale, math.exp(bounds[1]))
        low, high = _crossing(above, place, place - far), _crossing(above, place, place + far)
        return (-math.inf if low is None else low), (math.inf if high is None else high)


def _crossing(above: Callable[[float], float], inside: float, limit: float) -> float | None:
    """Where `above` turns negative between a point inside and a limit; None where it does not."""
    step, near = 0.05 * (1.0 if limit > inside else -1.0), inside
    while True:
        far = min(near + step, limit) if limit > inside else max(near + step, limit)
        if above(far) < 0:
            return root(above, near, far, within=1e-5)
        if far == limit:
            return None
        near, step = far, 2.0 * step


class Weibull(LogLocationScale):
    """Hazard that is a power of the clock: shape below 1 falls, 1 is constant, above 1 rises.

    Source:
        Weibull (1951), Journal of Applied Mechanics 18.
    """

    name = "Weibull"

    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""
        return np.exp(z)

    def standardised_at(self, hazard: Floats) -> Floats:
        """Standardised log clock at which the cumulative hazard reaches values above 0."""
        return np.log(hazard)

    def hazard(self, z: Floats) -> Floats:
        """Its derivative in `z`."""
        return np.exp(z)

    def log_hazard(self, z: Floats) -> Floats:
        """Logarithm of `hazard`."""
        return z

    def log_hazard_slope(self, z: Floats) -> Floats:
        """Derivative of `log_hazard` in `z`."""
        return np.ones_like(z)

    def parameters(self, location: Interval, scale: Interval) -> tuple[Parameter, ...]:
        """Shape, one over `scale`; and the scale in seconds (63 % of lifetimes are shorter)."""
        return (
            Parameter.of("shape", "1", scale.inverse()),
            Parameter.of("scale", "s", exponential(location)),
        )

    def log_scale(self, fit: Fit) -> Interval:
        """One over the shape."""
        return fit.parameter("shape").inverse()

    def meaning(self, scale: Interval) -> str:
        """What the shape says about ageing, without a full stop."""
        shape = scale.inverse()
        band = f"(shape {shape.estimate:.2f} [{shape.low:.2f}, {shape.high:.2f}])"
        if shape.high < 1.0:
            return f"Failures become rarer as the clock runs {band}"
        if shape.low > 1.0:
            return f"Failures become more frequent as the clock runs {band}"
        return f"Neither wear nor settling in is shown {band}"


class Lognormal(LogLocationScale):
    """The logarithm of the lifetime is normal; typical of repair times and of mixed causes.

    Source:
        Crow and Shimizu (1988), Lognormal Distributions: Theory and Applications.
    """

    name = "lognormal"

    def cumulative(self, z: Floats) -> Floats:
        """Cumulative hazard at standardised log clock `z`."""
        result: Floats = -special.log_ndtr(-z)
        return result

    def standardised_at(self, hazard: Floats) -> Floats:
        """Standardised log clock at which the cumulative hazard reaches values above 0."""
        result: Floats = -special.ndtri_exp(-hazard)
        return result

    def hazard(self, z: Floats) -> Floats:
        """Its derivative in `z`."""
        return np.exp(self.log_hazard(z))

    def log_hazard(self, z: Floats) -> Floats:
        """Logarithm of `hazard`."""
        result: Floats = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - special.log_ndtr(-z)
        return result

    def log_hazard_slope(self, z: Floats) -> Floats:
        """Derivative of `log_hazard` in `z`."""
        return self.hazard(z) - z

    def parameters(self, location: Interval, scale: Interval) -> tuple[Parameter, ...]:
        """Median in seconds, and the standard deviation of the logarithm."""
        return (
            Parameter.of("median", "s", exponential(location)),
            Parameter.of("sigma", "1", scale),
        )

    def log_scale(self, fit: Fit) -> Interval:
        """Sigma itself."""
        return fit.parameter("sigma")

    def meaning(self, scale: Interval) -> str:
        """What sigma says, without a full stop."""
        return (
            "Half of all lifetimes lie within a factor "
            f"{significant(math.exp(0.6745 * (scale.estimate or 0.0)), 2)} "
            f"of the median (sigma {scale.estimate:.2f} [{scale.low:.2f}, {scale.high:.2f}])"
        )
