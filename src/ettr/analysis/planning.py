"""The failure rate to plan a run with, as a store's jobs have shown it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ettr.analysis.analysis import Analysis
from ettr.analysis.fleet_evidence import FleetEvidence, evidence_to_plan_with
from ettr.analysis.own_failures import OwnFailures, own_failures
from ettr.plan.outlook import PlanningRate

UNKNOWN_CLUSTERING = (
    "Whether failures cluster cannot be known from two numbers: the interval holds only if they "
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
