"""Exact expected ETTR where failures of different kinds cost different things.

A failure is one of three kinds. *Soft*: training goes on where it was, after a delay in which some
work may be repeated. *Light*: training goes back to the last light checkpoint. *Deep*: it goes back
to the last durable checkpoint, taken every n light ones. Every kind may strike at any time that the
run holds its nodes, in the recovery from another too; recovery then starts again at the deeper of
the two levels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Levels:
    """A run under three kinds of failure.

    Attributes:
        interval_s: Productive time between light checkpoints.
        stall_s: Training stops so long for each of them.
        slowdown: Share by which training is slower all the time.
        lag_s: From the stall of a light checkpoint until it can be used.
        n_light_per_durable: Light checkpoints from one durable one to the next.
        durable_stall_s: Training stops so long for each durable one.
        durable_lag_s: From its stall until it can be used.
        soft_per_s, light_per_s, deep_per_s: Rates of the three kinds, of the whole run.
        soft_s: From a soft failure until the work lost is made good, waits not counted.
        light_restart_s, deep_restart_s: From the start of an attempt until it trains.
        queue_s: Mean wait after each failure.
    """

    interval_s: float
    stall_s: float = 0.0
    slowdown: float = 0.0
    lag_s: float = 0.0
    n_light_per_durable: float = 1.0
    durable_stall_s: float = 0.0
    durable_lag_s: float = 0.0
    soft_per_s: float = 0.0
    light_per_s: float = 0.0
    deep_per_s: float = 0.0
    soft_s: float = 0.0
    light_restart_s: float = 0.0
    deep_restart_s: float = 0.0
    queue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Recovery:
    """Mean time until training goes on or the level deepens, and the chance of each deepening."""

    mean_s: float
    to_light: float
    to_deep: float


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of work: chance to finish it before a deep failure, and mean time until either."""

    finishes: float
    mean_s: float


def levels_ettr(at: Levels) -> float:
    """ETTR of a long run under three kinds of failure.

    With light failures only, and n = 1, this is the exact form of `ettr.plan.renewal`.

    **Source**: derived in docs/explanation/checkpoint-schemes.md.
    """
    soft = _recovery(at, at.soft_s, at.soft_per_s)
    light = _recovery(at, at.light_restart_s, at.soft_per_s + at.light_per_s, reset=True)
    to_light_per_s = at.light_per_s + at.soft_per_s * soft.to_light
    if _never_ends(soft, at.soft_per_s) or _never_ends(light, to_light_per_s):
        return 0.0
    length_s = at.interval_s * (1.0 + at.slowdown) + at.stall_s
    length_s += at.durable_stall_s / at.n_light_per_durable
    stretch = _stretch(at, soft, light, length_s)
    n = at.n_light_per_durable
    productive_s = n * at.interval_s
    fails = 1.0 - stretch.finishes
    if fails <= 1e-15:
        return productive_s / (n * stretch.mean_s)
    # mean time of n stretches until done or a deep failure, then from the durable checkpoint again
    done = math.pow(stretch.finishes, n)
    again = n + at.durable_lag_s / length_s
    log_again = again * math.log(stretch.finishes) if stretch.finishes > 0 else -math.inf
    if log_again < -600.0:
        return 0.0
    deep_s = _until_through(at)
    retry_s = math.expm1(-log_again) * (stretch.mean_s / fails + deep_s)
    block_s = stretch.mean_s * (1.0 - done) / fails + (1.0 - done) * (deep_s + retry_s)
    return productive_s / block_s


def _recovery(at: Levels, length_s: float, same_per_s: float, *, reset: bool = False) -> _Recovery:
    """A recovery that failures of rate `same_per_s` start again and deeper ones cut off."""
    total = at.soft_per_s + at.light_per_s + at.deep_per_s
    if total == 0:
        return _Recovery(at.queue_s + length_s, 0.0, 0.0)
    fails = -math.expm1(-total * length_s)
    left = (total - same_per_s + same_per_s * math.exp(-total * length_s)) / total
    if left <= 0:
        # it fails again before it ends, to the precision of a float
        return _Recovery(math.inf, 0.0, 0.0)
    tries = 1.0 / left
    to_light = 0.0 if reset else tries * fails * at.light_per_s / total
    return _Recovery(
        tries * (at.queue_s + fails / total), to_light, tries * fails * at.deep_per_s / total
    )


def _never_ends(recovery: _Recovery, per_s: float) -> bool:
    """Whether failures of this rate meet a recovery that does not end."""
    return per_s > 0 and math.isinf(recovery.mean_s)


def _until_through(at: Levels) -> float:
    """Mean time of a deep recovery, which any failure starts again."""
    total = at.soft_per_s + at.light_per_s + at.deep_per_s
    load = total * at.deep_restart_s
    if load > 600.0:
        return math.inf
    held_s = math.expm1(load) / total if total else at.deep_restart_s
    return at.queue_s * math.exp(load) + held_s


def _stretch(at: Levels, soft: _Recovery, light: _Recovery, length_s: float) -> _Stretch:
    """Work between two light checkpoints, first from where it runs, then from the one before.

    A light checkpoint that is usable only after a lag costs a longer way the second time.
    """
    light_per_s = at.light_per_s + at.soft_per_s * soft.to_light
    deep_per_s = at.deep_per_s + at.soft_per_s * soft.to_deep
    total = light_per_s + deep_per_s
    delay = 1.0 + at.soft_per_s * soft.mean_s
    if total == 0:
        return _Stretch(1.0, delay * length_s)

    def once(way_s: float) -> tuple[float, float, float]:
        stops = -math.expm1(-total * way_s)
        return 1.0 - stops, stops * light_per_s / total, delay * stops / total

    goes_on = 1.0 - light.to_deep
    done, back, run_s = once(length_s + at.lag_s)
    loops = 1.0 - back * goes_on
    again = done / loops if loops > 0 else 0.0
    again_s = (run_s + back * light.mean_s) / loops if loops > 0 else math.inf
    if at.lag_s == 0:
        return _Stretch(again, again_s)
    done, back, run_s = once(length_s)
    return _Stretch(
        done + back * goes_on * again, run_s + back * (light.mean_s + goes_on * again_s)
    )


def best_levels(
    at_interval: Callable[[float], Levels], lowest_s: float, highest_s: float
) -> tuple[float, float]:
    """The interval between two bounds with the highest ETTR, and that ETTR.

    The search is over the logarithm of the interval, on a coarse grid and then by golden section.

    Args:
        at_interval: The run at an interval in seconds.
        lowest_s: Shortest interval to try.
        highest_s: Longest; the shortest is tried where it is longer than this.
    """

    def ettr(log_s: float) -> float:
        return levels_ettr(at_interval(math.exp(log_s)))

    low, high = math.log(lowest_s), math.log(max(highest_s, lowest_s))
    grid = [low + (high - low) * i / 24 for i in range(25)]
    peak = max(range(25), key=lambda i: ettr(grid[i]))
    low, high = grid[max(peak - 1, 0)], grid[min(peak + 1, 24)]
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(40):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if ettr(left) >= ettr(right):
            high = right
        else:
            low = left
    best = max((grid[peak], (low + high) / 2.0), key=ettr)
    return math.exp(best), ettr(best)
