"""How many failures will come: a store's own past in windows, and how well it forecast itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.node_faults import faults_of
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.metrics.instants import Floats, to_seconds
from ettr.metrics.rates import FailuresByConfidence, counted_confidences
from ettr.metrics.trend import cumulative_node_days
from ettr.models.data import Counts, at_risk
from ettr.projection.forecast import (
    LEAST_WINDOWS,
    Calibration,
    Forecast,
    forecast,
    rolling_forecasts,
)
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

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
