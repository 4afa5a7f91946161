"""The loop of one run on its nodes: plain loops over arrays, compiled where numba is installed.

Two clocks run. The wall-clock always does. The clock of use runs while the job holds its nodes:
nodes fail by it, and their ages count it. Events come in the order of their time; at one time a
node of the lower number comes first, and a failure in a burst after one of a node's own.

No `while True` with a `break`: numba 0.61 to 0.68 compiles some of those wrongly (numba#5267).
"""

from __future__ import annotations

import math
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.compiled import compiled, compiled_entry

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

# what `Replica.at` holds
WALL_S, USE_S, PLACE_S, OWED_S, QUEUED_S, SHORT_S, RESTARTING_S, DETECTING_S = range(8)
TRAINING_S, BURST_S, N_AT = range(8, 11)
# what `Replica.tally` holds
ACTIVE, IN_REPAIR, SPARES, FIRST_SPARE, IN_BURST, FAILURES, PENDING, LIGHT = range(8)
DURABLE, MARKS, DEBTS, N_COUNTS = range(8, 12)
# what a row of the marks holds
ROW_WALL, ROW_PLACE, ROW_OWED, ROW_QUEUED, ROW_SHORT, ROW_RESTARTING, ROW_DETECTING = range(7)
ROW_TRAINING, ROW_FAILURES, N_ROW = range(7, 10)
SOFT, GO_BACK, GO_DEEP = range(3)
MOST_DEBTS = 4096


class HazardTable(NamedTuple):
    """A cumulative hazard on a grid of the logarithm of the clock."""

    begin: float
    step: float
    log_hazard: Floats


class Course(NamedTuple):
    """What a run does, kinds of failure in the order in which one overrides another.

    Attributes:
        durable_lag_s: From a durable one until it can be used; not shorter.
        level: Of each kind: `SOFT`, `GO_BACK` or `GO_DEEP`; the last is the start of the run.
        stale_share: The same, as a share of the work since the last usable light checkpoint.
        chance: Chance of a kind or one before it, rising to 1.
    """

    n_nodes: int
    interval_s: float
    slowdown: float
    length_s: float
    lag_s: float
    durable_lag_s: float
    per_durable: int
    productive_s: float
    detection_s: float
    level: Places
    restart_s: Floats
    wait_s: Floats
    lost_s: Floats
    stale_share: Floats
    nodes_lost: Places
    chance: Floats
    as_new_share: float
    repairs: bool
    fixed_repair_s: float
    burst_chance: float
    burst_gap_s: float
    life: HazardTable
    repair: HazardTable


class Draws(NamedTuple):
    """One generator for each cause of chance."""

    lives: np.random.Generator
    kinds: np.random.Generator
    repairs: np.random.Generator
    bursts: np.random.Generator


class Replica(NamedTuple):
    """Where a run and its nodes are; every field is an array that the loop changes.

    Attributes:
        age_s: Age of each node when it came into use, or as it waits.
        active: Heap of the nodes in use, by `due_s`.
        debt_place_s: Where work to be made good arose, ascending.
    """

    at: Floats
    tally: Places
    factor: Floats
    age_s: Floats
    since_s: Floats
    due_s: Floats
    active: Places
    active_place: Places
    back_s: Floats
    away: Places
    away_place: Places
    spare: Places
    debt_place_s: Floats
    debt_s: Floats
    marks_s: Floats
    rows: Floats


@compiled
def hazard_at(table: HazardTable, clock_s: float) -> float:
    """The cumulative hazard at a clock, between the points of the grid by powers of the clock."""
    if clock_s <= 0.0:
        return 0.0
    last = table.log_hazard.size - 1
    along = (math.log(clock_s) - table.begin) / table.step
    i = min(max(math.floor(along), 0), last - 1)
    low, high = table.log_hazard[i], table.log_hazard[i + 1]
    return math.exp(low + (along - i) * (high - low))


@compiled
def clock_at(table: HazardTable, hazard: float) -> float:
    """The clock at which the cumulative hazard reaches a value; infinite where it never does."""
    if hazard <= 0.0:
        return 0.0
    wanted = math.log(hazard)
    low, high = 0, table.log_hazard.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if table.log_hazard[middle] < wanted:
            low = middle
        else:
            high = middle
    rise = table.log_hazard[high] - table.log_hazard[low]
    if rise <= 0.0:
        return math.inf
    along = low + (wanted - table.log_hazard[low]) / rise
    exponent = table.begin + along * table.step
    return math.exp(exponent) if exponent < 700.0 else math.inf


@compiled
def _before(keys: Floats, one: int, other: int) -> bool:
    return bool(keys[one] < keys[other] or (keys[one] == keys[other] and one < other))


