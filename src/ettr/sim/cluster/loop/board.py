"""What the compiled loop reads and changes: whole numbers in arrays, times in seconds.

A job has a row of `Board.job` from its submission to its end, its slot. A node has as many places
as GPUs; a job that runs there holds one of them, and the places of one job are a chain in the order
of its nodes. Sets of nodes are words of 32 bits each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.engine import EVENTS_A_STEP
from ettr.sim.compiled import compiled
from ettr.tables.rows import BATCH_ROWS

Numbers = NDArray[np.int64]

WORD = 32
FAR_S = 1 << 60

# kinds of events, as in `EventKind`
END, ARRIVAL, IMPATIENT, REMINDER, PASS = 1, 4, 5, 6, 7

# end states; the first five as in `workload.STATES`
COMPLETED, FAILED, CANCELLED, OUT_OF_MEMORY, TIMEOUT = range(5)
NODE_FAIL, PREEMPTED, RUNNING, PENDING, REQUEUED = range(5, 10)

# why the loop stops: the limit, no jobs are left to submit, enough has been written down, arrays
# are too short, or a closed node has become empty
AT_LIMIT, NO_JOBS, FULL, TOO_SHORT, EMPTIED = range(5)

# what `Board.cell` holds
(
    NOW,
    EVENTS,
    SUBMITTED,
    LINE,
    NEXT_PASS,
    LAST_PASS,
    REMINDER_S,
    N_HEAP,
    SERIAL,
    QUEUE_BEGIN,
    QUEUE_END,
    N_FREE_SLOTS,
    N_ROWS,
    N_ROW_NODES,
    N_NOTES,
    FEED_AT,
    N_FEED,
    IS_ALL_FED,
    IS_STEP_OVER,
    N_EMPTIED,
    HOURS_NOW,
    STAMP,
    PROMISED_S,
    LEFT_S,
    N_CELLS,
) = range(25)
# columns of `Board.job`
(
    NUMBER,
    TASK,
    GPUS,
    WORK_S,
    LIMIT_S,
    OUTCOME,
    USER,
    ACCOUNT,
    PRIORITY,
    RANK,
    PATIENCE_S,
    SUBMIT_S,
    ELIGIBLE_S,
    SAVED_S,
    RESTARTS,
    ATTEMPT,
    START_S,
    STUCK_S,
    N_NODES,
    FIRST_PLACE,
    OLDER,
    NEWER,
    REQUEUE_S,
    N_JOB,
) = range(24)
# columns of `Board.feed`
(
    FEED_GPUS,
    FEED_WORK_S,
    FEED_LIMIT_S,
    FEED_OUTCOME,
    FEED_USER,
    FEED_ACCOUNT,
    FEED_PRIORITY,
    FEED_PATIENCE_S,
    FEED_SUBMIT_S,
    FEED_REQUEUE_S,
    N_FEED_COLUMNS,
) = range(11)
# columns of `Board.heap`
TIME_S, KEY, PUT, SLOT, OF_ATTEMPT, N_HEAP_COLUMNS = range(6)
KIND = 1 << 40
"""A key is the kind of an event times this, and the number of its job."""
# columns of `Board.row`, the attempts that ended or gave up
(
    ROW_NUMBER,
    ROW_TASK,
    ROW_USER,
    ROW_ACCOUNT,
    ROW_PRIORITY,
    ROW_STATE,
    ROW_SUBMIT_S,
    ROW_ELIGIBLE_S,
    ROW_START_S,
    ROW_END_S,
    ROW_NOW_S,
    ROW_LIMIT_S,
    ROW_GPUS,
    ROW_RESTARTS,
    ROW_LINE,
    ROW_N_NODES,
    ROW_SAVED_S,
    ROW_LOST_S,
    ROW_RESTART_S,
    ROW_FAULT,
    ROW_NODE,
    ROW_FOR_JOB,
    ROW_WRITE_S,
    N_ROW,
) = range(24)
# columns of `Board.notes`, the lines of the controller on preemptions
NOTE_TIME_S, NOTE_LINE, NOTE_JOB, NOTE_FOR_JOB, N_NOTE_COLUMNS = range(5)
# what GPUs and nodes do, as in `hours`
(GPUS_HELD, GPUS_FREE, GPUS_DRAINING, GPUS_OUT, NODES_OPEN, NODES_DRAINING, NODES_OUT, N_HOURS) = (
    range(8)
)


class Rules(NamedTuple):
    """What does not change: sizes, times in seconds, and what the scheduler does.

    What comes from modules outside this folder comes in here: numba would keep it as a constant.
    """

    n_nodes: int
    per_node: int
    n_ranks: int
    end_s: int
    pass_interval_s: int
    backfill_depth: int
    preempt_after_s: int
    requeue_delay_s: int
    most_requeues: int
    restart_s: int
    interval_s: int
    write_s: int
    is_easy: bool
    preempts: bool
    step_events: int
    batch_rows: int


class Board(NamedTuple):
    """What changes.

    Attributes:
        rank_of: Of each priority: its level's place among the levels, the lowest first.
        by_free: Sets of open nodes by their free GPUs, shape (GPUs of a node + 1, words).
        ready_s: As `room.Room.ready_s`, transposed.
        place_job: Slot that holds each place of a node, or -1, shape (nodes x GPUs of a node,).
        oldest: Of each rank, the running job that started first, or -1.
    """

    cell: Numbers
    rank_of: Numbers
    job: Numbers
    free_slots: Numbers
    heap: Numbers
    queue: Numbers
    feed: Numbers
    row: Numbers
    row_nodes: Numbers
    notes: Numbers
    free: Numbers
    is_open: Numbers
    by_free: Numbers
    n_by_free: Numbers
    ready_s: Numbers
    place_job: Numbers
    place_next: Numbers
    oldest: Numbers
    newest: Numbers
    hours: Numbers
    hours_s: Numbers
    emptied: Numbers
    promised: Numbers
    chosen: Numbers
    victims: Numbers
    left: Numbers
    left_stamp: Numbers


SLOTS, ROWS, NOTES = 4096, BATCH_ROWS + 8 * EVENTS_A_STEP, 1 << 14


def new_board(rules: Rules, rank_of: list[int]) -> Board:
    """An empty cluster of which every node takes jobs."""
    n_nodes, per_node = rules.n_nodes, rules.per_node
    n_words = -(-n_nodes // WORD)

    def numbers(*shape: int, value: int = 0) -> Numbers:
        return np.full(shape, value, dtype=np.int64)

    by_free = numbers(per_node + 1, n_words)
    nodes = np.arange(n_nodes)
    np.bitwise_or.at(by_free[per_node], nodes // WORD, 1 << nodes % WORD)
    n_by_free = numbers(per_node + 1)
    n_by_free[per_node] = n_nodes
    hours = numbers(N_HOURS)
    hours[GPUS_FREE], hours[NODES_OPEN] = n_nodes * per_node, n_nodes
    cell = numbers(N_CELLS)
    cell[NEXT_PASS], cell[LAST_PASS], cell[REMINDER_S] = -1, -rules.pass_interval_s, -1
    cell[N_FREE_SLOTS] = SLOTS
    return Board(
        cell=cell,
        rank_of=np.array(rank_of, dtype=np.int64),
        job=numbers(SLOTS, N_JOB),
        free_slots=np.arange(SLOTS)[::-1].copy(),
        heap=numbers(4 * SLOTS, N_HEAP_COLUMNS),
        queue=numbers(2 * SLOTS),
        feed=numbers(1, N_FEED_COLUMNS),
        row=numbers(ROWS, N_ROW),
        row_nodes=numbers(ROWS + 2 * n_nodes * per_node),
        notes=numbers(NOTES, N_NOTE_COLUMNS),
        free=numbers(n_nodes, value=per_node),
        is_open=numbers(n_nodes, value=1),
        by_free=by_free,
        n_by_free=n_by_free,
        ready_s=numbers(per_node + 1, n_nodes),
        place_job=numbers(n_nodes * per_node, value=-1),
        place_next=numbers(n_nodes * per_node, value=-1),
        oldest=numbers(rules.n_ranks, value=-1),
        newest=numbers(rules.n_ranks, value=-1),
        hours=hours,
        hours_s=numbers(N_HOURS),
        emptied=numbers(n_nodes),
        promised=numbers(n_words),
        chosen=numbers(n_nodes),
        victims=numbers(SLOTS),
        left=numbers(n_nodes),
        left_stamp=numbers(n_nodes),
    )


def longer(board: Board) -> Board:
    """The same board with twice the room for jobs, events and what is written down."""
    n_slots, n_heap, n_queue = len(board.job), len(board.heap), len(board.queue)
    job = np.zeros((2 * n_slots, N_JOB), dtype=np.int64)
    job[:n_slots] = board.job
    heap = np.zeros((2 * n_heap, N_HEAP_COLUMNS), dtype=np.int64)
    heap[:n_heap] = board.heap
    queue = np.zeros(2 * n_queue, dtype=np.int64)
    queue[:n_queue] = board.queue
    n_free = int(board.cell[N_FREE_SLOTS])
    free_slots = np.zeros(2 * n_slots, dtype=np.int64)
    free_slots[:n_slots] = np.arange(2 * n_slots - 1, n_slots - 1, -1)
    free_slots[n_slots : n_slots + n_free] = board.free_slots[:n_free]
    board.cell[N_FREE_SLOTS] = n_slots + n_free
    n_row, n_notes, n_row_nodes = 2 * len(board.row), 2 * len(board.notes), board.row_nodes.size
    row = np.zeros((n_row, N_ROW), dtype=np.int64)
    row[: len(board.row)] = board.row
    notes = np.zeros((n_notes, N_NOTE_COLUMNS), dtype=np.int64)
    notes[: len(board.notes)] = board.notes
    row_nodes = np.zeros(2 * n_row_nodes, dtype=np.int64)
    row_nodes[:n_row_nodes] = board.row_nodes
    return board._replace(
        job=job,
        heap=heap,
        queue=queue,
        free_slots=free_slots,
        row=row,
        notes=notes,
        row_nodes=row_nodes,
        victims=np.zeros(2 * n_slots, dtype=np.int64),
    )


@compiled
def is_before(board: Board, one: int, other: int) -> bool:
    """Whether an entry of the heap comes before another."""
    heap = board.heap
    if heap[one, TIME_S] != heap[other, TIME_S]:
        return bool(heap[one, TIME_S] < heap[other, TIME_S])
    if heap[one, KEY] != heap[other, KEY]:
        return bool(heap[one, KEY] < heap[other, KEY])
    return bool(heap[one, PUT] < heap[other, PUT])


@compiled
def swap(board: Board, one: int, other: int) -> None:
    """Exchange two entries."""
    heap = board.heap
    for column in range(heap.shape[1]):
        kept = heap[one, column]
        heap[one, column] = heap[other, column]
        heap[other, column] = kept


@compiled
def put(board: Board, time_s: int, kind: int, number: int, slot: int, attempt: int) -> None:
    """Add an event."""
    cell, heap = board.cell, board.heap
    at = cell[N_HEAP]
    cell[N_HEAP] += 1
    cell[SERIAL] += 1
    heap[at, TIME_S] = time_s
    heap[at, KEY] = kind * KIND + number
    heap[at, PUT] = cell[SERIAL]
    heap[at, SLOT] = slot
    heap[at, OF_ATTEMPT] = attempt
    while at > 0 and is_before(board, at, (at - 1) // 2):
        swap(board, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled
def drop_first(board: Board) -> None:
    """Remove the first event."""
    cell = board.cell
    cell[N_HEAP] -= 1
    n = cell[N_HEAP]
    swap(board, 0, n)
    at, first = 0, 1
    while first < n:
        if first + 1 < n and is_before(board, first + 1, first):
            first += 1
        if not is_before(board, first, at):
            return
        swap(board, at, first)
        at, first = first, 2 * first + 1
