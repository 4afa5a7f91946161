"""Rates and shares with exact intervals: the arithmetic behind every "how often".

All intervals are two-sided and hold their nominal confidence for every count, zero included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ettr.defaults import CONFIDENCE
from ettr.estimates import special
from ettr.estimates.interval import Interval, check_confidence
from ettr.units import HOURS_PER_DAY

if TYPE_CHECKING:  # a typed rate needs neither
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# Above this count the sums of the Poisson tails take longer than the import of SciPy.
_MOST_SUMMED = 100_000
_MOST_BETA = 10_000.0
_MOST_TERMS = 500.0


# a report asks for 1,000 intervals of 200 counts
@lru_cache(maxsize=4096)
def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact two-sided interval of a Poisson mean after `count` events.

    With no event the lower end is 0 and the upper end is still finite.

    Source:
        Garwood (1936), Biometrika 28; chi-square quantiles are twice the gamma quantiles used here.
    """
    check_confidence(confidence)
    tail = (1.0 - confidence) / 2.0
    if count > _MOST_SUMMED:
        from ettr.estimates.special import gammainccinv, gammaincinv

        return float(gammaincinv(count, tail)), float(gammainccinv(count + 1, tail))
    return (mean_below(count, tail) if count else 0.0), mean_above(count, tail)


def sum_interval(
    losses: Sequence[float], dispersion: float = 1.0, confidence: float = CONFIDENCE
) -> Interval:
    """The sum of what random events lost, with an interval of its expectation.

    The number of events is taken as Poisson, or as varying `dispersion` times as much; how much an
    event loses is as varied as it was. Without a loss the upper end is not known.

    Source:
        Fay and Feuer (1997), Statistics in Medicine 16: gamma interval of a weighted sum of
        Poisson counts.
    """
    check_confidence(confidence)
    tail, total = (1.0 - confidence) / 2.0, math.fsum(losses)
    if total <= 0:
        return Interval(total, 0.0, math.inf)
    spread = dispersion * math.fsum(one * one for one in losses)
    largest = dispersion * max(losses)
    above, wide = total + largest, spread + largest * largest
    low = spread / total * gamma_quantile(total * total / spread, tail)
    high = wide / above * gamma_quantile(above * above / wide, 1.0 - tail)
    return Interval(total, low, high)


def share_interval(part: int, whole: int, confidence: float = CONFIDENCE) -> Interval:
    """Share `part`/`whole` with its exact interval.

    Source:
        Clopper and Pearson (1934), Biometrika 26.
    """
    check_confidence(confidence)
    if not whole:
        return Interval(None, 0.0, 1.0)
    tail = (1.0 - confidence) / 2.0
    low = beta_quantile(part, whole - part + 1, tail) if part else 0.0
    high = beta_quantile(part + 1, whole - part, 1.0 - tail) if part < whole else 1.0
    return Interval(part / whole, low, high)


def rate_interval(
    count: int, exposure: float, confidence: float = CONFIDENCE, per: float = 1.0
) -> Interval:
    """Events per `per` units of exposure, with the exact Poisson interval.

    Source:
        Garwood (1936), Biometrika 28.
    """
    if exposure <= 0:
        return Interval(None, 0.0, math.inf)
    low, high = poisson_interval(count, confidence)
    scale = per / exposure
    return Interval(count * scale, low * scale, high * scale)


def mean_time_interval(count: int, exposure: float, confidence: float = CONFIDENCE) -> Interval:
    """Mean time between events in the unit of `exposure`; with no event a lower end only.

    Source:
        Kokolis et al. (2025), MTTF in [2T/chi2(1-a/2, 2n+2), 2T/chi2(a/2, 2n)].
    """
    if exposure <= 0:
        return Interval.unknown()
    low, high = poisson_interval(count, confidence)
    return Interval(
        exposure / count if count else None,
        exposure / high,
        exposure / low if low > 0 else math.inf,
    )


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Failures of one node per day of runtime, with the evidence behind it."""

    failures: int
    node_days: float

    @property
    def per_node_day(self) -> float | None:
        """Failures per node-day; None without exposure."""
        return self.failures / self.node_days if self.node_days > 0 else None

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The rate with its exact two-sided interval, in failures per node-day.

        With no failure the lower end is 0 and the upper end is still finite; with no exposure the
        upper end is infinite.

        Source:
            Garwood (1936), Biometrika 28.
        """
        low, high = poisson_interval(self.failures, confidence)
        if self.node_days <= 0:
            return Interval(None, 0.0, math.inf)
        return Interval(self.per_node_day, low / self.node_days, high / self.node_days)

    def mttf_h(self, n_nodes: float, confidence: float = CONFIDENCE) -> Interval:
        """Mean time to failure of a job on `n_nodes` nodes in series, in hours.

        Source:
            Kokolis et al. (2025): MTTF = 1 / (N_nodes * r_f).
        """
        return self.interval(confidence).scaled(n_nodes).inverse(HOURS_PER_DAY)


