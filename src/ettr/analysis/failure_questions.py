"""Questions about failures: each of them with the lines behind its cause, rates, chance, MTTF."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import of_covered_time
from ettr.attribution import background
from ettr.attribution.background import FalseFailures
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.metrics.goodput import LossSum, lost_gpu_s
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
from ettr.metrics.status import in_hours
from ettr.metrics.trend import RateTrend, rate_trend
from ettr.models.compare import RateDirection
from ettr.units import SECONDS_PER_MINUTE


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


def failure_list(analysis: Analysis) -> FailureList:
    """Each failure: when, whose, where, why, its cost and its log lines."""
    rows = analysis.failure_rows
    cap_s = analysis.assumptions.lost_cap_min * SECONDS_PER_MINUTE
    files, owners = file_names(analysis.facts), owners_of(analysis.facts)
    lines = evidence_lines(analysis.facts)
    driven_out: dict[str, LossSum] = defaultdict(LossSum)
    # of all jobs: whose it was that lost them does not matter to the failure
    for link in analysis.logs_preemptions.links:
        lost = lost_gpu_s(link.elapsed_s, link.n_gpus, cap_s)
        driven_out[link.failed_attempt_id].add(lost, link.n_gpus)
    return FailureList(
        analysis.assumptions.lost_cap_min,
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


def rates_without_false(analysis: Analysis) -> RatesWithoutFalse | None:
    """The rates of all and of large jobs, with and without the false failures.

    None where the logs hold no jobs, or no log of nodes: there no failure rests on a check, and
    none was measured that could be false.
    """
    logs = analysis.logs_read
    if not logs.jobs or not (logs.errors or logs.node_states):
        return None
    rates, false = analysis.rates, analysis.false_failures

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


def rates(analysis: Analysis) -> RatesBySymptom:
    """Failures per 1,000 node-days by symptom; `table("failures")` has each of them."""
    found = analysis.clustering
    return failure_rates(
        analysis.rate_facts,
        above_gpus=analysis.assumptions.above_gpus,
        confidence=analysis.assumptions.confidence,
        all_jobs=found.all_jobs,
        large_jobs=found.large_jobs,
        symptoms=found.symptoms,
        large_jobs_symptoms=found.large_jobs_symptoms,
        probable_gpus=[one.n_gpus for one in analysis.hung_runs],
    )


def trend(analysis: Analysis) -> RateTrend:
    """Failures per node-day over time."""
    spread = analysis.clustering.all_jobs.believed
    return rate_trend(
        analysis.rate_facts,
        analysis.period,
        confidence=analysis.assumptions.confidence,
        spread=spread,
    )


def direction(analysis: Analysis) -> RateDirection:
    """Whether the rate rose or fell over the logs."""
    return analysis.clustering.direction


def by_class(analysis: Analysis) -> tuple[ClassRate, ...]:
    """Failure rates by class of node; empty where all nodes are of one."""
    return analysis.spread_classes


def of_gpu_nodes(analysis: Analysis) -> bool:
    """Whether rates are of nodes with GPUs alone, or of one type of them."""
    return analysis.is_of_gpu_nodes


def of_class(analysis: Analysis) -> str:
    """The class that rates are of: `gpu`, a type of GPU, or empty for all nodes."""
    return analysis.rate_class


def co_occurrence(analysis: Analysis) -> background.CoOccurrences:
    """Which symptoms come together in one failure."""
    return background.co_occurrence(analysis.facts, confidence=analysis.assumptions.confidence)


def false_attribution(analysis: Analysis) -> background.FalseAttribution:
    """How often the window would blame a completed attempt."""
    found = background.false_attribution(analysis.facts, analysis.assumptions.confidence)
    expected = analysis.false_failures.all_jobs.expected_false.estimate
    return replace(found, expected_by_chance=expected)


def false_failures(analysis: Analysis) -> background.FalseFailuresBySize:
    """How many failures chance explains, from the rate of faults that ended nothing."""
    span_s = None
    if analysis.selected is None and analysis.logs_list_every_node:
        # how long jobs ran on each node in all of the logs
        span_s = {node: one.span_s for node, one in analysis.node_jobs.items()}
    return background.false_failures_by_size(
        analysis.facts, span_s, analysis.assumptions.confidence
    )


def mttf(analysis: Analysis) -> MttfBySize:
    """Time to failure by job size; from faults and progress alone where there are no jobs."""
    if not analysis.logs_read.jobs:
        from ettr.analysis.without_jobs import mttf_without_jobs

        return mttf_without_jobs(analysis)
    return mttf_by_size(
        analysis.rate_facts,
        analysis.rates.best,
        unit=analysis.rate_unit,
        gpus_per_node=analysis.assumptions.gpus_per_node,
        of_nodes=analysis.rate_gpus_of_nodes,
        confidence=analysis.assumptions.confidence,
        spread=analysis.clustering.all_jobs.believed,
    )


of_covered_time(trend, mttf)
