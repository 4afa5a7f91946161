"""Is it getting better? Verdicts where the truth is planted."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from ettr.models.compare import Direction, rate_direction
from ettr.models.dispersion import FailureTimeline

DAY_0 = 20_000.0
"""2024-10-04 in days since 1970."""
DAYS, NODES = 120.0, 200


def fleet(times_days, node_days=None, edges=None):
    edges = DAY_0 + np.linspace(0.0, DAYS, 241) if edges is None else edges
    exposure = (edges - edges[0]) * NODES if node_days is None else node_days
    return FailureTimeline(DAY_0 + np.asarray(times_days, dtype=np.float64), edges, exposure)


def drawn(rng, expected, burst=1.0, ratio=1.0):
    """Failure times, in bursts of that mean size; the second half at `ratio` times the rate."""
    times = []
    for begin, share in ((0.0, 1.0 / (1.0 + ratio)), (DAYS / 2, ratio / (1.0 + ratio))):
        parents = begin + rng.uniform(0.0, DAYS / 2, rng.poisson(expected * share / burst))
        size = rng.geometric(1.0 / burst, parents.size)
        spread = 1.0 if burst > 1.0 else 0.0
        times.append(np.repeat(parents, size) + spread * rng.uniform(0.0, 1.0, size.sum()))
    found = np.concatenate(times)
    return found[found < DAYS]


@pytest.mark.slow
@pytest.mark.parametrize("burst", [1.0, 4.0])
def test_a_constant_rate_is_seldom_called_better_or_worse(burst):
    """In one of a hundred; with the exact test alone bursts of four give half of them."""
    rng = np.random.default_rng(int(burst))
    verdicts = [
        rate_direction(fleet(drawn(rng, expected, burst))).verdict
        for expected in (30, 100)
        for _ in range(60)
    ]
    assert sum(verdict is not Direction.UNDECIDED for verdict in verdicts) <= 3


@pytest.mark.parametrize(("ratio", "verdict"), [(0.4, Direction.BETTER), (2.5, Direction.WORSE)])
def test_a_planted_change_is_found(ratio, verdict):
    found = rate_direction(fleet(drawn(np.random.default_rng(7), 200, ratio=ratio)))
    assert found.verdict is verdict
    assert found.ratio.low < ratio < found.ratio.high
    assert found.meaning.startswith(f"It is getting {verdict.value}: ")


def test_the_halves_hold_the_same_exposure_where_the_fleet_grew():
    """100 nodes for 60 days, then 300: half of the 24,000 node-days have run on day 80."""
    edges = DAY_0 + np.linspace(0.0, DAYS, 241)
    grown = np.interp(edges - DAY_0, [0.0, 60.0, 120.0], [0.0, 6_000.0, 24_000.0])
    rng = np.random.default_rng(3)
    times = np.concatenate([rng.uniform(0, 60, 40), rng.uniform(60, 120, 120)])
    found = rate_direction(fleet(times, grown, edges))
    assert found.since == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=DAY_0 + 80.0)
    assert (found.ratio.a.node_days, found.ratio.b.node_days) == pytest.approx((12_000, 12_000))
    assert found.ratio.a.failures == int((times >= 80).sum())
    assert found.ratio.a.failures + found.ratio.b.failures == 160
    assert found.verdict is Direction.UNDECIDED


def test_few_failures_tell_nothing_however_they_lie():
    found = rate_direction(fleet([100.0, 101.0, 102.0, 103.0, 110.0, 111.0, 112.0]))
    assert found.verdict is Direction.UNDECIDED
    assert "7 failures in the second half" in found.meaning
    assert "too few" in found.meaning


def test_nothing_ran_is_said():
    edges = DAY_0 + np.linspace(0.0, DAYS, 3)
    found = rate_direction(fleet([], np.zeros(3), edges))
    assert (found.verdict, found.ratio, found.since) == (Direction.UNDECIDED, None, None)


def test_every_failure_lies_in_one_half():
    """Also those on the very first and last moment, and one before the exposure began."""
    times = [-1.0, 0.0, 60.0, 120.0]
    found = rate_direction(fleet(times))
    assert (found.ratio.b.failures, found.ratio.a.failures) == (2, 2)
