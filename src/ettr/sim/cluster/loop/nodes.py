"""GPUs in use on each node, and who finds room; the same choices as in `room`."""

from __future__ import annotations

from ettr.sim.cluster.loop.board import (
    FAR_S,
    FIRST_PLACE,
    GPUS,
    LEFT_S,
    LIMIT_S,
    N_NODES,
    PROMISED_S,
    START_S,
    WORD,
    Board,
    Rules,
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
