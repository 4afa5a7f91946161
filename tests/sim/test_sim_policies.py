"""Policies of the simulated scheduler, each a function of the queue and the room."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ettr.sim.cluster.policies import easy_backfill, newest_first
from ettr.sim.cluster.room import FAR_S, NodeRoom, Running, Waiting, place

SIZES = (1, 2, 4, 8, 16, 24, 32)


def fill(room: NodeRoom, jobs: list[tuple[int, int]], now_s: int = 0) -> int:
    """Start those of the jobs (GPUs, limit) that fit; returns how many."""
    started = 0
    for number, (gpus, limit_s) in enumerate(jobs):
        nodes = place(room.by_free, gpus)
        if nodes is not None:
            room.take(number, nodes, min(gpus, 8), now_s + limit_s)
            started += 1
    return started


jobs_of = st.lists(st.tuples(st.sampled_from(SIZES), st.integers(1, 500)), max_size=30)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    running=jobs_of, head=st.sampled_from(SIZES), others=jobs_of, closed=st.sets(st.integers(0, 5))
)
def test_whoever_overtakes_leaves_the_first_job_its_promised_start(running, head, others, closed):
    room = NodeRoom(6, 8)
    fill(room, running)
    for node in closed:
        room.close(node)
    if place(room.by_free, head) is not None:
        return
    _, promised_s = room.view().reservation(head)
    waiting = [Waiting(0, head, 100, 1)]
    waiting += [Waiting(i + 1, gpus, limit_s, 1) for i, (gpus, limit_s) in enumerate(others)]
    for start in easy_backfill(waiting, room.view(), 0):
        job = waiting[start.place]
        # it really fits: taking nodes that are not free would raise
        assert all(room.free[node] >= min(job.gpus, 8) for node in start.nodes)
        assert all(room.open >> node & 1 for node in start.nodes)
        room.take(100 + start.place, start.nodes, min(job.gpus, 8), job.limit_s)
    _, after_s = room.view().reservation(head)
    assert after_s <= promised_s


def easy_by_counts(
    free: int, ends: list[tuple[int, int]], head: int, others: list[tuple[int, int]]
) -> list[int]:
    """EASY by counts of whole nodes: the shadow time and the extra nodes of Mu'alem and Feitelson.

    `ends`: nodes and time limit of each running job.
    """
    ready, shadow_s = free, 0
    for at_s in sorted({limit_s for _, limit_s in ends}):
        if ready >= head:
            break
        ready, shadow_s = ready + sum(n for n, limit_s in ends if limit_s == at_s), at_s
    if ready < head:
        # it never fits: nobody can delay it
        ready, shadow_s = head + free, 1 << 60
    extra = ready - head
    started = []
    for place_of, (nodes, limit_s) in enumerate(others, start=1):
        in_time = limit_s <= shadow_s
        if nodes <= free and (in_time or nodes <= extra):
            free -= nodes
            extra -= 0 if in_time else nodes
            started.append(place_of)
    return started


whole_nodes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9).map(lambda n: 100 * n)))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(running=whole_nodes, head=st.integers(2, 8), others=whole_nodes)
def test_as_many_overtake_as_easy_by_counts_lets(running, head, others):
    room, first, held = NodeRoom(8, 8), 0, []
    for number, (nodes, limit_s) in enumerate(running):
        if first + nodes <= 8:
            room.take(number, list(range(first, first + nodes)), 8, limit_s)
            first, held = first + nodes, [*held, (nodes, limit_s)]
    if place(room.by_free, 8 * head) is not None:
        return
    waiting = [Waiting(0, 8 * head, 100, 1)]
    waiting += [Waiting(i + 1, 8 * nodes, limit_s, 1) for i, (nodes, limit_s) in enumerate(others)]
    found = [one.place for one in easy_backfill(waiting, room.view(), 0)]
    assert found == easy_by_counts(8 - first, held, head, others)


def test_a_short_job_overtakes_and_a_long_one_does_not():
    room = NodeRoom(2, 8)
    room.take(1, [0], 8, 100)
    waiting = [Waiting(0, 16, 50, 1), Waiting(1, 8, 200, 1), Waiting(2, 8, 90, 1)]
    assert [(s.place, s.nodes) for s in easy_backfill(waiting, room.view(), 0)] == [(2, [1])]


def test_a_long_job_overtakes_where_it_keeps_off_the_promised_nodes():
    room = NodeRoom(3, 8)
    room.take(1, [0], 8, 100)
    room.take(2, [1], 8, 5000)
    waiting = [Waiting(0, 16, 50, 1), Waiting(1, 4, 9000, 1)]
    # nodes 0 and 2 are promised; node 1 is held: nothing is left for a long job
    assert easy_backfill(waiting, room.view(), 0) == []
    room.give_back(2, [1])
    room.take(3, [1], 4, 5000)
    assert [s.nodes for s in easy_backfill(waiting, room.view(), 0)] == [[1]]


def test_a_reservation_waits_for_the_gpus_of_one_node_or_for_whole_nodes():
    room = NodeRoom(2, 8)
    room.take(1, [0], 6, 300)
    room.take(2, [0], 2, 100)
    room.take(3, [1], 8, 200)
    view = room.view()
    assert view.reservation(2) == (0b01, 100)
    assert view.reservation(4) == (0b10, 200)
    assert view.reservation(16) == (0b11, 300)
    assert view.reservation(24) == (0, FAR_S)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(running=jobs_of, head=st.sampled_from(SIZES))
def test_preempting_makes_room_for_the_first_job_with_nobody_in_vain(running, head):
    room = NodeRoom(6, 8)
    fill(room, running)
    if place(room.by_free, head) is not None:
        return
    jobs = {
        number: Running(number, number % 3, -number, tuple(nodes), gpus, 1)
        for number in range(len(running))
        if (nodes := [n for n in range(6) if number in room.jobs[n]])
        for gpus in [room.jobs[nodes[0]][number][0]]
    }
    chosen = newest_first(Waiting(0, head, 10, 9), list(jobs.values()), room.view())
    if not chosen:
        return
    for number in chosen:
        room.give_back(number, list(jobs[number].nodes))
    assert place(room.by_free, head) is not None
    for number in chosen:
        job = jobs[number]
        room.take(number, list(job.nodes), job.gpus_on_each, 1)
        assert place(room.by_free, head) is None, "one of them was preempted in vain"
        room.give_back(number, list(job.nodes))


def test_the_lowest_level_goes_first_and_of_it_the_last_to_start():
    room = NodeRoom(3, 8)
    spans = ((1, 2, 10, 0), (2, 1, 10, 1), (3, 1, 50, 2))
    running = [Running(k, level, at_s, (node,), 8, 1000) for k, level, at_s, node in spans]
    for job in running:
        room.take(job.number, list(job.nodes), 8, 1000)
    assert newest_first(Waiting(0, 8, 10, 9), running, room.view()) == [3]
    assert newest_first(Waiting(0, 16, 10, 9), running, room.view()) == [3, 2]
    assert newest_first(Waiting(0, 32, 10, 9), running, room.view()) == []


def test_a_job_of_a_whole_node_takes_what_one_other_job_holds_at_most():
    """As one that shares a node: two halves of a node do not go for it, for two nodes they do."""
    room = NodeRoom(2, 8)
    halves = [Running(k, 1, 10, (node,), 4, 1000) for k, node in ((1, 0), (2, 0), (3, 1), (4, 1))]
    for job in halves:
        room.take(job.number, list(job.nodes), 4, 1000)
    assert newest_first(Waiting(0, 8, 10, 9), halves, room.view()) == []
    assert sorted(newest_first(Waiting(0, 16, 10, 9), halves, room.view())) == [1, 2, 3, 4]
    room.give_back(2, [0])
    left = [halves[0], *halves[2:]]
    assert newest_first(Waiting(0, 8, 10, 9), left, room.view()) == [1]


@given(running=jobs_of, closed=st.sets(st.integers(0, 5)))
def test_the_largest_job_with_room_is_that_of_all_sizes(running, closed):
    room = NodeRoom(6, 8)
    fill(room, running)
    for node in closed:
        room.close(node)
    has_room = [gpus for gpus in range(1, 64) if place(room.by_free, gpus) is not None]
    assert has_room == list(range(1, room.most_gpus + 1))


@given(running=jobs_of, others=jobs_of)
def test_with_easy_backfill_jobs_without_room_make_no_difference(running, others):
    room = NodeRoom(6, 8)
    fill(room, running)
    head = Waiting(0, 48, 100, 0)
    waiting = [Waiting(n, gpus, limit_s, 0) for n, (gpus, limit_s) in enumerate(others, 1)]
    fitting = [one for one in waiting if one.gpus <= room.most_gpus]
    found = easy_backfill([head, *waiting], room.view(), 0)
    assert found == easy_backfill([head, *fitting], room.view(), 0)


def test_the_docstring_says_which_jobs_of_whole_nodes_follow_which_rule():
    said = " ".join((newest_first.__doc__ or "").split())
    assert "A job of up to one node, a whole one too, gets the GPUs of one other job" in said
