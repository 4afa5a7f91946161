"""Which nodes are lemons: a gamma bulk with a point mass, averaged over what is not known.

Node i fails at the rate μ θ_i per node-day. θ is gamma with mean 1 and shape a for ordinary nodes
(a infinite: all alike), and k for a share p of lemons. A failure whose culprit is named counts for
that node; one that only names the job's nodes is divided among them by their posterior mean rates
(expectation maximization over the culprit). Further counts (signals) have rates and a ratio on
lemons of their own, found from the nodes' posteriors in turn; they come while a node runs jobs and
while it is idle, at rates that may differ. Shape, ratio and share are not estimated but averaged
over a grid, each setting weighted by its likelihood: with the best setting alone the tail of a
spread-out fleet is called lemons.

What a lemon is follows from the grid: a node of a separate group whose rate is at least
`MIN_RATIO` times the mean of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.estimates.special import gammainc
from ettr.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_RATIO = 5.0
"""The smallest rate of a lemon, as a multiple of the mean of the other nodes."""
SPREAD_SHAPES = np.array([np.inf, 32.0, 16.0, 8.0, 4.0, 2.5, 1.6, 1.0, 0.6])
"""Shapes of the gamma bulk; its standard deviation over its mean is shape ** -0.5."""
SHAPE_PRIOR = np.array([20.0, 9.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
"""Weights of the shapes before the data. Nearly equal nodes are thought likelier: chosen so that
what is stated holds up to a spread of one half."""
RATIOS = np.exp(np.linspace(np.log(MIN_RATIO), np.log(80.0), 13))
SHARES = np.exp(np.linspace(np.log(0.001), np.log(0.05), 10))
LEMONS_EXIST = 0.8
"""Probability before the data that a fleet has such a group at all."""
_THETA = np.unique(
    np.concatenate([np.exp(np.linspace(np.log(0.02), np.log(5.0), 44)), [1.0], RATIOS])
)
_NODES_AT_ONCE = 250
_MOST_KEPT_NODES = 5000
"""Nodes up to which the grid is kept between passes: 20 kB each."""
_SHARED_ROUNDS = 4
_SIGNAL_ROUNDS = 10
_SETTLED = 2e-3
"""Rounds end where no probability changes by more."""
_HALVINGS = 30
_NO_WEIGHT = 1e-18
"""Weight of a shape, ratio and share up to which it is left out of an average."""


@dataclass(frozen=True, slots=True)
class SharedFailure:
    """A failure whose culprit no log names.

    Attributes:
        weight: Part that is put down to the nodes; the rest is the workload's
            (`ettr.lemons.fleet`).
    """

    nodes: Ints
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """What is known of each node of one stratum (same role and hardware).

    Attributes:
        service_node_days: In service, with jobs or without, shape (nodes,): when a signal may
            come. None where it is not known: signals are then compared by exposure.
    """

    exposure_node_days: Floats
    named: Floats
    shared: Sequence[SharedFailure] = ()
    signals: Mapping[str, Floats] | None = None
    service_node_days: Floats | None = None

    @property
    def signal_node_days(self) -> tuple[Floats, ...]:
        """What a signal's rate on a node may be in proportion to, each of shape (nodes,)."""
        if self.service_node_days is None:
            return (self.exposure_node_days,)
        return (self.exposure_node_days, self.service_node_days)

    def of_nodes(self, kept: Ints, shared: Sequence[SharedFailure]) -> NodeCounts:
        """The counts of some nodes, by their places, with the shared failures that are theirs."""
        service = self.service_node_days
        return NodeCounts(
            self.exposure_node_days[kept],
            self.named[kept],
            tuple(shared),
            {name: seen[kept] for name, seen in (self.signals or {}).items()},
            None if service is None else service[kept],
        )


@dataclass(frozen=True, slots=True)
class SignalRatio:
    """How much more often a signal is seen on lemons than on other nodes.

    The base is a rate by days in service, or by exposure where those are not known.
    """

    base_per_node_day: float
    ratio: float


