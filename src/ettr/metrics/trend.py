"""The failure rate over time, in a rolling window, and the days on which checks appeared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.spread import Spread
from ettr.facts import Facts
from ettr.metrics.instants import Floats, Period, moment, to_datetime, to_seconds
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, window_rate
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

WINDOW_DAYS = 30.0
STEP_DAYS = 1.0
SETTLED_DAYS = 7.0
FINE_DAYS = 60.0
"""Logs up to this length are cut into hours, longer ones into half days."""


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
    facts: Facts,
    period: Period,
    *,
    above_gpus: int | None = None,
    window_days: float = WINDOW_DAYS,
    step_days: float = STEP_DAYS,
    confidence: float = CONFIDENCE,
    spread: Spread | None = None,
) -> RateTrend:
    """Failures per 1,000 node-days in a rolling window."""
    if window_days <= 0 or step_days <= 0:
        raise UsageError(
            f"window_days {window_days} and step_days {step_days} must be above 0; "
            "give 30 and 1 for a month's window on every day"
        )
    edges, end_s = _edges_s(period, step_days), to_seconds(period.end)
    start_s = float(edges[0])
    node_days = cumulative_node_days(facts, edges, above_gpus, calendar_step_s(period))
    moments, symptoms = _failure_times(facts, above_gpus)
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
    markers = check_markers(facts)
    return RateTrend(window_days, step_days, above_gpus, confidence, tuple(points), markers)


def _edges_s(period: Period, step_days: float) -> Floats:
    """Moments in whole seconds, a step apart, from the start of the logs to their end or beyond."""
    start_s = np.floor(to_seconds(period.start))
    step_s = max(1, round(step_days * SECONDS_PER_DAY))
    steps = max(1, int(np.ceil((to_seconds(period.end) - start_s) / step_s)))
    edges: Floats = start_s + step_s * np.arange(steps + 1, dtype=np.float64)
    return edges


def _failure_times(facts: Facts, above_gpus: int | None) -> tuple[Floats, npt.NDArray[np.object_]]:
    """When each failure of those jobs happened, in seconds, and its symptom."""
    failed = facts.columns("failures")
    moments = failed["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
    symptoms = failed["symptom"].astype(object)
    if above_gpus is None:
        return moments, symptoms
    large = np.nan_to_num(failed["n_gpus"].astype(np.float64)) > above_gpus
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


def calendar_step_s(period: Period) -> float:
    """Length of the cells of the calendar of a period."""
    whole_s = to_seconds(period.end) - to_seconds(period.start)
    fine = whole_s <= FINE_DAYS * SECONDS_PER_DAY
    return SECONDS_PER_HOUR if fine else SECONDS_PER_DAY / 2.0


def cumulative_node_days(
    facts: Facts, edges_s: Floats, above_gpus: int | None = None, step_s: float | None = None
) -> Floats:
    """Node-days run before each edge, exactly, without cutting any attempt into pieces.

    Between start and end an attempt adds its nodes times the part of the time that it was not
    suspended. So the sum before an edge needs only, for each cell between two edges, the weights
    that start and end there and their first moments (the fact `ran_cells`).
    """
    apart_s = int(edges_s[1] - edges_s[0]) if len(edges_s) > 1 else 1
    shared = step_s is not None and apart_s % int(step_s) == 0
    origin_s, cell_s = int(edges_s[0]), int(step_s) if step_s and shared else apart_s
    given = {"cells_origin_s": origin_s, "cells_step_s": cell_s}
    if above_gpus is not None:
        given["above_gpus"] = above_gpus
    cells = facts.under(**given).columns("ran_cells")
    t = edges_s - origin_s
    total = np.zeros(len(edges_s))
    for sign in (1, -1):
        own = cells["sign"] == sign
        if above_gpus is not None:
            own &= cells["is_large"].astype(np.bool_)
        weights, moments = (
            np.concatenate([[0.0], np.cumsum(cells[name][own])]) for name in ("weight", "moment")
        )
        # an edge is never inside a cell
        upto = np.searchsorted(cells["cell"][own] * cell_s, t, side="right")
        total += sign * (t * weights[upto] - moments[upto])
    return total / SECONDS_PER_DAY


NEW_BELOW = 0.04
"""A check is new where its silence before would have at most this chance."""


def check_markers(facts: Facts) -> tuple[CheckMarker, ...]:
    """When each check first reported, the earliest first.

    Of a check that has always run, each day with events is as likely before any moment as after
    it: that all n of them fall into the last r of s + r days has the chance (r / (s + r)) ** n.
    Days are counted and not events, since one fault may report a thousand times, and of days that
    follow each other every other one, since it may report on both sides of midnight.
    """
    by_check: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in facts.rows("check_days"):
        by_check[row["check"]].append(row)
    rows = [
        {
            "check": check,
            "first_seen": min(day["first_us"] for day in days),
            "last_seen": max(day["last_us"] for day in days),
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


def _marker(row: dict[str, Any], begin_us: int, end_us: int) -> CheckMarker:
    silent_s = (row["first_seen"] - begin_us) / MICROSECONDS_PER_SECOND
    rest_s = (end_us - row["first_seen"]) / MICROSECONDS_PER_SECOND
    chance = (rest_s / (silent_s + rest_s)) ** row["days"] if silent_s > 0 else 1.0
    return CheckMarker(
        check=row["check"],
        first_seen=moment(row["first_seen"]),
        events=int(row["events"]),
        silence_chance=chance,
        is_new=chance <= NEW_BELOW and silent_s > SETTLED_DAYS * SECONDS_PER_DAY,
    )
