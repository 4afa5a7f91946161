"""What the taxonomy says of each distinct observation, reason and end state, as facts.

Fifty million events hold a few hundred distinct (check, code, severity): those are classified in
Python, once each, and everything that is no fault falls out in one join before any folding.
"""

from __future__ import annotations

from ettr.attribution.rules import FoldingRules
from ettr.facts import Facts, made
from ettr.taxonomy import Taxonomy, Verdict

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
