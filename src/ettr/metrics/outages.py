"""Outages, each node's overlapping states merged; recovery times; incidents that people noted."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np

from ettr.defaults import CONFIDENCE
from ettr.facts import Facts, made
from ettr.facts.stored import nodes_of_types
from ettr.metrics.instants import Floats, Period, moment, to_seconds
from ettr.metrics.stitching import with_run_jobs
from ettr.metrics.survival import Durations, durations
from ettr.selection import Selection
from ettr.taxonomy import ReasonVerdict, Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

OUT_STATES = (
    *("DOWN", "ERROR", "DRAIN", "FAIL", "NOT_RESPONDING", "REBOOT_ISSUED"),
    # as readers write it, and as a table of a user's own may
    *("INVALID_REG", "INVAL"),
)
PLANNED_STATES = ("MAINT",)
NOT_RESPONDING = "NOT_RESPONDING"
_VAGUE_CLASSES = ("none", "other")
_SILENT_CLASS, _PERSONS_CLASS = "not-responding", "manual"


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage of one node. `is_open`: not over when the log was taken.

    The class of its reason is the first that the catalogue knows among those given for its parts;
    that a node does not respond, a sign of whatever happened, yields to a person's later words.
    `silent_from_s`: when the node went down because it no longer answered (`DOWN*`).
    """

    cluster: str
    node: str
    start_s: float
    end_s: float
    is_open: bool
    is_planned: bool
    reason_class: str
    reason: str | None
    silent_from_s: tuple[float, ...] = ()

    @property
    def hours(self) -> float:
        """How long it lasted, or has lasted so far."""
        return (self.end_s - self.start_s) / SECONDS_PER_HOUR


@dataclass(slots=True)
class _Part:
    start_s: float
    end_s: float
    is_open: bool
    state: str
    reason: str | None
    is_silent: bool


@made("states_of_outages", (("state", "VARCHAR"),))
def _states(_: Facts) -> list[tuple[object, ...]]:
    return [(state,) for state in (*OUT_STATES, *PLANNED_STATES)]


def outages(facts: Facts, period: Period, taxonomy: Taxonomy) -> tuple[Outage, ...]:
    """Outages of all nodes in order of node and start.

    States that overlap or touch are one outage. It is planned if all its parts are: maintenance,
    or a reason that the catalogue calls planned.
    """
    rows = facts.columns("out_states")
    last_s = to_seconds(period.end)
    by_node: dict[tuple[str, str], list[_Part]] = {}
    for cluster, node, state, reason, flags, start_s, end_s in zip(
        *(rows[name].tolist() for name in ("cluster", "node", "state", "reason", "flags")),
        *((rows[name] / MICROSECONDS_PER_SECOND).tolist() for name in ("start_us", "end_us")),
        strict=True,
    ):
        is_open = math.isnan(end_s)
        until_s = max(last_s if is_open else end_s, start_s)
        is_silent = state == "DOWN" and NOT_RESPONDING in (flags or "")
        part = _Part(start_s, until_s, is_open, state, reason, is_silent)
        by_node.setdefault((cluster, node), []).append(part)
    verdict_of = cache(taxonomy.classify_reason)
    found: list[Outage] = []
    for (cluster, node), parts in sorted(by_node.items()):
        parts.sort(key=lambda part: (part.start_s, part.end_s, part.state))
        group = [parts[0]]
        reach_s = parts[0].end_s
        for part in parts[1:]:
            if part.start_s > reach_s:
                found.append(_outage(cluster, node, group, verdict_of))
                group = []
            group.append(part)
            reach_s = max(reach_s, part.end_s) if len(group) > 1 else part.end_s
        found.append(_outage(cluster, node, group, verdict_of))
    return tuple(found)


def _outage(
    cluster: str, node: str, parts: list[_Part], verdict_of: Callable[[str], ReasonVerdict]
) -> Outage:
    given, all_planned = None, True
    classes: list[str] = []
    for part in parts:
        verdict = verdict_of(part.reason or "")
        given = given or part.reason
        if verdict.reason_class not in _VAGUE_CLASSES:
            classes.append(verdict.reason_class)
        if not verdict.is_planned and part.state not in PLANNED_STATES:
            all_planned = False
    known_class = next(iter(classes), None)
    if known_class == _SILENT_CLASS and _PERSONS_CLASS in classes:
        known_class = _PERSONS_CLASS
    return Outage(
        cluster=cluster,
        node=node,
        start_s=parts[0].start_s,
        end_s=max(part.end_s for part in parts),
        is_open=any(part.is_open for part in parts),
        is_planned=all_planned,
        reason_class=known_class or ("other" if given else "none"),
        reason=given or None,
        silent_from_s=tuple(part.start_s for part in parts if part.is_silent),
    )


