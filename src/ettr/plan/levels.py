"""Exact expected ETTR where failures of different kinds cost different things.

A failure recovers to one of three levels. *Soft*: training goes on where it was, and some work may
have to be made good. *Light*: training goes back to the last light checkpoint that can be used.
*Deep*: to the last durable one, taken with every n-th light one. Any failure may strike whenever
the run holds its nodes, in a recovery too, which then starts again: as the one of the deeper level,
and of two at one level as the slower, its wait included.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class RecoveryLevel(StrEnum):
    """From where training goes on after a failure, the shallowest level first."""

    SOFT = "where it was"
    LIGHT = "last light checkpoint"
    DEEP = "last durable checkpoint"


_DEPTH = {level: depth for depth, level in enumerate(RecoveryLevel)}


@dataclass(frozen=True, slots=True)
class FailureKind:
    """Failures that a run recovers from in one way.

    Attributes:
        lost_staleness_share: For soft failures: work to be made good, as a share of the work since
            the last usable light checkpoint.
    """

    level: RecoveryLevel
    per_s: float
    restart_s: float = 0.0
    lost_s: float = 0.0
    lost_staleness_share: float = 0.0
    waits: bool = True


@dataclass(frozen=True, slots=True)
class Levels:
    """A run that saves on two levels and whose failures are of several kinds.

    Attributes:
        lag_s: From the stall of a light checkpoint until it can be used, in time that the run
            trains; during a recovery writes wait.
        durable_stall_s: Training stops so long for each durable one, in addition.
        queue_s: Mean wait of the recoveries that wait; nothing fails meanwhile.
    """

    interval_s: float
    stall_s: float = 0.0
    slowdown: float = 0.0
    lag_s: float = 0.0
    n_light_per_durable: int = 1
    durable_stall_s: float = 0.0
    durable_lag_s: float = 0.0
    kinds: tuple[FailureKind, ...] = ()
    queue_s: float = 0.0

    @property
    def per_s(self) -> float:
        """Failures of all kinds."""
        return sum(kind.per_s for kind in self.kinds)

    @property
    def length_s(self) -> float:
        """Time from one light checkpoint to the next, without failures."""
        stalls_s = self.stall_s + self.durable_stall_s / self.n_light_per_durable
        return self.interval_s * (1.0 + self.slowdown) + stalls_s


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failures with their recoveries folded in, so that they take no time while the run trains."""

    light_per_s: float
    deep_per_s: float
    delay: float
    lost_per_s: float
    stale_per_s: float


@dataclass(frozen=True, slots=True)
class _Way:
    """A way through training that a deep failure may cut off.

    Attributes:
        cut: Chance that one does; both, since either may be too near to 1 to give the other.
    """

    through: float
    cut: float
    mean_s: float

    def then(self, after: "_Way") -> "_Way":
        """This way, and another where this one is not cut off."""
        return _Way(
            self.through * after.through,
            self.cut + self.through * after.cut,
            self.mean_s + self.through * after.mean_s,
        )

    def times(self, n: int) -> "_Way":
        """This way n times in a row."""
        if self.cut == 0 or n == 0:
            return _Way(1.0, 0.0, n * self.mean_s if n else 0.0)
        if self.through == 0:
            return self
        log_through = math.log1p(-self.cut) if self.cut < 0.5 else math.log(self.through)
        cut = -math.expm1(n * log_through)
        return _Way(math.exp(n * log_through), cut, self.mean_s * cut / self.cut)


