"""A run simulated from its description under any failure law."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ettr.plan.renewal import exact_ettr, expected_wallclock_s
from ettr.plan.run import PlannedRun
from ettr.plan.simulated import SimulatedRun
from ettr.plan.wallclock import ENDLESS, QUANTILES
from ettr.projection.failure_laws import FailureLaw

SEED = 1
_DRAWS = 60
_FAILURES_A_DRAW = 500
_RUN_DRAWS = 400
_MOST_FAILURES = 400_000
_FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.8, 4.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """Work kept at some moment of a run, and the moment."""

    productive_s: float
    wallclock_s: float


def progress(run: PlannedRun, failures_s: Sequence[float], horizon_s: float = math.inf) -> Progress:
    """Work that a run keeps under given failures, by its description.

    Each attempt waits, restarts, and trains from the last complete checkpoint; a failure in a write
    loses the interval before it; nothing fails while the run waits. After the last of the failures
    there are no more.

    Args:
        run: A run of finite length ends with its work; the long run ends at the horizon.
        failures_s: Moments of failure on the wall-clock, ascending, in seconds.
        horizon_s: When to stop.
    """
    length_s = run.interval_s + run.write_s
    kept_s, clock_s, place = 0.0, run.queue_s, bisect_right(failures_s, run.queue_s)
    n_failures = len(failures_s)
    while True:
        fails_s = failures_s[place] if place < n_failures else math.inf
        trains_s = clock_s + run.restart_s
        if fails_s > trains_s:
            left_s = run.productive_s - kept_s
            done_s = trains_s + left_s + run.write_s * _writes(left_s, run.interval_s)
            if done_s <= min(fails_s, horizon_s):
                return Progress(run.productive_s, done_s)
            until_s = min(fails_s, horizon_s)
            kept_s += max(0.0, math.floor((until_s - trains_s) / length_s)) * run.interval_s
        if fails_s >= horizon_s:
            return Progress(kept_s, horizon_s)
        clock_s = fails_s + run.queue_s
        place = bisect_right(failures_s, clock_s, place + 1)


def _writes(left_s: float, interval_s: float) -> float:
    return math.inf if math.isinf(left_s) else math.ceil(left_s / interval_s * (1.0 - 1e-12))


def simulated_run(run: PlannedRun, law: FailureLaw, why: str, seed: int = SEED) -> SimulatedRun:
    """A run under a failure law, at the rate of the run.

    The long-run ETTR is that of 60 draws of 500 expected failures each, the intervals are compared
    on the same draws, and a run of finite length is drawn up to 400 times.

    Args:
        run: As planned, at a rate above 0.
        law: Of the failures.
        why: Why the exact form does not hold, a sentence.
        seed: Of the generator.
    """
    rng = np.random.default_rng(seed)
    endless = replace(run, productive_s=math.inf)
    # waiting takes time in which nothing fails: look long enough to see that many failures
    horizon_s = _FAILURES_A_DRAW * (1.0 / run.failures_per_s + run.queue_s + run.restart_s)
    draws = [law.times_s(run.failures_per_s, horizon_s, rng).tolist() for _ in range(_DRAWS)]

    def ettrs(interval_s: float) -> list[float]:
        at = replace(endless, interval_s=interval_s)
        return [progress(at, times, horizon_s).productive_s / horizon_s for times in draws]

    planned = ettrs(run.interval_s)
    tried = {factor: float(np.mean(ettrs(factor * run.interval_s))) for factor in _FACTORS}
    best = max(tried, key=lambda factor: tried[factor])
    mean_s, quantiles = _lengths(run, law, rng)
    return SimulatedRun(
        law=law.words,
        why=why,
        ettr=float(np.mean(planned)),
        ettr_error=float(np.std(planned, ddof=1) / math.sqrt(_DRAWS)),
        exact_ettr=exact_ettr(endless),
        best_interval_s=best * run.interval_s,
        best_ettr=tried[best],
        mean_s=mean_s,
        quantiles=quantiles,
        draws=_DRAWS,
        seed=seed,
    )


def _lengths(
    run: PlannedRun, law: FailureLaw, rng: np.random.Generator
) -> tuple[float | None, tuple[tuple[float, float], ...]]:
    """Mean and quantiles of the wall-clock; None and nothing where they cannot be drawn."""
    if math.isinf(run.productive_s):
        return None, ()
    expected_s = expected_wallclock_s(run)
    if expected_s > ENDLESS * run.productive_s:
        return None, ()
    horizon_s = 4.0 * expected_s + 20.0 / run.failures_per_s
    per_draw = max(1.0, run.failures_per_s * horizon_s)
    n = int(min(_RUN_DRAWS, max(20.0, _MOST_FAILURES / per_draw)))
    lengths = [
        progress(run, law.times_s(run.failures_per_s, horizon_s, rng).tolist()).wallclock_s
        for _ in range(n)
    ]
    return float(np.mean(lengths)), tuple(
        (share, float(np.quantile(lengths, share))) for share in QUANTILES
    )
