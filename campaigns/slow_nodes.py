"""Slow nodes found in an hour of steps, and ordinary nodes accused, on simulated runs of 64 nodes.

An hour of steps of 10 s. The work of a rank is the step's own (lognormal over steps, with a long
evaluation now and then) times its node's times noise that lasts over steps (autoregressive, .8 from
step to step, deviation .02, of Student's law with 3 degrees), and one step in a hundred of a rank
takes half as long again. Ordinary nodes differ by a gamma law of deviation .005 (alike), or by
Student's law with 5 degrees and scale .01 (unequal): there some are 3 % slower than the median by
nature, and to claim one of them counts as false. `slow`: how many nodes are slower, and by how
much. Claims are at a stated false-discovery share of .10.
"""

from __future__ import annotations

import numpy as np

from campaigns import Table
from ettr.lemons.slow_runs import slow_nodes

TITLE = "Slow nodes"
SIZE = 100
NODES, STEPS = 64, 360
ALIKE, UNEQUAL = "alike", "unequal"
CASES = tuple(
    (nodes, *case)
    for nodes in (ALIKE, UNEQUAL)
    for case in ((0, 0.0), (1, 0.05), (1, 0.1), (1, 0.2), (4, 0.05), (4, 0.1), (4, 0.2))
)


def draw(
    nodes: str, slow: int, by: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Work in seconds, shape (steps, nodes), and which nodes are slow."""
    common = 8 * rng.lognormal(0, 0.15, STEPS) * np.where(rng.random(STEPS) < 0.02, 3.0, 1.0)
    noise = np.zeros((STEPS, NODES))
    shocks = rng.standard_t(3, (STEPS, NODES)) * 0.02 * 0.6 / 3**0.5
    for step in range(1, STEPS):
        noise[step] = 0.8 * noise[step - 1] + shocks[step]
    if nodes == ALIKE:
        node = rng.gamma(0.005**-2, 0.005**2, NODES)
    else:
        node = 1 + 0.01 * rng.standard_t(5, NODES)
    is_slow = np.zeros(NODES, dtype=bool)
    is_slow[rng.choice(NODES, slow, replace=False)] = True
    hiccups = np.where(rng.random((STEPS, NODES)) < 0.01, 1.5, 1.0)
    work = common[:, None] * node * np.where(is_slow, 1 + by, 1.0) * np.exp(noise) * hiccups
    return work, is_slow


def run(size: int) -> Table:
    """`size` runs of each case."""
    rows = []
    for number, (nodes, slow, by) in enumerate(CASES):
        hits = []
        for seed in range(size):
            work, is_slow = draw(nodes, slow, by, np.random.default_rng([number, seed]))
            found = slow_nodes(work, np.arange(NODES), 0.1, 0.9)
            hits.append((found.claimed, is_slow))
        chosen = sum(int(one.sum()) for one, _ in hits)
        wrong = sum(int((one & ~true).sum()) for one, true in hits)
        right = sum(int((one & true).sum()) for one, true in hits)
        rows.append(
            (
                nodes,
                f"{slow} by {by:.0%}" if slow else "no slow node",
                f"{right / (slow * size):.2f}" if slow else "–",
                f"{wrong / chosen:.3f}" if chosen else "–",
                f"{np.mean([one.any() for one, _ in hits]):.2f}",
            )
        )
    return Table(
        ("ordinary nodes", "slow", "recall", "false discovery", "runs with a claim"),
        tuple(rows),
        "[row, run]",
        "found at 5, 10 and 20 % at false discovery .10; no claim without a slow node",
    )
