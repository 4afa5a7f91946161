"""Nodes that slow their runs down, from step times of the runs alone.

Where no rank records its waits, a step takes as long as its slowest rank, and only a change of
nodes says which one that is. A run that was interrupted goes on as another segment, on other
nodes: the other segments of the same run are its controls. Nodes that were always together cannot
be distinguished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ettr.estimates.special import gammaln, ndtri, stdtr, stdtrit
from ettr.lemons.candidates import claimed
from ettr.lemons.model import Floats, Ints
from ettr.units import SECONDS_PER_HOUR

# -- nodes that slow a job down without failing it, from the work of each rank in each step --------
# Only its work, the step less its wait, says whose fault it is. A rank's work over the median of
# all ranks in the same step removes what all have in common (long sequences, evaluation). Steps are
# not independent, so that the error of a node's mean comes from blocks of steps. How much ordinary
# nodes differ, and how heavy the tails of that are, is averaged over a grid, each setting weighted
# by its likelihood: some nodes of an unequal fleet are far off by nature, and are no find.


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


# -- nodes that slow their runs down, from step times of the runs alone ----------------------------


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


# -- How slow each node is, from segments of runs that show only their slowest node ---------------
#
# A step waits for its slowest node: the log of a segment's step time is that of its run, plus
# the effect of the slowest of its nodes, plus noise (Student's law, because storage and network
# make single segments slow). Effects of ordinary nodes lie about 0 by Student's law of unknown
# scale and tail, which the maxima show little of and which are averaged; slow nodes are further
# out by `MIN_SLOW` or more. All effects, the runs' own step times and the law are judged
# together by the sum-product algorithm on grids (Kschischang, Frey and Loeliger, IEEE Trans.
# Inf. Theory 47, 2001). Nodes that meet again make loops, on which it is an approximation: a
# slow node that is in most segments of its run is rather missed, and intervals are too narrow.

SCALES = np.geomspace(0.004, 0.04, 8)
"""Scales of Student's law of ordinary nodes' effects."""
USUAL_SCALE, SCALE_SPREAD = 0.008, 0.5
"""Median of the scale before the data, and the standard deviation of its log."""
SHARES_OR_NONE = np.array([0.0, 0.005, 0.02, 0.06, 0.15])
"""Shares of slow nodes, equally probable before the data; the first is that of no slow node."""
NOISE_TAIL = 4.0
"""Degrees of freedom of the noise of segments."""
SMALLEST_NOISE = 1e-3
_FIRST_SWEEPS, _MOST_SWEEPS, _NOISE_AT = 10, 40, (2, 4, 6, 9)
_DAMPING, _SETTLED = 0.3, 2e-3
_LEAST = 1e-300
_PART_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class GroupedSegments:
    """Segments, sorted by run, and which groups of nodes they hold."""

    run: Ints
    log_step: Floats
    segment: Ints
    group: Ints
    size: Ints


@dataclass(frozen=True, slots=True)
class Effects:
    """What the segments say of each group: its slowest node's effect.

    Attributes:
        effect: Log of the step time with it over that with nodes in the middle, shape (cells,).
        spread: Standard deviation of ordinary nodes' effects (half of their middle two thirds).
        claimable: Least effect at which one node, known exactly, is slow as probably as asked;
            None where no effect on the grid is.
    """

    slow: Floats
    effect: Floats
    belief: Floats
    spread: float
    claimable: float | None
    noise: float


@dataclass(frozen=True, slots=True)
class _EffectGrid:
    """Cells of effects and of what a run's step is apart from the middle of its segments."""

    effect: Floats
    base: Floats


@dataclass(frozen=True, slots=True)
class _Laws:
    """Laws of the effect of a group: a row for each scale, tail and share of slow nodes."""

    before: Floats
    cells: dict[int, Floats]
    ordinary: dict[int, Floats]
    width: Floats
    share: Floats


@dataclass(frozen=True, slots=True)
class _Passed:
    """What has been passed so far."""

    message: Floats
    weight: Floats
    all_weight: Floats
    middle: Floats
    noise: float


