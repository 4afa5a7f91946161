"""What the loop wrote down, as rows of the stored tables and of the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.log import FIRST_UID, PARTITION, SiteLog
from ettr.sim.cluster.loop.board import (
    CANCELLED,
    FAILED,
    LINE,
    N_NOTES,
    N_ROW_NODES,
    N_ROWS,
    NODE_FAIL,
    ROW_ACCOUNT,
    ROW_ELIGIBLE_S,
    ROW_END_S,
    ROW_FAULT,
    ROW_FOR_JOB,
    ROW_GPUS,
    ROW_LIMIT_S,
    ROW_LINE,
    ROW_LOST_S,
    ROW_N_NODES,
    ROW_NODE,
    ROW_NOW_S,
    ROW_NUMBER,
    ROW_PRIORITY,
    ROW_RESTART_S,
    ROW_RESTARTS,
    ROW_SAVED_S,
    ROW_START_S,
    ROW_STATE,
    ROW_SUBMIT_S,
    ROW_TASK,
    ROW_USER,
    ROW_WRITE_S,
    Board,
    Numbers,
)
from ettr.sim.cluster.scenario import ClusterScenario, Owners
from ettr.sim.cluster.truth import attempts_schema
from ettr.sim.cluster.workload import STATES
from ettr.tables import ATTEMPTS
from ettr.tables.rows import BATCH_ROWS
from ettr.units import MICROSECONDS_PER_SECOND

ALL_STATES = (*STATES, "NODE_FAIL", "PREEMPTED", "RUNNING", "PENDING", "REQUEUED")


class LoopLog(SiteLog):
    """A log whose attempts come from the loop; lines are counted on its board.

    Attributes:
        board: Of the loop; whoever makes a longer one puts it here.
    """

    def __init__(
        self, scenario: ClusterScenario, file_id: str, owners: Owners, board: Board
    ) -> None:
        super().__init__(scenario, file_id, owners)
        self.board = board
        self._truths: list[dict[str, pa.Array]] = []

    def log_notes(self) -> None:
        """Log the controller's lines on preemptions, before anything later is logged."""
        n_notes = int(self.board.cell[N_NOTES])
        self.board.cell[N_NOTES] = 0
        for time_s, line, job, for_job in self.board.notes[:n_notes].tolist():
            self.preempted(str(job), str(for_job), time_s, line)
        self._rows.count_read(n_notes)

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        cell = self.board.cell
        n_rows = cell[N_ROWS] + cell[N_ROW_NODES] + self._n_columnar
        return bool(n_rows >= BATCH_ROWS) or self._rows.is_full

    def next_line(self) -> int:
        """The number of the next line."""
        self.board.cell[LINE] += 1
        self._rows.count_read()
        return int(self.board.cell[LINE])

    def _taken_rows(self) -> Numbers:
        """The attempts written down since the last batch, shape (attempts, columns)."""
        return self.board.row[: self.board.cell[N_ROWS]]

    def _attempt_table(self) -> pa.Table:
        rows = self._taken_rows()
        self._rows.count_read(len(rows))
        made = self._table(ATTEMPTS, self._columns(rows), len(rows), partition=PARTITION)
        self._truths.append(self._truth_of(rows, made.column("attempt_id"), made.column("state")))
        return made

    def _columns(self, rows: Numbers) -> dict[str, pa.Array]:
        column = _columns_of(rows)
        gpus, state, user = column[ROW_GPUS], column[ROW_STATE], column[ROW_USER]
        number, submit_s, start_s = column[ROW_NUMBER], column[ROW_SUBMIT_S], column[ROW_START_S]
        now_s, end_s = column[ROW_NOW_S], column[ROW_END_S]
        has_run, has_ended = start_s >= 0, end_s >= 0
        elapsed_s = np.where(has_ended, end_s, now_s) - start_s
        per_node = self._scenario.machines.gpus_per_node
        job_id = pa.array(number).cast(pa.string())
        names = [one.name for one in self._scenario.priorities]
        levels = np.array([one.level for one in self._scenario.priorities], dtype=np.int64)
        eligible_s = column[ROW_ELIGIBLE_S]
        fails = (state == FAILED) | (state == NODE_FAIL)
        return {
            "attempt_id": self._keys(job_id, submit_s),
            "job_id": job_id,
            "job_id_raw": job_id,
            "name": _joined("task", pa.array(column[ROW_TASK]).cast(pa.string())),
            "user": _named(self._owners.users, user),
            "account": _named(self._owners.accounts, column[ROW_ACCOUNT]),
            "qos": _named(names, column[ROW_PRIORITY]),
            "state": _named(ALL_STATES, state),
            "cancelled_by": pa.array(FIRST_UID + user, mask=state != CANCELLED).cast(pa.string()),
            "exit_code": pa.array(fails.astype(np.int64), mask=~has_ended),
            "exit_signal": pa.array(np.zeros_like(user), mask=~has_ended),
            "submit": self._times(submit_s),
            "eligible": self._times(eligible_s, mask=eligible_s > now_s),
            "start": self._times(start_s, mask=~has_run),
            "end": self._times(end_s, mask=~has_ended),
            "elapsed_s": pa.array(elapsed_s.astype(np.float64), mask=~has_run),
            "suspended_s": pa.array(np.zeros(len(rows)), mask=~has_run),
            "time_limit_s": pa.array(column[ROW_LIMIT_S].astype(np.float64)),
            "n_nodes": pa.array(column[ROW_N_NODES]),
            "n_gpus": pa.array(np.where(has_run, gpus, 0)),
            "requested_nodes": pa.array(np.maximum(1, gpus // per_node)),
            "requested_gpus": pa.array(gpus),
            "node_list": self._node_lists(column[ROW_N_NODES]),
            "priority": pa.array(levels[column[ROW_PRIORITY]]),
            "restarts": pa.array(column[ROW_RESTARTS]),
            "line": pa.array(column[ROW_LINE]),
        }

    def _times(self, times_s: Numbers, mask: np.ndarray | None = None) -> pa.Array:
        return pa.array(self._origin_us + times_s * MICROSECONDS_PER_SECOND, mask=mask)

    def _keys(self, job_id: pa.Array, submit_s: Numbers) -> pa.Array:
        """As `attempt_id` for every attempt."""
        seconds = pa.array(self._origin_us // MICROSECONDS_PER_SECOND + submit_s)
        # 2026-01-05 00:00:00
        times = seconds.cast(pa.timestamp("s")).cast(pa.string())
        times = pc.binary_replace_slice(times, 10, 11, "T")
        return _joined(f"{self._scenario.name}/", job_id, "@", times, "Z")

    def _node_lists(self, n_nodes: Numbers) -> pa.Array:
        nodes = self.board.row_nodes[: self.board.cell[N_ROW_NODES]]
        offsets = np.concatenate([[0], np.cumsum(n_nodes)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), _named(self.names, nodes))
        joined = pc.binary_join(lists, ",")
        return pc.if_else(pa.array(n_nodes > 0), joined, pa.scalar(None, pa.string()))

    def _allocation_table(self, attempts: pa.Table) -> pa.Table:
        rows, cell = self._taken_rows(), self.board.cell
        counts = rows[:, ROW_N_NODES].copy()
        made = self._allocations(attempts, counts, self.board.row_nodes[: cell[N_ROW_NODES]])
        cell[N_ROWS] = cell[N_ROW_NODES] = 0
        return made

    def _truth_of(
        self, rows: Numbers, keys: pa.ChunkedArray, states: pa.ChunkedArray
    ) -> dict[str, pa.Array]:
        """What the attempts that have run came to; the symptom is that of the fault."""
        has_run = rows[:, ROW_START_S] >= 0
        column = _columns_of(rows[has_run])
        mask = pa.array(has_run)
        fault, node, for_job = column[ROW_FAULT], column[ROW_NODE], column[ROW_FOR_JOB]
        return {
            "attempt_id": keys.filter(mask),
            "gpus": pa.array(column[ROW_GPUS]),
            "end": states.filter(mask),
            "fault": pa.array(fault, mask=fault == 0),
            "node": _named(self.names, node, mask=node < 0),
            "for_job_id": pa.array(for_job, mask=for_job == 0).cast(pa.string()),
            "saved_s": pa.array(column[ROW_SAVED_S]),
            "lost_s": pa.array(column[ROW_LOST_S]),
            "restart_s": pa.array(column[ROW_RESTART_S]),
            "write_s": pa.array(column[ROW_WRITE_S]),
        }

    def true_attempts(self, faults: Sequence[NodeFault]) -> pa.Table:
        """The attempts as a table of the truth.

        Args:
            faults: All, in the order of their numbers.
        """
        schema = attempts_schema(self._scenario.checkpoints)
        symptoms = pa.array([one.process.symptom for one in faults], pa.string())
        truths = list(self._truths)
        rows = self._taken_rows()
        if len(rows):  # since the last batch
            columns = self._columns(rows)
            truths.append(self._truth_of(rows, columns["attempt_id"], columns["state"]))
        parts = []
        for one in truths:
            found = one | {"symptom": symptoms.take(pc.subtract(one["fault"], 1))}
            parts.append(pa.table([found[name] for name in schema.names], schema=schema))
        return pa.concat_tables(parts).combine_chunks() if parts else schema.empty_table()


def _columns_of(rows: Numbers) -> list[Numbers]:
    """Each column by itself: who keeps one in an Arrow table keeps no others with it."""
    return [rows[:, i].copy() for i in range(rows.shape[1])]


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _named(names: Sequence[str], which: Numbers, mask: np.ndarray | None = None) -> pa.Array:
    """The name of each, null where the mask is true."""
    return pa.array(names, pa.string()).take(pa.array(which, mask=mask))
