"""Failure rate that steps: constant between change points, and the change points found."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import poisson_interval
from ettr.models.base import FailureModel, Fit, Parameter, age_test, verdict
from ettr.models.data import Floats, Lifetimes, at_risk
from ettr.units import SECONDS_PER_DAY

_CANDIDATES = 300
"""Places where the rate may step: enough to see each step, few enough for the exact search."""


@dataclass(frozen=True, slots=True)
class PiecewiseConstant(FailureModel[Lifetimes]):
    """A rate that is constant between a few change points of the clock.

    The clock is age, or the calendar: give spans whose `entry_s` and `duration_s` count from one
    common moment, and the steps are dates (a driver upgrade, a new health check).

    Attributes:
        most_steps: Largest number of change points.

    Source:
        Jackson et al. (2005), IEEE Signal Processing Letters 12, for the exact search; Zhang and
        Siegmund (2007), Biometrics 63, for what a change point must gain.
    """

    most_steps: int = 8

    name = "piecewise constant"

    def fit(self, data: Lifetimes, confidence: float = CONFIDENCE) -> Fit:
        """The change points, and the rate between them with exact intervals given the points."""
        rate = data.rate
        edges_s, counts, exposure_s = _grid(data)
        cuts = _search(counts, exposure_s, self.most_steps, data.failures)
        starts = [0, *cuts, counts.size]
        parameters, rates, levels = [], [], []
        likelihood = 0.0
        for i, (a, b) in enumerate(pairwise(starts)):
            n, days = int(counts[a:b].sum()), float(exposure_s[a:b].sum()) / SECONDS_PER_DAY
            least, most = (end / days for end in poisson_interval(n, confidence))
            interval = Interval(n / days, least, most)
            parameters.append(Parameter.of(f"rate {i + 1}", "per node-day", interval))
            rates.append(n / days / SECONDS_PER_DAY)
            levels.append(f"{n / days:.3g}")
            likelihood += n * math.log(n / days / SECONDS_PER_DAY) - n if n else 0.0
        steps_s = [float(edges_s[cut]) for cut in cuts]
        for i, cut in enumerate(cuts):
            a, b = starts[i], starts[i + 2]
            ends = _place(counts[a:b], exposure_s[a:b], edges_s[a : b + 1], confidence)
            interval = Interval(float(edges_s[cut]), *ends)
            parameters.append(Parameter.of(f"step {i + 1}", "s", interval))
        hazard = _Steps(np.array([0.0, *steps_s]), np.array(rates))
        n_parameters = 1 + 2 * len(cuts)
        goodness = age_test(data, hazard, n_parameters)
        days_text = ", ".join(f"{step / SECONDS_PER_DAY:,.1f}" for step in steps_s)
        return Fit(
            model=self.name,
            parameters=tuple(parameters),
            rate=rate,
            rate_per_node_day=rate.interval(confidence),
            log_likelihood=likelihood if data.failures else None,
            n_parameters=n_parameters,
            goodness=goodness,
            meaning=(
                f"The rate steps at day {days_text}: {' then '.join(levels)} per node-day; "
                f"{verdict(goodness)}."
                if cuts
                else f"No step of the rate is shown; {verdict(goodness)}."
            ),
            assumptions=(
                "a constant rate between change points",
                "failures independent of each other",
                "intervals of the rates take the change points as given",
            ),
            confidence=confidence,
            cumulative_hazard=hazard,
        )


@dataclass(frozen=True, slots=True)
class _Steps:
    """Cumulative hazard of a stepped rate; the last rate goes on."""

    start_s: Floats
    rate_per_s: Floats

    def __call__(self, clock_s: Floats) -> Floats:
        past = np.concatenate(([0.0], np.cumsum(np.diff(self.start_s) * self.rate_per_s[:-1])))
        piece = np.searchsorted(self.start_s, clock_s, side="right") - 1
        result: Floats = past[piece] + (clock_s - self.start_s[piece]) * self.rate_per_s[piece]
        return result


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
    from scipy.special import xlogy

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(exposure > 0, xlogy(n, n / exposure), np.where(n > 0, -np.inf, 0.0))


def _search(counts: NDArray[np.int64], exposure_s: Floats, most: int, failures: int) -> list[int]:
    """Cells at which a new rate begins: the best partition, each cut worth its penalty."""
    if failures < 2 or counts.size < 2:
        return []
    size = counts.size
    n = np.concatenate(([0.0], np.cumsum(counts)))
    time = np.concatenate(([0.0], np.cumsum(exposure_s)))
    penalty = max(6.0, 1.5 * math.log(failures))
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
    counts: NDArray[np.int64], exposure_s: Floats, edges_s: Floats, confidence: float
) -> tuple[float, float]:
    """Places of one step, between its neighbours, that the likelihood does not rule out."""
    n, time = np.cumsum(counts).astype(np.float64), np.cumsum(exposure_s)
    value = _gain(n[:-1], time[:-1]) + _gain(n[-1] - n[:-1], time[-1] - time[:-1])
    # the place of a jump is not regular: the drop of Hinkley's law replaces the chi-square one
    keep = np.flatnonzero(value >= value.max() + math.log((1.0 - confidence) / 2.0))
    # a step may lie anywhere between the failures that bound its cell
    return float(edges_s[keep[0]]), float(edges_s[keep[-1] + 2])
