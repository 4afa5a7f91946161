"""Steps of the rate: none in noise, however it clusters; and the rate since a planted one."""

import numpy as np
import pytest

from ettr.models.data import fleet_on_calendar
from ettr.models.piecewise import PiecewiseConstant, local_spread
from ettr.projection.scale import fit_since_last_step

DAYS, NODES = 330.0, 2000


def bursts(rng, expected, size, lasts_days=1.0):
    parents = rng.uniform(0.0, DAYS, rng.poisson(expected / size))
    times = np.repeat(parents, rng.geometric(1.0 / size, parents.size))
    times = times + rng.uniform(0.0, lasts_days, times.size)
    return np.sort(times[times < DAYS])


def stepped(rng, expected, ratio=1.0):
    """Independent failures whose rate is `ratio` times as high in the second half."""
    first = rng.uniform(0.0, DAYS / 2, rng.poisson(expected / (1 + ratio)))
    second = rng.uniform(DAYS / 2, DAYS, rng.poisson(expected * ratio / (1 + ratio)))
    return np.sort(np.concatenate([first, second]))


def on_calendar(times):
    return fleet_on_calendar(times, 0.0, DAYS, NODES)


def n_steps(times):
    fit = PiecewiseConstant().fit(on_calendar(times))
    return sum(parameter.name.startswith("step") for parameter in fit.parameters)


def test_a_burst_is_no_step():
    rng = np.random.default_rng(1)
    times = bursts(rng, 200, 6.0)
    assert n_steps(times) == 0
    assert local_spread(on_calendar(times)).index > 3.0


@pytest.mark.slow
def test_bursts_that_last_for_days_are_no_steps_of_a_log_of_months():
    rng, days, found = np.random.default_rng(8), 120.0, []
    for _ in range(50):
        times = bursts(rng, 30 * DAYS / days, 4.0, 5.0)
        times = times[(times > 100.0) & (times < 100.0 + days)] - 100.0
        found.append(fit_since_last_step(fleet_on_calendar(times, 0.0, days, NODES))[1] > 0)
    assert np.mean(found) <= 0.10


def test_a_step_is_found_and_is_no_clustering():
    rng = np.random.default_rng(2)
    times = stepped(rng, 300, 3.0)
    data = on_calendar(times)
    assert local_spread(data).index == 1.0
    assert n_steps(times) == 1
    _, day = fit_since_last_step(data)
    assert abs(day - DAYS / 2) < 20.0
