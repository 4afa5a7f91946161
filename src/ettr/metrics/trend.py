"""The failure rate over time, in a rolling window, and the days on which checks appeared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ibis
import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.spread import Spread
from ettr.metrics.event_census import event_census
from ettr.metrics.instants import (
    Floats,
    Period,
    fetch,
    floats_of,
    in_utc,
    seconds_of,
    to_datetime,
    to_seconds,
)
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, window_rate
from ettr.tables.ibis_time import epoch_s
from ettr.units import SECONDS_PER_DAY

WINDOW_DAYS = 30.0
STEP_DAYS = 1.0
SETTLED_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class SymptomCount:
    """Failures of one symptom within a window."""

    symptom: str
    failures: int
    per_1000_node_days: float | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The window that ends at `time`; near the start of the logs it is shorter."""

    time: datetime
    window_from: datetime
    failures: int
    node_days: float
    per_1000_node_days: Interval
    by_symptom: tuple[SymptomCount, ...]


@dataclass(frozen=True, slots=True)
class CheckMarker:
    """The first event of a check.

    Attributes:
        check: Its name.
        first_seen: When it first reported.
        events: Its events.
        silence_chance: How likely a check that had run since the logs began would have been silent
            for so long, given on how many days it reported afterwards.
        is_new: Whether that chance is small, so that the check was probably added then: failures
            that it explains may have happened unseen before, and the rate seems to rise.
    """

    check: str
    first_seen: datetime
    events: int
    silence_chance: float
    is_new: bool


@dataclass(frozen=True, slots=True)
class RateTrend:
    """The rolling failure rate; `above_gpus` None means all jobs."""

    window_days: float
    step_days: float
    above_gpus: int | None
    confidence: float
    points: tuple[TrendPoint, ...]
    markers: tuple[CheckMarker, ...]


def rate_trend(
    exposed: ibis.Table,
    failures: ibis.Table,
    events: ibis.Table,
    period: Period,
    *,
    above_gpus: int | None = None,
    window_days: float = WINDOW_DAYS,
    step_days: float = STEP_DAYS,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
    census: ibis.Table | None = None,
) -> RateTrend:
    """Failures per 1,000 node-days in a rolling window.

    Args:
        exposed: all attempts with their node-seconds (`Exposure.by_attempt`).
        failures: failures of the infrastructure.
        events: observations; the first of each check becomes a marker.
        period: time that the logs cover.
        above_gpus: count only jobs of more GPUs.
        window_days: length of the window.
        step_days: distance of the points.
        confidence: of the intervals, between 0 and 1.
        spread: how the failures cluster; intervals are exact where None.
        census: of the events (`event_census`), where it is at hand.

    Raises:
        UsageError: a length that is not positive.
    """
    if window_days <= 0 or step_days <= 0:
        raise UsageError(
            f"window_days {window_days} and step_days {step_days} must be above 0; "
            "give 30 and 1 for a month's window on every day"
        )
    edges, end_s = _edges_s(period, step_days), to_seconds(period.end)
    start_s = float(edges[0])
    node_days = cumulative_node_days(exposed, edges, above_gpus)
    moments, symptoms = _failure_times(failures, above_gpus)
    points = []
    for place in range(1, len(edges)):
        low_s = max(edges[place] - window_days * SECONDS_PER_DAY, start_s)
        inside = moments <= edges[place]
        inside &= (moments >= low_s) if low_s <= start_s else (moments > low_s)
        exposure_days = float(node_days[place] - np.interp(low_s, edges, node_days))
        counts = Counter(symptoms[inside].tolist())
        high_s = min(edges[place], end_s)
        total = window_rate(counts.total(), exposure_days, len(moments), confidence, spread)
        points.append(_point(low_s, high_s, counts, total))
    markers = check_markers(events, census)
    return RateTrend(window_days, step_days, above_gpus, confidence, tuple(points), markers)


def _edges_s(period: Period, step_days: float) -> Floats:
    """Moments in whole seconds, a step apart, from the start of the logs to their end or beyond."""
    start_s = np.floor(to_seconds(period.start))
    step_s = max(1, round(step_days * SECONDS_PER_DAY))
    steps = max(1, int(np.ceil((to_seconds(period.end) - start_s) / step_s)))
    edges: Floats = start_s + step_s * np.arange(steps + 1, dtype=np.float64)
    return edges


def _failure_times(
    failures: ibis.Table, above_gpus: int | None
) -> tuple[Floats, npt.NDArray[np.object_]]:
    """When each failure of those jobs happened, in seconds, and its symptom."""
    rows = fetch(failures, "end", "symptom", "n_gpus")
    moments = seconds_of(rows["end"])
    symptoms = np.asarray(rows["symptom"].to_pylist(), dtype=object)
    if above_gpus is None:
        return moments, symptoms
    large = np.nan_to_num(floats_of(rows["n_gpus"])) > above_gpus
    return moments[large], symptoms[large]


