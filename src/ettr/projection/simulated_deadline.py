"""A time budget answered by simulation, where failures are not independent at a constant rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ettr.models.data import Floats
from ettr.plan.deadline import DeadlinePlan, SizedRun, TimeBudget, at_size
from ettr.plan.renewal import expected_wallclock_s
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import ends
from ettr.projection.failure_laws import FailureLaw
from ettr.projection.simulated_run import SEED, progress

LawOf = Callable[[PlannedRun], FailureLaw]
"""The failure law of a run, by its size and rate."""

_GROWTH = 1.1
_MOST_SIZES = 24
_FINEST = 0.005
_FULL_SHARE = 0.99
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Effort:
    """How many runs to draw at one size: so many, unless they hold more failures than that."""

    draws: int
    failures: float


_SEARCH = _Effort(120, 60_000)
_ANSWER = _Effort(400, 400_000)


def simulated_deadline(exact: DeadlinePlan, run: PlannedRun, law_of: LawOf) -> DeadlinePlan:
    """The smallest size at which the work ends in time, by simulation.

    Every size is drawn with the same seed, so that sizes are compared on like failures. A size is
    found to half a per cent of its nodes; its interval is the best by the exact form.

    Args:
        exact: The same question answered by the exact form, which says where to look.
        run: As planned, at a rate above 0.
        law_of: The failure law.
    """
    sizes = _Sizes(exact.budget, run, exact.work_node_s, law_of)
    as_planned = sizes.at(run.n_nodes, _ANSWER)
    fewest = max(1, math.floor(exact.work_node_s / exact.budget.within_s))
    tried, too_few = [as_planned], max(0, fewest - 1)
    n_nodes, enough = fewest, None
    for _ in range(_MOST_SIZES):
        one = sizes.at(n_nodes, _SEARCH)
        tried.append(one)
        if one.chance >= exact.budget.chance:
            enough = n_nodes
            break
        too_few, n_nodes = n_nodes, max(n_nodes + 1, math.ceil(n_nodes * _GROWTH))
    smallest = None if enough is None else sizes.smallest(too_few, enough)
    if smallest is None and as_planned.chance >= exact.budget.chance:
        smallest = as_planned
    likeliest = max((*tried, smallest or as_planned), key=lambda one: (one.chance, -one.mean_s))
    return replace(
        exact, as_planned=as_planned, smallest=smallest, likeliest=likeliest, simulated=True
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The work of a run at any size."""

    budget: TimeBudget
    run: PlannedRun
    work_node_s: float
    law_of: LawOf

    def smallest(self, too_few: int, enough: int) -> SizedRun | None:
        """The fewest nodes between two that end in time; None where more draws do not bear it out.

        Args:
            too_few: Nodes with which the run does not end in time.
            enough: Nodes with which it does.
        """
        while enough - too_few > max(1.0, _FINEST * enough):
            middle = (too_few + enough) // 2
            if self.at(middle, _SEARCH).chance >= self.budget.chance:
                enough = middle
            else:
                too_few = middle
        for _ in range(_MOST_STEPS):
            one = self.at(enough, _ANSWER)
            if one.chance >= self.budget.chance:
                return one
            enough += max(1, round(_FINEST * enough))
        return None

    def at(self, n_nodes: int, effort: _Effort) -> SizedRun:
        """The work on so many nodes, with the share of the runs drawn that end in time."""
        run = at_size(self.run, n_nodes, self.work_node_s, self.budget)
        law, spares = self.law_of(run), None
        if self.budget.repair_s is not None and run.failures_per_s:
            run, spares = _with_spares(run, law, self.budget.repair_s)
        if not ends(run):
            return SizedRun(
                n_nodes, spares, run.interval_s, run.productive_s, math.inf, 0.0, 0.0, 0.0
            )
        lengths = _lengths_s(run, law, effort)
        chance = float(np.mean(lengths <= self.budget.within_s))
        # half a run either way, so that a share of 0 or 1 has an error too
        drawn = (chance * lengths.size + 0.5) / (lengths.size + 1.0)
        return SizedRun(
            n_nodes,
            spares,
            run.interval_s,
            run.productive_s,
            float(np.mean(lengths)),
            chance,
            run.productive_s / float(np.mean(lengths)),
            math.sqrt(drawn * (1.0 - drawn) / lengths.size),
        )


def _lengths_s(run: PlannedRun, law: FailureLaw, effort: _Effort) -> Floats:
    """Wall-clock of runs drawn by a law, shape (n,), in seconds."""
    rng = np.random.default_rng(SEED)
    expected_s = expected_wallclock_s(run)
    horizon_s = 4.0 * expected_s + 20.0 / run.failures_per_s
    in_a_run = max(1.0, run.failures_per_s * expected_s)
    n = int(min(effort.draws, max(20.0, effort.failures / in_a_run)))
    return np.array(
        [
            progress(run, law.times_s(run.failures_per_s, horizon_s, rng).tolist()).wallclock_s
            for _ in range(n)
        ]
    )


def _with_spares(run: PlannedRun, law: FailureLaw, repair_s: float) -> tuple[PlannedRun, int]:
    """Spares with which the run has its nodes for 99 % of the time, and the run with the rest.

    The time without enough nodes is a wait after each failure, as in the exact form. Repairs take
    an exponential time.
    """
    rng = np.random.default_rng(SEED)
    horizon_s = 200.0 * (repair_s + 1.0 / run.failures_per_s)
    # no more failures than a search should draw
    horizon_s = min(horizon_s, max(_SEARCH.failures / run.failures_per_s, 20.0 * repair_s))
    begins = law.times_s(run.failures_per_s, horizon_s, rng)
    moments = np.concatenate([begins, begins + rng.exponential(repair_s, begins.size)])
    order = np.argsort(moments)
    changes = np.repeat([1, -1], begins.size)[order]
    in_repair = np.cumsum(changes)[:-1]
    lasts_s = np.diff(moments[order])
    # from when as many are in repair as in the long run, until no more fail
    counted = (moments[order][:-1] >= min(5.0 * repair_s, horizon_s / 4)) & (
        moments[order][:-1] < horizon_s
    )
    weights = np.bincount(in_repair[counted], lasts_s[counted])
    if not weights.sum():
        return run, 0
    share_with = np.cumsum(weights) / weights.sum()
    spares = int(np.searchsorted(share_with, _FULL_SHARE))
    still = float(1.0 - share_with[min(spares, share_with.size - 1)])
    waits_s = run.queue_s + still / (1.0 - still) / run.failures_per_s
    return replace(run, queue_s=waits_s), spares