_MOST_STEPS = 100
_RELATIVE_STEP = 1e-15
_LEAST = 1e-300


def mean_below(count: float, tail: float) -> float:
    """The mean under which `count` events or more have the probability `tail`.

    Source:
        Garwood (1936), Biometrika 28. Newton's rule on the logarithms of mean and tail, where the
        tail is concave: after one step every further one comes from the same side.
    """
    mean = float(count)
    for _ in range(_MOST_STEPS):
        # P(N >= count) = mass * ratio: mass of `count` times 1 + m/(c+1) + m^2/((c+1)(c+2)) + ...
        ratio = _series(mean, count)
        error = _log_mass(count, mean) + math.log(ratio) - math.log(tail)
        # d log P / d log m = m * mass(count - 1) / P = count / ratio
        step = -error * ratio / count
        mean *= math.exp(step)
        if abs(step) <= _RELATIVE_STEP or mean < _LEAST:
            break
    return mean


def gamma_quantile(shape: float, share: float) -> float:
    """The value that a gamma variable of scale 1 does not exceed with probability `share`."""
    if shape > _MOST_SUMMED:
        from ettr.estimates.special import gammaincinv

        return float(gammaincinv(shape, share))
    return mean_below(shape, share)


def beta_share(a: float, b: float, value: float) -> float:
    """Probability that a beta variable is at most `value`.

    Source:
        NIST Digital Library of Mathematical Functions, 8.17.22, by Lentz's rule.
    """
    if not 0.0 < value < 1.0:
        return float(value > 0.0)
    if a + b > _MOST_BETA:
        from ettr.estimates.special import betainc

        return float(betainc(a, b, value))
    if value > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_share(b, a, 1.0 - value)
    log_first = math.lgamma(a + b) - math.lgamma(a + 1.0) - math.lgamma(b)
    log_first += a * math.log(value) + b * math.log1p(-value)
    above, below = 1.0, 1.0 / (1.0 - (a + b) * value / (a + 1.0))
    total, n = below, 1
    while True:
        even = n * (b - n) * value / ((a + 2 * n - 1) * (a + 2 * n))
        odd = -(a + n) * (a + b + n) * value / ((a + 2 * n) * (a + 2 * n + 1))
        before = total
        for term in (even, odd):
            below, above = 1.0 / (1.0 + term * below), 1.0 + term / above
            total *= below * above
        if abs(total - before) <= _RELATIVE_STEP * total:
            return math.exp(log_first) * total
        n += 1


def beta_quantile(a: float, b: float, share: float) -> float:
    """The value that a beta variable does not exceed with probability `share`."""
    if a + b > _MOST_BETA:
        from ettr.estimates.special import betaincinv

        return float(betaincinv(a, b, share))
    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    low, high, value = 0.0, 1.0, a / (a + b)
    for _ in range(_MOST_STEPS):
        reached = max(beta_share(a, b, value), _LEAST)
        low, high = (low, value) if reached > share else (value, high)
        # Newton's rule on both logarithms, as in `mean_below`
        log_slope = log_scale + a * math.log(value) + (b - 1.0) * math.log1p(-value)
        step = math.log(share / reached) * math.exp(min(math.log(reached) - log_slope, 700.0))
        after = value * math.exp(max(min(step, 1.0), -700.0))
        if not low < after < high:
            after = (low + high) / 2.0
        if abs(after - value) <= _RELATIVE_STEP * value:
            return after
        value = after
    return value


