"""The nodes that Slurm would choose for a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ettr.sim.cluster.policies.base import Able


def neighbours(able: Able) -> list[int]:
    """Nodes next to each other, of those that running jobs leave first.

    The run of such nodes with the fewest free GPUs that is long enough; where none is, the run with
    the most, and so on with what is left. A job of one node gets the fullest node of its run,
    others the first nodes.
    """
    ready_s = able.ready_s[:, able.gpus_on_each]
    at_s = np.partition(ready_s, able.n_nodes - 1)[able.n_nodes - 1]
    free = (able.ready_s <= at_s).sum(axis=1) - 1
    left = {able.nodes[i]: int(free[i]) for i in np.flatnonzero(ready_s <= at_s)}
    chosen: list[int] = []
    while (missing := able.n_nodes - len(chosen)) > 0:
        runs = _runs(list(left))
        enough = [run for run in runs if len(run) >= missing]
        if enough:
            run = min(enough, key=lambda one: sum(left[node] for node in one))
        else:
            run = max(runs, key=lambda one: sum(left[node] for node in one))
        taken = [min(run, key=lambda node: left[node])] if missing == 1 else run[:missing]
        chosen += taken
        for node in taken:
            del left[node]
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
