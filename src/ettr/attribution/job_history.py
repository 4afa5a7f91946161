"""The history of one job: its attempts, what was observed around their ends, and why they failed.

Nothing is judged here. What counts as evidence, and of which attempt, is read off the `Attribution`
of the job; the rest of what lies in the window is shown next to it, as the taxonomy describes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import ibis
from ibis.expr.types import BooleanValue, Column, Table

from ettr.attribution.endings import NODE_FAIL, ROOT
from ettr.attribution.episodes import NODE_STATE, state_id
from ettr.attribution.maintenance import OPERATOR
from ettr.attribution.pipeline import Attribution, attribute
from ettr.attribution.rules import Confidence, FoldingRules, LogMatching, Window
from ettr.attribution.verdicts import SLURMCTLD
from ettr.attribution.window import in_window, observations_in_window
from ettr.defaults import LOOK_BACK_S
from ettr.errors import UsageError
from ettr.tables.materialize import materialize
from ettr.taxonomy import Taxonomy

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """One observation in the window of an attempt, with the way back to the log line.

    `role` is cause (it is evidence of the verdict), named (the scheduler's own word on this
    attempt or its node), pointer, sympathetic or context. `where` is file and line, such as
    `slurmctld.log:132`. `offset_s` is the time after the attempt's end, negative before it.
    """

    time: datetime
    offset_s: float
    node: str | None
    check: str
    code: str | None
    entity: str | None
    severity: str
    message: str | None
    symptom: str | None
    role: str
    why: str
    event_id: str
    where: str


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """Why an attempt counts as a failure: the row of `failures`, with its lists taken apart."""

    symptom: str
    domain: str
    node: str | None
    confidence: Confidence
    causes: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """One attempt: how it ran and ended, what was observed, the verdict (None: no failure)."""

    attempt_id: str
    state: str
    kind: str | None
    reason: str
    submit: datetime
    start: datetime | None
    end: datetime | None
    elapsed_s: float | None
    n_gpus: int | None
    nodes: tuple[str, ...]
    where: str
    verdict: FailureVerdict | None
    observed: tuple[ObservedEvent, ...]


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All attempts of one job in order, under the window that was used."""

    cluster: str
    job_id: str
    name: str | None
    user: str | None
    window: Window
    attempts: tuple[AttemptHistory, ...]


@dataclass(frozen=True, slots=True)
class _JobLogs:
    """The rows that concern one job, small next to the store.

    Attributes:
        attempts: Its attempts in order.
        held: Its rows of `allocations`.
        nodes: Nodes of each attempt.
        events: Observations near its ends, on its nodes or about the job.
        node_states: States of its nodes.
        relevant: Its attempts, and those of others that decide who cancelled it.
    """

    attempts: Sequence[_Row]
    held: Table
    nodes: Mapping[str, Sequence[str]]
    events: Table
    node_states: Table
    relevant: Table


@dataclass(frozen=True, slots=True)
class _EventSpan:
    """How long before the first end of a job and after its last one events are read."""

    before: timedelta
    after: timedelta


@dataclass(frozen=True, slots=True)
class _Judged:
    """What attribution decided, by attempt.

    Attributes:
        kinds: Kind of interruption.
        failures: Rows of `failures`.
        causes: Ids of the observations that are evidence of a failure.
        named: Ids of the scheduler's own words: on the attempt's end, or that its node went down.
        log_lines: Lines of the controller's log that were matched to an attempt, to which.
    """

    kinds: Mapping[str, str]
    failures: Mapping[str, _Row]
    causes: Mapping[str, set[str]]
    named: Mapping[str, set[str]]
    log_lines: Mapping[str, str]


