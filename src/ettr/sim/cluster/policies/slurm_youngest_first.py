"""Preemption as Slurm has it where the youngest go first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ettr.sim.cluster.policies.base import Able
from ettr.sim.cluster.policies.slurm_nodes import neighbours
from ettr.sim.cluster.room import Room, Running, Waiting, first_members, remove

REORDERS = 2
"""How often the candidates are put into another order (preempt_reorder_count=1 allows two)."""


def slurm_youngest_first(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Numbers of the jobs that are preempted so that `head` can start; none if it still could not.

    Candidates go in thought, the one that started last first whatever its level, until the job
    fits. The one that made it fit is then the first candidate, followed by those with most of the
    nodes chosen, and the search begins again. Those that went and are on the chosen nodes are
    preempted; some of them may be so in vain.

    Args:
        head: A job that waits and does not fit.
        running: Jobs of lower levels that have run for long enough.
        room: Of the nodes that it may use.

    Source:
        Slurm 22.05 with PreemptType=preempt/qos and preempt_youngest_first,
        src/plugins/select/cons_tres/job_test.c.
    """
    candidates = sorted(running, key=lambda job: (-job.start_s, job.number))
    for n_orders in range(1, len(candidates) + 1):
        found = _first_fit(head, candidates, room)
        if found is None:
            return []
        n_gone, chosen = found
        if n_orders > REORDERS or n_orders == len(candidates):
            return [job.number for job in candidates[:n_gone] if chosen & set(job.nodes)]
        last, before = candidates[n_gone - 1], candidates[: n_gone - 1]
        before.sort(key=lambda job: -len(chosen & set(job.nodes)))
        candidates = [last, *before, *candidates[n_gone:]]
    return []


def _first_fit(
    head: Waiting, candidates: Sequence[Running], room: Room
) -> tuple[int, set[int]] | None:
    """How many of the candidates must go, in their order, and the nodes that the job would get."""
    on_each, n_nodes = min(head.gpus, room.gpus_per_node), max(1, head.gpus // room.gpus_per_node)
    every = 0
    for nodes in room.by_free:
        every |= nodes
    ready_s = room.ready_s.copy()
    usable = np.array(first_members(every, every.bit_count()), dtype=np.int64)
    n_able = int((ready_s[usable, on_each] == 0).sum())
    for n_gone, job in enumerate(candidates, 1):
        its_own = [node for node in job.nodes if every >> node & 1]
        n_able -= int((ready_s[its_own, on_each] == 0).sum())
        remove(ready_s, job)
        n_able += int((ready_s[its_own, on_each] == 0).sum())
        if n_able >= n_nodes:
            able = usable[ready_s[usable, on_each] == 0]
            asked = Able(able.tolist(), ready_s[able], on_each, n_nodes, is_now=True)
            return n_gone, set(neighbours(asked))
    return None
