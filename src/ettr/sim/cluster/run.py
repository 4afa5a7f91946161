"""A scenario simulated into a store, its truth in a folder of its own, and the hours in it.

The cluster's jobs run in the compiled loop, which leaves the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import StoreError
from ettr.sim.cluster import play
from ettr.sim.cluster.engine import ClusterRun, SimulatedCluster, Tally
from ettr.sim.cluster.faults import NodeFault
from ettr.sim.cluster.log import (
    ALL_STATES,
    AttemptColumns,
    Hours,
    LoggedAttempts,
    SiteLog,
    batches,
    check_truth_folder,
    joined,
    write_truth,
)
from ettr.sim.cluster.play import EVENTS_A_STEP, Board, Rules, longer, new_board
from ettr.sim.cluster.room import Calendar, EventKind
from ettr.sim.cluster.scenario import ClusterScenario, Owners, check_owners, owners_of
from ettr.sim.cluster.standing import ScenarioStanding, standing_lines, standing_of
from ettr.sim.cluster.workload import (
    DRAWN,
    Replay,
    columns_of_day,
    not_simulated,
    not_simulated_lines,
    overfull_series,
)
from ettr.sim.compiled import engine_name
from ettr.store.base import Store
from ettr.store.writing import write_batches
from ettr.tables import ATTEMPTS
from ettr.tables.rows import BATCH_ROWS, SIMULATION, Batch
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR
from ettr.words import counted


class LoopLog(SiteLog):
    """A log whose attempts come from the loop; lines are counted on its board."""

    def __init__(self, scenario: ClusterScenario, file_id: str, owners: Owners, loop: Loop) -> None:
        super().__init__(scenario, file_id, owners)
        self._loop = loop
        self._n_noted = 0

    def log_notes(self) -> None:
        """Log the controller's lines on preemptions, before anything later is logged."""
        n_rows = int(self._loop.board.cell[play.N_ROWS])
        rows = self._loop.board.row[self._n_noted : n_rows]
        self._n_noted = n_rows
        for row in rows[rows[:, play.ROW_STATE] == play.PREEMPTED].tolist():
            job_id, for_job_id = str(row[play.NUMBER]), str(row[play.ROW_FOR_JOB])
            self.preempted(job_id, for_job_id, row[play.ROW_END_S], row[play.ROW_LINE] - 1)
            self._rows.count_read()

    def next_line(self) -> int:
        """The number of the next line."""
        self._loop.board.cell[play.LINE] += 1
        self._rows.count_read()
        return int(self._loop.board.cell[play.LINE])

    def batch(self) -> Batch:
        """What was collected since the last batch."""
        self._rows.count_read(int(self._loop.board.cell[play.N_ROWS]))
        return super().batch()

    def _n_attempt_rows(self) -> int:
        return int(self._loop.board.cell[play.N_ROWS] + self._loop.board.cell[play.N_ROW_NODES])

    def _taken(self) -> LoggedAttempts:
        cell = self._loop.board.cell
        rows = self._loop.board.row[: cell[play.N_ROWS]]
        network_s = np.zeros(len(rows), dtype=np.int64)  # links cost nothing here
        # each by itself: who keeps one in an Arrow table keeps no others with it
        columns = AttemptColumns._make([*(rows[:, at].copy() for at in _COLUMNS), network_s])
        number = pa.array(rows[:, play.NUMBER]).cast(pa.string())
        for_job = rows[:, play.ROW_FOR_JOB]
        levels = np.array([one.level for one in self._scenario.priorities], dtype=np.int64)
        own = {
            "job_id": number,
            "job_id_raw": number,
            "name": joined("task", pa.array(columns.task).cast(pa.string())),
            "priority": pa.array(levels[columns.priority]),
            "for_job_id": pa.array(for_job, mask=for_job == 0).cast(pa.string()),
        }
        return LoggedAttempts(columns, own, self._loop.board.row_nodes[: cell[play.N_ROW_NODES]])

    def _forget(self) -> None:
        self._loop.board.cell[play.N_ROWS] = self._loop.board.cell[play.N_ROW_NODES] = 0
        self._n_noted = 0


