"""Nodes whose failure rates differ: a gamma law over nodes, negative binomial counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval, special
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import inflated_interval
from ettr.models.base import (
    FEW_FAILURES,
    FailureModel,
    Fit,
    GoodnessOfFit,
    Parameter,
    checked_values,
    chi_square_tail,
    minimum,
    root,
    verdict,
)
from ettr.models.data import Counts, Floats, LifeLaw
from ettr.models.dispersion import spread_index
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted, p_words

SPREAD = "spread"
"""Name of the parameter: how much the rates of nodes differ."""
_SPREAD_UNIT = "squared coefficient of variation"
_LOG_SPREAD = (-12.0, 7.0)
"""Where the logarithm of the spread is searched: from none to one node in a thousand failing."""


@dataclass(frozen=True, slots=True)
class GammaMixedLife(LifeLaw):
    """Exponential lives at a rate that each node keeps: a node of which nothing is known.

    A node that has survived for long is likely to be a good one, so that the hazard falls with age
    although no node gets better; after a failure a node still has its own rate (`node_factors`).
    """

    per_s: float
    spread: float

    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures up to an age in seconds, of nodes that all reach it.

        Source:
            Lomax (1954), Journal of the American Statistical Association 49.
        """
        if not self.spread:
            return self.per_s * clock_s
        return np.log1p(self.spread * self.per_s * clock_s) / self.spread

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value."""
        if not self.per_s:
            return np.where(hazard > 0, np.inf, 0.0)
        if not self.spread:
            return hazard / self.per_s
        with np.errstate(over="ignore"):
            return np.expm1(self.spread * hazard) / (self.spread * self.per_s)

    def mean_s(self) -> float:
        """Mean life of a node of which nothing is known; infinite from a spread of 1 on."""
        return (
            1.0 / (self.per_s * (1.0 - self.spread))
            if self.spread < 1.0 and self.per_s
            else math.inf
        )

    def node_factors(self, n: int, rng: np.random.Generator) -> Floats:
        """Rates of n nodes over their mean, shape (n,)."""
        return rng.gamma(1.0 / self.spread, self.spread, n) if self.spread else np.ones(n)

    def sample_in_service(self, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Times since n nodes last failed, and until they fail, in seconds.

        Each node fails at its own rate for good, so both are exponential at that rate.
        """
        with np.errstate(divide="ignore"):
            mean_s = 1.0 / (self.per_s * self.node_factors(n, rng))
        return mean_s * rng.standard_exponential(n), mean_s * rng.standard_exponential(n)

    def of_node(self) -> LifeLaw:
        """The law of a node at the mean rate: without spread."""
        return replace(self, spread=0.0)


class GammaMixed(FailureModel[Counts]):
    """Each unit keeps its own constant rate, drawn from a gamma law over the fleet.

    `spread` is the squared coefficient of variation of the rates: 0 where all units are alike.

    Source:
        Greenwood and Yule (1920), Journal of the Royal Statistical Society 83.
    """

    name = "gamma-mixed"
    least_units = 2

    def fit(self, data: Counts, confidence: float = CONFIDENCE) -> Fit:
        """Mean rate, with an interval that admits the spread, and the spread between units."""
        rate = data.rate
        placed = int(data.failures.sum())
        if placed < FEW_FAILURES or np.count_nonzero(data.exposure_node_days) < 2:
            return _unknown(self.name, rate, placed, data, confidence)
        rows = _Rows(data)
        log_spread, best = _maximum(rows.profile)
        flat = rows.poisson()
        spread = math.exp(log_spread) if best > flat else 0.0
        best = max(best, flat)
        low, high = _ends(rows.profile, log_spread, best, flat, confidence)
        mean = rows.mean(spread)
        seen = data.failures.astype(np.float64)
        expected = data.exposure_node_days * placed / data.node_days
        index, degrees = spread_index(seen, expected)
        interval = inflated_interval(rate, index, degrees, confidence)
        goodness = rows.test(mean, spread)
        p_flat = 0.5 * chi_square_tail(2.0 * (best - flat), 1) if best > flat else 1.0
        return Fit(
            model=self.name,
            parameters=(
                Parameter.of("rate", "per node-day", replace(interval, estimate=mean)),
                Parameter.of(SPREAD, _SPREAD_UNIT, Interval(spread, low, high)),
            ),
            rate=rate,
            rate_per_node_day=interval,
            log_likelihood=best,
            n_parameters=2,
            goodness=goodness,
            meaning=(
                f"{data.unit.capitalize()}s differ: their failure rates scatter by "
                f"{math.sqrt(spread):.0%} around the mean ({p_words(p_flat)} that all are alike); "
                f"{verdict(goodness)}."
                if p_flat < 0.05
                else f"No difference between {data.unit}s is shown ({p_words(p_flat)} that all are "
                f"alike); {verdict(goodness)}."
            ),
            assumptions=(
                f"a constant rate for each {data.unit}, drawn from a gamma law",
                "failures independent given the rate",
            ),
            confidence=confidence,
            dispersion=max(1.0, index),
        )

    def law_of(self, values: Mapping[str, float]) -> GammaMixedLife:
        """The law by `rate`, per node-day, and `spread`, a squared coefficient of variation."""
        rate, spread = checked_values(self.name, values, ("rate", SPREAD), may_be_zero=True)
        return GammaMixedLife(rate / SECONDS_PER_DAY, spread)


