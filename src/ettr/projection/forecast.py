"""Failures in the next window of time, with a band, and how well such bands have held.

The level of a fleet drifts and its failures come in bursts, so the forecast forgets at the pace,
and scatters by the index, that have forecast the past of the same fleet best.
"""

import math
from dataclasses import dataclass

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.interval import check_confidence
from ettr.models.data import Counts, Floats

_HALF_LIVES = (math.inf, 26.0, 13.0, 8.0, 4.0, 2.0)
"""Windows after which an old window counts half; infinite for a level that never drifts."""

_ERROR_HALF_LIFE = 26.0
LEAST_WINDOWS = 12
_WARM_UP = 6


@dataclass(frozen=True, slots=True)
class Forecast:
    """Failures in a coming window.

    Attributes:
        index: Variance over mean of past one-window forecasts; the band of a window larger than
            those is wider, by the uncertainty of the level.
    """

    mean: float
    low: int
    high: int
    index: float
    half_life_windows: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Forecasts made at every past window, compared with what came."""

    forecasts: tuple[Forecast, ...]
    seen: tuple[int, ...]
    confidence: float
    share_inside: Interval
    levels: tuple[float, ...]
    held: tuple[float, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class _Law:
    """Negative binomial by mean and variance over mean; Poisson as the index nears 1."""

    mean: float
    index: float

    def quantile(self, share: float) -> int:
        from scipy.stats import nbinom

        p = 1.0 / max(self.index, 1.0 + 1e-6)
        return int(nbinom.ppf(share, self.mean * p / (1.0 - p), p))

    def below(self, count: int) -> float:
        """Probability of fewer, plus half that of exactly so many."""
        from scipy.stats import nbinom

        p = 1.0 / max(self.index, 1.0 + 1e-6)
        size = self.mean * p / (1.0 - p)
        return float(nbinom.cdf(count - 1, size, p) + 0.5 * nbinom.pmf(count, size, p))


def _levels(counts: Floats, exposure: Floats, half_life: float) -> Floats:
    """Rate known before each window and after the last, shape (n + 1,); nan for the first."""
    keep = 0.5 ** (1.0 / half_life)
    level = np.full(counts.size + 1, np.nan)
    failures = weight = 0.0
    for i in range(counts.size):
        failures = keep * failures + counts[i]
        weight = keep * weight + exposure[i]
        # half a failure keeps the level above zero in quiet times (Jeffreys)
        level[i + 1] = (failures + 0.5) / weight
    return level


def _fitted(counts: Floats, exposure: Floats) -> tuple[float, float, float]:
    """Rate, index and half-life that forecast the past best."""
    from scipy.stats import nbinom

    seen, days = counts[_WARM_UP:], exposure[_WARM_UP:]
    weight = 0.5 ** (np.arange(seen.size)[::-1] / _ERROR_HALF_LIFE)
    best = (-math.inf, 0.0, 1.0, math.inf)
    for half_life in _HALF_LIVES:
        level = _levels(counts, exposure, half_life)
        mean = level[_WARM_UP:-1] * days
        index = max(1.0, float(weight @ ((seen - mean) ** 2 / mean)) / float(weight.sum()))
        p = 1.0 / max(index, 1.0 + 1e-6)
        score = float(weight @ nbinom.logpmf(seen, mean * p / (1.0 - p), p))
        if score > best[0]:
            best = (score, float(level[-1]), index, half_life)
    return best[1:]


def _check(counts: Counts) -> tuple[Floats, Floats]:
    if counts.failures.size < LEAST_WINDOWS:
        raise UsageError(
            f"{counts.failures.size} windows are too few to forecast from; give {LEAST_WINDOWS} "
            "or more, oldest first (a shorter window makes more of them)"
        )
    if np.any(counts.exposure_node_days <= 0):
        raise UsageError("a window without exposure has no rate; leave such windows out")
    return counts.failures.astype(np.float64), counts.exposure_node_days


def forecast(
    counts: Counts, node_days: float | None = None, confidence: float = CONFIDENCE
) -> Forecast:
    """Failures in the window after the last one.

    Args:
        counts: Windows of time of one length, oldest first, twelve or more.
        node_days: Exposure of the coming window; the last window's where not given.

    Raises:
        UsageError: too few windows, one without exposure, or a confidence out of range.

    Source:
        Harvey and Fernandes (1989), Journal of Business and Economic Statistics 7, for counts with
        a discounted level.
    """
    check_confidence(confidence)
    seen, exposure = _check(counts)
    return _forecast(seen, exposure, node_days or float(exposure[-1]), confidence)


def _forecast(seen: Floats, exposure: Floats, node_days: float, confidence: float) -> Forecast:
    rate, index, half_life = _fitted(seen, exposure)
    law = _Law(rate * node_days, index + _level_index(exposure, rate, index, half_life, node_days))
    tail = (1.0 - confidence) / 2.0
    return Forecast(
        law.mean, law.quantile(tail), law.quantile(1.0 - tail), index, half_life, confidence
    )


def _level_index(
    exposure: Floats, rate: float, index: float, half_life: float, node_days: float
) -> float:
    """What the uncertain level adds to the index in a window larger than any of the past."""
    beyond = rate * (node_days - float(exposure.max()))
    if beyond <= 0:
        return 0.0
    weight = 0.5 ** (np.arange(exposure.size)[::-1] / half_life)
    behind_level = rate * float(weight @ exposure)
    return index / behind_level * beyond


def rolling_forecasts(counts: Counts, confidence: float = CONFIDENCE) -> Calibration:
    """The forecast as it would have been made before each window from the thirteenth on.

    Nothing after an origin is used at that origin.

    Raises:
        UsageError: fewer than thirteen windows, or one without exposure.
    """
    check_confidence(confidence)
    seen, exposure = _check(counts)
    if seen.size <= LEAST_WINDOWS:
        raise UsageError(
            f"{seen.size} windows leave no forecast to check; give {LEAST_WINDOWS + 1} or more"
        )
    made, place = [], []
    for origin in range(LEAST_WINDOWS, seen.size):
        one = _forecast(seen[:origin], exposure[:origin], float(exposure[origin]), confidence)
        made.append(one)
        place.append(_Law(one.mean, one.index).below(int(seen[origin])))
    came = [int(x) for x in seen[LEAST_WINDOWS:]]
    inside = sum(f.low <= x <= f.high for f, x in zip(made, came, strict=True))
    share = share_interval(inside, len(made))
    levels = tuple(round(0.1 * k, 1) for k in range(1, 10))
    off = np.abs(np.array(place) - 0.5)
    says = (
        f"compatible with {confidence:.0%}"
        if share.contains(confidence)
        else (
            "less often than they should: the bands are too narrow"
            if share.high < confidence
            else "more often than they should: the bands are wider than need be"
        )
    )
    return Calibration(
        tuple(made),
        tuple(came),
        confidence,
        share,
        levels,
        tuple(float(np.mean(off <= level / 2.0)) for level in levels),
        f"{inside} of {len(made)} bands of {confidence:.0%} held what came "
        f"({inside / len(made):.0%} [{share.low:.0%}, {share.high:.0%}]), {says}.",
    )
