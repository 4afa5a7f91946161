"""Nodes and large jobs over time: what ran where, what was out of service, what ended a job.

A picture holds so many spans; the rest is counted in `Timeline.left_out`, so that nothing is
missing in silence.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from ettr.analysis.analysis import Analysis
from ettr.attribution.rules import PREEMPTION
from ettr.defaults import TIMELINE_JOBS, TIMELINE_NODES
from ettr.errors import UsageError
from ettr.facts import Facts
from ettr.facts.chosen import microseconds
from ettr.facts.facts import at, to_moment
from ettr.metrics.instants import to_datetime
from ettr.metrics.outages import OUT_STATES, PLANNED_STATES, Outage
from ettr.metrics.sizes import SizeUnit
from ettr.units import MICROSECONDS_PER_SECOND
from ettr.words import counted

NodeKey = tuple[str, str]
MOST_OUTAGES = 20_000
MOST_MARKS = 10_000
_NUMBERS = re.compile(r"(\d+)")


class OutageKind(StrEnum):
    """How a node is out of service; planned where the whole outage is."""

    DOWN = "down"
    DRAIN = "drain"
    PLANNED = "planned"


class JobEnd(StrEnum):
    """What became of an attempt."""

    COMPLETED = "completed"
    RUNNING = "running"
    FAILURE = "failure"
    PREEMPTION = "preemption"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class TimelineNode:
    """One row: a node in its time in service.

    `place` names its rack, else its switch; None where no log knows either.
    """

    cluster: str
    node: str
    place: str | None
    in_service_from: datetime
    in_service_to: datetime


@dataclass(frozen=True, slots=True)
class TimelineJob:
    """One attempt on its nodes.

    Attributes:
        end: When it ended; None where it ran on as the logs end.
        nodes: Those that are rows of the timeline; empty where the logs name none.
    """

    cluster: str
    job_id: str
    attempt_id: str
    name: str | None
    user: str | None
    state: str
    start: datetime
    end: datetime | None
    n_gpus: int | None
    n_nodes: int | None
    nodes: tuple[str, ...]
    ended: JobEnd
    symptom: str | None
    confidence: str | None
    blamed: str | None


@dataclass(frozen=True, slots=True)
class OutageSpan:
    """One state of one node that takes it out of service; `end` is None where it lasts on."""

    cluster: str
    node: str
    kind: OutageKind
    state: str
    reason: str | None
    start: datetime
    end: datetime | None


@dataclass(frozen=True, slots=True)
class FailureMark:
    """A failure of a job that is not drawn, blamed on a node that is."""

    cluster: str
    node: str
    time: datetime
    job_id: str
    symptom: str
    confidence: str
    n_gpus: int | None


@dataclass(frozen=True, slots=True)
class NotDrawn:
    """What the timeline does not show: how many of what, and why, in words."""

    what: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows and spans of a picture.

    Attributes:
        size_unit: What large means: gpus, or nodes where no job names GPUs.
        outages: States of nodes, in the order of nodes and starts; None where no log has any.
    """

    since: datetime
    until: datetime
    clusters: tuple[str, ...]
    size_unit: str
    least_size: int | None
    nodes: tuple[TimelineNode, ...]
    jobs: tuple[TimelineJob, ...]
    outages: tuple[OutageSpan, ...] | None
    marks: tuple[FailureMark, ...]
    left_out: tuple[NotDrawn, ...]
    has_jobs: bool = True


@dataclass(frozen=True, slots=True)
class TimelineLimits:
    """How much is shown."""

    min_gpus: int | None = None
    most_jobs: int = TIMELINE_JOBS
    most_nodes: int = TIMELINE_NODES


