"""Failures that a workload brings with it: one user's bug is no fault of the nodes it runs on.

Where a user's jobs fail like that far more often, by their node-days, than those of all others,
the part above the others' rate is put down to the workload, and only the rest is divided among the
nodes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv

from ettr.lemons.model import Floats

PRIOR_FAILURES = 1.0
"""Weight of equal users before the data, in failures."""
SURE = 0.95
"""Probability with which a user's rate is over the multiple that is taken off."""


def workload_parts(failures: Floats, node_days: Floats) -> Floats:
    """The part of each user's unplaced failures that is put down to nodes, shape (users,).

    It is 1 over the multiple of the others' rate that the user's rate is over with probability
    `SURE`, and 1 where that is below 1: few failures are nobody's workload.
    """
    others = failures.sum() - failures
    other_days = np.maximum(node_days.sum() - node_days, 1e-9)
    expected = node_days * (others + PRIOR_FAILURES / 2) / other_days
    least = gammaincinv(failures + PRIOR_FAILURES, 1 - SURE) / (expected + PRIOR_FAILURES)
    return np.asarray(1 / np.maximum(least, 1.0), dtype=np.float64)