def unplanned_where_jobs_ended(
    found: Iterable[Outage], ends: Iterable[tuple[str, str, float]], tolerance_s: float
) -> tuple[Outage, ...]:
    """The same outages; one that took a job with it is not planned, whatever was written later."""
    ended: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cluster, node, end_s in ends:
        ended[cluster, node].append(end_s)
    return tuple(
        replace(one, is_planned=False)
        if one.is_planned
        and any(
            abs(end_s - silent_s) <= tolerance_s
            for end_s in ended.get((one.cluster, one.node), ())
            for silent_s in one.silent_from_s
        )
        else one
        for one in found
    )


# -- Failures of which all that is known is that somebody set the node DOWN while the job ran -----
#
# Slurm ends such a job as NODE_FAIL, whatever was typed: work that was planned, a fault that a
# person saw, or nothing. A person is who is not the user under whom this log has Slurm's own
# reasons, such as "Not responding"; where Slurm runs as the user of the operators, the words
# decide: Slurm's own reasons and those of health checks are known.

PERSON, SLURM, UNKNOWN = "person", "slurm", "unknown"
_OWN_WORDS = ("the controller's own reason", "the node daemon's own reason")
_PROGRAMS = frozenset({"nhc", "health-check", "action-reboot", "action-replace", "operator-tool"})
MOST_REASONS = 5


@dataclass(frozen=True, slots=True)
class SetDown:
    """Failures of jobs whose node was set DOWN at their end, not by Slurm or a health check."""

    by_person: int
    by_unknown: int
    without_fault: int
    reasons: tuple[str, ...]


@made(
    "set_by",
    (
        ("cluster", "VARCHAR"),
        ("user_key", "VARCHAR"),
        ("reason_key", "VARCHAR"),
        ("setter", "VARCHAR"),
    ),
    reads=("setters_of_states",),
    takes=("taxonomy",),
)
def _set_by(facts: Facts) -> list[tuple[object, ...]]:
    """Who set nodes DOWN, by the user and the reason that a log has."""
    taxonomy: Taxonomy = facts.given("taxonomy")
    rows = facts.rows("setters_of_states")
    verdicts = {row["reason_key"]: taxonomy.classify_reason(row["reason_key"]) for row in rows}
    own: dict[str, Counter[str]] = {}
    for row in rows:
        if row["user"] and verdicts[row["reason_key"]].source.startswith(_OWN_WORDS):
            own.setdefault(row["cluster"], Counter())[row["user"]] += row["n"]
    slurm_of = {cluster: users.most_common(1)[0][0] for cluster, users in own.items()}
    found: list[tuple[object, ...]] = []
    for row in rows:
        cluster, user, reason = row["cluster"], row["user"], row["reason_key"]
        verdict = verdicts[reason]
        if user and user != slurm_of.get(cluster, user):
            setter = SLURM if verdict.reason_class in _PROGRAMS else PERSON
        elif verdict.source.startswith(_OWN_WORDS) or verdict.reason_class in _PROGRAMS:
            setter = SLURM
        else:
            setter = UNKNOWN if verdict.reason_class == "none" else PERSON
        found.append((cluster, user or "", reason, setter))
    return found


def set_down(facts: Facts) -> SetDown | None:
    """The selected failures whose node was set DOWN by hand; None without any."""
    chosen = set(facts.columns("failures")["attempt_id"].tolist())
    rows = [row for row in facts.rows("down_by_hand") if row["attempt_id"] in chosen]
    if not rows:
        return None
    setters = Counter(row["setter"] for row in rows)
    without = [row for row in rows if not row["names_fault"]]
    typed = Counter(row["reason_key"] for row in without if row["reason_key"])
    ranked = sorted(typed, key=lambda reason: (-typed[reason], reason))
    return SetDown(setters[PERSON], setters[UNKNOWN], len(without), tuple(ranked[:MOST_REASONS]))


def ended_by_person(facts: Facts) -> frozenset[str]:
    """Failed attempts whose node a person set DOWN, of which no log names a fault."""
    return frozenset(
        row["attempt_id"]
        for row in facts.rows("down_by_hand")
        if row["setter"] == PERSON and not row["names_fault"]
    )


