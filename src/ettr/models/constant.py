"""Constant failure rate: the exact answer, right at every count."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates import special
from ettr.estimates.exact import FailureRate
from ettr.models.base import (
    FailureModel,
    Fit,
    GoodnessOfFit,
    Parameter,
    age_test,
    checked_values,
    verdict,
)
from ettr.models.data import Counts, Floats, LifeLaw, Lifetimes
from ettr.models.dispersion import dispersion
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY
from ettr.words import spell


@dataclass(frozen=True, slots=True)
class ConstantLife(LifeLaw):
    """Exponential lives: the age of a node says nothing of its future."""

    per_s: float

    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures up to an age in seconds."""
        return self.per_s * clock_s

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value."""
        return hazard / self.per_s if self.per_s else np.where(hazard > 0, np.inf, 0.0)


class ConstantRate(FailureModel[Lifetimes | Counts]):
    """Every node fails at one rate that neither age nor time changes.

    Source:
        Garwood (1936), Biometrika 28, for the interval.
    """

    name = "constant rate"

    def fit(self, data: Lifetimes | Counts, confidence: float = CONFIDENCE) -> Fit:
        """The rate and its exact interval, with a test by age or between units."""
        rate = data.rate
        interval = rate.interval(confidence)
        per_s = (interval.estimate or 0.0) / SECONDS_PER_DAY

        def cumulative_hazard(clock_s: Floats) -> Floats:
            return per_s * clock_s

        goodness: GoodnessOfFit | None
        if isinstance(data, Counts):
            goodness = dispersion(data, confidence).test
            likelihood = _counts_likelihood(data)
        else:
            goodness = age_test(data, cumulative_hazard, 1)
            likelihood = rate.failures * math.log(per_s) - rate.failures if per_s else None
        return Fit(
            model=self.name,
            parameters=(Parameter.of("rate", "per node-day", interval),),
            rate=rate,
            rate_per_node_day=interval,
            log_likelihood=likelihood,
            n_parameters=1,
            goodness=goodness,
            meaning=_meaning(rate, goodness, confidence),
            assumptions=("one rate for all nodes and ages", "failures independent of each other"),
            confidence=confidence,
            cumulative_hazard=cumulative_hazard,
        )

    def law_of(self, values: Mapping[str, float]) -> ConstantLife:
        """The law by `rate`, per node-day."""
        (rate,) = checked_values(self.name, values, ("rate",), may_be_zero=True)
        return ConstantLife(rate / SECONDS_PER_DAY)


def _counts_likelihood(counts: Counts) -> float | None:
    """Poisson log-likelihood of the placed failures; None without any."""
    placed = int(counts.failures.sum())
    if not placed:
        return None
    mean = counts.exposure_node_days * placed / counts.node_days
    return float(
        np.sum(special.xlogy(counts.failures, mean) - mean - special.gammaln(counts.failures + 1.0))
    )


def _meaning(rate: FailureRate, goodness: GoodnessOfFit | None, confidence: float) -> str:
    mttf = rate.mttf_h(1, confidence)
    if mttf.estimate is None:
        return (
            f"No failure in {rate.node_days:,.0f} node-days: at {confidence:.0%} confidence a node "
            f"lasts {mttf.low / HOURS_PER_DAY:,.0f} days or more on average."
        )
    days = mttf.estimate / HOURS_PER_DAY
    once_in = f"{days:,.1f} days" if days >= 1 else spell(SECONDS_PER_DAY * days)
    return f"A node fails once in {once_in} on average, whatever its age; {verdict(goodness)}."
