"""Simpler rules for lemons, by the same interface, to compare with."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import expit

from ettr.lemons.model import Floats

Claimed = np.ndarray[tuple[int], np.dtype[np.bool_]]


def many_failures(failures: Floats, at_least: int = 5) -> Claimed:
    """A fixed threshold, as NVSentinel's MultipleRemediations has: so many failures, however long
    the node was watched and whatever the others had."""
    return np.asarray(failures >= at_least)


def poisson_tail(failures: Floats, exposure_node_days: Floats, false_discovery: float) -> Claimed:
    """Nodes with more failures than the fleet's rate explains, by Benjamini and Hochberg.

    Assumes that ordinary nodes are alike; the rate is that of the whole fleet, lemons included.
    """
    rate = failures.sum() / exposure_node_days.sum()
    p_values = stats.poisson.sf(failures - 1, rate * exposure_node_days)
    return np.asarray(stats.false_discovery_control(p_values, method="bh") <= false_discovery)


def two_points(failures: Floats, exposure_node_days: Floats, rounds: int = 200) -> Claimed:
    """A mixture of two rates by expectation maximization; claims what is likelier than not."""
    rate = max(failures.sum(), 0.5) / exposure_node_days.sum()
    low, high, share = 0.5 * rate, 10 * rate, 0.02
    posterior = np.zeros(len(failures))
    for _ in range(rounds):
        one = np.log(share) + stats.poisson.logpmf(failures, high * exposure_node_days)
        other = np.log1p(-share) + stats.poisson.logpmf(failures, low * exposure_node_days)
        posterior = expit(one - other)
        share = float(np.clip(posterior.mean(), 1e-6, 0.5))
        high = max((posterior @ failures) / max(posterior @ exposure_node_days, 1e-12), 1e-6)
        ordinary = 1 - posterior
        low = max((ordinary @ failures) / max(ordinary @ exposure_node_days, 1e-12), 1e-6)
    return np.asarray(posterior > 0.5)
