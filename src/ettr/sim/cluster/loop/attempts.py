"""Nodes with room, as in `room`, and starts and ends of attempts, as in `scheduler`."""

from __future__ import annotations

from ettr.sim.cluster.loop.board import (
    ACCOUNT,
    ARRIVAL,
    ATTEMPT,
    CANCELLED,
    COMPLETED,
    ELIGIBLE_S,
    END,
    FAILED,
    FAR_S,
    FIRST_PLACE,
    GPUS,
    GPUS_DRAINING,
    GPUS_FREE,
    GPUS_HELD,
    HOURS_NOW,
    LAST_PASS,
    LEFT_S,
    LIMIT_S,
    LINE,
    N_EMPTIED,
    N_FREE_SLOTS,
    N_HOURS,
    N_NODES,
    N_ROW_NODES,
    N_ROWS,
    NEWER,
    NEXT_PASS,
    NUMBER,
    OLDER,
    OUTCOME,
    PASS,
    PRIORITY,
    PROMISED_S,
    RANK,
    REQUEUE_S,
    REQUEUED,
    RESTARTS,
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
    SAVED_S,
    START_S,
    STUCK_S,
    SUBMIT_S,
    TASK,
    TIMEOUT,
    USER,
    WORD,
    WORK_S,
    Board,
    Rules,
    put,
)
from ettr.sim.compiled import compiled

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
    passed_s = now_s - board.cell[HOURS_NOW]
    board.cell[HOURS_NOW] = now_s
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
    length_s = restart_of(board, rules, slot) + job[slot, WORK_S] - job[slot, SAVED_S]
    length_s = min(length_s + writes_to_come_s(board, rules, slot), job[slot, LIMIT_S])
    if comes_back(board, rules, slot):
        length_s = min(length_s, job[slot, REQUEUE_S])
    put(board, now_s + length_s, END, job[slot, NUMBER], slot, job[slot, ATTEMPT])


