"""How many failures will come: a store's own past in windows, and how well it forecast itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.node_faults import faults_of
from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.interval import check_confidence
from ettr.metrics.instants import to_seconds
from ettr.metrics.rates import FailuresByConfidence, counted_confidences
from ettr.metrics.trend import cumulative_node_days
from ettr.models.data import Counts, Floats, at_risk
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

# -- failures in the next window of time, with a band, and how well such bands have held -----------
# The level of a fleet drifts and its failures come in bursts, so the forecast forgets at the pace,
# and scatters by the index, that have forecast the past of the same fleet best.


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


MeanT = TypeVar("MeanT", float, Floats)


def _size_and_p(mean: MeanT, index: float) -> tuple[MeanT, float]:
    """Of the negative binomial law by mean and variance over mean; Poisson's as that nears 1."""
    p = 1.0 / max(index, 1.0 + 1e-6)
    return mean * p / (1.0 - p), p


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
        score = float(weight @ nbinom.logpmf(seen, *_size_and_p(mean, index)))
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
    from scipy.stats import nbinom

    rate, index, half_life = _fitted(seen, exposure)
    wider = index + _level_index(exposure, rate, index, half_life, node_days)
    tail = (1.0 - confidence) / 2.0
    law = _size_and_p(rate * node_days, wider)
    low, high = (int(nbinom.ppf(share, *law)) for share in (tail, 1.0 - tail))
    return Forecast(rate * node_days, low, high, index, half_life, confidence)


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
    from scipy.stats import nbinom

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
        law, count = _size_and_p(one.mean, one.index), int(seen[origin])
        # the probability of fewer, plus half that of exactly so many
        place.append(float(nbinom.cdf(count - 1, *law) + 0.5 * nbinom.pmf(count, *law)))
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


# -- how many failures will come: a store's own past in windows, and how well it forecast itself


USUAL_DAYS = (7.0, 28.0)
MOST_WINDOWS = 400
"""The latest windows of the past are enough: none older than eight years of weeks counts."""
SHORTEST_S = 1.0


@dataclass(frozen=True, slots=True)
class AheadForecast:
    """Failures in the time to come, and what became of such forecasts in the past."""

    ahead_days: float
    windows: int
    node_days: float | None
    failures: Interval
    index: float | None
    half_life_windows: float | None
    backtests: int
    held: int
    held_share: Interval
    meaning: str


@dataclass(frozen=True, slots=True)
class FailureForecast:
    """Forecasts of one store."""

    name: str
    of_what: str
    events: int
    history_days: float
    confidence: float
    ahead: tuple[AheadForecast, ...]
    notes: tuple[str, ...]
    by_confidence: FailuresByConfidence | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Past:
    """When failures (or faults) happened, in seconds; where nodes are known without jobs, the
    spans of their service, shape (n, 2)."""

    of_what: str
    times_s: Floats
    spans_s: Floats | None = None
    by_confidence: FailuresByConfidence | None = None


def forecast_failures(
    analysis: Analysis,
    name: str,
    ahead_days: Sequence[float] = USUAL_DAYS,
    n_nodes: float | None = None,
) -> FailureForecast:
    """Failures in the time to come, each length of time from windows of that length in the past.

    Args:
        ahead_days: Lengths of time to forecast, a second or more each.
        n_nodes: Nodes that will run all that time; the exposure of the last window where None.

    Raises:
        UsageError: the past is too short for all of them, or a length that cannot be.
    """
    short = [days for days in ahead_days if days * SECONDS_PER_DAY < SHORTEST_S]
    if short or not ahead_days:
        raise UsageError("give a time ahead of a second or more, such as 7d")
    past = _past(analysis)
    confidence = analysis.assumptions.confidence
    found = tuple(_ahead(analysis, past, days, n_nodes, confidence) for days in ahead_days)
    if all(one.failures.estimate is None for one in found):
        shortest = min(ahead_days)
        raise UsageError(
            f"{name}: the logs cover only {analysis.period.days:.3g} days: to forecast "
            f"{_days(shortest)}, ettr needs {LEAST_WINDOWS} windows of that length in "
            f"which something ran, {LEAST_WINDOWS * shortest:.4g} days. Give a shorter "
            "--ahead, or logs of a longer time"
        )
    return FailureForecast(
        name=name,
        of_what=past.of_what,
        events=int(past.times_s.size),
        history_days=analysis.period.days,
        confidence=confidence,
        ahead=found,
        notes=_notes(n_nodes),
        by_confidence=past.by_confidence,
    )