@dataclass(frozen=True, slots=True)
class LemonFit:
    """Posterior probabilities, and the model they come from.

    Attributes:
        spread: Posterior mean of the standard deviation of ordinary nodes' rates over their mean.
        log_evidence: Log of how much likelier the counts are with a separate group than without.
    """

    posterior: Floats
    failures: Floats
    expected: Floats
    bulk_per_node_day: float
    ratio: float
    share: float
    spread: float
    log_evidence: float
    signals: Mapping[str, SignalRatio]
    mean_theta: Floats


@dataclass(frozen=True, slots=True)
class _Average:
    """One pass over the grid."""

    posterior: Floats
    mean_theta: Floats
    bulk_per_node_day: float
    ratio: float
    share: float
    spread: float
    log_evidence: float


def fit_lemons(counts: NodeCounts, exist: float = LEMONS_EXIST) -> LemonFit:
    """Probability that each node is a lemon.

    Args:
        exist: probability before the data that the stratum has lemons at all.

    Raises:
        ValueError: shapes differ, a count is negative, or an exposure is not over 0.
    """
    _check(counts)
    shared = _Pairs(counts)
    signals = {name: np.asarray(one, float) for name, one in (counts.signals or {}).items()}
    grid = _Grid(counts)
    average = _settled(counts, shared, grid, exist)
    ratios: dict[str, SignalRatio] = {}
    for _ in range(_SIGNAL_ROUNDS if signals else 0):
        favours = np.zeros(len(counts.named))
        for name, seen in signals.items():
            ratios[name], gain = _signal(seen, counts.signal_node_days, average.posterior)
            favours += gain
        mean_theta = average.mean_theta
        before, average = average, _average(counts, shared, grid, favours, mean_theta, exist)
        if _is_settled(before, average):
            break
    return LemonFit(
        posterior=average.posterior,
        failures=counts.named + shared.blame(average.mean_theta),
        expected=average.bulk_per_node_day * counts.exposure_node_days,
        bulk_per_node_day=average.bulk_per_node_day,
        ratio=average.ratio,
        share=average.share,
        spread=average.spread,
        log_evidence=average.log_evidence,
        signals=ratios,
        mean_theta=average.mean_theta,
    )


def _check(counts: NodeCounts) -> None:
    columns = (counts.named, *(counts.signals or {}).values(), *counts.signal_node_days)
    if any(len(column) != len(counts.exposure_node_days) for column in columns):
        raise ValueError("every count needs one value a node")
    if not len(counts.exposure_node_days) or not np.all(counts.exposure_node_days > 0):
        raise ValueError("every node needs an exposure over 0: leave out nodes that ran nothing")
    if any(not np.all(np.asarray(column) >= 0) for column in columns):
        raise ValueError("counts are 0 or more")


class _Pairs:
    """The nodes of shared failures, flat: one entry for each failure and node."""

    def __init__(self, counts: NodeCounts) -> None:
        self.nodes = len(counts.named)
        sizes = [len(one.nodes) for one in counts.shared]
        self.failure = np.repeat(np.arange(len(sizes)), sizes)
        self.node = (
            np.concatenate([one.nodes for one in counts.shared]) if sizes else np.zeros(0, np.int64)
        )
        self.total = len(sizes)
        self.weight = np.repeat([one.weight for one in counts.shared], sizes)

    def others(self, mean_theta: Floats) -> Floats:
        """For each entry the sum of the rates of the job's other nodes."""
        own = mean_theta[self.node]
        sums = np.bincount(self.failure, own, self.total)[self.failure]
        return np.asarray(sums - own, dtype=np.float64)

    def blame(self, mean_theta: Floats) -> Floats:
        """Each shared failure divided over its job's nodes by their rates, summed by node."""
        if not self.total:
            # bincount of nothing would be whole numbers
            return np.zeros(self.nodes)
        own = mean_theta[self.node]
        of_entry = self.weight * own / (self.others(mean_theta) + own)
        parts = np.bincount(self.node, of_entry, self.nodes)
        return np.asarray(parts, dtype=np.float64)


