"""One job's story: its attempts, what was seen around their ends, the verdict and its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import ibis
from ibis.expr.types import BooleanValue, Table

from ettr.attribution.endings import NODE_FAILED
from ettr.attribution.episodes import NODE_STATE, state_id
from ettr.attribution.pipeline import Attribution, attribute
from ettr.attribution.rules import Confidence, FoldingRules, Naming, Window
from ettr.attribution.verdicts import BLAMELESS, SLURMCTLD, WENT_DOWN
from ettr.errors import UsageError
from ettr.tables.materialize import materialize
from ettr.taxonomy import Taxonomy

_LOOK_BACK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation in the window of an attempt, with the way back to the log line.

    `role` is cause (it counts as evidence), named (the scheduler's own word), pointer, sympathetic
    or context. `where` is file and line, such as `slurmctld.log:132`. `offset_s` is the time after
    the attempt's end, negative before it.
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
class Verdict:
    """Why an attempt counts as a failure: the row of `failures`, with its lists taken apart."""

    symptom: str
    domain: str
    node: str | None
    confidence: Confidence
    causes: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptStory:
    """One attempt: how it ran, how it ended, what was seen, and the verdict (None: no failure)."""

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
    verdict: Verdict | None
    observed: tuple[Observed, ...]


@dataclass(frozen=True, slots=True)
class JobStory:
    """All attempts of one job in order, under the window that was used."""

    cluster: str
    job_id: str
    name: str | None
    user: str | None
    window: Window
    attempts: tuple[AttemptStory, ...]


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
) -> JobStory:
    """The story of one job.

    Args:
        attempts: the table `attempts`; likewise the next three.
        allocations: exposure of its nodes.
        events: observations.
        node_states: states of nodes with their reasons.
        job_id: as the scheduler shows it: 17, 7_1 (array task), 30+1 (part of a heterogeneous job),
            or cluster/17 where several clusters share the id.
        taxonomy: what observations mean.
        files: the table `files`, for file names; without it their ids stand for them.
        rules: how events fold.
        window: the part of an attempt that counts.

    Raises:
        UsageError: there is no such job, or one in each of several clusters.
    """
    mine = materialize(_of_job(attempts, job_id))
    runs = mine.order_by(["submit", "attempt_id"]).to_pyarrow().to_pylist()
    cluster, plain = runs[0]["cluster"], runs[0]["job_id"]
    held = materialize(allocations.semi_join(mine, "attempt_id"))
    nodes: dict[str, list[str]] = {}
    for row in held.select("attempt_id", "node").to_pyarrow().to_pylist():
        nodes.setdefault(row["attempt_id"], []).append(row["node"])
    everywhere = sorted({node for some in nodes.values() for node in some})
    ids = [plain, *{run["job_id_raw"] for run in runs if run["job_id_raw"]}]
    used = window or Window()
    near = materialize(
        events.filter(
            (events.cluster == cluster)
            & _about_ends(events.time, runs, used)
            & (_any_of(events.node, everywhere) | _any_of(events.job_id, ids))
        )
    )
    stated = materialize(
        node_states.filter((node_states.cluster == cluster) & _any_of(node_states.node, everywhere))
    )
    uids = [run["cancelled_by"] for run in runs if run["cancelled_by"]]
    relevant = mine
    if uids:  # who cancels for several users is an operator
        others = attempts.filter(attempts.cancelled_by.isin(uids)).anti_join(mine, "attempt_id")
        relevant = ibis.union(mine, others, distinct=False)
    found = attribute(relevant, held, near, stated, taxonomy, rules=rules, window=used)
    return _told(runs, nodes, near, stated, found, taxonomy, _file_names(files))


def _about_ends(time: Any, runs: list[dict[str, Any]], window: Window) -> BooleanValue:
    """From well before the first end to after the last: an episode may have begun days ago."""
    ends = [run["end"] for run in runs if run["end"]]
    if not ends:
        return ibis.literal(False)
    begins = min(ends) - _LOOK_BACK - timedelta(seconds=window.before_s)
    margin = timedelta(seconds=max(window.after_s, Naming().tolerance_s))
    return time.between(begins, max(ends) + margin)


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


def _any_of(column: Any, values: list[str]) -> BooleanValue:
    return column.isin(values).fill_null(False) if values else ibis.literal(False)


def _file_names(files: Table | None) -> dict[str, str]:
    if files is None:
        return {}
    rows = files.select("file_id", "name").to_pyarrow().to_pylist()
    return {row["file_id"]: row["name"] for row in rows}


def _told(
    runs: list[dict[str, Any]],
    nodes: dict[str, list[str]],
    events: Table,
    states: Table,
    found: Attribution,
    taxonomy: Taxonomy,
    names: dict[str, str],
) -> JobStory:
    kinds = {row["attempt_id"]: row["kind"] for row in found.interruptions.to_pyarrow().to_pylist()}
    failed = {row["attempt_id"]: row for row in found.failures.to_pyarrow().to_pylist()}
    stories = []
    for run in runs:
        entry = taxonomy.states.get(run["state"])
        verdict = _verdict(failed.get(run["attempt_id"]))
        own = sorted(nodes.get(run["attempt_id"], []))
        stories.append(
            AttemptStory(
                attempt_id=run["attempt_id"],
                state=run["state"],
                kind=kinds.get(run["attempt_id"]),
                reason=entry.reason if entry else "An end state that the taxonomy does not know.",
                submit=run["submit"],
                start=run["start"],
                end=run["end"],
                elapsed_s=run["elapsed_s"],
                n_gpus=run["n_gpus"],
                nodes=tuple(own),
                where=_where(run, names),
                verdict=verdict,
                observed=_observed(run, own, events, states, found, taxonomy, names),
            )
        )
    first = runs[0]
    return JobStory(
        first["cluster"],
        first["job_id"],
        first["name"],
        first["user"],
        found.window,
        tuple(stories),
    )


def _verdict(row: dict[str, Any] | None) -> Verdict | None:
    if row is None:
        return None
    return Verdict(
        symptom=row["symptom"],
        domain=row["domain"],
        node=row["node"],
        confidence=Confidence(row["confidence"]),
        causes=tuple((row["causes"] or "").split(",")) if row["causes"] else (),
        evidence=tuple((row["evidence"] or "").split(",")) if row["evidence"] else (),
    )


def _observed(
    run: dict[str, Any],
    nodes: list[str],
    events: Table,
    states: Table,
    found: Attribution,
    taxonomy: Taxonomy,
    names: dict[str, str],
) -> tuple[Observed, ...]:
    """Everything in the window on the attempt's nodes, or said about its job, in order of time."""
    end = run["end"]
    if end is None:
        return ()
    window = found.window
    begins = end - timedelta(seconds=window.before_s)
    begins = max(begins, run["start"]) if run["start"] else begins
    ends = end + timedelta(seconds=window.after_s)
    ids = [i for i in (run["job_id"], run["job_id_raw"]) if i]
    of_job = (events.check == SLURMCTLD) & _any_of(events.job_id, ids)
    seen = events.filter(events.time.between(begins, ends) & (_any_of(events.node, nodes) | of_job))
    told = [
        _of_event(row, end, taxonomy, names)
        for row in seen.to_pyarrow().to_pylist()
        # what the controller says of the job itself is told whatever its severity
        if row["severity"] != "ok" or (row["check"] == SLURMCTLD and row["job_id"] in ids)
    ]
    stated = states.filter(states.start.between(begins, ends) & _any_of(states.node, nodes))
    stated = stated.mutate(event_id=state_id(stated))
    told += [_of_state(row, end, taxonomy, names) for row in stated.to_pyarrow().to_pylist()]
    return tuple(sorted(told, key=lambda one: (one.time, one.event_id)))


