"""Nodes that slow a job down without failing it, from the work of each rank in each step.

Only its work, the step less its wait, says whose fault it is. A rank's work over the median of all
ranks in the same step removes what all have in common (long sequences, evaluation). Steps are not
independent, so that the error of a node's mean comes from blocks of steps. How much ordinary nodes
differ, and how heavy the tails of that are, is averaged over a grid, each setting weighted by its
likelihood: some nodes of an unequal fleet are far off by nature, and are no find.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ettr.estimates.special import gammaln, ndtri, stdtrit
from ettr.lemons.claims import claimed
from ettr.lemons.model import Floats, Ints
from ettr.units import SECONDS_PER_HOUR

MIN_SLOW = 0.03
"""What slow is: so much more work time than the median node, as a share."""
MAX_SLOW = 1.0
SLOW_SHARES = np.array([0.005, 0.02, 0.06, 0.15])
"""Shares of slow nodes that are averaged over."""
SLOW_NODES_EXIST = 0.8
"""Probability before the data that any node of a run is slow."""
TAILS = np.array([3.0, 5.0, 8.0, 15.0, 50.0])
"""Degrees of freedom of Student's law of ordinary nodes."""
TAIL_PRIOR = np.array([0.02, 0.08, 0.2, 0.3, 0.4])
"""Their weights before the data: light tails are thought likelier, else every find is a tail."""
SPREADS = np.geomspace(0.3, 2.0, 12)
"""Its scale, over that of the middle half of the nodes."""
BLOCKS = 12
MIN_BLOCK = 5
"""Steps of a block at least."""
_GRID = np.log1p(np.geomspace(MIN_SLOW, MAX_SLOW, 60))
_SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class SlowNodes:
    """What the steps of one run say of its nodes (or ranks, where no record names nodes).

    Attributes:
        slowdown: Its work over that of the median node, less 1.
        lost_gpu_hours: GPU-hours that all ranks waited for it, over what they wait without it.
    """

    posterior: Floats
    claimed: NDArray[np.bool_]
    slowdown: Floats
    low: Floats
    high: Floats
    lost_gpu_hours: Floats
    spread: float


def enough_steps(steps: int) -> bool:
    """Whether there are steps enough for errors of blocks."""
    return steps >= BLOCKS * MIN_BLOCK


def slow_nodes(
    work_s: Floats, node_of_rank: Ints, false_discovery: float, confidence: float
) -> SlowNodes:
    """Which nodes of a run are slow.

    Args:
        work_s: time that each rank worked in each step, without its waits, shape (steps, ranks);
            over 0. At least `BLOCKS` times `MIN_BLOCK` steps.

    Raises:
        ValueError: steps are too few, or a time is not over 0.
    """
    if not enough_steps(len(work_s)) or not np.all(work_s > 0):
        raise ValueError(f"{len(work_s)} steps: give {BLOCKS * MIN_BLOCK} or more, all over 0 s")
    log_work, nodes = np.log(work_s), int(node_of_rank.max()) + 1
    ordinary = np.ones(nodes, dtype=np.bool_)
    for _ in range(2):
        effect, error = _effects(log_work, node_of_rank, ordinary)
        deviation = normal_deviation(effect[ordinary])
        posterior, spread = posterior_of_slow(effect, error, max(deviation, _SMALLEST_SPREAD))
        # slow nodes shift the median that they are compared with
        if 2 * (posterior < 0.5).sum() <= nodes:
            break
        ordinary = posterior < 0.5
    half = stdtrit(BLOCKS - 1, 1 - (1 - confidence) / 2) * error
    return SlowNodes(
        posterior,
        claimed(posterior, false_discovery),
        np.expm1(effect),
        np.expm1(effect - half),
        np.expm1(effect + half),
        _lost_gpu_hours(work_s, node_of_rank, nodes),
        spread,
    )


