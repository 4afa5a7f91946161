"""What the health checks of a store found, missed and cost, and whether a new one helped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ettr.analysis.analysis import Analysis
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
from ettr.checks.selector import (
    CheckChoice,
    Floats,
    Offer,
    OfferedCheck,
    Prospect,
    after_idle,
    after_pass,
    after_survival,
    choose,
    slurm_list,
    survival,
)
from ettr.errors import UsageError
from ettr.metrics.instants import to_seconds
from ettr.units import (
    MICROSECONDS_PER_SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

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


# -- which checks to run before a job, and on which nodes, from what a store says of both ----------


STRIKE_H = 12.0
"""Hours of jobs after which a hidden defect strikes, on average, where no lead time is known."""
FALSE_ALARM_H = 4.0
"""For which a false alarm takes a node out of service."""
_PASSIVE = frozenset({"xid", "sxid"})
"""What reads a log by itself and cannot be run."""


@dataclass(frozen=True, slots=True)
class AdvisedCheck:
    """A check to run now.

    Attributes:
        minutes: On each node.
        node_list: In Slurm's form.
        needs_idle: Whether no job may run on the node meanwhile; null where nobody says.
    """

    name: str
    command: str | None
    minutes: float
    needs_idle: bool | None
    nodes: int
    node_list: str


@dataclass(frozen=True, slots=True)
class UnusedCheck:
    """A check that is not to be run, and why."""

    name: str
    minutes: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CheckAdvice:
    """Which checks to run before a job.

    Attributes:
        node_list: Nodes that the job is taken to get: of all in service those that are least
            likely to be struck.
        incident_h: What an incident costs the job.
        struck_before: Probability that the job is struck if nothing is checked.
        struck_after: The same after the checks of `run`.
        checks_node_hours: What these cost, with false alarms.
        saved_node_hours: Expected saving beyond that; 0 where nothing pays.
        waits: Whether the whole job waits for the checks.
    """

    nodes: int
    hours: float
    node_list: str
    incident_h: float
    struck_before: float
    struck_after: float
    checks_node_hours: float
    saved_node_hours: float
    waits: bool
    run: tuple[AdvisedCheck, ...]
    not_run: tuple[UnusedCheck, ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobToCome:
    """The job before which is asked."""

    nodes: int
    hours: float
    incident_h: float
    waits: bool = True


def check_advice(
    analysis: Analysis,
    logs: CheckLogs,
    records: Sequence[CheckRecord],
    catalogue: Sequence[OfferedCheck] | None,
    job: JobToCome,
    asked: frozenset[tuple[str, str]],
) -> CheckAdvice:
    """The checks that are worth their minutes.

    Args:
        catalogue: None for the checks whose runs the store holds.
        asked: Nodes that the job may get, by cluster and name.

    Raises:
        UsageError: the store names fewer nodes in service, or nothing that can be run.
    """
    known = {one.name: one for one in records}
    offered = _offered(known, catalogue)
    places = [node for node in _in_service(analysis, logs) if node in asked]
    if len(places) < job.nodes:
        raise UsageError(
            f"--before {job.nodes} nodes: of those asked about, the logs name {len(places)} that "
            "are in service and had jobs; "
            "give that many or fewer"
        )
    covers = {one.name: _covers(one, known.get(one.name)) for one in offered}
    kinds = sorted({kind for own in covers.values() for kind, share in own.items() if share > 0})
    assumed: list[str] = []
    rates = _rates(analysis, logs, places, kinds)
    strike = _strikes(kinds, records, assumed)
    coverage = np.array([[covers[one.name].get(kind, 0.0) for kind in kinds] for one in offered])
    coverage = coverage.reshape(len(offered), len(kinds))
    belief = _beliefs(logs, places, kinds, rates, strike, offered, coverage)
    clean, bad = survival(rates, strike, job.hours)
    chance = -np.log(np.maximum(clean - belief * (clean - bad), 1e-300)).sum(axis=1)
    order = np.argsort(chance, kind="stable")[: job.nodes]
    usable = [at for at, one in enumerate(offered) if _minutes(one, known) is not None]
    false_share = np.array([_false_share(offered[at], known, assumed) for at in usable])
    choice = choose(
        Prospect(
            belief[order], clean[order], bad[order], job.incident_h * job.nodes, restarts=True
        ),
        Offer(
            coverage[usable].reshape(len(usable), len(kinds)),
            np.array([_minutes(offered[at], known) or 0.0 for at in usable])
            * SECONDS_PER_MINUTE
            / SECONDS_PER_HOUR,
            false_share * FALSE_ALARM_H,
            job.waits,
        ),
    )
    names = [places[at] for at in order]
    several = len({cluster for cluster, _ in places}) > 1
    return _advice(
        job, choice, [offered[at] for at in usable], offered, known, names, several, covers, assumed
    )


def _offered(
    known: Mapping[str, CheckRecord], catalogue: Sequence[OfferedCheck] | None
) -> list[OfferedCheck]:
    if catalogue is not None:
        return list(catalogue)
    found = [OfferedCheck(name) for name, one in known.items() if name not in _PASSIVE]
    if not found:
        raise UsageError(
            "--before: the logs hold no check that could be run; name the site's own by "
            "--catalogue FILE (`ettr checks --help`)"
        )
    return found


def _minutes(one: OfferedCheck, known: Mapping[str, CheckRecord]) -> float | None:
    if one.minutes is not None:
        return one.minutes
    record = known.get(one.name)
    return None if record is None else record.minutes_a_run


def _covers(one: OfferedCheck, record: CheckRecord | None) -> Mapping[str, float]:
    if one.covers is not None:
        return one.covers
    if record is None:
        return {}
    return {
        own.symptom: own.coverage_share.estimate or 0.0
        for own in record.coverage
        if own.symptom != "any" and own.failures
    }


def _false_share(one: OfferedCheck, known: Mapping[str, CheckRecord], assumed: list[str]) -> float:
    if one.false_alarm_share is not None:
        return one.false_alarm_share
    record = known.get(one.name)
    if record is not None and record.runs:
        return record.alarms.false_alarms / record.runs
    assumed.append(f"{one.name}: its false alarms are unknown and count as none.")
    return 0.0


def _in_service(analysis: Analysis, logs: CheckLogs) -> list[NodeName]:
    """Nodes with jobs in the logs that are not out of service as these end."""
    out = {
        (row["cluster"], row["node"])
        for row in analysis.facts.rows("out_states")
        if row["end_us"] is None
    }
    return sorted(node for node in logs.runs if node not in out)


def _rates(
    analysis: Analysis, logs: CheckLogs, places: Sequence[NodeName], kinds: Sequence[str]
) -> Floats:
    """Defects an hour of each node and kind: the fleet's rate times what a lemon is worse."""
    hours = (logs.period_s[1] - logs.period_s[0]) / SECONDS_PER_HOUR
    node_h = max(hours * len(logs.runs), 1e-9)
    counts = np.array([sum(one.symptom == kind for one in logs.failures) for kind in kinds])
    times = np.ones(len(places))
    found = analysis.lemon_nodes
    ratio = {(one.cluster, one.hardware): one.ratio for one in found.groups}
    at = {place: row for row, place in enumerate(places)}
    for one in found.candidates:
        row = at.get((one.cluster, one.node))
        if row is not None:
            worse = ratio.get((one.cluster, one.hardware)) or found.min_ratio
            times[row] = 1 + one.posterior * (worse - 1)
    return np.asarray(times[:, None] * counts / node_h, dtype=np.float64)


