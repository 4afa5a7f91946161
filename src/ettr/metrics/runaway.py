"""Attempts that accounting holds for running, though they are over.

slurmctld that dies, or that loses its connection to slurmdbd, leaves the record of a job without an
end: such a runaway job "runs" in every later dump, and its nodes gain exposure that no job used.
`sacctmgr show runawayjobs` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ibis.expr.types import Table

from ettr.metrics.instants import fetch
from ettr.tables.ibis_time import epoch_s
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

# Slurm ends a job some minutes after its limit, and two records of one hour may well overlap
SLACK_S = SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Runaways:
    """Attempts without an end that are over.

    Attributes:
        attempts: How many there are.
        node_days: What they add to the exposure.
        longest: Job id of the one that adds the most.
    """

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


def runaways(
    attempts: Table, allocations: Table, nodes: Table, by_attempt: Table
) -> Runaways | None:
    """Attempts without an end that outlast their limit, or whose GPUs later attempts held.

    A later attempt shows it where it began on one of their nodes more than a day before the last
    time that they are said to run, and both together hold more GPUs than the node has; not where
    the scheduler suspended them, since a suspended job leaves its GPUs to others. None where there
    is none.

    Args:
        attempts: the table `attempts`.
        allocations: the table `allocations`.
        nodes: the table `nodes`, which says how many GPUs a node has.
        by_attempt: the exposure in which theirs is counted (`Exposure.by_attempt`).
    """
    began = attempts["start"].notnull() & attempts["end"].isnull()
    lasting = attempts.filter(began & (attempts["elapsed_s"] > SLACK_S))
    if not int(lasting.count().to_pyarrow().as_py()):
        return None
    beyond = (lasting["elapsed_s"] > lasting["time_limit_s"] + SLACK_S).fill_null(False)
    was_suspended = (lasting["state"] == "SUSPENDED") | (lasting["suspended_s"] > 0)
    unbroken = lasting.filter(~was_suspended.fill_null(False))
    displaced = _displaced(unbroken, allocations, nodes)
    found = lasting.filter(beyond | lasting["attempt_id"].isin(displaced["attempt_id"]))
    exposed = by_attempt.select("attempt_id", "node_s")
    rows = fetch(found.select("attempt_id", "job_id").inner_join(exposed, "attempt_id"))
    if not len(rows):
        return None
    node_s = [value or 0.0 for value in rows["node_s"].to_pylist()]
    longest = rows["job_id"][int(np.argmax(node_s))].as_py()
    return Runaways(len(rows), sum(node_s) / SECONDS_PER_DAY, longest)


def _displaced(lasting: Table, allocations: Table, nodes: Table) -> Table:
    """Which of some attempts hold GPUs that attempts which began later held as well."""
    theirs = allocations.semi_join(lasting, "attempt_id").filter(allocations["n_gpus"] > 0)
    theirs = theirs.select(
        "cluster",
        "node",
        "attempt_id",
        gpus=theirs["n_gpus"],
        began_s=epoch_s(theirs["start"]),
        last_s=epoch_s(theirs["start"]) + theirs["elapsed_s"] - SLACK_S,
    )
    sizes = nodes.filter(nodes["n_gpus"] > 0).group_by("cluster", "node")
    theirs = theirs.inner_join(sizes.agg(has=nodes["n_gpus"].max()), ["cluster", "node"])
    others = allocations.filter(allocations["n_gpus"] > 0).semi_join(theirs, ["cluster", "node"])
    others = others.select(
        "cluster", "node", their_gpus=others["n_gpus"], their_start_s=epoch_s(others["start"])
    )
    pairs = theirs.inner_join(others, ["cluster", "node"])
    later = (pairs["their_start_s"] > pairs["began_s"]) & (pairs["their_start_s"] < pairs["last_s"])
    too_many = pairs["gpus"] + pairs["their_gpus"] > pairs["has"]
    return pairs.filter(later & too_many).select("attempt_id").distinct()
