"""That failures come in bursts is said of those that do, and hardly ever of independent ones."""

from __future__ import annotations

import numpy as np
import pytest

from ettr.analysis.clustering import come_in_bursts
from ettr.models.dispersion import FailureTimeline, spread_over_time

DAYS, NODES = 61, 2000
EDGES = np.arange(0.0, DAYS + 1e-9, 0.125)


def said(times_days: np.ndarray) -> bool:
    timeline = FailureTimeline(np.sort(times_days), EDGES, EDGES * NODES)
    return come_in_bursts(spread_over_time(timeline), times_days)


@pytest.mark.parametrize("expected", [100, 300, 774])
def test_independent_failures_are_seldom_called_bursts(expected: int) -> None:
    found = 0
    for draw in range(200):
        rng = np.random.default_rng([expected, draw])
        found += said(rng.uniform(0, DAYS, rng.poisson(expected)))
    assert found <= 4, "at most 2 % of 200 fleets"


def test_bursts_are_called_so() -> None:
    """Bursts of four on average, each spread over an hour."""
    found = 0
    for draw in range(20):
        rng = np.random.default_rng([4, draw])
        begins = rng.uniform(0, DAYS - 1, rng.poisson(75))
        times = [begin + rng.uniform(0, 1 / 24, rng.geometric(0.25)) for begin in begins]
        found += said(np.concatenate(times))
    assert found >= 18