@compiled
def _rise(heap: Places, place: Places, keys: Floats, at: int) -> None:
    node = heap[at]
    above = (at - 1) // 2
    while at > 0 and _before(keys, node, heap[above]):
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
        above = (at - 1) // 2
    heap[at] = node
    place[node] = at


@compiled
def _sink(heap: Places, place: Places, keys: Floats, at: int, size: int) -> None:
    node = heap[at]
    sinks = True
    while sinks:
        child = 2 * at + 1
        if child + 1 < size and _before(keys, heap[child + 1], heap[child]):
            child += 1
        sinks = child < size and _before(keys, heap[child], node)
        if sinks:
            heap[at] = heap[child]
            place[heap[at]] = at
            at = child
    heap[at] = node
    place[node] = at


@compiled
def heap_push(heap: Places, place: Places, keys: Floats, size: int, node: int) -> None:
    """Put a node into a heap of that size."""
    heap[size] = node
    place[node] = size
    _rise(heap, place, keys, size)


@compiled
def heap_remove(heap: Places, place: Places, keys: Floats, size: int, node: int) -> None:
    """Take a node out of a heap of that size."""
    at = place[node]
    moved = heap[size - 1]
    place[node] = -1
    if moved != node:
        heap[at] = moved
        place[moved] = at
        _sink(heap, place, keys, at, size - 1)
        _rise(heap, place, keys, place[moved])


@compiled
def _enter(course: Course, state: Replica, node: int, draws: Draws) -> None:
    """A node comes into use, and its failure is drawn from its age."""
    age_s, now_s = state.age_s[node], state.at[USE_S]
    ends = hazard_at(course.life, age_s) + draws.lives.standard_exponential() / state.factor[node]
    state.since_s[node] = now_s
    state.due_s[node] = now_s + max(0.0, clock_at(course.life, ends) - age_s)
    heap_push(state.active, state.active_place, state.due_s, state.tally[ACTIVE], node)
    state.tally[ACTIVE] += 1


@compiled
def _leave(state: Replica, node: int) -> None:
    """A node goes out of use at the age that it has."""
    state.age_s[node] += state.at[USE_S] - state.since_s[node]
    heap_remove(state.active, state.active_place, state.due_s, state.tally[ACTIVE], node)
    state.tally[ACTIVE] -= 1


@compiled
def _repair(course: Course, state: Replica, node: int, draws: Draws) -> None:
    """A node that is out of use is repaired, from when its failure is noticed."""
    if course.fixed_repair_s >= 0.0:
        length_s = course.fixed_repair_s
    else:
        length_s = clock_at(course.repair, draws.repairs.standard_exponential())
    state.back_s[node] = state.at[WALL_S] + course.detection_s + length_s
    heap_push(state.away, state.away_place, state.back_s, state.tally[IN_REPAIR], node)
    state.tally[IN_REPAIR] += 1


@compiled
def _admit(course: Course, state: Replica, draws: Draws) -> None:
    """Nodes that are back become spares, and spares take the places that are free."""
    count, size = state.tally, state.spare.size
    while count[IN_REPAIR] > 0 and state.back_s[state.away[0]] <= state.at[WALL_S]:
        node = state.away[0]
        heap_remove(state.away, state.away_place, state.back_s, count[IN_REPAIR], node)
        count[IN_REPAIR] -= 1
        state.spare[(count[FIRST_SPARE] + count[SPARES]) % size] = node
        count[SPARES] += 1
    while count[SPARES] > 0 and count[ACTIVE] < course.n_nodes:
        node = state.spare[count[FIRST_SPARE]]
        count[FIRST_SPARE] = (count[FIRST_SPARE] + 1) % size
        count[SPARES] -= 1
        _enter(course, state, node, draws)


@compiled
def _next_failure_s(state: Replica) -> float:
    """Clock of use at the next failure; infinite where nothing will fail."""
    if state.tally[ACTIVE] == 0:
        return math.inf
    return float(min(state.due_s[state.active[0]], state.at[BURST_S]))


@compiled
def _spread(course: Course, state: Replica, draws: Draws) -> None:
    """Whether a failure brings another one, and when the next of all those comes."""
    if draws.bursts.random() < course.burst_chance:
        state.tally[IN_BURST] += 1
    coming = state.tally[IN_BURST]
    state.at[BURST_S] = math.inf
    if coming > 0:
        wait_s = draws.bursts.standard_exponential() * course.burst_gap_s / coming
        state.at[BURST_S] = state.at[USE_S] + wait_s


