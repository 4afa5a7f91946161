"""The loop over the events of jobs, and its passes over the queue."""

from __future__ import annotations

from pathlib import Path

from ettr.sim.cluster.loop.attempts import (
    ANYWHERE,
    NOT_PROMISED,
    RATHER_PROMISED,
    choose,
    end,
    give_up,
    interrupt,
    move,
    promise,
    request_pass,
    start,
    still_open,
    update_ready,
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
    FIRST_PLACE,
    FULL,
    GPUS,
    IMPATIENT,
    IS_ALL_FED,
    IS_STEP_OVER,
    KEY,
    KIND,
    LAST_PASS,
    LIMIT_S,
    LINE,
    N_EMPTIED,
    N_FEED,
    N_FREE_SLOTS,
    N_HEAP,
    N_NOTES,
    N_ROW_NODES,
    N_ROWS,
    NEXT_PASS,
    NO_JOBS,
    NOTE_FOR_JOB,
    NOTE_JOB,
    NOTE_LINE,
    NOTE_TIME_S,
    NOW,
    NUMBER,
    OF_ATTEMPT,
    OLDER,
    OUTCOME,
    PASS,
    PATIENCE_S,
    PREEMPTED,
    PRIORITY,
    QUEUE_BEGIN,
    QUEUE_END,
    RANK,
    REMINDER,
    REMINDER_S,
    REQUEUE_S,
    RESTARTS,
    SLOT,
    STAMP,
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
from ettr.sim.compiled import compiled, compiled_entry_over


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
        cell[LINE] += 1
        notes = board.notes[cell[N_NOTES]]
        cell[N_NOTES] += 1
        notes[NOTE_TIME_S] = now_s
        notes[NOTE_LINE] = cell[LINE]
        notes[NOTE_JOB] = job[victim, NUMBER]
        notes[NOTE_FOR_JOB] = job[head, NUMBER]
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
def left_on(board: Board, node: int) -> int:
    """GPUs that are free on a node in the thought of this stamp."""
    if board.left_stamp[node] != board.cell[STAMP]:
        board.left_stamp[node] = board.cell[STAMP]
        board.left[node] = board.free[node]
    return int(board.left[node])


@compiled
def without(board: Board, rules: Rules, slot: int, sign: int) -> int:
    """Take a job from its open nodes in thought, or put it back (-1); those that become empty."""
    on_each = min(board.job[slot, GPUS], rules.per_node)
    n_empty = 0
    place = board.job[slot, FIRST_PLACE]
    while place >= 0:
        node = place // rules.per_node
        if board.is_open[node]:
            board.left[node] = left_on(board, node) + sign * on_each
            if board.left[node] == rules.per_node:
                n_empty += 1
        place = board.place_next[place]
    return n_empty


@compiled
def n_emptied_by(board: Board, rules: Rules, slot: int) -> int:
    """Open nodes of a job that are empty in thought."""
    n_empty = 0
    place = board.job[slot, FIRST_PLACE]
    while place >= 0:
        node = place // rules.per_node
        if board.is_open[node] and left_on(board, node) == rules.per_node:
            n_empty += 1
        place = board.place_next[place]
    return n_empty


@compiled
def whole_victims(board: Board, rules: Rules, head: int, now_s: int) -> int:
    """As `policies.newest_first` for several nodes: the first jobs that leave enough empty."""
    job, victims = board.job, board.victims
    needed = job[head, GPUS] // rules.per_node - board.n_by_free[rules.per_node]
    board.cell[STAMP] += 1
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
        gives = n_emptied_by(board, rules, victims[i])
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