def _strikes(kinds: Sequence[str], records: Sequence[CheckRecord], assumed: list[str]) -> Floats:
    """At which rate a hidden defect strikes a job, from the longest lead time of any check."""
    found, guessed = [], []
    for kind in kinds:
        leads = [
            one.lead_h.estimate
            for record in records
            for one in record.coverage
            if one.symptom == kind and one.fired_before >= 3 and one.lead_h.estimate
        ]
        found.append(np.log(2) / max(leads) if leads else 1 / STRIKE_H)
        if not leads:
            guessed.append(kind)
    if guessed:
        assumed.append(
            f"A hidden defect strikes after {STRIKE_H:g} h of jobs on average, where "
            f"fewer than 3 lead times are known: {', '.join(guessed)}."
        )
    return np.asarray(found, dtype=np.float64)


def _beliefs(
    logs: CheckLogs,
    places: Sequence[NodeName],
    kinds: Sequence[str],
    rates: Floats,
    strike: Floats,
    offered: Sequence[OfferedCheck],
    coverage: Floats,
) -> Floats:
    """As the logs end: since the last failure of the kind on the node, by the passes since."""
    begin, now = logs.period_s
    since = np.full((len(places), len(kinds)), begin)
    at = {place: row for row, place in enumerate(places)}
    column = {kind: place for place, kind in enumerate(kinds)}
    for one in logs.failures:
        row = at.get(one.place)
        if row is not None and one.symptom in column:
            cell = row, column[one.symptom]
            since[cell] = max(since[cell], one.end_s)
    passed = np.full((len(offered), len(places)), begin)
    for number, own in enumerate(offered):
        for place, result in logs.results.get(own.name, {}).items():
            if place in at and result["last_pass_us"] is not None:
                passed[number, at[place]] = min(
                    float(result["last_pass_us"]) / MICROSECONDS_PER_SECOND, now
                )
    belief = np.zeros_like(rates)
    order = np.argsort(passed, axis=0, kind="stable")
    nodes = np.arange(len(places))
    ran_s = [_ran_until(logs.runs.get(place, ())) for place in places]
    for step in range(len(offered) + 1):
        check = order[step] if step < len(offered) else None
        upto = np.full(len(places), now) if check is None else passed[check, nodes]
        until = np.maximum(since, upto[:, None])
        ran = np.array(
            [own(until[row]) - own(since[row]) for row, own in enumerate(ran_s)]
        ).reshape(since.shape)
        ran_h = np.maximum(ran, 0.0) / SECONDS_PER_HOUR
        idle_h = np.maximum((until - since) / SECONDS_PER_HOUR - ran_h, 0.0)
        belief = after_idle(after_survival(belief, rates, strike, ran_h), rates, idle_h)
        if check is not None:
            # a pass before the last failure says nothing any more
            fresh = upto[:, None] > since
            belief = np.where(fresh, after_pass(belief, coverage[check]), belief)
        since = until
    return belief