def _settled(counts: NodeCounts, shared: _Pairs, grid: _Grid, exist: float) -> _Average:
    """The average over the grid; with shared failures again with the rates that it gives."""
    nothing = np.zeros(len(counts.named))
    average = _average(counts, shared, grid, nothing, np.ones(len(counts.named)), exist)
    for _ in range(_SHARED_ROUNDS if shared.total else 0):
        mean_theta = average.mean_theta
        before, average = average, _average(counts, shared, grid, nothing, mean_theta, exist)
        if _is_settled(before, average):
            break
    return average


def _is_settled(before: _Average, after: _Average) -> bool:
    return bool(np.abs(after.posterior - before.posterior).max() < _SETTLED)


def _average(
    counts: NodeCounts, shared: _Pairs, grid: _Grid, favours: Floats, theta: Floats, exist: float
) -> _Average:
    """Average over shapes, ratios and shares, weighted by their likelihood."""
    grid.see(counts.named + shared.blame(theta))
    prior = SHAPE_PRIOR / SHAPE_PRIOR.sum()
    plain = grid.cell(0.0, 1.0)
    without = float(
        np.logaddexp.reduce(_log_product(plain.ordinary, plain.top) + np.log(prior), axis=None)
    )
    cells = []
    for share in SHARES:
        for ratio in RATIOS:
            base, cell = grid.base(share, ratio), grid.cell(share, ratio)
            # over the larger of 1 and a lemon's: signals may favour one beyond what floats hold
            lemon = cell.log_lemon + favours
            scale = np.maximum(lemon, 0.0)
            spike = (share * np.exp(lemon - scale))[:, None]
            both = ((1 - share) * np.exp(-scale))[:, None] * cell.ordinary + spike
            log_likelihood = _log_product(both, cell.top + scale)
            cells.append((base, share, ratio, log_likelihood, spike, both, cell.means))
    weights = np.array([cell[3] for cell in cells]) + np.log(prior) - np.log(len(cells))
    evidence = float(np.logaddexp.reduce(weights, axis=None))
    weights = np.exp(weights - evidence)
    posterior, mean_theta = np.zeros(shared.nodes), np.zeros(shared.nodes)
    for weight, (_, _, ratio, _, spike, both, means) in zip(weights, cells, strict=True):
        # most settings are out of the question, and change no digit
        (likely,) = np.nonzero(weight > _NO_WEIGHT)
        if not likely.size:
            continue
        lemon_share = spike / both[:, likely]
        posterior += np.einsum("ns,s->n", lemon_share, weight[likely])
        mixed = lemon_share * ratio + (1 - lemon_share) * means[:, likely]
        mean_theta += np.einsum("ns,s->n", mixed, weight[likely])
    by_cell = weights.sum(axis=1)
    exist = 1 / (1 + (1 / exist - 1) * np.exp(min(without - evidence, 700.0)))
    return _Average(
        # sums of rounded weights may pass 1 in the last digits
        posterior=np.minimum(posterior * exist, 1.0),
        mean_theta=mean_theta,
        bulk_per_node_day=float(by_cell @ [cell[0] for cell in cells]),
        ratio=float(by_cell @ [cell[2] for cell in cells]),
        share=float(by_cell @ [cell[1] for cell in cells]),
        spread=float(weights.sum(axis=0) @ SPREAD_SHAPES**-0.5),
        log_evidence=evidence - without,
    )


def _log_product(likelihood: Floats, top: Floats) -> Floats:
    """Log-likelihood of all nodes by shape, from those of each over exp(`top`)."""
    product: Floats = np.log(likelihood).sum(axis=0) + top.sum()
    return product


class _Cell(NamedTuple):
    """Likelihoods of nodes at one share and ratio, each divided by exp(`top`) of its node."""

    ordinary: Floats
    means: Floats
    log_lemon: Floats
    top: Floats


