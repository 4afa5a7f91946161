"""What the simulated site logs, as rows of the stored tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ettr.errors import StoreError
from ettr.files import write_text, written_whole
from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.scenario import EVIDENCE, ClusterScenario, Owners
from ettr.sim.cluster.scenario_parts import Checkpoints, Links
from ettr.sim.cluster.workload import CANCELLED, STATES, Job, shown_tasks
from ettr.store.base import Store
from ettr.tables import ALLOCATIONS, ATTEMPTS, LOG_DAYS, NODE_STATES, NODES
from ettr.tables.columns import Table
from ettr.tables.rows import BATCH_ROWS, SIMULATION, Batch, BatchBuilder, attempt_id
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

PARTITION = "main"
_CONTROLLER = "slurmctld"
FIRST_UID = 10_000
_GPU_BUSES = (
    *("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
    *("1c", "44", "53", "62", "9e", "c4", "d2", "e0"),  # nodes have up to 16
)
_EXIT_1 = ("FAILED", "NODE_FAIL")
_PCI = "pci:0000:{}:00"


class SiteLog:
    """Collects rows as the cluster runs; hands them out in batches."""

    def __init__(self, scenario: ClusterScenario, file_id: str, owners: Owners) -> None:
        self._scenario, self._owners = scenario, owners
        self._origin = scenario.period.origin
        self._origin_us = round(self._origin.timestamp()) * MICROSECONDS_PER_SECOND
        self._rows = BatchBuilder(SIMULATION, file_id, scenario.name)
        self._file_id = file_id
        self._line = 0
        digits = len(str(scenario.machines.nodes))
        self.names = [f"n{node + 1:0{digits}d}" for node in range(scenario.machines.nodes)]
        self._attempts: list[dict[str, object]] = []
        self._nodes: list[tuple[int, ...]] = []
        self._n_columnar = 0
        self._day_lines = np.zeros((0, 0), dtype=np.int32)
        self._rows.derives(LOG_DAYS.name)
        self._keyed, self._key = (-1, -1), ""

    def at(self, time_s: int) -> datetime:
        """A time of the simulation."""
        return self._origin + timedelta(seconds=time_s)

    def attempt_key(self, job: Job) -> str:
        """Id of the attempt that a job is in."""
        which = (job.number, job.submit_s)
        if which != self._keyed:
            # the log and the truth ask for it one after the other
            self._keyed = which
            self._key = attempt_id(self._scenario.name, job.shown, self.at(job.submit_s))
        return self._key

    def inventory(self) -> None:
        """The nodes and where they are."""
        machines = self._scenario.machines
        for node, name in enumerate(self.names):
            self._rows.add(
                NODES.name,
                line=self.next_line(),
                node=name,
                n_gpus=machines.gpus_per_node,
                gpu_type=machines.gpu_type,
                partitions=PARTITION,
                rack=f"rack{machines.rack_of(node) + 1}",
                pod=f"pod{machines.pod_of(node) + 1}",
                switch=f"leaf{machines.rack_of(node) + 1}",
            )

    def attempt(self, job: Job, state: str, end_s: int | None, *, now_s: int) -> None:
        """One attempt of a job with its allocations; `end_s` is None while it has not ended."""
        has_run, has_ended = job.start_s >= 0, end_s is not None
        until_s = now_s if end_s is None else end_s
        per_node = self._scenario.machines.gpus_per_node
        row: dict[str, object] = {  # times in microseconds
            "attempt_id": self.attempt_key(job),
            "job_id": job.shown,
            "job_id_raw": job.label or str(job.number),
            "array_job_id": _array_of(job),
            "name": job.name or f"task{job.task}",
            "user": self._owners.users[job.user],
            "account": self._owners.accounts[job.account],
            "qos": self._scenario.priorities[job.priority].name,
            "state": state,
            "cancelled_by": str(FIRST_UID + job.user) if state == STATES[CANCELLED] else None,
            "exit_code": int(state in _EXIT_1) if has_ended else None,
            "exit_signal": 0 if has_ended else None,
            "submit": self._us(job.submit_s),
            "eligible": None if job.eligible_s > now_s else self._us(job.eligible_s),
            "start": self._us(job.start_s) if has_run else None,
            "end": None if end_s is None else self._us(end_s),
            "elapsed_s": float(until_s - job.start_s) if has_run else None,
            "suspended_s": 0.0 if has_run else None,
            "time_limit_s": float(job.limit_s),
            "n_nodes": len(job.nodes),
            "n_gpus": job.gpus if has_run else 0,
            "requested_nodes": max(1, job.gpus // per_node),
            "requested_gpus": job.gpus,
            "node_list": ",".join([self.names[node] for node in job.nodes]) or None,
            "priority": job.order,
            "reason": job.reason or None,
            "restarts": job.restarts,
            "line": self.next_line(),
        }
        self._attempts.append(row)
        self._nodes.append(job.nodes if has_run else ())
        self._n_columnar += 1 + len(self._nodes[-1])

    def pending_tasks(
        self, jobs: Sequence[Job], state: str, end_s: int | None, *, now_s: int
    ) -> None:
        """Tasks of one array that have not begun, in one row as Slurm has them."""
        first = jobs[0]
        array = first.array
        if array is None:
            raise AssertionError("not the tasks of an array")
        self.attempt(first, state, end_s, now_s=now_s)
        tasks = shown_tasks([job.array_task for job in jobs], array.most_running)
        shown = f"{array.first}_{tasks}"
        key = attempt_id(self._scenario.name, shown, self.at(first.submit_s))
        of_array = {"job_id": shown, "job_id_raw": str(array.first), "attempt_id": key}
        self._attempts[-1] |= of_array

    def kernel(self, fault: NodeFault, gpu: int) -> None:
        """The kernel's line on a fault of a GPU, if there is one."""
        trace = EVIDENCE[fault.symptom]
        if trace.xid is None:
            return
        bus = _PCI.format(_GPU_BUSES[gpu])
        self._rows.events.add(
            line=self.next_line(),
            time=self.at(fault.time_s),
            check="xid",
            node=self.names[fault.node],
            code=trace.xid,
            entity_type="PCI",
            entity=bus.removeprefix("pci:"),
            message=f"NVRM: Xid ({bus.upper()}): {trace.xid}, {trace.message}",
        )

    def check(self, fault: NodeFault, now_s: int) -> None:
        """A health check that fired, on the node that is blamed."""
        trace = EVIDENCE[fault.symptom]
        self._rows.events.add(
            line=self.next_line(),
            time=self.at(now_s),
            check=trace.check,
            node=self.names[fault.suspect],
            code=trace.code,
            severity="critical" if fault.process.severity == "high" else "warning",
            message=trace.reason,
        )

    def node_check(self, name: str, node: int, begin_s: int, end_s: int, found: str | None) -> None:
        """The result of a check before a job; what it found, or None."""
        self._rows.events.add(
            line=self.next_line(),
            time=self.at(begin_s),
            time_end=self.at(end_s),
            check=name,
            node=self.names[node],
            severity="ok" if found is None else "critical",
            message=found,
        )

    def controller(
        self,
        code: str,
        now_s: int,
        message: str,
        *,
        node: int | None = None,
        job_id: str | None = None,
    ) -> None:
        """A line of the controller's log."""
        self._rows.events.add(
            line=self.next_line(),
            time=self.at(now_s),
            check=_CONTROLLER,
            node=None if node is None else self.names[node],
            code=code,
            severity="critical" if code.startswith("NODE_FAIL") or code == "NODE_DOWN" else "ok",
            job_id=job_id,
            message=message,
        )

    def preempted(self, job_id: str, for_job_id: str, now_s: int, line: int) -> None:
        """The controller's line on a preemption."""
        self._rows.events.add(
            line=line,
            time=self.at(now_s),
            check=_CONTROLLER,
            node=None,
            code="PREEMPTED",
            severity="ok",
            job_id=job_id,
            related_job_id=for_job_id,
            message=f"preempted JobId={job_id} has been requeued to reclaim resources for "
            f"JobId={for_job_id}",
        )

    def node_state(
        self, node: int, state: str, flags: str | None, reason: str, start_s: int, end_s: int | None
    ) -> None:
        """An interval of a node out of service; `end_s` is None while it lasts."""
        self._rows.add(
            NODE_STATES.name,
            line=self.next_line(),
            node=self.names[node],
            state=state,
            flags=flags,
            reason=reason,
            user="root",
            start=self.at(start_s),
            end=None if end_s is None else self.at(end_s),
        )

    def log_days(self, n_lines: NDArray[np.int32]) -> None:
        """How many lines the log of checks of each node has on each day, shape (nodes, days)."""
        self._day_lines = n_lines
        self._n_columnar += int(np.count_nonzero(n_lines))

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        return self._n_columnar >= BATCH_ROWS or self._rows.is_full

    def batch(self) -> Batch:
        """What was collected since the last batch."""
        attempts = self._attempt_table()
        made = self._rows.batch(
            **{
                ATTEMPTS.name: attempts,
                ALLOCATIONS.name: self._allocation_table(attempts),
                LOG_DAYS.name: self._log_day_table(),
            }
        )
        self._day_lines = self._day_lines[:0]
        self._attempts.clear()
        self._nodes.clear()
        self._n_columnar = 0
        return made

    def _attempt_table(self) -> pa.Table:
        names = self._attempts[0] if self._attempts else ()
        columns = {name: [row[name] for row in self._attempts] for name in names}
        return self._table(ATTEMPTS, columns, len(self._attempts), partition=PARTITION)

    def _log_day_table(self) -> pa.Table:
        nodes, days = np.nonzero(self._day_lines)
        columns = {
            "node": pa.array(self.names).take(pa.array(nodes)),
            "day": self._origin_us + days * int(SECONDS_PER_DAY) * MICROSECONDS_PER_SECOND,
            "n_lines": self._day_lines[nodes, days],
        }
        return self._table(LOG_DAYS, columns, nodes.size, line=1)

    def _table(
        self, table: Table, columns: Mapping[str, Any], n_rows: int, **same: object
    ) -> pa.Table:
        """A table of columns; `same` are values of all rows, and what is absent is null."""
        same |= {"cluster": self._scenario.name, "source": SIMULATION, "file_id": self._file_id}
        return pa.Table.from_arrays(
            [
                pa.repeat(pa.scalar(same[field.name], field.type), n_rows)
                if field.name in same
                else _array(columns.get(field.name), n_rows, field.type)
                for field in table.arrow_schema
            ],
            schema=table.arrow_schema,
        )

    def _allocation_table(self, attempts: pa.Table) -> pa.Table:
        counts = np.array([len(nodes) for nodes in self._nodes], dtype=np.int64)
        nodes = np.array([node for nodes in self._nodes for node in nodes], dtype=np.int64)
        return self._allocations(attempts, counts, nodes)

    def _allocations(
        self, attempts: pa.Table, counts: NDArray[np.int64], nodes: NDArray[np.int64]
    ) -> pa.Table:
        """One row for each node of each attempt that has run."""
        of_attempt = np.repeat(np.arange(counts.size), counts)
        gpus = attempts.column("n_gpus").to_numpy()[of_attempt] / counts[of_attempt]
        own = {"node": pa.array(self.names).take(pa.array(nodes)), "n_gpus": pa.array(gpus)}
        rows = attempts.select([n for n in ALLOCATIONS.names if n not in own]).take(of_attempt)
        return pa.Table.from_arrays(
            [
                own[field.name].cast(field.type) if field.name in own else rows.column(field.name)
                for field in ALLOCATIONS.arrow_schema
            ],
            schema=ALLOCATIONS.arrow_schema,
        )

    def _us(self, time_s: int) -> int:
        return self._origin_us + time_s * MICROSECONDS_PER_SECOND

    def next_line(self) -> int:
        """The number of the next line."""
        self._line += 1
        self._rows.count_read()
        return self._line


