"""What a check found before failures, what it missed, and when it cried wolf.

Times are seconds; a place is a node. A firing is a check's alarm on a node from its first to its
last report without a silence of more than `GAP_S`. It is before a failure that blames the node
where it began before the end of the failed job and was on, or over, at most `horizon_s` before it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import binom, hypergeom

from ettr.checks.selector import Floats
from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.units import SECONDS_PER_HOUR

Ints = NDArray[np.int64]
GAP_S = 10_800.0
LATE_S = 900.0
"""An alarm up to so long after a failure is about it."""
Place = tuple[str, str]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class BlamedEnd:
    """A failure that blames one node.

    Attributes:
        alone: The check whose alarms alone say what the failure was; None where there is none, or
            several. Of it the failure says nothing: without the alarm it would have another name.
    """

    place: Place
    end_s: float
    symptom: str
    alone: str | None = None


@dataclass(frozen=True, slots=True)
class SymptomCoverage:
    """How a check did on the failures of one symptom.

    Attributes:
        failures: That ended while the check watched the node, without `own`.
        fired_before: Those that it fired before; the others it missed.
        own: Failures that are known by this check's alarms alone; not in `failures`.
        coverage_share: `fired_before` over `failures`.
        by_chance_share: Of any moments of these nodes, how many have a firing before them.
        lead_h: Median time from the firing to the failure; null without any.
    """

    symptom: str
    failures: int
    fired_before: int
    missed: int
    own: int
    coverage_share: Interval
    by_chance_share: float | None
    lead_h: Interval


@dataclass(frozen=True, slots=True)
class Alarms:
    """What became of the firings of a check.

    Attributes:
        before_failure: A failure that blames the node followed within the horizon.
        at_failure: One had just ended the job, so that the alarm was right and late.
        taken_out: The node was taken out of service within it, so that nothing could follow.
        false_alarms: Jobs ran on the node for the horizon, and none of them failed by it.
        unknown: Nothing ran on it, or the logs end.
        false_share: False alarms over those and `before_failure`.
    """

    firings: int
    before_failure: int
    at_failure: int
    taken_out: int
    false_alarms: int
    unknown: int
    false_share: Interval


def firings_of(reports: Iterable[Span], gap_s: float = GAP_S) -> list[Span]:
    """Reports of one check on one node as firings, in order of time."""
    made: list[Span] = []
    for first, last in sorted(reports):
        if made and first - made[-1][1] <= gap_s:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


def lead_s(firings: Sequence[Span], end_s: float, horizon_s: float) -> float | None:
    """How long before a failure the firing began that was before it; None without any."""
    at = bisect_left(firings, (end_s,)) - 1
    if at < 0 or end_s - firings[at][1] > horizon_s:
        return None
    return end_s - firings[at][0]


def coverage_by_symptom(
    check: str,
    failures: Iterable[BlamedEnd],
    firings: Mapping[Place, Sequence[Span]],
    watched: Mapping[Place, Span],
    horizon_s: float,
    confidence: float = CONFIDENCE,
) -> list[SymptomCoverage]:
    """The coverage of one check, the symptoms with most failures first.

    Args:
        watched: from when to when the check watched each node that it did.
    """
    leads: defaultdict[str, list[float]] = defaultdict(list)
    seen: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for one in failures:
        begin, end = watched.get(one.place, (np.inf, -np.inf))
        if not begin <= one.end_s <= end + horizon_s:
            continue
        if one.alone == check:
            own[one.symptom] += 1
            continue
        seen[one.symptom] += 1
        lead = lead_s(firings.get(one.place, ()), one.end_s, horizon_s)
        if lead is not None:
            leads[one.symptom].append(lead)
    chance = _covered_share(firings, watched, horizon_s)
    return [
        SymptomCoverage(
            name,
            seen[name],
            len(leads[name]),
            seen[name] - len(leads[name]),
            own[name],
            share_interval(len(leads[name]), seen[name], confidence)
            if seen[name]
            else Interval.unknown(),
            chance,
            median_interval(leads[name], confidence).scaled(1 / SECONDS_PER_HOUR),
        )
        for name in sorted({*seen, *own}, key=lambda name: (-seen[name] - own[name], name))
    ]


@dataclass(frozen=True, slots=True)
class CoverageHistory:
    """Whether incidents after passed checks agree with the coverage that was stated before.

    Attributes:
        stated_share: By the catalogue, or by the first half of the logs.
        caught: Defects that it fired on before they struck, or that were taken out of service for
            it: of the second half, or with a catalogue of all.
        missed: Failures that came although it had not fired; `expected_missed` by the stated share.
        agrees: False where so few or many are unlikely at the level of confidence of all checks.
    """

    stated_share: float
    by_catalogue: bool
    caught: int
    missed: int
    expected_missed: float
    agrees: bool


def catches(
    check: str,
    failures: Iterable[BlamedEnd],
    firings: Mapping[Place, Sequence[Span]],
    outages_s: Mapping[Place, Sequence[float]],
    watched: Mapping[Place, Span],
    horizon_s: float,
) -> list[tuple[float, bool]]:
    """When a defect came out on a watched node, and whether the check had fired on it by then."""
    found = []
    ends: defaultdict[Place, list[float]] = defaultdict(list)
    for one in failures:
        ends[one.place].append(one.end_s)
        begin, end = watched.get(one.place, (np.inf, -np.inf))
        if begin <= one.end_s <= end + horizon_s and one.alone != check:
            lead = lead_s(firings.get(one.place, ()), one.end_s, horizon_s)
            found.append((one.end_s, lead is not None))
    for place, own in firings.items():
        ended, outages = sorted(ends[place]), outages_s.get(place, ())
        for first, last in own:
            near = _any_within(ended, first - LATE_S, last + horizon_s)
            if not near and _any_within(outages, first, last + horizon_s):
                found.append((first, True))
    return found


def history_of(
    found: Iterable[tuple[float, bool]],
    middle_s: float,
    typed_share: float | None,
    confidence: float,
) -> CoverageHistory | None:
    """The stated coverage against what came; None where either half has nothing.

    By the exact binomial law of the catalogue's share; else by Fisher's exact test of both halves.
    """
    halves = [Counter[bool](), Counter[bool]()]
    for time_s, is_caught in found:
        halves[time_s >= middle_s][is_caught] += 1
    before, after = halves
    if typed_share is not None:
        both = before + after
        if not (n := both.total()):
            return None
        agrees = share_interval(both[True], n, confidence).contains(typed_share)
        expected = n * (1 - typed_share)
        return CoverageHistory(typed_share, True, both[True], both[False], expected, agrees)
    if not before.total() or not after.total():
        return None
    share = before[True] / before.total()
    ways = hypergeom(before.total() + after.total(), before[True] + after[True], after.total())
    law = ways.pmf(np.arange(after.total() + 1))
    chance = float(law[law <= law[after[True]] * (1 + 1e-9)].sum())
    return CoverageHistory(
        share,
        False,
        after[True],
        after[False],
        after.total() * (1 - share),
        chance >= 1 - confidence,
    )


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median with the order statistics that hold it; an end that is not bound is infinite."""
    if not len(values):
        return Interval.unknown()
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    # the k-th smallest is above the median with the probability of fewer than k below it
    k = int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5))
    low, high = (float(ordered[k - 1]), float(ordered[-k])) if k else (0.0, np.inf)
    return Interval(float(np.median(ordered)), low, high)


