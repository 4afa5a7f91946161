"""Whether failures burn a budget: a cumulative sum whose false-alarm rate is computed, not hoped.

The sum gains 1 at each failure and sinks with the failures that the budget expects meanwhile; it
never sinks below 0. At its threshold an alert begins, and ends when the sum is back at 0. No test
of that false-alarm rate finds a doubled rate sooner.

Source:
    Page (1954), Biometrika 41; Moustakides (1986), Annals of Statistics 14, for the optimum; Brook
    and Evans (1972), Biometrika 59, for run lengths from a Markov chain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]

RATIO = 2.0
"""The rate, as a multiple of the budget, that the sum is made to find."""
SINKS = (RATIO - 1.0) / math.log(RATIO)
"""What the sum loses while the budget expects one failure."""
_MOST_CELLS, _LEAST_PER_FAILURE, _MOST_PER_FAILURE = 320, 2, 24
_HIGHEST = 320.0


@dataclass(frozen=True, slots=True)
class BurnRule:
    """When the sum of a budget raises an alert.

    Attributes:
        threshold: Of the sum, in failures.
        false_alarms: Per failure that the budget expects, where the rate is just the budget's.
        dispersion: How many times the failures vary as much as independent ones.
    """

    threshold: float
    false_alarms: float
    dispersion: float


@dataclass(frozen=True, slots=True)
class BurnAlert:
    """From where to where an alert lasted, in failures that the budget expected until then.

    Attributes:
        until: None while it goes on.
    """

    since: float
    until: float | None


@dataclass(frozen=True, slots=True)
class Burn:
    """The alerts of a history, and the sum at its end as a share of the threshold."""

    alerts: tuple[BurnAlert, ...]
    level: float


@lru_cache(maxsize=256)
def burn_rule(false_alarms: float, dispersion: float = 1.0) -> BurnRule:
    """The lowest threshold with at most so many false alarms per expected failure.

    Args:
        dispersion: Failures come in clusters whose sizes are geometric, with this variance of a
            count over its mean (Pólya-Aeppli); 1 for independent ones.
    """
    phi = max(1.0, dispersion)
    low, high = 0.0, 2.0 * phi
    while _false_alarms(high, phi) > false_alarms and high < _HIGHEST * phi:
        low, high = high, 2.0 * high
    per = _cells_per_failure(high)
    least, most = math.floor(low * per), math.ceil(high * per)
    while most - least > 1:
        middle = (least + most) // 2
        if _false_alarms_of(middle, per, phi) > false_alarms:
            least = middle
        else:
            most = middle
    return BurnRule(most / per, _false_alarms_of(most, per, phi), phi)


def dispersion_of_losses(
    dispersion: float, times_s: Floats, losses: Floats, edges_s: Floats, allowed: Floats
) -> float:
    """How many times losses vary as much as those of independent failures of the same sizes.

    As much as their counts do where a burst takes jobs of one size, else less: by the pairs of
    failures of a week that are there beyond chance, and the losses of those pairs.

    Args:
        dispersion: Of the counts.
        allowed: What the budget allowed until each edge.
    """
    n, total, squares = len(losses), float(losses.sum()), float((losses**2).sum())
    weeks = int((edges_s[-1] - edges_s[0]) / (7.0 * SECONDS_PER_DAY))
    if dispersion <= 1.0 or weeks < 2 or not total:
        return dispersion
    marks = np.linspace(edges_s[0], edges_s[-1], weeks + 1)
    shares = np.diff(np.interp(marks, edges_s, allowed)) / allowed[-1]
    pairs = ((np.histogram(times_s, marks)[0] - n * shares) ** 2).sum() - n
    sums = np.histogram(times_s, marks, weights=losses)[0]
    of_pairs = ((sums - total * shares) ** 2).sum() - squares
    if pairs <= 0.0:
        return dispersion
    alike = of_pairs / pairs * n / squares
    share = min(1.0, max(total**2 / n / squares, float(alike)))
    return round(1.0 + share * (dispersion - 1.0), 2)


def _cells_per_failure(threshold: float) -> int:
    fits = int(_MOST_CELLS / threshold)
    return max(_LEAST_PER_FAILURE, min(_MOST_PER_FAILURE, fits))


def _false_alarms(threshold: float, phi: float) -> float:
    per = _cells_per_failure(threshold)
    return _false_alarms_of(math.ceil(threshold * per), per, phi)


@lru_cache(maxsize=512)
def _false_alarms_of(n_cells: int, per: int, phi: float) -> float:
    """Alarms per expected failure: one a cycle, from 0 up to the threshold and back to 0.

    The sum is a multiple of 1/per; in a step it loses one cell, then gains `per` a failure.
    """
    step = 1.0 / (per * SINKS)
    most = n_cells // per + 2
    chances = _counts(step, phi, most)
    rise = np.zeros((n_cells, n_cells))
    places = np.arange(n_cells)
    lower = np.maximum(places - 1, 0)
    for count, chance in enumerate(chances):
        to = lower + count * per
        inside = to < n_cells
        rise[places[inside], to[inside]] += chance
    up = np.linalg.solve(np.eye(n_cells) - rise, np.full(n_cells, step))[0]
    # back from the threshold, which holds the sum, until it is 0: states 1 to n_cells
    fall = np.zeros((n_cells, n_cells))
    for count, chance in enumerate(chances):
        to = np.minimum(places + count * per, n_cells)
        inside = to > 0
        fall[places[inside], to[inside] - 1] += chance
    rest = 1.0 - chances.sum()
    fall[:, -1] += rest
    down = np.linalg.solve(np.eye(n_cells) - fall, np.full(n_cells, step))[-1]
    return float(1.0 / (up + down))


def _counts(mean: float, phi: float, most: int) -> NDArray[np.float64]:
    """Probabilities of 0, 1, ... failures where `mean` are expected, by Panjer's recursion."""
    size = (phi + 1.0) / 2.0  # mean of a cluster
    clusters, again = mean / size, 1.0 - 1.0 / size
    sizes = np.array([0.0] + [again ** (k - 1) / size for k in range(1, most + 1)])
    chances = np.zeros(most + 1)
    chances[0] = math.exp(-clusters)
    for n in range(1, most + 1):
        k = np.arange(1, n + 1)
        chances[n] = clusters / n * float((k * sizes[k] * chances[n - k]).sum())
    return chances


def burn(
    expected: Sequence[float] | NDArray[Any],
    end: float,
    rule: BurnRule,
    weights: Sequence[float] | None = None,
) -> Burn:
    """The alerts of a history.

    Args:
        expected: How many failures the budget expected until each failure, in order.
        end: The same until the end of the history.
        weights: What each failure adds; 1 where None.
    """
    level, before, since = 0.0, 0.0, None
    alerts: list[BurnAlert] = []
    marks = [1.0] * len(expected) if weights is None else list(weights)
    for at, weight in [*zip(map(float, expected), marks, strict=True), (float(end), 0.0)]:
        spent = before + level / SINKS
        if since is not None and spent <= at:
            alerts.append(BurnAlert(since, spent))
            since = None
        level = min(rule.threshold, max(0.0, level - SINKS * (at - before)) + weight)
        if since is None and level >= rule.threshold:
            since = at
        before = at
    if since is not None:
        alerts.append(BurnAlert(since, None))
    return Burn(tuple(alerts), level / rule.threshold)