@compiled
def writes_to_come_s(board: Board, rules: Rules, slot: int) -> int:
    """How long the checkpoints that an attempt writes until the end of its work hold it up."""
    job, interval_s = board.job, rules.interval_s
    if rules.write_s == 0 or job[slot, GPUS] < rules.per_node:
        return 0
    n_writes = (job[slot, WORK_S] - 1) // interval_s - job[slot, SAVED_S] // interval_s
    # no more than fill its time limit: the product of the two stays a whole number of 64 bits
    n_writes = min(n_writes, job[slot, LIMIT_S] // rules.write_s + 1)
    return int(max(0, n_writes) * rules.write_s)


@compiled
def writes_s(board: Board, rules: Rules, slot: int, moved_s: int) -> int:
    """Of the time after the restart of an attempt, that of its writes."""
    if rules.write_s == 0 or board.job[slot, GPUS] < rules.per_node:
        return 0
    cycle_s = rules.interval_s + rules.write_s
    cycles = moved_s // cycle_s
    return cycles * rules.write_s + max(0, moved_s - cycles * cycle_s - rules.interval_s)


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
    else:
        board.oldest[rank] = slot
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
    else:
        board.oldest[rank] = newer
    if newer >= 0:
        job[newer, OLDER] = older
    else:
        board.newest[rank] = older


@compiled
def record(
    board: Board,
    rules: Rules,
    slot: int,
    state: int,
    end_s: int,
    now_s: int,
    saved_s: int,
    restart_s: int,
    write_s: int,
) -> int:
    """Write down an attempt with its nodes; `end_s` and `saved_s` are -1 where there is none."""
    job, cell = board.job, board.cell
    cell[LINE] += 1
    at = cell[N_ROWS]
    cell[N_ROWS] += 1
    row = board.row[at]
    row[ROW_NUMBER] = job[slot, NUMBER]
    row[ROW_TASK] = job[slot, TASK]
    row[ROW_USER] = job[slot, USER]
    row[ROW_ACCOUNT] = job[slot, ACCOUNT]
    row[ROW_PRIORITY] = job[slot, PRIORITY]
    row[ROW_STATE] = state
    row[ROW_SUBMIT_S] = job[slot, SUBMIT_S]
    row[ROW_ELIGIBLE_S] = job[slot, ELIGIBLE_S]
    row[ROW_START_S] = job[slot, START_S]
    row[ROW_END_S] = end_s
    row[ROW_NOW_S] = now_s
    row[ROW_LIMIT_S] = job[slot, LIMIT_S]
    row[ROW_GPUS] = job[slot, GPUS]
    row[ROW_RESTARTS] = job[slot, RESTARTS]
    row[ROW_LINE] = cell[LINE]
    row[ROW_SAVED_S] = saved_s
    row[ROW_RESTART_S] = restart_s
    row[ROW_WRITE_S] = write_s
    row[ROW_LOST_S] = now_s - job[slot, START_S] - restart_s - saved_s - write_s
    row[ROW_FAULT] = 0
    row[ROW_NODE] = -1
    row[ROW_FOR_JOB] = 0
    row[ROW_N_NODES] = 0
    if job[slot, START_S] >= 0:
        row[ROW_N_NODES] = job[slot, N_NODES]
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
    elapsed_s = now_s - job[slot, START_S]
    if comes_back(board, rules, slot) and elapsed_s == job[slot, REQUEUE_S]:
        job[slot, REQUEUE_S] = 0
        interrupt(board, rules, slot, REQUEUED, now_s, 0, -1, 0)
        return
    restart_s = min(restart_of(board, rules, slot), elapsed_s)
    write_s = writes_s(board, rules, slot, elapsed_s - restart_s)
    done_s = elapsed_s - restart_s - write_s
    state = job[slot, OUTCOME]
    if job[slot, SAVED_S] + done_s < job[slot, WORK_S]:
        state = TIMEOUT
    elif state == TIMEOUT:
        state = COMPLETED  # what it kept of an interrupted attempt brought it to its end
    record(board, rules, slot, state, now_s, now_s, done_s, restart_s, write_s)
    free_nodes(board, rules, slot, now_s)
    free_slot(board, slot)


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
    job = board.job
    elapsed_s = now_s - job[slot, START_S]
    restart_s = min(restart_of(board, rules, slot), elapsed_s)
    until_s = now_s if job[slot, STUCK_S] < 0 else job[slot, STUCK_S]
    moved_s = max(0, until_s - job[slot, START_S] - restart_s)
    kept_s = 0
    if job[slot, GPUS] >= rules.per_node:
        if rules.write_s > 0:
            kept_s = moved_s // (rules.interval_s + rules.write_s) * rules.interval_s
        else:
            saved_s = (job[slot, SAVED_S] + moved_s) // rules.interval_s * rules.interval_s
            kept_s = max(0, saved_s - job[slot, SAVED_S])
    write_s = writes_s(board, rules, slot, moved_s)
    at = record(board, rules, slot, state, now_s, now_s, kept_s, restart_s, write_s)
    board.row[at, ROW_FAULT] = fault
    board.row[at, ROW_NODE] = node
    board.row[at, ROW_FOR_JOB] = for_job
    free_nodes(board, rules, slot, now_s)
    job[slot, SAVED_S] += kept_s
    if state != FAILED and job[slot, RESTARTS] < rules.most_requeues:
        requeue(board, rules, slot, now_s)
    else:
        free_slot(board, slot)


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
def free_slot(board: Board, slot: int) -> None:
    """Another job may have this slot; what stands there stays until then."""
    cell = board.cell
    board.job[slot, START_S] = -1
    board.free_slots[cell[N_FREE_SLOTS]] = slot
    cell[N_FREE_SLOTS] += 1


@compiled
def give_up(board: Board, rules: Rules, slot: int, now_s: int) -> None:
    """The owner of a job that waits for its first start cancels it."""
    record(board, rules, slot, CANCELLED, now_s, now_s, -1, 0, 0)
    free_slot(board, slot)


@compiled
def still_open(board: Board, rules: Rules, slot: int, state: int, now_s: int) -> None:
    """Write down an attempt that runs or waits as the simulation ends."""
    job = board.job
    if job[slot, START_S] < 0:
        record(board, rules, slot, state, -1, now_s, -1, 0, 0)
        return
    elapsed_s = now_s - job[slot, START_S]
    restart_s = min(restart_of(board, rules, slot), elapsed_s)
    write_s = writes_s(board, rules, slot, elapsed_s - restart_s)
    done_s = elapsed_s - restart_s - write_s
    record(board, rules, slot, state, -1, now_s, done_s, restart_s, write_s)
