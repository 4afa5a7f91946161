"""Outages, each node's overlapping states merged; failures of which no more is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from ettr.facts import Facts, made
from ettr.metrics.instants import Period, to_seconds
from ettr.taxonomy import ReasonVerdict, Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

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