@compiled
def _strike(course: Course, state: Replica, draws: Draws) -> int:
    """What is due fails now; returns its kind."""
    count = state.tally
    count[FAILURES] += 1
    top = state.active[0]
    own = state.due_s[top] <= state.at[BURST_S]
    node = top
    if not own:
        count[IN_BURST] -= 1
        node = state.active[int(draws.bursts.random() * count[ACTIVE])]
    kind = 0
    if course.chance.size > 1:
        kind = int(np.searchsorted(course.chance, draws.kinds.random(), side="right"))
        kind = min(kind, course.chance.size - 1)
    lost = min(course.nodes_lost[kind], count[ACTIVE]) if course.repairs else 0
    if own or lost > 0:
        _leave(state, node)
        if own and (course.as_new_share >= 1.0 or draws.repairs.random() < course.as_new_share):
            state.age_s[node] = 0.0
        if lost > 0:
            _repair(course, state, node, draws)
        else:
            _enter(course, state, node, draws)
    for _ in range(1, lost):
        other = state.active[int(draws.kinds.random() * count[ACTIVE])]
        _leave(state, other)
        _repair(course, state, other, draws)
    if course.burst_chance > 0.0:
        _spread(course, state, draws)
    return kind


@compiled
def _pass(state: Replica, for_s: float, trains: bool, of_what: int) -> None:
    """Let time pass on the wall-clock, and write the rows of the marks in it."""
    at, count = state.at, state.tally
    begin_s, place_s = at[WALL_S], at[PLACE_S]
    while count[MARKS] < state.marks_s.size and state.marks_s[count[MARKS]] <= begin_s + for_s:
        mark_s = state.marks_s[count[MARKS]]
        row = state.rows[count[MARKS]]
        row[ROW_WALL] = mark_s
        row[ROW_PLACE] = place_s + (mark_s - begin_s if trains else 0.0)
        row[ROW_OWED] = at[OWED_S]
        row[ROW_FAILURES] = count[FAILURES]
        for i in range(QUEUED_S, TRAINING_S + 1):
            row[ROW_QUEUED + i - QUEUED_S] = at[i] + (mark_s - begin_s if i == of_what else 0.0)
        count[MARKS] += 1
    at[WALL_S] += for_s
    at[of_what] += for_s
    if of_what >= RESTARTING_S:
        at[USE_S] += for_s
    if trains:
        at[PLACE_S] += for_s


@compiled
def _over(state: Replica) -> bool:
    return bool(state.marks_s.size > 0 and state.tally[MARKS] >= state.marks_s.size)


@compiled
def _holds(course: Course, state: Replica, for_s: float, of_what: int, draws: Draws) -> bool:
    """Hold the nodes for so long; False if something fails before, and is then recovered from."""
    until_s = _next_failure_s(state) - state.at[USE_S]
    if until_s >= for_s:
        _pass(state, for_s, False, of_what)
        return True
    _pass(state, until_s, False, of_what)
    kind = _strike(course, state, draws)
    state.tally[PENDING] = max(state.tally[PENDING], kind)
    return False


@compiled
def _wait(course: Course, state: Replica, draws: Draws) -> None:
    """Wait for the scheduler, then for nodes; nothing fails meanwhile."""
    _pass(state, course.wait_s[state.tally[PENDING]], False, QUEUED_S)
    _admit(course, state, draws)
    while state.tally[ACTIVE] < course.n_nodes and not _over(state):
        back_s = state.back_s[state.away[0]] - state.at[WALL_S]
        _pass(state, max(0.0, back_s), False, SHORT_S)
        # what is due now is back, whatever the last bits of the sum say
        state.at[WALL_S] = max(state.at[WALL_S], state.back_s[state.away[0]])
        _admit(course, state, draws)


@compiled
def _recover(course: Course, state: Replica, draws: Draws) -> None:
    """From a failure, or the start, until the run trains."""
    start = course.level.size - 1
    trains = False
    while not trains and not _over(state):
        pending = state.tally[PENDING]
        trains = pending == start or _holds(course, state, course.detection_s, DETECTING_S, draws)
        if trains:
            _wait(course, state, draws)
            trains = _holds(
                course, state, course.restart_s[state.tally[PENDING]], RESTARTING_S, draws
            )