def _past(analysis: Analysis) -> _Past:
    """Failures of jobs where there are any jobs, else the faults that logs of nodes record."""
    if analysis.logs_read.jobs:
        failed = analysis.facts.columns("failures")
        sure = counted_confidences(failed["confidence"].tolist())
        ends_s = failed["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
        return _Past("failures", ends_s, by_confidence=sure)
    faults, _ = faults_of(analysis.facts, analysis.given)
    if not len(faults):
        raise UsageError(
            f"{analysis.store.where}: holds no jobs and no faults, so there is nothing to "
            "forecast; ingest job accounting (`ettr sources` lists how to export it)"
        )
    return _Past("faults", faults.start_s, analysis.fleet.pieces_s)


def _ahead(
    analysis: Analysis, past: _Past, days: float, n_nodes: float | None, confidence: float
) -> AheadForecast:
    counts = _windows(analysis, past, days)
    windows = 0 if counts is None else int(counts.failures.size)
    if counts is None or windows < LEAST_WINDOWS:
        return AheadForecast(
            *(days, windows, None, Interval.unknown(), None, None, 0, 0, Interval.unknown()),
            f"{past.of_what.capitalize()} in the next {_days(days)} are unknown: that "
            f"needs {LEAST_WINDOWS} windows of {_days(days)} in which something ran, and "
            f"there are {windows}.",
        )
    node_days = float(counts.exposure_node_days[-1]) if n_nodes is None else n_nodes * days
    made = forecast(counts, node_days, confidence)
    checked = rolling_forecasts(counts, confidence) if windows > LEAST_WINDOWS else None
    held = (
        0
        if checked is None
        else sum(
            one.low <= came <= one.high
            for one, came in zip(checked.forecasts, checked.seen, strict=True)
        )
    )
    return AheadForecast(
        ahead_days=days,
        windows=windows,
        node_days=node_days,
        failures=Interval(made.mean, float(made.low), float(made.high)),
        index=made.index,
        half_life_windows=made.half_life_windows,
        backtests=0 if checked is None else len(checked.seen),
        held=held,
        held_share=Interval.unknown() if checked is None else checked.share_inside,
        meaning=_says(past.of_what, days, made, checked),
    )


def _windows(analysis: Analysis, past: _Past, days: float) -> Counts | None:
    """Whole windows, oldest first, the last of them ending with the logs; None without any."""
    length_s = float(round(days * SECONDS_PER_DAY))
    end_s = float(np.floor(to_seconds(analysis.period.end)))
    covered_s = end_s - float(np.floor(to_seconds(analysis.period.start)))
    windows = min(int(covered_s // length_s), MOST_WINDOWS)
    if not windows:
        return None
    edges_s = end_s - length_s * np.arange(windows, -1, -1, dtype=np.float64)
    if past.spans_s is None:
        node_days = np.diff(cumulative_node_days(analysis.facts, edges_s))
    else:
        served_s = at_risk(past.spans_s[:, 0], past.spans_s[:, 1], edges_s)
        node_days = np.diff(served_s) / SECONDS_PER_DAY
    # a failure in the last second, a fraction of which the edges leave out, is of the last window
    inside_s = np.minimum(past.times_s, end_s)
    counts = np.histogram(inside_s, edges_s)[0]
    ran = node_days > 0
    return Counts(counts[ran], node_days[ran], unit="window") if ran.any() else None


def _says(of_what: str, days: float, made: Forecast, checked: Calibration | None) -> str:
    coming = (
        f"Expect {made.mean:.3g} [{made.low:,}, {made.high:,}] {of_what} in the next "
        f"{_days(days)}, at {made.confidence:.0%}."
    )
    if checked is None:
        return f"{coming} No past window is left to check such a forecast."
    return f"{coming} Forecasts of the past: {checked.meaning}"


def _notes(n_nodes: float | None) -> tuple[str, ...]:
    exposure = (
        "As many node-days run as in the last window, unless --nodes says otherwise."
        if n_nodes is None
        else f"{n_nodes:g} nodes are taken to run all the time."
    )
    return (
        exposure,
        "Level and scatter are those that forecast the past of this fleet best, "
        "including its bursts and drifts. The bands allow for no change that the past "
        "does not show, such as new nodes or another driver.",
        "Windows do not overlap, but neighbours may resemble each other: the interval of "
        "the share that held assumes that they are independent.",
    )


def _days(days: float) -> str:
    return "day" if days == 1.0 else f"{days:.4g} days"
