"""Fleets at a constant rate whose failures come alone or in fleet-wide bursts.

500 nodes, 90 days. Bursts are Poisson in time, geometric in size with mean 4, spread over a day,
on nodes drawn at random. `covered`: the 90 % interval that is shown holds the rate; `exact` is the
interval for independent failures. `rejects`: `compare` finds a difference at 10 % where
there is none (bursts), or the planted ratio of 2 (power). `width`: over that of the exact interval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from campaigns import Table
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import Spread, fleet_spread
from ettr.models.compare import compare_spread
from ettr.models.data import Counts
from ettr.models.dispersion import (
    FailureTimeline,
    spread_over_nodes,
    spread_over_time,
)

TITLE = "Intervals and comparisons when failures come in bursts"
SIZE = 400
NODES, DAYS, BURST = 500, 90.0, 4.0
EDGES = np.linspace(0.0, DAYS, 181)
Times = NDArray[np.float64]


def bursts(rng: np.random.Generator, expected: float) -> Times:
    """Failure times of a fleet whose failures come in bursts, in days."""
    parents = rng.uniform(0.0, DAYS, rng.poisson(expected / BURST))
    times = np.repeat(parents, rng.geometric(1.0 / BURST, parents.size))
    times = times + rng.uniform(0.0, 1.0, times.size)
    return times[times < DAYS]


def alone(rng: np.random.Generator, expected: float) -> Times:
    """Failure times of a fleet whose failures are independent, in days."""
    return rng.uniform(0.0, DAYS, rng.poisson(expected))


def spreads(rng: np.random.Generator, times: Times) -> tuple[Spread, Spread]:
    """Spread over time and over nodes; each failure strikes a node at random."""
    by_node = Counts(np.bincount(rng.choice(NODES, times.size), minlength=NODES), DAYS)
    return spread_over_time(FailureTimeline(times, EDGES, EDGES * NODES)), spread_over_nodes(
        by_node
    )


def run(size: int) -> Table:
    """Coverage, width, size and power over `size` draws each."""
    rows: list[tuple[str, ...]] = []
    for kind, draw in (("bursts", bursts), ("alone", alone)):
        for expected in (10, 30, 100):
            rng = np.random.default_rng([expected, kind == "alone"])
            truth = expected / (NODES * DAYS)
            covered, exact, width, rejects = [], [], [], []
            for _ in range(size):
                a, b = draw(rng, expected), draw(rng, expected)
                rate_a, rate_b = (FailureRate(times.size, NODES * DAYS) for times in (a, b))
                both = spreads(rng, a)
                shown, alone_ = fleet_spread(*both).believed.interval(rate_a), rate_a.interval()
                covered.append(shown.contains(truth))
                exact.append(alone_.contains(truth))
                width.append((shown.high - shown.low) / (alone_.high - alone_.low))
                done = compare_spread(rate_a, rate_b, both, spreads(rng, b))
                rejects.append(done.p_value < 0.1)
            rows.append(
                (
                    f"{kind}, {expected} expected",
                    f"{np.mean(covered):.3f}",
                    f"{np.mean(exact):.3f}",
                    f"{np.median(width):.2f} / {np.mean(width):.2f}",
                    f"{np.mean(rejects):.3f}",
                )
            )
    rows += [power(size, a, b) for a, b in ((60, 30), (200, 100))]
    return Table(
        ("fleet", "covered", "exact", "width, median / mean", "rejects"),
        tuple(rows),
        "[expected, 0 bursts or 1 alone]; power [a, b]",
        "bursts of 30 and 100: covered at least .88, rejects at most .12; alone: width at most "
        "1.10 / 1.25; power at ratio 2 at least .85 (60 against 30) and .98 (200 against 100)",
    )


def power(size: int, a: int, b: int) -> tuple[str, ...]:
    """Share of draws in which a planted ratio of 2 is found, failures independent."""
    rng = np.random.default_rng([a, b])
    found = []
    for _ in range(size):
        times_a, times_b = alone(rng, a), alone(rng, b)
        rate_a, rate_b = (FailureRate(times.size, NODES * DAYS) for times in (times_a, times_b))
        done = compare_spread(rate_a, rate_b, spreads(rng, times_a), spreads(rng, times_b))
        found.append(done.low > 1.0)
    return (f"alone, {a} against {b}: power", "", "", "", f"{np.mean(found):.3f}")
