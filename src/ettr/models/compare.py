"""Is this fleet, partition or month better than that one?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate, beta_quantile, beta_share
from ettr.estimates.interval import check_confidence
from ettr.estimates.spread import SURE, Axis, Spread
from ettr.models.base import FEW_FAILURES
from ettr.models.data import Counts, Floats
from ettr.models.dispersion import FailureTimeline, spread_index, spread_over_time
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted, p_words, significant

_WINSORISED_SHARE = 0.1
"""Share of the fleets on either side that a spread between fleets draws in."""


@dataclass(frozen=True, slots=True)
class RateRatio:
    """Failure rate of `a` over that of `b`.

    Attributes:
        ratio: a over b; None where b has no failure.
        high: Upper end; infinite where b has no failure.
        p_value: Of "both rates are equal", two-sided; for one symptom among several, corrected for
            their number.
        dispersion: Variance over mean that the interval admits; 1 assumes independent failures.
    """

    a: FailureRate
    b: FailureRate
    ratio: float | None
    low: float
    high: float
    p_value: float
    dispersion: float
    meaning: str
    confidence: float


def compare_rates(
    a: FailureRate,
    b: FailureRate,
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> RateRatio:
    """Ratio of two failure rates with its exact interval and test.

    Given the sum of both counts, the first is binomial; its exact interval carries over.

    Raises:
        UsageError: a fleet has no exposure.

    Source:
        Przyborowski and Wilenski (1940), Biometrika 31; Clopper and Pearson (1934), Biometrika 26.
    """
    return ratio_with_dispersion(a, b, 1.0, math.inf, confidence, names)


def compare_counts(
    a: Counts, b: Counts, confidence: float = CONFIDENCE, names: tuple[str, str] = ("a", "b")
) -> RateRatio:
    """Ratio of two failure rates whose failures may come in bursts or from a few nodes.

    Both counts are divided by the dispersion seen within the fleets (never below 1), with
    Student's correction for its own uncertainty, before the exact interval is taken. With fewer
    than ten failures in both together the dispersion cannot be known and the meaning says so.

    Raises:
        UsageError: a fleet has no exposure.
    """
    rate_a, rate_b = (c.rate for c in (a, b))
    indices = [_spread(counts) for counts in (a, b)]
    degrees = sum(d for _, d in indices)
    placed = int(a.failures.sum() + b.failures.sum())
    if placed < FEW_FAILURES or not degrees:
        known = ratio_with_dispersion(rate_a, rate_b, 1.0, math.inf, confidence, names)
        return replace(
            known,
            meaning=f"{known.meaning} Whether failures cluster cannot be known from "
            f"{counted(placed, 'failure')}: this holds only if they are independent.",
        )
    index = max(1.0, sum(value * d for value, d in indices) / degrees)
    return ratio_with_dispersion(rate_a, rate_b, index, degrees, confidence, names)


def _spread(counts: Counts) -> tuple[float, float]:
    seen = counts.failures.astype(np.float64)
    if not seen.sum():
        return 1.0, 0.0
    return spread_index(seen, counts.exposure_node_days * seen.sum() / counts.node_days)


def ratio_with_dispersion(
    a: FailureRate,
    b: FailureRate,
    index: float,
    degrees: float,
    confidence: float,
    names: tuple[str, str],
) -> RateRatio:
    """Ratio of two rates whose counts vary `index` times as much as independent ones.

    Args:
        index: Variance over that of independent failures; 1 gives the exact ratio.
        degrees: Degrees of freedom behind the index; infinite where it is known.

    Raises:
        UsageError: a fleet has no exposure.
    """
    check_confidence(confidence)
    _check_exposure(a, b, names)
    tail = (1.0 - confidence) / 2.0
    factor = index
    if math.isfinite(degrees):
        from ettr.estimates.special import ndtri, stdtrit

        factor *= float(stdtrit(degrees, tail) / ndtri(tail)) ** 2
    x, y = a.failures / factor, b.failures / factor
    odds = b.node_days / a.node_days
    low_p = beta_quantile(x, y + 1.0, tail) if a.failures else 0.0
    high_p = beta_quantile(x + 1.0, y, 1.0 - tail) if b.failures else 1.0
    low = low_p / (1.0 - low_p) * odds if low_p < 1.0 else math.inf
    high = high_p / (1.0 - high_p) * odds if high_p < 1.0 else math.inf
    ratio = a.failures / b.failures * odds if b.failures else None
    p_value = _equal_rates(x, y, a.node_days / (a.node_days + b.node_days))
    return RateRatio(
        a,
        b,
        ratio,
        low,
        high,
        p_value,
        index,
        _says(ratio, low, high, p_value, confidence, names),
        confidence,
    )


def _check_exposure(a: FailureRate, b: FailureRate, names: tuple[str, str]) -> None:
    for name, rate in zip(names, (a, b), strict=True):
        if not rate.node_days > 0:
            raise UsageError(
                f"{name} has an exposure of {rate.node_days} node-days, so it has no rate; "
                "give a longer period or other nodes"
            )


def _equal_rates(x: float, y: float, share: float) -> float:
    """Twice the smaller binomial tail; agrees with the interval about which side 1 lies on."""
    if x + y == 0:
        return 1.0
    above = beta_share(x, y + 1.0, share) if x else 1.0
    below = 1.0 - beta_share(x + 1.0, y, share) if y else 1.0
    return min(1.0, 2.0 * min(above, below))


def _says(
    ratio: float | None,
    low: float,
    high: float,
    p_value: float,
    confidence: float,
    names: tuple[str, str],
) -> str:
    first, second = names
    if low > 1.0:
        return f"{first} fails more often than {second} ({p_words(p_value)})."
    if high < 1.0:
        return f"{first} fails less often than {second} ({p_words(p_value)})."
    if ratio is None and math.isinf(high) and low == 0.0:
        return f"{first} and {second} cannot be compared: nothing failed in {second}."
    times = (
        f"{significant(low, 2)} or more"
        if math.isinf(high)
        else f"{significant(low, 2)} to {significant(high, 2)}"
    )
    return (
        f"No difference between {first} and {second} is shown: {first} fails {times} times as "
        f"often ({100 * confidence:g} % interval)."
    )


def compare_symptoms(
    a: Mapping[str, int],
    a_node_days: float,
    b: Mapping[str, int],
    b_node_days: float,
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
    spread: Spread | None = None,
    own_spreads: Mapping[str, Spread | None] | None = None,
) -> dict[str, RateRatio]:
    """Ratio by symptom, smallest p-value first; p-values and verdicts corrected for their number.

    The intervals are not corrected: each holds its confidence for itself.

    Args:
        spread: Of all their failures together; of one symptom it counts with its share.
        own_spreads: Of the failures of each symptom; the wider of both counts.

    Source:
        Holm (1979), Scandinavian Journal of Statistics 6, for the correction.
    """
    total = sum(a.values()) + sum(b.values())
    ratios = {}
    for symptom in sorted({*a, *b}):
        x, y = a.get(symptom, 0), b.get(symptom, 0)
        part = None if spread is None or not total else spread.thinned((x + y) / total)
        own = (own_spreads or {}).get(symptom)
        ratios[symptom] = ratio_with_dispersion(
            FailureRate(x, a_node_days),
            FailureRate(y, b_node_days),
            max((one.inflation(confidence) for one in (part, own) if one is not None), default=1.0),
            math.inf,
            confidence,
            names,
        )
    ranked = sorted(ratios, key=lambda symptom: ratios[symptom].p_value)
    corrected = holm_corrected([ratios[one] for one in ranked], [names] * len(ranked), "symptoms")
    return dict(zip(ranked, corrected, strict=True))


def holm_corrected(
    ratios: Sequence[RateRatio], names: Sequence[tuple[str, str]], of_what: str
) -> list[RateRatio]:
    """The same ratios with p-values corrected for their number, and the verdict with them.

    The intervals are not corrected: each holds its confidence for itself.

    Source:
        Holm (1979), Scandinavian Journal of Statistics 6.
    """
    corrected = list(ratios)
    highest = 0.0
    for place, i in enumerate(sorted(range(len(ratios)), key=lambda i: ratios[i].p_value)):
        one = ratios[i]
        highest = max(highest, min(1.0, one.p_value * (len(ratios) - place)))
        meaning = one.meaning.replace(f"({p_words(one.p_value)})", f"({p_words(highest)})")
        if not one.low <= 1.0 <= one.high and highest > 1.0 - one.confidence:
            first, second = names[i]
            meaning = (
                f"No difference between {first} and {second} is shown: among {len(ratios)} "
                f"{of_what} one as large as this is within chance ({p_words(highest)})."
            )
        corrected[i] = replace(one, p_value=highest, meaning=meaning)
    return corrected


@dataclass(frozen=True, slots=True)
class FunnelPoint:
    """One fleet in a funnel plot: its rate, the limits for its exposure, where it lies."""

    name: str
    rate: FailureRate
    limits_95: tuple[float, float]
    limits_998: tuple[float, float]
    place: str


@dataclass(frozen=True, slots=True)
class Funnel:
    """Fleets against the rate of all of them, with control limits that narrow with exposure."""

    target_per_node_day: float
    dispersion: float
    points: tuple[FunnelPoint, ...]
    curve_node_days: tuple[float, ...]
    curve_95: tuple[tuple[float, float], ...]
    curve_998: tuple[tuple[float, float], ...]


def funnel(fleets: Sequence[tuple[str, FailureRate]], over_dispersed: bool = False) -> Funnel:
    """Funnel plot of fleets: who stands outside what chance explains.

    Args:
        over_dispersed: Widen the limits by the spread between fleets, its extreme tenths pulled in
            so that one bad fleet does not hide itself.

    Raises:
        UsageError: fewer than two fleets, or nothing failed.

    Source:
        Spiegelhalter (2005), Statistics in Medicine 24.
    """
    used = [(name, rate) for name, rate in fleets if rate.node_days > 0]
    failures = sum(rate.failures for _, rate in used)
    if len(used) < 2 or not failures:
        raise UsageError(
            f"{len(used)} fleets with exposure and {failures} failures make no funnel; "
            "give two or more fleets and at least one failure"
        )
    target = failures / sum(rate.node_days for _, rate in used)
    index = _overdispersion_factor(used, target) if over_dispersed else 1.0
    exposures = np.array([rate.node_days for _, rate in used])
    curve = np.geomspace(exposures.min() / 2, exposures.max() * 1.5, 60)
    inner, outer = (_limits(target, exposures, level, index) for level in (0.95, 0.998))
    points = tuple(
        FunnelPoint(name, rate, *limits, _place(rate, *limits))
        for (name, rate), limits in zip(used, zip(inner, outer, strict=True), strict=True)
    )
    return Funnel(
        target,
        index,
        points,
        tuple(curve.tolist()),
        tuple(_limits(target, curve, 0.95, index)),
        tuple(_limits(target, curve, 0.998, index)),
    )


def _place(rate: FailureRate, inner: tuple[float, float], outer: tuple[float, float]) -> str:
    value = rate.failures / rate.node_days
    for end, limits in (("99.8", outer), ("95", inner)):
        if value > limits[1]:
            return f"above {end} %"
        if value < limits[0]:
            return f"below {end} %"
    return "inside"


def _limits(
    target: float, node_days: Floats, level: float, index: float
) -> list[tuple[float, float]]:
    """Limits that a fleet at the target rate leaves with probability 1 - level or less."""
    from ettr.estimates.exact import poisson_quantile

    expected = target * node_days / index
    low, high = (
        poisson_quantile((1.0 + side * level) / 2.0, expected) * index / node_days
        for side in (-1, 1)
    )
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _overdispersion_factor(fleets: Sequence[tuple[str, FailureRate]], target: float) -> float:
    """How many times fleets scatter around the target as much as chance alone would, at least 1."""
    z = np.array(
        [
            2.0 * (math.sqrt(rate.failures) - math.sqrt(target * rate.node_days))
            for _, rate in fleets
        ]
    )
    z = np.clip(z, *np.quantile(z, [_WINSORISED_SHARE, 1.0 - _WINSORISED_SHARE]))
    return max(1.0, float(np.mean(z**2)))


# -- The ratio of two failure rates whose failures may cluster, and of one fleet before and after

LEAST_COMMON_SHARE = 0.5
"""Share of both periods' exposure that common nodes must hold for a paired comparison."""


