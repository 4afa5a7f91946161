"""The loop over the events of jobs, until something comes that is not of jobs."""

from __future__ import annotations

from pathlib import Path

from ettr.sim.cluster.loop.attempts import (
    end,
    give_up,
    interrupt,
    request_pass,
    still_open,
)
from ettr.sim.cluster.loop.board import (
    ACCOUNT,
    ARRIVAL,
    AT_LIMIT,
    ATTEMPT,
    ELIGIBLE_S,
    EMPTIED,
    END,
    EVENTS,
    FAR_S,
    FEED_ACCOUNT,
    FEED_AT,
    FEED_GPUS,
    FEED_LIMIT_S,
    FEED_OUTCOME,
    FEED_PATIENCE_S,
    FEED_PRIORITY,
    FEED_REQUEUE_S,
    FEED_SUBMIT_S,
    FEED_USER,
    FEED_WORK_S,
    FULL,
    GPUS,
    IMPATIENT,
    IS_ALL_FED,
    IS_STEP_OVER,
    KEY,
    KIND,
    LIMIT_S,
    N_EMPTIED,
    N_FEED,
    N_FREE_SLOTS,
    N_HEAP,
    N_NOTES,
    N_ROW_NODES,
    N_ROWS,
    NO_JOBS,
    NOW,
    NUMBER,
    OF_ATTEMPT,
    OUTCOME,
    PASS,
    PATIENCE_S,
    PRIORITY,
    QUEUE_BEGIN,
    QUEUE_END,
    RANK,
    REQUEUE_S,
    RESTARTS,
    SLOT,
    START_S,
    STUCK_S,
    SUBMIT_S,
    SUBMITTED,
    TASK,
    TIME_S,
    TOO_SHORT,
    USER,
    WORK_S,
    Board,
    Rules,
    drop_first,
    put,
)
from ettr.sim.cluster.loop.nodes import move, update_ready
from ettr.sim.cluster.loop.passes import do_pass
from ettr.sim.compiled import compiled, compiled_entry_over


