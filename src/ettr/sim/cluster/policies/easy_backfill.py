"""EASY backfill: a job may overtake the first one if that starts no later for it."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.sim.cluster.policies.base import JobStart
from ettr.sim.cluster.room import Room, Waiting, place, taken


def easy_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although the first one waits.

    The first job is promised the nodes on which it can start soonest if every running job takes
    its whole time limit. Another job starts if it ends by then, on those nodes where it can, or
    if it keeps off them. For whole nodes that is EASY's count of extra nodes.

    Args:
        waiting: In the order of the queue; the first does not fit.
        room: Of the nodes.
        now_s: The time.

    Source:
        Lifka (1995), Job Scheduling Strategies for Parallel Processing; extra nodes: Mu'alem and
        Feitelson (2001), IEEE Transactions on Parallel and Distributed Systems 12(6).
    """
    promised, at_s = room.reservation(waiting[0].gpus)
    by_free = list(room.by_free)
    per_node = room.gpus_per_node
    too_large = waiting[0].gpus
    starts = []
    for job in waiting[1:]:
        if job.gpus >= too_large:
            continue
        ends_in_time = now_s + job.limit_s <= at_s
        off, on = (0, promised) if ends_in_time else (promised, 0)
        nodes = place(by_free, job.gpus, without=off, rather=on)
        if nodes is None:
            if ends_in_time:
                too_large = job.gpus
            continue
        taken(by_free, nodes, min(job.gpus, per_node))
        starts.append(JobStart(job.place, nodes))
    return starts
