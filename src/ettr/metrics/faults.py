"""Fault rates of a fleet from a log that records faults and no jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.spread import FleetSpread, Spread
from ettr.metrics.availability import Service
from ettr.metrics.instants import Floats, Period, fetch, seconds_of, to_seconds
from ettr.metrics.rates import PER_NODE_DAYS, EstimatedRate, estimated_rate, part_rate
from ettr.metrics.survival import Durations, durations
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

FAULT_CHECKS = ("infinitehbd", "lanl")
UNKNOWN_CATEGORY = "unknown"


@dataclass(frozen=True, slots=True)
class CategoryFaults:
    """Faults of one category: their share, rate and time to repair."""

    category: str
    share: Interval
    in_service: EstimatedRate
    repair_h: Durations


@dataclass(frozen=True, slots=True)
class FleetFaults:
    """Faults per 1,000 node-days in service.

    The intervals admit the clustering of the faults (`clustering`). `gap_variation` is the
    coefficient of variation of the times between faults of the fleet, and `node_dispersion` the
    variance of the counts of nodes over their mean: both are 1 for independent faults of equal
    nodes.
    """

    nodes: int
    faults: int
    node_mtbf_days: Interval
    in_service: EstimatedRate
    by_category: tuple[CategoryFaults, ...]
    repair_h: Durations
    gap_variation: float | None
    node_dispersion: float | None
    clustering: FleetSpread | None = None


SpreadOfFaults = Callable[[Floats, dict[tuple[str, str], int]], FleetSpread]
"""From when faults began (seconds since 1970) and how many each node had, to their spread."""


def fleet_faults(
    events: ibis.Table,
    fleet: Service,
    period: Period,
    *,
    checks: tuple[str, ...] = FAULT_CHECKS,
    confidence: float = CONFIDENCE,
    spread_of: SpreadOfFaults | None = None,
) -> FleetFaults | None:
    """Fault rates by category, and time to repair of each fault; None where none is recorded.

    Args:
        events: observations; each of the named checks is one fault, with its end where it is over.
        fleet: nodes and their time in service (`availability.service`).
        period: time that the logs cover.
        checks: which checks record faults. Raw messages such as XIDs are not among them: one
            fault may write any number of them.
        confidence: of the intervals, between 0 and 1.
        spread_of: how faults cluster; the intervals are exact where None.
    """
    recorded = events.filter(events["check"].isin(list(checks)))
    rows = fetch(recorded, "cluster", "node", "code", "time", "time_end")
    if not rows.num_rows:
        return None
    starts_s, ends_s = seconds_of(rows["time"]), seconds_of(rows["time_end"])
    over = ~np.isnan(ends_s)
    until_s = np.where(over, ends_s, np.maximum(to_seconds(period.end), starts_s))
    lasted_h = np.maximum(until_s - starts_s, 0.0) / SECONDS_PER_HOUR
    node_days = fleet.node_s / SECONDS_PER_DAY
    owners = Counter(zip(rows["cluster"].to_pylist(), rows["node"].to_pylist(), strict=True))
    clustering = None if spread_of is None else spread_of(starts_s, dict(owners))
    spread = None if clustering is None else clustering.believed
    total = estimated_rate(rows.num_rows, node_days, confidence, spread)
    return FleetFaults(
        nodes=len(fleet.spans_s),
        faults=rows.num_rows,
        node_mtbf_days=_mtbf_days(total),
        in_service=total,
        by_category=_by_category(_categories(rows), lasted_h, over, total, confidence, spread),
        repair_h=durations(lasted_h, over, confidence),
        gap_variation=_variation(np.diff(np.sort(starts_s))),
        node_dispersion=_dispersion(owners, fleet),
        clustering=clustering,
    )


def _categories(rows: pa.Table) -> npt.NDArray[np.str_]:
    """The category of each fault: its code up to the first slash."""
    codes = [code or UNKNOWN_CATEGORY for code in rows["code"].to_pylist()]
    return np.array([code.split("/", 1)[0] or UNKNOWN_CATEGORY for code in codes])


def _by_category(
    categories: npt.NDArray[np.str_],
    lasted_h: Floats,
    over: npt.NDArray[np.bool_],
    total: EstimatedRate,
    confidence: float,
    spread: Spread | None,
) -> tuple[CategoryFaults, ...]:
    """The faults of each category, the most frequent first."""
    counts = Counter(categories.tolist())
    return tuple(
        CategoryFaults(
            category=name,
            share=share_interval(count, total.failures, confidence),
            in_service=part_rate(count, total.node_days, total.failures, confidence, spread),
            repair_h=durations(lasted_h[categories == name], over[categories == name], confidence),
        )
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def _mtbf_days(rate: EstimatedRate) -> Interval:
    if rate.node_days <= 0:
        return Interval.unknown()
    return rate.per_1000_node_days.inverse(PER_NODE_DAYS)


def _variation(gaps_s: Floats) -> float | None:
    if len(gaps_s) < 2 or gaps_s.mean() <= 0:
        return None
    return float(gaps_s.std(ddof=1) / gaps_s.mean())


def _dispersion(owners: Counter[tuple[str, str]], fleet: Service) -> float | None:
    """Variance over mean of the faults of each node, nodes without any included."""
    counts = np.array([owners[name] for name in fleet.spans_s], dtype=float)
    if len(counts) < 2 or counts.mean() <= 0:
        return None
    return float(counts.var(ddof=1) / counts.mean())
