"""Spares against a simulation of the closed loop, with repairs that are not exponential."""

import heapq

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.plan.wallclock import spares_needed, standstill_share


def drawn(of):
    """Numbers one by one, drawn by the thousand: a draw of one takes ten times as long."""
    while True:
        yield from of(4096).tolist()


def simulated_standstill(rng, n_nodes, spares, per_node_day, repair_days, days, law):
    """Share of time without n_nodes nodes: nodes fail only while all of them run."""
    clock, still, returns = 0.0, 0.0, []
    fails = drawn(lambda size: rng.exponential(1.0 / (n_nodes * per_node_day), size))
    lasts = drawn(lambda size: law(rng, repair_days, size))
    while clock < days:
        while returns and returns[0] <= clock:
            heapq.heappop(returns)
        if len(returns) > spares:
            still += returns[0] - clock
            clock = heapq.heappop(returns)
            continue
        clock += next(fails)
        heapq.heappush(returns, clock + next(lasts))
    return still / clock


def exponential(rng, mean, size):
    return rng.exponential(mean, size)


def lognormal(rng, mean, size):
    return rng.lognormal(np.log(mean) - 0.5, 1.0, size)


def fixed(rng, mean, size):
    return np.full(size, mean)


@pytest.mark.slow
@pytest.mark.parametrize("law", [exponential, lognormal, fixed])
@pytest.mark.parametrize(("n_nodes", "spares"), [(2048, 8), (512, 8), (2048, 30), (64, 0)])
def test_the_share_of_time_without_all_nodes(law, n_nodes, spares):
    rng = np.random.default_rng([n_nodes, spares])
    seen = [simulated_standstill(rng, n_nodes, spares, 0.006, 2.0, 2000.0, law) for _ in range(10)]
    expected = standstill_share(spares, n_nodes * 0.006 * 2.0)
    assert expected == pytest.approx(np.mean(seen), abs=max(0.004, 4 * np.std(seen) / 10**0.5))


def test_16384_gpus_with_8_spares_stand_still_two_thirds_of_the_time_not_all_of_it():
    """The case of the review: 30 failures in 5,000 node-days, two days of repair."""
    assert 1.0 - standstill_share(8, 2048 * 30 / 5000 * 2.0) == pytest.approx(0.346, abs=0.001)


def test_spares_needed_is_the_first_that_suffices():
    for offered in (0.01, 1.0, 24.6, 3000.0):
        spares = spares_needed(offered)
        assert standstill_share(spares, offered) <= 0.01
        assert spares == 0 or standstill_share(spares - 1, offered) > 0.01


def test_no_failure_needs_no_spare_and_nonsense_is_refused():
    assert standstill_share(0, 0.0) == 0.0
    assert spares_needed(0.0) == 0
    with pytest.raises(UsageError, match="give 0 or more of each"):
        standstill_share(-1, 2.0)
