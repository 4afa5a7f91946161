"""A time budget: the smallest run that ends in time, with its checkpoint interval and spares."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.plan.intervals import with_best_interval
from ettr.plan.renewal import exact_ettr
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import ends, wallclock
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell

_GROWTH = 1.02
_LARGEST = 64


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """A run must end within a time with some probability.

    Attributes:
        repair_s: Mean time until a failed node is back, to plan spares; None: nodes are there.
        keep_interval: Save at the interval planned, not at the best of each size.
    """

    within_s: float
    chance: float
    repair_s: float | None = None
    keep_interval: bool = False

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError: they cannot be."""
        if not 0 < self.within_s < math.inf:
            raise UsageError(f"a budget of {self.within_s} s is not possible; give a time above 0")
        if not 0 < self.chance < 1:
            raise UsageError(f"a chance of {self.chance} is not possible; give a share such as 0.9")
        if self.repair_s is not None and not 0 < self.repair_s < math.inf:
            raise UsageError(f"a repair of {self.repair_s} s is not possible; give a time above 0")


@dataclass(frozen=True, slots=True)
class SizedRun:
    """A size of the run and what it gives.

    Attributes:
        spares: Held ready in addition; None where no repair time was given.
        chance_error: Standard error of `chance` where it is a share of simulated runs; None where
            it is exact.
    """

    n_nodes: int
    spares: int | None
    interval_s: float
    productive_s: float
    mean_s: float
    chance: float
    ettr: float
    chance_error: float | None = None


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """The answer to a time budget."""

    budget: TimeBudget
    work_node_s: float
    as_planned: SizedRun
    smallest: SizedRun | None
    likeliest: SizedRun
    simulated: bool = False

    @property
    def sentence(self) -> str:
        """The answer in words."""
        within, chance = spell(self.budget.within_s), f"{100 * self.budget.chance:g} %"
        if self.smallest is None:
            best = self.likeliest
            odds = _odds(best)
            remedy = "Fail less, restart or write faster, or give it more time."
            if math.isinf(best.mean_s):
                return f"No size that was tried ever ends. {remedy}"
            return (
                f"No size ends within {within} with {chance}: the likeliest, {best.n_nodes:,} "
                f"nodes, does with {odds} (mean {spell(best.mean_s)}). {remedy}"
            )
        one = self.smallest
        spares = "" if one.spares is None else f" and {one.spares:,} spares"
        return (
            f"To end within {within} with {chance} the work needs {one.n_nodes:,} nodes{spares} "
            f"and a checkpoint every {spell(one.interval_s)}; at the size planned it ends in time "
            f"with {_odds(self.as_planned)}."
        )


def _odds(one: SizedRun) -> str:
    """The chance to end in time, with two standard errors where it is simulated."""
    error = "" if one.chance_error is None else f" ± {significant(200 * one.chance_error, 1)}"
    return f"{significant(100 * one.chance)}{error} %"


def deadline_plan(run: PlannedRun, budget: TimeBudget) -> DeadlinePlan:
    """The smallest size at which the work of `run` ends within a budget.

    The work is the productive time of `run` times its nodes; it takes less time on more nodes in
    proportion (perfect scaling), while more nodes fail more often.

    Raises:
        UsageError: a run without end, or one whose interval has no best.
    """
    if math.isinf(run.productive_s):
        raise UsageError("a time budget needs the work of the run; give --days with --gpus")
    work = run.productive_s * run.n_nodes
    fewest = max(1, math.floor(work / budget.within_s))
    likeliest = as_planned = sized(run, run.n_nodes, work, budget)
    before, n_nodes = max(0, fewest - 1), fewest
    while n_nodes <= _LARGEST * max(fewest, run.n_nodes):
        at = sized(run, n_nodes, work, budget)
        likeliest = max(likeliest, at, key=lambda one: (one.chance, -one.mean_s))
        if at.chance >= budget.chance:
            return DeadlinePlan(
                budget, work, as_planned, _fewest(run, before, n_nodes, work, budget), likeliest
            )
        if math.isinf(at.mean_s) and n_nodes > fewest and likeliest.chance > 0:
            break
        before, n_nodes = n_nodes, max(n_nodes + 1, math.ceil(n_nodes * _GROWTH))
    reached = as_planned if as_planned.chance >= budget.chance else None
    return DeadlinePlan(budget, work, as_planned, reached, likeliest)


def _fewest(
    run: PlannedRun, too_few: int, enough: int, work: float, budget: TimeBudget
) -> SizedRun:
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if sized(run, middle, work, budget).chance >= budget.chance:
            enough = middle
        else:
            too_few = middle
    return sized(run, enough, work, budget)


def at_size(run: PlannedRun, n_nodes: int, work_node_s: float, budget: TimeBudget) -> PlannedRun:
    """The work on so many nodes, saved at the best interval of that size unless one is kept."""
    at = replace(run, n_nodes=n_nodes, productive_s=work_node_s / n_nodes)
    if not budget.keep_interval and at.write_s and at.failures_per_s:
        return with_best_interval(at)
    return at


def sized(run: PlannedRun, n_nodes: int, work_node_s: float, budget: TimeBudget) -> SizedRun:
    """The work on so many nodes: its interval, its spares, and its chance to end in time."""
    at, spares = at_size(run, n_nodes, work_node_s, budget), None
    if budget.repair_s is not None:
        failures_per_day = at.failures_per_node_day * n_nodes
        offered = failures_per_day * budget.repair_s / SECONDS_PER_DAY
        spares = spares_needed(offered)
        still = standstill_share(spares, offered)
        # what is left of standing still, as a wait after each failure
        if at.failures_per_s and still < 1:
            at = replace(at, queue_s=at.queue_s + still / (1.0 - still) / at.failures_per_s)
    if not ends(at):
        return SizedRun(n_nodes, spares, at.interval_s, at.productive_s, math.inf, 0.0, 0.0)
    law = wallclock(at)
    return SizedRun(
        n_nodes,
        spares,
        at.interval_s,
        at.productive_s,
        law.mean_s,
        law.within(budget.within_s),
        exact_ettr(at),
    )


def standstill_share(spares: int, offered: float) -> float:
    """Share of time in which a job stands still for want of nodes.

    It depends on the mean repair time alone, not on the law of repairs.

    Args:
        offered: Failures of the running job per day, times the mean repair in days: the nodes that
            would be in repair if failures never stopped.

    Source:
        Erlang (1917); Sevastyanov (1957), Theory of Probability 2, for any law of repair times.
    """
    if spares < 0 or offered < 0:
        raise UsageError(f"spares {spares} and offered {offered} nodes: give 0 or more of each")
    if offered == 0:
        return 0.0
    inverse = 1.0
    for servers in range(1, spares + 2):
        # 1 / B grows without bound where spares are many: then the loss is nothing
        inverse = 1.0 + inverse * servers / offered
        if inverse > 1e300:
            return 0.0
    return 1.0 / inverse


def spares_needed(offered: float, full_share: float = 0.99) -> int:
    """Fewest spares with which the job has all its nodes for that share of the time.

    Raises:
        UsageError: a share outside 0 to 1, or a negative number of nodes.
    """
    if not 0.0 < full_share < 1.0:
        raise UsageError(f"full_share is {full_share}; give a share between 0 and 1, such as 0.99")
    if offered < 0:
        raise UsageError(f"offered is {offered} nodes; give 0 or more")
    inverse, spares = 1.0, 0
    while offered > 0:
        inverse = 1.0 + inverse * (spares + 1) / offered
        if 1.0 / inverse <= 1.0 - full_share:
            break
        spares += 1
    return spares
