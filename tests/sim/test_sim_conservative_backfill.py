"""Conservative backfill: hand-made queues, an independent plan minute by minute, and properties."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ettr.sim.cluster.policies import (
    WAITING,
    Able,
    conservative_backfill,
    easy_backfill,
    first_ends_at_once,
    free_neighbours,
    neighbours,
    planned,
    slurm_backfill,
)
from ettr.sim.cluster.room import FAR_S, NodeRoom, Waiting, place


def queue(*jobs: tuple[int, int]) -> list[Waiting]:
    """Jobs of so many GPUs with such limits, in order."""
    return [Waiting(at, gpus, limit_s, 1) for at, (gpus, limit_s) in enumerate(jobs)]


def started(waiting: list[Waiting], room: NodeRoom, now_s: int = 0) -> list[tuple[int, list[int]]]:
    return [(one.place, one.nodes) for one in conservative_backfill(waiting, room.view(), now_s)]


def test_a_job_may_not_delay_the_second_of_the_queue_which_easy_lets_it():
    room = NodeRoom(3, 8)
    room.take(1, [0], 8, 100)
    room.take(2, [1], 8, 200)
    # two nodes at 100; then one node, on node 2 before that only if it is over by 100
    first, second = (24, 100), (8, 150)
    waiting = queue(first, second, (8, 250))
    # the first gets all three at 200; the second would end at 150, and starts
    assert started(waiting, room) == [(1, [2])]
    room.take(3, [2], 8, 150)
    waiting = queue((24, 100), (16, 60), (8, 40))
    # 200: the first; 100 to 200 has node 0, from 150 node 2 too: 150 + 60 > 200, so after 300
    assert [plan.start_s for plan in planned(waiting, room.view(), 0)] == [200, 300, 100]


def test_easy_delays_the_second_job_where_conservative_does_not():
    room = NodeRoom(4, 8)
    room.take(1, [0, 1, 2], 8, 100)
    # the head has nodes 0 to 2 at 100, the second node 3 and another at 150; 999 s on node 3
    waiting = queue((24, 50), (16, 30), (8, 999))
    plans = planned(waiting, room.view(), 0)
    assert [(plan.start_s, plan.nodes) for plan in plans] == [
        (100, [0, 1, 2]), (150, [0, 1]), (0, [3])
    ]  # fmt: skip
    room = NodeRoom(4, 8)
    room.take(1, [0, 1, 2], 8, 100)
    # now the second wants all four at 150: nobody may hold node 3 beyond that
    waiting = queue((24, 50), (32, 30), (8, 999))
    assert [one.place for one in easy_backfill(waiting, room.view(), 0)] == [2]
    assert started(waiting, room) == []
    assert [plan.start_s for plan in planned(waiting, room.view(), 0)] == [100, 150, 180]


def test_a_short_job_fits_in_the_hole_to_the_second():
    room = NodeRoom(2, 8)
    room.take(1, [0], 8, 100)
    assert started(queue((16, 50), (8, 101)), room) == []
    assert started(queue((16, 50), (8, 100)), room) == [(1, [1])]


def test_a_hole_between_two_jobs_that_wait_is_used_by_a_third():
    room = NodeRoom(2, 8)
    room.take(1, [0], 8, 100)
    # 0 to 100 node 1 is free; 100 to 150 both are kept; then one is, until 950
    waiting = queue((16, 50), (8, 800), (8, 90), (8, 700))
    plans = planned(waiting, room.view(), 0)
    assert [plan.start_s for plan in plans] == [100, 150, 0, 150]
    assert plans[1].nodes != plans[3].nodes


def test_what_ends_before_its_limit_is_planned_for_again():
    room = NodeRoom(2, 8)
    room.take(1, [0], 8, 1000)
    room.take(2, [1], 8, 400)
    waiting = queue((16, 100), (8, 500))
    assert [plan.start_s for plan in planned(waiting, room.view(), 10)] == [1000, 400]
    room.give_back(2, [1])
    assert started(waiting, room, 10) == [(1, [1])]
    room.give_back(1, [0])
    assert [plan.start_s for plan in planned(waiting, room.view(), 20)] == [20, 120]


def test_jobs_that_share_a_node_start_together_and_a_kept_node_is_kept_whole():
    room = NodeRoom(2, 8)
    room.take(1, [0], 6, 100)
    room.take(2, [1], 8, 300)
    # the head of 4 has node 0 at 100; 2 GPUs of it are free until then
    waiting = queue((4, 50), (1, 100), (1, 101), (1, 90))
    assert started(waiting, room) == [(1, [0]), (3, [0])]
    # the third of them waits until the head is done, though node 0 has GPUs for both
    assert planned(waiting, room.view(), 0)[2].start_s == 150


def test_a_part_of_a_node_goes_to_the_fullest_node():
    room = NodeRoom(3, 8)
    room.take(1, [1], 6, 900)
    assert started(queue((32, 10), (2, 50)), room) == [(1, [1])]


def test_a_job_past_its_limit_has_not_ended():
    room = NodeRoom(1, 8)
    room.take(1, [0], 8, 50)
    plans = planned(queue((8, 10)), room.view(), 70)
    assert plans[0].start_s == 71


def test_a_job_that_never_fits_delays_nobody_and_a_closed_node_takes_none():
    room = NodeRoom(2, 8)
    room.close(0)
    waiting = queue((16, 10), (8, 10), (8, 10))
    plans = planned(waiting, room.view(), 0)
    assert [(plan.start_s, plan.nodes) for plan in plans] == [(FAR_S, []), (0, [1]), (10, [1])]


def planned_by_steps(
    held: list[tuple[list[int], int]], jobs: list[tuple[int, int]], n_nodes: int, step_s: int
) -> list[int]:
    """The starts of jobs of whole nodes, from a table of nodes and steps of time."""
    busy: set[tuple[int, int]] = set()
    for nodes, until_s in held:
        busy |= {(node, step) for node in nodes for step in range(until_s // step_s)}
    starts = []
    for n, limit_s in jobs:
        at, steps = 0, limit_s // step_s
        while True:
            free = [
                node
                for node in range(n_nodes)
                if not any((node, at + step) in busy for step in range(steps))
            ]
            if len(free) >= n:
                break
            at += 1
        busy |= {(node, at + step) for node in free[:n] for step in range(steps)}
        starts.append(at * step_s)
    return starts


whole_nodes = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 6).map(lambda n: 100 * n)), max_size=9
)


def running_on(room: NodeRoom, running: list[tuple[int, int]]) -> list[tuple[list[int], int]]:
    """Start those of the jobs (nodes, limit) that fit, from the first node on."""
    held: list[tuple[list[int], int]] = []
    first, n_nodes = 0, len(room.free)
    for n, limit_s in running:
        if first + n <= n_nodes:
            nodes = list(range(first, first + n))
            room.take(len(held), nodes, 8, limit_s)
            held.append((nodes, limit_s))
            first += n
    return held


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(running=whole_nodes, jobs=whole_nodes)
def test_the_plan_is_that_of_a_table_of_nodes_and_times(running, jobs):
    room = NodeRoom(6, 8)
    held = running_on(room, running)
    found = planned(queue(*((8 * n, limit_s) for n, limit_s in jobs)), room.view(), 0)
    assert [plan.start_s for plan in found] == planned_by_steps(held, jobs, 6, 100)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(running=whole_nodes, jobs=whole_nodes)
def test_nobody_starts_later_than_planned_where_all_take_their_limits(running, jobs):
    room = NodeRoom(6, 8)
    ends = {i: until_s for i, (_, until_s) in enumerate(running_on(room, running))}
    waiting = queue(*((8 * n, limit_s) for n, limit_s in jobs))
    first = [plan.start_s for plan in planned(waiting, room.view(), 0)]
    times = sorted({0, *ends.values(), *first})
    while waiting:
        now_s = times.pop(0)
        for number in [one for one, until_s in ends.items() if until_s == now_s]:
            nodes = [node for node in range(6) if number in room.jobs[node]]
            room.give_back(number, nodes)
            del ends[number]
        for start in conservative_backfill(waiting, room.view(), now_s):
            job = next(one for one in waiting if one.place == start.place)
            assert all(room.free[node] == 8 for node in start.nodes)
            assert now_s <= first[job.place]
            room.take(100 + job.place, start.nodes, 8, now_s + job.limit_s)
            ends[100 + job.place] = now_s + job.limit_s
            waiting.remove(job)
            times = sorted({*times, now_s + job.limit_s})


sizes = st.sampled_from((1, 2, 4, 8, 16, 24, 32))
mixed = st.lists(st.tuples(sizes, st.integers(1, 500)), max_size=20)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(running=mixed, jobs=mixed, closed=st.sets(st.integers(0, 5)))
def test_who_starts_has_room_and_delays_no_plan_of_those_who_wait(running, jobs, closed):
    room = NodeRoom(6, 8)
    for number, (gpus, limit_s) in enumerate(running):
        nodes = place(room.by_free, gpus)
        if nodes is not None:
            room.take(number, nodes, min(gpus, 8), limit_s)
    for node in closed:
        room.close(node)
    waiting = queue(*jobs)
    before = planned(waiting, room.view(), 0)
    for job, plan in zip(waiting, before, strict=True):
        if plan.start_s == 0:
            assert len(set(plan.nodes)) == max(1, job.gpus // 8)
            assert all(room.free[node] >= min(job.gpus, 8) for node in plan.nodes)
            assert all(room.open >> node & 1 for node in plan.nodes)
            room.take(100 + job.place, plan.nodes, min(job.gpus, 8), job.limit_s)
    left = [plan.start_s for plan in before if plan.start_s > 0]
    rest = [job for job, plan in zip(waiting, before, strict=True) if plan.start_s > 0]
    assert [plan.start_s for plan in planned(rest, room.view(), 0)] == left


def chosen(free: dict[int, int], count: int, *, gpus: int = 8) -> list[int]:
    """The neighbours of nodes with so many free GPUs, whose others come at 100."""
    ready_s = np.array([[0] * (n + 1) + [100] * (8 - n) for n in free.values()])
    return neighbours(Able(list(free), ready_s, gpus, count, True))


def test_slurm_chooses_neighbours_from_the_shortest_run_that_is_long_enough():
    # two neighbours: 0 and 1, a shorter run than 5 to 7
    empty = dict.fromkeys((0, 1, 3, 5, 6, 7), 8)
    assert chosen(empty, 2) == [0, 1]
    assert chosen(empty, 3) == [5, 6, 7]
    # no run has four: the longest, then the shortest that has the last one
    assert chosen(empty, 4) == [3, 5, 6, 7]
    # one node: the first of the shortest run, however full
    assert chosen({0: 8, 1: 2, 4: 8}, 1, gpus=1) == [4]
    assert chosen({0: 8, 1: 2, 4: 8, 5: 1}, 1, gpus=1) == [0]
    # as in its own log: 4 GPUs went to node 2 of 2 and 5, with 8 and 4 free
    assert chosen({1: 8, 4: 4, 6: 8, 7: 8}, 1, gpus=4) == [1]
    # what running jobs leave first, though others come in time too
    assert chosen({0: 0, 1: 0, 3: 8}, 1) == [3]


def test_of_a_real_slurm_22_05_the_plan_at_one_pass():
    """Its own log of a pass at which node 6 was dead: free, held until, and what it planned."""
    room = NodeRoom(8, 8)
    room.take(84, [0], 4, 269)
    room.take(25, [1, 2, 3, 4], 8, 659)
    room.take(89, [6], 4, 269)
    room.take(92, [6], 4, 522)
    room.close(5)
    waiting = queue(
        (32, 420), (2, 1740), (16, 660), (8, 1920), (8, 1140), (16, 480), (8, 1200), (8, 1080),
        (2, 780), (4, 1080), (4, 900), (8, 1080), (2, 540), (1, 600), (2, 1320),
    )  # fmt: skip
    found = planned(waiting, room.view(), 0, neighbours, 1)
    plan = [[one + 1 for one in plan.nodes] for plan in found[:12]]
    assert plan == [
        [1, 2, 3, 4], [8], [5, 7], [1], [2], [3, 4], [7], [5], [8], [8], [8], [3]
    ]  # fmt: skip
    at_s = [plan.start_s for plan in found]
    assert at_s[:3] == [659, 0, 659]
    assert at_s[8:10] == [0, 0]
    assert at_s[12:14] == [0, 0]
    assert min(at_s[10], at_s[11], at_s[14]) > 0


def test_the_neighbours_of_a_start_in_the_order_of_the_queue_are_the_same():
    room = NodeRoom(8, 8)
    for number, (node, gpus) in enumerate([(2, 8), (4, 4), (5, 8)]):
        room.take(number, [node], gpus, 100)
    room.close(0)
    # nodes 1, 3 and 4, 6 and 7, of which 4 is half empty
    for gpus, nodes in ((1, [1]), (8, [1]), (16, [6, 7]), (24, [1, 6, 7]), (40, None)):
        assert free_neighbours(room.by_free, gpus) == nodes


def test_slurm_starts_nothing_that_ends_as_a_plan_begins():
    room = NodeRoom(2, 8)
    room.take(1, [0], 8, 100)
    assert slurm_backfill(queue((16, 50), (8, 100)), room.view(), 0) == []
    assert [one.place for one in slurm_backfill(queue((16, 50), (8, 99)), room.view(), 0)] == [1]


def test_in_slurms_plan_what_ends_first_ends_with_the_last_of_its_minute():
    """Its own log of a pass at 4547: nodes 2 and 3 are held until 4817, 4 and 5 until 4846."""
    room = NodeRoom(8, 8)
    room.take(110, [0], 6, 5306)
    room.take(143, [1, 2], 8, 4817)
    room.take(103, [3, 4], 8, 4846)
    room.take(63, [5], 8, 6165)
    waiting = queue((32, 3780), (32, 1680), (8, 840), (8, 1200), (32, 600), (32, 240))
    found = planned(waiting, room.view(), 4547, neighbours, 1, None, first_ends_at_once)
    assert [(plan.start_s, [node + 1 for node in plan.nodes]) for plan in found] == [
        (4846, [2, 3, 4, 5]), (6165, [1, 6, 7, 8]), (4547, [7]), (4547, [8]),
        (7845, [1, 6, 7, 8]), (8445, [1, 6, 7, 8]),
    ]  # fmt: skip


def test_scenarios_may_name_it():
    assert WAITING["conservative-backfill"] is conservative_backfill
