"""Nodes that slow their runs down, from step times of the runs alone.

Where no rank records its waits, a step takes as long as its slowest rank, and only a change of
nodes says which one that is. A run that was interrupted goes on as another segment, on other nodes:
its step time with a node against that without it, over all runs that the node was in, is the node's
effect; the other segments of the same run are its controls. The slowest node is taken first, its
effect is taken off its segments, and the rest is judged again, because whoever ran with it looks
slow too. Nodes that were always together cannot be distinguished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ettr.lemons.claims import claimed
from ettr.lemons.model import Floats, Ints
from ettr.lemons.slow import posterior_of_slow

Flags = NDArray[np.bool_]

MIN_COMPARED = 8
"""Nodes (or sets of nodes that were always together) that have to be compared at least."""
MIN_SPARE = 6
"""Segments beyond one a run that there have to be at least: they show how much step times vary."""
_MOST_CHOSEN, _CHOSEN_AT, _SWEEPS = 20, 3.0, 2
_SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True, slots=True)
class RunSegments:
    """Segments of runs, each on one set of nodes.

    Attributes:
        run: Place of the run (of segments that are comparable), shape (segments,).
        log_step: Log of the median step time in seconds, same shape.
        nodes: Places of the nodes of each segment.
        gpu_hours: Of each segment.
    """

    run: Ints
    log_step: Floats
    nodes: Sequence[Ints]
    gpu_hours: Floats


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """A node, or nodes that were always together.

    Attributes:
        nodes: Places.
        posterior: Probability that it (or one of them) is slow.
        claimed: Whether it belongs to the claimed set.
        slowdown: How much longer steps take with it, as a share.
        low: Lower end of the interval.
        high: Upper end.
        runs: Runs that it was in for some segments and not for others.
        lost_gpu_hours: Of its segments, by that slowdown.
    """

    nodes: tuple[int, ...]
    posterior: float
    claimed: bool
    slowdown: float
    low: float
    high: float
    runs: int
    lost_gpu_hours: float


@dataclass(frozen=True, slots=True)
class _Effects:
    """Log step times with each group against those without it, and in how many runs that shows.

    `noise` is the standard deviation of a segment; `chosen` are the groups whose effects were taken
    off before the others were judged.
    """

    effect: Floats
    error: Floats
    runs: Ints
    noise: float
    chosen: tuple[int, ...] = ()


def slow_by_runs(
    given: RunSegments, false_discovery: float, confidence: float
) -> tuple[SlowGroup, ...] | str:
    """Which nodes make their runs slow, most probable first; or why that cannot be said.

    Args:
        given: segments with enough steps each.
        false_discovery: largest expected share of ordinary nodes among the claimed.
        confidence: of the intervals.
    """
    groups, inside = _groups(given)
    if not groups:
        return "no run changed its nodes: cannot tell which of them is slow"
    if len(groups) < MIN_COMPARED:
        return f"{len(groups)} nodes changed within a run: too few to say what is ordinary"
    spare = len(given.run) - len(np.unique(given.run))
    if spare < MIN_SPARE:
        return f"{spare} changes of nodes: too few to say how much step times vary by themselves"
    found = _without_chosen(given, inside, spare)
    ordinary = np.setdiff1d(np.arange(len(groups)), found.chosen)
    middle = float(np.median(found.effect[ordinary]))
    deviation = stats.median_abs_deviation(found.effect[ordinary], scale="normal")
    # what the noise of the segments explains is no difference of nodes
    own_spread = max(float(deviation) ** 2 - float(np.median(found.error)) ** 2, 0.0) ** 0.5
    effect, error = found.effect - middle, found.error
    posterior, _ = posterior_of_slow(effect, error, max(own_spread, _SMALLEST_SPREAD))
    is_claimed = claimed(posterior, false_discovery)
    half = float(stats.t.ppf(1 - (1 - confidence) / 2, spare)) * np.hypot(error, own_spread)
    lost = (given.gpu_hours[:, None] * inside).sum(axis=0) * -np.expm1(-np.maximum(effect, 0.0))
    made = [
        SlowGroup(
            group,
            float(posterior[at]),
            bool(is_claimed[at]),
            float(np.expm1(effect[at])),
            float(np.expm1(effect[at] - half[at])),
            float(np.expm1(effect[at] + half[at])),
            int(found.runs[at]),
            float(lost[at]),
        )
        for at, group in enumerate(groups)
    ]
    return tuple(sorted(made, key=lambda one: (-one.claimed, -one.posterior, -one.slowdown)))


def _groups(given: RunSegments) -> tuple[list[tuple[int, ...]], Flags]:
    """Nodes that changed within some run, those of the same segments as one, and their segments."""
    segments_of: defaultdict[int, set[int]] = defaultdict(set)
    for at, nodes in enumerate(given.nodes):
        for node in nodes.tolist():
            segments_of[node].add(at)
    in_run = np.bincount(given.run)
    together: defaultdict[frozenset[int], list[int]] = defaultdict(list)
    for node, segments in sorted(segments_of.items()):
        own = np.bincount(given.run[sorted(segments)], minlength=len(in_run))
        changed = frozenset(at for at in segments if own[given.run[at]] < in_run[given.run[at]])
        if changed:
            together[changed].append(node)
    inside = np.zeros((len(given.run), len(together)), dtype=np.bool_)
    for place, changed in enumerate(together):
        inside[sorted(changed), place] = True
    return [tuple(nodes) for nodes in together.values()], inside


def _without_chosen(given: RunSegments, inside: Flags, spare: int) -> _Effects:
    """The effect of each group with those of the slow ones among the others taken off."""
    chosen: list[int] = []
    own = np.zeros(inside.shape[1])
    for _ in range(_MOST_CHOSEN):
        now = _effects(given.run, given.log_step - _slowest(inside, own), inside, spare)
        sure = now.effect / now.error
        sure[chosen] = -np.inf
        best = int(np.argmax(sure))
        if sure[best] < _CHOSEN_AT:
            break
        chosen.append(best)
        for at in chosen * _SWEEPS:
            own[at] = 0.0
            own[at] = max(float(_alone(given, inside, own, at, spare).effect[at]), 0.0)
    now = _effects(given.run, given.log_step - _slowest(inside, own), inside, spare)
    effect, error = now.effect.copy(), now.error.copy()
    for at in chosen:
        others = own.copy()
        others[at] = 0.0
        alone = _alone(given, inside, others, at, spare)
        # its own effect is no noise
        effect[at], error[at] = alone.effect[at], alone.error[at] * now.noise / alone.noise
    return replace(now, effect=effect, error=error, chosen=tuple(chosen))


def _alone(given: RunSegments, inside: Flags, others: Floats, at: int, spare: int) -> _Effects:
    """Effects where those of the other slow groups are taken off.

    A segment with another slow group shows little of this one, and is left out where some are left.
    """
    slowest = _slowest(inside, others)
    kept = ~(inside[:, at] & (slowest > 0))
    if not (inside[:, at] & kept).any():
        kept[:] = True
    return _effects(given.run[kept], (given.log_step - slowest)[kept], inside[kept], spare)


def _slowest(inside: Flags, own: Floats) -> Floats:
    """What slow nodes add to each segment: a step waits for the slowest, not for their sum."""
    return np.asarray((inside * own).max(axis=1), dtype=np.float64)


def _effects(run: Ints, log_step: Floats, inside: Flags, spare: int) -> _Effects:
    """Effects by runs, weighted by how much each run says; errors from what is left in the runs."""
    runs = int(run.max()) + 1
    size = np.maximum(np.bincount(run, minlength=runs), 1)
    centred = log_step - (np.bincount(run, log_step, runs) / size)[run]
    with_it, total = np.zeros((runs, inside.shape[1])), np.zeros((runs, inside.shape[1]))
    np.add.at(with_it, run, inside.astype(np.float64))
    np.add.at(total, run, inside * centred[:, None])
    without = size[:, None] - with_it
    shows = (with_it > 0) & (without > 0)
    # of centred values the mean without is minus the sum with, over how many are without
    contrast = np.divide(total, with_it, out=np.zeros_like(total), where=shows)
    contrast += np.divide(total, without, out=np.zeros_like(total), where=shows)
    weight = np.divide(with_it * without, size[:, None], out=np.zeros_like(total), where=shows)
    all_weight = np.maximum(weight.sum(axis=0), 1e-12)
    noise = _noise(centred[size[run] > 1], spare)
    return _Effects(
        np.asarray((weight * contrast).sum(axis=0) / all_weight),
        np.asarray(noise / np.sqrt(all_weight)),
        np.asarray(shows.sum(axis=0), dtype=np.int64),
        noise,
    )


def _noise(centred: Floats, spare: int) -> float:
    """Standard deviation of a segment; one far off for its own reasons counts as 4 of them."""
    most = 4 * stats.median_abs_deviation(centred, scale="normal")
    squares = np.minimum(centred**2, max(float(most), _SMALLEST_SPREAD) ** 2)
    return max(float(np.sqrt(squares.sum() / spare)), _SMALLEST_SPREAD)