def alarms_of(
    failures: Iterable[BlamedEnd],
    firings: Mapping[Place, Sequence[Span]],
    outages_s: Mapping[Place, Sequence[float]],
    runs: Mapping[Place, Sequence[Span]],
    horizon_s: float,
    confidence: float = CONFIDENCE,
) -> Alarms:
    """What became of each firing of a check.

    Args:
        outages_s: when each node was taken out of service, in order.
        runs: from when to when jobs ran on each node, in order, not overlapping.
    """
    ends: defaultdict[Place, list[float]] = defaultdict(list)
    for one in failures:
        ends[one.place].append(one.end_s)
    found: Counter[str] = Counter()
    for place, own in firings.items():
        ended = sorted(ends[place])
        for first, last in own:
            until = last + horizon_s
            if _any_within(ended, math.nextafter(first, math.inf), until):
                found["before"] += 1
            elif _any_within(ended, first - LATE_S, first):
                found["at"] += 1
            elif _any_within(outages_s.get(place, ()), first, until):
                found["out"] += 1
            elif _ran_s(runs.get(place, ()), last, until) >= horizon_s / 2:
                found["false"] += 1
            else:
                found["unknown"] += 1
    judged = found["before"] + found["false"]
    return Alarms(
        sum(found.values()),
        found["before"],
        found["at"],
        found["out"],
        found["false"],
        found["unknown"],
        share_interval(found["false"], judged, confidence) if judged else Interval.unknown(),
    )


