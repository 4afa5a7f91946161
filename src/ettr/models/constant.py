"""Constant failure rate: the exact answer, right at every count."""

import math

from ettr.estimates import CONFIDENCE, FailureRate, Interval
from ettr.models.base import FailureModel, Fit, Parameter, age_test, verdict
from ettr.models.data import Floats, Lifetimes
from ettr.units import HOURS_PER_DAY, SECONDS_PER_DAY


def rate_interval(rate: FailureRate, confidence: float = CONFIDENCE) -> Interval:
    """Failures per node-day with the exact interval of a constant rate."""
    low, high = rate.interval(confidence)
    return Interval(rate.per_node_day, low, high)


class ConstantRate(FailureModel[Lifetimes]):
    """Every node fails at one rate that neither age nor time changes.

    Source:
        Garwood (1936), Biometrika 28, for the interval.
    """

    name = "constant rate"

    def fit(self, data: Lifetimes, confidence: float = CONFIDENCE) -> Fit:
        """The rate and its exact interval, with a test by age."""
        rate = FailureRate(data.failures, data.node_days)
        interval = rate_interval(rate, confidence)
        per_s = (interval.estimate or 0.0) / SECONDS_PER_DAY

        def cumulative_hazard(clock_s: Floats) -> Floats:
            return per_s * clock_s

        goodness = age_test(data, cumulative_hazard, 1)
        mttf = rate.mttf_h(1, confidence)
        days = mttf.low / HOURS_PER_DAY
        if mttf.estimate is None:
            meaning = (
                f"No failure in {rate.node_days:,.0f} node-days: a node lasts {days:,.0f} days or "
                f"more on average, as far as {confidence:.0%} confidence can say."
            )
        else:
            meaning = (
                f"A node fails once in {mttf.estimate / HOURS_PER_DAY:,.1f} days on average, "
                f"whatever its age; {verdict(goodness)}."
            )
        return Fit(
            model=self.name,
            parameters=(
                Parameter("rate", "per node-day", interval.estimate, interval.low, interval.high),
            ),
            rate=rate,
            rate_per_node_day=interval,
            log_likelihood=data.failures * math.log(per_s) - data.failures if per_s else None,
            n_parameters=1,
            goodness=goodness,
            meaning=meaning,
            assumptions=("one rate for all nodes and ages", "failures independent of each other"),
            confidence=confidence,
            cumulative_hazard=cumulative_hazard,
        )