def mean_above(count: int, tail: float) -> float:
    """The mean under which `count` events or fewer have the probability `tail`.

    Source:
        As `mean_below`; the logarithm of this tail is concave in the mean itself.
    """
    mean = count + 1.0
    for _ in range(_MOST_STEPS):
        # P(N <= count) = mass * ratio: mass of `count` times 1 + c/m + c(c-1)/m^2 + ...
        ratio = _falling_series(mean, count)
        error = _log_mass(count, mean) + math.log(ratio) - math.log(tail)
        # d log P / d m = -mass(count) / P = -1 / ratio
        step = error * ratio
        mean += step
        if abs(step) <= _RELATIVE_STEP * mean:
            break
    return mean


def _series(mean: float, count: float) -> float:
    """1 + m/(c+1) + m^2/((c+1)(c+2)) + ..., to the last bit."""
    total = term = 1.0
    n = count
    while True:
        n += 1
        term *= mean / n
        if total + term == total:
            return total
        total += term


def _falling_series(mean: float, count: int) -> float:
    """1 + c/m + c(c-1)/m^2 + ..., to the last bit; at most `count` + 1 terms."""
    total = term = 1.0
    for n in range(count, 0, -1):
        term *= n / mean
        if total + term == total:
            break
        total += term
    return total


def _log_mass(count: float, mean: float) -> float:
    """Logarithm of the probability of exactly `count` events."""
    if count < 40:
        return count * math.log(mean) - mean - math.lgamma(count + 1.0)
    off = (mean - count) / count
    left_out = (1.0 / 12 - (1.0 / 360 - 1.0 / (1260.0 * count**2)) / count**2) / count
    return count * (math.log1p(off) - off) - 0.5 * math.log(2 * math.pi * count) - left_out


# -- Quantiles and probabilities of counts, from `scipy.special` ----------------------------------
#
# `scipy.stats` has them too; its import takes longer than most commands that need one of them, and
# `scipy.special` and NumPy load where one is asked for.


def poisson_least(share: float, mean: float) -> float:
    """The same as `poisson_quantile` of one value, summed up where the mean is small."""
    if mean > _MOST_TERMS:
        return float(poisson_quantile(share, mean))
    count, mass = 0, math.exp(-mean)
    total = mass
    while total < share and mass > 0.0:
        count += 1
        mass *= mean / count
        total += mass
    return float(count)


def poisson_quantile(share: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    """The least count that a Poisson law does not exceed with at least this probability."""
    import numpy as np

    share, mean = np.broadcast_arrays(np.asarray(share, float), np.asarray(mean, float))
    reached = np.where(mean > 0, special.pdtrik(share, np.maximum(mean, np.finfo(float).tiny)), 0.0)
    return _least(np.ceil(np.maximum(reached, 0.0)), share, lambda count: special.pdtr(count, mean))


def poisson_probability(count: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    """Probability of exactly this Poisson count."""
    import numpy as np

    count, mean = np.asarray(count, float), np.asarray(mean, float)
    return np.asarray(
        np.exp(special.xlogy(count, mean) - mean - special.gammaln(count + 1.0)), dtype=np.float64
    )


def negative_binomial_quantile(share: float, size: float, p: float) -> float:
    """The least count that a negative binomial law exceeds with probability 1 - `share` at most."""
    low, high = -1, 0
    while beta_share(size, high + 1.0, p) < share:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        is_reached = beta_share(size, middle + 1.0, p) >= share
        low, high = (low, middle) if is_reached else (middle, high)
    return float(high)


def negative_binomial_probability(
    count: npt.ArrayLike, size: npt.ArrayLike, p: npt.ArrayLike
) -> Floats:
    """Probability of exactly this count; arguments as for `negative_binomial_quantile`."""
    import numpy as np

    count, size, p = (np.asarray(one, float) for one in (count, size, p))
    ways = special.gammaln(size + count) - special.gammaln(count + 1.0) - special.gammaln(size)
    return np.asarray(
        np.exp(ways + size * np.log(p) + special.xlog1py(count, -p)), dtype=np.float64
    )


def _least(count: Floats, share: Floats, up_to: Callable[[Floats], Floats]) -> Floats:
    """`count`, or one less or more where rounding has passed the least that reaches `share`."""
    import numpy as np

    below = np.maximum(count - 1.0, 0.0)
    least = np.where(up_to(below) >= share, below, count)
    return np.where(up_to(least) >= share, least, least + 1.0)