def explain(
    attempts: Table,
    allocations: Table,
    events: Table,
    node_states: Table,
    job_id: str,
    taxonomy: Taxonomy,
    *,
    files: Table | None = None,
    rules: FoldingRules | None = None,
    window: Window | None = None,
    matching: LogMatching | None = None,
    look_back_s: float = LOOK_BACK_S,
) -> JobHistory:
    """The history of one job.

    Args:
        attempts: the table `attempts`; likewise the next three.
        allocations: exposure of its nodes.
        events: observations.
        node_states: states of nodes with their reasons.
        job_id: as the scheduler shows it: 17, 7_1 (array task), 30+1 (part of a heterogeneous job),
            or cluster/17 where several clusters share the id.
        taxonomy: what observations mean.
        files: the table `files`, for file names; without it their ids are shown.
        rules: how events fold.
        window: the part of an attempt that counts.
        matching: when a line of the controller's log belongs to an attempt.
        look_back_s: how long before the first end events are read, in seconds; an episode that
            began earlier is shown from there on.

    Raises:
        UsageError: there is no such job, or one in each of several clusters.
    """
    window, matching = window or Window(), matching or LogMatching()
    around = _EventSpan(
        timedelta(seconds=look_back_s + window.before_s),
        timedelta(seconds=max(window.after_s, matching.tolerance_s)),
    )
    logs = _logs_of(job_id, attempts, allocations, events, node_states, around)
    found = attribute(
        logs.relevant,
        logs.held,
        logs.events,
        logs.node_states,
        taxonomy,
        rules=rules,
        window=window,
        matching=matching,
    )
    judged, lines = _judged(found, logs.held), _LogLines(taxonomy, _file_names(files))
    first = logs.attempts[0]
    return JobHistory(
        first["cluster"],
        first["job_id"],
        first["name"],
        first["user"],
        window,
        tuple(_attempt(run, logs, judged, lines, window) for run in logs.attempts),
    )


def _logs_of(
    job_id: str,
    attempts: Table,
    allocations: Table,
    events: Table,
    node_states: Table,
    around: _EventSpan,
) -> _JobLogs:
    mine = materialize(_of_job(attempts, job_id))
    runs = mine.order_by(["submit", "attempt_id"]).to_pyarrow().to_pylist()
    cluster = runs[0]["cluster"]
    held = materialize(allocations.semi_join(mine, "attempt_id"))
    nodes: dict[str, list[str]] = defaultdict(list)
    for row in held.select("attempt_id", "node").to_pyarrow().to_pylist():
        nodes[row["attempt_id"]].append(row["node"])
    everywhere = sorted({node for some in nodes.values() for node in some})
    near = events.filter(
        (events.cluster == cluster)
        & _about_ends(events.time, runs, around)
        & (_any_of(events.node, everywhere) | _any_of(events.job_id, _ids(*runs)))
    )
    stated = node_states.filter(
        (node_states.cluster == cluster) & _any_of(node_states.node, everywhere)
    )
    uids = [run["cancelled_by"] for run in runs if run["cancelled_by"]]
    relevant = mine
    if uids:  # who cancels for several users is an operator
        others = attempts.filter(attempts.cancelled_by.isin(uids)).anti_join(mine, "attempt_id")
        relevant = ibis.union(mine, others, distinct=False)
    return _JobLogs(runs, held, nodes, materialize(near), materialize(stated), relevant)


def _ids(*runs: _Row) -> list[str]:
    """The ids under which logs may name the job of those attempts."""
    return sorted({run[name] for run in runs for name in ("job_id", "job_id_raw") if run[name]})


def _about_ends(time: Column, runs: Sequence[_Row], around: _EventSpan) -> BooleanValue:
    """From well before the first end to after the last: an episode may have begun days ago."""
    ends = [run["end"] for run in runs if run["end"]]
    if not ends:
        return ibis.literal(False)
    return time.between(min(ends) - around.before, max(ends) + around.after)


def _of_job(attempts: Table, job_id: str) -> Table:
    cluster, _, plain = job_id.rpartition("/")
    mine = attempts.filter(attempts.job_id == plain)
    if cluster:
        mine = mine.filter(mine.cluster == cluster)
    clusters = mine.select("cluster").distinct().to_pyarrow().column("cluster").to_pylist()
    if len(clusters) > 1:
        forms = ", ".join(f"{name}/{plain}" for name in sorted(clusters))
        raise UsageError(f"job {plain} is in {len(clusters)} clusters; say which: {forms}")
    if not clusters:
        raise UsageError(f"no job {job_id!r}; {_similar(attempts, plain)}")
    return mine.filter(mine.cluster == clusters[0])


