"""Change points found in fleets of constant rate, and power where a step was planted.

2,000 nodes, 330 days. Bursts are Poisson in time, geometric in size, spread over a day. The step of
the power rows lies in the middle; `held`: where it was found, the 90 % interval of the rate since
then holds the planted one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from campaigns import Table
from ettr.models.data import Lifetimes, fleet_on_calendar
from ettr.projection.scale import fit_since_last_step

TITLE = "Steps of the failure rate"
SIZE = 200
NODES, DAYS = 2000, 330.0
Times = NDArray[np.float64]


def bursts(rng: np.random.Generator, expected: float, size: float) -> Times:
    """Failure times in days, in bursts of mean `size`; independent where it is 1."""
    parents = rng.uniform(0.0, DAYS, rng.poisson(expected / size))
    times = np.repeat(parents, rng.geometric(1.0 / size, parents.size))
    times = times + (rng.uniform(0.0, 1.0, times.size) if size > 1.0 else 0.0)
    return np.sort(times[times < DAYS])


def stepped(rng: np.random.Generator, expected: float, ratio: float) -> Times:
    """Independent failures whose rate is `ratio` times as high in the second half."""
    first = rng.uniform(0.0, DAYS / 2, rng.poisson(expected / (1 + ratio)))
    second = rng.uniform(DAYS / 2, DAYS, rng.poisson(expected * ratio / (1 + ratio)))
    return np.sort(np.concatenate([first, second]))


def run(size: int) -> Table:
    """Share of fleets in which a step is found, over `size` draws each."""
    rows = []
    for expected in (30, 100, 300):
        for burst in (1.0, 3.0, 4.0):
            rng = np.random.default_rng([expected, int(burst)])
            found = [
                fit_since_last_step(on_calendar(bursts(rng, expected, burst)))[1] > 0
                for _ in range(size)
            ]
            kind = "alone" if burst == 1.0 else f"bursts of {burst:g}"
            rows.append((f"constant, {kind}", str(expected), f"{np.mean(found):.3f}", ""))
    for expected, ratio in ((100, 2.0), (100, 3.0), (300, 2.0)):
        rng = np.random.default_rng([expected, int(ratio), 1])
        truth = expected * ratio / (1 + ratio) / (NODES * DAYS / 2)
        fits = [
            fit_since_last_step(on_calendar(stepped(rng, expected, ratio))) for _ in range(size)
        ]
        held = [fit.rate_per_node_day.contains(truth) for fit, day in fits if day > 0]
        rows.append(
            (
                f"step of {ratio:g}, alone",
                str(expected),
                f"{len(held) / size:.3f}",
                f"{np.mean(held):.3f}" if held else "",
            )
        )
    return Table(
        ("fleet", "failures expected", "step found", "held"),
        tuple(rows),
        "[expected, mean burst]; power [expected, ratio, 1]",
        "a step found in at most .10 of constant fleets, bursty or not",
    )


def on_calendar(times: Times) -> Lifetimes:
    """The failures as spans of nodes on the calendar."""
    return fleet_on_calendar(times, 0.0, DAYS, NODES)