_COLUMNS = (
    *(play.TASK, play.GPUS, play.LIMIT_S, play.USER, play.ACCOUNT, play.PRIORITY, play.SUBMIT_S),
    *(play.ELIGIBLE_S, play.RESTARTS, play.START_S, play.N_NODES, play.ROW_STATE, play.ROW_END_S),
    *(play.ROW_NOW_S, play.ROW_LINE, play.ROW_FAULT, play.ROW_NODE, play.ROW_SAVED_S),
    *(play.ROW_LOST_S, play.ROW_RESTART_S, play.ROW_WRITE_S),
)
"""Where `Board.row` has the columns of `AttemptColumns`."""


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

    def resubmit(self, job: LoopJob, at_s: int) -> None:
        """The owner of a job that has ended submits it again under another id."""
        self._loop.ask(play.RESUBMIT, job.slot, 0, at_s)


class LoopCluster(ClusterRun):
    """One run of a scenario in the compiled loop, as `SimulatedCluster`."""

    log: LoopLog

    def __init__(self, scenario: ClusterScenario, seed: int, file_id: str, replay: Replay) -> None:
        rules = rules_of(scenario)
        hours = Hours(rules.n_nodes, rules.per_node)
        self._loop = loop = Loop(new_board(rules, _ranks(scenario), hours), rules)
        log = LoopLog(scenario, file_id, owners_of(scenario), loop)
        super().__init__(scenario, seed, Calendar(), LoopJobs(loop), hours, log, replay.faults)
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
                loop.board = longer(loop.board)
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

    def _feed(self) -> None:
        """Give the loop the jobs of the next day."""
        board = self._loop.board
        board.cell[play.FEED_AT] = 0
        if self._days_fed >= ceil(self._scenario.period.days):
            board.cell[play.N_FEED], board.cell[play.IS_ALL_FED] = 0, 1
            return
        jobs = columns_of_day(self._scenario, self._seed, self._days_fed)
        feed = np.ascontiguousarray(np.stack(jobs[: play.N_FEED_COLUMNS], axis=1))
        self._days_fed += 1
        board.cell[play.N_FEED] = len(feed)
        self._loop.board = board._replace(feed=feed)

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


# -- into a store --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterHours:
    """GPU-hours of one simulated cluster, and what ended attempts.

    Attributes:
        write_gpu_hours: Held up by writes of checkpoints; neither useful nor lost.
        network_gpu_hours: Lost to bad and shared links ([links]).
        held_share: Of all GPU-hours, those that jobs held, the utilisation; None where there are
            no GPU-hours.
        first_wait_s: Mean wait of the jobs that started, from when they were eligible until they
            first started; None where none started or the log was not read. Likewise of the largest
            jobs, and of those of the highest priority.
    """

    useful_gpu_hours: float
    lost_gpu_hours: float
    out_gpu_hours: float
    failed_attempts: int
    preemptions: int
    write_gpu_hours: float = 0.0
    held_share: float | None = None
    first_wait_s: float | None = None
    largest_first_wait_s: float | None = None
    highest_first_wait_s: float | None = None
    network_gpu_hours: float = 0.0

    @property
    def wasted_gpu_hours(self) -> float:
        """Lost, out of service, or held up by writes or links."""
        held_up = self.write_gpu_hours + self.network_gpu_hours
        return self.lost_gpu_hours + self.out_gpu_hours + held_up


FirstWaits = tuple[float | None, float | None, float | None]
"""Mean first waits in seconds as in `ClusterHours`: of all jobs, of the largest, the highest."""


def first_waits(largest_gpus: int, batches: Iterable[Batch], highest: str = "") -> FirstWaits:
    """The mean first waits of the jobs that started in what was logged.

    Args:
        highest: Name of the highest priority; empty where there is one priority.
    """
    jobs, waits_s = [0, 0, 0], [0.0, 0.0, 0.0]
    for batch in batches:
        table = batch.tables.get(ATTEMPTS.name)
        if table is None:
            continue
        # a requeued job keeps its id, and its later attempts count their restarts
        first = pc.and_(pc.equal(table["restarts"], 0), table["start"].is_valid())
        table = table.filter(first)
        since = pc.coalesce(table["eligible"], table["submit"])
        wait_s = np.maximum(_us(table["start"]) - _us(since), 0) / MICROSECONDS_PER_SECOND
        is_largest = table["requested_gpus"].to_numpy() >= largest_gpus
        is_highest = pc.and_(pc.equal(table["qos"], highest), highest != "").to_numpy()
        for k, own_s in enumerate((wait_s, wait_s[is_largest], wait_s[is_highest])):
            jobs[k] += own_s.size
            waits_s[k] += float(own_s.sum())
    every, largest, of_highest = (
        total_s / n if n else None for n, total_s in zip(jobs, waits_s, strict=True)
    )
    return every, largest, of_highest


