"""Every node-hour and GPU-hour of the cluster, each in one place."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from ettr.sim.cluster.truth import TRUTH
from ettr.units import SECONDS_PER_HOUR


class GpuUse(StrEnum):
    """What a GPU is doing."""

    HELD = "held by jobs"
    FREE = "free"
    FREE_DRAINING = "free on a draining node"
    OUT = "out of service"


class NodeUse(StrEnum):
    """What a node is doing."""

    OPEN = "takes jobs"
    DRAINING = "draining"
    OUT = "out of service"


class Hours:
    """Counts of nodes and GPUs by what they do, and the integral of each over time."""

    def __init__(self, n_nodes: int, gpus_per_node: int) -> None:
        self._now_s = 0
        self._gpus = dict.fromkeys(GpuUse, 0) | {GpuUse.FREE: n_nodes * gpus_per_node}
        self._nodes = dict.fromkeys(NodeUse, 0) | {NodeUse.OPEN: n_nodes}
        self.gpu_s = dict.fromkeys(GpuUse, 0)
        self.node_s = dict.fromkeys(NodeUse, 0)

    def advance(self, now_s: int) -> None:
        """Count the time up to now."""
        passed_s, self._now_s = now_s - self._now_s, now_s
        if passed_s:
            for gpu_use, gpus in self._gpus.items():
                self.gpu_s[gpu_use] += passed_s * gpus
            for node_use, nodes in self._nodes.items():
                self.node_s[node_use] += passed_s * nodes

    def move_gpus(self, before: GpuUse, after: GpuUse, gpus: int) -> None:
        """So many GPUs do something else from now on."""
        self._gpus[before] -= gpus
        self._gpus[after] += gpus

    def move_node(self, before: NodeUse, after: NodeUse) -> None:
        """A node does something else from now on."""
        self._nodes[before] -= 1
        self._nodes[after] += 1

    def table(self) -> pa.Table:
        """The hours, a row for each use."""
        rows: list[dict[str, object]] = [
            {"what": str(use), "node_hours": None, "gpu_hours": seconds / SECONDS_PER_HOUR}
            for use, seconds in self.gpu_s.items()
        ]
        rows += [
            {"what": f"node {use}", "node_hours": seconds / SECONDS_PER_HOUR, "gpu_hours": None}
            for use, seconds in self.node_s.items()
        ]
        return pa.Table.from_pylist(rows, schema=TRUTH["hours"])
