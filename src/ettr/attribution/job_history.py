"""The history of one job: its attempts, what was observed around their ends, and why they failed.

Nothing is judged here. What counts as evidence, and of which attempt, is read off the `Attribution`
of the job; the rest of what lies in the window is shown next to it, as the taxonomy describes it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.attribution.rules import NODE_FAIL, NODE_STATE, OPERATOR, SLURMCTLD, Confidence, Window
from ettr.defaults import EARLY_S, LOOK_BACK_S
from ettr.errors import UsageError
from ettr.facts import Facts, made
from ettr.facts.facts import at, to_moment
from ettr.selection import Selection
from ettr.tables import FAILURES
from ettr.taxonomy import Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND

# -- interruptions and failures of a selection, each whole in the period in which it ended ---------
# Of chosen nodes it is the failures that blame one of them, or that blame no single node while the
# job held no other; of interruptions, which blame none, those of jobs that ran there.


@made("all_endings", (), reads=("said_endings", "planned_ends", "endings_with_planned"))
def _all_endings(facts: Facts) -> str:
    """One row is an attempt that ended against its owner's wish; columns as `said_endings`."""
    any_planned = bool(facts.rows("planned_ends"))
    return facts.table("endings_with_planned" if any_planned else "said_endings")


@made(
    "endings",
    (),
    reads=("all_endings", "endings_of_jobs", "endings_of_nodes"),
    takes=("selection",),
)
def endings(facts: Facts) -> str:
    """One row is a selected interruption, as in `all_endings`."""
    return facts.table(_of_selection(facts, "endings"))


@made(
    "failures",
    (),
    reads=("all_failures", "failures_of_jobs", "failures_of_nodes"),
    takes=("selection",),
)
def failures(facts: Facts) -> str:
    """One row is a selected failure, as in `all_failures`."""
    return facts.table(_of_selection(facts, "failures"))


def _of_selection(facts: Facts, ends: str) -> str:
    selection: Selection = facts.given("selection")
    if selection.is_everything:
        return f"all_{ends}"
    return f"{ends}_of_nodes" if selection.of_nodes else f"{ends}_of_jobs"


def failure_rows(facts: Facts, name: str = "failures") -> list[dict[str, Any]]:
    """Each failure as a row of the table `failures`, in order of time."""
    rows = facts.rows(name)
    causes = causes_of(facts, {row["attempt_id"] for row in rows})
    made_rows = [_row(row, causes.get(row["attempt_id"], ())) for row in rows]
    return sorted(made_rows, key=lambda row: (row["end"], row["attempt_id"]))


def causes_of(facts: Facts, attempts: Iterable[str]) -> dict[str, list[Mapping[str, Any]]]:
    """By attempt, the rows of `causes` in order, the likeliest first."""
    wanted = set(attempts)
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in facts.rows("causes"):
        if row["attempt_id"] in wanted:
            found[row["attempt_id"]].append(row)
    for some in found.values():
        some.sort(key=lambda row: row["place"])
    return found