def timeline(analysis: Analysis, limits: TimelineLimits | None = None) -> Timeline:
    """The nodes and the large jobs of a selection over its period.

    Raises:
        UsageError: a least number of GPUs, where no job names any.
    """
    limits = limits or TimelineLimits()
    left_out: list[NotDrawn] = []
    facts = _asked(analysis, limits)
    rows = _large_jobs(facts, analysis.size_unit, limits, left_out)
    held = _nodes_of(facts)
    states = _states(analysis, left_out)
    # those of the selection; a job that is drawn may have failed after the period or elsewhere
    failures = {row["attempt_id"]: row for row in analysis.failure_rows}
    shown = _shown_nodes(analysis, limits, rows, held, states, failures, left_out)
    jobs = _jobs(rows, held, shown, left_out)
    outages = None
    if analysis.logs_read.node_states:
        outages = _outages(analysis, states, shown, left_out)
    return Timeline(
        analysis.period.start,
        analysis.period.end,
        analysis.clusters,
        analysis.size_unit.value,
        min((row["size"] for row in rows), default=None),
        _ordered(analysis, shown, failures.values()),
        jobs,
        outages,
        _marks(failures, {one.attempt_id for one in jobs}, shown, left_out),
        tuple(left_out),
        analysis.logs_read.jobs,
    )


def _leave_out(left_out: list[NotDrawn], what: str, count: int, why: str) -> None:
    if count:
        left_out.append(NotDrawn(what, count, why))


# -- jobs -----------------------------------------------------------------------------------------


def _asked(analysis: Analysis, limits: TimelineLimits) -> Facts:
    """The facts of the attempts that are shown."""
    unit = analysis.size_unit
    if limits.min_gpus is not None and unit is not SizeUnit.GPUS:
        raise UsageError(
            f"--min-gpus {limits.min_gpus}: no job names its GPUs; leave it out, or say with "
            "--gpus-per-node how many a node has"
        )
    return analysis.facts.under(
        sized_by_nodes=unit is SizeUnit.NODES,
        least_size=limits.min_gpus or 0,
        most_shown=limits.most_jobs,
    )


def _large_jobs(
    facts: Facts, unit: SizeUnit, limits: TimelineLimits, left_out: list[NotDrawn]
) -> list[dict[str, Any]]:
    """The attempts that are shown, as rows with their `size`, the largest first."""
    shapes = facts.rows("chosen_shapes")
    n_ran = sum(row["n_rows"] for row in shapes)
    # accounting of Slurm gives a start to what was cancelled in the queue
    shapes = [row for row in shapes if row["n_nodes"] is None or row["n_nodes"] > 0]
    n_with_nodes = sum(row["n_rows"] for row in shapes)
    _leave_out(left_out, "attempts", n_ran - n_with_nodes, "ended before they had a node")
    sized = [(row[unit.column], row["n_rows"]) for row in shapes if row[unit.column] is not None]
    n_sized = sum(n for _, n in sized)
    why = f"no log says how many {_words(unit)}"
    _leave_out(left_out, "attempts", n_with_nodes - n_sized, why)
    least = limits.min_gpus or 0
    n_large = sum(n for size, n in sized if size >= least)
    _leave_out(left_out, "attempts", n_sized - n_large, f"fewer than {least} GPUs")
    rows = sorted(facts.rows("large_attempts"), key=lambda row: row["place"])
    if n_large > len(rows):
        last = f"{rows[-1]['size']:,} {_words(unit)}" if rows else "any size"
        why = f"smaller than {last}, or of as many and shorter; the {len(rows):,} largest are shown"
        _leave_out(left_out, "attempts", n_large - len(rows), why)
    return rows


def _words(unit: SizeUnit) -> str:
    return unit.value.replace("gpus", "GPUs")


