"""The compiled loop over the events of jobs, and the board of whole numbers that it changes.

A job has a row of `Board.job` from its submission to its end, its slot. A node has as many places
as GPUs; a job that runs there holds one of them, and the places of one job are a chain in the order
of its nodes. Sets of nodes are words of 32 bits each. Times are in seconds. Nodes with room are as
in `room`, starts and ends of attempts as in `scheduler`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.log import Hours
from ettr.sim.compiled import compiled, compiled_entry_over
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
NOW, EVENTS, SUBMITTED, LINE, NEXT_PASS, LAST_PASS, REMINDER_S, N_HEAP, SERIAL = range(9)
QUEUE_BEGIN, QUEUE_END, N_FREE_SLOTS, N_ROWS, N_ROW_NODES, N_EMPTIED = range(9, 15)
FEED_AT, N_FEED, IS_ALL_FED, IS_STEP_OVER = range(15, 19)
PROMISED_S, LEFT_S, N_CELLS = range(19, 22)
# columns of `Board.feed`, and the first of `Board.job`
GPUS, WORK_S, LIMIT_S, OUTCOME, USER, ACCOUNT, PRIORITY, PATIENCE_S = range(8)
REQUEUE_S, SUBMIT_S, N_FEED_COLUMNS = range(8, 11)
# further columns of `Board.job`, which are the first of `Board.row`
NUMBER, TASK, RANK, ELIGIBLE_S, SAVED_S, RESTARTS, ATTEMPT, START_S, STUCK_S = range(10, 19)
N_NODES, FIRST_PLACE, OLDER, NEWER, N_JOB = range(19, 24)
# further columns of `Board.row`, the attempts that ended or gave up
ROW_STATE, ROW_END_S, ROW_NOW_S, ROW_LINE, ROW_FAULT, ROW_NODE, ROW_FOR_JOB = range(23, 30)
ROW_SAVED_S, ROW_LOST_S, ROW_RESTART_S, ROW_WRITE_S, N_ROW = range(30, 35)
# columns of `Board.heap`
TIME_S, KEY, PUT, SLOT, OF_ATTEMPT, N_HEAP_COLUMNS = range(6)
KIND = 1 << 40
"""A key is the kind of an event times this, and the number of its job."""
# the first of what GPUs and nodes do, as in `log.Use`
GPUS_HELD, GPUS_FREE, GPUS_DRAINING = range(3)
N_HOURS = 7


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
    batch_rows: int


class Board(NamedTuple):
    """What changes.

    Attributes:
        rank_of: Of each priority: its level's place among the levels, the lowest first.
        by_free: Sets of open nodes by their free GPUs, shape (GPUs of a node + 1, words).
        ready_s: As `room.Room.ready_s`, transposed.
        place_job: Slot that holds each place of a node, or -1, shape (nodes x GPUs of a node,).
        newest: Of each rank, the running job that started last, or -1.
        hours: As `Hours.counts`; `hours_s` as `Hours.sums_s`.
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
    free: Numbers
    is_open: Numbers
    by_free: Numbers
    n_by_free: Numbers
    ready_s: Numbers
    place_job: Numbers
    place_next: Numbers
    newest: Numbers
    hours: Numbers
    hours_s: Numbers
    emptied: Numbers
    promised: Numbers
    chosen: Numbers
    victims: Numbers
    left: Numbers


EVENTS_A_STEP = 2000
"""Every so many events it is looked whether enough has been logged for a batch."""
SLOTS, ROWS = 4096, BATCH_ROWS + 8 * EVENTS_A_STEP


def new_board(rules: Rules, rank_of: list[int], hours: Hours) -> Board:
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
        free=numbers(n_nodes, value=per_node),
        is_open=numbers(n_nodes, value=1),
        by_free=by_free,
        n_by_free=n_by_free,
        ready_s=numbers(per_node + 1, n_nodes),
        place_job=numbers(n_nodes * per_node, value=-1),
        place_next=numbers(n_nodes * per_node, value=-1),
        newest=numbers(rules.n_ranks, value=-1),
        hours=hours.counts,
        hours_s=hours.sums_s,
        emptied=numbers(n_nodes),
        promised=numbers(n_words),
        chosen=numbers(n_nodes),
        victims=numbers(SLOTS),
        left=numbers(n_nodes),
    )