def _effects(
    log_work: Floats, node_of_rank: Ints, ordinary: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Each node's log of work over that of the median ordinary rank, and its standard error."""
    nodes = len(ordinary)
    ranks = np.bincount(node_of_rank, minlength=nodes)
    middle = np.median(log_work[:, ordinary[node_of_rank]], axis=1, keepdims=True)
    blocks = [np.median(one, axis=0) for one in np.array_split(log_work - middle, BLOCKS)]
    by_node = np.stack([np.bincount(node_of_rank, one, nodes) / ranks for one in blocks])
    by_node -= np.median(by_node[:, ordinary], axis=1, keepdims=True)
    error = np.asarray(by_node.std(axis=0, ddof=1) / BLOCKS**0.5, dtype=np.float64)
    return np.asarray(by_node.mean(axis=0), dtype=np.float64), error


def posterior_of_slow(effect: Floats, error: Floats, deviation: float) -> tuple[Floats, float]:
    """Probability that each node is slow, and the standard deviation of ordinary nodes.

    Ordinary nodes lie about the median by Student's law, slow ones of any size from `MIN_SLOW` on
    beyond it, with a spread of their own.

    Args:
        deviation: of the middle half of the nodes, as that of a normal law.
    """
    scale = np.hypot(error[:, None], deviation * SPREADS)[:, None, :]
    tail = TAILS[None, :, None]
    centred = effect[:, None, None] / scale
    plain = _log_t(centred, tail) - np.log(scale)
    away = (effect[:, None] - _GRID)[:, None, None, :] / scale[..., None]
    slow = np.log(np.mean(np.exp(_log_t(away, tail[..., None])), axis=-1)) - np.log(scale)
    # below the median nothing is slow, however well it is known
    slow = np.where(effect[:, None, None] > 0, slow, -np.inf)
    shares = SLOW_SHARES[:, None, None, None]
    both = np.logaddexp(np.log(shares) + slow, np.log1p(-shares) + plain)
    before = np.log(TAIL_PRIOR)[:, None]
    without = plain.sum(axis=0) + before
    with_some = both.sum(axis=1) + before
    top = max(float(without.max()), float(with_some.max()))
    weight = np.exp(with_some - top) * SLOW_NODES_EXIST / len(SLOW_SHARES)
    none = np.exp(without - top) * (1 - SLOW_NODES_EXIST)
    total = float(weight.sum() + none.sum())
    posterior = np.einsum("sntp,stp->n", np.exp(np.log(shares) + slow - both), weight) / total
    # half of the middle two thirds: tails may be too heavy for a standard deviation to say much
    width = np.outer(stdtrit(TAILS, 0.841), deviation * SPREADS)
    spread = float(((weight.sum(axis=0) + none) * width).sum() / total)
    return np.asarray(posterior, dtype=np.float64), spread


def normal_deviation(values: Floats) -> float:
    """The standard deviation of a normal law with the median absolute deviation of the values."""
    return float(np.median(np.abs(values - np.median(values))) / ndtri(0.75))


def _log_t(x: Floats, tail: Floats) -> Floats:
    """Log density of Student's t with `tail` degrees of freedom."""
    at_zero = gammaln((tail + 1) / 2) - gammaln(tail / 2) - np.log(tail * np.pi) / 2
    return np.asarray(at_zero - (tail + 1) / 2 * np.log1p(x**2 / tail), dtype=np.float64)


def _lost_gpu_hours(work_s: Floats, node_of_rank: Ints, nodes: int) -> Floats:
    """How long all ranks waited for each node over the slowest of the others."""
    if nodes < 2:
        return np.zeros(nodes)
    order = np.argsort(node_of_rank, kind="stable")
    starts = np.searchsorted(node_of_rank[order], np.arange(nodes))
    slowest = np.maximum.reduceat(work_s[:, order], starts, axis=1)
    two = np.partition(slowest, nodes - 2, axis=1)[:, -2:]
    lost_s = np.zeros(nodes)
    np.add.at(lost_s, slowest.argmax(axis=1), two[:, 1] - two[:, 0])
    return np.asarray(lost_s * work_s.shape[1] / SECONDS_PER_HOUR, dtype=np.float64)