def _any_within(times_s: Sequence[float], after_s: float, until_s: float) -> bool:
    at = bisect_left(times_s, after_s)
    return at < len(times_s) and times_s[at] <= until_s


def _ran_s(runs: Sequence[Span], begin_s: float, end_s: float) -> float:
    at = max(bisect_left(runs, (begin_s,)) - 1, 0)
    total = 0.0
    for first, last in runs[at:]:
        if first >= end_s:
            break
        total += max(min(last, end_s) - max(first, begin_s), 0.0)
    return total


def _covered_share(
    firings: Mapping[Place, Sequence[Span]], watched: Mapping[Place, Span], horizon_s: float
) -> float | None:
    """Of the time that nodes were watched, how much has a firing before it."""
    whole = covered = 0.0
    for place, (begin, end) in watched.items():
        whole += max(end - begin, 0.0)
        reached = begin
        for first, last in firings.get(place, ()):
            upto = min(last + horizon_s, end)
            covered += max(upto - max(first, reached), 0.0)
            reached = max(reached, upto)
    return min(covered / whole, 1.0) if whole else None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node before and after it got a check: failures of a symptom, and node-days."""

    failures_before: int
    days_before: float
    failures_after: int
    days_after: float


@dataclass(frozen=True, slots=True)
class CheckEffect:
    """Whether a new check helped, paired by node.

    Attributes:
        rate_ratio: Failures a node-day after the check came over those before, each node compared
            with itself.
    """

    nodes: int
    failures_before: int
    node_days_before: float
    failures_after: int
    node_days_after: float
    rate_ratio: Interval

    @property
    def verdict(self) -> str:
        """fewer, more, or not decided."""
        if self.rate_ratio.high < 1:
            return "fewer"
        return "more" if self.rate_ratio.low > 1 else "not decided"


def effect_of(nodes: Iterable[NodeChange], confidence: float = CONFIDENCE) -> CheckEffect:
    """The change of rates, each node its own control.

    Given a node's failures, those after are binomial with a share that follows from its node-days
    and the ratio; their sum over the nodes has an exact law, which is inverted for both ends.
    """
    paired = [one for one in nodes if one.days_before > 0 and one.days_after > 0]
    before = sum(one.failures_before for one in paired)
    after = sum(one.failures_after for one in paired)
    counts = [one.failures_before + one.failures_after for one in paired]
    odds = np.array(
        [one.days_after / one.days_before for one, n in zip(paired, counts, strict=True) if n]
    )
    tries = np.array([n for n in counts if n], dtype=np.int64)
    tail = (1 - confidence) / 2
    ratio = Interval.unknown()
    if len(tries):
        estimate = _solved(odds, tries, lambda _, mean: mean - after) if after else 0.0
        ratio = Interval(
            estimate if before else None,
            _solved(odds, tries, lambda law, _: law[after:].sum() - tail) if after else 0.0,
            _solved(odds, tries, lambda law, _: tail - law[: after + 1].sum())
            if before
            else np.inf,
        )
    return CheckEffect(
        len(paired),
        before,
        sum(one.days_before for one in paired),
        after,
        sum(one.days_after for one in paired),
        ratio,
    )


def _solved(odds: Floats, tries: Ints, above: Callable[[Floats, float], float]) -> float:
    """The ratio at which a rising function of the law of the failures after is zero."""
    low, high = -16.0, 16.0
    ways = [comb(n, np.arange(n + 1)) for n in tries.tolist()]
    for _ in range(40):
        middle = (low + high) / 2
        share = odds * np.exp(middle) / (1 + odds * np.exp(middle))
        law = np.ones(1)
        for own, p in zip(ways, share.tolist(), strict=True):
            after = np.arange(len(own))
            law = np.convolve(law, own * p**after * (1 - p) ** after[::-1])
        value = above(law, float(tries @ share))
        low, high = (low, middle) if value > 0 else (middle, high)
    return float(np.exp((low + high) / 2))