# -- how long it takes from an error to a node that works again, by symptom ------------------------
# Five spans of time, each of a failure that is blamed on one node:
#
# - detect: from the first error in its evidence to the end of the attempt;
# - drain: from the end of the attempt to the beginning of the node's outage;
# - requeue: from the end of the attempt to the start of the same job's next attempt;
# - repair: from the beginning of that outage to its end;
# - return: from the end of the attempt to the start of the next attempt on that node.
#
# What has not happened when the logs end counts as lasting at least until then (Kaplan-Meier).


SPANS = ("detect", "drain", "requeue", "repair", "return")
DRAIN_WITHIN_S = float(SECONDS_PER_DAY)
"""An outage that begins later after a failure is not taken for its consequence."""


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """One span of time over the failures of one symptom.

    Attributes:
        times: In hours; `still_open` are those that had not ended.
    """

    span: str
    times: Durations
    not_measured: int


@dataclass(frozen=True, slots=True)
class SymptomTimes:
    """The five spans over the failures of one symptom; `symptom` None for all together."""

    symptom: str | None
    failures: int
    spans: tuple[SpanTimes, ...]


_Lasted = tuple[float, bool]
"""For how many seconds something lasted, and whether it was over then."""


def recovery_times(
    facts: Facts, outages: Sequence[Outage] | None, period: Period, confidence: float = CONFIDENCE
) -> tuple[SymptomTimes, ...]:
    """Times by symptom, all together first, then the most frequent symptom.

    Args:
        facts: of a store; of the failures of its selection, those that no node is blamed for are
            left out. What followed them is read beyond the ends of a period.
        outages: of all nodes in order of node and start; None where no log has states of nodes.
    """
    blamed = [row for row in facts.rows("failures") if row["node"] is not None]
    if not blamed:
        return ()
    last_s = to_seconds(period.end)
    first_error_s = _first_errors_s(facts, blamed)
    out_of: dict[tuple[str, str], list[Outage]] = defaultdict(list)
    for one in outages or ():
        out_of[one.cluster, one.node].append(one)
    starts_s = _starts_of_jobs(facts)
    next_us = {row["attempt_id"]: row["next_us"] for row in facts.rows("next_on_nodes")}
    everything: list[dict[str, _Lasted]] = []
    by_symptom: dict[str, list[dict[str, _Lasted]]] = defaultdict(list)
    for row in blamed:
        attempt, end_s = row["attempt_id"], row["end_us"] / MICROSECONDS_PER_SECOND
        spans = {}
        # errors recorded only after the end say nothing of how long they went unnoticed
        if first_error_s.get(attempt, math.inf) <= end_s:
            spans["detect"] = end_s - first_error_s[attempt], True
        if outages is not None:
            spans |= _drained_and_repaired(out_of[row["cluster"], row["node"]], end_s, last_s)
        own_s = starts_s.get((row["cluster"], row["job_id"]), np.array([]))
        # an attempt of no length is not its own next one
        later_s = own_s[own_s > end_s if row["start_us"] == row["end_us"] else own_s >= end_s]
        if len(later_s):  # a job that never came back was not requeued
            spans["requeue"] = _until(float(later_s[0]), end_s, last_s)
        next_s = next_us.get(attempt, math.inf) / MICROSECONDS_PER_SECOND
        spans["return"] = _until(next_s, end_s, last_s)
        everything.append(spans)
        by_symptom[row["symptom"]].append(spans)
    ranked = sorted(by_symptom.items(), key=lambda item: (-len(item[1]), item[0]))
    return (
        _times(None, everything, confidence),
        *(_times(symptom, members, confidence) for symptom, members in ranked),
    )


def _until(moment_s: float, end_s: float, last_s: float) -> _Lasted:
    """From the end of an attempt until a moment; to the end of the logs where it is infinite."""
    if math.isfinite(moment_s):
        return moment_s - end_s, True
    return max(last_s - end_s, 0.0), False