@compiled
def _owe(course: Course, state: Replica, first: int) -> None:
    """Note the work that a failure after which training goes on has lost."""
    at, count = state.at, state.tally
    stale_s = at[PLACE_S] - count[LIGHT] * course.length_s
    stale_s *= course.interval_s / course.length_s
    owed_s = course.lost_s[first] + course.stale_share[first] * stale_s
    if owed_s > 0.0:
        if count[DEBTS] == MOST_DEBTS:
            # the oldest two as one: they are long saved, or few of very many
            state.debt_s[1] += state.debt_s[0]
            for i in range(1, MOST_DEBTS):
                state.debt_s[i - 1] = state.debt_s[i]
                state.debt_place_s[i - 1] = state.debt_place_s[i]
            count[DEBTS] -= 1
        state.debt_place_s[count[DEBTS]] = at[PLACE_S]
        state.debt_s[count[DEBTS]] = owed_s
        count[DEBTS] += 1
        at[OWED_S] += owed_s


@compiled
def _go_on(course: Course, state: Replica, first: int) -> None:
    """Go on where the recovery leads: where the run was, or back to a checkpoint."""
    at, count = state.at, state.tally
    level = course.level[count[PENDING]]
    if level == SOFT:
        _owe(course, state, first)
    else:
        if level == GO_DEEP:
            count[LIGHT] = count[DURABLE]
        at[PLACE_S] = count[LIGHT] * course.length_s
        while count[DEBTS] > 0 and state.debt_place_s[count[DEBTS] - 1] > at[PLACE_S]:
            count[DEBTS] -= 1
            at[OWED_S] -= state.debt_s[count[DEBTS]]


@compiled
def _save(course: Course, state: Replica) -> None:
    """Which checkpoints can be used by now."""
    place_s, count = state.at[PLACE_S], state.tally
    # a hair of tolerance, so that the sum of equal times does not miss a checkpoint
    light = math.floor((place_s - course.lag_s) / course.length_s + 1e-12)
    late = math.floor((place_s - course.durable_lag_s) / course.length_s + 1e-12)
    count[LIGHT] = max(count[LIGHT], light)
    count[DURABLE] = max(count[DURABLE], late // course.per_durable * course.per_durable)


@compiled
def _end_place_s(course: Course, state: Replica) -> float:
    """Where the run has done its work and saved it."""
    work_s = course.productive_s + state.at[OWED_S]
    if math.isinf(work_s):
        return math.inf
    n_full = max(0.0, math.ceil(work_s / course.interval_s * (1.0 - 1e-12)) - 1.0)
    slower = 1.0 + course.slowdown
    last_s = (work_s - n_full * course.interval_s) * slower
    stall_s = course.length_s - course.interval_s * slower
    return float(n_full * course.length_s + last_s + stall_s + course.lag_s)


@compiled
def _play(course: Course, state: Replica, draws: Draws, most_failures: int) -> bool:
    state.tally[PENDING] = course.level.size - 1
    first = state.tally[PENDING]
    done = False
    while not done and not _over(state) and state.tally[FAILURES] < most_failures:
        _recover(course, state, draws)
        if not _over(state):
            _go_on(course, state, first)
            left_s = _end_place_s(course, state) - state.at[PLACE_S]
            until_s = _next_failure_s(state) - state.at[USE_S]
            if state.marks_s.size > 0:
                # hardly further than the last mark, so that a run without failures ends as well
                left_s = min(left_s, max(0.0, state.marks_s[-1] - state.at[WALL_S]) + 1.0)
            done = left_s <= until_s
            _pass(state, min(left_s, until_s), True, TRAINING_S)
            _save(course, state)
            if not done and not _over(state):
                first = _strike(course, state, draws)
                state.tally[PENDING] = first
    return done or _over(state)


@compiled_entry
def _entry(
    course: tuple[Any, ...],
    life: tuple[Any, ...],
    repair: tuple[Any, ...],
    state: tuple[Any, ...],
    draws: tuple[Any, ...],
    most_failures: int,
) -> bool:
    full = Course(*course, HazardTable(*life), HazardTable(*repair))  # type: ignore[call-arg]
    return _play(full, Replica(*state), Draws(*draws), most_failures)


def play(course: Course, state: Replica, draws: Draws, most_failures: int) -> bool:
    """Play a run until its work is done, or its last mark.

    Returns:
        Whether it got there.
    """
    parts = tuple(course)
    return _entry(
        parts[:-2],
        tuple(course.life),
        tuple(course.repair),
        tuple(state),
        tuple(draws),
        most_failures,
    )


# -- random numbers in named streams: what one part of a simulation draws moves no other part ------


def stream(seed: int, name: str, replica: int = 0) -> np.random.Generator:
    """The generator of one stream of one replica.

    Two scenarios with one seed share the numbers of every stream, so that their difference is
    known better than either.

    Source:
        O'Neill (2014) for PCG64; NumPy's SeedSequence for streams that do not overlap.
    """
    words = [seed, zlib.crc32(name.encode("utf-8")), replica]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
