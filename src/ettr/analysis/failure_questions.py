"""Questions about failures: each of them with the lines behind its cause, rates, chance, MTTF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ettr.analysis.assumptions import Assumptions, of_covered_time
from ettr.analysis.questions import OfAssumptions
from ettr.attribution import background
from ettr.attribution.background import FalseFailures, FalseFailuresBySize
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.metrics.availability import LogsRead, Service
from ettr.metrics.goodput import LossSum, lost_gpu_s
from ettr.metrics.instants import Period
from ettr.metrics.mttf import MttfBySize, mttf_by_size
from ettr.metrics.rates import (
    ClassRate,
    EstimatedRate,
    RatesBySymptom,
    RatesWithoutFalse,
    RateWithoutFalse,
    failure_rates,
    rate_without_false,
)
from ettr.metrics.sizes import SizeUnit
from ettr.metrics.status import in_hours
from ettr.metrics.stitching import PreemptionLinks
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.models.compare import RateDirection
from ettr.units import SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from ettr.analysis.clustering import FailureClustering
    from ettr.metrics.black_holes import HungRun
    from ettr.metrics.exposure import NodeJobs
    from ettr.metrics.faults import FleetFaults


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One record of a log: `file` and `line` (1 is the first) are where it stands."""

    file: str
    line: int
    time: datetime
    node: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ListedFailure:
    """One failure.

    Attributes:
        nodes: The nodes of the attempt as the log writes them; null where it names none.
        node: The node blamed; null where no single one can be.
        preempted_gpu_hours: What jobs lost that were preempted so that this one could restart, of
            those of which it is known; null where it is known of none.
    """

    time: datetime
    cluster: str
    job_id: str
    attempt_id: str
    name: str | None
    user: str | None
    account: str | None
    partition: str | None
    qos: str | None
    state: str
    nodes: str | None
    n_nodes: int | None
    n_gpus: int | None
    node: str | None
    symptom: str
    domain: str
    confidence: str
    lost_gpu_hours: float | None
    preempted_gpu_hours: float | None
    preemptions_unmeasured: int
    file: str
    line: int
    evidence: tuple[EvidenceLine, ...]


@dataclass(frozen=True, slots=True)
class FailureList:
    """The failures in order of time; each loses at most `cap_min` minutes of its GPUs."""

    cap_min: float
    failures: tuple[ListedFailure, ...]


class OfFailureList(Protocol):
    """What `failure_list` takes."""

    assumptions: Assumptions
    failure_rows: list[dict[str, Any]]
    logs_preemptions: PreemptionLinks


def failure_list(facts: Facts, given: OfFailureList) -> FailureList:
    """Each failure: when, whose, where, why, its cost and its log lines."""
    rows = given.failure_rows
    cap_s = given.assumptions.lost_cap_min * SECONDS_PER_MINUTE
    files, owners = file_names(facts), owners_of(facts)
    lines = evidence_lines(facts)
    driven_out: dict[str, LossSum] = defaultdict(LossSum)
    # of all jobs: whose it was that lost them does not matter to the failure
    for link in given.logs_preemptions.links:
        lost = lost_gpu_s(link.elapsed_s, link.n_gpus, cap_s)
        driven_out[link.failed_attempt_id].add(lost, link.n_gpus)
    return FailureList(
        given.assumptions.lost_cap_min,
        tuple(
            _listed(row, owners[row["attempt_id"]], cap_s, driven_out, files, lines) for row in rows
        ),
    )


def _listed(
    row: Mapping[str, Any],
    owner: Mapping[str, Any],
    cap_s: float,
    driven_out: Mapping[str, LossSum],
    files: Mapping[str, str],
    lines: Mapping[str, EvidenceLine],
) -> ListedFailure:
    ids = (row["evidence"] or "").split(",")
    preempted = driven_out.get(row["attempt_id"], LossSum())
    return ListedFailure(
        time=row["end"],
        **{name: row[name] for name in ("cluster", "job_id", "attempt_id", "state", "node")},
        **{name: row[name] for name in ("symptom", "domain", "confidence", "n_nodes", "n_gpus")},
        **{name: owner[name] for name in ("name", "user", "account", "partition", "qos")},
        nodes=owner["node_list"],
        lost_gpu_hours=in_hours(lost_gpu_s(row["elapsed_s"], row["n_gpus"], cap_s)),
        preempted_gpu_hours=preempted.gpu_hours,
        preemptions_unmeasured=preempted.unmeasured,
        file=files.get(owner["file_id"], owner["file_id"]),
        line=owner["line"],
        evidence=tuple(lines[one] for one in ids if one in lines),
    )


def file_names(facts: Facts) -> dict[str, str]:
    """Names of ingested files by their keys."""
    return dict(facts.distinct("files", "file_id", "name"))


def owners_of(facts: Facts) -> dict[str, dict[str, Any]]:
    """By attempt of a selected failure, what the accounting says of it."""
    return {row["attempt_id"]: row for row in facts.rows("failure_owners")}


def evidence_lines(facts: Facts) -> dict[str, EvidenceLine]:
    """The records behind the selected failures, events and states of nodes, by id."""
    files = file_names(facts)
    seen: list[tuple[dict[str, Any], tuple[str | None, ...]]] = [
        (row, (row["check"], row["code"], row["message"])) for row in facts.rows("evidence_events")
    ]
    seen += [(row, (row["state"], row["reason"])) for row in facts.rows("evidence_states")]
    return {
        row["event_id"]: EvidenceLine(
            file=files.get(row["file_id"], row["file_id"]),
            line=row["line"],
            time=at(row["time_us"]),
            node=row["node"],
            text=" ".join(part for part in parts if part),
        )
        for row, parts in seen
    }


# -- the failure rates of a store without the failures that chance explains ------------------------


class OfFalseRates(Protocol):
    """What `rates_without_false` takes."""

    logs_read: LogsRead
    rates: RatesBySymptom
    false_failures: FalseFailuresBySize


def rates_without_false(_: Facts, given: OfFalseRates) -> RatesWithoutFalse | None:
    """The rates of all and of large jobs, with and without the false failures.

    None where the logs hold no jobs, or no log of nodes: there no failure rests on a check, and
    none was measured that could be false.
    """
    logs = given.logs_read
    if not logs.jobs or not (logs.errors or logs.node_states):
        return None
    rates, false = given.rates, given.false_failures

    def without(
        rate: EstimatedRate, wrong: FalseFailures, clustering: FleetSpread | None
    ) -> RateWithoutFalse:
        return rate_without_false(
            rate,
            wrong.on_evidence,
            wrong.expected_false,
            rates.confidence,
            None if clustering is None else clustering.believed,
        )

    return RatesWithoutFalse(
        rates.above_gpus,
        without(rates.all_jobs, false.all_jobs, rates.clustering_all_jobs),
        without(rates.large_jobs, false.large_jobs, rates.clustering_large_jobs),
    )


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
