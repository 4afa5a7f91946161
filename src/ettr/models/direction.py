"""Is it getting better? The failure rate of the later half of the exposure over the earlier one's.

Both halves have the same node-days, whatever ran when. The test admits bursts: the spread between
windows of time is measured within each half, so that the change that is asked about is no part of
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import Spread
from ettr.models.compare import RateRatio
from ettr.models.dispersion import FailureTimeline, spread_over_time
from ettr.models.ratio import compare_spread, pooled_spread
from ettr.units import SECONDS_PER_DAY

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
        verdict: Better or worse where the interval of the ratio leaves 1 out.
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

    At a constant rate the verdict is better or worse in at most 1 - `confidence` of fleets,
    whether failures come alone or in bursts. Where failures are too few, or the logs too short, to
    know whether they cluster (below ten in each half, or twelve windows), nothing is said.

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
    verdict = _verdict(ratio, spread)
    since = datetime.fromtimestamp(round(cut * SECONDS_PER_DAY), UTC)
    return RateDirection(verdict, since, ratio, spread, _says(verdict, ratio, spread))


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


def _verdict(ratio: RateRatio, spread: Spread | None) -> Direction:
    if spread is None or not spread.is_known:
        return Direction.UNDECIDED
    if ratio.high < 1.0:
        return Direction.BETTER
    return Direction.WORSE if ratio.low > 1.0 else Direction.UNDECIDED


def _says(verdict: Direction, ratio: RateRatio, spread: Spread | None) -> str:
    late, early = ratio.a, ratio.b
    counts = (
        f"{_failures(late)} in the second half of {late.node_days + early.node_days:,.4g} "
        f"node-days, {_failures(early)} in the first"
    )
    if spread is None or not spread.is_known:
        return (
            f"Whether it is getting better is undecided: {counts}. They are too few, or the logs "
            "too short, to show whether failures come in bursts."
        )
    times = (
        f"at least {ratio.low:.2g} times as often"
        if ratio.ratio is None
        else f"{ratio.ratio:.2g} times as often [{ratio.low:.2g}, {ratio.high:.2g}]"
    )
    tested = f"{counts}: {times}, p {ratio.p_value:.2g}"
    if spread.is_clustered:
        tested += f"; failures vary {max(1.0, spread.index):.2g} times as much as independent ones"
    if verdict is Direction.UNDECIDED:
        return f"Whether it is getting better is undecided: {tested}."
    return f"It is getting {verdict.value}: {tested}."


def _failures(rate: FailureRate) -> str:
    return f"{rate.failures:,} failure{'' if rate.failures == 1 else 's'}"
