"""Bad days of system software, found by the contrast of days alone.

Without logs of nodes an end by system software looks like one by hardware. But hardware fails on
any day, and system software has a few bad ones. The faults of a day are those of a steady rate and,
on bad days, of a second one. How much that is, and how few days are bad, the days say together:
what is found is averaged over a grid of both, each weighed by how likely it makes the counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

Floats = NDArray[np.float64]

SHARES = np.array([0.01, 0.03, 0.06, 0.1, 0.2, 0.35, 0.5])
"""Share of system software in all faults, equally likely."""
BAD_DAYS = np.array([0.02, 0.05, 0.1, 0.2, 0.4])
"""Share of bad days, equally likely."""
_SHAPE, _POINTS = 2.0, 24
"""Gamma law of the rates of bad days, and by how many of its quantiles it is summed."""
_TINY, _MOST_LOG = 1e-300, 600.0


def software_rate(by_day: Floats, counts: Floats) -> Floats:
    """Expected rate of system software, per day, on days with so many faults.

    Args:
        by_day: expected faults of each day of the logs, of nodes and of system software.
        counts: of days to be judged.
    """
    mean = (float(by_day.sum()) + 0.5) / max(len(by_day), 1)
    likely, _ = _by_law(by_day, mean)
    logs = np.log(np.maximum(likely, _TINY)).sum(axis=2)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    # a smooth function of the count: it is found at some counts and read off between them
    most = max(float(counts.max(initial=0.0)), 11.0)
    grid = np.unique(np.concatenate([np.linspace(0, 10, 41), np.geomspace(10, most, 40)]))
    _, expected = _by_law(grid, mean)
    rate = mean * np.tensordot(weight, expected, 2)
    return np.asarray(np.interp(counts, grid, rate), dtype=np.float64)


def _by_law(counts: Floats, mean: float) -> tuple[Floats, Floats]:
    """How likely each count is, up to what no law changes, and the system's expected rate then.

    Both of shape (shares, bad days, counts); the rate over the mean of all faults.
    """
    quantile = (np.arange(_POINTS) + 0.5) / _POINTS
    bad = gammaincinv(_SHAPE, quantile)
    good = 1 - BAD_DAYS[:, None]
    rates = np.concatenate([0 * good, bad / bad.mean() / BAD_DAYS[:, None]], axis=1)
    weights = np.concatenate([good, np.tile((1 - good) / _POINTS, (1, _POINTS))], axis=1)
    likely = np.zeros((len(SHARES), len(BAD_DAYS), len(counts)))
    summed = np.zeros(likely.shape)
    for rate, weight in zip(rates.T, weights.T, strict=True):
        system = (SHARES[:, None] * rate)[..., None]
        total = 1 - SHARES[:, None, None] + system
        log = counts * np.log(total) - mean * (total - 1)
        one = weight[:, None] * np.exp(np.minimum(log, _MOST_LOG))
        likely += one
        summed += one * system
    return likely, summed / np.maximum(likely, _TINY)