def _point(low_s: float, high_s: float, counts: Counter[str], total: EstimatedRate) -> TrendPoint:
    node_days = total.node_days
    return TrendPoint(
        time=to_datetime(high_s),
        window_from=to_datetime(low_s),
        failures=total.failures,
        node_days=node_days,
        per_1000_node_days=total.per_1000_node_days,
        by_symptom=tuple(
            SymptomCount(name, count, count * PER_NODE_DAYS / node_days if node_days > 0 else None)
            for name, count in sorted(counts.items())
        ),
    )


def cumulative_node_days(
    exposed: ibis.Table, edges_s: Floats, above_gpus: int | None = None
) -> Floats:
    """Node-days run before each edge, exactly, without cutting any attempt into pieces.

    The edges are whole seconds, all the same distance apart.

    Between start and end an attempt adds its nodes times the part of the time that it was not
    suspended. So the sum before an edge needs only, for each cell between two edges, the weights
    that start and end there and their first moments: two group-bys however many attempts.
    """
    ran = exposed.filter(exposed["start"].notnull() & (exposed["elapsed_s"] > 0))
    if above_gpus is not None:
        ran = ran.filter(ran["n_gpus"] > above_gpus)
    origin_s = int(edges_s[0])
    begin = epoch_s(ran["start"]) - origin_s
    until = (epoch_s(ran["end"]) - origin_s).fill_null(begin + ran["elapsed_s"].cast("int64"))
    spans = ran.select(
        begin=begin,
        until=ibis.greatest(until, begin + 1),
        node_s=ran["node_s"].fill_null(0.0),
    )
    spans = spans.mutate(weight=spans["node_s"] / (spans["until"] - spans["begin"]))
    step_s = int(edges_s[1] - edges_s[0]) if len(edges_s) > 1 else 1
    total = np.zeros(len(edges_s))
    for name, sign in (("begin", 1.0), ("until", -1.0)):
        # An edge is never inside a cell: cells are the steps between the edges.
        cell = ((spans[name] + step_s - 1) // step_s).cast("int64")
        rows = (
            spans.mutate(cell=cell, moment=spans["weight"] * spans[name])
            .group_by("cell")
            .aggregate(
                lambda t: t["weight"].sum().name("weight"),
                lambda t: t["moment"].sum().name("moment"),
            )
            .order_by("cell")
            .to_pyarrow()
        )
        cells = rows["cell"].to_numpy()
        weights, moments = (
            np.cumsum(floats_of(rows["weight"])),
            np.cumsum(floats_of(rows["moment"])),
        )
        for place, edge in enumerate(edges_s):
            t = edge - origin_s
            upto = int(np.searchsorted(cells * step_s, t, side="right"))
            if upto:
                total[place] += sign * (t * weights[upto - 1] - moments[upto - 1])
    return total / SECONDS_PER_DAY


NEW_BELOW = 0.04
"""A check is new where its silence before would have at most this chance."""


def check_markers(events: ibis.Table, census: ibis.Table | None = None) -> tuple[CheckMarker, ...]:
    """When each check first reported, the earliest first.

    Of a check that has always run, each day with events is as likely before any moment as after it:
    that all n of them fall into the last r of s + r days has the chance (r / (s + r)) ** n. Days
    are counted and not events, since one fault may report a thousand times, and of days that follow
    each other every other one, since it may report on both sides of midnight.
    """
    census = event_census(events, ("check",)) if census is None else census
    daily = (
        census.group_by("check", "day")
        .aggregate(
            first=census["first"].min(), last=census["last"].max(), events=census["events"].sum()
        )
        .to_pyarrow()
        .to_pylist()
    )
    by_check: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in daily:
        by_check[row["check"]].append(row)
    rows = [
        {
            "check": check,
            "first_seen": min(day["first"] for day in days),
            "last_seen": max(day["last"] for day in days),
            "events": sum(day["events"] for day in days),
            "days": _days_apart([day["day"] for day in days]),
        }
        for check, days in by_check.items()
    ]
    if not rows:
        return ()
    rows.sort(key=lambda row: (row["first_seen"], row["check"]))
    begin, end = rows[0]["first_seen"], max(row["last_seen"] for row in rows)
    return tuple(_marker(row, begin, end) for row in rows)


def _days_apart(days: Iterable[int]) -> int:
    """How many of some days there are, where no two that follow each other count."""
    taken: list[int] = []
    for day in sorted(days):
        if not taken or day > taken[-1] + 1:
            taken.append(day)
    return len(taken)


def _marker(row: dict[str, Any], begin: datetime, end: datetime) -> CheckMarker:
    silent_s = (row["first_seen"] - begin).total_seconds()
    rest_s = (end - row["first_seen"]).total_seconds()
    chance = (rest_s / (silent_s + rest_s)) ** row["days"] if silent_s > 0 else 1.0
    return CheckMarker(
        check=row["check"],
        first_seen=in_utc(row["first_seen"]),
        events=int(row["events"]),
        silence_chance=chance,
        is_new=chance <= NEW_BELOW and silent_s > SETTLED_DAYS * SECONDS_PER_DAY,
    )
