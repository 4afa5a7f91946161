"""The distribution of a run's wall-clock, not only its mean: by inversion of its transform.

The wall-clock is a sum of independent parts (a recovery, the segments), each with a transform in
closed form. A Fourier series on a window that holds all but 1e-10 of the probability gives the
distribution; the chance of no failure at all, a step, is kept apart so that the series is smooth.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates.interval import Interval
from ettr.plan.intervals import with_best_interval
from ettr.plan.renewal import exact_ettr, expected_failures, expected_wallclock_s, segments
from ettr.plan.run import PlannedRun
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell

QUANTILES = (0.1, 0.5, 0.9, 0.99)
ENDLESS = 1000.0
"""A run expected to take this many times its productive time is said not to end."""

_LOG_TAIL = math.log(1e-10)
_MOST_TERMS = 8192
_ROUNDING = 1e-3
# one part in e^20 is known to six digits in double precision, one in e^35 to none
_HIGHEST_LOAD = 20.0


@dataclass(frozen=True, slots=True)
class Wallclock:
    """Wall-clock of one run from submission to its last write.

    Probabilities are right to about 1e-4, and to 1e-8 where tens of failures are expected.

    Attributes:
        shortest_s: Without a failure.
    """

    mean_s: float
    sd_s: float
    shortest_s: float
    undisturbed: float
    productive_s: float
    _start_s: float
    _period_s: float
    _terms: tuple[complex, ...]

    def within(self, wallclock_s: float) -> float:
        """Probability that the run is done within `wallclock_s`."""
        over_s = wallclock_s - self.shortest_s
        # a run of thousands of hours does not resolve the last bits of its length
        step = self.undisturbed if over_s >= -1e-9 * self.shortest_s else 0.0
        at = (over_s - self._start_s) / self._period_s
        if at <= 0:
            return step
        if at >= 1:
            return 1.0
        turn = cmath.exp(2j * math.pi * at)
        power, total = 1.0 + 0j, (1.0 - self.undisturbed) * at
        for term in self._terms:
            power *= turn
            total += term.real * (power.real - 1.0) - term.imag * power.imag
        return min(1.0, max(0.0, step + total))

    def quantile_s(self, probability: float) -> float:
        """The wall-clock within which the run is done with `probability`.

        Raises:
            UsageError: not strictly between 0 and 1.
        """
        if not 0.0 < probability < 1.0:
            raise UsageError(f"{probability} is not a probability; give 0.9 for the ninth decile")
        if probability <= self.undisturbed:
            return self.shortest_s
        low_s = max(0.0, self._start_s)
        high_s = self._start_s + self._period_s
        for _ in range(45):
            middle_s = (low_s + high_s) / 2.0
            if self.within(self.shortest_s + middle_s) < probability:
                low_s = middle_s
            else:
                high_s = middle_s
        return self.shortest_s + (low_s + high_s) / 2.0


def wallclock(run: PlannedRun) -> Wallclock:
    """The distribution of the wall-clock of `run`, under the assumptions of the exact form.

    Each wait takes `queue_s`.

    Raises:
        UsageError: a run without end, or one that will not end.

    **Source**: derived in docs/explanation/ettr-models.md; the inversion is that of Abate and
    Whitt (1992), Queueing Systems 10, without damping, on a window from Chernoff's bound.
    """
    if math.isinf(run.productive_s):
        raise UsageError("a run without end has no wall-clock; give productive_s")
    rate = run.failures_per_s
    load = rate * max(min(run.interval_s, run.productive_s) + run.write_s, run.restart_s)
    if load > _HIGHEST_LOAD:
        raise UsageError(
            f"{significant(load)} failures are expected in a single interval or restart, so the "
            "run will not end; shorten the interval or the restart, or use fewer nodes"
        )
    return _invert(_Excess.of(run), run)


@dataclass(frozen=True, slots=True)
class _Excess:
    """Transform of the time beyond the shortest that the run can take."""

    rate: float
    restart_s: float
    queue_s: float
    lengths: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, run: PlannedRun) -> _Excess:
        n_full, last_s = segments(run)
        lengths = ((n_full, run.interval_s + run.write_s), (1, last_s + run.write_s))
        return cls(run.failures_per_s, run.restart_s, run.queue_s, lengths)

    def shortest_s(self) -> float:
        return self.queue_s + self.restart_s + sum(n * length_s for n, length_s in self.lengths)

    def undisturbed(self) -> float:
        return math.exp(-self.rate * (self.restart_s + sum(n * x for n, x in self.lengths)))

    def at(self, s: complex) -> complex:
        """E[e^(-s X)]."""
        total_rate = self.rate + s
        wait = cmath.exp(-s * self.queue_s)
        fails = wait * self.rate * _held(total_rate, self.restart_s)
        value = math.exp(-self.rate * self.restart_s) / (1.0 - fails)
        recovery = value * wait * cmath.exp(-s * self.restart_s)
        for n, length_s in self.lengths:
            if n:
                fails = recovery * self.rate * _held(total_rate, length_s)
                value *= (math.exp(-self.rate * length_s) / (1.0 - fails)) ** n
        return value

    def log_moment(self, tilt: float) -> float:
        """ln E[e^(tilt X)]; infinite where it does not exist."""
        try:
            wait = math.exp(tilt * self.queue_s)
            left = 1.0 - wait * self.rate * _held(self.rate - tilt, self.restart_s).real
            if left <= 0:
                return math.inf
            total = -self.rate * self.restart_s - math.log(left)
            recovery = math.exp(total + tilt * self.restart_s) * wait
            for n, length_s in self.lengths:
                left = 1.0 - recovery * self.rate * _held(self.rate - tilt, length_s).real
                if n and left <= 0:
                    return math.inf
                total += n * (-self.rate * length_s - math.log(left)) if n else 0.0
        except OverflowError:
            return math.inf
        return total

    def variance_s2(self) -> float:
        """Exact variance: geometric numbers of failed attempts, each of independent length."""
        n_again, n_again2 = _failed_attempts(self.rate * self.restart_s)
        cut_s, cut_s2 = _cut_short(self.rate, self.restart_s)
        again_s2 = n_again * cut_s2 + n_again2 * (cut_s + self.queue_s) ** 2
        recovery_s = self.queue_s + self.restart_s + n_again * (cut_s + self.queue_s)
        total = again_s2
        for n, length_s in self.lengths:
            n_failed, n_failed2 = _failed_attempts(self.rate * length_s)
            cut_s, cut_s2 = _cut_short(self.rate, length_s)
            once_s2 = n_failed * (cut_s2 + again_s2) + n_failed2 * (cut_s + recovery_s) ** 2
            total += n * once_s2
        return total


def _held(rate: complex, length_s: float) -> complex:
    """(1 - e^(-rate length)) / rate, and its limit where they nearly cancel."""
    load = rate * length_s
    if abs(load) < 1e-6:
        return length_s * (1.0 - load / 2.0)
    return (1.0 - cmath.exp(-load)) / rate


def _failed_attempts(load: float) -> tuple[float, float]:
    """Mean and variance of the attempts that fail before one of that load does not."""
    mean = math.expm1(load)
    return mean, mean * math.exp(load)


def _cut_short(rate: float, length_s: float) -> tuple[float, float]:
    """Mean and variance of the length of an attempt, given that it fails."""
    load = rate * length_s
    if load < 1e-3:
        return length_s * (0.5 - load / 12.0), length_s**2 / 12.0
    growth = math.expm1(load)
    # 1/λ² - L² e^λL / (e^λL - 1)²
    return 1.0 / rate - length_s / growth, 1.0 / rate**2 - length_s**2 * (growth + 1) / growth**2


def _invert(excess: _Excess, run: PlannedRun) -> Wallclock:
    mean_s, sd_s = expected_wallclock_s(run), math.sqrt(excess.variance_s2())
    shortest_s, undisturbed = excess.shortest_s(), excess.undisturbed()
    start_s, end_s = _window(excess, mean_s - shortest_s, sd_s)
    # room on both sides, so that the series does not wrap at a bend
    period_s = 1.1 * (end_s - start_s)
    start_s -= 0.05 * (end_s - start_s)
    terms: list[complex] = []
    small = 0
    for k in range(1, _MOST_TERMS + 1 if sd_s else 1):
        frequency = 2.0 * math.pi * k / period_s
        value = excess.at(1j * frequency) - (undisturbed if start_s <= 0 else 0.0)
        term = value * cmath.exp(1j * frequency * start_s) / (1j * math.pi * k)
        terms.append(term)
        small = small + 1 if abs(term) < 1e-12 else 0
        if small == 8:
            break
    return Wallclock(
        mean_s,
        sd_s,
        shortest_s,
        undisturbed if start_s <= 0 else 0.0,
        run.productive_s,
        start_s,
        period_s,
        tuple(terms),
    )


def _window(excess: _Excess, mean_s: float, sd_s: float) -> tuple[float, float]:
    """Times beyond the shortest that hold all but 1e-10 of the probability on either side."""
    if not sd_s:
        return 0.0, 1.0
    # at no tilt at all the moment is 1, its logarithm 0
    if not math.isfinite(sd_s) or not abs(excess.log_moment(0.0)) < _ROUNDING:
        raise UsageError(
            f"the run takes {significant(mean_s)} s on average: it hardly ever ends, so its "
            "distribution is unknown; shorten the interval or the restart, or use fewer nodes"
        )
    tilt = 1.0 / sd_s
    while math.isfinite(excess.log_moment(tilt)):
        tilt *= 2.0
    low, high = 0.0, tilt
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if math.isfinite(excess.log_moment(middle)) else (low, middle)
    tilts = [low * share for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)]
    tilts += [j / sd_s for j in (0.5, 1, 2, 3, 5, 7) if j / sd_s < low]
    end_s = min((excess.log_moment(t) - _LOG_TAIL) / t for t in tilts)
    starts = [(_LOG_TAIL - excess.log_moment(-j / sd_s)) * sd_s / j for j in (1, 2, 4, 6, 7, 9)]
    return max(0.0, *starts), max(end_s, mean_s + sd_s)


@dataclass(frozen=True, slots=True)
class WallclockQuantiles:
    """Wall-clock of a run of finite length: its mean, and its quantiles.

    Attributes:
        quantiles: Pairs of a probability and the wall-clock within which the run ends with it.
        quantile_bands_s: The same of each of the quantiles, in their order. An end is infinite
            where the run will not end at that rate.
    """

    productive_s: float
    mean_s: float
    sd_s: float
    expected_failures: float
    quantiles: tuple[tuple[float, float], ...]
    mean_band_s: Interval
    quantile_bands_s: tuple[Interval, ...]


def ends(run: PlannedRun) -> bool:
    """Whether a run of finite length can be expected to end at all."""
    return expected_wallclock_s(run) < ENDLESS * run.productive_s


def wallclock_quantiles(
    run: PlannedRun, per_node_day: Interval | None = None
) -> WallclockQuantiles | None:
    """Mean and quantiles of a run's wall-clock; None for the long run, and for one without end."""
    if math.isinf(run.productive_s) or not ends(run):
        return None
    law = wallclock(run)
    rate = per_node_day or Interval(None, run.failures_per_node_day, run.failures_per_node_day)
    low, high = (_at_rate(run, end) for end in (rate.low, rate.high))
    quantiles = tuple((share, law.quantile_s(share)) for share in QUANTILES)
    return WallclockQuantiles(
        run.productive_s,
        law.mean_s,
        law.sd_s,
        expected_failures(run),
        quantiles,
        Interval(law.mean_s, _mean_s(low), _mean_s(high)),
        tuple(
            Interval(at_s, _quantile_s(low, share), _quantile_s(high, share))
            for share, at_s in quantiles
        ),
    )


def _at_rate(run: PlannedRun, per_node_day: float) -> Wallclock | None:
    """The law at another failure rate; None where the run will not end at it."""
    if math.isinf(per_node_day):
        return None
    other = replace(run, failures_per_node_day=per_node_day)
    return wallclock(other) if ends(other) else None


def _mean_s(law: Wallclock | None) -> float:
    return math.inf if law is None else law.mean_s


def _quantile_s(law: Wallclock | None, share: float) -> float:
    return math.inf if law is None else law.quantile_s(share)


# -- a time budget: the smallest run that ends in time, with its checkpoint interval and spares ----


_GROWTH = 1.02
_LARGEST = 64
_FULL_SHARE = 0.99


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


def spares_needed(offered: float) -> int:
    """Fewest spares with which the job has all its nodes for 99 % of the time.

    Raises:
        UsageError: a negative number of nodes.
    """
    if offered < 0:
        raise UsageError(f"offered is {offered} nodes; give 0 or more")
    inverse, spares = 1.0, 0
    while offered > 0:
        inverse = 1.0 + inverse * (spares + 1) / offered
        if 1.0 / inverse <= 1.0 - _FULL_SHARE:
            break
        spares += 1
    return spares