def _of_event(
    row: dict[str, Any], end: datetime, taxonomy: Taxonomy, names: dict[str, str]
) -> Observed:
    verdict = taxonomy.classify(row["check"], row["code"], row["severity"])
    role = "context"
    why = "no sign of a cause"
    if verdict is not None:
        why = verdict.why
        if verdict.pointer:
            role = "pointer"
        elif verdict.sympathetic:
            role = "sympathetic"
        elif verdict.is_node_fault:
            role = "cause"
    if row["check"] == SLURMCTLD and row["code"] in {*NODE_FAILED, *WENT_DOWN}:
        role, why = "named", "the scheduler itself says that the node failed"
    return Observed(
        time=row["time"],
        offset_s=(row["time"] - end).total_seconds(),
        node=row["node"],
        check=row["check"],
        code=row["code"],
        entity=row["entity"],
        severity=row["severity"],
        message=row["message"],
        symptom=verdict.symptom if verdict else None,
        role=role,
        why=why,
        event_id=row["event_id"],
        where=_where(row, names),
    )


def _of_state(
    row: dict[str, Any], end: datetime, taxonomy: Taxonomy, names: dict[str, str]
) -> Observed:
    verdict = taxonomy.classify_reason(row["reason"] or "")
    planned = verdict.is_planned
    named = row["state"] == "DOWN" and not planned
    cause = verdict.symptom not in {None, *BLAMELESS} and not planned
    return Observed(
        time=row["start"],
        offset_s=(row["start"] - end).total_seconds(),
        node=row["node"],
        check=NODE_STATE,
        code=row["state"],
        entity=None,
        severity="critical" if named else "unknown",
        message=row["reason"],
        symptom=verdict.symptom,
        role="cause" if cause else "named" if named else "context",
        why=f"reason class {verdict.reason_class}" + (", planned work" if planned else ""),
        event_id=row["event_id"],
        where=_where(row, names),
    )


def _where(row: dict[str, Any], names: dict[str, str]) -> str:
    return f"{names.get(row['file_id'], row['file_id'])}:{row['line']}"
