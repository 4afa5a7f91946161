"""One small abstract class behind every failure model, and the frozen result of a fit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.estimates.exact import FailureRate
from ettr.models.data import Floats, LifeLaw, Lifetimes, at_risk
from ettr.words import p_words

DataT_contra = TypeVar("DataT_contra", contravariant=True)

FEW_FAILURES = 10
"""Below this many failures neither the spread between nodes nor a fit can be judged."""


@dataclass(frozen=True, slots=True)
class Parameter(Interval):
    """One fitted parameter: an interval with a name and a unit."""

    name: str
    unit: str

    @staticmethod
    def of(name: str, unit: str, interval: Interval) -> Parameter:
        """The parameter `name` in `unit` with this interval."""
        return Parameter(interval.estimate, interval.low, interval.high, name, unit)


@dataclass(frozen=True, slots=True)
class GoodnessOfFit:
    """A test of "the data came from this model": small p-values speak against it."""

    test: str
    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A failure model fitted to data, with what is needed to trust or doubt it.

    Attributes:
        dispersion: Variance over mean across groups that the intervals admit; 1 where they assume
            independent failures.
        goodness: Test against the data; None where it cannot be judged.
        cumulative_hazard: Expected failures of one node up to a clock in seconds; None where the
            model has no clock.
        parts: Fits that make up this one, by name, such as one a symptom.
    """

    model: str
    parameters: tuple[Parameter, ...]
    rate: FailureRate
    rate_per_node_day: Interval
    log_likelihood: float | None
    n_parameters: int
    goodness: GoodnessOfFit | None
    meaning: str
    assumptions: tuple[str, ...]
    confidence: float = CONFIDENCE
    dispersion: float = 1.0
    cumulative_hazard: Callable[[Floats], Floats] | None = field(
        default=None, repr=False, compare=False
    )
    parts: tuple[tuple[str, Fit], ...] = ()

    @property
    def aic(self) -> float | None:
        """Akaike's criterion, smaller is better; None without failures.

        Source:
            Akaike (1974), IEEE Trans. Automatic Control 19.
        """
        if self.log_likelihood is None:
            return None
        return 2.0 * self.n_parameters - 2.0 * self.log_likelihood

    def parameter(self, name: str) -> Parameter:
        """The parameter called `name`. Raises UsageError: the model has no such parameter."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = ", ".join(parameter.name for parameter in self.parameters)
        raise UsageError(f"{self.model} has no parameter `{name}`; it has {known}")

    def expected_failures(self, n_nodes: float, from_s: float, to_s: float) -> float:
        """Failures expected of `n_nodes` nodes between two readings of their clock, in seconds.

        A node is repaired to the state it had (minimal repair), so the hazard runs on with age.

        Raises:
            UsageError: the model has no clock, or the span is not one.
        """
        if self.cumulative_hazard is None:
            raise UsageError(f"{self.model} was fitted without a clock; use rate_per_node_day")
        if not 0 <= from_s < to_s:
            raise UsageError(f"{from_s} to {to_s} s is not a span; give 0 <= from_s < to_s")
        low, high = self.cumulative_hazard(np.array([from_s, to_s]))
        return float(n_nodes * (high - low))


class FailureModel(ABC, Generic[DataT_contra]):
    """A way in which nodes fail; a new one is one file with one subclass."""

    name: str
    least_units: int = 1

    @abstractmethod
    def fit(self, data: DataT_contra, confidence: float = CONFIDENCE) -> Fit:
        """The model fitted to `data` by maximum likelihood, with intervals at `confidence`."""

    @abstractmethod
    def law_of(self, values: Mapping[str, float]) -> LifeLaw:
        """The law with these values of its parameters, by name and in the units of a fit.

        Raises:
            UsageError: a parameter is absent, unknown, or has a value that cannot be.
        """

    def law(self, fit: Fit) -> LifeLaw:
        """The law of a fit of this model, at the estimates.

        Raises:
            UsageError: a parameter is not known, as where nothing failed.
        """
        values: dict[str, float] = {}
        for parameter in fit.parameters:
            if parameter.estimate is None:
                raise UsageError(
                    f"{fit.model}: {parameter.name} is not known from {fit.rate.failures} "
                    "failures, so nothing can be drawn; give data with failures, or a value"
                )
            values[parameter.name] = parameter.estimate
        return self.law_of(values)

    def sample(self, fit: Fit, n: int, rng: np.random.Generator, age_s: ArrayLike = 0.0) -> Floats:
        """Times until n nodes fail by a fit, in seconds, shape (n,); see `LifeLaw.sample`.

        Args:
            age_s: Age to which the nodes have survived, one for all or shape (n,).

        Raises:
            UsageError: a parameter is not known, or an age is negative.
        """
        return self.law(fit).sample(n, rng, age_s)


def checked_values(
    model: str, values: Mapping[str, float], names: tuple[str, ...], *, may_be_zero: bool = False
) -> tuple[float, ...]:
    """The values of a law's parameters in the order of `names`.

    Raises:
        UsageError: names every parameter that is absent, unknown, or cannot be.
    """
    problems = [f"{name}: absent" for name in names if name not in values]
    problems += [
        f"{name}: unknown; {model} has {', '.join(names)}" for name in values if name not in names
    ]
    for name in names:
        value = values.get(name, 1.0)
        if not (0 <= value < math.inf if may_be_zero else 0 < value < math.inf):
            problems.append(
                f"{name}: {value:g}; give a number {'of 0 or more' if may_be_zero else 'above 0'}"
            )
    if problems:
        raise UsageError(f"not a {model} law:" + "".join(f"\n  {line}" for line in problems))
    return tuple(float(values[name]) for name in names)


def age_test(
    data: Lifetimes, cumulative_hazard: Callable[[Floats], Floats], n_parameters: int
) -> GoodnessOfFit | None:
    """Chi-square test of failures by age against those expected; None below `FEW_FAILURES`.

    Ages are cut so that the model expects about equally many failures in each bin, and no fewer
    than five, so that a hazard of the wrong shape shows. Censoring and left truncation stay exact:
    a span is at risk in each bin for the hazard that it spent there.
    """
    n = data.failures
    n_bins = min(20, n // 5)
    if n < FEW_FAILURES or n_bins - n_parameters < 1:
        return None
    # the hazard rises with age, so its values serve as the clock
    begins, ends = cumulative_hazard(data.entry_s), cumulative_hazard(data.duration_s)
    grid = np.unique(np.quantile(np.concatenate([begins, ends]), np.linspace(0.0, 1.0, 1025)))
    reached = at_risk(begins, ends, grid)
    cut = np.interp(np.arange(1, n_bins) / n_bins * reached[-1], reached, grid)
    cut = np.unique(np.concatenate(([grid[0]], cut, [grid[-1]])))
    seen, _ = np.histogram(ends[data.observed], cut)
    expected = np.diff(at_risk(begins, ends, cut))
    keep = expected > 0
    degrees = int(np.count_nonzero(keep)) - n_parameters
    if degrees < 1:
        return None
    statistic = float(np.sum((seen[keep] - expected[keep]) ** 2 / expected[keep]))
    return GoodnessOfFit(
        "chi-square by age", statistic, degrees, chi_square_tail(statistic, degrees)
    )


def chi_square_tail(statistic: float, degrees: float) -> float:
    """Probability that a chi-square variable with `degrees` exceeds `statistic`."""
    return float(special.gammaincc(degrees / 2.0, statistic / 2.0))


def verdict(goodness: GoodnessOfFit | None) -> str:
    """What a goodness of fit says, as the end of a sentence."""
    if goodness is None:
        return "too few failures to test the fit"
    if goodness.p_value < 0.01:
        return f"the data contradict this model ({p_words(goodness.p_value)})"
    if goodness.p_value < 0.1:
        return f"the data strain this model ({p_words(goodness.p_value)})"
    return f"the data do not contradict it ({p_words(goodness.p_value)})"


# -- where a function of one number is zero, and where it is least, between two ends ---------------


_MOST_STEPS = 500
_LEAST_RELATIVE = 4 * 2.0**-52
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_ROOT_OF_PRECISION = math.sqrt(2.2e-16)


def root(
    of: Callable[[float], float],
    low: float,
    high: float,
    *,
    within: float = 2e-12,
    relative: float = _LEAST_RELATIVE,
) -> float:
    """The place between two ends of different sign where a function crosses zero.

    Args:
        within: largest error of the place, and `relative` as a part of it.

    Raises:
        ValueError: the function has the same sign at both ends.

    Source:
        Brent (1973), Algorithms for Minimization Without Derivatives, chapter 4.
    """
    before, here, other = float(low), float(high), 0.0
    f_before, f_here, f_other = float(of(before)), float(of(here)), 0.0
    if f_before == 0 or f_here == 0:
        return before if f_before == 0 else here
    if (f_before < 0) == (f_here < 0):
        raise ValueError(f"{f_before:g} at {low:g} and {f_here:g} at {high:g} have one sign")
    last_step = step = 0.0
    for _ in range(_MOST_STEPS):
        if f_before != 0 and (f_before < 0) != (f_here < 0):
            other, f_other = before, f_before
            last_step = step = here - before
        if abs(f_other) < abs(f_here):
            before, here, other = here, other, here
            f_before, f_here, f_other = f_here, f_other, f_here
        error = (within + relative * abs(here)) / 2
        half = (other - here) / 2
        if f_here == 0 or abs(half) < error:
            return here
        tried = math.inf
        if abs(last_step) > error and abs(f_here) < abs(f_before):
            tried = _interpolated(before, here, other, f_before, f_here, f_other)
        if 2 * abs(tried) < min(abs(last_step), 3 * abs(half) - error):
            last_step, step = step, tried
        else:
            last_step = step = half
        before, f_before = here, f_here
        if abs(step) > error:
            here += step
        else:
            here += error if half > 0 else -error
        f_here = float(of(here))
    return here


def _interpolated(
    before: float, here: float, other: float, f_before: float, f_here: float, f_other: float
) -> float:
    """The step to where a line or a parabola through the points is zero; infinite for none."""
    if before == other:
        return -f_here * (here - before) / (f_here - f_before)
    slope_before = (f_before - f_here) / (before - here)
    slope_other = (f_other - f_here) / (other - here)
    above = -f_here * (f_other * slope_other - f_before * slope_before)
    below = slope_other * slope_before * (f_other - f_before)
    return above / below if below else math.inf


def minimum(
    of: Callable[[float], float], low: float, high: float, *, within: float = 1e-5
) -> tuple[float, float]:
    """The place between two ends where a function of one valley is least, and its value there.

    Args:
        within: largest error of the place.

    Source:
        Brent (1973), Algorithms for Minimization Without Derivatives, chapter 5.
    """
    low, high = float(low), float(high)
    best = second = third = low + _GOLDEN * (high - low)
    step = last_step = 0.0
    f_best = f_second = f_third = float(of(best))
    for _ in range(_MOST_STEPS):
        middle = 0.5 * (low + high)
        error = _ROOT_OF_PRECISION * abs(best) + within / 3.0
        if not abs(best - middle) > 2.0 * error - 0.5 * (high - low):
            break
        is_golden = True
        if abs(last_step) > error:
            r = (best - second) * (f_best - f_third)
            q = (best - third) * (f_best - f_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            r, last_step = last_step, step
            if abs(p) < abs(0.5 * q * r) and q * (low - best) < p < q * (high - best):
                is_golden, step = False, p / q
                place = best + step
                if place - low < 2.0 * error or high - place < 2.0 * error:
                    step = error if middle >= best else -error
        if is_golden:
            last_step = (low if best >= middle else high) - best
            step = _GOLDEN * last_step
        place = best + math.copysign(max(abs(step), error), step if step else 1.0)
        f_place = float(of(place))
        if f_place <= f_best:
            low, high = (best, high) if place >= best else (low, best)
            third, f_third = second, f_second
            second, f_second = best, f_best
            best, f_best = place, f_place
            continue
        low, high = (place, high) if place < best else (low, place)
        if f_place <= f_second or second == best:
            third, f_third = second, f_second
            second, f_second = place, f_place
        elif f_place <= f_third or third in (best, second):
            third, f_third = place, f_place
    return best, f_best
