"""What truly happened in a simulated cluster, in Parquet files apart from the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ettr.errors import StoreError
from ettr.files import write_text, written_whole
from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import Checkpoints, Links
from ettr.units import SECONDS_PER_HOUR

_STRING, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")

TRUTH: dict[str, pa.Schema] = {
    # every fault and false alarm; `blamed` is null unless another node was blamed for it
    "faults": pa.schema(
        [
            ("fault", _INT),
            ("time", _TIME),
            ("node", _STRING),
            ("symptom", _STRING),
            ("burst", _STRING),
            ("effect", _STRING),
            ("severity", _STRING),
            ("is_seen", _BOOL),
            ("is_false_alarm", _BOOL),
            ("found", _TIME),
            ("attempts_ended", _INT),
            ("blamed", _STRING),
        ]
    ),
    # what each attempt came to; saved + lost + restart (+ write, `attempts_schema`) is its length,
    # and the wait for checks of its nodes part of restart
    "attempts": pa.schema(
        [
            ("attempt_id", _STRING),
            ("gpus", _INT),
            ("end", _STRING),
            ("fault", _INT),
            ("node", _STRING),
            ("symptom", _STRING),
            ("for_job_id", _STRING),
            ("saved_s", _INT),
            ("lost_s", _INT),
            ("restart_s", _INT),
        ]
    ),
    "nodes": pa.schema([("node", _STRING), ("is_lemon", _BOOL), ("factor", _FLOAT)]),
    # every node-hour and GPU-hour of the cluster, each in one row
    "hours": pa.schema([("what", _STRING), ("node_hours", _FLOAT), ("gpu_hours", _FLOAT)]),
}
"""Tables of the truth and their columns."""
_WRITES, _NETWORK = pa.field("write_s", _INT), pa.field("network_s", _INT)


def attempts_schema(rules: Checkpoints, links: Links | None = None) -> pa.Schema:
    """Columns of `attempts`: where writes or links hold up jobs, that is one of its parts."""
    if links is not None:
        return TRUTH["attempts"].append(_WRITES).append(_NETWORK)
    return TRUTH["attempts"].append(_WRITES) if rules.write_s else TRUTH["attempts"]


class Truth:
    """Collects what truly happened to the attempts."""

    def __init__(self, rules: Checkpoints, links: Links | None = None) -> None:
        self._schema = attempts_schema(rules, links)
        self._attempts: list[tuple[object, ...]] = []

    def attempt(
        self,
        attempt_id: str,
        gpus: int,
        end: str,
        split_s: tuple[int, ...],
        fault: NodeFault | None = None,
        node: str | None = None,
        for_job: str | None = None,
    ) -> None:
        """What an attempt came to."""
        number, symptom = (None, None) if fault is None else (fault.number, fault.process.symptom)
        row = (attempt_id, gpus, end, number, node, symptom, for_job, *split_s)
        self._attempts.append(row[: len(self._schema)])

    def attempts(self) -> pa.Table:
        """The attempts as a table."""
        schema = self._schema
        columns = zip(*self._attempts, strict=True) if self._attempts else [()] * len(schema)
        arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)


def write_truth(folder: Path, tables: dict[str, pa.Table], scenario_text: str) -> None:
    """Write the tables, and the scenario that they come from, into a new or an empty folder.

    Raises:
        StoreError: it holds other files, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            with written_whole(folder / f"{name}.parquet") as file:
                pq.write_table(table, file, compression="zstd")
        write_text(folder / "scenario.toml", scenario_text)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror or error}") from error


def check_truth_folder(folder: Path) -> None:
    """Check before the work that the truth can be written there.

    Raises:
        StoreError: the folder holds files already, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: is a file; give another one with --truth")
    if folder.is_dir() and any(folder.iterdir()):
        raise StoreError(f"{folder}: is not empty; give another folder with --truth, or remove it")


def node_rows(scenario: ClusterScenario, names: list[str], lemons: frozenset[int]) -> pa.Table:
    """The nodes as a table."""
    factor = scenario.lemons.factor
    rows = [
        {"node": name, "is_lemon": node in lemons, "factor": factor if node in lemons else 1.0}
        for node, name in enumerate(names)
    ]
    return pa.Table.from_pylist(rows, schema=TRUTH["nodes"])


def fault_rows(
    faults: Sequence[NodeFault], names: Sequence[str], at: Callable[[int], datetime]
) -> pa.Table:
    """The faults as a table."""
    rows = [
        {
            "fault": one.number,
            "time": at(one.time_s),
            "node": names[one.node],
            "symptom": one.symptom,
            "burst": one.burst or None,
            "effect": one.effect,
            "severity": one.process.severity,
            "is_seen": one.is_seen,
            "is_false_alarm": one.is_alarm,
            "found": None if one.found_s < 0 else at(one.found_s),
            "attempts_ended": one.attempts_ended,
            "blamed": None if one.blamed < 0 else names[one.blamed],
        }
        for one in faults
    ]
    return pa.Table.from_pylist(rows, schema=TRUTH["faults"])


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
