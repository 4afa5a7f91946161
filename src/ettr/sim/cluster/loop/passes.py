"""A pass over the queue: who starts, who overtakes, who is preempted."""

from __future__ import annotations

from ettr.sim.cluster.loop.attempts import interrupt, start
from ettr.sim.cluster.loop.board import (
    FAR_S,
    FIRST_PLACE,
    GPUS,
    LAST_PASS,
    LIMIT_S,
    LINE,
    N_NOTES,
    NEXT_PASS,
    NOTE_FOR_JOB,
    NOTE_JOB,
    NOTE_LINE,
    NOTE_TIME_S,
    NUMBER,
    OLDER,
    PREEMPTED,
    QUEUE_BEGIN,
    QUEUE_END,
    RANK,
    REMINDER,
    REMINDER_S,
    STAMP,
    START_S,
    Board,
    Rules,
    put,
)
from ettr.sim.cluster.loop.nodes import ANYWHERE, NOT_PROMISED, RATHER_PROMISED, choose, promise
from ettr.sim.compiled import compiled


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
