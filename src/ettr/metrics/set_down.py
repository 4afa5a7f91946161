"""Failures of which all that is known is that somebody set the node DOWN while the job ran.

Slurm ends such a job as NODE_FAIL, whatever was typed: work that was planned, a fault that a
person saw, or nothing. A person is who is not the user under whom this log has Slurm's own
reasons, such as "Not responding"; where Slurm runs as the user of the operators, the words decide:
Slurm's own reasons and those of health checks are known.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ettr.facts import Facts, made
from ettr.taxonomy import Taxonomy

PERSON, SLURM, UNKNOWN = "person", "slurm", "unknown"
_OWN_WORDS = ("the controller's own reason", "the node daemon's own reason")
_PROGRAMS = frozenset({"nhc", "health-check", "action-reboot", "action-replace", "operator-tool"})
MOST_REASONS = 5


@dataclass(frozen=True, slots=True)
class SetDown:
    """Failures of jobs whose node was set DOWN at their end, not by Slurm or a health check.

    Attributes:
        without_fault: Of both those of which no log names a fault.
    """

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
