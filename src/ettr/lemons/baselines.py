"""Simpler rules for lemons, by the same interface, to compare with."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import expit, logit

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
        # of parts of failures too, of which a Poisson probability does not exist
        gain = failures * np.log(high / low) - (high - low) * exposure_node_days
        posterior = expit(logit(share) + gain)
        share = float(np.clip(posterior.mean(), 1e-6, 0.5))
        high = _rate(posterior, failures, exposure_node_days)
        low = _rate(1 - posterior, failures, exposure_node_days)
    return np.asarray(posterior > 0.5)


def _rate(weights: Floats, failures: Floats, exposure_node_days: Floats) -> float:
    """Weighted failures per node-day, kept off the ends at which a likelihood is nothing."""
    exposed = max(float(np.dot(weights, exposure_node_days)), 1e-12)
    return float(np.clip(float(np.dot(weights, failures)) / exposed, 1e-6, 1e3))