def _nodes_of(facts: Facts) -> dict[str, list[str]]:
    """Names of the nodes of each attempt, by its id; without those that a selection leaves out."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in facts.rows("held_by_large"):
        found[row["attempt_id"]].append(row["node"])
    return found


def _jobs(
    rows: Sequence[Mapping[str, Any]],
    held: Mapping[str, list[str]],
    shown: frozenset[NodeKey],
    left_out: list[NotDrawn],
) -> tuple[TimelineJob, ...]:
    made = [_job(row, held, shown) for row in rows]
    nameless = sum(one.attempt_id not in held for one in made)
    _leave_out(
        left_out, "large attempts", nameless, "the logs do not name their nodes; in the table alone"
    )
    elsewhere = sum(not one.nodes for one in made) - nameless
    _leave_out(
        left_out, "large attempts", elsewhere, "on nodes that are left out; in the table alone"
    )
    return tuple(sorted(made, key=lambda one: (one.start, one.attempt_id)))


def _job(
    row: Mapping[str, Any], held: Mapping[str, list[str]], shown: frozenset[NodeKey]
) -> TimelineJob:
    attempt_id, cluster = row["attempt_id"], row["cluster"]
    if row["end_us"] is None:
        ended = JobEnd.RUNNING
    elif row["symptom"] is not None:
        ended = JobEnd.FAILURE
    elif row["kind"] == PREEMPTION:
        ended = JobEnd.PREEMPTION
    else:
        ended = JobEnd.COMPLETED if row["state"] == "COMPLETED" else JobEnd.OTHER
    nodes = {name for name in held.get(attempt_id, ()) if (cluster, name) in shown}
    names = (
        *("job_id", "name", "user", "state", "n_gpus", "n_nodes"),
        *("symptom", "confidence", "blamed"),
    )
    return TimelineJob(
        cluster=cluster,
        attempt_id=attempt_id,
        start=at(row["start_us"]),
        end=to_moment(row["end_us"]),
        nodes=tuple(sorted(nodes, key=natural)),
        ended=ended,
        **{name: row[name] for name in names},
    )


# -- nodes ----------------------------------------------------------------------------------------


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts n9 before n10."""
    return tuple(
        (0, int(part), part) if place % 2 else (1, 0, part)
        for place, part in enumerate(_NUMBERS.split(text))
    )


def _shown_nodes(
    analysis: Analysis,
    limits: TimelineLimits,
    rows: Sequence[Mapping[str, Any]],
    held: Mapping[str, list[str]],
    states: Sequence[Mapping[str, Any]],
    failures: Mapping[str, Mapping[str, Any]],
    left_out: list[NotDrawn],
) -> frozenset[NodeKey]:
    """The nodes that are rows: all, or those with most trouble and most work."""
    fleet = analysis.fleet.spans_s
    if len(fleet) <= limits.most_nodes:
        return frozenset(fleet)
    trouble = Counter((row["cluster"], row["node"]) for row in states)
    trouble.update((row["cluster"], row["node"]) for row in failures.values() if row["node"])
    work_s: Counter[NodeKey] = Counter()
    for row in rows:
        for node in held.get(row["attempt_id"], ()):
            work_s[row["cluster"], node] += math.ceil(row["elapsed_s"] or 0.0)
    ranked = sorted(fleet, key=lambda key: (-trouble[key], -work_s[key], natural(key[1]), key[0]))
    shown = frozenset(ranked[: limits.most_nodes])
    why = (
        "fewer outages and failures than the others, and among equals less time of the jobs shown; "
        f"{counted(limits.most_nodes, 'node')} shown"
    )
    _leave_out(left_out, "nodes", len(fleet) - len(shown), why)
    n_states = sum((row["cluster"], row["node"]) not in shown for row in states)
    _leave_out(left_out, "states of nodes", n_states, "on nodes that are left out")
    return shown


def _ordered(
    analysis: Analysis, shown: frozenset[NodeKey], failures: Iterable[Mapping[str, Any]]
) -> tuple[TimelineNode, ...]:
    """The rows: of each cluster the place with the most failures first, in it the node with them.

    Unknown places come last.
    """
    places = _places(analysis)
    failed = Counter((row["cluster"], row["node"]) for row in failures)
    of_place: Counter[tuple[str, str | None]] = Counter()
    for key in shown:
        of_place[key[0], places.get(key)] += failed[key]
    spans_s = analysis.fleet.spans_s
    made = [
        TimelineNode(key[0], key[1], places.get(key), *(to_datetime(t) for t in spans_s[key]))
        for key in shown
    ]
    return tuple(
        sorted(
            made,
            key=lambda one: (
                one.cluster,
                one.place is None,
                -of_place[one.cluster, one.place],
                natural(one.place or ""),
                -failed[one.cluster, one.node],
                natural(one.node),
            ),
        )
    )


def _places(analysis: Analysis) -> dict[NodeKey, str]:
    """Rack of each node, else its switch; with the word where the name lacks it."""
    found = {}
    for row in analysis.facts.rows("nodes"):
        kind = next((kind for kind in ("rack", "switch") if row[kind]), None)
        if kind is not None:
            name = row[kind]
            word = "" if name.lower().startswith(kind) else f"{kind} "
            found[row["cluster"], row["node"]] = f"{word}{name}"
    return found


