"""Failure rate that steps: constant between change points, and the change points found."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import SUSPECT, Spread
from ettr.models.base import (
    FEW_FAILURES,
    FailureModel,
    Fit,
    Parameter,
    age_test,
    checked_values,
    chi_square_tail,
    verdict,
)
from ettr.models.data import Floats, LifeLaw, Lifetimes, at_risk
from ettr.models.dispersion import WINDOWS_DAYS
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant

_CANDIDATES = 300
"""Places where the rate may step: enough to see each step, few enough for the exact search."""
LEAST_NEIGHBOURS = 24
"""Windows at least, so that the two pairs around a step weigh little among the others."""
BURST_DAYS = 7.0
LEAST_OF_BURSTS = 12
"""The same of windows up to a week, since shorter ones cut bursts that last for days."""
MOST_WINDOWS = 20_000
"""Windows on the clock at most; shorter ones than these leave are not tried."""


@dataclass(frozen=True, slots=True)
class SteppedLife(LifeLaw):
    """A hazard that is constant between steps; the last rate goes on.

    Attributes:
        steps_s: Ages at which the rate changes, ascending, in seconds.
        per_s: Failures of a node per second before the first step, after it, and so on.
    """

    steps_s: tuple[float, ...]
    per_s: tuple[float, ...]

    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures up to an age in seconds."""
        starts_s = np.array([0.0, *self.steps_s])
        return _stepped_hazard(starts_s, np.array(self.per_s))(clock_s)

    def clock_at(self, hazard: Floats) -> Floats:
        """The age in seconds at which the cumulative hazard reaches a value."""
        starts_s, per_s = np.array([0.0, *self.steps_s]), np.array(self.per_s)
        past = np.concatenate(([0.0], np.cumsum(np.diff(starts_s) * per_s[:-1])))
        # at a step it is reached before it: in a piece without failures it never grows
        piece = np.maximum(np.searchsorted(past, hazard, side="left") - 1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            within_s = (hazard - past[piece]) / per_s[piece]
        return starts_s[piece] + np.where(hazard <= past[piece], 0.0, within_s)


@dataclass(frozen=True, slots=True)
class PiecewiseConstant(FailureModel[Lifetimes]):
    """A rate that is constant between a few change points of the clock.

    The clock is age, or the calendar: give spans whose `entry_s` and `duration_s` count from one
    common moment, and the steps are dates (a driver upgrade, a new health check).

    A step must gain as many times more likelihood as failures vary more than independent ones do
    between neighbouring windows: a burst is no step.

    Source:
        Jackson et al. (2005), IEEE Signal Processing Letters 12, for the exact search; Zhang and
        Siegmund (2007), Biometrics 63, for what a change point must gain; McCullagh and Nelder
        (1989), section 9.2, for likelihoods of over-dispersed counts.
    """

    most_steps: int = 8

    name = "piecewise constant"

    def fit(self, data: Lifetimes, confidence: float = CONFIDENCE) -> Fit:
        """The change points, and the rate between them with exact intervals given the points."""
        rate = data.rate
        edges_s, counts, exposure_s = _grid(data)
        local = local_spread(data)
        cuts = _search(counts, exposure_s, self.most_steps, data.failures, local.index)
        starts = [0, *cuts, counts.size]
        pieces = [
            FailureRate(int(counts[a:b].sum()), float(exposure_s[a:b].sum()) / SECONDS_PER_DAY)
            for a, b in pairwise(starts)
        ]
        steps = [
            Interval(
                float(edges_s[at]),
                *_place(counts[a:b], exposure_s[a:b], edges_s[a : b + 1], confidence, local.index),
            )
            for a, at, b in zip(starts, cuts, starts[2:], strict=False)
        ]
        steps_s = [float(edges_s[cut]) for cut in cuts]
        per_day = [piece.failures / piece.node_days for piece in pieces]
        hazard = _stepped_hazard(np.array([0.0, *steps_s]), np.array(per_day) / SECONDS_PER_DAY)
        n_parameters = 1 + 2 * len(cuts)
        goodness = age_test(data, hazard, n_parameters)
        return Fit(
            model=self.name,
            parameters=(
                *_named("rate", "per node-day", [local.interval(p, confidence) for p in pieces]),
                *_named("step", "s", steps),
            ),
            rate=rate,
            rate_per_node_day=rate.interval(confidence),
            log_likelihood=sum(map(_log_likelihood, pieces)) if data.failures else None,
            n_parameters=n_parameters,
            goodness=goodness,
            meaning=f"{_steps_in_words(steps_s, per_day)}; {verdict(goodness)}.",
            assumptions=(
                "a constant rate between change points",
                "failures independent of each other"
                if local.index == 1.0
                else f"failures in bursts: they vary {significant(local.index, 2)} times as much "
                "between "
                "neighbouring windows as independent ones",
                "intervals of the rates take the change points as given",
            ),
            confidence=confidence,
            cumulative_hazard=hazard,
        )

    def law_of(self, values: Mapping[str, float]) -> SteppedLife:
        """The law by `rate 1`, `rate 2`, ... per node-day, and `step 1`, ... in seconds."""
        n_steps = sum(name.startswith("step ") for name in values)
        names = (
            *(f"rate {i}" for i in range(1, n_steps + 2)),
            *(f"step {i}" for i in range(1, n_steps + 1)),
        )
        known = checked_values(self.name, values, names, may_be_zero=True)
        steps_s = known[n_steps + 1 :]
        if any(later <= earlier for earlier, later in pairwise((0.0, *steps_s))):
            raise UsageError(
                f"not a {self.name} law: steps at {', '.join(f'{s:g}' for s in steps_s)} s; give "
                "them above 0 and ascending"
            )
        return SteppedLife(steps_s, tuple(r / SECONDS_PER_DAY for r in known[: n_steps + 1]))


def _named(name: str, unit: str, intervals: Iterable[Interval]) -> Iterator[Parameter]:
    """Parameters of one kind, numbered from 1."""
    for place, interval in enumerate(intervals, 1):
        yield Parameter.of(f"{name} {place}", unit, interval)


def _steps_in_words(steps_s: Sequence[float], per_day: Sequence[float]) -> str:
    if not steps_s:
        return "No step of the rate is shown"
    days = ", ".join(f"{step_s / SECONDS_PER_DAY:,.1f}" for step_s in steps_s)
    levels = " then ".join(significant(level) for level in per_day)
    return f"The rate steps at day {days}: {levels} per node-day"


def _log_likelihood(piece: FailureRate) -> float:
    """Of the failures of a piece at its own rate, per second."""
    n = piece.failures
    return n * math.log(n / piece.node_days / SECONDS_PER_DAY) - n if n else 0.0


def local_spread(data: Lifetimes) -> Spread:
    """Spread of failures between neighbouring windows of the clock; index 1 where none shows.

    Of n failures in two neighbouring windows, each falls into the first with the share of its
    exposure, whatever the rate is there: a slow change or a step elsewhere does not count.

    Source:
        von Neumann (1941), Annals of Mathematical Statistics 12, for successive differences.
    """
    ages_s = data.duration_s[data.observed]
    first, last = float(data.entry_s.min()), float(data.duration_s.max())
    if ages_s.size < FEW_FAILURES:
        return Spread("time", int(ages_s.size), 0, None, 1.0, 0.0, None)
    tried: list[Spread] = []
    for days in WINDOWS_DAYS:
        windows = int((last - first) / (days * SECONDS_PER_DAY) + 1e-9)
        least = LEAST_OF_BURSTS if days <= BURST_DAYS else LEAST_NEIGHBOURS
        if not least <= windows <= MOST_WINDOWS:
            continue
        edges = np.linspace(first, last, windows + 1)
        counts = np.histogram(ages_s, edges)[0].astype(np.float64)
        exposure = np.diff(at_risk(data.entry_s, data.duration_s, edges))
        tried.append(_neighbours(counts, exposure, days))
    known = [one for one in tried if one.p_value is not None]
    if not known:
        return Spread("time", int(ages_s.size), 0, None, 1.0, 0.0, None)
    p_value = min(1.0, len(known) * min(one.p_value for one in known if one.p_value is not None))
    widest = max(known, key=lambda one: one.index)
    index = max(1.0, widest.index) if p_value < SUSPECT else 1.0
    return replace(widest, index=index, p_value=p_value)


def _neighbours(counts: Floats, exposure: Floats, window_days: float) -> Spread:
    both = counts[:-1] + counts[1:]
    shared = exposure[:-1] + exposure[1:]
    used = (both > 0) & (exposure[:-1] > 0) & (exposure[1:] > 0)
    pairs = int(np.count_nonzero(used))
    if not pairs:
        return Spread("time", int(counts.sum()), counts.size, window_days, 1.0, 0.0, None)
    share = exposure[:-1][used] / shared[used]
    excess = (counts[:-1][used] - both[used] * share) ** 2
    variance = both[used] * share * (1.0 - share)
    index = float(excess.sum() / variance.sum())
    # a window takes part in two pairs; successive differences are worth two thirds of their number
    degrees = min(2.0 / 3.0 * pairs, float(counts.sum()) ** 2 / float(np.sum(counts**2)))
    p_value = chi_square_tail(float(np.sum(excess / variance)) * 2.0 / 3.0, 2.0 / 3.0 * pairs)
    return Spread("time", int(counts.sum()), counts.size, window_days, index, degrees, p_value)


def _stepped_hazard(start_s: Floats, rate_per_s: Floats) -> Callable[[Floats], Floats]:
    """Cumulative hazard of a stepped rate; the last rate goes on."""
    past = np.concatenate(([0.0], np.cumsum(np.diff(start_s) * rate_per_s[:-1])))

    def cumulative_hazard(clock_s: Floats) -> Floats:
        piece = np.searchsorted(start_s, clock_s, side="right") - 1
        result: Floats = past[piece] + (clock_s - start_s[piece]) * rate_per_s[piece]
        return result

    return cumulative_hazard


def _grid(data: Lifetimes) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Edges of the cells that may be joined, failures in each and time at risk in each."""
    ages = np.sort(data.duration_s[data.observed])
    first, last = float(data.entry_s.min()), float(data.duration_s.max())
    inner = np.unique(ages)
    if inner.size > _CANDIDATES:
        inner = np.unique(np.quantile(ages, np.linspace(0.0, 1.0, _CANDIDATES)))
    middle = (inner[:-1] + inner[1:]) / 2.0
    edges: Floats = np.concatenate(([first], middle, [last]))
    counts = np.diff(np.searchsorted(ages, edges, side="right"))
    counts[0] += np.count_nonzero(ages <= first)
    return edges, counts.astype(np.int64), np.diff(at_risk(data.entry_s, data.duration_s, edges))


def _gain(n: Floats, exposure: Floats) -> Floats:
    """Log-likelihood of cells joined at one rate, up to a constant of the data."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(exposure > 0, special.xlogy(n, n / exposure), np.where(n > 0, -np.inf, 0.0))


def _search(
    counts: NDArray[np.int64], exposure_s: Floats, most: int, failures: int, index: float
) -> list[int]:
    """Cells at which a new rate begins: the best partition, each cut worth its penalty."""
    if failures < 2 or counts.size < 2:
        return []
    size = counts.size
    n = np.concatenate(([0.0], np.cumsum(counts)))
    time = np.concatenate(([0.0], np.cumsum(exposure_s)))
    penalty = max(6.0, 1.5 * math.log(failures)) * index
    best = np.full((most + 1, size + 1), -np.inf)
    back = np.zeros((most + 1, size + 1), dtype=np.int64)
    best[0] = _gain(n, time)
    gain = _gain(n[None, :] - n[:, None], time[None, :] - time[:, None])
    gain[np.tril_indices(size + 1)] = -np.inf  # a piece ends after it begins
    for k in range(1, most + 1):
        value = best[k - 1][:, None] + gain
        back[k] = np.argmax(value, axis=0)
        best[k] = value.max(axis=0)
        if best[k, size] - best[k - 1, size] < penalty / 2.0:
            break
    scores = best[:, size] - penalty * np.arange(most + 1)
    k, end, cuts = int(np.argmax(scores)), size, []
    while k:
        end = int(back[k, end])
        cuts.append(end)
        k -= 1
    return cuts[::-1]


def _place(
    counts: NDArray[np.int64], exposure_s: Floats, edges_s: Floats, confidence: float, index: float
) -> tuple[float, float]:
    """Places of one step, between its neighbours, that the likelihood does not rule out."""
    n, time = np.cumsum(counts).astype(np.float64), np.cumsum(exposure_s)
    value = _gain(n[:-1], time[:-1]) + _gain(n[-1] - n[:-1], time[-1] - time[:-1])
    # the place of a jump is not regular: the drop of Hinkley's law replaces the chi-square one
    keep = np.flatnonzero(value >= value.max() + index * math.log((1.0 - confidence) / 2.0))
    # a step may lie anywhere between the failures that bound its cell
    return float(edges_s[keep[0]]), float(edges_s[keep[-1] + 2])
