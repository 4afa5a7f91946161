"""Do failures come one by one, or in bursts and from few nodes? The interval that admits it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval, special
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import SUSPECT, Axis, Spread, inflated_interval, student_factor
from ettr.models.base import FEW_FAILURES, GoodnessOfFit, chi_square_tail
from ettr.models.data import Counts, Floats, counts_by_window
from ettr.units import HOURS_PER_DAY
from ettr.words import p_words, significant


@dataclass(frozen=True, slots=True)
class Dispersion:
    """A failure rate with two intervals, and which of them to believe.

    Attributes:
        index: How many times the total varies as much as that of independent failures; None where
            it cannot be known.
        test: Test of "failures are independent and all units alike"; None where it cannot be
            known.
        over_dispersed: Interval that admits the spread seen, per node-day; never inside `poisson`.
    """

    rate: FailureRate
    index: float | None
    test: GoodnessOfFit | None
    poisson: Interval
    over_dispersed: Interval
    believe: str
    meaning: str
    confidence: float

    @property
    def interval(self) -> Interval:
        """The interval to believe; the over-dispersed one where it cannot be known."""
        return self.poisson if self.believe == "poisson" else self.over_dispersed


def spread_index(seen: Floats, expected: Floats) -> tuple[float, float]:
    """How many times the total varies as much as a Poisson one, and the degrees of freedom.

    The index is the one that matters for the total (large units weigh more than in Pearson's), so
    unequal exposures do not blow it up. The degrees of freedom are the number of units that the
    failures effectively come from, n^2 / sum(x^2), since a spread owed to few units is known
    badly.

    Source:
        Liang and Zeger (1986), Biometrika 73, for the variance of a total over clusters.
    """
    units = int(np.count_nonzero(expected > 0))
    total = float(seen.sum())
    if units < 2 or not total:
        return 1.0, 0.0
    index = float(np.sum((seen - expected) ** 2)) / total * units / (units - 1)
    effective = total**2 / float(np.sum(seen.astype(np.float64) ** 2))
    return index, max(1.0, min(units - 1.0, effective))


def dispersion(counts: Counts, confidence: float = CONFIDENCE) -> Dispersion:
    """Both intervals of the rate behind `counts`, and the test that says which to believe.

    Below ten failures the spread between units cannot be known: the result says so, and its
    over-dispersed interval is no more than the Poisson one.
    """
    rate = counts.rate
    poisson = rate.interval(confidence)
    degrees = int(np.count_nonzero(counts.exposure_node_days > 0)) - 1
    if int(counts.failures.sum()) < FEW_FAILURES or degrees < 1:
        placed = int(counts.failures.sum())
        elsewhere = "" if placed == rate.failures else f" of {rate.failures}"
        why = (
            f"{placed}{elsewhere} failures have a {counts.unit}, too few"
            if degrees >= 1
            else f"one {counts.unit} alone has no spread"
        )
        return Dispersion(
            rate,
            None,
            None,
            poisson,
            poisson,
            "unknown",
            f"Whether failures cluster over {counts.unit}s cannot be known ({why}; {FEW_FAILURES} "
            f"over two or more {counts.unit}s are needed): this interval holds only if they are "
            "independent.",
            confidence,
        )
    seen = counts.failures.astype(np.float64)
    expected = counts.exposure_node_days * seen.sum() / counts.exposure_node_days.sum()
    index, effective = spread_index(seen, expected)
    wide = inflated_interval(rate, index, effective, confidence)
    wide = Interval(wide.estimate, min(wide.low, poisson.low), max(wide.high, poisson.high))
    test = dispersion_test(counts)
    p_value = test.p_value
    if p_value < SUSPECT and index > 1.0:
        believe = "over-dispersed"
        meaning = (
            f"Failures vary {significant(index, 2)} times as much between {counts.unit}s as "
            f"independent ones would ({p_words(p_value)}): believe the over-dispersed interval."
        )
    else:
        believe = "poisson"
        meaning = (
            f"Failures vary between {counts.unit}s as independent ones do (index "
            f"{significant(index, 2)}, {p_words(p_value)}): the Poisson interval stands."
        )
    return Dispersion(rate, index, test, poisson, wide, believe, meaning, confidence)


def dispersion_test(counts: Counts) -> GoodnessOfFit:
    """Test of "failures are independent and all units alike", given their total.

    The statistic is the sum of squares of failures less expected ones, over its mean and times the
    degrees of freedom: Pearson's where all units have the same exposure. A failure that ends a job
    ends the exposure, too, so that it may be alone in a sliver of it, and one such unit decides.
    The tail is that of a gamma law with the exact mean and variance of the statistic under the
    multinomial law.

    Source:
        Haldane (1937), Biometrika 29, for the moments with equal exposures; the martingale of a
        counting process, Andersen et al. (1993), section II.4, for exposure that failures end.
    """
    used = counts.exposure_node_days > 0
    seen = counts.failures[used].astype(np.float64)
    share = counts.exposure_node_days[used] / counts.exposure_node_days[used].sum()
    n, degrees = float(seen.sum()), int(seen.size) - 1
    second, third = float(np.sum(share**2)), float(np.sum(share**3))
    squares = float(np.sum((seen - n * share) ** 2))
    mean = n * (1.0 - second)
    pairs = max(0.0, second - 2.0 * third + second**2)
    variance = 4.0 * n * max(0.0, third - second**2) + 2.0 * n * (n - 1.0) * pairs
    name = f"dispersion over {counts.unit}s"
    if not mean > 0 or not variance > 0:
        return GoodnessOfFit(name, float(degrees), degrees, 1.0)
    p_value = chi_square_tail(2.0 * squares * mean / variance, 2.0 * mean**2 / variance)
    return GoodnessOfFit(name, degrees * squares / mean, degrees, p_value)


_WINDOWS_DAYS = (1.0, 3.5, 7.0, 14.0, 28.0, 56.0)
_DRAWS, _AT_ONCE = 2000, 20
_MANY_GAPS = 500


def widest_window(
    times_days: Floats,
    start_days: float,
    end_days: float,
    n_nodes: float,
    confidence: float = CONFIDENCE,
) -> tuple[float, Dispersion]:
    """Window length whose failures scatter most, and both intervals of the rate over it.

    A window shorter than a burst cuts it in pieces that look independent, so the lengths from a
    day to eight weeks that leave twelve windows are tried and the widest interval kept.

    Args:
        times_days: When failures happened, in days on any clock, shape (n,).

    Raises:
        UsageError: the observed time is shorter than twelve days, or there are no nodes.

    Source:
        Fano (1947), Physical Review 72, for variance over mean in windows.
    """
    fitting = [w for w in _WINDOWS_DAYS if (end_days - start_days) / w >= LEAST_WINDOWS]
    if not fitting:
        raise UsageError(
            f"{end_days - start_days:g} days are too short to see bursts in windows; "
            f"give {LEAST_WINDOWS} days or more"
        )
    found = [
        (w, dispersion(counts_by_window(times_days, start_days, end_days, w, n_nodes), confidence))
        for w in fitting
    ]
    return max(found, key=lambda pair: pair[1].over_dispersed.high - pair[1].over_dispersed.low)


@dataclass(frozen=True, slots=True)
class Burstiness:
    """How unevenly failures of a fleet follow each other."""

    gaps: int
    coefficient_of_variation: float | None
    low: float
    high: float
    meaning: str


def _variation(rng: np.random.Generator, gaps: int) -> Floats:
    """Coefficients of variation of a few draws of independent gaps; so few stay in the cache."""
    draws = rng.standard_exponential((_AT_ONCE, gaps))
    spread: Floats = draws.std(axis=1) / draws.mean(axis=1)
    return spread


def _band_of_many(gaps: int, shares: tuple[float, float]) -> tuple[float, float]:
    """Quantiles of the coefficient of variation of many independent gaps."""
    n = gaps
    # exact: the variance is what is left of numbers that are nearly equal
    first = Fraction(2, n + 1)
    second = Fraction(24 + 4 * (n - 1), math.prod(range(n + 1, n + 4)))
    third = Fraction(720 + 144 * (n - 1) + 8 * (n - 1) * (n - 2), math.prod(range(n + 1, n + 6)))
    deviation = math.sqrt(second - first**2)
    skewness = float(third - 3 * first * second + 2 * first**3) / deviation**3
    shape = 4.0 / skewness**2
    at = special.gammaincinv(shape, np.array(shares))
    squares = float(first) + deviation * (at - shape) / math.sqrt(shape)
    low, high = np.sqrt(n * squares - 1.0).tolist()
    return low, high


def burstiness(
    times_days: Floats, rng: np.random.Generator, confidence: float = CONFIDENCE
) -> Burstiness:
    """Coefficient of variation of the gaps between failures, against that of independent ones.

    Args:
        times_days: When failures happened, in days, in any order, shape (n,).
        rng: Generator behind the band of independent failures (2,000 draws), below 500 gaps.
    """
    times = np.sort(np.asarray(times_days, dtype=np.float64))
    if not np.all(np.isfinite(times)):
        raise UsageError("times_days holds values that are not finite; drop those failures")
    gaps = np.diff(times)
    if gaps.size < FEW_FAILURES:
        return Burstiness(
            int(gaps.size),
            None,
            0.0,
            math.inf,
            f"{gaps.size} {'gap' if gaps.size == 1 else 'gaps'} between failures "
            f"{'is' if gaps.size == 1 else 'are'} too few to see bursts; {FEW_FAILURES} are "
            "needed.",
        )
    if times[0] == times[-1]:
        says = f"All {times.size:,} failures came at one moment."
        return Burstiness(int(gaps.size), None, 0.0, math.inf, says)
    seen = float(gaps.std() / gaps.mean())
    tail = (1.0 - confidence) / 2.0
    if gaps.size >= _MANY_GAPS:
        low, high = _band_of_many(gaps.size, (tail, 1.0 - tail))
    else:
        spread = np.concatenate([_variation(rng, gaps.size) for _ in range(_DRAWS // _AT_ONCE)])
        low, high = (float(end) for end in np.quantile(spread, [tail, 1.0 - tail]))
    if seen > high:
        says = "failures come in bursts"
    elif seen < low:
        says = "failures come more evenly than independent ones would"
    else:
        says = "failures follow each other as independent ones do"
    return Burstiness(
        int(gaps.size),
        seen,
        low,
        high,
        f"The coefficient of variation of {gaps.size} gaps is {seen:.2f}, where independent "
        f"failures give {low:.2f} to {high:.2f}: {says}.",
    )


WINDOWS_DAYS = (1.0 / HOURS_PER_DAY, 0.25, 1.0, 3.5, 7.0, 14.0, 28.0, 56.0)
"""Lengths tried: a window shorter than a burst cuts it into pieces that look independent, a longer
one leaves too few windows to see any spread."""
LEAST_WINDOWS = 12


@dataclass(frozen=True, slots=True, eq=False)
class FailureTimeline:
    """Failures of a fleet and its exposure along the calendar.

    Attributes:
        times_days: When each failure happened, on any clock of days, shape (n,).
        edges_days: Ends of equal cells of the clock, ascending, shape (m + 1,).
        node_days: Exposure before each edge, in node-days, shape (m + 1,).
    """

    times_days: Floats
    edges_days: Floats
    node_days: Floats

    def __post_init__(self) -> None:
        if self.edges_days.size < 2 or self.edges_days.shape != self.node_days.shape:
            raise UsageError(
                f"{self.edges_days.size} edges and {self.node_days.size} exposures; give two or "
                "more edges and the node-days before each"
            )

    def windows(self, window_days: float) -> Counts | None:
        """Failures and node-days in windows; None where none has exposure.

        A last window that the logs do not fill counts with the exposure it has.
        """
        start, end = float(self.edges_days[0]), float(self.edges_days[-1])
        windows = max(1, math.ceil((end - start) / window_days - 1e-9))
        edges = np.minimum(start + window_days * np.arange(windows + 1), end)
        exposure = _steady(np.diff(np.interp(edges, self.edges_days, self.node_days)))
        place = ((self.times_days - start) / window_days).astype(np.int64)
        counts = np.bincount(np.clip(place, 0, windows - 1), minlength=windows)
        used = exposure > 0
        if not used.any():
            return None
        return Counts(
            counts[used], exposure[used], unit="window", unplaced=int(counts[~used].sum())
        )


def _steady(node_days: Floats) -> Floats:
    """Exposures to twelve digits of the largest: sums of an engine differ in their last ones from
    run to run, and a report must not."""
    largest = float(np.max(np.abs(node_days), initial=0.0))
    if not largest > 0:
        return node_days
    digits = 11 - math.floor(math.log10(largest))
    return np.round(node_days, min(digits, 300))


def spread_over_time(timeline: FailureTimeline, confidence: float = CONFIDENCE) -> Spread:
    """Spread between windows of the length that gives the widest interval.

    The p-value is the smallest of all lengths times their number.

    Source:
        Fano (1947), Physical Review 72, for variance over mean in windows; Bonferroni for the
        number of lengths.
    """
    tried: list[Spread] = []
    for window_days in WINDOWS_DAYS:
        counts = timeline.windows(window_days)
        if counts is None or counts.failures.size < LEAST_WINDOWS:
            continue
        tried.append(_spread(counts, "time", window_days))
    known = [one for one in tried if one.p_value is not None]
    if not known:
        return Spread("time", int(timeline.times_days.size), 0, None, 1.0, 0.0, None)
    p_value = min(1.0, len(known) * min(one.p_value for one in known if one.p_value is not None))
    widest = max(
        known, key=lambda one: max(1.0, one.index) * student_factor(one.degrees, confidence)
    )
    return replace(widest, p_value=p_value)


def spread_over_nodes(counts: Counts) -> Spread:
    """Spread between nodes, of the failures that name one."""
    return _spread(counts, "nodes", None)


def _spread(counts: Counts, over: Axis, window_days: float | None) -> Spread:
    failures, units = int(counts.failures.sum()), int(counts.failures.size)
    if failures < FEW_FAILURES or np.count_nonzero(counts.exposure_node_days > 0) < 2:
        return Spread(over, failures, units, window_days, 1.0, 0.0, None)
    seen = counts.failures.astype(np.float64)
    index, effective = spread_index(seen, counts.exposure_node_days * seen.sum() / counts.node_days)
    p_value = dispersion_test(counts).p_value
    return Spread(over, failures, units, window_days, index, effective, p_value)
