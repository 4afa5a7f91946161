"""The nodes that Slurm would choose for a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ettr.sim.cluster.policies.base import Able
from ettr.sim.cluster.room import first_members


def neighbours(able: Able) -> list[int]:
    """Nodes next to each other, of those that running jobs leave first.

    The shortest run of such nodes that is long enough, the first of equal ones; where none is, the
    longest, and so on with what is left. In a run the first nodes: how full they are is the same to
    Slurm, which counts of each no more GPUs and cores than the job can use.
    """
    ready_s = able.ready_s[:, able.gpus_on_each]
    at_s = np.partition(ready_s, able.n_nodes - 1)[able.n_nodes - 1]
    return _of_runs([able.nodes[i] for i in np.flatnonzero(ready_s <= at_s)], able.n_nodes)


def free_neighbours(by_free: Sequence[int], gpus: int) -> list[int] | None:
    """As `room.place`, which see: the nodes for a job that starts now, as `neighbours`."""
    per_node = len(by_free) - 1
    n_nodes = max(1, gpus // per_node)
    able = 0
    for nodes in by_free[min(gpus, per_node) :]:
        able |= nodes
    count = able.bit_count()
    return _of_runs(first_members(able, count), n_nodes) if count >= n_nodes else None


def _of_runs(left: list[int], n_nodes: int) -> list[int]:
    """So many of some ascending nodes, from as few runs as there can be."""
    chosen: list[int] = []
    while (missing := n_nodes - len(chosen)) > 0:
        runs = _runs(left)
        enough = [run for run in runs if len(run) >= missing]
        run = min(enough, key=len) if enough else max(runs, key=len)
        chosen += run[:missing]
        left = [node for node in left if node not in run[:missing]]
    return sorted(chosen)


def _runs(nodes: Sequence[int]) -> list[list[int]]:
    """Ascending nodes, split where one is missing."""
    found: list[list[int]] = []
    for node in nodes:
        if found and found[-1][-1] == node - 1:
            found[-1].append(node)
        else:
            found.append([node])
    return found