class _Grid:
    """Likelihoods of the nodes by share and ratio, kept from pass to pass.

    Signals change the prior odds of a node and not its likelihood, and shared failures move blame
    among the nodes of few jobs: each pass computes the nodes alone whose failures have changed.
    """

    def __init__(self, counts: NodeCounts) -> None:
        self._exposure = np.asarray(counts.exposure_node_days, dtype=np.float64)
        total = float(counts.named.sum() + sum(one.weight for one in counts.shared))
        # blame only moves, so that the rate of the whole is the same in each pass
        self._rate = max(total, 0.5) / float(self._exposure.sum())
        self._bulk = _bulk_weights()
        self._failures = np.full(len(self._exposure), np.nan)
        self._changed = np.arange(len(self._exposure))
        # nodes of equal failures and exposure are of one kind, computed once
        self._kinds, self._kind = np.zeros((2, 0)), np.zeros(0, dtype=np.int64)
        self._is_kept = len(self._exposure) <= _MOST_KEPT_NODES
        self._cells: dict[tuple[float, float], _Cell] = {}

    def see(self, failures: Floats) -> None:
        """Take these failures for the cells of a pass."""
        if self._is_kept:
            (self._changed,) = np.nonzero(failures != self._failures)
        self._failures = failures
        if len(self._changed):
            both = np.stack([failures, self._exposure])[:, self._changed]
            self._kinds, kind = np.unique(both, axis=1, return_inverse=True)
            self._kind = kind.reshape(-1)

    def base(self, share: float, ratio: float) -> float:
        """Mean rate of the ordinary nodes."""
        return self._rate / (1 + share * (ratio - 1))

    def cell(self, share: float, ratio: float) -> _Cell:
        """The likelihoods of all nodes for the failures of this pass."""
        at, base = self._changed, self.base(share, ratio)
        found = self._cells.get((share, ratio))
        if found is None or len(at):
            kinds = _cell(self._kinds[0], self._kinds[1], base, ratio, self._bulk)
            new = _Cell(*(column[self._kind] for column in kinds))
            if found is None:
                found = new
            else:
                for kept, column in zip(found, new, strict=True):
                    kept[at] = column
            if self._is_kept:
                self._cells[share, ratio] = found
        return found


def _cell(failures: Floats, exposure: Floats, base: float, ratio: float, bulk: Floats) -> _Cell:
    """Of some nodes what `_Grid.cell` returns."""
    by_theta = (np.log(_THETA) + np.log(base))[:, None] * failures
    by_theta -= base * exposure * _THETA[:, None]
    top = by_theta.max(axis=0)
    likelihood = by_theta - top
    np.exp(likelihood, out=likelihood)
    both = np.concatenate([bulk, bulk * _THETA[:, None]], axis=1).T
    sums = np.empty((len(both), failures.size))
    # products of so few nodes stay on one thread: on several they take longer, and far longer
    # where the machine is busy
    for first in range(0, failures.size, _NODES_AT_ONCE):
        some = slice(first, first + _NODES_AT_ONCE)
        np.matmul(both, likelihood[:, some], out=sums[:, some])
    ordinary = np.ascontiguousarray(np.maximum(sums[: bulk.shape[1]], 1e-300).T)
    means = np.ascontiguousarray(sums[bulk.shape[1] :].T) / ordinary
    return _Cell(ordinary, means, by_theta[np.searchsorted(_THETA, ratio)] - top, top)


def _bulk_weights() -> Floats:
    """Probability of each θ for each shape, shape (thetas, shapes)."""
    edges = np.sqrt(_THETA[1:] * _THETA[:-1])
    columns = []
    for shape in SPREAD_SHAPES:
        if np.isinf(shape):
            columns.append((_THETA == 1.0).astype(float))
        else:
            # not scipy.stats, whose import costs more than the fit of a small fleet
            below = gammainc(shape, edges * shape)
            columns.append(np.diff(np.concatenate([[0.0], below, [1.0]])))
    return np.stack(columns, axis=1)


def _signal(
    seen: Floats, node_days: Sequence[Floats], posterior: Floats
) -> tuple[SignalRatio, Floats]:
    """A signal's base rate and ratio, and by how much (log) it favours each node as a lemon."""
    ordinary = 1 - posterior
    expected = _expected(seen, node_days, ordinary)
    on_lemons = (posterior * expected).sum()
    ratio = max(1.0, ((posterior * seen).sum() + 1) / (on_lemons + 1))
    excess = (ordinary * ((seen - expected) ** 2 - seen)).sum()
    shape = (ordinary * expected**2).sum() / max(excess, 1e-9)
    base = (ordinary * expected).sum() / max((ordinary * node_days[-1]).sum(), 1e-12)
    return SignalRatio(float(base), float(ratio)), _gain(seen, expected, ratio, min(shape, 1e6))


