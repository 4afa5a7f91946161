"""The probability that a node has a hidden defect, and what time, checks and jobs do to it.

A defect of a kind arises at a constant rate, is hidden until it strikes a running job at another
constant rate, and is then repaired. Without jobs the probability is 1 - exp(-rate * hours since
a check that covers the kind). Rates and hours have shape (nodes, kinds), or broadcast to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_NO_STRIKE_PER_H = 1e-12


def after_idle(belief: ArrayLike, rate_per_h: ArrayLike, hours: ArrayLike) -> Floats:
    """The belief after hours without a job."""
    kept = np.exp(-np.multiply(rate_per_h, hours))
    return np.asarray(1 - (1 - np.asarray(belief)) * kept, dtype=np.float64)


def after_survival(
    belief: ArrayLike, rate_per_h: ArrayLike, strike_per_h: ArrayLike, hours: ArrayLike
) -> Floats:
    """The belief after hours of a job that nothing struck.

    Solves db/dt = (1 - b)(rate - strike b): defects arise, and each would have struck.
    """
    before = np.minimum(np.asarray(belief, dtype=np.float64), 1 - 1e-12)
    rate, strike = _apart(rate_per_h, strike_per_h)
    # y = (rate - strike b) / (1 - b) grows as exp((rate - strike) t)
    y = (rate - strike * before) / (1 - before)
    # beyond e^700 all is at its end
    y = y * np.exp(np.minimum((rate - strike) * np.asarray(hours), 700.0))
    return np.asarray(np.clip((rate - y) / (strike - y), 0.0, 1.0), dtype=np.float64)


def after_pass(belief: ArrayLike, coverage: ArrayLike) -> Floats:
    """The belief after a check that found nothing and covers a defect with a probability."""
    before, covered = np.asarray(belief, dtype=np.float64), np.asarray(coverage)
    left = before * (1 - covered)
    return np.asarray(left / np.maximum(left + 1 - before, 1e-300), dtype=np.float64)


def survival(rate_per_h: ArrayLike, strike_per_h: ArrayLike, hours: float) -> tuple[Floats, Floats]:
    """The probability that hours of a job are not struck, without and with a defect at its start.

    A node that has a defect with probability b survives with (1 - b) times the first and b times
    the second.
    """
    rate, strike = _apart(rate_per_h, strike_per_h)
    with_defect = np.exp(-strike * hours)
    unhurt = np.exp(-rate * hours)
    clean = unhurt + rate * (unhurt - with_defect) / (strike - rate)
    return np.clip(clean, 1e-300, 1.0), np.asarray(with_defect, dtype=np.float64)


def log_survival(belief: Floats, clean: Floats, with_defect: Floats) -> Floats:
    """The logarithm of the probability that a job is not struck, of each belief."""
    kept = clean - belief * np.maximum(clean - with_defect, 0.0)
    return np.asarray(np.log(np.maximum(kept, 1e-300)), dtype=np.float64)


def _apart(rate_per_h: ArrayLike, strike_per_h: ArrayLike) -> tuple[Floats, Floats]:
    """Both rates, no two equal: the forms above divide by their difference."""
    rate = np.asarray(rate_per_h, dtype=np.float64)
    strike = np.maximum(np.asarray(strike_per_h, dtype=np.float64), _NO_STRIKE_PER_H)
    rate, strike = np.broadcast_arrays(rate, strike)
    near = np.abs(rate - strike) <= 1e-6 * strike
    return rate, np.where(near, strike * (1 + 1e-5), strike)