def effects(steps: GroupedSegments, sure: float) -> Effects:
    """How slow each group of nodes is."""
    runs = int(steps.run[-1]) + 1
    middle = np.array([np.median(steps.log_step[steps.run == run]) for run in range(runs)])
    off = steps.log_step - middle[steps.run]
    noise = max(normal_deviation(off), SMALLEST_NOISE)
    reach = max(float(np.abs(off).max()) + 0.05, float(_GRID[-1]) + 0.05)
    grid = _grid(noise, reach)
    laws = _laws(grid.effect, steps.size)
    # as if no node was slow: among many nodes one could be in every segment, and none would show
    weight = np.tile(np.exp(laws.before) * (laws.share == SHARES_OR_NONE[0]), (len(steps.size), 1))
    message = np.zeros((len(steps.segment), len(grid.effect)))
    state = _Passed(message, weight, weight[0], middle, noise)
    # the noise is known better then, and with it how fine the cells have to be
    state = _passed(steps, grid, laws, state, _FIRST_SWEEPS)
    finer = _grid(state.noise, reach)
    laws = _laws(finer.effect, steps.size)
    state = replace(state, message=_moved(state.message, grid.effect, finer.effect))
    state = _passed(steps, finer, laws, state, _MOST_SWEEPS)
    return _effects_of_runs(steps, finer, laws, state, sure)


def quantiles(found: Effects, group: int, at: Sequence[float]) -> Floats:
    """Effects of a group below which these shares of its probability lie."""
    end = np.concatenate([(found.effect[1:] + found.effect[:-1]) / 2, found.effect[-1:]])
    below = np.cumsum(found.belief[group])
    return np.asarray(np.interp(at, np.append(0.0, below), np.append(found.effect[0], end)))


def _effects_of_runs(
    steps: GroupedSegments, grid: _EffectGrid, laws: _Laws, state: _Passed, sure: float
) -> Effects:
    evidence = np.exp(_evidence(steps, state.message))
    both, ordinary = np.zeros_like(evidence), np.zeros(len(evidence))
    for size, cells in laws.cells.items():
        mine = steps.size == size
        both[mine] = (state.weight[mine] @ cells) * evidence[mine]
        ordinary[mine] = ((state.weight[mine] @ laws.ordinary[size]) * evidence[mine]).sum(axis=1)
    total = both.sum(axis=1)
    plain, any_law = state.all_weight @ laws.ordinary[1], state.all_weight @ laws.cells[1]
    certain = (grid.effect >= _GRID[0]) & (plain <= (1 - sure) * any_law)
    return Effects(
        np.clip(1 - ordinary / total, 0.0, 1.0),
        grid.effect,
        both / total[:, None],
        float(state.all_weight @ laws.width),
        float(grid.effect[certain][0]) if certain.any() else None,
        state.noise,
    )


def _grid(noise: float, reach: float) -> _EffectGrid:
    """Cells of half the noise in the middle, wider in proportion further out."""

    def cells(curve: float, low: float, high: float) -> Floats:
        step = noise / curve / 2
        ends = [int(np.ceil(np.arcsinh(end / curve) / step)) for end in (low, high)]
        return np.asarray(curve * np.sinh(np.arange(-ends[0], ends[1] + 1) * step))

    return _EffectGrid(cells(5 * noise, 6 * noise, reach), cells(10 * noise, reach, 12 * noise))


def _laws(effect: Floats, size: Ints) -> _Laws:
    """All laws on a grid; a cell ends half way to the next, the last ones have no end."""
    end: Floats = np.concatenate([(effect[1:] + effect[:-1]) / 2, [np.inf]])
    scale, tail = SCALES[:, None, None, None], TAILS[:, None, None]
    share = SHARES_OR_NONE[:, None]
    plain = np.asarray(stdtr(tail, end / scale), dtype=np.float64)
    at, below = _slow_below()
    slow = np.array([np.interp(end, at, row) for row in below]).reshape(plain.shape)
    # nothing that takes twice as long is ordinary, however heavy the tail
    last = int(np.searchsorted(effect, _GRID[-1]))
    ordinary = ((1 - share) * plain)[..., np.minimum(np.arange(len(effect)), last - 1)]
    ordinary = ordinary.reshape(-1, len(effect))
    either = ((1 - share) * plain + share * slow).reshape(-1, len(effect))
    known = np.exp(-0.5 * (np.log(SCALES / USUAL_SCALE) / SCALE_SPREAD) ** 2)
    before = known[:, None, None] * TAIL_PRIOR[:, None] * np.ones(len(SHARES_OR_NONE))
    middle = np.outer(SCALES, np.asarray(stdtrit(TAILS, 0.841), dtype=np.float64))
    width = np.broadcast_to(middle[:, :, None], before.shape)

    def cells(below: Floats, nodes: int) -> Floats:
        return np.diff(below**nodes, axis=1, prepend=0.0)

    sizes = sorted({1, *size.tolist()})
    return _Laws(
        np.log(before / before.sum()).reshape(-1),
        {nodes: np.maximum(cells(either, nodes), _LEAST) for nodes in sizes},
        {nodes: cells(ordinary, nodes) for nodes in sizes},
        width.reshape(-1),
        np.broadcast_to(SHARES_OR_NONE, before.shape).reshape(-1),
    )


