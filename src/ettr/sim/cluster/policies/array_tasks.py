"""Arrays: at most N tasks of an array submitted with `%N` run at once."""

from __future__ import annotations

from ettr.sim.cluster.policies.limits import Limit

REASON = "JobArrayTaskLimit"
"""What Slurm shows as the reason of a task that is held by its array's own limit."""


def array_limits(array: str, most_running: int) -> tuple[Limit, ...]:
    """The limits that an array sets to each of its tasks.

    Args:
        array: Its id.
        most_running: N of `%N`; 0 for none.

    Source:
        Slurm's manual, job_array.
    """
    if most_running == 0:
        return ()
    return (Limit(f"array:{array}", most_running, 1, REASON),)