def _similar(attempts: Table, job_id: str) -> str:
    """What to write instead: tasks of that array, parts of that het job, or ids that look alike."""
    base = job_id.replace("+", "_").split("_")[0]
    kin = attempts.filter(
        (attempts.array_job_id == base).fill_null(False)
        | (attempts.het_job_id == base).fill_null(False)
        | (attempts.job_id_raw == job_id).fill_null(False)
        | (attempts.job_id == base)
    )
    ids = _some_ids(kin)
    if not ids and base:
        ids = _some_ids(attempts.filter(attempts.job_id.startswith(base[:-1] or base)))
    forms = "write an array task as 7_1, a part of a heterogeneous job as 30+1"
    if not ids:
        return f"no id looks like it; {forms}"
    return f"similar ids: {', '.join(ids)}; {forms}"


def _some_ids(some: Table) -> list[str]:
    found = some.select("job_id").distinct().order_by("job_id").limit(8)
    return sorted(found.to_pyarrow().column("job_id").to_pylist(), key=lambda i: (len(i), i))


def _any_of(column: Column, values: Sequence[str]) -> BooleanValue:
    return column.isin(values).fill_null(False) if values else ibis.literal(False)


def _file_names(files: Table | None) -> dict[str, str]:
    if files is None:
        return {}
    rows = files.select("file_id", "name").to_pyarrow().to_pylist()
    return {row["file_id"]: row["name"] for row in rows}


def _judged(found: Attribution, held: Table) -> _Judged:
    """The attribution of one job, as it is looked up here."""
    failures = {row["attempt_id"]: row for row in found.failures.to_pyarrow().to_pylist()}
    causes: dict[str, set[str]] = defaultdict(set)
    named: dict[str, set[str]] = defaultdict(set)
    met = observations_in_window(found.explanatory, found.observations, held, found.window)
    for row in met.to_pyarrow().to_pylist():
        if row["fault"] and row["attempt_id"] in failures:
            causes[row["attempt_id"]].add(row["event_id"])
        elif row["down"]:
            named[row["attempt_id"]].add(row["event_id"])
    ends = found.endings.select("attempt_id", "kind", "named_event").to_pyarrow().to_pylist()
    log_lines = {row["named_event"]: row["attempt_id"] for row in ends if row["named_event"]}
    for event_id, attempt_id in log_lines.items():
        named[attempt_id].add(event_id)
    return _Judged(
        {row["attempt_id"]: row["kind"] for row in ends}, failures, causes, named, log_lines
    )


def _attempt(
    run: _Row, logs: _JobLogs, judged: _Judged, lines: _LogLines, window: Window
) -> AttemptHistory:
    attempt_id = run["attempt_id"]
    kind = judged.kinds.get(attempt_id)
    return AttemptHistory(
        attempt_id=attempt_id,
        state=run["state"],
        kind=kind,
        reason=_reason(run, kind, lines.taxonomy),
        submit=run["submit"],
        start=run["start"],
        end=run["end"],
        elapsed_s=run["elapsed_s"],
        n_gpus=run["n_gpus"],
        nodes=tuple(sorted(logs.nodes.get(attempt_id, []))),
        where=lines.where(run),
        verdict=_verdict(judged.failures.get(attempt_id)),
        observed=_observed(run, logs, judged, lines, window),
    )


def _reason(run: _Row, kind: str | None, taxonomy: Taxonomy) -> str:
    """What the end state means, and where it can mean several things, which was taken."""
    if run["state"] == "CANCELLED":
        return _who_cancelled(run["cancelled_by"], kind == OPERATOR)
    if kind == OPERATOR and run["state"] == NODE_FAIL:
        return (
            "A node was taken down for planned work while the job ran: an operator's act, no "
            "failure of the infrastructure."
        )
    entry = taxonomy.states.get(run["state"])
    return entry.reason if entry else "An end state that the taxonomy does not know."


def _who_cancelled(uid: str | None, by_operator: bool) -> str:
    if by_operator and uid in ROOT:
        return f"Cancelled by {uid}, the system's user: an operator's act."
    if by_operator:
        return f"Cancelled by {uid}, who cancelled jobs of several users: an operator's act."
    if uid is None:
        return (
            "Cancelled, and no log names by whom: taken as its owner's wish. The controller's log "
            "(slurmctld.log) names who asked."
        )
    return f"Cancelled by {uid}, of whom no log shows that it is another's: taken as its owner."


def _verdict(row: _Row | None) -> FailureVerdict | None:
    if row is None:
        return None
    return FailureVerdict(
        symptom=row["symptom"],
        domain=row["domain"],
        node=row["node"],
        confidence=Confidence(row["confidence"]),
        causes=tuple(row["causes"].split(",")) if row["causes"] else (),
        evidence=tuple(row["evidence"].split(",")) if row["evidence"] else (),
    )


