"""The queue: slots of jobs in the order of level, submission and number."""

from __future__ import annotations

from ettr.sim.cluster.loop.board import (
    NUMBER,
    QUEUE_BEGIN,
    QUEUE_END,
    RANK,
    SUBMIT_S,
    Board,
)
from ettr.sim.compiled import compiled


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