def _us(times: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    made: np.ndarray[Any, np.dtype[np.int64]] = times.cast(pa.int64()).to_numpy()
    return made


def hours_of_truth(
    tables: Mapping[str, pa.Table], waits: FirstWaits = (None, None, None)
) -> ClusterHours:
    """Sum the hours of a run from the tables `attempts` and `hours` of its truth."""
    attempts = tables["attempts"]
    gpus, saved_s, lost_s, restart_s = (
        attempts[name].to_numpy().astype(np.float64)
        for name in ("gpus", "saved_s", "lost_s", "restart_s")
    )
    by_fault = attempts["fault"].is_valid().to_numpy()
    preempted = pc.equal(attempts["end"], "PREEMPTED").to_numpy()
    interrupted = by_fault | preempted
    held_up_gpu_s = {  # where they cost something (`attempts_schema`)
        name: float(gpus @ attempts[name].to_numpy()) if name in attempts.column_names else 0.0
        for name in ("write_s", "network_s")
    }
    hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    all_hours = sum(hours.values())
    return ClusterHours(
        useful_gpu_hours=float(gpus @ saved_s) / SECONDS_PER_HOUR,
        lost_gpu_hours=float(gpus[interrupted] @ lost_s[interrupted] + gpus @ restart_s)
        / SECONDS_PER_HOUR,
        out_gpu_hours=hours["out of service"] + hours["free on a draining node"],
        failed_attempts=int(by_fault.sum()),
        preemptions=int(preempted.sum()),
        write_gpu_hours=held_up_gpu_s["write_s"] / SECONDS_PER_HOUR,
        network_gpu_hours=held_up_gpu_s["network_s"] / SECONDS_PER_HOUR,
        held_share=hours["held by jobs"] / all_hours if all_hours else None,
        first_wait_s=waits[0],
        largest_first_wait_s=waits[1],
        highest_first_wait_s=waits[2],
    )


@dataclass(frozen=True, slots=True)
class SimulatedStore:
    """What a simulation wrote."""

    scenario: str
    seed: int
    nodes: int
    days: float
    jobs: int
    attempts: int
    faults: int
    failed_attempts: int
    held_share: float
    lost_gpu_hours: float
    events: int
    cpu_s: float
    cpu_us_per_event: float
    truth: str
    assumed: int
    values: int
    standing: ScenarioStanding
    not_simulated: tuple[str, ...]
    replayed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_run(scenario: ClusterScenario, truth: Path, replay: Replay = DRAWN) -> None:
    """Check a run before anything is written; raises UsageError or StoreError."""
    check_owners(scenario, replay.owners or owners_of(scenario))
    check_truth_folder(truth)


def simulate_into(
    store: Store,
    scenario: ClusterScenario,
    seed: int,
    text: str,
    name: str,
    truth: Path,
    progress: Callable[[int], None] | None = None,
    replay: Replay = DRAWN,
) -> SimulatedStore:
    """Simulate a scenario into a store that is empty.

    Args:
        truth: An empty or new folder.

    Raises:
        UsageError: a quota or shares are of nobody.
        StoreError: the store holds something, the folder does, or either cannot be written.
    """
    if store.files():
        raise StoreError(
            f"{store.where}: holds logs already; simulated rows never mix with others: give a new "
            "store"
        )
    check_run(scenario, truth, replay)
    began_s = process_time()
    what = f"{SIMULATION}\0{text}\0{seed}" + ("" if replay is DRAWN else f"\0{replay.digest}")
    key = hashlib.sha256(what.encode()).hexdigest()[:16]
    cluster = simulated_cluster(scenario, seed, key, replay)
    with store.ingestion(key) as ingestion:
        written = write_batches(ingestion, batches(cluster.log, cluster.play()), progress)
        ingestion.commit(
            {
                "name": name,
                "source": SIMULATION,
                "size_bytes": len(text.encode()),
                "rows_read": written.rows_read,
                "rows_rejected": 0,
                "rows_folded": written.rows_folded,
                "rows_skipped": 0,
                "timezone": None,
                "options": json.dumps(_options(scenario, seed, replay)),
                "notes": "\n".join([*_notes(scenario, seed, replay), *replay.notes]),
            }
        )
    tables = cluster.truth()
    write_truth(truth, tables, text)
    cpu_s = process_time() - began_s
    gpu_hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    hours = hours_of_truth(tables)
    return SimulatedStore(
        scenario=scenario.name,
        seed=seed,
        nodes=scenario.machines.nodes,
        days=scenario.period.days,
        jobs=cluster.tally.jobs,
        attempts=dict(written.rows).get("attempts", 0),
        faults=pc.sum(pc.invert(tables["faults"]["is_false_alarm"])).as_py() or 0,
        failed_attempts=hours.failed_attempts,
        held_share=gpu_hours["held by jobs"] / sum(gpu_hours.values()),
        lost_gpu_hours=hours.lost_gpu_hours,
        events=cluster.tally.events,
        cpu_s=cpu_s,
        cpu_us_per_event=1e6 * cpu_s / max(1, cluster.tally.events),
        truth=str(truth),
        assumed=scenario.n_assumed,
        values=len(scenario.sources),
        standing=standing_of(scenario, replay.what),
        replayed=(*replay.notes, *_passed_over(replay, tables["faults"].num_rows)),
        not_simulated=not_simulated(scenario),
        warnings=overfull_series([scenario], replay),
    )


def _notes(scenario: ClusterScenario, seed: int, replay: Replay) -> tuple[str, ...]:
    """What every report of the store says of the simulation, a line each."""
    return (
        f"Simulated from scenario {scenario.name} with seed {seed}; {scenario.n_assumed} of its "
        f"{counted(len(scenario.sources), 'value')} are assumed. It began with an empty cluster.",
        *overfull_series([scenario], replay),
        *not_simulated_lines(not_simulated(scenario)),
        *standing_lines(standing_of(scenario, replay.what)),
    )


def _options(scenario: ClusterScenario, seed: int, replay: Replay) -> dict[str, object]:
    """What a report of the store says of the simulation, as its file has it."""
    standing = standing_of(scenario, replay.what)
    return {
        "seed": seed,
        "back_test": standing.verdict,
        "not_validated": standing.not_validated,
        "not_simulated": not_simulated(scenario),
    }


def _passed_over(replay: Replay, arisen: int) -> tuple[str, ...]:
    """How many of the replayed faults came to nodes that were out of service."""
    n = len(replay.faults or ()) - arisen
    if replay.faults is None or not n:
        return ()
    return (f"{counted(n, 'replayed fault')} came to a node that was out of service in the run.",)


AnyCluster = SimulatedCluster | LoopCluster
MANY_JOBS = 100_000
"""From so many jobs on the compiled loop is quicker although it may have to be compiled first."""


def simulated_cluster(
    scenario: ClusterScenario, seed: int, file_id: str, replay: Replay = DRAWN
) -> AnyCluster:
    """One run of a scenario, by the engine that is quicker for it."""
    n_jobs = scenario.arrivals.jobs_per_day * scenario.period.days
    if n_jobs >= MANY_JOBS and engine_name() != "interpreted" and loop_can(scenario, replay):
        return LoopCluster(scenario, seed, file_id, replay)
    return SimulatedCluster(scenario, seed, file_id, replay)


def loop_can(scenario: ClusterScenario, replay: Replay = DRAWN) -> bool:
    """Whether the loop knows all that a scenario asks for."""
    others = (scenario.quotas, scenario.arrays, scenario.fair_share, scenario.links)
    loops = scenario.outcomes.crash_loop_share > 0
    return (
        not any(others)
        and not any(job.series for job in scenario.jobs)
        and replay.jobs is None  # none at all are replayed, too
        and not loops
        and scenario.checks.policy == "none"
        and scenario.scheduling.waiting in ("easy-backfill", "in-order")
        and scenario.scheduling.preemption in ("newest-first", "none")
    )
