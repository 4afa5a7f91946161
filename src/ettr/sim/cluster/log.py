"""What the simulated site logs, as rows of the stored tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.scenario import EVIDENCE, ClusterScenario, Owners
from ettr.sim.cluster.workload import CANCELLED, STATES, Job, shown_tasks
from ettr.tables import ALLOCATIONS, ATTEMPTS, LOG_DAYS, NODE_STATES, NODES
from ettr.tables.columns import Table
from ettr.tables.rows import BATCH_ROWS, SIMULATION, Batch, BatchBuilder, attempt_id
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY

PARTITION = "main"
_CONTROLLER = "slurmctld"
FIRST_UID = 10_000
_GPU_BUSES = (
    *("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
    *("1c", "44", "53", "62", "9e", "c4", "d2", "e0"),  # nodes have up to 16
)
_EXIT_1 = ("FAILED", "NODE_FAIL")
_PCI = "pci:0000:{}:00"


class _AttemptRow(NamedTuple):
    """The columns of `attempts` that differ from row to row; times in microseconds."""

    attempt_id: str
    job_id: str
    job_id_raw: str
    array_job_id: str | None
    name: str
    user: str
    account: str
    qos: str
    state: str
    cancelled_by: str | None
    exit_code: int | None
    exit_signal: int | None
    submit: int
    eligible: int | None
    start: int | None
    end: int | None
    elapsed_s: float | None
    suspended_s: float | None
    time_limit_s: float
    n_nodes: int
    n_gpus: int
    requested_nodes: int
    requested_gpus: int
    node_list: str | None
    priority: int
    reason: str | None
    restarts: int
    line: int


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
        self._attempts: list[_AttemptRow] = []
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
        row = _AttemptRow(
            attempt_id=self.attempt_key(job),
            job_id=job.shown,
            job_id_raw=job.label or str(job.number),
            array_job_id=_array_of(job),
            name=job.name or f"task{job.task}",
            user=self._owners.users[job.user],
            account=self._owners.accounts[job.account],
            qos=self._scenario.priorities[job.priority].name,
            state=state,
            cancelled_by=str(FIRST_UID + job.user) if state == STATES[CANCELLED] else None,
            exit_code=int(state in _EXIT_1) if has_ended else None,
            exit_signal=0 if has_ended else None,
            submit=self._us(job.submit_s),
            eligible=None if job.eligible_s > now_s else self._us(job.eligible_s),
            start=self._us(job.start_s) if has_run else None,
            end=None if end_s is None else self._us(end_s),
            elapsed_s=float(until_s - job.start_s) if has_run else None,
            suspended_s=0.0 if has_run else None,
            time_limit_s=float(job.limit_s),
            n_nodes=len(job.nodes),
            n_gpus=job.gpus if has_run else 0,
            requested_nodes=max(1, job.gpus // per_node),
            requested_gpus=job.gpus,
            node_list=",".join([self.names[node] for node in job.nodes]) or None,
            priority=job.order,
            reason=job.reason or None,
            restarts=job.restarts,
            line=self.next_line(),
        )
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
        self._attempts[-1] = self._attempts[-1]._replace(
            job_id=shown, job_id_raw=str(array.first), attempt_id=key
        )

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
        columns = dict(zip(_AttemptRow._fields, zip(*self._attempts, strict=True), strict=False))
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
