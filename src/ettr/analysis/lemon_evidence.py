"""What speaks for and against one node: the content of a ticket to the vendor of a node.

The failed jobs with their log lines, what the other nodes of the same jobs did, what checks saw,
the outages, and since when the node has been failing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.failure_questions import EvidenceLine, evidence_lines, file_names
from ettr.analysis.lemon_nodes import lemons_of
from ettr.analysis.node_history import NodeOutage, facts_on, node_history
from ettr.estimates import Interval
from ettr.estimates.exact import rate_interval
from ettr.facts import Facts
from ettr.lemons.candidates import ComparedNodes, LemonCandidate, LemonReport, onset
from ettr.metrics.black_holes import BlackHole, HungRun
from ettr.metrics.instants import Period, moment, to_datetime
from ettr.metrics.node_records import blamed_failures
from ettr.metrics.rates import PER_NODE_DAYS
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

Row = Mapping[str, Any]
_NodesOf = defaultdict[str, set[str]]


@dataclass(frozen=True, slots=True)
class FailedJob:
    """An attempt that ended as a failure while it held the node.

    Attributes:
        weight: What it counts for against this node: 1, less within a burst over several nodes; 0
            where it names another node or ended before a repair; None where it names none and is
            divided by the model.
        other_nodes: Other nodes of the attempt; None where no log names its nodes.
    """

    time: datetime
    job_id: str
    attempt_id: str
    user: str | None
    state: str
    n_nodes: int | None
    n_gpus: int | None
    symptom: str
    confidence: str
    names: str | None
    weight: float | None
    other_nodes: int | None
    other_nodes_with_errors: tuple[str, ...]
    file: str
    line: int
    evidence: tuple[EvidenceLine, ...]


@dataclass(frozen=True, slots=True)
class NeighbourNodes:
    """The other nodes of the jobs that this node failed, over the whole time of the logs."""

    nodes: int
    node_days: float
    failures: int
    per_1000_node_days: Interval


@dataclass(frozen=True, slots=True)
class CheckedThing:
    """What one check said of the node, or of one part of it.

    Attributes:
        severity: As the check gave it, else by the taxonomy.
        is_node_fault: Whether the taxonomy takes it for a fault of the node by itself.
    """

    check: str
    code: str | None
    severity: str
    entity: str | None
    symptom: str | None
    events: int
    first: datetime
    last: datetime
    file: str
    line: int
    is_node_fault: bool = False


@dataclass(frozen=True, slots=True)
class NodeOnset:
    """Since when the node fails so often, if it is a lemon."""

    from_start: float
    low: datetime
    median: datetime
    high: datetime


@dataclass(frozen=True, slots=True)
class LemonEvidence:
    """What speaks for and against one node.

    Attributes:
        candidate: What the model says; None where it does not judge the node.
        why_not_judged: Why it does not; None where it does.
        ordinary_chance: Probability that an ordinary node has as many failures in the same
            runtime.
    """

    cluster: str
    node: str
    gpu_type: str | None
    rack: str | None
    switch: str | None
    period: Period
    candidate: LemonCandidate | None
    why_not_judged: str | None
    group: ComparedNodes | None
    false_discovery: float
    min_ratio: float
    per_1000_node_days: Interval | None
    ordinary_chance: float | None
    onset: NodeOnset | None
    jobs: tuple[FailedJob, ...] | None
    neighbours: NeighbourNodes | None
    checks: tuple[CheckedThing, ...] | None
    outages: tuple[NodeOutage, ...] | None
    black_holes: tuple[BlackHole, ...] = ()
    hung_runs: tuple[HungRun, ...] = ()


def lemon_evidence(analysis: Analysis, name: str, false_discovery: float) -> LemonEvidence:
    """Everything that the logs hold for and against a node.

    Args:
        name: of the node; with its cluster, `CLUSTER/NODE`, where several have it.

    Raises:
        UsageError: no log names such a node, or nodes of several clusters have the name.
    """
    history = node_history(analysis.given, name)
    record = history.record
    node = (record.cluster, record.node)
    report = lemons_of(analysis.given, false_discovery, asked=node)
    candidate = next((one for one in report.candidates if (one.cluster, one.node) == node), None)
    group = None if candidate is None else _group(report, candidate)
    logs = analysis.logs_read
    jobs = _failed_jobs(analysis, node, candidate) if logs.jobs else None
    confidence = analysis.assumptions.confidence
    return LemonEvidence(
        *node,
        record.gpu_type,
        record.rack,
        record.switch,
        analysis.period,
        candidate,
        None if candidate is not None else _why_not(analysis, record.node_days),
        group,
        false_discovery,
        report.min_ratio,
        None
        if candidate is None
        else rate_interval(
            candidate.named, candidate.exposure_node_days, confidence, PER_NODE_DAYS
        ),
        _ordinary_chance(candidate, group),
        _onset(analysis, candidate, group),
        jobs,
        _neighbours(analysis, node, jobs or ()),
        _checks(analysis, node) if logs.errors else None,
        history.outages,
        history.black_holes,
        history.hung_runs,
    )


def _why_not(analysis: Analysis, node_days: float | None) -> str:
    if not analysis.logs_read.jobs:
        return "the logs hold no jobs, so that neither failed jobs nor a runtime are known"
    if not node_days:
        return "no job ran on it"
    return "too few nodes are comparable with it"


def _group(report: LemonReport, one: LemonCandidate) -> ComparedNodes | None:
    same = (one.cluster, one.hardware)
    return next((group for group in report.groups if (group.cluster, group.hardware) == same), None)


def _ordinary_chance(one: LemonCandidate | None, group: ComparedNodes | None) -> float | None:
    """Negative binomial: a gamma rate with the spread of the ordinary nodes."""
    if one is None or group is None or group.spread is None:
        return None
    from ettr.estimates.special import betainc, pdtrc

    weight = sum(job.weight for job in one.jobs)
    if group.spread <= 0:
        return float(pdtrc(np.floor(weight) - 1, one.expected))
    shape = group.spread**-2
    return float(betainc(np.floor(weight), shape, one.expected / (shape + one.expected)))


def _failed_jobs(
    analysis: Analysis, node: tuple[str, str], candidate: LemonCandidate | None
) -> tuple[FailedJob, ...]:
    name, facts = node[1], facts_on(analysis.facts, node)
    found = facts.rows("failures_on_node")
    rows = sorted(found, key=lambda row: (row["end_us"], row["attempt_id"]))
    files = file_names(analysis.facts)
    lines = evidence_lines(analysis.facts)
    others, errors = _beside(facts, name)
    jobs = () if candidate is None else candidate.jobs
    weights = {job.attempt_id: job.weight for job in jobs}
    made = []
    for row in rows:
        attempt_id = row["attempt_id"]
        made.append(
            FailedJob(
                time=moment(row["end_us"]),
                **{key: row[key] for key in ("job_id", "attempt_id", "state", "n_nodes", "n_gpus")},
                **{key: row[key] for key in ("symptom", "confidence")},
                user=row["user"],
                names=row["node"],
                weight=None
                if row["node"] is None
                else weights.get(attempt_id, 1.0 if candidate is None else 0.0)
                if row["node"] == name
                else 0.0,
                other_nodes=len(others[attempt_id]),
                other_nodes_with_errors=tuple(sorted(errors[attempt_id])),
                file=files.get(row["file_id"], row["file_id"]),
                line=row["line"],
                evidence=tuple(
                    lines[one] for one in (row["evidence"] or "").split(",") if one in lines
                ),
            )
        )
    return tuple(made)


def _beside(facts: Facts, name: str) -> tuple[_NodesOf, _NodesOf]:
    """By failed attempt on the node asked about, its other nodes, and those with an error."""
    others, errors = _NodesOf(set), _NodesOf(set)
    for row in facts.rows("nodes_beside"):
        if row["node"] != name:
            (errors if row["has_error"] else others)[row["attempt_id"]].add(row["node"])
    return others, errors


def _neighbours(
    analysis: Analysis, node: tuple[str, str], jobs: Sequence[FailedJob]
) -> NeighbourNodes | None:
    cluster, name = node
    failed = {job.attempt_id for job in jobs if job.names == name and job.other_nodes}
    if not failed:
        return None
    beside, _ = _beside(facts_on(analysis.facts, node), name)
    others = {(cluster, one) for attempt_id in failed for one in beside[attempt_id]}
    node_s = sum(
        row["node_s"] or 0.0
        for row in analysis.facts.rows("node_hours")
        if (row["cluster"], row["node"]) in others
    )
    blamed = blamed_failures(analysis.facts)
    count = sum(blamed.get(one, 0) for one in others)
    days = node_s / SECONDS_PER_DAY
    rate = rate_interval(count, days, analysis.assumptions.confidence, PER_NODE_DAYS)
    return NeighbourNodes(len(others), days, count, rate)


def _checks(analysis: Analysis, node: tuple[str, str]) -> tuple[CheckedThing, ...]:
    files = file_names(analysis.facts)
    rows = facts_on(analysis.facts, node).rows("node_checks")
    made = (_checked(row, files, analysis) for row in rows)
    return tuple(sorted(made, key=lambda one: (-one.events, one.check, str(one.code), one.first)))


def _checked(row: Row, files: Mapping[str, str], analysis: Analysis) -> CheckedThing:
    verdict = analysis.taxonomy.classify(row["check"], row["code"], row["severity"])
    given = row["severity"]
    return CheckedThing(
        **{key: row[key] for key in ("check", "code", "entity", "line", "events")},
        severity=verdict.severity if verdict is not None and given == "unknown" else given,
        symptom=None if verdict is None else verdict.symptom,
        first=moment(row["first_us"]),
        last=moment(row["last_us"]),
        file=files.get(row["file_id"], row["file_id"]),
        is_node_fault=verdict is not None and verdict.is_node_fault,
    )


def _onset(
    analysis: Analysis, one: LemonCandidate | None, group: ComparedNodes | None
) -> NodeOnset | None:
    if one is None or group is None or not one.jobs or group.bulk_per_1000_node_days is None:
        return None
    rows = facts_on(analysis.facts, (one.cluster, one.node)).rows("held_on_node")
    times_s, days = _exposure_by_time(rows)
    # what a node did before a repair is no part of its record
    before = max(0.0, float(days[-1]) - one.exposure_node_days)
    since = onset(
        np.interp([job.end_s for job in one.jobs], times_s, days) - before,
        np.array([job.weight for job in one.jobs]),
        one.exposure_node_days,
        group.bulk_per_1000_node_days / PER_NODE_DAYS,
        analysis.assumptions.confidence,
    )
    since_days = np.array([since.low_days, since.median_days, since.high_days])
    moments = np.interp(before + since_days, days, times_s)
    return NodeOnset(since.from_start, *(to_datetime(float(one)) for one in moments))


def _exposure_by_time(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Moments in seconds since 1970, and the node-days of exposure until each of them."""
    starts = np.array([row["start_us"] / MICROSECONDS_PER_SECOND for row in rows])
    ends = starts + np.array([row["elapsed_s"] for row in rows])
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.repeat([1.0, -1.0], len(rows))[order])
    passed = np.diff(times[order]) * running[:-1] / SECONDS_PER_DAY
    return times[order], np.concatenate([[0.0], np.cumsum(passed)])