def _ran_until(runs: Sequence[tuple[float, float]]) -> Callable[[Floats], Floats]:
    """A function of times: how long jobs had run on a node by then."""
    if not runs:
        return np.zeros_like
    bounds = np.array(runs, dtype=np.float64)
    total = np.repeat(np.concatenate([[0.0], np.cumsum(bounds[:, 1] - bounds[:, 0])]), 2)[1:-1]
    return lambda times: np.asarray(np.interp(times, bounds.ravel(), total))


def _advice(
    job: JobToCome,
    choice: CheckChoice,
    usable: Sequence[OfferedCheck],
    offered: Sequence[OfferedCheck],
    known: Mapping[str, CheckRecord],
    names: Sequence[NodeName],
    several: bool,
    covers: Mapping[str, Mapping[str, float]],
    assumed: Sequence[str],
) -> CheckAdvice:
    def listed(chosen: Sequence[int]) -> str:
        by_cluster: defaultdict[str, list[str]] = defaultdict(list)
        for at in chosen:
            by_cluster[names[at][0]].append(names[at][1])
        if not several:
            return slurm_list(name for own in by_cluster.values() for name in own)
        return " ".join(f"{cluster}: {slurm_list(own)}" for cluster, own in by_cluster.items())

    run, unused = [], []
    for row, one in enumerate(usable):
        nodes = np.flatnonzero(choice.runs[row]).tolist()
        minutes = _minutes(one, known) or 0.0
        if nodes:
            run.append(
                AdvisedCheck(
                    one.name, one.command, minutes, one.needs_idle, len(nodes), listed(nodes)
                )
            )
        else:
            covered = any(share > 0 for share in covers[one.name].values())
            why = "costs more than it prevents" if covered else "covers no known failure"
            unused.append(UnusedCheck(one.name, minutes, why))
    for one in offered:
        if _minutes(one, known) is None:
            unused.append(UnusedCheck(one.name, None, "its minutes are not known"))
    return CheckAdvice(
        job.nodes,
        job.hours,
        listed(range(len(names))),
        job.incident_h,
        choice.struck_before,
        choice.struck_after,
        choice.checks_node_h,
        choice.saved_node_h,
        job.waits,
        tuple(run),
        tuple(unused),
        tuple(assumed),
    )