def _array_of(job: Job) -> str | None:
    """Id of the array of which a job is a task, replayed jobs by their ids."""
    if job.array is not None:
        return str(job.array.first)
    array, mark, _ = job.label.partition("_")
    return array if mark else None


def _array(values: Any, n_rows: int, kind: pa.DataType) -> pa.Array:
    """A column; times are given as microseconds, and a column that is absent is null."""
    if values is None:
        return pa.nulls(n_rows, kind)
    if pa.types.is_timestamp(kind):
        times = values if isinstance(values, pa.Array) else pa.array(values, pa.int64())
        return times.cast(kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def batches(log: SiteLog, steps: Iterator[None]) -> Iterator[Batch]:
    """Run the steps, and yield what was logged whenever it is enough."""
    for _ in steps:
        if log.is_full:
            yield log.batch()
    yield log.batch()


# -- what truly happened in a simulated cluster, in Parquet files apart from the store -------------


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


# -- the text files that Slurm and the kernel would have written of a simulated cluster ------------


SACCT, EVENTS, KERNEL, NOTE = "sacct.psv", "events.psv", "kernel.log", "note.txt"
_SACCT = (
    "JobID|Cluster|JobName|User|Account|QOS|Partition|State|ExitCode|Submit|Eligible|Start|End|"
    "ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|NodeList"
)
_EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
_XIDS = {
    "48": "DBE (double bit error) detected",
    "63": "Row Remapper: New row marked for remapping",
    "64": "Row Remapper: Error recording",
    "74": "NVLink: fatal error detected on link 6",
    "79": "GPU has fallen off the bus.",
    "94": "Contained ECC error",
    "95": "Uncontained ECC error",
    "119": "Timeout waiting for RPC from GSP",
}


def write_logs(store: Store, folder: Path, note: str) -> list[Path]:
    """Write the accounting, the states of nodes and the kernel log of a simulated store."""
    made = {
        SACCT: [_SACCT, *map(_job, _ordered(store, "attempts", "submit"))],
        EVENTS: [_EVENTS, *map(_state, _ordered(store, "node_states", "start"))],
        KERNEL: [
            line for _, line in sorted([*_kernel(store.rows("events").to_pylist()), *_daily(store)])
        ],
        NOTE: ["# ettr note", note],
    }
    for name, lines in made.items():
        write_text(folder / name, "\n".join(lines) + "\n")
    return [folder / name for name in made]


def _ordered(store: Store, table: str, by: str) -> list[dict[str, Any]]:
    rows = store.rows(table)
    in_order = rows.take(pc.sort_indices(rows, [(by, "ascending")]))
    found: list[dict[str, Any]] = in_order.to_pylist()
    return found


def _time(at: datetime | None) -> str:
    return "Unknown" if at is None else at.strftime("%Y-%m-%dT%H:%M:%S")


def _job(row: Mapping[str, Any]) -> str:
    nodes, gpus, never = row["n_nodes"], row["n_gpus"], row["start"] is None
    cells = (
        *(row["job_id"], row["cluster"], row["name"], row["user"], row["account"], row["qos"]),
        *(row["partition"], row["state"]),
        f"{row['exit_code'] or 0}:{row['exit_signal'] or 0}",
        *map(_time, (row["submit"], row["eligible"], row["start"], row["end"])),
        *(f"{row['elapsed_s'] or 0:.0f}", f"{(row['time_limit_s'] or 0) / 60:.0f}"),
        "0" if never else str(nodes),
        "" if never else f"gres/gpu={gpus},node={nodes}",
        row["node_list"] or "None assigned",
    )
    return "|".join(str(cell) for cell in cells)


def _state(row: Mapping[str, Any]) -> str:
    cells = (row["cluster"], row["node"], _time(row["start"]), _time(row["end"]), row["state"])
    return "|".join((*cells, row["reason"] or "", f"{row['user'] or 'root'}(0)"))


def _daily(store: Store) -> Iterator[tuple[datetime, str]]:
    """A harmless line a node and day: logs without any would be logs that are missing."""
    times = [row["start"] for row in store.rows("attempts").to_pylist() if row["start"]]
    nodes = sorted({row["node"] for row in store.rows("nodes").to_pylist()})
    first, last = min(times), max(times)
    for day in range((last - first).days + 1):
        for place, node in enumerate(nodes):
            at = first + timedelta(days=day, seconds=place)
            yield at, f"{at.isoformat()} {node} kernel: usb 1-1: new high-speed USB device"


def _kernel(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[datetime, str]]:
    for row in rows:
        if row["check"] != "xid":
            continue
        says = _XIDS.get(row["code"], "error")
        pci = (row["entity"] or "0000:1b:00").removeprefix("pci:").removesuffix(".0")
        yield (
            row["time"],
            (
                f"{row['time'].isoformat()} {row['node']} kernel: NVRM: Xid (PCI:{pci}): "
                f"{row['code']}, pid='<unknown>', name=<unknown>, {says}"
            ),
        )
