"""A cluster whose jobs run in the compiled loop, and the rows that it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sim.cluster import play
from ettr.sim.cluster.engine import EVENTS_A_STEP, Tally
from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.health import Health
from ettr.sim.cluster.log import (
    FIRST_UID,
    PARTITION,
    GpuUse,
    Hours,
    NodeUse,
    SiteLog,
    attempts_schema,
    fault_rows,
    node_rows,
)
from ettr.sim.cluster.play import Board, Numbers, Rules, longer, new_board
from ettr.sim.cluster.room import Calendar, EventKind
from ettr.sim.cluster.scenario import ClusterScenario, Owners, owners_of
from ettr.sim.cluster.workload import STATES, Replay, columns_of_day
from ettr.tables import ATTEMPTS
from ettr.tables.rows import BATCH_ROWS
from ettr.units import MICROSECONDS_PER_SECOND

ALL_STATES = (*STATES, "NODE_FAIL", "PREEMPTED", "RUNNING", "PENDING", "REQUEUED")


class LoopLog(SiteLog):
    """A log whose attempts come from the loop; lines are counted on its board."""

    def __init__(
        self, scenario: ClusterScenario, file_id: str, owners: Owners, board: Board
    ) -> None:
        super().__init__(scenario, file_id, owners)
        self.board = board
        self._truths: list[dict[str, pa.Array]] = []

    def log_notes(self) -> None:
        """Log the controller's lines on preemptions, before anything later is logged."""
        n_notes = int(self.board.cell[play.N_NOTES])
        self.board.cell[play.N_NOTES] = 0
        for time_s, line, job, for_job in self.board.notes[:n_notes].tolist():
            self.preempted(str(job), str(for_job), time_s, line)
        self._rows.count_read(n_notes)

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        cell = self.board.cell
        n_rows = cell[play.N_ROWS] + cell[play.N_ROW_NODES] + self._n_columnar
        return bool(n_rows >= BATCH_ROWS) or self._rows.is_full

    def next_line(self) -> int:
        """The number of the next line."""
        self.board.cell[play.LINE] += 1
        self._rows.count_read()
        return int(self.board.cell[play.LINE])

    def _taken_rows(self) -> Numbers:
        """The attempts written down since the last batch, shape (attempts, columns)."""
        return self.board.row[: self.board.cell[play.N_ROWS]]

    def _attempt_table(self) -> pa.Table:
        rows = self._taken_rows()
        self._rows.count_read(len(rows))
        made = self._table(ATTEMPTS, self._columns(rows), len(rows), partition=PARTITION)
        self._truths.append(self._truth_of(rows, made.column("attempt_id"), made.column("state")))
        return made

    def _columns(self, rows: Numbers) -> dict[str, pa.Array]:
        column = _columns_of(rows)
        gpus, state, user = column[play.GPUS], column[play.ROW_STATE], column[play.USER]
        number, submit_s, start_s = (
            column[one] for one in (play.NUMBER, play.SUBMIT_S, play.START_S)
        )
        now_s, end_s = column[play.ROW_NOW_S], column[play.ROW_END_S]
        has_run, has_ended = start_s >= 0, end_s >= 0
        elapsed_s = np.where(has_ended, end_s, now_s) - start_s
        per_node = self._scenario.machines.gpus_per_node
        job_id = pa.array(number).cast(pa.string())
        names = [one.name for one in self._scenario.priorities]
        levels = np.array([one.level for one in self._scenario.priorities], dtype=np.int64)
        eligible_s = column[play.ELIGIBLE_S]
        fails = (state == play.FAILED) | (state == play.NODE_FAIL)
        return {
            "attempt_id": self._keys(job_id, submit_s),
            "job_id": job_id,
            "job_id_raw": job_id,
            "name": _joined("task", pa.array(column[play.TASK]).cast(pa.string())),
            "user": _named(self._owners.users, user),
            "account": _named(self._owners.accounts, column[play.ACCOUNT]),
            "qos": _named(names, column[play.PRIORITY]),
            "state": _named(ALL_STATES, state),
            "cancelled_by": pa.array(FIRST_UID + user, mask=state != play.CANCELLED).cast(
                pa.string()
            ),
            "exit_code": pa.array(fails.astype(np.int64), mask=~has_ended),
            "exit_signal": pa.array(np.zeros_like(user), mask=~has_ended),
            "submit": self._times(submit_s),
            "eligible": self._times(eligible_s, mask=eligible_s > now_s),
            "start": self._times(start_s, mask=~has_run),
            "end": self._times(end_s, mask=~has_ended),
            "elapsed_s": pa.array(elapsed_s.astype(np.float64), mask=~has_run),
            "suspended_s": pa.array(np.zeros(len(rows)), mask=~has_run),
            "time_limit_s": pa.array(column[play.LIMIT_S].astype(np.float64)),
            "n_nodes": pa.array(column[play.N_NODES]),
            "n_gpus": pa.array(np.where(has_run, gpus, 0)),
            "requested_nodes": pa.array(np.maximum(1, gpus // per_node)),
            "requested_gpus": pa.array(gpus),
            "node_list": self._node_lists(column[play.N_NODES]),
            "priority": pa.array(levels[column[play.PRIORITY]]),
            "restarts": pa.array(column[play.RESTARTS]),
            "line": pa.array(column[play.ROW_LINE]),
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
        nodes = self.board.row_nodes[: self.board.cell[play.N_ROW_NODES]]
        offsets = np.concatenate([[0], np.cumsum(n_nodes)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), _named(self.names, nodes))
        joined = pc.binary_join(lists, ",")
        return pc.if_else(pa.array(n_nodes > 0), joined, pa.scalar(None, pa.string()))

    def _allocation_table(self, attempts: pa.Table) -> pa.Table:
        rows, cell = self._taken_rows(), self.board.cell
        counts = rows[:, play.N_NODES].copy()
        made = self._allocations(attempts, counts, self.board.row_nodes[: cell[play.N_ROW_NODES]])
        cell[play.N_ROWS] = cell[play.N_ROW_NODES] = 0
        return made

    def _truth_of(
        self, rows: Numbers, keys: pa.ChunkedArray, states: pa.ChunkedArray
    ) -> dict[str, pa.Array]:
        """What the attempts that have run came to; the symptom is that of the fault."""
        has_run = rows[:, play.START_S] >= 0
        column = _columns_of(rows[has_run])
        mask = pa.array(has_run)
        fault, node, for_job = column[play.ROW_FAULT : play.ROW_FOR_JOB + 1]
        return {
            "attempt_id": keys.filter(mask),
            "gpus": pa.array(column[play.GPUS]),
            "end": states.filter(mask),
            "fault": pa.array(fault, mask=fault == 0),
            "node": _named(self.names, node, mask=node < 0),
            "for_job_id": pa.array(for_job, mask=for_job == 0).cast(pa.string()),
            "saved_s": pa.array(column[play.ROW_SAVED_S]),
            "lost_s": pa.array(column[play.ROW_LOST_S]),
            "restart_s": pa.array(column[play.ROW_RESTART_S]),
            "write_s": pa.array(column[play.ROW_WRITE_S]),
        }

    def true_attempts(self, faults: Sequence[NodeFault]) -> pa.Table:
        """The attempts as a table of the truth."""
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


_GPU_USES, _NODE_USES = list(GpuUse), list(NodeUse)


def rules_of(scenario: ClusterScenario) -> Rules:
    """What the loop needs of a scenario."""
    machines, scheduling = scenario.machines, scenario.scheduling
    return Rules(
        n_nodes=machines.nodes,
        per_node=machines.gpus_per_node,
        n_ranks=len({one.level for one in scenario.priorities}),
        end_s=scenario.period.end_s,
        pass_interval_s=scheduling.pass_interval_s,
        backfill_depth=scheduling.backfill_depth,
        preempt_after_s=scheduling.preempt_after_s,
        requeue_delay_s=scheduling.requeue_delay_s,
        most_requeues=scheduling.most_requeues,
        restart_s=scenario.checkpoints.restart_s,
        interval_s=scenario.checkpoints.interval_s,
        write_s=scenario.checkpoints.write_s,
        is_easy=scheduling.waiting == "easy-backfill",
        preempts=scheduling.preemption == "newest-first",
        step_events=EVENTS_A_STEP,
        batch_rows=BATCH_ROWS,
    )


def _ranks(scenario: ClusterScenario) -> list[int]:
    """Of each priority: the place of its level among the levels."""
    levels = sorted({one.level for one in scenario.priorities})
    return [levels.index(one.level) for one in scenario.priorities]


@dataclass(slots=True)
class Loop:
    """The board and the rules; the board is another one once it has become too short."""

    board: Board
    rules: Rules

    def ask(self, what: int, *numbers: int) -> int:
        """Ask the compiled loop; the numbers as in `play.ask`."""
        padded = (*numbers, 0, 0, 0, 0, 0)[:5]
        return int(play.ask(self.board, self.rules, what, *padded))


class LoopCalendar(Calendar):
    """What is to come of nodes; jobs that are submitted again go to the loop."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def put(self, time_s: int, kind: EventKind, number: int, about: object = None) -> None:
        """Add an event."""
        if kind == EventKind.ARRIVAL and isinstance(about, int):
            self._loop.ask(play.RESUBMIT, about, number, time_s)
        else:
            super().put(time_s, kind, number, about)

    @property
    def first(self) -> tuple[int, int] | None:
        """Time and kind of the next event."""
        return self._heap[0][:2] if self._heap else None


class LoopHours(Hours):
    """Counts and integrals that are on the board."""

    def __init__(self, loop: Loop, n_nodes: int, gpus_per_node: int) -> None:
        super().__init__(n_nodes, gpus_per_node)
        self._loop = loop

    def advance(self, now_s: int) -> None:
        """Count the time up to now."""
        board = self._loop.board
        board.hours_s[:] += (now_s - board.cell[play.HOURS_NOW]) * board.hours
        board.cell[play.HOURS_NOW] = now_s

    def move_gpus(self, before: GpuUse, after: GpuUse, gpus: int) -> None:
        """So many GPUs do something else from now on."""
        hours = self._loop.board.hours
        hours[_GPU_USES.index(before)] -= gpus
        hours[_GPU_USES.index(after)] += gpus

    def move_node(self, before: NodeUse, after: NodeUse) -> None:
        """A node does something else from now on."""
        hours = self._loop.board.hours
        hours[len(_GPU_USES) + _NODE_USES.index(before)] -= 1
        hours[len(_GPU_USES) + _NODE_USES.index(after)] += 1

    def table(self) -> pa.Table:
        """The hours, a row for each use."""
        sums_s = self._loop.board.hours_s.tolist()
        self.gpu_s = dict(zip(_GPU_USES, sums_s[: len(_GPU_USES)], strict=True))
        self.node_s = dict(zip(_NODE_USES, sums_s[len(_GPU_USES) :], strict=True))
        return super().table()


class LoopJob:
    """A running job of the loop, as faults see it."""

    def __init__(self, loop: Loop, slot: int) -> None:
        self._loop, self.slot = loop, slot
        self.number, self.gpus = (
            int(loop.board.job[slot, column]) for column in (play.NUMBER, play.GPUS)
        )

    @property
    def shown(self) -> str:
        """Its id as the scheduler shows it."""
        return str(self.number)

    @property
    def nodes(self) -> tuple[int, ...]:
        """On which it runs."""
        board, per_node = self._loop.board, self._loop.rules.per_node
        nodes = []
        place = int(board.job[self.slot, play.FIRST_PLACE])
        while place >= 0:
            nodes.append(place // per_node)
            place = int(board.place_next[place])
        return tuple(nodes)

    @property
    def stuck_s(self) -> int:
        """When a node of it stopped that nobody has noticed; -1 if none has."""
        return int(self._loop.board.job[self.slot, play.STUCK_S])

    @stuck_s.setter
    def stuck_s(self, time_s: int) -> None:
        self._loop.board.job[self.slot, play.STUCK_S] = time_s


class LoopJobs:
    """The jobs of the loop, for those who look after the health of nodes; as in `Scheduler`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def jobs_on(self, node: int) -> list[LoopJob]:
        """The jobs that run on a node, in the order of their numbers."""
        per_node = self._loop.rules.per_node
        places = self._loop.board.place_job[node * per_node : (node + 1) * per_node]
        jobs = [LoopJob(self._loop, int(slot)) for slot in places if slot >= 0]
        return sorted(jobs, key=lambda job: job.number)

    def is_open(self, node: int) -> bool:
        """Whether a node takes jobs."""
        return bool(self._loop.board.is_open[node])

    def free_gpus(self, node: int) -> int:
        """Free GPUs of a node, whether or not it takes jobs."""
        return int(self._loop.board.free[node])

    def close(self, node: int) -> None:
        """A node takes no more jobs; those that it has stay."""
        self._loop.ask(play.CLOSE, node)

    def reopen(self, node: int, now_s: int) -> None:
        """A node takes jobs again."""
        self._loop.ask(play.REOPEN, node, 0, now_s)

    def interrupt(
        self, job: LoopJob, state: str, now_s: int, *, fault: NodeFault, node: int
    ) -> None:
        """An attempt ends by a fault; the same id is requeued unless it FAILED."""
        code = ALL_STATES.index(state)
        self._loop.ask(play.INTERRUPT, job.slot, code, now_s, fault.number, node)
        fault.attempts_ended += 1

    def resubmitted(self, job: LoopJob) -> int:
        """The slot of the job as its owner submits it again under another id."""
        board = self._loop.board
        kept = board.job[job.slot].copy()
        board.cell[play.N_FREE_SLOTS] -= 1
        slot = int(board.free_slots[board.cell[play.N_FREE_SLOTS]])
        board.job[slot] = 0
        for column in (*range(play.PATIENCE_S + 1), play.TASK, play.SAVED_S):
            board.job[slot, column] = kept[column]
        board.job[slot, play.START_S] = board.job[slot, play.STUCK_S] = -1
        return slot


class LoopCluster:
    """One run of a scenario, as `SimulatedCluster`."""

    def __init__(self, scenario: ClusterScenario, seed: int, file_id: str, replay: Replay) -> None:
        machines = scenario.machines
        self._scenario, self._seed = scenario, seed
        rules = rules_of(scenario)
        self._loop = Loop(new_board(rules, _ranks(scenario)), rules)
        self.log = LoopLog(scenario, file_id, owners_of(scenario), self._loop.board)
        self._calendar = LoopCalendar(self._loop)
        self._hours = LoopHours(self._loop, machines.nodes, machines.gpus_per_node)
        self._health = Health(
            scenario,
            seed,
            self._calendar,
            LoopJobs(self._loop),
            self._hours,
            self.log,
            replay.faults,
        )
        self._days_fed = 0

    @property
    def tally(self) -> Tally:
        """How much happened."""
        cell = self._loop.board.cell
        return Tally(int(cell[play.EVENTS]), int(cell[play.SUBMITTED]))

    def play(self) -> Iterator[None]:
        """Run to the end, and pause now and then, so that what was logged can be taken."""
        self.log.inventory()
        end_s, loop = self._scenario.period.end_s, self._loop
        is_over = False
        while not is_over:
            limit = min(self._calendar.first or (end_s, 0), (end_s, 0))
            why = loop.ask(play.PLAY, *limit)
            self.log.log_notes()
            if why == play.NO_JOBS:
                self._feed()
            elif why == play.TOO_SHORT:
                loop.board = self.log.board = longer(loop.board)
            elif why == play.EMPTIED:
                self._look_at_emptied()
            elif why == play.FULL:
                yield
            elif limit == (end_s, 0):
                is_over = True
            else:
                self._happen()
        self._hours.advance(end_s)
        self._still_there(end_s)
        self._health.still_there(end_s)
        yield

    def truth(self) -> dict[str, pa.Table]:
        """What truly happened, by the name of the table."""
        faults = self._health.maker.made
        return {
            "faults": fault_rows(faults, self.log.names, self.log.at),
            "attempts": self.log.true_attempts(faults),
            "nodes": node_rows(self._scenario, self.log.names, self._health.lemons),
            "hours": self._hours.table(),
        }

    def _feed(self) -> None:
        """Give the loop the jobs of the next day."""
        board = self._loop.board
        board.cell[play.FEED_AT] = 0
        if self._days_fed >= ceil(self._scenario.period.days):
            board.cell[play.N_FEED], board.cell[play.IS_ALL_FED] = 0, 1
            return
        jobs = columns_of_day(self._scenario, self._seed, self._days_fed)
        account = jobs.user % self._scenario.users.accounts
        columns = (
            *(jobs.gpus, jobs.work_s, jobs.limit_s, jobs.outcome, jobs.user, account),
            *(jobs.priority, jobs.patience_s, jobs.requeue_s, jobs.submit_s),
        )
        feed = np.ascontiguousarray(np.stack(columns, axis=1))
        self._days_fed += 1
        board.cell[play.N_FEED] = len(feed)
        self._loop.board = self.log.board = board._replace(feed=feed)

    def _happen(self) -> None:
        """The next event of a node happens."""
        event = self._calendar.next_before(self._scenario.period.end_s, EventKind.ARRIVAL)
        if event is None:
            raise AssertionError("no event of a node is due")
        now_s, kind, number, _, about = event
        cell = self._loop.board.cell
        cell[play.EVENTS] += 1
        cell[play.NOW] = now_s
        cell[play.IS_STEP_OVER] = cell[play.EVENTS] % EVENTS_A_STEP == 0
        self._health.happen(EventKind(kind), number, about, now_s)
        self._look_at_emptied()

    def _look_at_emptied(self) -> None:
        board = self._loop.board
        nodes = board.emptied[: board.cell[play.N_EMPTIED]].tolist()
        board.cell[play.N_EMPTIED] = 0
        self._health.look_at(nodes, int(board.cell[play.NOW]))

    def _still_there(self, now_s: int) -> None:
        """Log what runs and what waits as the simulation ends."""
        board = self._loop.board
        runs = sorted({int(slot) for slot in board.place_job if slot >= 0}, key=self._number)
        for slot in runs:
            self._loop.ask(play.OPEN_ATTEMPT, slot, play.RUNNING, now_s)
        waits = board.queue[board.cell[play.QUEUE_BEGIN] : board.cell[play.QUEUE_END]].tolist()
        for slot in [*waits, *self._requeued()]:
            self._loop.ask(play.OPEN_ATTEMPT, slot, play.PENDING, now_s)

    def _number(self, slot: int) -> int:
        return int(self._loop.board.job[slot, play.NUMBER])

    def _requeued(self) -> list[int]:
        """Slots of the jobs that are not eligible again yet, in the order of their ends."""
        board = self._loop.board
        heap: list[list[int]] = board.heap[: board.cell[play.N_HEAP]].tolist()
        coming = [
            (row[play.PUT], row[play.SLOT])
            for row in heap
            if row[play.KEY] // play.KIND == EventKind.ARRIVAL and self._number(row[play.SLOT])
        ]
        return [slot for _, slot in sorted(coming)]
