"""A store's own failure law, where its failures are not independent at a constant rate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.clustering import come_in_bursts
from ettr.analysis.fleet_evidence import FleetEvidence, evidence_to_plan_with, planned_above_gpus
from ettr.analysis.model_choice import stored_spans
from ettr.analysis.node_faults import faults_of
from ettr.errors import UsageError
from ettr.metrics.instants import Floats, to_seconds
from ettr.models.registry import law_of_age
from ettr.plan.outlook import PlanningRate
from ettr.plan.run import PlannedRun, SimulatedRun
from ettr.plan.wallclock import DeadlinePlan
from ettr.projection.simulated_deadline import (
    AgeingNodes,
    FailureLaw,
    ReplayedTimeline,
    simulated_deadline,
    simulated_run,
)
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

FEW_FOR_AGEING = 30
_SMALL_P = 1e-6
_BLOCK_WINDOWS = 2.0
_BLOCKS_AT_LEAST = 4.0


@dataclass(frozen=True, slots=True)
class OwnFailures:
    """Failures of a store that are not independent at a constant rate."""

    why: str
    timeline: ReplayedTimeline | None
    shape: float | None

    def simulated(self, run: PlannedRun) -> SimulatedRun | None:
        """The run under this law; None where nothing fails, so that nothing can differ."""
        if run.failures_per_s <= 0:
            return None
        return simulated_run(run, self._law(run), self.why)

    def deadline(self, exact: DeadlinePlan, run: PlannedRun) -> DeadlinePlan:
        """The answer to a time budget under this law."""
        return exact if run.failures_per_s <= 0 else simulated_deadline(exact, run, self._law)

    def _law(self, run: PlannedRun) -> FailureLaw:
        if self.timeline is not None:
            return self.timeline
        return AgeingNodes(run.n_nodes, self.shape or 1.0)


def own_failures(analysis: Analysis, evidence: FleetEvidence) -> OwnFailures | None:
    """The failure law of a store; None where nothing speaks against independent failures.

    Without jobs only bursts are looked for: how long a node was in use is not known.
    """
    above_gpus = planned_above_gpus(analysis)
    spread = evidence.spread
    if spread is not None and spread.over_time.is_clustered:
        times_days = _moments_s(analysis, above_gpus) / SECONDS_PER_DAY
        if not come_in_bursts(spread.over_time, times_days, analysis.assumptions.confidence):
            # bursts that are not shown widen intervals, and look like ageing
            return None
        timeline = _timeline(analysis, above_gpus, spread.over_time.window_days or 1.0)
        if timeline is None:
            return None
        index, p_value = spread.over_time.index, spread.over_time.p_value or 0.0
        return OwnFailures(
            f"Failures come in bursts: counts in windows of time vary {index:.3g} times as much as "
            f"independent ones (p {'< 1e-6' if p_value < _SMALL_P else f'{p_value:.2g}'}).",
            timeline,
            None,
        )
    if not analysis.logs_read.jobs:
        return None
    return _ageing(analysis, above_gpus, evidence)


def _timeline(
    analysis: Analysis, above_gpus: int | None, window_days: float
) -> ReplayedTimeline | None:
    begin_s, end_s = to_seconds(analysis.period.start), to_seconds(analysis.period.end)
    times_s = np.sort(_moments_s(analysis, above_gpus)) - begin_s
    span_s = end_s - begin_s
    times_s = times_s[(times_s >= 0) & (times_s <= span_s)]
    if not times_s.size or span_s <= 0:
        return None
    # a block holds whole bursts, and the logs several blocks
    block_s = max(_BLOCK_WINDOWS * window_days, 1.0) * SECONDS_PER_DAY
    return ReplayedTimeline(times_s, span_s, min(block_s, span_s / _BLOCKS_AT_LEAST))


def _moments_s(analysis: Analysis, above_gpus: int | None) -> Floats:
    """When jobs failed; without jobs, when nodes did; in seconds since 1970."""
    if analysis.logs_read.jobs:
        failed = analysis.rate_facts.columns("failures")
        ends_s = failed["end_us"].astype(np.float64) / MICROSECONDS_PER_SECOND
        if above_gpus is None:
            return ends_s
        return ends_s[np.nan_to_num(failed["n_gpus"].astype(np.float64)) > above_gpus]
    faults, _ = faults_of(analysis.facts, analysis.given)
    return faults.start_s


def _ageing(
    analysis: Analysis, above_gpus: int | None, evidence: FleetEvidence
) -> OwnFailures | None:
    if evidence.rate.failures < FEW_FOR_AGEING or evidence.counts.unit != "node":
        return None
    lives = stored_spans(analysis, above_gpus).observed().since_failure
    if lives is None or int(lives.observed.sum()) < FEW_FOR_AGEING:
        return None
    try:
        fit = law_of_age("weibull").fit(lives, analysis.assumptions.confidence)
    except UsageError:
        return None
    shape = fit.parameter("shape")
    if shape.estimate is None or shape.low <= 1.0 <= shape.high:
        return None
    return OwnFailures(f"{fit.meaning.rstrip('.')}.", None, shape.estimate)


# -- The failure rate to plan a run with, as a store's jobs have shown it -------------------------

UNKNOWN_CLUSTERING = (
    "Two numbers cannot show whether failures cluster: the interval holds only if they "
    "are independent."
)


@dataclass(frozen=True, slots=True)
class StoredRate:
    """What a store gives a plan."""

    rate: PlanningRate
    gpus_per_node: int | None
    own: OwnFailures | None


def stored_rate(analysis: Analysis, name: str) -> StoredRate:
    """The rate of a store's large jobs, or of all where none was large, and its failure law.

    Raises:
        UsageError: no job has run.
    """
    evidence = evidence_to_plan_with(analysis, name)
    per_node = evidence.gpus_per_node
    rate = measured_rate(evidence, analysis.assumptions.confidence)
    own = own_failures(analysis, evidence)
    return StoredRate(rate, round(per_node) if per_node else None, own)


def measured_rate(evidence: FleetEvidence, confidence: float) -> PlanningRate:
    """The rate that a fleet has shown, with the interval to believe."""
    spread = None if evidence.spread is None else evidence.spread.believed
    rate = evidence.rate
    interval = rate.interval(confidence) if spread is None else spread.interval(rate, confidence)
    if not rate.failures:
        interval = replace(interval, estimate=None)
    on_a_node = int(evidence.counts.failures.sum())
    by_node = rate.failures and evidence.counts.unit == "node"
    return PlanningRate(
        interval,
        rate,
        on_a_node / rate.failures if by_node else None,
        UNKNOWN_CLUSTERING if evidence.spread is None else evidence.spread.meaning,
        confidence,
        evidence.by_confidence,
    )