def _first_errors_s(facts: Facts, blamed: list[dict[str, Any]]) -> dict[str, float]:
    """By failed attempt, when the first error in its evidence was recorded."""
    episodes: dict[str, list[str]] = defaultdict(list)
    for cause in facts.rows("causes"):
        episodes[cause["attempt_id"]].append(cause["episode_id"])
    if not any(row["attempt_id"] in episodes for row in blamed):
        return {}
    times_s = {
        row["event_id"]: row["time_us"] / MICROSECONDS_PER_SECOND
        for row in facts.rows("evidence_events")
    }
    found = {}
    for row in blamed:
        evidence = episodes[row["attempt_id"]]
        named = [row["named_event"]] if evidence else []
        known = [times_s[one] for one in (*evidence, *named) if one in times_s]
        if known:
            found[row["attempt_id"]] = min(known)
    return found


def _drained_and_repaired(
    outages: Iterable[Outage], end_s: float, last_s: float
) -> dict[str, _Lasted]:
    """The spans of the first unplanned outage of the node after a failure."""
    until_s = min(end_s + DRAIN_WITHIN_S, last_s)
    for one in outages:
        if one.end_s >= end_s and one.start_s <= until_s and not one.is_planned:
            return {
                "drain": (max(one.start_s - end_s, 0.0), True),
                "repair": (one.end_s - one.start_s, not one.is_open),
            }
    return {"drain": (max(until_s - end_s, 0.0), False)}


def _starts_of_jobs(facts: Facts) -> dict[tuple[str, str], Floats]:
    """When each attempt of a job that failed started; infinite where it has not."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in with_run_jobs(facts, {}).rows("failed_jobs_attempts"):
        start_us = row["start_us"]
        # what was cancelled in the queue never started and waits no longer
        if start_us is not None or row["end_us"] is None:
            start_s = np.inf if start_us is None else start_us / MICROSECONDS_PER_SECOND
            groups[row["cluster"], row["job_id"]].append(start_s)
    return {name: np.sort(np.array(found)) for name, found in groups.items()}


def _times(
    symptom: str | None, members: list[dict[str, _Lasted]], confidence: float
) -> SymptomTimes:
    return SymptomTimes(
        symptom, len(members), tuple(_span(span, members, confidence) for span in SPANS)
    )


def _span(span: str, members: list[dict[str, _Lasted]], confidence: float) -> SpanTimes:
    lasted = [one[span] for one in members if span in one]
    hours = np.array([seconds / SECONDS_PER_HOUR for seconds, _ in lasted])
    over = np.array([is_over for _, is_over in lasted], dtype=bool)
    return SpanTimes(span, durations(hours, over, confidence), len(members) - len(lasted))


# -- what incident ledgers state: hours lost as people wrote them, never mixed with measured ones


@dataclass(frozen=True, slots=True)
class StatedLoss:
    """Incidents and the hours that those with a number state; `without_hours` state none."""

    incidents: int
    without_hours: int
    lost_h: float | None
    lost_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """The incidents of one kind, in the ledger's own words."""

    kind: str
    stated: StatedLoss


@dataclass(frozen=True, slots=True)
class IncidentLedger:
    """All ledgers of a store together."""

    first: datetime
    last: datetime
    total: StatedLoss
    by_kind: tuple[IncidentKind, ...]


def incident_ledger(rows: Sequence[Mapping[str, Any]]) -> IncidentLedger | None:
    """Incidents and the hours that they state; None where there is none."""
    if not rows:
        return None
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    times = [moment(row["time_us"]) for row in rows]
    return IncidentLedger(
        first=min(times),
        last=max(times),
        total=_stated(rows),
        by_kind=tuple(
            IncidentKind(kind, _stated(mine))
            for kind, mine in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
    )


def selected_incidents(facts: Facts) -> list[Mapping[str, Any]]:
    """Rows of the table `incidents` of the selected period, clusters and nodes."""
    chosen: Selection = facts.given("selection")
    typed = nodes_of_types(facts, chosen.gpu_type) if chosen.gpu_type else set()
    return [
        row
        for row in facts.rows("incidents")
        if chosen.holds(row["time_us"] / MICROSECONDS_PER_SECOND)
        and (not chosen.cluster or row["cluster"] in chosen.cluster)
        and (not chosen.node or row["node"] in chosen.node)
        and (not chosen.gpu_type or (row["cluster"], row["node"]) in typed)
    ]


def _stated(rows: Sequence[Mapping[str, Any]]) -> StatedLoss:
    return StatedLoss(
        incidents=len(rows),
        without_hours=sum(row["lost_h"] is None and row["lost_gpu_hours"] is None for row in rows),
        lost_h=_sum(row["lost_h"] for row in rows),
        lost_gpu_hours=_sum(row["lost_gpu_hours"] for row in rows),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