def _observed(
    run: _Row, logs: _JobLogs, judged: _Judged, lines: _LogLines, window: Window
) -> tuple[ObservedEvent, ...]:
    """What was seen in the window on the attempt's nodes, or said about it, in order of time."""
    if run["end"] is None:
        return ()
    attempt_id, end = run["attempt_id"], run["end"]
    nodes, ids = logs.nodes.get(attempt_id, []), _ids(run)
    causes, named = judged.causes.get(attempt_id, set()), judged.named.get(attempt_id, set())

    def role(event_id: str) -> str | None:
        return "cause" if event_id in causes else "named" if event_id in named else None

    def concerns(row: _Row) -> bool:
        """Whether it is about this attempt: not a passed check, nor a word on another attempt."""
        if row["event_id"] in causes or row["event_id"] in named:
            return True
        if row["check"] != SLURMCTLD:
            return bool(row["severity"] != "ok")
        if row["job_id"] is None:
            return bool(row["severity"] != "ok")
        matched = judged.log_lines.get(row["event_id"])
        return row["job_id"] in ids and matched in (None, attempt_id)

    events, states = logs.events, logs.node_states
    until = ibis.greatest(events.time, events.time_end.fill_null(events.time))
    of_job = (events.check == SLURMCTLD) & _any_of(events.job_id, ids)
    near = events.filter(
        _in_window_of(run, events.time, until, window) & (_any_of(events.node, nodes) | of_job)
    )
    shown = [
        lines.of_event(row, end, role(row["event_id"]))
        for row in near.to_pyarrow().to_pylist()
        if concerns(row)
    ]
    stated = states.mutate(event_id=state_id(states)).filter(
        _in_window_of(run, states.start, states.start, window) & _any_of(states.node, nodes)
    )
    shown += [
        lines.of_state(row, end, role(row["event_id"])) for row in stated.to_pyarrow().to_pylist()
    ]
    return tuple(sorted(shown, key=lambda one: (one.time, one.event_id)))


def _in_window_of(run: _Row, time: Column, until: Column, window: Window) -> BooleanValue:
    start = run["start"] or run["end"] - timedelta(seconds=window.before_s)
    return in_window(time, until, ibis.literal(start), ibis.literal(run["end"]), window)


@dataclass(frozen=True, slots=True)
class _LogLines:
    """Rows of the logs as a reader gets them: what the taxonomy says of each, and where it is."""

    taxonomy: Taxonomy
    file_names: Mapping[str, str]

    def where(self, row: _Row) -> str:
        return f"{self.file_names.get(row['file_id'], row['file_id'])}:{row['line']}"

    def of_event(self, row: _Row, end: datetime, role: str | None) -> ObservedEvent:
        verdict = self.taxonomy.classify(row["check"], row["code"], row["severity"])
        if role == "named":
            why = "the scheduler itself says that the node failed"
        else:
            why = verdict.why if verdict else "no sign of a cause"
        if role is None and verdict is not None:
            role = "pointer" if verdict.pointer else "sympathetic" if verdict.sympathetic else None
        return ObservedEvent(
            time=row["time"],
            offset_s=(row["time"] - end).total_seconds(),
            node=row["node"],
            check=row["check"],
            code=row["code"],
            entity=row["entity"],
            severity=row["severity"],
            message=row["message"],
            symptom=verdict.symptom if verdict else None,
            role=role or "context",
            why=why,
            event_id=row["event_id"],
            where=self.where(row),
        )

    def of_state(self, row: _Row, end: datetime, role: str | None) -> ObservedEvent:
        verdict = self.taxonomy.classify_reason(row["reason"] or "")
        planned = ", planned work" if verdict.is_planned else ""
        down = row["state"] == "DOWN" and not verdict.is_planned
        return ObservedEvent(
            time=row["start"],
            offset_s=(row["start"] - end).total_seconds(),
            node=row["node"],
            check=NODE_STATE,
            code=row["state"],
            entity=None,
            severity="critical" if down else "unknown",
            message=row["reason"],
            symptom=verdict.symptom,
            role=role or "context",
            why=f"reason class {verdict.reason_class}{planned}",
            event_id=row["event_id"],
            where=self.where(row),
        )
