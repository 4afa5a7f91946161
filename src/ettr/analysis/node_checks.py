"""What the health checks of a store found, missed and cost, and whether a new one helped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ettr.checks.coverage import (
    Alarms,
    BlamedEnd,
    CheckEffect,
    CoverageHistory,
    NodeChange,
    Span,
    SymptomCoverage,
    alarms_of,
    catches,
    coverage_by_symptom,
    effect_of,
    firings_of,
    history_of,
)
from ettr.errors import UsageError
from ettr.metrics.instants import to_seconds
from ettr.units import (
    MICROSECONDS_PER_SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis
    from ettr.analysis.check_choice import CheckAdvice
    from ettr.checks.selector import OfferedCheck

ANY = "any"
"""In place of a symptom: all failures that blame one node."""
_NO_CHECKS = frozenset({"slurmctld", "drain", "ticket", "serial", "node-state"})
NodeName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """One check over the logs.

    Attributes:
        runs: Results on nodes; null where the source writes none for a check that passes.
        nodes: That it reported of.
        minutes_a_run: Mean of the passes whose end is known; null where none is.
        node_hours: Of all runs; null where their number or length is not known.
        coverage: Of each symptom whose failures it could have seen coming; first of any.
        history: Whether its coverage held; null where too little came.
    """

    name: str
    runs: int | None
    nodes: int
    minutes_a_run: float | None
    node_hours: float | None
    alarms: Alarms
    coverage: tuple[SymptomCoverage, ...]
    history: CoverageHistory | None = None


@dataclass(frozen=True, slots=True)
class HelpedReport:
    """Whether one check helped against one symptom."""

    check: str
    symptom: str
    effect: CheckEffect
    verdict: str


@dataclass(frozen=True, slots=True)
class ChecksReport:
    """The answer of `ettr checks`.

    Attributes:
        horizon_h: A firing is before a failure if it is over at most so many hours before it.
        failures: Failures that blame one node.
        advice: Which checks to run now; null where nobody asked.
    """

    horizon_h: float
    failures: int
    checks: tuple[CheckRecord, ...]
    helped: HelpedReport | None
    advice: CheckAdvice | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckLogs:
    """What the logs say, in seconds and by node, for the arithmetic of the checks."""

    period_s: Span
    failures: tuple[BlamedEnd, ...]
    of_any: tuple[BlamedEnd, ...]
    runs: Mapping[NodeName, list[Span]]
    outages_s: Mapping[NodeName, list[float]]
    reports: Mapping[str, Mapping[NodeName, list[Span]]]
    results: Mapping[str, Mapping[NodeName, dict[str, Any]]]

    @property
    def names(self) -> list[str]:
        """Checks that reported anything of a node."""
        return sorted(({*self.results} | {*self.reports}) - _NO_CHECKS)

    def passes(self, check: str) -> int:
        """Results of it that are ok."""
        return sum(int(one["passes"]) for one in self.results.get(check, {}).values())

    def watched(self, check: str) -> dict[NodeName, Span]:
        """From when to when it watched each node.

        One that writes no passes is taken to watch all nodes with jobs from its first report.
        """
        results = self.results.get(check, {})
        if self.passes(check):
            return {
                node: (_seconds(one["first_us"]), _seconds(one["last_us"]))
                for node, one in results.items()
            }
        begins: dict[str, float] = {}
        for (cluster, _), one in results.items():
            first = _seconds(one["first_us"])
            begins[cluster] = min(begins.get(cluster, first), first)
        end = self.period_s[1]
        return {node: (begins[node[0]], end) for node in self.runs if node[0] in begins}


def check_logs(analysis: Analysis) -> CheckLogs:
    """What the logs of a store say of checks, failures and jobs on nodes."""
    facts, period = analysis.facts, analysis.period
    span = (to_seconds(period.start), to_seconds(period.end))
    failures = [row for row in facts.rows("failures") if row["node"] is not None]
    evidence: defaultdict[str, set[str]] = defaultdict(set)
    for attempt, check in facts.distinct("causes", "attempt_id", "check"):
        evidence[attempt].add(check)
    ends, of_any = [], []
    for row in failures:
        place = (row["cluster"], row["node"])
        names = evidence[row["attempt_id"]]
        alone = min(names) if len(names) == 1 else None
        end = BlamedEnd(place, _seconds(row["end_us"]), row["symptom"], alone)
        ends.append(end)
        of_any.append(replace(end, symptom=ANY, alone=None if row["node_failed"] else alone))
    runs = _runs(facts.columns("held"))
    chosen = analysis.selection.of_nodes
    reports: defaultdict[str, defaultdict[NodeName, list[Span]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in facts.rows("check_reports"):
        place = (row["cluster"], row["node"])
        first, last = _seconds(row["first_us"]), _seconds(row["last_us"])
        if last >= span[0] and first <= span[1] and (not chosen or place in runs):
            reports[row["check"]][place].append((first, last))
    results: defaultdict[str, dict[NodeName, dict[str, Any]]] = defaultdict(dict)
    for row in facts.rows("check_results"):
        place = (row["cluster"], row["node"])
        if not chosen or place in runs:
            results[row["check"]][place] = row
    outages: defaultdict[NodeName, list[float]] = defaultdict(list)
    for row in facts.rows("out_states"):
        outages[row["cluster"], row["node"]].append(_seconds(row["start_us"]))
    return CheckLogs(
        span,
        tuple(ends),
        tuple(of_any),
        runs,
        {node: sorted(times) for node, times in outages.items()},
        {
            check: {node: firings_of(own) for node, own in by_node.items()}
            for check, by_node in reports.items()
        },
        results,
    )


def _runs(held: Mapping[str, Any]) -> dict[NodeName, list[Span]]:
    """From when to when jobs ran on each node; jobs side by side are one."""
    spans: defaultdict[NodeName, list[Span]] = defaultdict(list)
    columns = (held[name].tolist() for name in ("cluster", "node", "start_us", "elapsed_s"))
    for cluster, node, start_us, elapsed_s in zip(*columns, strict=True):
        if elapsed_s > 0:
            start = _seconds(start_us)
            spans[cluster, node].append((start, start + elapsed_s))
    return {node: firings_of(own, 0.0) for node, own in spans.items()}


def _seconds(moment_us: float) -> float:
    return float(moment_us) / MICROSECONDS_PER_SECOND


def checks_report(
    analysis: Analysis,
    horizon_s: float,
    helped: str | None = None,
    symptom: str | None = None,
    catalogue: Sequence[OfferedCheck] = (),
) -> tuple[ChecksReport, CheckLogs]:
    """What each check of a store did, and what that rests on.

    Args:
        helped: A check of which is asked whether it helped, against `symptom` or any failure.
        catalogue: Whose coverage is held against the history.

    Raises:
        UsageError: no log has a result of that check, or a failure of that symptom.
    """
    logs = check_logs(analysis)
    confidence = analysis.assumptions.confidence
    typed = {one.name: one.covers for one in catalogue if one.covers}
    # all verdicts together hold at the level of confidence
    each = 1 - (1 - confidence) / max(len(logs.names), 1)
    records = tuple(
        replace(
            _record(logs, name, horizon_s, confidence),
            history=_history(logs, name, horizon_s, typed.get(name), each),
        )
        for name in logs.names
    )
    asked = None if helped is None else _helped(logs, helped, symptom or ANY, confidence)
    found = ChecksReport(
        horizon_s / SECONDS_PER_HOUR,
        len(logs.failures),
        tuple(sorted(records, key=lambda one: (-one.alarms.before_failure, one.name))),
        asked,
        None,
        tuple(_notes(records, logs)),
    )
    return found, logs


def _record(logs: CheckLogs, name: str, horizon_s: float, confidence: float) -> CheckRecord:
    results, firings = logs.results.get(name, {}), logs.reports.get(name, {})
    passes = logs.passes(name)
    runs = passes + sum(int(one["others"]) for one in results.values()) if passes else None
    timed = sum(int(one["timed"]) for one in results.values())
    timed_s = sum(float(one["timed_s"]) for one in results.values() if one["timed"])
    run_s = timed_s / timed if timed else None
    watched = logs.watched(name)
    covered = [
        *coverage_by_symptom(name, logs.of_any, firings, watched, horizon_s, confidence),
        *coverage_by_symptom(name, logs.failures, firings, watched, horizon_s, confidence),
    ]
    return CheckRecord(
        name,
        runs,
        len(results),
        None if run_s is None else run_s / SECONDS_PER_MINUTE,
        None if run_s is None or runs is None else runs * run_s / SECONDS_PER_HOUR,
        alarms_of(logs.failures, firings, logs.outages_s, logs.runs, horizon_s, confidence),
        tuple(covered),
    )


def _history(
    logs: CheckLogs,
    name: str,
    horizon_s: float,
    covers: Mapping[str, float] | None,
    confidence: float,
) -> CoverageHistory | None:
    failures, share = logs.of_any, None
    if covers is not None:
        failures = tuple(one for one in logs.failures if covers.get(one.symptom))
        if not failures:
            return None
        share = sum(covers[one.symptom] for one in failures) / len(failures)
    found = catches(
        *(name, failures, logs.reports.get(name, {}), logs.outages_s),
        *(logs.watched(name), horizon_s),
    )
    return history_of(found, sum(logs.period_s) / 2, share, confidence)


def _helped(logs: CheckLogs, check: str, symptom: str, confidence: float) -> HelpedReport:
    first_s = {node: _seconds(one["first_us"]) for node, one in logs.results.get(check, {}).items()}
    if not first_s:
        raise UsageError(
            f"--helped {check}: no log has a result of it; known: {', '.join(logs.names) or 'none'}"
        )
    ends: defaultdict[NodeName, list[float]] = defaultdict(list)
    for one in logs.of_any if symptom == ANY else logs.failures:
        if one.symptom == symptom:
            ends[one.place].append(one.end_s)
    if not ends:
        known = ", ".join(sorted({one.symptom for one in logs.failures})) or "none"
        raise UsageError(f"--symptom {symptom}: no failure of it blames a node; known: {known}")
    nodes = []
    for node, came_s in first_s.items():
        runs = np.array(logs.runs.get(node, ()), dtype=np.float64).reshape(-1, 2)
        before_s = (np.minimum(runs[:, 1], came_s) - np.minimum(runs[:, 0], came_s)).sum()
        whole_s = (runs[:, 1] - runs[:, 0]).sum()
        own = ends.get(node, [])
        before = sum(end < came_s for end in own)
        nodes.append(
            NodeChange(
                before,
                float(before_s) / SECONDS_PER_DAY,
                len(own) - before,
                float(whole_s - before_s) / SECONDS_PER_DAY,
            )
        )
    effect = effect_of(nodes, confidence)
    return HelpedReport(check, symptom, effect, effect.verdict)


def _notes(records: tuple[CheckRecord, ...], logs: CheckLogs) -> list[str]:
    notes = []
    silent = [one.name for one in records if one.runs is None]
    if silent:
        notes.append(
            "These write nothing when they pass, so their runs are unknown; ettr assumes "
            f"that they watch every node from their first report on: {', '.join(silent)}."
        )
    if any(one.own for record in records for one in record.coverage):
        notes.append(
            "Failures that only the check's own alarms name say nothing about it and are "
            "left out: what it missed has another name or none."
        )
    if records and not logs.failures:
        notes.append("No failure blames a single node, so no check can cover one.")
    return notes
