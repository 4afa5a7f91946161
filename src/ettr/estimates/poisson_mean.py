"""Ends of the exact interval of a Poisson mean; standard library only.

SciPy has these numbers as gamma quantiles, but the import of `scipy.special` costs more CPU than a
whole plan. Both tails are sums of positive terms for a whole count, so nothing cancels; the tests
compare them with SciPy's.
"""

from __future__ import annotations

import math

_MOST_STEPS = 100
_RELATIVE_STEP = 1e-15


def mean_below(count: int, tail: float) -> float:
    """The mean under which `count` events or more have the probability `tail`.

    Args:
        count: At least 1.
        tail: Between 0 and 1.

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
        if abs(step) <= _RELATIVE_STEP:
            break
    return mean


def mean_above(count: int, tail: float) -> float:
    """The mean under which `count` events or fewer have the probability `tail`.

    Args:
        count: At least 0.
        tail: Between 0 and 1.

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


def _series(mean: float, count: int) -> float:
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


def _log_mass(count: int, mean: float) -> float:
    """Logarithm of the probability of exactly `count` events.

    Source:
        Loader (2000), "Fast and accurate computation of binomial probabilities": distance from the
        mode plus what Stirling's formula leaves out, so that large numbers do not cancel.
    """
    if count < 40:
        return count * math.log(mean) - mean - math.lgamma(count + 1.0)
    off = (mean - count) / count
    left_out = (1.0 / 12 - (1.0 / 360 - 1.0 / (1260.0 * count**2)) / count**2) / count
    return count * (math.log1p(off) - off) - 0.5 * math.log(2 * math.pi * count) - left_out
