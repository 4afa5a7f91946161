"""The events of jobs to come: a heap in arrays, in the order of `calendar`."""

from __future__ import annotations

from ettr.sim.cluster.loop.board import (
    KEY,
    KIND,
    N_HEAP,
    OF_ATTEMPT,
    PUT,
    SERIAL,
    SLOT,
    TIME_S,
    Board,
)
from ettr.sim.compiled import compiled


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
