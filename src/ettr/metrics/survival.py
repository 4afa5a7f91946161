"""How long something lasts, when some of it is not over yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.estimates.interval import Interval, check_confidence
from ettr.metrics.instants import Floats

QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)
_STRETCH = 128


@dataclass(frozen=True, slots=True)
class Quantile:
    """One quantile of a duration; None where too little has ended to know it."""

    level: float
    hours: Interval


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in hours with intervals; `still_open` ones count as lasting at least so long.

    The mean is restricted to the longest duration seen: with open ones it is a lower bound. Its
    interval allows for the skewness of the durations, and has no upper end where fewer than two
    have ended. A quantile has none where too few are longer. Where none has ended there is no
    estimate, and the lower end is what the longest has lasted so far.
    """

    count: int
    still_open: int
    mean_h: Interval
    median_h: Interval
    quantiles: tuple[Quantile, ...]


def durations(
    hours: Floats, over: npt.NDArray[np.bool_], confidence: float = CONFIDENCE
) -> Durations:
    """Mean and quantiles of durations of which some are not over.

    Source:
        Kaplan and Meier (1958); variance of Greenwood (1926); interval of the mean by Hall's
        transformation of Student's t, Hall (1992), Journal of the Royal Statistical Society B 54,
        with the skewness of what each duration adds to the mean; intervals of quantiles by
        inverting the beta product confidence procedure of Fay, Brittain and Proschan (2013),
        Biostatistics 14, which is that of order statistics where all have ended.
    """
    check_confidence(confidence)
    hours = np.asarray(hours, dtype=float)
    over = np.asarray(over, dtype=bool)
    nothing = Interval.unknown()
    if not len(hours):
        return Durations(0, 0, nothing, nothing, ())
    # rows come in no order, and sums in another order differ in their last digits
    ordered = np.lexsort((over, hours))
    hours, over = hours[ordered], over[ordered]
    curve = _Curve.of(hours, over)
    limits = _SurvivalLimits.of(hours, over, confidence)
    return Durations(
        count=len(hours),
        still_open=int((~over).sum()),
        mean_h=curve.mean(hours, over, confidence),
        median_h=curve.quantile(0.5, limits),
        quantiles=tuple(Quantile(level, curve.quantile(level, limits)) for level in QUANTILES),
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """The survival function: steps at `times_h`, after which `survival` are still going."""

    times_h: Floats
    survival: Floats
    increments: Floats
    longest_h: float

    @staticmethod
    def of(hours: Floats, over: npt.NDArray[np.bool_]) -> _Curve:
        times_h, ended = np.unique(hours[over], return_counts=True)
        at_risk = len(hours) - np.searchsorted(np.sort(hours), times_h, side="left")
        left = at_risk - ended
        survival = np.cumprod(left / at_risk, dtype=np.float64)
        # Where all that are left end at once the variance of the tail is not defined.
        increments = np.where(left > 0, ended / np.maximum(at_risk * left, 1), 0.0)
        return _Curve(times_h, survival, increments, float(hours.max()))

    def mean(self, hours: Floats, over: npt.NDArray[np.bool_], confidence: float) -> Interval:
        if not len(self.times_h):
            return Interval(None, self.longest_h, math.inf)
        edges = np.append(self.times_h, self.longest_h)
        before = np.concatenate([[1.0], self.survival])
        areas = np.diff(np.concatenate([[0.0], edges])) * before
        mean = float(areas.sum())
        beyond = mean - np.cumsum(areas)[:-1]
        n_ended = int(over.sum())
        if n_ended < 2:
            return Interval(mean, 0.0, math.inf)
        error = math.sqrt(float((beyond**2 * self.increments).sum()) * n_ended / (n_ended - 1))
        low, high = _skewed_ends(self._added(beyond, hours, over), n_ended, confidence)
        return Interval(mean, max(mean - error * low, 0.0), mean + error * high)

    def _added(self, beyond: Floats, hours: Floats, over: npt.NDArray[np.bool_]) -> Floats:
        """What each duration adds to the mean: with none open, by how much it exceeds that."""
        place = np.searchsorted(self.times_h, hours, side="right")
        spared = np.concatenate([[0.0], np.cumsum(beyond * self.increments)])[place]
        at_risk = len(hours) - np.searchsorted(np.sort(hours), self.times_h, side="left")
        left = at_risk - np.unique(hours[over], return_counts=True)[1]
        each = np.where(left > 0, beyond / np.maximum(left, 1), 0.0)
        return spared - np.where(over, each[np.maximum(place - 1, 0)], 0.0)

    def quantile(self, level: float, limits: _SurvivalLimits) -> Interval:
        if not len(self.times_h):
            return Interval(None, self.longest_h, math.inf)
        places = np.flatnonzero(self.survival <= 1.0 - level + 1e-12)
        estimate = float(self.times_h[places[0]]) if len(places) else None
        return Interval(estimate, *limits.quantile_ends(1.0 - level))


@dataclass(frozen=True, slots=True)
class _SurvivalLimits:
    """Confidence limits of the survival function after each duration, by the beta distribution.

    Of n at risk the share that outlasts the first end is as the largest of n uniform variables,
    Beta(n, 1), and so on: the share left after several ends is a product of such, here the beta
    variable of the same two moments. The lower limit has one factor more, for the next end.
    """

    times_h: Floats
    above: tuple[Floats, Floats]
    below: tuple[Floats, Floats]
    tail: float

    @staticmethod
    def of(hours: Floats, over: npt.NDArray[np.bool_], confidence: float) -> _SurvivalLimits:
        order = np.lexsort((~over, hours))
        at_risk = np.arange(len(hours), 0, -1, dtype=float)
        left = at_risk - 1.0
        ended = over[order]
        mean = np.cumprod(np.where(ended, at_risk / (at_risk + 1.0), 1.0), dtype=np.float64)
        square = np.cumprod(np.where(ended, at_risk / (at_risk + 2.0), 1.0), dtype=np.float64)
        return _SurvivalLimits(
            hours[order],
            (mean, square),
            (mean * left / (left + 1.0), square * left / (left + 2.0)),
            (1.0 - confidence) / 2.0,
        )

    def quantile_ends(self, target: float) -> tuple[float, float]:
        """The first times at which the limits are not above `target`; 0 and infinity for none."""
        n = float(len(self.times_h))
        if target**n >= self.tail:  # before the first end one factor is left, Beta(n, 1)
            low = 0.0
        else:
            low = float(self.times_h[_first_likely(target, self.below, self.tail) or 0])
        end = _first_likely(target, self.above, 1.0 - self.tail)
        return low, math.inf if end is None else float(self.times_h[end])


def _first_likely(target: float, moments: tuple[Floats, Floats], least: float) -> int | None:
    """The first place where P(variable <= `target`) is at least `least`; None: there is no such."""
    last = len(moments[0]) - 1
    marks = np.append(np.arange(0, last, _STRETCH), last)
    likely = np.flatnonzero(_chance_below(target, *(m[marks] for m in moments)) >= least)
    if not len(likely):
        return None
    mark = int(likely[0])
    from_ = int(marks[mark - 1]) + 1 if mark else 0
    stretch = slice(from_, int(marks[mark]) + 1)
    chances = _chance_below(target, *(m[stretch] for m in moments))
    return from_ + int(np.argmax(chances >= least))


def _chance_below(target: float, mean: Floats, square: Floats) -> Floats:
    """Probability that the beta variable of these moments is at most `target`."""
    from ettr.estimates.special import betainc

    variance = square - mean**2
    varies = variance > 1e-15 * mean**2
    size = (mean - square) / np.where(varies, variance, 1.0)
    chance = betainc(
        np.where(varies, mean * size, 1.0), np.where(varies, (1.0 - mean) * size, 1.0), target
    )
    return np.where(varies, chance, (mean <= target).astype(float))


def _skewed_ends(added: Floats, n_ended: int, confidence: float) -> tuple[float, float]:
    """How many standard errors the interval of a mean reaches below and above it."""
    from ettr.estimates.special import stdtrit

    student = float(stdtrit(n_ended - 1, 0.5 + confidence / 2.0))
    spread = float(np.sqrt((added**2).mean()))
    if spread == 0.0:
        return student, student
    a = float((added**3).mean()) / spread**3 / math.sqrt(n_ended)

    def untransformed(t: float) -> float:
        return 3.0 / a * (math.cbrt(1.0 + a * (t - a / 6.0)) - 1.0) if abs(a) > 1e-9 else t

    return untransformed(student), -untransformed(-student)
