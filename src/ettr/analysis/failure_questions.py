"""Questions about failures that a report asks of every store: rates, chance, time to failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ettr.analysis.assumptions import Assumptions, of_covered_time
from ettr.analysis.questions import OfAssumptions
from ettr.attribution import background
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead, Service
from ettr.metrics.instants import Period
from ettr.metrics.mttf import MttfBySize, mttf_by_size
from ettr.metrics.rates import ClassRate, RatesBySymptom, failure_rates
from ettr.metrics.sizes import SizeUnit
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.models.compare import RateDirection

if TYPE_CHECKING:
    from ettr.analysis.clustering import FailureClustering
    from ettr.metrics.black_holes import HungRun
    from ettr.metrics.exposure import NodeJobs
    from ettr.metrics.faults import FleetFaults


class OfRates(Protocol):
    """What rates take."""

    assumptions: Assumptions
    clustering: FailureClustering
    period: Period
    rate_facts: Facts
    hung_runs: tuple[HungRun, ...]


def rates(_: Facts, given: OfRates) -> RatesBySymptom:
    """Failures per 1,000 node-days by symptom; `table("failures")` has each of them."""
    found = given.clustering
    return failure_rates(
        given.rate_facts,
        above_gpus=given.assumptions.above_gpus,
        confidence=given.assumptions.confidence,
        all_jobs=found.all_jobs,
        large_jobs=found.large_jobs,
        symptoms=found.symptoms,
        large_jobs_symptoms=found.large_jobs_symptoms,
        probable_gpus=[one.n_gpus for one in given.hung_runs],
    )


@of_covered_time
def trend(_: Facts, given: OfRates) -> RateTrend:
    """Failures per node-day over time."""
    spread = given.clustering.all_jobs.believed
    return rate_trend(
        given.rate_facts, given.period, confidence=given.assumptions.confidence, spread=spread
    )


def direction(_: Facts, given: OfRates) -> RateDirection:
    """Whether the rate rose or fell over the logs."""
    return given.clustering.direction


class OfClasses(Protocol):
    """What `by_class`, `of_gpu_nodes` and `of_class` take."""

    spread_classes: tuple[ClassRate, ...]
    is_of_gpu_nodes: bool
    rate_class: str


def by_class(_: Facts, given: OfClasses) -> tuple[ClassRate, ...]:
    """Failure rates by class of node; empty where all nodes are of one."""
    return given.spread_classes


def of_gpu_nodes(_: Facts, given: OfClasses) -> bool:
    """Whether rates are of nodes with GPUs alone, or of one type of them."""
    return given.is_of_gpu_nodes


def of_class(_: Facts, given: OfClasses) -> str:
    """The class that rates are of: `gpu`, a type of GPU, or empty for all nodes."""
    return given.rate_class


def co_occurrence(facts: Facts, given: OfAssumptions) -> background.CoOccurrences:
    """Which symptoms come together in one failure."""
    return background.co_occurrence(facts, confidence=given.assumptions.confidence)


class OfFalseAttribution(Protocol):
    """What `false_attribution` takes."""

    assumptions: Assumptions
    false_failures: background.FalseFailuresBySize


def false_attribution(facts: Facts, given: OfFalseAttribution) -> background.FalseAttribution:
    """How often the window would blame a completed attempt."""
    found = background.false_attribution(facts, given.assumptions.confidence)
    expected = given.false_failures.all_jobs.expected_false.estimate
    return replace(found, expected_by_chance=expected)


class OfFalseFailures(Protocol):
    """What `false_failures` takes."""

    assumptions: Assumptions
    selected: object
    logs_list_every_node: bool
    node_jobs: Mapping[tuple[str, str], NodeJobs]


def false_failures(facts: Facts, given: OfFalseFailures) -> background.FalseFailuresBySize:
    """How many failures chance explains, from the rate of faults that ended nothing."""
    span_s = None
    if given.selected is None and given.logs_list_every_node:
        # how long jobs ran on each node in all of the logs
        span_s = {node: one.span_s for node, one in given.node_jobs.items()}
    return background.false_failures_by_size(facts, span_s, given.assumptions.confidence)


class OfMttf(Protocol):
    """What `mttf` takes."""

    assumptions: Assumptions
    logs_read: LogsRead
    rates: RatesBySymptom
    rate_facts: Facts
    rate_unit: SizeUnit
    rate_gpus_of_nodes: tuple[float, ...]
    clustering: FailureClustering
    fleet: Service
    faults: FleetFaults | None


@of_covered_time
def mttf(facts: Facts, given: OfMttf) -> MttfBySize:
    """Time to failure by job size; from faults and progress alone where there are no jobs."""
    if not given.logs_read.jobs:
        from ettr.analysis.without_jobs import mttf_without_jobs

        return mttf_without_jobs(facts, given)
    return mttf_by_size(
        given.rate_facts,
        given.rates.best,
        unit=given.rate_unit,
        gpus_per_node=given.assumptions.gpus_per_node,
        of_nodes=given.rate_gpus_of_nodes,
        confidence=given.assumptions.confidence,
        spread=given.clustering.all_jobs.believed,
    )
