"""Each failure with whose it was, what it lost, and the log lines behind its cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from ettr.analysis.assumptions import Assumptions
from ettr.attribution.background import FalseFailures, FalseFailuresBySize
from ettr.estimates.spread import FleetSpread
from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.metrics.availability import LogsRead
from ettr.metrics.goodput import LossSum, lost_gpu_s
from ettr.metrics.rates import (
    EstimatedRate,
    RatesBySymptom,
    RatesWithoutFalse,
    RateWithoutFalse,
    rate_without_false,
)
from ettr.metrics.status import in_hours
from ettr.metrics.stitching import PreemptionLinks
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
