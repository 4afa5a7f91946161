"""The history of one job as text: attempts, what was observed at their ends, verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ettr.analysis.analysis import Analysis
from ettr.analysis.evidence import AttemptEvidence
from ettr.attribution.job_history import AttemptHistory, JobHistory, ObservedEvent
from ettr.errors import UsageError
from ettr.facts.facts import at, to_moment
from ettr.flight import Culprit, FlightVerdict, Refusal, StuckCollective, VerdictKind
from ettr.report.numbers import DASH, duration, moment, number
from ettr.report.section import Section, TextTable, wrapped
from ettr.words import by_number, counted

# -- a whole array: its tasks with how each ended, where a job id is that of an array --------------


@dataclass(frozen=True, slots=True)
class ArrayTask:
    """One task of an array."""

    job_id: str
    attempts: int
    state: str
    start: datetime | None
    end: datetime | None
    n_gpus: int | None
    elapsed_s: float
    failures: int
    symptom: str | None
    node: str | None


@dataclass(frozen=True, slots=True)
class EndState:
    """How many tasks ended so."""

    state: str
    tasks: int


@dataclass(frozen=True, slots=True)
class JobArray:
    """An array: its tasks in order, and how many ended in which state."""

    cluster: str
    array_job_id: str
    name: str | None
    user: str | None
    states: tuple[EndState, ...]
    failures: int
    tasks: tuple[ArrayTask, ...]


def job_array(analysis: Analysis, job_id: str) -> JobArray | None:
    """The array of that id; None where a job has the id itself, or no array has it.

    Args:
        job_id: such as 7, or cluster/7 where several clusters share the id.

    Raises:
        UsageError: several clusters have an array of that id.
    """
    cluster, _, plain = job_id.rpartition("/")
    facts = analysis.facts.under(job_id=plain, job_cluster=cluster or None)
    rows = facts.rows("history_tasks")
    if not rows or not all(row["is_task"] and row["job_id"] != plain for row in rows):
        return None
    clusters = sorted({row["cluster"] for row in rows})
    if len(clusters) > 1:
        forms = ", ".join(f"{name}/{plain}" for name in clusters)
        raise UsageError(f"array {plain} is in {len(clusters)} clusters; say which: {forms}")
    return _array(plain, rows, analysis.facts.rows("failures"))


def _array(
    array_job_id: str, attempts: list[dict[str, Any]], failures: list[dict[str, Any]]
) -> JobArray:
    order = sorted(attempts, key=_submitted)
    ids = set(_ids(order))
    verdicts = {row["attempt_id"]: row for row in failures if row["attempt_id"] in ids}
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in order:
        by_task.setdefault(row["job_id"], []).append(row)
    tasks = tuple(
        _task(job_id, rows, [verdicts[one] for one in _ids(rows) if one in verdicts])
        for job_id, rows in sorted(by_task.items(), key=lambda one: _place(one[0]))
    )
    states = Counter(task.state for task in tasks)
    last = order[-1]
    return JobArray(
        cluster=last["cluster"],
        array_job_id=array_job_id,
        name=last["name"],
        user=last["user"],
        states=tuple(EndState(state, n) for state, n in states.most_common()),
        failures=len(verdicts),
        tasks=tasks,
    )


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["attempt_id"] for row in rows]


def _submitted(row: dict[str, Any]) -> tuple[bool, int, str]:
    return row["submit_us"] is None, row["submit_us"] or 0, row["attempt_id"]


def _place(job_id: str) -> tuple[int, str]:
    """Tasks by number; what is pending is one row, such as 7_[3-9], by its first number."""
    first = job_id.rpartition("_")[2].strip("[]").split("-")[0].split(",")[0]
    return (int(first) if first.isdecimal() else 0, job_id)


def _task(job_id: str, rows: list[dict[str, Any]], verdicts: list[dict[str, Any]]) -> ArrayTask:
    last = rows[-1]
    starts_us = [row["start_us"] for row in rows if row["start_us"] is not None]
    verdict = verdicts[-1] if verdicts else None
    return ArrayTask(
        job_id=job_id,
        attempts=len(rows),
        state=last["state"],
        start=at(min(starts_us)) if starts_us else None,
        end=to_moment(last["end_us"]),
        n_gpus=last["n_gpus"],
        elapsed_s=sum(row["elapsed_s"] or 0.0 for row in rows),
        failures=len(verdicts),
        symptom=None if verdict is None else verdict["symptom"],
        node=None if verdict is None else verdict["node"],
    )


# -- the history of one job as text: attempts, what was observed at their ends, verdicts -----------


_NODES_SHOWN = 16
_INDENT = " " * 13
_SPEAKERS = {
    "mce": "machine checks",
    "aer": "PCIe errors (AER)",
    "network": "network cards",
    "filesystem": "filesystems",
}
_SILENT = "Some of its nodes sent no logs around an end: an error there would not be seen."
_SCHEDULER = ("slurmctld", "node-state")


_ROLES = {
    "cause": "evidence of the verdict",
    "named": "the scheduler says so",
    "pointer": "points at a fault elsewhere",
    "sympathetic": "follows from another fault",
    "context": "for information",
}


def job_history_text(history: JobHistory, evidence: Iterable[AttemptEvidence] = ()) -> str:
    """The job's attempts in order, each with what was observed around its end and the verdict.

    Where no error explains an end, `evidence` says whether one could have been found.
    """
    arrived = {one.attempt_id: one for one in evidence}
    owner = f", {history.user}" if history.user else ""
    head = f"Job {history.job_id} on {history.cluster}: {history.name or 'unnamed'}{owner}"
    window = (
        f"{counted(len(history.attempts), 'attempt')}. Events count from "
        f"{duration(history.window.before_s)} before an attempt's end to "
        f"{duration(history.window.after_s)} after it. Times are UTC."
    )
    if history.earlier_jobs:
        window += f" Another job had this id before: {'; '.join(history.earlier_jobs)}."
    parts = [f"{head}\n{'=' * len(head)}", wrapped(window)]
    parts += [
        _attempt(place, attempt, arrived.get(attempt.attempt_id))
        for place, attempt in enumerate(history.attempts, 1)
    ]
    roles = {one.role for attempt in history.attempts for one in attempt.observed}
    if roles:
        legend = "; ".join(f"[{role}] {words}" for role, words in _ROLES.items() if role in roles)
        parts.append(wrapped(f"Times with a sign are relative to the attempt's end. {legend}."))
    return "\n\n".join(parts)


def job_section(history: JobHistory, evidence: Iterable[AttemptEvidence] = ()) -> Section:
    """Why the job ended in a sentence, and a line an attempt, the newest first."""
    silent = any(one.silent_nodes or one.grade == "uncovered" for one in evidence)
    numbered = [*enumerate(history.attempts, 1)][::-1]
    earlier = "; ".join(history.earlier_jobs)
    headers = ("attempt", "ended, UTC", "ran", "GPUs", "state", "cause", "node", "seen closest")
    return Section(
        "job",
        f"Job {history.job_id} on {history.cluster}",
        "",
        tables=(
            TextTable(
                "Attempts",
                headers,
                tuple(
                    (
                        str(place),
                        DASH if one.end is None else moment(one.end),
                        DASH if one.start is None else duration(one.elapsed_s),
                        number(one.n_gpus),
                        one.state,
                        one.verdict.symptom if one.verdict else _probably(one) or DASH,
                        (one.verdict and one.verdict.node)
                        or one.probable_node
                        or one.black_hole
                        or DASH,
                        _closest(one),
                    )
                    for place, one in numbered
                ),
                frozenset({0, 3}),
            ),
        ),
        answer=_why_it_ended(history),
        careful=" ".join(
            (
                *((f"Another job had this id before: {earlier}.",) if earlier else ()),
                *((_SILENT,) if silent else ()),
            )
        ),
    )


_AS_A_HOLE = (
    "as it did the jobs of several users then, within seconds of their start; no failure is counted"
)


def _why_it_ended(history: JobHistory) -> str:
    probable = [one for one in history.attempts if one.probable_symptom]
    back = [one for one in probable if one.hung_s is None]
    hung = [one for one in probable if one.hung_s is not None]
    says = [_ended_by(history)]
    if back:
        many = by_number("{n} [attempt|attempts] put [itself|themselves] back", len(back))
        after = ", ".join(f"{one.probable_symptom} on {one.probable_node}" for one in back)
        says.append(f"{many}, probably for {after}.")
    if hung:
        faults = ", ".join(map(_fault_of_hung, hung))
        many = by_number("{n} [attempt|attempts] probably hung", len(hung))
        counted_as = by_number("[it is|they are] not counted as [a failure|failures]", len(hung))
        says.append(f"{many}, after {faults}; {counted_as}.")
    if ended := [one.black_hole for one in history.attempts if one.black_hole]:
        many = by_number("{n} [attempt was|attempts were] probably ended by", len(ended))
        says.append(f"{many} {', '.join(dict.fromkeys(ended))}, {_AS_A_HOLE}.")
    return " ".join(says)


def _fault_of_hung(one: AttemptHistory) -> str:
    before = duration(one.hung_s or 0.0)
    return f"{one.probable_symptom} on {one.probable_node} {before} before its end"


def _ended_by(history: JobHistory) -> str:
    failed = [one for one in history.attempts if one.verdict is not None]
    whose = ", ".join(filter(None, (history.name, history.user)))
    what = f"Job {history.job_id}{f' ({whose})' if whose else ''}"
    last = history.attempts[-1] if history.attempts else None
    if not failed:
        ended = "has no attempt" if last is None else f"ended {last.state}"
        if last is not None and last.end is None:
            ended = "has not ended"
        if any(one.hung_s is not None or one.black_hole for one in history.attempts):
            return f"{what} {ended}."
        return f"{what} {ended}: no failure of the infrastructure was found."
    verdict = failed[-1].verdict
    where = f" on {verdict.node}" if verdict and verdict.node else ""
    many = f"{len(failed):,} of {counted(len(history.attempts), 'attempt')}"
    cause = verdict.symptom if verdict else ""
    when = "" if failed[-1].end is None else f" at {moment(failed[-1].end)}"
    return f"{what} lost {many} to the infrastructure; last {cause}{where}{when}."


def _probably(attempt: AttemptHistory) -> str:
    if attempt.black_hole:
        return "probably the node"
    return f"probably {attempt.probable_symptom}" if attempt.probable_symptom else ""


def _closest(attempt: AttemptHistory) -> str:
    """The error nearest to the end, evidence before context; a dash for none."""
    ranked = sorted(
        (one for one in attempt.observed if one.check not in _SCHEDULER),
        key=lambda one: (one.role != "cause", abs(one.offset_s)),
    )
    if not ranked:
        return DASH
    one = ranked[0]
    sign = "after" if one.offset_s >= 0 else "before"
    code = f" {one.code}" if one.code else ""
    return f"{one.check}{code} on {one.node or 'no node'}, {duration(abs(one.offset_s))} {sign}"


def _attempt(place: int, attempt: AttemptHistory, evidence: AttemptEvidence | None) -> str:
    gpus = "unknown GPUs" if attempt.n_gpus is None else counted(attempt.n_gpus, "GPU")
    lines = [
        f"Attempt {place}: {attempt.state} ({attempt.where})",
        f"  submitted  {moment(attempt.submit)}",
        f"  ran        {_ran(attempt)}, {gpus}",
        f"  nodes      {_nodes(attempt.nodes)}",
        f"  ended      {_hung(attempt.reason)}",
    ]
    verdict = attempt.verdict
    if verdict is None:
        lines.append("  verdict    no failure of the infrastructure")
        if attempt.hung_s is not None:
            why = (
                f"it hung: {_fault_of_hung(attempt)}, and the node was then taken out of service. "
                "It does not count as a failure; the high end of the rate includes it"
            )
            lines.append(f"  probably   {_hung(why)}")
        elif attempt.black_hole:
            lines.append(f"  probably   {_hung(f'{attempt.black_hole} ended it, {_AS_A_HOLE}')}")
        elif attempt.probable_symptom:
            why = (
                f"{attempt.probable_symptom} on {attempt.probable_node}: the run put itself back "
                "into the queue by its exit code, and the node was taken out of service"
            )
            lines.append(f"  probably   {_hung(why)}")
    else:
        lines.append(
            f"  verdict    {verdict.symptom} ({verdict.domain}), node {verdict.node or 'unknown'}, "
            f"confidence {verdict.confidence.value}"
        )
        if len(verdict.causes) > 1:
            lines.append(f"  also seen  {', '.join(verdict.causes[1:])}")
    has_cause = any(one.role == "cause" for one in attempt.observed)
    if evidence is not None and attempt.kind is not None and not has_cause:
        lines.append(f"  evidence   {_hung(_arrived(evidence))}")
    lines += [_observed(one) for one in attempt.observed]
    return "\n".join(lines)


def _arrived(evidence: AttemptEvidence) -> str:
    """What “no error found” means for the nodes of an attempt, in a sentence."""
    days = f"between {evidence.first_day} and {evidence.last_day}"
    if not evidence.nodes:
        return "The log does not name the attempt's nodes, so no error could have been found."
    if evidence.grade == "uncovered":
        return (
            "No kernel message or health check of the whole cluster arrived on "
            f"{evidence.last_day}, so no error could have been found."
        )
    if not evidence.silent_nodes:
        if evidence.deaf_nodes:
            return (
                f"Kernel messages or health checks arrived {days}, but no log of the "
                "cluster holds a line of the GPUs' driver (NVRM, amdgpu): “no error "
                "found” says nothing about the GPUs."
            )
        of_nodes = "its node" if evidence.nodes == 1 else f"all its {evidence.nodes:,} nodes"
        return (
            f"Kernel messages or health checks of {of_nodes} arrived {days}; ettr found no error "
            f"in them.{_not_heard(evidence.kinds)}"
        )
    silent = evidence.silent_nodes
    shown = ", ".join(silent[:_NODES_SHOWN])
    left = len(silent) - _NODES_SHOWN
    names = f"{shown} and {left:,} more" if left > 0 else shown
    node, pronoun = ("node", "it") if len(silent) == 1 else ("nodes", "them")
    return (
        f"No kernel message or health check of {node} {names} arrived {days}: “no error found” "
        f"says nothing about {pronoun}."
    )


def _not_heard(kinds: tuple[str, ...]) -> str:
    """Of whom the kernel logs hold no line at any time; empty where there are no such logs."""
    missing = [words for kind, words in _SPEAKERS.items() if kind not in kinds]
    if not kinds or not missing:
        return ""
    return f" The kernel logs of the cluster hold no line of {', '.join(missing)} at any time."


def _ran(attempt: AttemptHistory) -> str:
    if attempt.start is None:
        return "never"
    end = "the end of the logs" if attempt.end is None else moment(attempt.end)
    return f"{moment(attempt.start)} to {end}, {duration(attempt.elapsed_s)}"


def _nodes(names: tuple[str, ...]) -> str:
    if not names:
        return "unknown"
    shown = ", ".join(names[:_NODES_SHOWN])
    left = len(names) - _NODES_SHOWN
    return _hung(f"{shown} and {left:,} more" if left > 0 else shown)


def _hung(text: str) -> str:
    """Text that goes on below where it began."""
    return wrapped(f"{_INDENT}{text}", _INDENT).lstrip()


def _observed(one: ObservedEvent) -> str:
    code = f" {one.code}" if one.code else ""
    sign = "+" if one.offset_s >= 0 else "-"
    text = (
        f"  {sign}{duration(abs(one.offset_s)):<9} {one.node or 'no node'} {one.check}{code} "
        f"[{one.role}] {one.symptom or ''}".rstrip()
    )
    message = " ".join((one.message or "").split())
    return f"{text}\n{_INDENT}{message or one.why}\n{_INDENT}{one.where}"


LISTED_TASKS = 100


def job_array_section(array: JobArray) -> Section:
    """Tasks with their end states; those that the infrastructure failed come first."""
    owner = f", {array.user}" if array.user else ""
    title = f"Array {array.array_job_id} on {array.cluster}: {array.name or 'unnamed'}{owner}"
    states = ", ".join(f"{one.tasks:,} {one.state}" for one in array.states)
    lead = f"{counted(len(array.tasks), 'task')}: {states}. " + by_number(
        "{n} [attempt was|attempts were] failed by the infrastructure.", array.failures
    )
    ranked = sorted(array.tasks, key=lambda task: task.failures == 0)
    shown = ranked[:LISTED_TASKS]
    notes = [
        f"`ettr explain STORE {shown[0].job_id}` shows all that was seen around the ends of a task."
    ]
    left = len(ranked) - len(shown)
    if left:
        notes.append(
            by_number("{n} more [task is|tasks are] listed with --json or --csv only.", left)
        )
    rows = tuple(_row(task) for task in shown)
    headers = (
        *("task", "attempts", "last state", "started, UTC", "ended, UTC", "ran", "GPUs"),
        *("failures", "cause", "node blamed"),
    )
    return Section(
        "job-array",
        title,
        lead,
        tables=(TextTable("Tasks", headers, rows, frozenset({1, 6, 7}), LISTED_TASKS),),
        notes=tuple(notes),
    )


def _row(task: ArrayTask) -> tuple[str, ...]:
    return (
        task.job_id,
        number(task.attempts),
        task.state,
        DASH if task.start is None else moment(task.start),
        DASH if task.end is None else moment(task.end),
        DASH if task.start is None else duration(task.elapsed_s),
        number(task.n_gpus),
        number(task.failures),
        task.symptom or DASH,
        task.node or DASH,
    )


# -- the verdict on flight records as text ---------------------------------------------------------


_SHOWN = 16
_DEEPER = "  "

_HEADLINES = {
    VerdictKind.MISSING: "A collective hangs: some ranks did not start it.",
    VerdictKind.MISMATCH: "Ranks called different collectives in the same place.",
    VerdictKind.NO_RECORD: "Some ranks left no record, and the others wait for them.",
    VerdictKind.CIRCULAR: "Ranks wait for each other in a circle: they call the collectives of "
    "several groups in different orders.",
    VerdictKind.ALL_INSIDE: "Every rank is in the same collective and none has left it: suspect "
    "the network or a device; the records name no rank.",
    VerdictKind.LATE: "No rank is missing. One came late.",
    VerdictKind.NOTHING_HANGS: "Nothing hangs in these records.",
    VerdictKind.UNKNOWN: "These records do not show what holds the job up.",
}


def flight_text(verdict: FlightVerdict, refused: Sequence[Refusal] = ()) -> str:
    """Verdict, culprits, collectives that hang, late ranks, what limits the verdict."""
    parts = [wrapped(f"Verdict: {verdict.verdict}. {_HEADLINES[verdict.verdict]}")]
    if verdict.culprits:
        parts.append("\n".join(_culprit(one) for one in verdict.culprits[:_SHOWN]))
    parts += ["\n".join(_stuck(one)) for one in verdict.stuck[:_SHOWN]]
    if verdict.late:
        parts.append("\n".join(_late(verdict)))
    parts += [wrapped(f"{reason[0].upper()}{reason[1:]}.") for reason in verdict.reasons]
    parts.append("\n".join(_read(verdict, refused)))
    return "\n\n".join(parts)


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as ranges: 0-3, 7."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:_SHOWN]]
    more = [f"... {len(runs) - _SHOWN} more"] if len(runs) > _SHOWN else []
    return ", ".join([*shown, *more])


def _culprit(culprit: Culprit) -> str:
    node = f" on {culprit.node}" if culprit.node else ""
    return f"{_DEEPER}rank {culprit.rank}{node}: {culprit.because}"


def _stuck(stuck: StuckCollective) -> Iterator[str]:
    described = stuck.description not in {"", "undefined"}
    group = f"{stuck.group} ({stuck.description})" if described else stuck.group
    size = f", {counted(stuck.members, 'rank')}" if stuck.members is not None else ""
    yield f"{stuck.name} {stuck.seq} of group {group}{size}"
    sizes = f"; sizes {stuck.sizes}" if stuck.sizes else ""
    yield f"{_DEEPER}started by {ranks_text(stuck.started)}{sizes}"
    if stuck.waiting:
        waited = f" for {duration(stuck.waited_s)}" if stuck.waited_s is not None else ""
        yield f"{_DEEPER}waiting{waited}: {ranks_text(stuck.waiting)}"
    for words, ranks in (
        ("not started by", stuck.missing),
        ("something else called by", stuck.mismatched),
        ("no record of", stuck.without_record),
        ("not known of", stuck.overwritten),
    ):
        if ranks:
            yield f"{_DEEPER}{words} {ranks_text(ranks)}"
    for text, times in stuck.calls:
        yield f"{_DEEPER}{_DEEPER}{counted(times, 'rank')}: {text}"
    elsewhere = {*stuck.culprits} - {*stuck.missing, *stuck.mismatched, *stuck.without_record}
    if elsewhere and stuck.kind is not VerdictKind.LATE:
        yield f"{_DEEPER}these wait elsewhere, in the end for {ranks_text(stuck.culprits)}"


def _late(verdict: FlightVerdict) -> Iterator[str]:
    yield "Last to start, by a second or more:"
    for one in verdict.late[:_SHOWN]:
        node = f" on {one.node}" if one.node else ""
        after = "; later than the timeout" if one.after_timeout else ""
        yield (
            f"{_DEEPER}rank {one.rank}{node}: {counted(one.times, 'time')}, by "
            f"{duration(one.longest_s)} at most (group {one.group}, collective {one.seq}){after}"
        )


def _read(verdict: FlightVerdict, refused: Sequence[Refusal]) -> Iterator[str]:
    of = f" of {counted(verdict.world_size, 'rank')}" if verdict.world_size else ""
    yield f"{counted(verdict.records, 'record')}{of} read"
    if verdict.without_record:
        yield f"{_DEEPER}no record of rank {ranks_text(verdict.without_record)}"
    if verdict.superseded:
        yield f"{_DEEPER}{counted(verdict.superseded, 'older record')} of the same ranks not read"
    if verdict.unreadable_entries:
        yield f"{_DEEPER}{counted(verdict.unreadable_entries, 'entry', 'entries')} not readable"
    for one in refused[:_SHOWN]:
        yield f"{_DEEPER}not read: {one.file}: {one.reason}"
    if len(refused) > _SHOWN:
        yield f"{_DEEPER}not read: {len(refused) - _SHOWN} more files"