def _unknown(name: str, rate: FailureRate, placed: int, data: Counts, confidence: float) -> Fit:
    interval = rate.interval(confidence)
    return Fit(
        model=name,
        parameters=(
            Parameter.of("rate", "per node-day", interval),
            Parameter.of(SPREAD, _SPREAD_UNIT, Interval(None, 0.0, math.inf)),
        ),
        rate=rate,
        rate_per_node_day=interval,
        log_likelihood=None,
        n_parameters=2,
        goodness=None,
        meaning=(
            f"The spread between {data.unit}s cannot be known from {counted(placed, 'failure')} "
            f"({FEW_FAILURES} over two or more {data.unit}s are needed): the interval of the rate "
            "holds only if failures are independent."
        ),
        assumptions=("failures independent of each other, for want of evidence",),
        confidence=confidence,
    )


class _Rows:
    """Likelihood of counts, rows of equal count and exposure folded into one."""

    def __init__(self, data: Counts) -> None:
        used = data.exposure_node_days > 0
        pairs = np.stack([data.failures[used].astype(np.float64), data.exposure_node_days[used]])
        rows, weights = np.unique(pairs, axis=1, return_counts=True)
        self.failures: Floats = rows[0]
        self.exposure: Floats = rows[1]
        self.weight: Floats = weights.astype(np.float64)
        self.total = float(self.weight @ self.failures)
        self.node_days = float(self.weight @ self.exposure)

    def mean(self, spread: float) -> float:
        """Most likely mean rate for a spread: where the score is zero."""
        crude = self.total / self.node_days
        if spread < 1e-9 or np.ptp(self.exposure) == 0:
            return crude

        def score(log_rate: float) -> float:
            mu = math.exp(log_rate) * self.exposure
            return float(self.weight @ ((self.failures - mu) / (1.0 + spread * mu)))

        middle = math.log(crude)
        return math.exp(root(score, middle - 8.0, middle + 8.0, within=1e-10))

    def likelihood(self, rate: float, spread: float) -> float:
        """Log-likelihood of the negative binomial law."""
        shape = 1.0 / spread
        mu = rate * self.exposure
        return float(
            self.weight
            @ (
                special.gammaln(self.failures + shape)
                - special.gammaln(shape)
                - special.gammaln(self.failures + 1.0)
                - shape * np.log1p(mu * spread)
                + self.failures * (np.log(mu * spread) - np.log1p(mu * spread))
            )
        )

    def profile(self, log_spread: float) -> float:
        """Log-likelihood at the best mean for that spread."""
        spread = math.exp(log_spread)
        return self.likelihood(self.mean(spread), spread)

    def poisson(self) -> float:
        """Log-likelihood without spread."""
        mu = self.exposure * self.total / self.node_days
        return float(
            self.weight
            @ (special.xlogy(self.failures, mu) - mu - special.gammaln(self.failures + 1.0))
        )

    def test(self, rate: float, spread: float) -> GoodnessOfFit | None:
        """Chi-square test of how many units had 0, 1, 2, ... failures."""
        from ettr.estimates.exact import negative_binomial_probability, poisson_probability

        mu = rate * self.exposure
        top = int(self.failures.max())
        seen = np.bincount(self.failures.astype(int), self.weight, top + 2)
        shape = 1.0 / spread if spread else math.inf
        expected = np.array(
            [
                self.weight
                @ (
                    negative_binomial_probability(x, shape, shape / (shape + mu))
                    if spread
                    else poisson_probability(x, mu)
                )
                for x in range(top + 1)
            ]
        )
        expected = np.append(expected, max(0.0, self.weight.sum() - expected.sum()))
        groups = _merge(expected, 5.0)
        degrees = len(groups) - 1 - 2
        if degrees < 1:
            return None
        statistic = sum(
            (seen[part].sum() - expected[part].sum()) ** 2 / expected[part].sum() for part in groups
        )
        return GoodnessOfFit(
            "chi-square of counts", float(statistic), degrees, chi_square_tail(statistic, degrees)
        )


def _merge(expected: Floats, least: float) -> list[slice]:
    """Neighbouring cells joined until each expects `least`."""
    groups: list[slice] = []
    start, total = 0, 0.0
    for i, value in enumerate(expected):
        total += float(value)
        if total >= least:
            groups.append(slice(start, i + 1))
            start, total = i + 1, 0.0
    if groups and start < expected.size:
        groups[-1] = slice(groups[-1].start, expected.size)
    return groups


def _maximum(profile: Callable[[float], float]) -> tuple[float, float]:
    place, lost = minimum(lambda v: -profile(v), *_LOG_SPREAD)
    return place, -lost


def _ends(
    profile: Callable[[float], float],
    log_spread: float,
    best: float,
    flat: float,
    confidence: float,
) -> tuple[float, float]:
    """Profile-likelihood interval of the spread; its lower end is 0 where no spread will do too."""
    drop = float(special.chdtri(1, 1.0 - confidence)) / 2.0
    bottom, top = _LOG_SPREAD

    def above(value: float) -> float:
        return profile(value) - best + drop

    low = 0.0 if best - flat <= drop else math.exp(root(above, bottom, log_spread))
    high = math.inf if above(top) > 0 else math.exp(root(above, log_spread, top))
    return low, high
