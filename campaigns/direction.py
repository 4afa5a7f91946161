"""Is it getting better? Verdicts on fleets of constant rate, and where a change was planted.

500 nodes, 90 days. Bursts are Poisson in time, geometric in size with mean 4, spread over a day.
`better`, `worse`: share of fleets with that verdict, p < .01; at a constant rate either is wrong.
The change of the other rows lies in the middle, of the rate or of the rate of bursts.
"""

from __future__ import annotations

import numpy as np

from campaigns import Table
from campaigns.clustering import DAYS, EDGES, NODES, Times, alone, bursts
from ettr.models.compare import Direction, rate_direction
from ettr.models.dispersion import FailureTimeline

TITLE = "Is it getting better?"
SIZE = 400
KINDS = {"alone": alone, "bursts": bursts}


def changed(rng: np.random.Generator, kind: str, expected: float, ratio: float) -> Times:
    """Failure times whose rate is `ratio` times as high in the second half, in days."""
    first = KINDS[kind](rng, 2.0 * expected / (1.0 + ratio))
    second = KINDS[kind](rng, 2.0 * expected * ratio / (1.0 + ratio))
    return np.concatenate([first[first < DAYS / 2], second[second >= DAYS / 2]])


def run(size: int) -> Table:
    """Verdicts over `size` fleets each."""
    rows = []
    for kind in KINDS:
        for expected in (10, 30, 100, 300):
            for ratio in (1.0, 0.5, 2.0):
                rng = np.random.default_rng([expected, kind == "alone", int(10 * ratio)])
                verdicts = [
                    rate_direction(
                        FailureTimeline(changed(rng, kind, expected, ratio), EDGES, EDGES * NODES)
                    ).verdict
                    for _ in range(size)
                ]
                better, worse = (
                    verdicts.count(one) / size for one in (Direction.BETTER, Direction.WORSE)
                )
                change = "constant" if ratio == 1.0 else f"times {ratio:g}"
                rows.append((f"{kind}, {change}", str(expected), f"{better:.3f}", f"{worse:.3f}"))
    return Table(
        ("fleet", "failures expected", "better", "worse"),
        tuple(rows),
        "[expected, 0 bursts or 1 alone, 10 x ratio]",
        "constant rate, bursty or not: better or worse in at most .02",
    )