def longer(board: Board) -> Board:
    """The same board with twice the room for jobs, events and what is written down."""

    def twice(values: Numbers) -> Numbers:
        made = np.zeros((2 * len(values), *values.shape[1:]), dtype=np.int64)
        made[: len(values)] = values
        return made

    n_slots = len(board.job)
    board.cell[N_FREE_SLOTS] += n_slots
    names = ("job", "heap", "queue", "row", "row_nodes", "victims")
    return board._replace(
        free_slots=np.append(np.arange(n_slots, 2 * n_slots)[::-1], board.free_slots),
        **{name: twice(getattr(board, name)) for name in names},
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


# -- nodes with room, and the start and end of an attempt -----------------------------------------


ANYWHERE, NOT_PROMISED, RATHER_PROMISED = range(3)
_ALL = (1 << WORD) - 1
_STEPS_GROW = 8


@compiled
def n_members(word: int) -> int:
    """How many bits of a word are set."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) & _ALL) >> 24


@compiled
def lowest(word: int) -> int:
    """The place of the lowest bit of a word that has one."""
    return n_members((word & -word) - 1)


@compiled
def move(board: Board, node: int, before: int, after: int) -> None:
    """An open node has as many free GPUs now; -1 for a node that was or is closed."""
    word, bit = node // WORD, 1 << (node % WORD)
    if before >= 0:
        board.by_free[before, word] ^= bit
        board.n_by_free[before] -= 1
    if after >= 0:
        board.by_free[after, word] ^= bit
        board.n_by_free[after] += 1


@compiled
def choose(board: Board, rules: Rules, gpus: int, how: int) -> int:
    """Choose the nodes for a job, ascending in `Board.chosen`; their number, 0 if it has no room.

    As `room.place`: the fullest node with room, or the first that are empty.
    """
    per_node = rules.per_node
    if gpus >= per_node:
        return choose_empty(board, gpus // per_node, per_node, how)
    for free in range(gpus, per_node):
        if board.n_by_free[free] > 0 and choose_first(board, free, how):
            return 1
    return 1 if board.n_by_free[per_node] > 0 and choose_first(board, per_node, how) else 0


@compiled
def choose_first(board: Board, free: int, how: int) -> bool:
    """Choose the first node with so many free GPUs, promised ones left out if asked."""
    for word in range(board.promised.size):
        found = board.by_free[free, word]
        if how == NOT_PROMISED:
            found &= ~board.promised[word]
        if found:
            board.chosen[0] = word * WORD + lowest(found)
            return True
    return False


@compiled
def choose_empty(board: Board, n_nodes: int, per_node: int, how: int) -> int:
    """Choose empty nodes: the first; where asked the promised ones before the others."""
    if board.n_by_free[per_node] < n_nodes:
        return 0
    n_promised = 0
    if how != ANYWHERE:
        for word in range(board.promised.size):
            n_promised += n_members(board.by_free[per_node, word] & board.promised[word])
    if how == NOT_PROMISED and board.n_by_free[per_node] - n_promised < n_nodes:
        return 0
    n_liked = min(n_nodes, n_promised) if how == RATHER_PROMISED else 0
    n_others = n_nodes - n_liked
    found = 0
    for word in range(board.promised.size):
        if found == n_nodes:
            return n_nodes
        left = board.by_free[per_node, word]
        while left:
            bit = left & -left
            left ^= bit
            if how != ANYWHERE and board.promised[word] & bit:
                if n_liked == 0:
                    continue
                n_liked -= 1
            else:
                if n_others == 0:
                    continue
                n_others -= 1
            board.chosen[found] = word * WORD + lowest(bit)
            found += 1
    return found


@compiled
def take(board: Board, rules: Rules, slot: int, n_nodes: int) -> None:
    """Give a job the chosen nodes; it has its start."""
    job, per_node = board.job, rules.per_node
    on_each = min(job[slot, GPUS], per_node)
    until_s = job[slot, START_S] + job[slot, LIMIT_S]
    before = -1
    for i in range(n_nodes):
        node = board.chosen[i]
        at = node * per_node
        while board.place_job[at] >= 0:
            at += 1
        board.place_job[at] = slot
        board.place_next[at] = -1
        if before < 0:
            job[slot, FIRST_PLACE] = at
        else:
            board.place_next[before] = at
        before = at
        free = board.free[node]
        move(board, node, free, free - on_each)
        board.free[node] = free - on_each
        if on_each == per_node:
            for gpus in range(1, per_node + 1):
                board.ready_s[gpus, node] = until_s
        else:
            update_ready(board, rules, node)
    job[slot, N_NODES] = n_nodes


@compiled
def leave(board: Board, rules: Rules, slot: int, node: int, at: int) -> None:
    """A job leaves its place on one node."""
    on_each = min(board.job[slot, GPUS], rules.per_node)
    free = board.free[node]
    board.place_job[at] = -1
    board.free[node] = free + on_each
    if board.is_open[node]:
        move(board, node, free, free + on_each)
        update_ready(board, rules, node)


@compiled
def update_ready(board: Board, rules: Rules, node: int) -> None:
    """When each number of GPUs is free on an open node, from the time limits of its jobs."""
    if not board.is_open[node]:
        return
    per_node, free = rules.per_node, board.free[node]
    for gpus in range(free + 1):
        board.ready_s[gpus, node] = 0
    gpus, last_s, last_at = free, -1, -1
    while gpus < per_node:
        # the next of the node's jobs by time and place; there are at most as many as GPUs
        next_s, next_at = FAR_S, -1
        for at in range(node * per_node, (node + 1) * per_node):
            slot = board.place_job[at]
            if slot < 0:
                continue
            until_s = board.job[slot, START_S] + board.job[slot, LIMIT_S]
            is_later = until_s > last_s or (until_s == last_s and at > last_at)
            if is_later and until_s < next_s:
                next_s, next_at = until_s, at
        on_each = min(board.job[board.place_job[next_at], GPUS], per_node)
        for more in range(gpus + 1, gpus + on_each + 1):
            board.ready_s[more, node] = next_s
        gpus += on_each
        last_s, last_at = next_s, next_at


@compiled
def n_ready_by(board: Board, rules: Rules, gpus: int, time_s: int) -> int:
    """On how many nodes so many GPUs are free by a time."""
    n_ready = 0
    for node in range(rules.n_nodes):
        n_ready += int(board.ready_s[gpus, node] <= time_s)
    return n_ready


@compiled
def when_ready(board: Board, rules: Rules, gpus: int, n_nodes: int, guess_s: int) -> int:
    """The first time by which so many GPUs are free on so many nodes, or `FAR_S`.

    To count nodes is quick, since it needs no branch: the time is found by halving, around a guess
    that is right wherever nothing has changed that matters.
    """
    too_early_s, enough_s, step_s = guess_s - 1, guess_s, 1
    if n_ready_by(board, rules, gpus, guess_s) < n_nodes:
        while n_ready_by(board, rules, gpus, enough_s) < n_nodes:
            if enough_s == FAR_S - 1:
                return FAR_S
            too_early_s, enough_s = enough_s, min(enough_s + step_s, FAR_S - 1)
            step_s *= _STEPS_GROW
    else:
        while too_early_s >= 0 and n_ready_by(board, rules, gpus, too_early_s) >= n_nodes:
            too_early_s, enough_s = max(too_early_s - step_s, -1), too_early_s
            step_s *= _STEPS_GROW
    while enough_s - too_early_s > 1:
        middle_s = (too_early_s + enough_s) // 2
        if n_ready_by(board, rules, gpus, middle_s) < n_nodes:
            too_early_s = middle_s
        else:
            enough_s = middle_s
    return enough_s


@compiled
def promise(board: Board, rules: Rules, gpus: int) -> int:
    """Choose the nodes that are kept for the first job, as `Room.reservation`; when it starts."""
    per_node, n, cell = rules.per_node, rules.n_nodes, board.cell
    n_nodes = max(1, gpus // per_node)
    column = min(gpus, per_node)
    ready_s, promised = board.ready_s, board.promised
    for word in range(promised.size):
        promised[word] = 0
    if n_nodes > n:
        return FAR_S
    at_s = when_ready(board, rules, column, n_nodes, cell[PROMISED_S])
    if at_s >= FAR_S:
        return FAR_S
    cell[PROMISED_S] = at_s
    # of more nodes than needed those that are ready first stay for others, the lowest of equal ones
    left_s, n_left = -1, 0
    n_more = n_ready_by(board, rules, column, at_s) - n_nodes
    if n_more > 0:
        left_s = when_ready(board, rules, column, n_more, cell[LEFT_S])
        cell[LEFT_S] = left_s
        n_left = n_more - n_ready_by(board, rules, column, left_s - 1)
    for node in range(n):
        when_s = ready_s[column, node]
        if when_s > at_s or when_s < left_s:
            continue
        if when_s == left_s and n_left > 0:
            n_left -= 1
            continue
        promised[node // WORD] |= 1 << (node % WORD)
    return at_s


@compiled
def advance(board: Board, now_s: int) -> None:
    """Count what GPUs and nodes do up to now."""
    passed_s = now_s - board.hours_s[N_HOURS]
    board.hours_s[N_HOURS] = now_s
    if passed_s:
        for use in range(N_HOURS):
            board.hours_s[use] += passed_s * board.hours[use]


@compiled
def request_pass(board: Board, rules: Rules, now_s: int) -> None:
    """Something changed: a pass comes as soon as the interval allows."""
    cell = board.cell
    at_s = max(now_s, cell[LAST_PASS] + rules.pass_interval_s)
    if cell[NEXT_PASS] < now_s or at_s < cell[NEXT_PASS]:
        cell[NEXT_PASS] = at_s
        put(board, at_s, PASS, 0, -1, 0)


@compiled
def restart_of(board: Board, rules: Rules, slot: int) -> int:
    """How long an attempt of a job takes before it works."""
    return rules.restart_s if board.job[slot, GPUS] >= rules.per_node else 0


@compiled
def start(board: Board, rules: Rules, slot: int, n_nodes: int, now_s: int) -> None:
    """A job starts on the chosen nodes."""
    job = board.job
    job[slot, START_S] = now_s
    job[slot, ATTEMPT] += 1
    take(board, rules, slot, n_nodes)
    advance(board, now_s)
    board.hours[GPUS_FREE] -= job[slot, GPUS]
    board.hours[GPUS_HELD] += job[slot, GPUS]
    join(board, slot)
    length_s = job[slot, WORK_S] - job[slot, SAVED_S]
    if job[slot, GPUS] >= rules.per_node:
        length_s += writes_to_come_s(
            rules.interval_s,
            rules.write_s,
            job[slot, SAVED_S],
            job[slot, WORK_S],
            job[slot, LIMIT_S],
        )
    length_s = min(restart_of(board, rules, slot) + length_s, job[slot, LIMIT_S])
    if comes_back(board, rules, slot):
        length_s = min(length_s, job[slot, REQUEUE_S])
    put(board, now_s + length_s, END, job[slot, NUMBER], slot, job[slot, ATTEMPT])


@compiled
def writes_to_come_s(interval_s: int, write_s: int, saved_s: int, work_s: int, limit_s: int) -> int:
    """How long the checkpoints that an attempt writes until the end of its work hold it up."""
    if write_s == 0:
        return 0
    n_writes = (work_s - 1) // interval_s - saved_s // interval_s
    # no more than fill its time limit: the product of the two stays a whole number of 64 bits
    return max(0, min(n_writes, limit_s // write_s + 1)) * write_s


@compiled
def work_and_writes_s(
    interval_s: int, write_s: int, saved_s: int, moved_s: int
) -> tuple[int, int, int]:
    """Of the time after the restart of an attempt of whole nodes: its work, how much of it is
    written by then, and the writes.
    """
    if write_s == 0:
        reached_s = (saved_s + moved_s) // interval_s * interval_s
        return moved_s, max(0, reached_s - saved_s), 0
    cycles, rest_s = divmod(moved_s, interval_s + write_s)
    work_s = cycles * interval_s + min(rest_s, interval_s)
    return work_s, cycles * interval_s, moved_s - work_s


@compiled
def comes_back(board: Board, rules: Rules, slot: int) -> bool:
    """Whether a job is still to be put back into the queue as it runs."""
    job = board.job
    return bool(job[slot, REQUEUE_S] > 0 and job[slot, RESTARTS] < rules.most_requeues)


@compiled
def join(board: Board, slot: int) -> None:
    """A job joins those of its level that run, in the order of start and number."""
    job = board.job
    rank = job[slot, RANK]
    older, newer = board.newest[rank], -1
    while older >= 0 and (
        job[older, START_S] == job[slot, START_S] and job[older, NUMBER] > job[slot, NUMBER]
    ):
        older, newer = job[older, OLDER], older
    job[slot, OLDER], job[slot, NEWER] = older, newer
    if older >= 0:
        job[older, NEWER] = slot
    if newer >= 0:
        job[newer, OLDER] = slot
    else:
        board.newest[rank] = slot


@compiled
def part(board: Board, slot: int) -> None:
    """A job leaves those of its level that run."""
    job = board.job
    rank, older, newer = job[slot, RANK], job[slot, OLDER], job[slot, NEWER]
    if older >= 0:
        job[older, NEWER] = newer
    if newer >= 0:
        job[newer, OLDER] = older
    else:
        board.newest[rank] = older


@compiled
def record(
    board: Board, rules: Rules, slot: int, state: int, end_s: int, now_s: int, is_cut: bool
) -> int:
    """Write down an attempt with its nodes and what it came to; its row.

    `end_s` is -1 where it has not ended; of one that `is_cut` counts the work that is written.
    """
    job, cell = board.job, board.cell
    cell[LINE] += 1
    at = cell[N_ROWS]
    cell[N_ROWS] += 1
    row = board.row[at]
    for column in range(N_ROW):
        row[column] = job[slot, column] if column < N_JOB else 0
    row[ROW_STATE] = state
    row[ROW_END_S] = end_s
    row[ROW_NOW_S] = now_s
    row[ROW_LINE] = cell[LINE]
    row[ROW_NODE] = -1
    if job[slot, START_S] < 0:
        row[N_NODES] = 0
        return int(at)
    elapsed_s = now_s - job[slot, START_S]
    restart_s = min(restart_of(board, rules, slot), elapsed_s)
    moved_s = elapsed_s - restart_s
    if is_cut and job[slot, STUCK_S] >= 0:
        moved_s = max(0, job[slot, STUCK_S] - job[slot, START_S] - restart_s)
    work_s, kept_s, write_s = moved_s, 0, 0
    if job[slot, GPUS] >= rules.per_node:
        work_s, kept_s, write_s = work_and_writes_s(
            rules.interval_s, rules.write_s, job[slot, SAVED_S], moved_s
        )
    row[ROW_SAVED_S] = kept_s if is_cut else work_s
    row[ROW_LOST_S] = elapsed_s - restart_s - row[ROW_SAVED_S] - write_s
    row[ROW_RESTART_S] = restart_s
    row[ROW_WRITE_S] = write_s
    place = job[slot, FIRST_PLACE]
    while place >= 0:
        board.row_nodes[cell[N_ROW_NODES]] = place // rules.per_node
        cell[N_ROW_NODES] += 1
        place = board.place_next[place]
    return int(at)


@compiled
def end(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """A running job comes to the end of its work or its time limit, or is put back."""
    job = board.job
    if comes_back(board, rules, slot) and now_s - job[slot, START_S] == job[slot, REQUEUE_S]:
        job[slot, REQUEUE_S] = 0
        interrupt(board, rules, slot, REQUEUED, now_s, 0, -1, 0)
        return
    at = record(board, rules, slot, job[slot, OUTCOME], now_s, now_s, False)
    if job[slot, SAVED_S] + board.row[at, ROW_SAVED_S] < job[slot, WORK_S]:
        board.row[at, ROW_STATE] = TIMEOUT
    elif job[slot, OUTCOME] == TIMEOUT:
        # what it kept of an interrupted attempt brought it to its end
        board.row[at, ROW_STATE] = COMPLETED
    free_nodes(board, rules, slot, now_s)
    leave_slot(board, slot)


@compiled
def interrupt(
    board: Board,
    rules: Rules,
    slot: int,
    state: int,
    now_s: int,
    fault: int,
    node: int,
    for_job: int,
) -> None:
    """An attempt ends against its owner's wish; the same id is requeued unless it FAILED."""
    row = board.row[record(board, rules, slot, state, now_s, now_s, True)]
    row[ROW_FAULT] = fault
    row[ROW_NODE] = node
    row[ROW_FOR_JOB] = for_job
    free_nodes(board, rules, slot, now_s)
    board.job[slot, SAVED_S] += row[ROW_SAVED_S]
    if state != FAILED and board.job[slot, RESTARTS] < rules.most_requeues:
        requeue(board, rules, slot, now_s)
    else:
        leave_slot(board, slot)


@compiled
def requeue(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """The same id is eligible again after a while."""
    job = board.job
    job[slot, RESTARTS] += 1
    # the key of an attempt has whole seconds
    job[slot, SUBMIT_S] = max(now_s, job[slot, SUBMIT_S] + 1)
    job[slot, ELIGIBLE_S] = job[slot, SUBMIT_S] + rules.requeue_delay_s
    job[slot, START_S] = -1
    job[slot, STUCK_S] = -1
    put(board, job[slot, ELIGIBLE_S], ARRIVAL, job[slot, NUMBER], slot, 0)


@compiled
def free_nodes(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """The nodes of a job are free again; those that are closed and empty are listed."""
    job, cell = board.job, board.cell
    per_node = rules.per_node
    on_each = min(job[slot, GPUS], per_node)
    part(board, slot)
    advance(board, now_s)
    place = job[slot, FIRST_PLACE]
    while place >= 0:
        node = place // per_node
        leave(board, rules, slot, node, place)
        board.hours[GPUS_HELD] -= on_each
        if board.is_open[node]:
            board.hours[GPUS_FREE] += on_each
        else:
            board.hours[GPUS_DRAINING] += on_each
            if board.free[node] == per_node:
                board.emptied[cell[N_EMPTIED]] = node
                cell[N_EMPTIED] += 1
        place = board.place_next[place]
    request_pass(board, rules, now_s)


@compiled
def leave_slot(board: Board, slot: int) -> None:
    """Another job may have this slot; what stands there stays until then."""
    cell = board.cell
    board.job[slot, START_S] = -1
    board.free_slots[cell[N_FREE_SLOTS]] = slot
    cell[N_FREE_SLOTS] += 1


# -- passes over the queue, and the events in their order -----------------------------------------


@compiled
def do_pass(board: Board, rules: Rules, now_s: int) -> None:
    """Start what can start."""
    cell = board.cell
    if now_s != cell[NEXT_PASS]:
        return  # an earlier one was asked for, and has been
    cell[NEXT_PASS] = -1
    cell[LAST_PASS] = now_s
    start_in_order(board, rules, now_s)
    while cell[QUEUE_BEGIN] < cell[QUEUE_END] and preempt(board, rules, now_s):
        start_in_order(board, rules, now_s)
    if rules.is_easy:
        # what starts may leave more nodes to others: which are promised is chosen again each time
        while cell[QUEUE_BEGIN] < cell[QUEUE_END] and overtake(board, rules, now_s):
            pass


@compiled
def start_in_order(board: Board, rules: Rules, now_s: int) -> None:
    """Start the first jobs until one has no room."""
    cell = board.cell
    while cell[QUEUE_BEGIN] < cell[QUEUE_END]:
        slot = board.queue[cell[QUEUE_BEGIN]]
        n_nodes = choose(board, rules, board.job[slot, GPUS], ANYWHERE)
        if n_nodes == 0:
            return
        start(board, rules, slot, n_nodes, now_s)
        cell[QUEUE_BEGIN] += 1


@compiled
def overtake(board: Board, rules: Rules, now_s: int) -> bool:
    """EASY backfill, as in `policies.easy_backfill`; whether anything started."""
    cell, job = board.cell, board.job
    begin = cell[QUEUE_BEGIN]
    end = min(cell[QUEUE_END], begin + rules.backfill_depth)
    # sizes for which there is no room: on any node, and off the promised ones
    too_large = job[board.queue[begin], GPUS]
    too_large_off = too_large
    if end - begin < 2:
        return False
    if not any_has_room(board, rules, begin + 1, end):
        return False  # on whatever nodes: which are promised would change nothing
    at_s = promise(board, rules, too_large)
    kept = begin + 1
    for place in range(begin + 1, end):
        slot = board.queue[place]
        gpus = job[slot, GPUS]
        n_nodes = 0
        if gpus < too_large:
            if now_s + job[slot, LIMIT_S] <= at_s:
                n_nodes = choose(board, rules, gpus, RATHER_PROMISED)
                if n_nodes == 0:
                    too_large = gpus
            elif gpus < too_large_off:
                n_nodes = choose(board, rules, gpus, NOT_PROMISED)
                if n_nodes == 0:
                    too_large_off = gpus
        if n_nodes > 0:
            start(board, rules, slot, n_nodes, now_s)
        else:
            board.queue[kept] = slot
            kept += 1
    if kept == end:
        return False
    for place in range(end, cell[QUEUE_END]):
        board.queue[kept + place - end] = board.queue[place]
    cell[QUEUE_END] -= end - kept
    return True


@compiled
def any_has_room(board: Board, rules: Rules, begin: int, end: int) -> bool:
    """Whether a job of those places of the queue could start now."""
    too_large = board.job[board.queue[begin - 1], GPUS]
    for place in range(begin, end):
        gpus = board.job[board.queue[place], GPUS]
        if gpus < too_large:
            if choose(board, rules, gpus, ANYWHERE) > 0:
                return True
            too_large = gpus
    return False


@compiled
def preempt(board: Board, rules: Rules, now_s: int) -> bool:
    """Preempt for the first job of the queue; whether anything was."""
    cell, job = board.cell, board.job
    head = board.queue[cell[QUEUE_BEGIN]]
    n_victims = 0
    if rules.preempts:
        if job[head, GPUS] <= rules.per_node:
            n_victims = one_victim(board, rules, head, now_s)
        else:
            n_victims = whole_victims(board, rules, head, now_s)
    for i in range(n_victims):
        victim = board.victims[i]
        cell[LINE] += 1  # of the controller, before that of the attempt
        interrupt(board, rules, victim, PREEMPTED, now_s, 0, -1, job[head, NUMBER])
    if n_victims > 0:
        return True
    coming_s = next_victim_s(board, rules, job[head, RANK], now_s)
    if coming_s < FAR_S and coming_s != cell[REMINDER_S]:
        cell[REMINDER_S] = coming_s
        put(board, coming_s, REMINDER, 0, -1, 0)
    return False


@compiled
def next_victim_s(board: Board, rules: Rules, rank: int, now_s: int) -> int:
    """When the next job of a lower level has run for long enough."""
    found_s = FAR_S
    for lower in range(rank):
        slot = board.newest[lower]
        while slot >= 0 and board.job[slot, START_S] + rules.preempt_after_s > now_s:
            found_s = min(found_s, board.job[slot, START_S] + rules.preempt_after_s)
            slot = board.job[slot, OLDER]
    return found_s


@compiled
def newest_ready(board: Board, rules: Rules, rank: int, now_s: int) -> int:
    """The job of a level that started last of those that have run for long enough, or -1."""
    slot = board.newest[rank]
    while slot >= 0 and board.job[slot, START_S] + rules.preempt_after_s > now_s:
        slot = board.job[slot, OLDER]
    return int(slot)


@compiled
def one_victim(board: Board, rules: Rules, head: int, now_s: int) -> int:
    """As `policies.newest_first` for a job of up to one node: the first whose GPUs are enough."""
    job = board.job
    gpus = job[head, GPUS]
    for rank in range(job[head, RANK]):
        slot = newest_ready(board, rules, rank, now_s)
        while slot >= 0:
            on_each = min(job[slot, GPUS], rules.per_node)
            place = job[slot, FIRST_PLACE]
            while place >= 0:
                node = place // rules.per_node
                if board.is_open[node] and board.free[node] + on_each >= gpus:
                    board.victims[0] = slot
                    return 1
                place = board.place_next[place]
            slot = job[slot, OLDER]
    return 0


@compiled
def without(board: Board, rules: Rules, slot: int, sign: int) -> int:
    """Take a job from its nodes in thought, put it back (-1) or neither (0); those then empty."""
    on_each = min(board.job[slot, GPUS], rules.per_node)
    n_empty = 0
    place = board.job[slot, FIRST_PLACE]
    while place >= 0:
        node = place // rules.per_node
        board.left[node] += sign * on_each
        n_empty += int(board.left[node] == rules.per_node)
        place = board.place_next[place]
    return n_empty


@compiled
def whole_victims(board: Board, rules: Rules, head: int, now_s: int) -> int:
    """As `policies.newest_first` for several nodes: the first jobs that leave enough empty."""
    job, victims = board.job, board.victims
    needed = job[head, GPUS] // rules.per_node - board.n_by_free[rules.per_node]
    for node in range(rules.n_nodes):  # a closed one never becomes empty
        board.left[node] = board.free[node] if board.is_open[node] else -FAR_S
    n_empty, n_chosen = 0, 0
    for rank in range(job[head, RANK]):
        slot = newest_ready(board, rules, rank, now_s)
        while slot >= 0 and n_empty < needed:
            n_empty += without(board, rules, slot, 1)
            victims[n_chosen] = slot
            n_chosen += 1
            slot = job[slot, OLDER]
    if n_empty < needed:
        return 0
    n_kept = 0
    for i in range(n_chosen):
        gives = without(board, rules, victims[i], 0)
        if n_empty - gives >= needed:
            n_empty -= gives
            without(board, rules, victims[i], -1)
        else:
            victims[n_kept] = victims[i]
            n_kept += 1
    return n_kept


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
def free_slot(board: Board) -> int:
    """A slot that no job has."""
    board.cell[N_FREE_SLOTS] -= 1
    return int(board.free_slots[board.cell[N_FREE_SLOTS]])


@compiled
def resubmit(board: Board, ended: int, at_s: int) -> None:
    """The owner of a job that has ended submits it again under another id."""
    job, slot = board.job, free_slot(board)
    number = job[ended, NUMBER]
    for column in range(job.shape[1]):  # it may have the slot that it had
        is_kept = column <= PATIENCE_S or column in (TASK, SAVED_S)
        job[slot, column] = job[ended, column] if is_kept else 0
    job[slot, START_S] = -1
    job[slot, STUCK_S] = -1
    put(board, at_s, ARRIVAL, number, slot, 0)


@compiled
def next_from_feed(board: Board) -> int:
    """A slot with the next job of the feed."""
    job, cell = board.job, board.cell
    slot = free_slot(board)
    one = board.feed[cell[FEED_AT]]
    cell[FEED_AT] += 1
    for column in range(job.shape[1]):
        job[slot, column] = one[column] if column < N_FEED_COLUMNS else 0
    job[slot, START_S] = -1
    job[slot, STUCK_S] = -1
    return slot


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
    cell[IS_STEP_OVER] = cell[EVENTS] % EVENTS_A_STEP == 0
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
            record(board, rules, slot, CANCELLED, now_s, now_s, False)
            leave_slot(board, slot)
    else:
        request_pass(board, rules, now_s)


@compiled
def play(board: Board, rules: Rules, limit_s: int, limit_kind: int) -> int:
    """Let happen what comes before an event of that time and kind; returns why it stops."""
    cell = board.cell
    stop = -1
    while stop < 0:
        is_over = cell[FEED_AT] >= cell[N_FEED]
        next_s = rules.end_s if is_over else board.feed[cell[FEED_AT], SUBMIT_S]
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


@compiled_entry_over(Path(__file__))
def ask(
    board: Board, rules: Rules, what: int, one: int, other: int, now_s: int, more: int, most: int
) -> int:
    """The one door from Python: what is asked, by the names above, and its numbers."""
    if what == PLAY:
        return play(board, rules, one, other)
    if what == INTERRUPT:
        interrupt(board, rules, one, other, now_s, more, most, 0)
    elif what == OPEN_ATTEMPT:
        record(board, rules, one, other, -1, now_s, False)
    elif what == CLOSE:
        close(board, rules, one)
    elif what == REOPEN:
        reopen(board, rules, one, now_s)
    else:
        resubmit(board, one, now_s)
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
