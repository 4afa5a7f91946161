"""Nodes that slow their runs down, from step times of the runs alone.

Where no rank records its waits, a step takes as long as its slowest rank, and only a change of
nodes says which one that is. A run that was interrupted goes on as another segment, on other
nodes: the other segments of the same run are its controls. Nodes that were always together cannot
be distinguished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ettr.lemons.model import Floats, Ints
from ettr.lemons.slowest import Effects, GroupedSegments, effects, quantiles

MIN_COMPARED = 8
"""Nodes (or sets of nodes that were always together) that have to be compared at least."""
MIN_SPARE = 6
"""Segments beyond one a run that there have to be at least: they show how much step times vary."""


@dataclass(frozen=True, slots=True)
class RunSegments:
    """Segments of runs, each on one set of nodes.

    Attributes:
        run: Place of the run (of segments that are comparable), shape (segments,).
        log_step: Log of the median step time in seconds, same shape.
    """

    run: Ints
    log_step: Floats
    nodes: Sequence[Ints]
    gpu_hours: Floats


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """A node, or nodes that were always together.

    Attributes:
        runs: Runs that it was in for some segments and not for others.
        lost_gpu_hours: Of its segments whose GPU-hours are known, by that slowdown; None where
            those of none are.
    """

    nodes: tuple[int, ...]
    posterior: float
    claimed: bool
    slowdown: float
    low: float
    high: float
    runs: int
    lost_gpu_hours: float | None
    segments_without_gpus: int


@dataclass(frozen=True, slots=True)
class NodesByRuns:
    """What the segments say of their nodes.

    Attributes:
        least_slowdown: A single node has to be slower by this share than one in the middle to be
            claimed, however often it ran: less may be an ordinary one of this fleet. None where no
            slowdown is enough.
    """

    groups: tuple[SlowGroup, ...]
    spread: float
    least_slowdown: float | None


def slow_by_runs(
    given: RunSegments, false_discovery: float, confidence: float
) -> NodesByRuns | str:
    """Which nodes make their runs slow, most probable first; or why that cannot be said.

    Args:
        false_discovery: largest probability of being ordinary of each that is claimed, and thereby
            largest expected share of ordinary ones among them.
    """
    steps, groups, kept = _steps(given)
    runs = _runs_changed(steps)
    candidates = np.flatnonzero(runs)
    if not len(candidates):
        return "no run changed its nodes: cannot tell which of them is slow"
    if len(candidates) < MIN_COMPARED:
        return f"{len(candidates)} nodes changed within a run: too few to say what is ordinary"
    spare = len(given.run) - len(np.unique(given.run))
    if spare < MIN_SPARE:
        return f"{spare} changes of nodes: too few to say how much step times vary by themselves"
    found = effects(steps, 1 - false_discovery)
    made = []
    for at in candidates.tolist():
        effect, low, high = _interval(found, at, confidence)
        gpu_hours = given.gpu_hours[kept[steps.segment[steps.group == at]]]
        known = gpu_hours[~np.isnan(gpu_hours)]
        made.append(
            SlowGroup(
                groups[at],
                float(found.slow[at]),
                # each by itself: those that are sure do not pay for a doubtful one
                bool(found.slow[at] >= 1 - false_discovery),
                float(np.expm1(effect)),
                float(np.expm1(low)),
                float(np.expm1(high)),
                int(runs[at]),
                float(known.sum() * -np.expm1(-max(effect, 0.0))) if len(known) else None,
                len(gpu_hours) - len(known),
            )
        )
    made.sort(key=lambda one: (-one.claimed, -one.posterior, -one.slowdown))
    least = None if found.claimable is None else float(np.expm1(found.claimable))
    return NodesByRuns(tuple(made), found.spread, least)


def _interval(found: Effects, group: int, confidence: float) -> tuple[float, float, float]:
    """Effect of a group with its interval."""
    end = (1 - confidence) / 2
    low, effect, high = quantiles(found, group, (end, 0.5, 1 - end)).tolist()
    middle = -float(ndtri(end)) * found.spread
    return effect, effect - np.hypot(effect - low, middle), effect + np.hypot(high - effect, middle)


def _steps(given: RunSegments) -> tuple[GroupedSegments, list[tuple[int, ...]], Ints]:
    """The runs of several segments, nodes that were always together as one, places of segments."""
    several = np.flatnonzero(np.bincount(given.run)[given.run] > 1)
    kept = several[np.argsort(given.run[several], kind="stable")]
    segments_of: defaultdict[int, list[int]] = defaultdict(list)
    for at, place in enumerate(kept.tolist()):
        for node in given.nodes[place].tolist():
            segments_of[node].append(at)
    together: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for node, segments in sorted(segments_of.items()):
        together[tuple(segments)].append(node)
    groups = [tuple(nodes) for nodes in together.values()]
    pairs = [(at, group) for group, segments in enumerate(together) for at in segments]
    segment, group = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    run = np.unique(given.run[kept], return_inverse=True)[1]
    size = np.array([len(nodes) for nodes in groups], dtype=np.int64)
    return GroupedSegments(run, given.log_step[kept], segment, group, size), groups, kept


def _runs_changed(steps: GroupedSegments) -> Ints:
    """Runs that each group was in for some segments and not for others, shape (groups,)."""
    own = np.zeros((int(steps.run.max(initial=-1)) + 1, len(steps.size)), dtype=np.int64)
    np.add.at(own, (steps.run[steps.segment], steps.group), 1)
    of_run = np.bincount(steps.run, minlength=len(own))
    return np.asarray(((own > 0) & (own < of_run[:, None])).sum(axis=0), dtype=np.int64)
