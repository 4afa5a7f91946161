"""Nodes of logs under other names than the scheduler's: joined, or of several perhaps."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
from ettr.words import counted


@dataclass(frozen=True, slots=True)
class OtherName:
    """One node under two names."""

    in_events: str
    in_jobs: str


def other_names(facts: Facts) -> tuple[OtherName, ...]:
    """Names that could not be joined (`ettr.facts.node_names`), each with the first candidate."""
    first: dict[str, str] = {}
    for row in sorted(facts.rows("unsure_aliases"), key=lambda row: tuple(row.values())):
        first.setdefault(row["node"], row["scheduler_node"])
    return tuple(OtherName(node, of) for node, of in sorted(first.items()))


def joined_names(facts: Facts) -> str | None:
    """A sentence on names taken as those of the scheduler; None where none was."""
    rows = facts.rows("node_aliases")
    if not rows:
        return None
    one = min(rows, key=lambda row: (row["cluster"], row["node"]))
    nodes = len({(row["cluster"], row["scheduler_node"]) for row in rows})
    return (
        f"Logs call {counted(nodes, 'node')} by another name than the scheduler, such as "
        f"{one['node']} for {one['scheduler_node']}: an inventory links the names, or no "
        "other node has that host name. Their rows count for the scheduler's nodes."
    )
