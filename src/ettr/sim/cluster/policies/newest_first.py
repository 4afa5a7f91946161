"""Preemption of the lowest level first, and of those the job that started last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ettr.sim.cluster.room import Room, Running, Waiting


def newest_first(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Numbers of the jobs that are preempted so that `head` can start; none if it still could not.

    A job of up to one node, a whole one too, gets the GPUs of one other job at most: it waits where
    several smaller ones would have to go. For a job of several nodes others are preempted in order
    until enough nodes are empty; those that turn out not to be needed stay.

    Args:
        head: The first job of the queue, which does not fit.
        running: Jobs of lower levels that have run for long enough.
        room: Of the nodes.
    """
    order = sorted(running, key=lambda job: (job.level, -job.start_s, -job.number))
    free = {
        node: gpus for gpus, nodes in enumerate(room.by_free) for node in _touched(nodes, order)
    }
    per_node = room.gpus_per_node
    if head.gpus <= per_node:
        for job in order:
            if any(
                node in free and free[node] + job.gpus_on_each >= head.gpus for node in job.nodes
            ):
                return [job.number]
        return []
    needed = head.gpus // per_node - room.by_free[per_node].bit_count()
    return _whole_nodes(order, free, needed, per_node)


def _touched(nodes: int, order: Sequence[Running]) -> set[int]:
    """Those nodes of a set on which one of the jobs runs."""
    return {node for job in order for node in job.nodes if nodes >> node & 1}


def _whole_nodes(
    order: Sequence[Running], free: dict[int, int], needed: int, per_node: int
) -> list[int]:
    """The first jobs that leave so many nodes empty, without those that are not needed for it."""
    left = dict(free)
    empty, chosen = 0, []
    for job in order:
        if empty >= needed:
            break
        for node in job.nodes:
            if node in left:
                left[node] += job.gpus_on_each
                empty += left[node] == per_node
        chosen.append(job)
    if empty < needed:
        return []
    kept = []
    for job in chosen:
        gives = Counter(node for node in job.nodes if left.get(node) == per_node)
        if empty - len(gives) >= needed:
            empty -= len(gives)
            for node in job.nodes:
                if node in left:
                    left[node] -= job.gpus_on_each
        else:
            kept.append(job.number)
    return kept