@cache
def _slow_below() -> tuple[Floats, Floats]:
    """Effects, and how probable lower ones of slow nodes are, shape (scales x tails, effects)."""
    at = np.arange(-0.1, _GRID[-1] + 0.3, SCALES[0] / 2)
    scale, tail = SCALES[:, None, None], TAILS[:, None]
    away = (at - _GRID[:, None, None, None]) / scale
    below = np.asarray(stdtr(tail, away), dtype=np.float64).mean(axis=0)
    return at, below.reshape(-1, len(at))


def _moved(message: Floats, old: Floats, new: Floats) -> Floats:
    """Messages on another grid."""
    at = np.clip(np.searchsorted(old, new) - 1, 0, len(old) - 2)
    part = np.clip((new - old[at]) / (old[at + 1] - old[at]), 0.0, 1.0)
    return np.asarray(message[:, at] * (1 - part) + message[:, at + 1] * part, dtype=np.float64)


def _evidence(steps: GroupedSegments, message: Floats) -> Floats:
    """Log of what all segments say of each group, 0 at the most."""
    evidence = np.zeros((len(steps.size), message.shape[1]))
    np.add.at(evidence, steps.group, message)
    return np.asarray(evidence - evidence.max(axis=1, keepdims=True), dtype=np.float64)


def _passed(
    steps: GroupedSegments, grid: _EffectGrid, laws: _Laws, state: _Passed, sweeps: int
) -> _Passed:
    """Messages passed until beliefs of effects settle, or as often as allowed."""
    message, weight, all_weight = state.message.copy(), state.weight, state.all_weight
    base, noise = np.zeros((len(state.middle), len(grid.base))), state.noise
    evidence, prior = _evidence(steps, message), _prior(steps, laws, weight)
    parts = list(_parts(steps, len(grid.effect)))
    densities = [_density(steps, grid, state, part) for part in parts]
    belief = np.zeros_like(prior)
    for sweep in range(sweeps):
        misfits: list[Floats] = []
        for part, density in zip(parts, densities, strict=True):
            cavity = (np.log(prior) + evidence)[steps.group[part.held]] - message[part.held]
            reported = _from_segments(steps, grid, part, density, cavity)
            message[part.held] += (1 - _DAMPING) * (reported.message - message[part.held])
            base[part.runs] = reported.base
            if sweep in _NOISE_AT:
                misfits.append(_misfit(reported, density, _width(grid, noise)))
        evidence = _evidence(steps, message)
        all_weight, weight = _weights(steps, laws, evidence)
        prior = _prior(steps, laws, weight)
        before, belief = belief, prior * np.exp(evidence)
        belief /= belief.sum(axis=1, keepdims=True)
        if misfits:
            noise = max(noise * float(np.concatenate(misfits).mean()) ** 0.5, SMALLEST_NOISE)
            now = replace(state, noise=noise)
            densities = [_density(steps, grid, now, part) for part in parts]
        elif np.abs(belief - before).sum(axis=1).max() < _SETTLED and sweep > max(_NOISE_AT):
            break
    middle = state.middle + base @ grid.base
    return _Passed(message, weight, all_weight, middle, noise)


@dataclass(frozen=True, slots=True)
class _SomeRuns:
    """Some runs with their segments and memberships, few enough to hold at once."""

    runs: slice
    segments: slice
    held: slice