def _expected(seen: Floats, node_days: Sequence[Floats], ordinary: Floats) -> Floats:
    """How often a signal is expected on each node if it is ordinary."""
    count = float((ordinary * seen).sum())
    alone = [
        max(count, 0.5) / max(float((ordinary * days).sum()), 1e-12) * days for days in node_days
    ]
    if count < 0.5 or len(alone) == 1:
        return alone[-1]
    of_jobs, in_service = alone
    more = of_jobs - in_service
    # whatever part is put down to jobs, as many are expected in all; the likelihood is concave
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        expected = np.maximum(in_service + middle * more, 1e-300)
        rises = (ordinary * seen * more / expected).sum() > 0
        low, high = (middle, high) if rises else (low, middle)
    return np.asarray(in_service + (low + high) / 2 * more)


def _gain(seen: Floats, expected: Floats, ratio: float, shape: float) -> Floats:
    """Log-likelihood ratio of negative binomial counts: `ratio` times what is expected, or that."""
    # a lemon's own spread is that of the others: its mean is larger, its shape the same
    scale, lemon = expected / shape, ratio * expected / shape
    gain: Floats = seen * np.log(ratio) - (seen + shape) * (np.log1p(lemon) - np.log1p(scale))
    return gain


# -- what else speaks for a node's being a lemon: signals with their times, and repairs ------------
# Those that are failures of jobs themselves (NODE_FAIL of one node and of several) are counted by
# the model as failures and shown here only. The others become further counts, as far as they are
# not echoes of a failure that is counted already.
#
# Source:
#     Kokolis et al. (2025), section on lemon nodes: excluded jobs, XIDs, tickets, times out of
#     service, NODE_FAIL of jobs of several nodes and of one, and the rate of the latter.


NodeName = tuple[str, str]
Times = Mapping[NodeName, Sequence[float]]

OUTAGES = "outages without a failed job"
XID_EPISODES = "XID episodes without a failed job"
TICKETS = "tickets without a failed job"
EXCLUSIONS = "users who excluded it without a failed job of theirs"
SAME_S = 3600.0
"""A signal and a failure of one node this close to each other are one event."""
TICKET_AFTER_S = 3 * SECONDS_PER_DAY
"""A ticket so soon after a failure of the node is about it."""
_ECHO_S: Mapping[str, tuple[float, float]] = {
    OUTAGES: (SAME_S, SAME_S),
    XID_EPISODES: (SAME_S, SAME_S),
    TICKETS: (SAME_S, TICKET_AFTER_S),
}
"""How long before and after a failure a signal is its echo."""


@dataclass(frozen=True, slots=True)
class NodeSignals:
    """The paper's seven signals of one node; None where no log could show one."""

    excluded_by_jobs: int | None
    excluded_by_users: int | None
    xid_episodes: int | None
    tickets: int | None
    outages: int | None
    multi_node_failures: int
    single_node_failures: int
    single_node_attempts: int
    single_node_failure_rate: float | None


@dataclass(frozen=True, slots=True)
class FleetSignals:
    """Signals of all nodes."""

    times_s: Mapping[str, Times]
    repairs_s: Times


def apart(name: str, times_s: Iterable[float], failures_s: Sequence[float]) -> tuple[float, ...]:
    """Those of a node's signals that are not the echo of a failure that names it."""
    if name not in _ECHO_S:
        return tuple(times_s)
    before_s, after_s = _ECHO_S[name]
    times, failures = np.fromiter(times_s, float), np.sort(np.asarray(failures_s, float))
    first = np.searchsorted(failures, times - after_s, side="left")
    last = np.searchsorted(failures, times + before_s, side="right")
    return tuple(times[first == last].tolist())