@compiled
def enqueue(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """A job waits for nodes from now on."""
    enter(board, slot)
    request_pass(board, rules, now_s)


@compiled
def submit(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """A job comes for the first time, and gets its id."""
    job, cell = board.job, board.cell
    cell[SUBMITTED] += 1
    job[slot, NUMBER] = cell[SUBMITTED]
    if job[slot, TASK] == 0:
        job[slot, TASK] = job[slot, NUMBER]
    job[slot, SUBMIT_S] = now_s
    job[slot, ELIGIBLE_S] = now_s
    job[slot, RANK] = board.rank_of[job[slot, PRIORITY]]
    if now_s + job[slot, PATIENCE_S] < rules.end_s:
        put(board, now_s + job[slot, PATIENCE_S], IMPATIENT, job[slot, NUMBER], slot, 0)
    enqueue(board, rules, slot, now_s)


@compiled
def next_from_feed(board: Board) -> int:
    """A slot with the next job of the feed."""
    job, cell = board.job, board.cell
    cell[N_FREE_SLOTS] -= 1
    slot = board.free_slots[cell[N_FREE_SLOTS]]
    one = board.feed[cell[FEED_AT]]
    cell[FEED_AT] += 1
    for column in range(job.shape[1]):
        job[slot, column] = 0
    job[slot, GPUS] = one[FEED_GPUS]
    job[slot, WORK_S] = one[FEED_WORK_S]
    job[slot, LIMIT_S] = one[FEED_LIMIT_S]
    job[slot, OUTCOME] = one[FEED_OUTCOME]
    job[slot, USER] = one[FEED_USER]
    job[slot, ACCOUNT] = one[FEED_ACCOUNT]
    job[slot, PRIORITY] = one[FEED_PRIORITY]
    job[slot, PATIENCE_S] = one[FEED_PATIENCE_S]
    job[slot, REQUEUE_S] = one[FEED_REQUEUE_S]
    job[slot, START_S] = -1
    job[slot, STUCK_S] = -1
    return int(slot)


@compiled
def is_short(board: Board) -> bool:
    """Whether the next event might need longer arrays."""
    cell = board.cell
    n_places = board.place_job.size  # an event may end every job
    n_jobs = len(board.job) - cell[N_FREE_SLOTS]
    return bool(
        cell[N_FREE_SLOTS] < 64
        or cell[N_HEAP] + 2 * n_jobs + 128 > len(board.heap)
        or cell[QUEUE_END] - cell[QUEUE_BEGIN] + 64 > board.queue.size
        or cell[N_ROWS] + n_jobs + 64 > len(board.row)
        or cell[N_NOTES] + n_jobs + 64 > len(board.notes)
        or cell[N_ROW_NODES] + n_places + 64 > board.row_nodes.size
    )


@compiled
def happen(board: Board, rules: Rules, now_s: int) -> None:
    """The first event of the heap happens."""
    cell, heap, job = board.cell, board.heap, board.job
    kind, number = heap[0, KEY] // KIND, heap[0, KEY] % KIND
    slot, attempt = heap[0, SLOT], heap[0, OF_ATTEMPT]
    drop_first(board)
    cell[EVENTS] += 1
    cell[NOW] = now_s
    cell[IS_STEP_OVER] = cell[EVENTS] % rules.step_events == 0
    if kind == PASS:
        do_pass(board, rules, now_s)
    elif kind == END:
        runs = job[slot, NUMBER] == number and job[slot, START_S] >= 0
        if runs and job[slot, ATTEMPT] == attempt and job[slot, STUCK_S] < 0:
            end(board, rules, slot, now_s)
    elif kind == ARRIVAL:
        if job[slot, NUMBER] > 0:
            enqueue(board, rules, slot, now_s)
        else:
            submit(board, rules, slot, now_s)
    elif kind == IMPATIENT:
        waits = job[slot, NUMBER] == number and job[slot, START_S] < 0
        if waits and job[slot, RESTARTS] == 0 and job[slot, ATTEMPT] == 0:
            drop(board, place_of(board, slot))
            give_up(board, rules, slot, now_s)
    else:
        request_pass(board, rules, now_s)


@compiled
def play(board: Board, rules: Rules, limit_s: int, limit_kind: int) -> int:
    """Let happen what comes before an event of that time and kind; returns why it stops."""
    cell = board.cell
    stop = -1
    while stop < 0:
        is_over = cell[FEED_AT] >= cell[N_FEED]
        next_s = rules.end_s if is_over else board.feed[cell[FEED_AT], FEED_SUBMIT_S]
        has_event = cell[N_HEAP] > 0
        event_s = board.heap[0, TIME_S] if has_event else 0
        kind = board.heap[0, KEY] // KIND if has_event else 0
        if cell[N_EMPTIED] > 0:
            stop = EMPTIED
        elif is_step_full(board, rules):
            stop = FULL
        elif is_short(board):
            stop = TOO_SHORT
        elif is_over and not cell[IS_ALL_FED]:
            stop = NO_JOBS
        elif has_event and (event_s < next_s or (event_s == next_s and kind <= ARRIVAL)):
            if event_s > limit_s or (event_s == limit_s and kind > limit_kind):
                stop = AT_LIMIT
            else:
                happen(board, rules, event_s)
        elif next_s > limit_s or (next_s == limit_s and limit_kind < ARRIVAL):
            stop = AT_LIMIT
        else:
            cell[EVENTS] += 1
            cell[NOW] = next_s
            submit(board, rules, next_from_feed(board), next_s)
    return stop


@compiled
def is_step_full(board: Board, rules: Rules) -> bool:
    """Whether a step of events is over, and enough has been written down."""
    cell = board.cell
    if not cell[IS_STEP_OVER]:
        return False
    cell[IS_STEP_OVER] = 0
    return bool(cell[N_ROWS] + cell[N_ROW_NODES] >= rules.batch_rows)


@compiled
def close(board: Board, rules: Rules, node: int) -> None:
    """A node takes no more jobs; those that it has stay."""
    if not board.is_open[node]:
        return
    move(board, node, board.free[node], -1)
    board.is_open[node] = 0
    for gpus in range(rules.per_node + 1):
        board.ready_s[gpus, node] = FAR_S


@compiled
def reopen(board: Board, rules: Rules, node: int, now_s: int) -> None:
    """A repaired node takes jobs again."""
    board.is_open[node] = 1
    move(board, node, -1, board.free[node])
    update_ready(board, rules, node)
    request_pass(board, rules, now_s)


PLAY, INTERRUPT, OPEN_ATTEMPT, CLOSE, REOPEN, RESUBMIT = range(6)


@compiled_entry_over(Path(__file__).parent)
def ask(
    board: Board, rules: Rules, what: int, one: int, other: int, now_s: int, more: int, most: int
) -> int:
    """The one door from Python: what is asked, by the names above, and its numbers."""
    if what == PLAY:
        return play(board, rules, one, other)
    if what == INTERRUPT:
        interrupt(board, rules, one, other, now_s, more, most, 0)
    elif what == OPEN_ATTEMPT:
        still_open(board, rules, one, other, now_s)
    elif what == CLOSE:
        close(board, rules, one)
    elif what == REOPEN:
        reopen(board, rules, one, now_s)
    else:
        put(board, now_s, ARRIVAL, other, one, 0)
    return 0


@compiled
def goes_before(board: Board, one: int, other: int) -> bool:
    """Whether one job comes before another in the queue."""
    job = board.job
    if job[one, RANK] != job[other, RANK]:
        return bool(job[one, RANK] > job[other, RANK])
    if job[one, SUBMIT_S] != job[other, SUBMIT_S]:
        return bool(job[one, SUBMIT_S] < job[other, SUBMIT_S])
    return bool(job[one, NUMBER] < job[other, NUMBER])


@compiled
def place_of(board: Board, slot: int) -> int:
    """The place in the queue where a job is, or belongs."""
    low, high = board.cell[QUEUE_BEGIN], board.cell[QUEUE_END]
    while low < high:
        middle = (low + high) // 2
        if goes_before(board, board.queue[middle], slot):
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def enter(board: Board, slot: int) -> None:
    """A job comes into the queue."""
    cell, queue = board.cell, board.queue
    if cell[QUEUE_END] == queue.size:
        # those that left at its front have left room there
        begin = cell[QUEUE_BEGIN]
        for at in range(begin, cell[QUEUE_END]):
            queue[at - begin] = queue[at]
        cell[QUEUE_END] -= begin
        cell[QUEUE_BEGIN] = 0
    place, at = place_of(board, slot), cell[QUEUE_END]
    while at > place:
        queue[at] = queue[at - 1]
        at -= 1
    queue[place] = slot
    cell[QUEUE_END] += 1


@compiled
def drop(board: Board, place: int) -> None:
    """The job at a place leaves the queue."""
    cell, queue = board.cell, board.queue
    cell[QUEUE_END] -= 1
    for at in range(place, cell[QUEUE_END]):
        queue[at] = queue[at + 1]