def _parts(steps: GroupedSegments, cells: int) -> Iterator[_SomeRuns]:
    """Whole runs, as many at a time as have so many cells."""
    ends = np.searchsorted(steps.run, np.arange(steps.run[-1] + 1), side="right")
    held = np.searchsorted(steps.segment, ends)
    first = segment = member = 0
    while first < len(ends):
        last = int(np.searchsorted(held, member + _PART_CELLS // cells, side="right"))
        last = max(last, first + 1)
        runs = slice(first, last)
        yield _SomeRuns(
            runs, slice(segment, int(ends[last - 1])), slice(member, int(held[last - 1]))
        )
        first, segment, member = last, int(ends[last - 1]), int(held[last - 1])


def _density(steps: GroupedSegments, grid: _EffectGrid, state: _Passed, part: _SomeRuns) -> Floats:
    """Density of each segment's step time at each base and effect, its cells averaged over."""
    off = steps.log_step[part.segments] - state.middle[steps.run[part.segments]]
    wide = _width(grid, state.noise)
    middle = (grid.base[:, None] + grid.effect) / wide
    away = (off[:, None, None] / wide - middle).astype(np.float32)
    power = np.float32(-(NOISE_TAIL + 1) / 2)
    return np.asarray((1 + away**2 / np.float32(NOISE_TAIL)) ** power / wide.astype(np.float32))


def _width(grid: _EffectGrid, noise: float) -> Floats:
    """Scale of the noise with the spread within a cell, shape (bases, effects)."""
    cells = np.gradient(grid.effect) ** 2 + np.gradient(grid.base)[:, None] ** 2
    return np.asarray(np.sqrt(noise**2 + cells / 12), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the segments of a part say."""

    message: Floats
    base: Floats
    base_of_others: Floats
    slowest: Floats


def _from_segments(
    steps: GroupedSegments, grid: _EffectGrid, part: _SomeRuns, density: Floats, cavity: Floats
) -> _Reported:
    """Messages of a part, from what is known of each of its groups without the segment itself."""
    segment = steps.segment[part.held] - part.segments.start
    run = steps.run[part.segments] - part.runs.start
    below = np.cumsum(_normalized(cavity), axis=1)
    log_below = np.log(np.maximum(below / below[:, -1:], _LEAST))
    first = np.flatnonzero(np.diff(segment, prepend=-1))
    all_below = np.add.reduceat(log_below, first, axis=0)
    slowest = np.diff(np.exp(all_below), axis=1, prepend=0.0)
    log_base = np.log(np.maximum(_over_effects(density, slowest), _LEAST))
    together = np.zeros((part.runs.stop - part.runs.start, len(grid.base)))
    np.add.at(together, run, log_base)
    even = np.log(np.gradient(grid.base))
    others = _normalized(together[run] - log_base + even)
    shown = (others.astype(np.float32)[:, None] @ density)[:, 0].astype(np.float64)[segment]
    # the slowest of the others is below an effect, or it is the one that shows
    rest = np.exp(all_below[segment] - log_below)
    above = np.diff(rest, axis=1, prepend=0.0) * shown
    likelihood = rest * shown + above.sum(axis=1, keepdims=True) - np.cumsum(above, axis=1)
    log_likelihood = np.log(np.maximum(likelihood, _LEAST))
    message = log_likelihood - log_likelihood.max(axis=1, keepdims=True)
    return _Reported(message, _normalized(together + even), others, slowest)


def _normalized(log_weight: Floats) -> Floats:
    """Rows as probabilities."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), dtype=np.float64)


def _misfit(reported: _Reported, density: Floats, width: Floats) -> Floats:
    """Weighted square of each segment's noise over its scale: 1 on average where the scale fits."""
    power = np.float32(2 / (NOISE_TAIL + 1))
    square = (NOISE_TAIL + 1) * (1 - (density * width.astype(np.float32)) ** power)
    total = _over_effects(density, reported.slowest) * reported.base_of_others
    joint = _over_effects(density * square, reported.slowest) * reported.base_of_others
    return np.asarray(joint.sum(axis=1) / total.sum(axis=1), dtype=np.float64)


def _over_effects(density: Floats, weight: Floats) -> Floats:
    """Sum over effects with their weights, of shape (segments, bases)."""
    found = density @ weight.astype(np.float32)[:, :, None]
    return np.asarray(found[:, :, 0], dtype=np.float64)


def _weights(steps: GroupedSegments, laws: _Laws, evidence: Floats) -> tuple[Floats, Floats]:
    """Weight of each law by all groups, and for each group by the others."""
    likelihood = np.zeros((len(evidence), len(laws.before)))
    for size, cells in laws.cells.items():
        mine = steps.size == size
        likelihood[mine] = np.log(np.exp(evidence[mine]) @ cells.T)
    together = laws.before + likelihood.sum(axis=0)
    return _normalized(together[None])[0], _normalized(together - likelihood)


def _prior(steps: GroupedSegments, laws: _Laws, weight: Floats) -> Floats:
    """Probability of each cell before the group's own segments, shape (groups, cells)."""
    prior = np.zeros((len(weight), next(iter(laws.cells.values())).shape[1]))
    for size, cells in laws.cells.items():
        mine = steps.size == size
        prior[mine] = np.maximum(weight[mine] @ cells, _LEAST)
    return prior
