"""States of nodes that no log ends, though they are over.

A dump that is older than others, an inventory of one day, or an event that slurmdbd never closed
leaves a node DOWN or drained for good: one outage to the end of the logs, into which every later
one falls. That it is over shows where a job began on the node long after, or where the same log
goes on with another state of it (`known_ends.sql`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ettr.facts import Facts
from ettr.facts.facts import at
from ettr.words import counted


@dataclass(frozen=True, slots=True)
class UnendedStates:
    """States without an end that are over.

    Attributes:
        by_jobs: Those of them that a later job on the node ends; the others a later state.
        since: From when, in UTC.
    """

    node_states: int
    by_jobs: int
    node: str
    state: str
    since: datetime

    @property
    def sentence(self) -> str:
        """What is wrong, what counts instead, and what to do."""
        several = self.node_states != 1
        return (
            f"{counted(self.node_states, 'state')} of nodes without an end (such as {self.node}, "
            f"{self.state} since {self.since:%Y-%m-%d %H:%M}) {'are' if several else 'is'} over, "
            "since jobs began on the node more than a day later or the log goes on with another "
            f"state of it. {'They count' if several else 'It counts'} until the first of these: "
            "the node may have been back before. Dump the states of all of the time again "
            "(`sacctmgr show event`) to know."
        )


def unended_states(facts: Facts) -> UnendedStates | None:
    """States without an end that are over; None: there is none."""
    rows = facts.rows("known_ends")
    if not rows:
        return None
    first = min(rows, key=lambda row: (row["start_us"], row["cluster"], row["node"], row["state"]))
    return UnendedStates(
        node_states=len(rows),
        by_jobs=sum(row["by_job_us"] == row["end_us"] for row in rows),
        node=first["node"],
        state=first["state"],
        since=at(first["start_us"]),
    )