def _row(failure: Mapping[str, Any], causes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A failure with its causes and its evidence as text."""
    evidence = [row["episode_id"].replace(",", ";") for row in causes]
    if evidence and failure["named_event"] is not None:
        evidence.append(failure["named_event"])
    symptoms = dict.fromkeys(row["symptom"] for row in causes)
    texts = {
        "start": to_moment(failure["start_us"]),
        "end": to_moment(failure["end_us"]),
        "causes": ",".join(symptoms) or None,
        "evidence": ",".join(evidence) or None,
    }
    return {name: texts[name] if name in texts else failure[name] for name in FAILURES.names}


# -- the history of one job: its attempts, what was observed around their ends, and why they
# failed


_ROOT = ("0", "root")
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """One observation in the window of an attempt, with the way back to the log line.

    `role` is cause (it is evidence of the verdict), named (the scheduler's own word on this
    attempt or its node), pointer, sympathetic or context. `offset_s` is the time after the
    attempt's end, negative before it.
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
    """One attempt: how it ran and ended, what was observed, the verdict (None: no failure).

    Attributes:
        probable_symptom: Of a run that put itself back into the queue by its exit code, or that
            probably hung: the fault that was seen on a node of it that was taken out of service
            then. It is no failure that counts.
        hung_s: Of a run that probably hung: how long before its end that fault was seen.
        black_hole: The node that probably ended it, as it did the jobs of many users then, within
            seconds of their start. It is no failure that counts.
    """

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
    probable_symptom: str | None = None
    probable_node: str | None = None
    hung_s: float | None = None
    black_hole: str | None = None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """All attempts of one job in order, under the window that was used.

    Of jobs of several owners or names that had the id one after another it is the last;
    `earlier_jobs` names the others.
    """

    cluster: str
    job_id: str
    name: str | None
    user: str | None
    window: Window
    attempts: tuple[AttemptHistory, ...]
    earlier_jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """What attribution decided, by attempt."""

    kinds: Mapping[str, str]
    failures: Mapping[str, _Row]
    causes: Mapping[str, set[str]]
    named: Mapping[str, set[str]]
    log_lines: Mapping[str, str]
    hung: Mapping[str, _Row]
    holes: Sequence[_Row]


def explain(facts: Facts, job_id: str, look_back_s: float = LOOK_BACK_S) -> JobHistory:
    """The history of one job.

    Args:
        job_id: as the scheduler shows it: 17, 7_1 (array task), 30+1 (part of a heterogeneous
            job), or cluster/17 where several clusters share the id.
        look_back_s: how long before the first end events are read, in seconds; an episode that
            began earlier is shown from there on.

    Raises:
        UsageError: there is no such job, or one in each of several clusters.
    """
    assumed = facts.given("assumptions")
    window: Window = assumed.window
    after_s = max(window.after_s, assumed.matching.tolerance_s)
    cluster, _, plain = job_id.rpartition("/")
    of_job = facts.under(
        job_id=plain,
        job_cluster=cluster or None,
        look_back_us=round((look_back_s + window.before_s) * MICROSECONDS_PER_SECOND),
        look_on_us=round(after_s * MICROSECONDS_PER_SECOND),
        selection=Selection(),
        since_us=None,
        until_us=None,
    )
    every = _runs(of_job, job_id)
    runs = [run for run in every if _identity(run) == _identity(every[-1])]
    # judged by its own logs: to read those of the whole store would take as long as a report
    own = of_job.over(
        attempts=of_job.table("history_relevant"),
        allocations=of_job.table("history_held"),
        events=of_job.table("history_events"),
        node_states=of_job.table("history_states"),
        event_kinds=of_job.table("history_kinds"),
    )
    names = dict(facts.distinct("files", "file_id", "name"))
    holes = of_job.rows("black_hole_days") if any(map(_ended_early, runs)) else ()
    judged, lines = _judged(own, holes), _LogLines(facts.given("taxonomy"), names)
    nodes: dict[str, list[str]] = defaultdict(list)
    for row in of_job.rows("history_held"):
        nodes[row["attempt_id"]].append(row["node"])
    seen: dict[str, list[_Row]] = defaultdict(list)
    for row in of_job.rows("history_seen"):
        seen[row["attempt_id"]].append(row)
    first = runs[0]
    return JobHistory(
        first["cluster"],
        first["job_id"],
        first["name"],
        first["user"],
        window,
        tuple(
            _attempt(run, nodes[run["attempt_id"]], seen[run["attempt_id"]], judged, lines)
            for run in runs
        ),
        _earlier_jobs(every),
    )


def _identity(run: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What distinguishes jobs with the same id: Slurm begins again at the first one day."""
    return run["user"], run["name"]


def _earlier_jobs(runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The other jobs with the id of the last one: owner, name and day of submission."""
    last, found = _identity(runs[-1]), dict[tuple[str | None, str | None], str]()
    for run in runs:
        if _identity(run) != last:
            words = f"{run['name'] or 'unnamed'} of {run['user'] or 'an unknown user'}"
            if (day := to_moment(run["submit_us"])) is not None:
                words += f", submitted {day:%Y-%m-%d}"
            found.setdefault(_identity(run), words)
    return tuple(found.values())


def _runs(facts: Facts, job_id: str) -> list[dict[str, Any]]:
    """The attempts of the job in order."""
    runs = facts.rows("history_attempts")
    clusters = {run["cluster"] for run in runs}
    plain = facts.given("job_id")
    if len(clusters) > 1:
        forms = ", ".join(f"{name}/{plain}" for name in sorted(clusters))
        raise UsageError(f"job {plain} is in {len(clusters)} clusters; say which: {forms}")
    if not clusters:
        raise UsageError(f"no job {job_id!r}; {_similar(facts)}")
    return sorted(runs, key=lambda run: (run["submit_us"], run["attempt_id"]))


def _similar(facts: Facts) -> str:
    """What to write instead: tasks of that array, parts of that het job, or ids that look alike."""
    base = facts.given("job_id").replace("+", "_").split("_")[0]
    forms = "write an array task as 7_1, a part of a heterogeneous job as 30+1"
    rows = facts.under(job_base=base, job_stem=base[:-1] or base).rows("history_similar")
    kin = [row["job_id"] for row in rows if row["kin"]]
    ids = kin or [row["job_id"] for row in rows if base]
    if not ids:
        return f"no id looks like it; {forms}"
    shown = sorted(ids, key=lambda one: (len(one), one))
    return f"similar ids: {', '.join(shown)}; {forms}"


def _ended_early(run: _Row) -> bool:
    """Whether a black hole may have ended it."""
    elapsed_s = run["elapsed_s"]
    return run["state"] == "FAILED" and elapsed_s is not None and elapsed_s <= EARLY_S[-1]


def _hole_of(run: _Row, nodes: Sequence[str], holes: Iterable[_Row]) -> str | None:
    """The node that probably ended an attempt as it ended others in those days."""
    for hole in holes if _ended_early(run) else ():
        is_then = hole["from_us"] <= (run["start_us"] or 0) < hole["to_us"]
        is_there = hole["cluster"] == run["cluster"] and hole["node"] in nodes
        if is_then and is_there and run["elapsed_s"] <= hole["within_s"]:
            return str(hole["node"])
    return None


def _judged(facts: Facts, holes: Sequence[_Row]) -> _Judged:
    """The attribution of one job, as it is looked up here."""
    failures = {row["attempt_id"]: row for row in failure_rows(facts, "all_failures")}
    causes: dict[str, set[str]] = defaultdict(set)
    named: dict[str, set[str]] = defaultdict(set)
    for row in facts.rows("window_events"):
        if row["fault"] and row["attempt_id"] in failures:
            causes[row["attempt_id"]].add(row["event_id"])
        elif row["down"]:
            named[row["attempt_id"]].add(row["event_id"])
    ends = facts.rows("all_endings")
    log_lines = {row["named_event"]: row["attempt_id"] for row in ends if row["named_event"]}
    for event_id, attempt_id in log_lines.items():
        named[attempt_id].add(event_id)
    hung = {row["attempt_id"]: row for row in facts.rows("hung_runs")}
    return _Judged(
        {row["attempt_id"]: row["kind"] for row in ends},
        failures,
        causes,
        named,
        log_lines,
        hung,
        holes,
    )


def _attempt(
    run: _Row, nodes: Sequence[str], seen: Iterable[_Row], judged: _Judged, lines: _LogLines
) -> AttemptHistory:
    attempt_id = run["attempt_id"]
    kind = judged.kinds.get(attempt_id)
    observed = _observed(run, seen, judged, lines)
    is_own = run["state"] in _PUT_BACK and (run["exit_code"] or 0) > 0
    probable = None if attempt_id in judged.failures or not is_own else _probable(observed, lines)
    hung, hung_s = judged.hung.get(attempt_id), None
    if hung is not None and not is_own:
        probable = hung["symptom"], hung["node"]
        hung_s = (hung["end_us"] - hung["fault_us"]) / MICROSECONDS_PER_SECOND
    return AttemptHistory(
        attempt_id=attempt_id,
        state=run["state"],
        kind=kind,
        reason=_reason(run, kind, lines.taxonomy),
        submit=at(run["submit_us"]),
        start=to_moment(run["start_us"]),
        end=to_moment(run["end_us"]),
        elapsed_s=run["elapsed_s"],
        n_gpus=run["n_gpus"],
        nodes=tuple(sorted(nodes)),
        where=lines.where(run),
        verdict=_verdict(judged.failures.get(attempt_id)),
        observed=observed,
        probable_symptom=probable[0] if probable else None,
        probable_node=probable[1] if probable else None,
        hung_s=hung_s,
        black_hole=None if attempt_id in judged.failures else _hole_of(run, nodes, judged.holes),
    )


_PUT_BACK = ("REQUEUED", "REQUEUE_HOLD")
_TAKEN_OUT = re.compile(r"state set to (?:DRAIN|DOWN)\w*: (.*)", re.DOTALL)


def _probable(observed: Sequence[ObservedEvent], lines: _LogLines) -> tuple[str, str] | None:
    """Symptom and node of a fault on a node that was taken out of service for no planned work."""
    out: dict[str, str | None] = {}
    for one in observed:
        match = _TAKEN_OUT.search(one.message or "")
        if one.node and match:
            verdict = lines.taxonomy.classify_reason(match[1])
            if not verdict.is_planned:
                out[one.node] = verdict.symptom
    faults = [one for one in observed if one.symptom and one.node in out and one.role == "context"]
    for one in sorted(faults, key=lambda one: abs(one.offset_s)):
        if one.symptom and one.node:
            return one.symptom, one.node
    return next(((symptom, node) for node, symptom in out.items() if symptom), None)


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
    if by_operator and uid in _ROOT:
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
    run: _Row, seen: Iterable[_Row], judged: _Judged, lines: _LogLines
) -> tuple[ObservedEvent, ...]:
    """What was seen in the window on the attempt's nodes, or said about it, in order of time."""
    attempt_id = run["attempt_id"]
    causes, named = judged.causes.get(attempt_id, set()), judged.named.get(attempt_id, set())

    def role(event_id: str) -> str | None:
        return "cause" if event_id in causes else "named" if event_id in named else None

    def concerns(row: _Row) -> bool:
        """Whether it is about this attempt: not a passed check, nor a word on another attempt."""
        if row["event_id"] in causes or row["event_id"] in named:
            return True
        if row["check"] != SLURMCTLD or row["of_attempt"] is None:
            return bool(row["severity"] != "ok")
        return row["of_attempt"] and judged.log_lines.get(row["event_id"]) in (None, attempt_id)

    shown = [
        lines.of_event(row, run["end_us"], role(row["event_id"]))
        if row["state"] is None
        else lines.of_state(row, run["end_us"], role(row["event_id"]))
        for row in seen
        if row["state"] is not None or concerns(row)
    ]
    return tuple(sorted(shown, key=lambda one: (one.time, one.event_id)))


@dataclass(frozen=True, slots=True)
class _LogLines:
    """Rows of the logs as a reader gets them: what the taxonomy says of each, and where it is."""

    taxonomy: Taxonomy
    file_names: Mapping[str, str]

    def where(self, row: _Row) -> str:
        return f"{self.file_names.get(row['file_id'], row['file_id'])}:{row['line']}"

    def of_event(self, row: _Row, end_us: int, role: str | None) -> ObservedEvent:
        verdict = self.taxonomy.classify(row["check"], row["code"], row["severity"])
        if role == "named":
            why = "the scheduler itself says that the node failed"
        else:
            why = verdict.why if verdict else "no sign of a cause"
        if role is None and verdict is not None:
            role = "pointer" if verdict.pointer else "sympathetic" if verdict.sympathetic else None
        return ObservedEvent(
            time=at(row["time_us"]),
            offset_s=(row["time_us"] - end_us) / MICROSECONDS_PER_SECOND,
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

    def of_state(self, row: _Row, end_us: int, role: str | None) -> ObservedEvent:
        verdict = self.taxonomy.classify_reason(row["message"] or "")
        planned = ", planned work" if verdict.is_planned else ""
        down = row["state"] == "DOWN" and not verdict.is_planned
        return ObservedEvent(
            time=at(row["time_us"]),
            offset_s=(row["time_us"] - end_us) / MICROSECONDS_PER_SECOND,
            node=row["node"],
            check=NODE_STATE,
            code=row["state"],
            entity=None,
            severity="critical" if down else "unknown",
            message=row["message"],
            symptom=verdict.symptom,
            role=role or "context",
            why=f"reason class {verdict.reason_class}{planned}",
            event_id=row["event_id"],
            where=self.where(row),
        )