def levels_ettr(at: Levels) -> float:
    """ETTR of a long run: work kept over wall-clock time.

    With light failures only this is the exact form of `ettr.plan.renewal`.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    return _ettr(at, _folded(at))


def ettr_by_interval(at: Levels) -> Callable[[float, int], float]:
    """ETTR of `at` by its interval and its light checkpoints per durable one.

    The failures are the same at every interval and are folded once: several times faster than
    `levels_ettr` at each.
    """
    failures = _folded(at)

    def ettr(interval_s: float, n_light_per_durable: int) -> float:
        moved = Levels(
            interval_s,
            at.stall_s,
            at.slowdown,
            at.lag_s,
            n_light_per_durable,
            at.durable_stall_s,
            at.durable_lag_s,
            at.kinds,
            at.queue_s,
        )
        return _ettr(moved, failures)

    return ettr


def _ettr(at: Levels, failures: _Failures) -> float:
    if not math.isfinite(failures.delay):
        return 0.0
    training_s = _block_training_s(at, failures)
    if not math.isfinite(training_s):
        return 0.0
    n = at.n_light_per_durable
    kept_s = n * (at.interval_s - _lost_per_stretch_s(at, failures))
    return max(0.0, kept_s / (failures.delay * training_s))


def _folded(at: Levels) -> _Failures:
    """Failures with their recoveries: each starts again at the next failure, never shallower."""

    def wait_s(kind: FailureKind) -> float:
        return at.queue_s if kind.waits else 0.0

    # a kind that never strikes would only order the others
    kinds = sorted(
        (kind for kind in at.kinds if kind.per_s > 0),
        key=lambda kind: (_DEPTH[kind.level], wait_s(kind) + kind.restart_s),
    )
    total = sum(kind.per_s for kind in kinds)
    lost = stale = 0.0
    # sums over the kinds that come later in the order, each times its rate
    later_per_s = later_s = 0.0
    later = dict.fromkeys(RecoveryLevel, 0.0)
    for kind in reversed(kinds):
        ends = math.exp(-total * kind.restart_s)
        fails = -math.expm1(-total * kind.restart_s)
        same_per_s = total - later_per_s
        left = (later_per_s + same_per_s * ends) / total
        if left <= 0:
            # it fails again before it ends, to the precision of a float
            return _Failures(0.0, 0.0, math.inf, 0.0, 0.0)
        mean_s = (wait_s(kind) + fails / total + fails * later_s / total) / left
        ends_at = {
            level: (ends * (level is kind.level) + fails * later_per_level / total) / left
            for level, later_per_level in later.items()
        }
        lost += kind.per_s * ends_at[RecoveryLevel.SOFT] * kind.lost_s
        stale += kind.per_s * ends_at[RecoveryLevel.SOFT] * kind.lost_staleness_share
        later_per_s += kind.per_s
        later_s += kind.per_s * mean_s
        for level, share in ends_at.items():
            later[level] += kind.per_s * share
    return _Failures(
        later[RecoveryLevel.LIGHT], later[RecoveryLevel.DEEP], 1.0 + later_s, lost, stale
    )


def _once(failures: _Failures, way_s: float) -> tuple[float, float, float, float]:
    """Chances to get through a way, to go back before, and to be cut off; mean time until any."""
    total = failures.light_per_s + failures.deep_per_s
    load = total * way_s
    if load < 1e-300:
        return 1.0, 0.0, 0.0, way_s
    stops = -math.expm1(-load)
    return (
        math.exp(-load),
        stops * failures.light_per_s / total,
        stops * failures.deep_per_s / total,
        stops / total,
    )


def _stretch(failures: _Failures, first_s: float, again_s: float) -> _Way:
    """Work up to a light checkpoint: `first_s`, or `again_s` after each light failure."""
    done, back, cut, mean_s = _once(failures, again_s)
    left = done + cut
    if left <= 0:
        return _Way(0.0, 0.0, math.inf)
    again = _Way(done / left, cut / left, mean_s / left)
    if first_s == again_s:
        return again
    done, back, cut, mean_s = _once(failures, first_s)
    return _Way(done + back * again.through, cut + back * again.cut, mean_s + back * again.mean_s)


def _block_training_s(at: Levels, failures: _Failures) -> float:
    """Mean training time from one usable durable checkpoint to the next."""
    n, length_s = at.n_light_per_durable, at.length_s
    steady = _stretch(failures, length_s, length_s + at.lag_s)
    if failures.deep_per_s == 0:
        return n * steady.mean_s
    # a durable checkpoint can be used so many stretches and this part of one after a light one can
    after_s = max(0.0, at.durable_lag_s - at.lag_s)
    whole = math.floor(after_s / length_s)
    part_s = after_s - whole * length_s
    again_s = length_s + at.lag_s
    fresh = _stretch(failures, again_s, again_s)
    ending = _stretch(failures, part_s, at.lag_s + part_s)
    beginning = _stretch(failures, length_s - part_s, again_s)
    if part_s == 0:
        straight, restored = steady.times(n), fresh.then(steady.times(n - 1 + whole))
    else:
        straight = beginning.then(steady.times(n - 1)).then(ending)
        restored = fresh.then(steady.times(n - 1 + whole)).then(ending)
    if restored.through <= 0:
        return math.inf
    return straight.mean_s + straight.cut * restored.mean_s / restored.through


def _lost_per_stretch_s(at: Levels, failures: _Failures) -> float:
    """Work to be made good after soft failures, in each stretch that is kept."""
    length_s = at.length_s
    kept = math.exp(-failures.light_per_s * length_s)
    overlap = at.lag_s / length_s
    # so many checkpoints are under way, or one more for `part` of the time
    whole = math.floor(overlap)
    part = overlap - whole

    def behind(n: int) -> float:
        """Checkpoints further back than the newest one taken, where n are not yet usable."""
        lost = -math.expm1(-failures.light_per_s * length_s)
        if lost * n < 1e-9:
            return float(n)
        return kept * (1.0 - kept**n) / lost

    behind_mean = (1.0 - part) * behind(whole) + part * behind(whole + 1)
    stale_s = at.interval_s * (0.5 + behind_mean)
    return length_s * (failures.lost_per_s + failures.stale_per_s * stale_s)


def golden_section(of: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """Where a function with one peak is largest between two ends, after so many steps."""
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = of(left), of(right)
    for _ in range(steps):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = of(right)
    return (low + high) / 2.0


def best_interval(
    ettr_at: Callable[[float], float], lowest_s: float, highest_s: float
) -> tuple[float, float]:
    """The interval between two bounds with the highest ETTR, and that ETTR.

    The search is over the logarithm of the interval, on a coarse grid and then by golden section.
    """

    def ettr(log_s: float) -> float:
        return ettr_at(math.exp(log_s))

    low, high = math.log(lowest_s), math.log(max(highest_s, lowest_s))
    grid = [low + (high - low) * i / 24 for i in range(25)]
    at_grid = [ettr(log_s) for log_s in grid]
    peak = max(range(25), key=at_grid.__getitem__)
    middle = golden_section(ettr, grid[max(peak - 1, 0)], grid[min(peak + 1, 24)], 40)
    best = middle if ettr(middle) > at_grid[peak] else grid[peak]
    return math.exp(best), ettr(best)
