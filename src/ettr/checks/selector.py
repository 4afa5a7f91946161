"""Which checks to run before a job: the subset whose minutes cost less than what they prevent.

It minimises node-hours of checks + false alarms + P(incident | subset) * cost of an incident.
With checks of different kinds the best subset is a prefix of the checks in the order of their gain
in log-survival over their cost: the cost is linear and the probability concave in that gain. Where
checks cover the same kinds, the gain is what those before left, and a check is dropped again where
that is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.checks.beliefs import Floats, log_survival

Bools = NDArray[np.bool_]
_LEAST_GAIN = 1e-12
_MOST_EXCHANGED = 12
"""Checks up to which exchanges of two are tried: their number is the square."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The nodes of a job to come, and what is believed of them.

    Attributes:
        belief: Probability of a hidden defect, shape (nodes, kinds).
        clean: Probability that a node without a defect of a kind is not struck during the job,
            shape (nodes, kinds); `with_defect` of one with it, shape (kinds,) or the same.
        incident_node_h: What an incident costs, in node-hours.
        restarts: Whether a struck job goes on and may be struck again: what counts is then the
            expected number of incidents, -log P(none), and not the probability of one. Both agree
            where that is small; where a job is hardly ever spared, only the number falls by checks.
    """

    belief: Floats
    clean: Floats
    with_defect: Floats
    incident_node_h: float
    restarts: bool = False

    def incidents(self, log_survived: ArrayLike) -> Floats:
        """Expected incidents that are paid for, by the log of the probability of none."""
        none = np.asarray(log_survived, dtype=np.float64)
        return -none if self.restarts else np.asarray(-np.expm1(none), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Offer:
    """What the checks can do, by index.

    Attributes:
        coverage: Probability that a check finds a defect, shape (checks, kinds).
        hours: How long a check holds a node.
        false_node_h: What false alarms of a check cost per node that it runs on, in node-hours.
        waits: Whether the whole job waits for the nodes that are checked. Without it only those
            nodes are held up, as where checks run in the queue.
    """

    coverage: Floats
    hours: Floats
    false_node_h: Floats
    waits: bool


@dataclass(frozen=True, slots=True)
class CheckChoice:
    """The answer of the selector.

    Attributes:
        runs: Whether a check is run on a node, shape (checks, nodes).
        struck_before: Probability that the job is struck without any check.
        struck_after: The same after the chosen ones.
        checks_node_h: What they cost, with false alarms.
        saved_node_h: By how much the expected cost of the job falls; 0 where nothing pays.
    """

    runs: Bools
    struck_before: float
    struck_after: float
    checks_node_h: float
    saved_node_h: float

    @property
    def pays(self) -> bool:
        """Whether any check is worth its time."""
        return bool(self.runs.any())


def choose(prospect: Prospect, offer: Offer) -> CheckChoice:
    """The checks to run, and on which nodes."""
    order = _of_job if offer.waits else _of_nodes
    runs = _pruned(prospect, offer, order(prospect, offer))
    before = _expected(prospect, offer, np.zeros_like(runs))
    after = _expected(prospect, offer, runs)
    if after[0] >= before[0] - 1e-9:
        runs, after = np.zeros_like(runs), before
    return CheckChoice(runs, before[1], after[1], after[2], before[0] - after[0])


def expected_node_h(prospect: Prospect, offer: Offer, runs: Bools) -> float:
    """What a job costs beyond its own time if these checks are run: checks and incidents."""
    return _expected(prospect, offer, runs)[0]


def _expected(prospect: Prospect, offer: Offer, runs: Bools) -> tuple[float, float, float]:
    """Expected cost in all, probability that the job is struck, cost of the checks."""
    missed = np.log(np.maximum(1 - offer.coverage, 1e-300))
    left = prospect.belief * np.exp(runs.T.astype(np.float64) @ missed)
    none = log_survival(left, prospect.clean, prospect.with_defect).sum()
    held_h = offer.hours @ runs
    time_node_h = held_h.max(initial=0.0) * runs.shape[1] if offer.waits else held_h.sum()
    checks_node_h = float(time_node_h + offer.false_node_h @ runs.sum(axis=1))
    incidents_node_h = float(prospect.incidents(none)) * prospect.incident_node_h
    return checks_node_h + incidents_node_h, float(-np.expm1(none)), checks_node_h


def _gain(prospect: Prospect, offer: Offer, left: Floats) -> Callable[[int], Floats]:
    """What a further check adds to the log-survival of each node."""
    clean = prospect.clean
    with_defect = np.broadcast_to(prospect.with_defect, clean.shape)
    now = log_survival(left, clean, with_defect)

    def of(check: int) -> Floats:
        kinds = np.flatnonzero(offer.coverage[check] > 0)
        fewer = left[:, kinds] * (1 - offer.coverage[check, kinds])
        then = log_survival(fewer, clean[:, kinds], with_defect[:, kinds])
        return np.asarray((then - now[:, kinds]).sum(axis=1), dtype=np.float64)

    return of


def _of_job(prospect: Prospect, offer: Offer) -> Bools:
    """Checks that all nodes wait for, each on every node where it can find anything."""
    checks, nodes = len(offer.hours), len(prospect.belief)
    left, runs = prospect.belief.copy(), np.zeros((checks, nodes), dtype=np.bool_)
    best, best_cost = runs.copy(), _expected(prospect, offer, runs)[0]
    open_ones = set(range(checks))
    while open_ones:
        gain = _gain(prospect, offer, left)
        gains = {check: gain(check) for check in open_ones}
        ratio = {
            check: gains[check].sum()
            / max(offer.hours[check] * nodes + offer.false_node_h[check] * nodes, 1e-12)
            for check in open_ones
        }
        first = max(sorted(ratio), key=lambda check: ratio[check])
        # a unit of log-survival is worth an incident at most
        if ratio[first] * prospect.incident_node_h < 1.0:
            break
        open_ones.remove(first)
        runs[first] = gains[first] > 0
        left[runs[first]] *= 1 - offer.coverage[first]
        cost = _expected(prospect, offer, runs)[0]
        if cost < best_cost:
            best, best_cost = runs.copy(), cost
    return _improved(prospect, offer, best)


def _improved(prospect: Prospect, offer: Offer, runs: Bools) -> Bools:
    """Drop or add a check, else exchange two, as long as that is cheaper."""
    usable = np.asarray(prospect.belief @ offer.coverage.T > 0)
    cost, checks = _expected(prospect, offer, runs)[0], range(len(runs))
    singly = True
    while singly or len(runs) <= _MOST_EXCHANGED:
        inside = np.asarray(runs.any(axis=1))
        moves: list[tuple[int, ...]] = [(one,) for one in checks]
        if not singly:
            moves = [(a, b) for a in checks for b in checks if inside[a] and not inside[b]]
        tried = []
        for move in moves:
            changed = runs.copy()
            for check in move:
                changed[check] = False if inside[check] else usable[:, check]
            tried.append((_expected(prospect, offer, changed)[0], changed))
        least, found = min(tried, key=lambda one: one[0], default=(cost, runs))
        if least < cost - 1e-9:
            runs, cost, singly = found, least, True
        elif singly:
            singly = False
        else:
            break
    return runs


def _of_nodes(prospect: Prospect, offer: Offer) -> Bools:
    """Checks that hold up only the nodes they run on: pairs of both in the order of their worth."""
    checks, nodes = len(offer.hours), len(prospect.belief)
    left, every = prospect.belief.copy(), np.arange(nodes)
    cost = np.maximum(offer.hours + offer.false_node_h, 1e-12)
    done = np.zeros((checks, nodes), dtype=np.bool_)
    worst = np.full(nodes, np.inf)
    pairs = []
    for _ in range(checks):
        gain = _gain(prospect, offer, left)
        gains = np.array([gain(check) for check in range(checks)])
        ratio = np.where(done, -1.0, gains / cost[:, None])
        first = ratio.argmax(axis=0)
        gained = gains[first, every]
        useful = (ratio[first, every] > 0) & (gained > _LEAST_GAIN)
        if not useful.any():
            break
        at = every[useful]
        # of one node a later check may not come before an earlier one
        worst[at] = np.minimum(worst[at], ratio[first[at], at])
        pairs.append(np.stack([first[at], at, worst[at], gained[at], cost[first[at]]]))
        done[first[at], at] = True
        left[at] *= 1 - offer.coverage[first[at]]
    runs = np.zeros((checks, nodes), dtype=np.bool_)
    if not pairs:
        return runs
    check, node, worth, gained, price = np.concatenate(pairs, axis=1)
    order = np.argsort(-worth, kind="stable")
    survived = log_survival(prospect.belief, prospect.clean, prospect.with_defect).sum()
    struck = prospect.incidents(survived + np.concatenate([[0.0], np.cumsum(gained[order])]))
    spent = np.concatenate([[0.0], np.cumsum(price[order])])
    taken = order[: int(np.argmin(spent + struck * prospect.incident_node_h))]
    runs[check[taken].astype(int), node[taken].astype(int)] = True
    return runs


def _pruned(prospect: Prospect, offer: Offer, runs: Bools) -> Bools:
    """Without nodes on which a check gains less than its false alarms cost."""
    if not offer.waits or not runs.any():
        return runs
    left, pruned = prospect.belief.copy(), runs.copy()
    survives = 1.0 if prospect.restarts else 1 - _expected(prospect, offer, runs)[1]
    for check in np.flatnonzero(runs.any(axis=1)):
        worth = _gain(prospect, offer, left)(int(check)) * survives * prospect.incident_node_h
        pruned[check] &= worth > offer.false_node_h[check]
        left[runs[check]] *= 1 - offer.coverage[check]
    cheaper = _expected(prospect, offer, pruned)[0] <= _expected(prospect, offer, runs)[0]
    return pruned if cheaper else runs
