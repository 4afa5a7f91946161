"""What the simulated site logs, as rows of the stored tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

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
from ettr.tables.rows import BATCH_ROWS, SIMULATION, Batch, BatchBuilder
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

PARTITION = "main"
_CONTROLLER = "slurmctld"
FIRST_UID = 10_000
_GPU_BUSES = (
    *("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
    *("1c", "44", "53", "62", "9e", "c4", "d2", "e0"),  # nodes have up to 16
)
ALL_STATES = (*STATES, "NODE_FAIL", "PREEMPTED", "RUNNING", "PENDING", "REQUEUED")
"""States of attempts, the first of them those of `workload`."""
_EXIT_1 = ("FAILED", "NODE_FAIL")
_OWN = (
    *(("job_id", pa.string()), ("job_id_raw", pa.string()), ("array_job_id", pa.string())),
    *(("name", pa.string()), ("priority", pa.int64()), ("reason", pa.string())),
    ("for_job_id", pa.string()),
)
"""What an attempt has for itself alone."""
_PCI = "pci:0000:{}:00"

Numbers = NDArray[np.int64]


class AttemptColumns(NamedTuple):
    """Attempts as columns of whole numbers, each of shape (attempts,), times in seconds.

    Attributes:
        start_s: -1 for one that has not started, and then `n_nodes` is 0.
        state: Its place in `ALL_STATES`.
        end_s: -1 while it has not ended.
        now_s: When it was logged.
        fault: Number of the fault that ended it; 0 for none.
        node: On which that came; -1 for none.
        saved_s: Of its length; with `lost_s`, `restart_s`, `write_s` and `network_s` all of it.
    """

    task: Numbers
    gpus: Numbers
    limit_s: Numbers
    user: Numbers
    account: Numbers
    priority: Numbers
    submit_s: Numbers
    eligible_s: Numbers
    restarts: Numbers
    start_s: Numbers
    n_nodes: Numbers
    state: Numbers
    end_s: Numbers
    now_s: Numbers
    line: Numbers
    fault: Numbers
    node: Numbers
    saved_s: Numbers
    lost_s: Numbers
    restart_s: Numbers
    write_s: Numbers
    network_s: Numbers


class LoggedAttempts(NamedTuple):
    """Attempts that were logged: their numbers, the columns that are theirs alone, their nodes."""

    columns: AttemptColumns
    own: dict[str, pa.Array]
    nodes: Numbers


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
        self._attempts: list[tuple[int, ...]] = []
        self._words: list[tuple[object, ...]] = []
        self._nodes: list[int] = []
        self._truths: list[dict[str, pa.Array]] = []
        self._day_lines = np.zeros((0, 0), dtype=np.int32)
        self._n_day_lines = 0
        self._rows.derives(LOG_DAYS.name)

    def at(self, time_s: int) -> datetime:
        """A time of the simulation."""
        return self._origin + timedelta(seconds=time_s)

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

    def attempt(
        self,
        job: Job,
        state: str,
        end_s: int | None,
        *,
        now_s: int,
        split_s: tuple[int, ...] = (0, 0, 0, 0, 0),
        fault: int = 0,
        node: int = -1,
        for_job: str | None = None,
        tasks: str = "",
    ) -> None:
        """One attempt of a job with its allocations, and what it truly came to.

        Args:
            end_s: None while it has not ended.
            split_s: As in `AttemptColumns`, from `saved_s` on.
            for_job: Shown id of the job for which it was preempted.
            tasks: Id of the tasks of an array that stand in one row.
        """
        nodes = job.nodes if job.start_s >= 0 else ()
        self._attempts.append(
            (
                *(job.task, job.gpus, job.limit_s, job.user, job.account, job.priority),
                *(job.submit_s, job.eligible_s, job.restarts, job.start_s, len(nodes)),
                *(ALL_STATES.index(state), -1 if end_s is None else end_s, now_s),
                *(self.next_line(), fault, node, *split_s),
            )
        )
        array = _array_of(job)
        raw = array if tasks else job.label or str(job.number)
        name, reason = job.name or f"task{job.task}", job.reason or None
        self._words.append((tasks or job.shown, raw, array, name, job.order, reason, for_job))
        self._nodes += nodes

    def pending_tasks(
        self, jobs: Sequence[Job], state: str, end_s: int | None, *, now_s: int
    ) -> None:
        """Tasks of one array that have not begun, in one row as Slurm has them."""
        array = jobs[0].array
        if array is None:
            raise AssertionError("not the tasks of an array")
        tasks = shown_tasks([job.array_task for job in jobs], array.most_running)
        self.attempt(jobs[0], state, end_s, now_s=now_s, tasks=f"{array.first}_{tasks}")

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
        self._n_day_lines += int(np.count_nonzero(n_lines))

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        n_rows = self._n_attempt_rows() + self._n_day_lines
        return n_rows >= BATCH_ROWS or self._rows.is_full

    def batch(self) -> Batch:
        """What was collected since the last batch."""
        taken = self._taken()
        columns = self._attempt_columns(taken)
        attempts = self._table(ATTEMPTS, columns, taken.columns.gpus.size, partition=PARTITION)
        self._truths.append(self._truth_of(taken, columns))
        made = self._rows.batch(
            **{
                ATTEMPTS.name: attempts,
                ALLOCATIONS.name: self._allocations(attempts, taken),
                LOG_DAYS.name: self._log_day_table(),
            }
        )
        self._day_lines, self._n_day_lines = self._day_lines[:0], 0
        self._forget()
        return made

    def _n_attempt_rows(self) -> int:
        """Attempts and allocations since the last batch."""
        return len(self._attempts) + len(self._nodes)

    def _taken(self) -> LoggedAttempts:
        """The attempts since the last batch."""
        numbers = np.array(self._attempts, dtype=np.int64).reshape(-1, len(AttemptColumns._fields))
        words = zip(*self._words, strict=True) if self._words else [()] * len(_OWN)
        own = {name: pa.array(one, kind) for (name, kind), one in zip(_OWN, words, strict=True)}
        columns = AttemptColumns(*numbers.T.copy())
        return LoggedAttempts(columns, own, np.array(self._nodes, dtype=np.int64))

    def _forget(self) -> None:
        """The attempts have been handed out."""
        self._attempts.clear()
        self._words.clear()
        self._nodes.clear()

    def _attempt_columns(self, taken: LoggedAttempts) -> dict[str, pa.Array]:
        one, own = taken.columns, taken.own
        has_run, has_ended = one.start_s >= 0, one.end_s >= 0
        elapsed_s = np.where(has_ended, one.end_s, one.now_s) - one.start_s
        per_node = self._scenario.machines.gpus_per_node
        fails = np.isin(one.state, [ALL_STATES.index(state) for state in _EXIT_1])
        by_owner = one.state == ALL_STATES.index(STATES[CANCELLED])
        return {
            **{name: own.get(name) for name in ("array_job_id", "reason")},
            **{name: own[name] for name in ("job_id", "job_id_raw", "name", "priority")},
            "attempt_id": self._keys(own["job_id"], one.submit_s),
            "user": named(self._owners.users, one.user),
            "account": named(self._owners.accounts, one.account),
            "qos": named([level.name for level in self._scenario.priorities], one.priority),
            "state": named(ALL_STATES, one.state),
            "cancelled_by": pa.array(FIRST_UID + one.user, mask=~by_owner).cast(pa.string()),
            "exit_code": pa.array(fails.astype(np.int64), mask=~has_ended),
            "exit_signal": pa.array(np.zeros_like(one.user), mask=~has_ended),
            "submit": self._times(one.submit_s),
            "eligible": self._times(one.eligible_s, mask=one.eligible_s > one.now_s),
            "start": self._times(one.start_s, mask=~has_run),
            "end": self._times(one.end_s, mask=~has_ended),
            "elapsed_s": pa.array(elapsed_s.astype(np.float64), mask=~has_run),
            "suspended_s": pa.array(np.zeros(has_run.size), mask=~has_run),
            "time_limit_s": pa.array(one.limit_s.astype(np.float64)),
            "n_nodes": pa.array(one.n_nodes),
            "n_gpus": pa.array(np.where(has_run, one.gpus, 0)),
            "requested_nodes": pa.array(np.maximum(1, one.gpus // per_node)),
            "requested_gpus": pa.array(one.gpus),
            "node_list": self._node_lists(taken),
            "restarts": pa.array(one.restarts),
            "line": pa.array(one.line),
        }

    def _times(self, times_s: Numbers, mask: np.ndarray | None = None) -> pa.Array:
        return pa.array(self._origin_us + times_s * MICROSECONDS_PER_SECOND, mask=mask)

    def _keys(self, job_id: pa.Array, submit_s: Numbers) -> pa.Array:
        """As `attempt_id` for every attempt."""
        seconds = pa.array(self._origin_us // MICROSECONDS_PER_SECOND + submit_s)
        # 2026-01-05 00:00:00
        times = seconds.cast(pa.timestamp("s")).cast(pa.string())
        times = pc.binary_replace_slice(times, 10, 11, "T")
        return joined(f"{self._scenario.name}/", job_id, "@", times, "Z")

    def _node_lists(self, taken: LoggedAttempts) -> pa.Array:
        n_nodes = taken.columns.n_nodes
        offsets = np.concatenate([[0], np.cumsum(n_nodes)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), named(self.names, taken.nodes))
        return pc.if_else(
            pa.array(n_nodes > 0), pc.binary_join(lists, ","), pa.scalar(None, pa.string())
        )

    def _truth_of(
        self, taken: LoggedAttempts, columns: Mapping[str, pa.Array]
    ) -> dict[str, pa.Array]:
        """What the attempts that have run came to; the symptom is that of the fault."""
        has_run = taken.columns.start_s >= 0
        one = AttemptColumns(*(column[has_run] for column in taken.columns))
        mask = pa.array(has_run)
        return {
            "attempt_id": columns["attempt_id"].filter(mask),
            "gpus": pa.array(one.gpus),
            "end": columns["state"].filter(mask),
            "fault": pa.array(one.fault, mask=one.fault == 0),
            "node": named(self.names, one.node, mask=one.node < 0),
            "for_job_id": taken.own["for_job_id"].filter(mask),
            **{name: pa.array(getattr(one, name)) for name in AttemptColumns._fields[-5:]},
        }

    def true_attempts(self, faults: Sequence[NodeFault]) -> pa.Table:
        """The attempts as a table of the truth; `faults` are all that have been."""
        schema = attempts_schema(self._scenario.checkpoints, self._scenario.links)
        symptoms = pa.array([one.process.symptom for one in faults], pa.string())
        taken = self._taken()  # since the last batch
        parts = []
        for one in [*self._truths, self._truth_of(taken, self._attempt_columns(taken))]:
            found = one | {"symptom": symptoms.take(pc.subtract(one["fault"], 1))}
            parts.append(pa.table([found[name] for name in schema.names], schema=schema))
        return pa.concat_tables(parts).combine_chunks()

    def _log_day_table(self) -> pa.Table:
        nodes, days = np.nonzero(self._day_lines)
        columns = {
            "node": named(self.names, nodes),
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

    def _allocations(self, attempts: pa.Table, taken: LoggedAttempts) -> pa.Table:
        """One row for each node of each attempt that has run."""
        counts = taken.columns.n_nodes
        of_attempt = np.repeat(np.arange(counts.size), counts)
        gpus = attempts.column("n_gpus").to_numpy()[of_attempt] / counts[of_attempt]
        own = {"node": named(self.names, taken.nodes), "n_gpus": pa.array(gpus)}
        rows = attempts.select([n for n in ALLOCATIONS.names if n not in own]).take(of_attempt)
        return pa.Table.from_arrays(
            [
                own[field.name].cast(field.type) if field.name in own else rows.column(field.name)
                for field in ALLOCATIONS.arrow_schema
            ],
            schema=ALLOCATIONS.arrow_schema,
        )

    def next_line(self) -> int:
        """The number of the next line."""
        self._line += 1
        self._rows.count_read()
        return self._line


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts one after the other, for every row."""
    return pc.binary_join_element_wise(*parts, "")