# -- outages and failures -------------------------------------------------------------------------


def _states(analysis: Analysis, left_out: list[NotDrawn]) -> list[dict[str, Any]]:
    """States of the selected nodes in the period that take them out of service."""
    start_us, end_us = microseconds(analysis.period.start), microseconds(analysis.period.end)
    fleet, found, others = analysis.fleet.spans_s, [], Counter[str]()
    for row in analysis.facts.rows("node_states"):
        is_past = row["end_us"] is not None and row["end_us"] < start_us
        if (row["cluster"], row["node"]) not in fleet or is_past or row["start_us"] > end_us:
            continue
        if row["state"] in OUT_STATES or row["state"] in PLANNED_STATES:
            found.append(row)
        else:
            others[row["state"]] += 1
    _leave_out(
        left_out,
        "states of nodes",
        sum(others.values()),
        f"not counted as outages: {', '.join(sorted(others))}",
    )
    return found


def _outages(
    analysis: Analysis,
    states: Sequence[Mapping[str, Any]],
    shown: frozenset[NodeKey],
    left_out: list[NotDrawn],
) -> tuple[OutageSpan, ...]:
    own = [row for row in states if (row["cluster"], row["node"]) in shown]
    if len(own) > MOST_OUTAGES:
        last_us = microseconds(analysis.period.end)
        own.sort(key=lambda row: row["start_us"] - (row["end_us"] or last_us))
        why = f"shorter than the {MOST_OUTAGES:,} that are shown"
        _leave_out(left_out, "states of nodes", len(own) - MOST_OUTAGES, why)
        own = own[:MOST_OUTAGES]
    by_node: dict[NodeKey, list[Outage]] = defaultdict(list)
    for one in analysis.outages:
        by_node[one.cluster, one.node].append(one)
    spans = [_outage(row, by_node[row["cluster"], row["node"]]) for row in own]
    return tuple(
        sorted(spans, key=lambda one: (one.cluster, natural(one.node), one.start, one.state))
    )


def _outage(row: Mapping[str, Any], outages: Sequence[Outage]) -> OutageSpan:
    """A state with its kind; `outages` are those of its node, in order of time."""
    start_s = row["start_us"] / MICROSECONDS_PER_SECOND
    place = bisect_right(outages, start_s, key=lambda one: one.start_s) - 1
    if place >= 0 and outages[place].is_planned:
        kind = OutageKind.PLANNED
    else:
        kind = OutageKind.DRAIN if row["state"] == "DRAIN" else OutageKind.DOWN
    names = (row["cluster"], row["node"], kind, row["state"], row["reason"])
    return OutageSpan(*names, at(row["start_us"]), to_moment(row["end_us"]))


def _marks(
    failures: Mapping[str, Mapping[str, Any]],
    drawn: set[str],
    shown: frozenset[NodeKey],
    left_out: list[NotDrawn],
) -> tuple[FailureMark, ...]:
    """Failures of jobs that are not drawn, on the nodes that they are blamed on."""
    others = [row for attempt_id, row in failures.items() if attempt_id not in drawn]
    blamed = [row for row in others if (row["cluster"], row["node"]) in shown]
    _leave_out(
        left_out,
        "failures",
        len(others) - len(blamed),
        "of smaller jobs, blamed on no node that is shown; `ettr failures STORE --list` has them",
    )
    blamed.sort(key=lambda row: (-(row["n_gpus"] or 0), row["end"]))
    _leave_out(
        left_out,
        "failures",
        len(blamed) - MOST_MARKS if len(blamed) > MOST_MARKS else 0,
        f"of smaller jobs than those of the {MOST_MARKS:,} shown",
    )
    marks = [
        FailureMark(
            row["cluster"],
            row["node"],
            row["end"],
            row["job_id"],
            row["symptom"],
            row["confidence"],
            row["n_gpus"],
        )
        for row in blamed[:MOST_MARKS]
    ]
    return tuple(sorted(marks, key=lambda one: (one.time, one.cluster, one.node)))
