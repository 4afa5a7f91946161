"""Attempts that accounting holds for running, though they are over.

slurmctld that dies, or that loses its connection to slurmdbd, leaves the record of a job without
an end: such a runaway job "runs" in every later dump, and its nodes gain exposure that no job
used. `sacctmgr show runawayjobs` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted


@dataclass(frozen=True, slots=True)
class Runaways:
    """Attempts without an end that are over."""

    attempts: int
    node_days: float
    longest: str

    @property
    def sentence(self) -> str:
        """What is wrong, by how much, and what to do."""
        are = "is" if self.attempts == 1 else "are"
        return (
            f"{counted(self.attempts, 'attempt')} (such as job {self.longest}) {are} still running "
            "by the accounting, more than a day beyond the time limit or on GPUs that later jobs "
            f"held: {self.node_days:,.1f} node-days of runtime are theirs, and make rates "
            "too low. `sacctmgr show runawayjobs` lists and ends such jobs; then "
            "dump the accounting and ingest it again."
        )


def runaways(facts: Facts) -> Runaways | None:
    """Attempts without an end that outlast their limit, or whose GPUs later attempts held.

    None where there is none. Slurm ends a job some minutes after its limit, and two records of one
    hour may well overlap: a day too many shows it.
    """
    rows = facts.rows("runaways")
    if not rows:
        return None
    longest = max(rows, key=lambda row: row["node_s"] or 0.0)
    node_s = sum(row["node_s"] or 0.0 for row in rows)
    return Runaways(len(rows), node_s / SECONDS_PER_DAY, longest["job_id"])