def compare_spread(
    a: FailureRate,
    b: FailureRate,
    spreads_a: Sequence[Spread],
    spreads_b: Sequence[Spread],
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> RateRatio:
    """Ratio of two rates with an interval that admits the clustering seen in either fleet.

    On each axis (time, nodes) the indices of both fleets are pooled by their degrees of freedom;
    the axis with the wider interval decides.

    Raises:
        UsageError: a fleet has no exposure.
    """
    widest = pooled_spread(spreads_a, spreads_b, confidence)
    if widest is not None and widest.is_clustered:
        return ratio_with_dispersion(a, b, widest.index, widest.degrees, confidence, names)
    exact = compare_rates(a, b, confidence, names)
    if widest is not None and widest.is_known:
        return exact
    return replace(
        exact,
        meaning=f"{exact.meaning} Whether failures cluster cannot be known from "
        f"{counted(a.failures + b.failures, 'failure')}: this holds only if they are independent.",
    )


def pooled_spread(
    spreads_a: Sequence[Spread], spreads_b: Sequence[Spread], confidence: float = CONFIDENCE
) -> Spread | None:
    """Both fleets' spread on the axis with the wider interval; None where none was measured."""
    pooled = [
        one
        for axis in ("time", "nodes")
        if (one := _pooled(axis, [s for s in (*spreads_a, *spreads_b) if s.over == axis]))
    ]
    return max(pooled, key=lambda one: (one.inflation(confidence), one.is_known), default=None)


def _pooled(axis: Axis, spreads: Sequence[Spread]) -> Spread | None:
    """Both fleets' spread on one axis as one: indices weighted by degrees, p-values combined."""
    known = [one for one in spreads if one.p_value is not None]
    if not known:
        return spreads[0] if spreads else None
    degrees = sum(one.degrees for one in known)
    index = sum(max(1.0, one.index) * one.degrees for one in known) / degrees
    p_value = min(1.0, len(known) * min(one.p_value for one in known if one.p_value is not None))
    widest = max(known, key=lambda one: one.index)
    return Spread(
        axis,
        sum(one.failures for one in known),
        sum(one.units for one in known),
        widest.window_days,
        index,
        degrees,
        p_value,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PairedCounts:
    """Failures and exposure of the same nodes in two periods.

    Attributes:
        failures_a: Failures of each node in the first period, shape (n,); parts of failures that
            name no single node make them fractions.
        unplaced_a: Failures of the first period that are no node's; they count in the ratio.
    """

    failures_a: Floats
    node_days_a: Floats
    failures_b: Floats
    node_days_b: Floats
    unplaced_a: float = 0.0
    unplaced_b: float = 0.0

    @property
    def common(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Nodes that were in use in both periods."""
        return (self.node_days_a > 0) & (self.node_days_b > 0)

    @property
    def common_share(self) -> float:
        """The smaller share of a period's exposure that the common nodes hold."""
        both = self.common
        shares = [
            float(days[both].sum() / days.sum()) if days.sum() > 0 else 0.0
            for days in (self.node_days_a, self.node_days_b)
        ]
        return min(shares)


def compare_same_nodes(
    pairs: PairedCounts,
    over_time: Sequence[Spread],
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> RateRatio:
    """Ratio of the rates of the same nodes in two periods.

    What a node is prone to is common to both periods and cancels, so the spread between nodes does
    not widen the interval; clustering in time does. The ratio is that of Mantel and Haenszel over
    nodes, which differs from the crude one only where nodes shared the two periods unequally.

    Raises:
        UsageError: no node was in use in both periods.

    Source:
        Greenland and Robins (1985), Biometrics 41, for rates stratified by unit.
    """
    both = pairs.common
    if not both.any():
        raise UsageError(
            "no node was in use in both periods, so nothing can be paired; compare them as two "
            "fleets"
        )
    x, s = pairs.failures_a[both], pairs.node_days_a[both]
    y, t = pairs.failures_b[both], pairs.node_days_b[both]
    upper, lower = float(np.sum(x * t / (s + t))), float(np.sum(y * s / (s + t)))
    a = FailureRate(round(float(x.sum()) + pairs.unplaced_a), float(s.sum()))
    b = FailureRate(round(float(y.sum()) + pairs.unplaced_b), float(t.sum()))
    if upper > 0 and lower > 0:
        # the same counts over exposures that make the crude ratio Mantel and Haenszel's
        crude = float(x.sum() / s.sum()) / float(y.sum() / t.sum())
        adjust = np.sqrt(upper / lower / crude)
        weighted_a = FailureRate(a.failures, float(a.node_days / adjust))
        weighted_b = FailureRate(b.failures, float(b.node_days * adjust))
    else:
        weighted_a, weighted_b = a, b
    done = compare_spread(weighted_a, weighted_b, over_time, (), confidence, names)
    return replace(done, a=a, b=b)


# -- Is it getting better? The failure rate of the later half of the exposure over the earlier
#    one's
#
# Both halves have the same node-days, whatever ran when. The test admits bursts: the spread
# between windows of time is measured within each half, so that the change that is asked about is
# no part of it.

HALVES = ("the second half of the node-days", "the first")


class Direction(StrEnum):
    """What the failures of a fleet say about the direction of its rate."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class RateDirection:
    """Whether the failure rate falls or rises, and how that was tested.

    Attributes:
        verdict: Better or worse where the interval of the ratio leaves 1 out at p < 0.01.
        ratio: Rate of the later half (`a`) over that of the earlier one (`b`); None likewise.
        spread: Of the failures over time within the halves, which the test admits; None likewise.
    """

    verdict: Direction
    since: datetime | None
    ratio: RateRatio | None
    spread: Spread | None
    meaning: str


def rate_direction(timeline: FailureTimeline, confidence: float = CONFIDENCE) -> RateDirection:
    """Better, worse or undecided, with the ratio of both halves of the exposure.

    At a constant rate the verdict is better or worse in at most 1 of 100 fleets, whether failures
    come alone or in bursts. Where failures are too few, or the logs too short, to know whether they
    cluster (below ten in each half, or twelve windows), nothing is said.

    Source:
        Przyborowski and Wilenski (1940), Biometrika 31, for the ratio of two Poisson rates;
        McCullagh and Nelder (1989), section 6.2, for dividing both counts by their dispersion.
    """
    start, end = (float(edge) for edge in timeline.edges_days[[0, -1]])
    exposure = timeline.node_days - timeline.node_days[0]
    if not exposure[-1] > 0:
        return RateDirection(Direction.UNDECIDED, None, None, None, "Nothing ran.")
    cut = float(np.interp(exposure[-1] / 2.0, exposure, timeline.edges_days))
    late, early = _between(timeline, cut, end), _between(timeline, start, cut)
    rates = [
        FailureRate(int(half.times_days.size), float(half.node_days[-1] - half.node_days[0]))
        for half in (late, early)
    ]
    spreads = [spread_over_time(half, confidence) for half in (late, early)]
    ratio = compare_spread(rates[0], rates[1], spreads[:1], spreads[1:], confidence, HALVES)
    spread = pooled_spread(spreads[:1], spreads[1:], confidence)
    is_known = spread is not None and spread.is_known
    verdict = shown_direction(ratio) if is_known else Direction.UNDECIDED
    since = datetime.fromtimestamp(round(cut * SECONDS_PER_DAY), UTC)
    return RateDirection(verdict, since, ratio, spread, _direction_says(verdict, ratio, spread))


def undecided(found: RateDirection, why: str) -> RateDirection:
    """The same halves, whose rates the data do not let compare."""
    return replace(
        found,
        verdict=Direction.UNDECIDED,
        meaning=f"Whether it is getting better is unknown: {why}",
    )


def _between(timeline: FailureTimeline, begin: float, end: float) -> FailureTimeline:
    """The failures and the exposure of one half; a failure on the cut is of the later one."""
    edges = timeline.edges_days
    inner = edges[(edges > begin) & (edges < end)]
    cells = np.concatenate(([begin], inner, [end]))
    last = end >= float(edges[-1])
    inside = timeline.times_days >= begin
    inside &= True if last else timeline.times_days < end
    if begin <= float(edges[0]):
        inside |= timeline.times_days < begin
    return FailureTimeline(
        timeline.times_days[inside], cells, np.interp(cells, edges, timeline.node_days)
    )


def shown_direction(ratio: RateRatio) -> Direction:
    """Better or worse where a ratio of rates shows a change; many look, so that 1 in 10 is many."""
    if ratio.p_value >= SURE:
        return Direction.UNDECIDED
    if ratio.high < 1.0:
        return Direction.BETTER
    return Direction.WORSE if ratio.low > 1.0 else Direction.UNDECIDED


HINT = "a hint: a change is called one below p 0.01"


def _days(node_days: float) -> str:
    """Four digits, and never a power of ten."""
    return significant(node_days, 4) if node_days < 1e4 else f"{node_days:,.0f}"


def _times(ratio: float) -> str:
    times = significant(ratio, 2)
    return "as often" if times == "1" else f"{times} times as often"


def _direction_says(verdict: Direction, ratio: RateRatio, spread: Spread | None) -> str:
    late, early = ratio.a, ratio.b
    counts = (
        f"{_failures(late)} in the second half of {_days(late.node_days + early.node_days)} "
        f"node-days, {_failures(early)} in the first"
    )
    if spread is None or not spread.is_known:
        return (
            f"Whether it is getting better is undecided: {counts}. They are too few, or the logs "
            "too short, to show whether failures come in bursts."
        )
    times = (
        f"at least {significant(ratio.low, 2)} times as often"
        if ratio.ratio is None
        else f"{_times(ratio.ratio)} [{significant(ratio.low, 2)}, {significant(ratio.high, 2)}]"
    )
    tested = f"{counts}: {times}, {p_words(ratio.p_value)}"
    if spread.is_clustered:
        times = significant(max(1.1, spread.index), 2)
        tested += f"; failures vary {times} times as much as independent ones"
    if verdict is Direction.UNDECIDED:
        hint = "" if ratio.low <= 1.0 <= ratio.high else f"; {HINT}"
        return f"Whether it is getting better is undecided: {tested}{hint}."
    return f"It is getting {verdict.value}: {tested}."


def _failures(rate: FailureRate) -> str:
    return f"{rate.failures:,} failure{'' if rate.failures == 1 else 's'}"
