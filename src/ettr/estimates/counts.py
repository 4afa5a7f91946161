"""Quantiles and probabilities of counts, from `scipy.special`.

`scipy.stats` has them too; its import takes longer than most commands that need one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, gammaln, nbdtrik, pdtr, pdtrik, xlog1py, xlogy

Floats = npt.NDArray[np.float64]


def poisson_quantile(share: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    """The least count that a Poisson law does not exceed with at least this probability."""
    share, mean = np.broadcast_arrays(np.asarray(share, float), np.asarray(mean, float))
    reached = np.where(mean > 0, pdtrik(share, np.maximum(mean, np.finfo(float).tiny)), 0.0)
    return _least(np.ceil(np.maximum(reached, 0.0)), share, lambda count: pdtr(count, mean))


def poisson_probability(count: npt.ArrayLike, mean: npt.ArrayLike) -> Floats:
    """Probability of exactly this Poisson count."""
    count, mean = np.asarray(count, float), np.asarray(mean, float)
    return np.asarray(np.exp(xlogy(count, mean) - mean - gammaln(count + 1.0)), dtype=np.float64)


def negative_binomial_quantile(share: float, size: float, p: float) -> float:
    """The least count that a negative binomial law exceeds with probability 1 - `share` at most."""
    start = np.ceil(np.maximum(np.asarray(nbdtrik(share, size, p)), 0.0))
    share_of = np.asarray(share, float)
    return float(_least(start, share_of, lambda count: betainc(size, count + 1.0, p)))


def negative_binomial_probability(
    count: npt.ArrayLike, size: npt.ArrayLike, p: npt.ArrayLike
) -> Floats:
    """Probability of exactly this count; arguments as for `negative_binomial_quantile`."""
    count, size, p = (np.asarray(one, float) for one in (count, size, p))
    ways = gammaln(size + count) - gammaln(count + 1.0) - gammaln(size)
    return np.asarray(np.exp(ways + size * np.log(p) + xlog1py(count, -p)), dtype=np.float64)


def _least(count: Floats, share: Floats, up_to: Callable[[Floats], Floats]) -> Floats:
    """`count`, or one less or more where rounding has passed the least that reaches `share`."""
    below = np.maximum(count - 1.0, 0.0)
    least = np.where(up_to(below) >= share, below, count)
    return np.where(up_to(least) >= share, least, least + 1.0)