def named(names: Sequence[str], which: Numbers, mask: np.ndarray | None = None) -> pa.Array:
    """The name of each, null where the mask is true."""
    return pa.array(names, pa.string()).take(pa.array(which, mask=mask))


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


class Use(IntEnum):
    """What a GPU is doing, or a node."""

    HELD = 0
    FREE = 1
    FREE_DRAINING = 2
    OUT = 3
    NODE_OPEN = 4
    NODE_DRAINING = 5
    NODE_OUT = 6


_GPU_USES = ("held by jobs", "free", "free on a draining node", "out of service")
_NODE_USES = ("node takes jobs", "node draining", "node out of service")


class Hours:
    """Counts of GPUs and nodes by what they do, and the integral of each over time.

    Attributes:
        counts: How many do each `Use` now.
        sums_s: The integrals in seconds, and at last the time up to which they are counted.
    """

    def __init__(self, n_nodes: int, gpus_per_node: int) -> None:
        self.counts = np.zeros(len(Use), dtype=np.int64)
        self.counts[Use.FREE], self.counts[Use.NODE_OPEN] = n_nodes * gpus_per_node, n_nodes
        self.sums_s = np.zeros(len(Use) + 1, dtype=np.int64)

    def advance(self, now_s: int) -> None:
        """Count the time up to now."""
        passed_s = now_s - self.sums_s[-1]
        if passed_s:
            self.sums_s[:-1] += passed_s * self.counts
            self.sums_s[-1] = now_s

    def move(self, before: Use, after: Use, count: int = 1) -> None:
        """So many GPUs, or nodes, do something else from now on."""
        self.counts[before] -= count
        self.counts[after] += count

    def table(self) -> pa.Table:
        """The hours, a row for each use."""
        hours = [float(one) / SECONDS_PER_HOUR for one in self.sums_s[:-1]]
        of_gpus: list[float | None] = [*hours[: len(_GPU_USES)], *[None] * len(_NODE_USES)]
        of_nodes: list[float | None] = [*[None] * len(_GPU_USES), *hours[len(_GPU_USES) :]]
        columns = [[*_GPU_USES, *_NODE_USES], of_nodes, of_gpus]
        return pa.Table.from_arrays(list(map(pa.array, columns)), schema=TRUTH["hours"])


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
