"""How the failures of a store cluster: over time along the calendar, and over nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE
from ettr.estimates.spread import FleetSpread, Spread, fleet_spread
from ettr.facts import Facts
from ettr.facts.files import Columns
from ettr.metrics.availability import Service
from ettr.metrics.instants import Floats, Period, to_seconds
from ettr.metrics.trend import calendar_step_s, cumulative_node_days
from ettr.models.compare import RateDirection, rate_direction
from ettr.models.data import Counts, at_risk
from ettr.models.dispersion import FailureTimeline, burstiness, spread_over_nodes, spread_over_time
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

NODE = "node"
BAND_SEED = 20_241_029
"""Seed of the draws behind the band of independent gaps: the same data give the same report."""
FLEET = "fleet"
"""The one unit of a fleet whose nodes the logs do not distinguish."""


@dataclass(frozen=True, slots=True)
class FailuresOfSize:
    """Failures of all jobs, or of those of more than some number of GPUs.

    Attributes:
        spread_by_symptom: How those of each symptom cluster among themselves. A network that fails
            in bursts may be a small part of failures that are otherwise independent.
    """

    counts: Counts | None
    spread: FleetSpread
    spread_by_symptom: Mapping[str, FleetSpread] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FailureClustering:
    """Spread of the failures of all jobs, and of the large ones; the direction is of all jobs."""

    every: FailuresOfSize
    large: FailuresOfSize | None
    direction: RateDirection

    @property
    def all_jobs(self) -> FleetSpread:
        """How the failures of all jobs cluster."""
        return self.every.spread

    @property
    def large_jobs(self) -> FleetSpread:
        """How those of large jobs cluster; where none failed, those of all jobs."""
        return (self.large or self.every).spread

    @property
    def symptoms(self) -> Mapping[str, FleetSpread]:
        """How the failures of each symptom cluster, of all jobs."""
        return self.every.spread_by_symptom

    @property
    def large_jobs_symptoms(self) -> Mapping[str, FleetSpread]:
        """The same of large jobs; where none failed, of all jobs."""
        return (self.large or self.every).spread_by_symptom


def failure_clustering(
    facts: Facts, period: Period, above_gpus: int, confidence: float = CONFIDENCE
) -> FailureClustering:
    """Spread of a store's failures over windows of time and over nodes.

    Failures that name no node count over time, where most bursts show: which nodes a switch or a
    file system takes with it is nearly chance.
    """
    failed, of_large = facts.columns("failures"), None
    large = np.nan_to_num(failed["n_gpus"].astype(np.float64)) > above_gpus
    if large.any():
        rows = {name: values[large] for name, values in failed.items()}
        of_large, _ = _of_jobs(facts, rows, period, above_gpus, confidence)
    every, line = _of_jobs(facts, failed, period, None, confidence)
    return FailureClustering(every, of_large, rate_direction(line, confidence))


def clustering_of_all(
    facts: Facts, period: Period, confidence: float = CONFIDENCE
) -> FailuresOfSize:
    """`failure_clustering(...).every` alone; arguments as there."""
    return _of_jobs(facts, facts.columns("failures"), period, None, confidence)[0]


def _of_jobs(
    facts: Facts, rows: Columns, period: Period, above_gpus: int | None, confidence: float
) -> tuple[FailuresOfSize, FailureTimeline]:
    """How the failures of jobs of more GPUs cluster, which are `rows`, and when they were."""
    edges_s = calendar_edges(period)
    node_days = cumulative_node_days(facts, edges_s, above_gpus)
    line = timeline(rows, edges_s, node_days)
    if above_gpus is None:
        used = facts.rows("node_seconds")
    else:
        used = facts.under(above_gpus=above_gpus).rows("node_seconds_large")
    failed = Counter(zip(rows["cluster"].tolist(), rows["node"].tolist(), strict=True))
    return failures_of_size(rows, line, counts_by_node(used, failed), confidence), line


def failures_of_size(
    rows: Columns,
    line: FailureTimeline,
    counts: Counts | None,
    confidence: float = CONFIDENCE,
) -> FailuresOfSize:
    """How some failures cluster, all together and by symptom."""
    symptoms = rows["symptom"].astype(np.str_)
    place = _places(rows, counts)
    spreads: dict[str, FleetSpread] = {}
    for symptom in np.unique(symptoms).tolist():
        own = symptoms == symptom
        times_days = line.times_days[own]
        own_line = FailureTimeline(times_days, line.edges_days, line.node_days)
        own_counts = None if counts is None else _at_places(counts, place[own])
        spreads[symptom] = of_fleet(own_line, own_counts, confidence)
    return FailuresOfSize(counts, of_fleet(line, counts, confidence), spreads)


def _places(rows: Columns, counts: Counts | None) -> NDArray[np.int64]:
    """For each failure the unit of the counts that it belongs to, -1 for none."""
    if counts is None or counts.group is None:
        return np.full(len(rows["symptom"]), -1)
    at = {name: place for place, name in enumerate(counts.group.tolist())}
    names = zip(rows["cluster"].tolist(), rows["node"].tolist(), strict=True)
    # clusters are named where there are several
    places = [at.get(f"{cluster}/{node}", at.get(node, -1)) for cluster, node in names]
    return np.array(places, dtype=np.int64)


def _at_places(counts: Counts, place: NDArray[np.int64]) -> Counts:
    """The same units and exposure with the failures of these places."""
    failures = np.bincount(place[place >= 0], minlength=counts.failures.size)
    return Counts(failures, counts.exposure_node_days, counts.group, counts.unit)


def of_fleet(
    timeline: FailureTimeline, counts: Counts | None, confidence: float = CONFIDENCE
) -> FleetSpread:
    """Spread over time, and over nodes where failures and exposure are known by node."""
    over_nodes = spread_over_nodes(counts) if counts is not None and counts.unit == NODE else None
    return fleet_spread(spread_over_time(timeline, confidence), over_nodes, confidence)


def fault_clustering(
    starts_s: Floats,
    faults: Mapping[tuple[str, str | None], int],
    fleet: Service,
    period: Period,
    confidence: float = CONFIDENCE,
) -> FleetSpread:
    """The spread of the faults of a fleet without known jobs; exposure is time in service."""
    served_s = np.array([fleet.served_s(node) for node in fleet.spans_s])
    served, pieces = served_s > 0, fleet.pieces_s
    counts = Counts(
        np.array([faults.get(node, 0) for node in fleet.spans_s])[served],
        served_s[served] / SECONDS_PER_DAY,
    )
    edges_s = calendar_edges(period)
    node_s = at_risk(pieces[:, 0], pieces[:, 1], edges_s)
    timeline = FailureTimeline(
        starts_s / SECONDS_PER_DAY, edges_s / SECONDS_PER_DAY, node_s / SECONDS_PER_DAY
    )
    return of_fleet(timeline, counts, confidence)


def calendar_edges(period: Period) -> Floats:
    """Ends of the cells of the calendar, whole seconds, from the first log line to the last."""
    start_s, end_s = to_seconds(period.start), to_seconds(period.end)
    step_s = calendar_step_s(period)
    start_s = float(np.floor(start_s))
    cells = max(1, int(np.ceil((end_s - start_s) / step_s)))
    return start_s + step_s * np.arange(cells + 1, dtype=np.float64)


def timeline(rows: Columns, edges_s: Floats, node_days: Floats) -> FailureTimeline:
    """Failures by their end, and the node-days before each edge; edges in seconds since 1970."""
    times_s = rows["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
    return FailureTimeline(times_s / SECONDS_PER_DAY, edges_s / SECONDS_PER_DAY, node_days)


def counts_by_node(
    used: Sequence[Mapping[str, Any]], failed: Mapping[tuple[str, str | None], int]
) -> Counts | None:
    """Failures and node-days of each node; None where nothing ran.

    Jobs whose nodes are not named count in the rate of the fleet, not of any node. Where no job
    names its nodes, the fleet is the one unit.

    Args:
        used: rows of the fact `node_seconds`.
        failed: how many failures each node is blamed for, None those that blame none.
    """
    used = [row for row in used if (row["exposure_s"] or 0.0) > 0]
    if not used:
        return None
    total = sum(failed.values())
    unnamed_days = sum(row["exposure_s"] for row in used if row["node"] is None) / SECONDS_PER_DAY
    named = [row for row in used if row["node"] is not None]
    if not named:
        return Counts([total], [unnamed_days], unit=FLEET)
    several = len({row["cluster"] for row in named}) > 1
    placed = [failed.get((row["cluster"], row["node"]), 0) for row in named]
    return Counts(
        np.array(placed),
        np.array([row["exposure_s"] for row in named]) / SECONDS_PER_DAY,
        np.array([f"{row['cluster']}/{row['node']}" if several else row["node"] for row in named]),
        "node",
        total - sum(placed),
        unnamed_days,
    )


def come_in_bursts(over_time: Spread, times_days: Floats, confidence: float = CONFIDENCE) -> bool:
    """Whether it can be said that failures come in bursts: counts and gaps both show it."""
    if not over_time.is_surely_clustered:
        return False
    gaps = burstiness(times_days, np.random.default_rng(BAND_SEED), confidence)
    return (gaps.coefficient_of_variation or 0.0) > gaps.high
