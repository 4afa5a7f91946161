"""The rules of attribution as data: what is folded, which window counts, how sure a verdict is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ettr.defaults import (
    BURST_GAP_S,
    LOG_TOLERANCE_S,
    STICKY_GAP_S,
    WINDOW_AFTER_S,
    WINDOW_BEFORE_S,
)
from ettr.errors import UsageError
from ettr.facts import Facts, made
from ettr.taxonomy import Taxonomy, Verdict


class Confidence(StrEnum):
    """How sure the attribution of a failure is; docs/explanation/attribution.md has the rules."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FoldingRules:
    """How observations fold into episodes: the longest silence that one episode may hold.

    Args:
        burst_gap_s: silence in seconds after which an observation begins a new episode.
        sticky_gap_s: the same for sticky codes, which repeat until the GPU or node is reset.
        count_lone_sympathetic: whether a sympathetic code (XID 45) that was seen alone is a fault
            of the node. It also follows when a user's process is killed, so by default it is not.
    """

    burst_gap_s: float = BURST_GAP_S
    sticky_gap_s: float = STICKY_GAP_S
    count_lone_sympathetic: bool = field(default=False, metadata={"json": "count_solo"})

    def __post_init__(self) -> None:
        if not 0 < self.burst_gap_s <= self.sticky_gap_s:
            raise UsageError(
                f"gaps of {self.burst_gap_s} s (burst) and {self.sticky_gap_s} s (sticky): the "
                "burst gap must be over 0 and no longer than the sticky gap"
            )


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an attempt in which an observation can explain its end; both ends count.

    It begins `before_s` before the end, though never before the attempt started, and ends
    `after_s` after the end.

    Source:
        Kokolis et al. (2025): the last 10 minutes of the job or 5 minutes after its end.
    """

    before_s: float = WINDOW_BEFORE_S
    after_s: float = WINDOW_AFTER_S

    def __post_init__(self) -> None:
        if self.before_s < 0 or self.after_s < 0 or not self.length_s:
            raise UsageError(
                f"a window from {self.before_s} s before to {self.after_s} s after an end: give "
                "two lengths of 0 or more, at least one of them over 0"
            )

    @property
    def length_s(self) -> float:
        """Length of the whole window in seconds."""
        return self.before_s + self.after_s


@dataclass(frozen=True, slots=True)
class LogMatching:
    """When a line of slurmctld.log belongs to an attempt: how far from its end, in seconds."""

    tolerance_s: float = LOG_TOLERANCE_S


BLAMELESS = frozenset({"oom", "user-program", "operations"})
SLURMCTLD = "slurmctld"
NODE_STATE = "node-state"
WENT_DOWN = frozenset({"NODE_DOWN", "NODE_REBOOTED"})
HARDWARE_CANDIDATE = "hardware-candidate"
PREEMPTION = "preemption"
USER_FAILURE = "user-failure"
OPERATOR = "operator"
NO_INTERRUPTION = "none"
_TIME_LIMIT = "time-limit"
NODE_FAIL = "NODE_FAIL"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
NO_CODE = NO_REASON = ""
LAST_RANK = 999
MOST_KEPT = 2_000_000
"""Events of kinds that may be judged which are kept as a table: some hundreds of megabytes."""
_SAID = (("symptom", "VARCHAR"), ("domain", "VARCHAR"), ("rank", "BIGINT"), ("fault", "BOOLEAN"))


def is_fault(verdict: Verdict | None, rules: FoldingRules) -> bool:
    """Whether an observation with this verdict can explain a failure by itself.

    A pointer (XID 154) never can: it only announces what to do about another code.
    """
    if verdict is None or verdict.pointer:
        return False
    return rules.count_lone_sympathetic if verdict.sympathetic else verdict.is_node_fault


@made(
    "verdicts",
    (
        *(("check", "VARCHAR"), ("code_key", "VARCHAR"), ("severity", "VARCHAR"), *_SAID),
        *((name, "BOOLEAN") for name in ("down", "sticky", "sympathetic")),
    ),
    reads=("event_kinds",),
    takes=("taxonomy", "folding"),
)
def _verdicts(facts: Facts) -> list[tuple[object, ...]]:
    """Faults among the distinct observations, and rows of another end, whose `fault` is false.

    `down` ones place a failure, and others show that a sympathetic code was not alone.
    """
    taxonomy: Taxonomy = facts.given("taxonomy")
    rules: FoldingRules = facts.given("folding")
    kinds = [(row["check"], row["code"], row["severity"]) for row in facts.rows("event_kinds")]
    judged = [(kind, taxonomy.classify(*kind)) for kind in kinds]
    solo = {kind[0] for kind, v in judged if v and v.sympathetic and is_fault(v, rules)}
    rows: list[tuple[object, ...]] = []
    for (check, code, severity), v in judged:
        down = check == SLURMCTLD and code in WENT_DOWN
        fault = is_fault(v, rules)
        beside = v is not None and not v.pointer and check in solo
        if fault or down or beside:
            symptom = v.symptom if v else None
            given = (symptom, taxonomy.domain(symptom), v.rank if v else LAST_RANK, fault)
            flags = (v is not None and v.sticky, v is not None and v.sympathetic)
            rows.append((check, code or NO_CODE, severity, *given, down, *flags))
    return rows


@made(
    "reasons",
    (("reason_key", "VARCHAR"), ("reason_class", "VARCHAR"), *_SAID, ("planned", "BOOLEAN")),
    reads=("node_states",),
    takes=("taxonomy",),
)
def _reasons(facts: Facts) -> list[tuple[object, ...]]:
    """Distinct reasons of node states.

    `symptom` is null where the reason names none: the node was out and nobody says why. One that
    reads as planned work names no fault.
    """
    taxonomy: Taxonomy = facts.given("taxonomy")
    rows: list[tuple[object, ...]] = []
    for reason in sorted(
        {name or NO_REASON for (name,) in facts.distinct("node_states", "reason")}
    ):
        verdict = taxonomy.classify_reason(reason)
        named = None if verdict.is_planned else verdict.symptom
        symptom = taxonomy.symptoms.get(named or "")
        slug, rank = (symptom.slug, symptom.rank) if symptom else (None, LAST_RANK)
        fault = slug is not None and slug not in BLAMELESS
        given = (slug, taxonomy.domain(named), rank, fault)
        rows.append((reason, verdict.reason_class, *given, verdict.is_planned))
    return rows


@made(
    "end_states",
    (
        *(("state", "VARCHAR"), ("kind", "VARCHAR"), ("by_owner", "VARCHAR")),
        *(("sure", "BOOLEAN"), ("open_or_done", "BOOLEAN")),
        *(("symptom", "VARCHAR"), ("domain", "VARCHAR")),
    ),
    takes=("taxonomy",),
)
def _end_states(facts: Facts) -> list[tuple[object, ...]]:
    """The truth table of end states: the kind of each, also where its owner ended it.

    `sure`: the state itself says that a node failed. Who used up the time that it asked for was
    not interrupted.
    """
    taxonomy: Taxonomy = facts.given("taxonomy")

    def kind(of_state: str) -> str:
        return NO_INTERRUPTION if of_state == _TIME_LIMIT else of_state

    return [
        (
            state,
            kind(entry.kind),
            kind(entry.kind_by_owner),
            entry.kind == HARDWARE_CANDIDATE and not entry.needs_evidence,
            not entry.terminal or state == "COMPLETED",
            entry.symptom,
            taxonomy.domain(entry.symptom) if entry.symptom else None,
        )
        for state, entry in taxonomy.states.items()
    ]


@made(
    "observations", (), reads=("observations_all", "observations_kept", "verdicts", "event_kinds")
)
def _observations(facts: Facts) -> str:
    """One row is an observation, as in `observations_all`.

    Kept where they are few: most events of a large site are checks that passed. Their ids are what
    costs most to read, and of those the few others are needed several times.
    """
    judged = {(row["check"], row["severity"]) for row in facts.rows("verdicts")}
    kinds = facts.rows("event_kinds")
    n = sum(row["events"] for row in kinds if (row["check"], row["severity"]) in judged)
    return facts.table("observations_kept" if n <= MOST_KEPT else "observations_all")
