"""Interruptions and failures of a selection, each whole in the period in which it ended.

Of chosen nodes it is the failures that blame one of them, or that blame no single node while the
job held no other; of interruptions, which blame none, those of jobs that ran there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ettr.facts import Facts, made
from ettr.facts.facts import to_moment
from ettr.selection import Selection
from ettr.tables import FAILURES


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
