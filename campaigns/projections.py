"""Projections of fleets whose failures come alone, in bursts, or from nodes that differ.

256 nodes seen for 60 days, projected to 2,048 nodes and a run of 30 days. Bursts are Poisson in
time, geometric in size with mean 4, spread over a day, on nodes drawn at random; rates of nodes
that differ are gamma with the squared coefficient of variation of the row. `MTTF`: share of 90 %
bands that hold the true MTTF of the larger fleet. `run`: share that holds the failures of a run
drawn at the same rate, in bursts of the same kind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from campaigns import Table
from ettr.analysis.clustering import of_fleet
from ettr.analysis.fleet_evidence import FleetEvidence
from ettr.analysis.projecting import project_fleet
from ettr.models.data import Counts
from ettr.models.dispersion import FailureTimeline
from ettr.plan.run import RunShape
from ettr.units import HOURS_PER_DAY

TITLE = "Projections when failures come in bursts or from few nodes"
SIZE = 2000
SEEN_NODES, SEEN_DAYS, RUN_NODES, RUN_DAYS = 256, 60.0, 2048, 30.0
EDGES = np.linspace(0.0, SEEN_DAYS, 121)
Failures = tuple[NDArray[np.float64], NDArray[np.int64]]


def drawn(
    rng: np.random.Generator, rates: NDArray[np.float64], days: float, burst: float
) -> Failures:
    """Times in days and nodes of a fleet's failures, at these rates per node-day."""
    parents = rng.uniform(0.0, days, rng.poisson(rates.sum() * days / burst))
    times = np.repeat(parents, rng.geometric(1.0 / burst, parents.size))
    times = times + (rng.uniform(0.0, 1.0, times.size) if burst > 1.0 else 0.0)
    times = times[times < days]
    return times, rng.choice(rates.size, times.size, p=rates / rates.sum())


def fleet(
    rng: np.random.Generator, n_nodes: int, mean: float, spread: float
) -> NDArray[np.float64]:
    """Rates of nodes with that mean and squared coefficient of variation."""
    if not spread:
        return np.full(n_nodes, mean)
    return mean * np.maximum(rng.gamma(1.0 / spread, spread, n_nodes), 1e-12)


def evidence_of(seen: Failures) -> FleetEvidence:
    """What a store with these failures shows."""
    times, nodes = seen
    counts = Counts(np.bincount(nodes, minlength=SEEN_NODES), np.full(SEEN_NODES, SEEN_DAYS))
    spread = of_fleet(FailureTimeline(times, EDGES, EDGES * SEEN_NODES), counts)
    return FleetEvidence(
        *("fleet", counts, {}, "all jobs", SEEN_NODES, 1, 8.0, SEEN_DAYS), spread=spread
    )


def held(
    rng: np.random.Generator, expected: float, burst: float, spread: float
) -> tuple[bool, bool]:
    """Whether the bands hold the MTTF of the larger fleet, and the failures of its run."""
    mean = expected / (SEEN_NODES * SEEN_DAYS)
    seen = drawn(rng, fleet(rng, SEEN_NODES, mean, spread), SEEN_DAYS, burst)
    (point,) = project_fleet(
        evidence_of(seen), [RUN_NODES], RunShape(1), run_days=RUN_DAYS, confidence=0.9
    ).points
    made = point.projection
    came = drawn(rng, fleet(rng, RUN_NODES, mean, spread), RUN_DAYS, burst)[0].size
    in_run = made.failures_in_run
    truth_h = HOURS_PER_DAY / (RUN_NODES * mean)
    return made.mttf_h.contains(truth_h), in_run is not None and in_run.contains(came)


def run(size: int) -> Table:
    """Share of bands that hold, `size` fleets a row."""
    rows = []
    for kind, burst, spread in (
        ("alone, equal nodes", 1.0, 0.0),
        ("bursts of 4", 4.0, 0.0),
        ("nodes differ (4)", 1.0, 4.0),
        ("nodes differ (4), bursts of 4", 4.0, 4.0),
    ):
        for expected in (30, 100):
            rng = np.random.default_rng([expected, int(burst), int(spread)])
            both = [held(rng, expected, burst, spread) for _ in range(size)]
            mttf, in_run = np.mean(both, axis=0)
            rows.append((kind, str(expected), f"{mttf:.3f}", f"{in_run:.3f}"))
    return Table(
        ("fleet", "failures expected", "MTTF", "run"),
        tuple(rows),
        "[expected, mean burst, spread]",
        "bursts of 4 with 30 and 100 failures: at least .88",
    )
