"""Preemption for any job of the queue, as Slurm has it: hand-made queues and properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import hypothesis.strategies as st
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.policies import (
    newest_first,
    slurm_backfill,
    slurm_easy,
    slurm_plans,
    slurm_youngest_first,
)
from ettr.sim.cluster.room import EventKind, NodeRoom, Running, Waiting, place, removed
from ettr.sim.cluster.run import loop_can
from ettr.sim.cluster.scenario import scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import FairShare, Quota
from ettr.sim.cluster.workload import Job


def held(room: NodeRoom, *jobs: tuple[int, int, int, tuple[int, ...], int, int]) -> list[Running]:
    """Jobs (number, level, start, nodes, GPUs on each, limit's end) that hold their GPUs."""
    found = [Running(*job) for job in jobs]
    for job in found:
        room.take(job.number, list(job.nodes), job.gpus_on_each, job.until_s)
    return found


def test_the_youngest_goes_first_whatever_its_level():
    room = NodeRoom(2, 8)
    running = held(room, (1, 0, 10, (0,), 8, 900), (2, 1, 20, (1,), 8, 900))
    assert slurm_youngest_first(Waiting(0, 8, 60, 2), running, room.view()) == [2]


def test_several_small_jobs_go_for_one_node_and_those_elsewhere_stay():
    room = NodeRoom(2, 8)
    running = held(
        room,
        (1, 0, 50, (0,), 4, 900), (2, 0, 10, (1,), 4, 900), (3, 0, 20, (1,), 4, 900),
    )  # fmt: skip
    other = held(room, (4, 2, 5, (0,), 4, 900))
    # 1 is the youngest, but the GPUs of its node are not enough without those of 4
    assert sorted(slurm_youngest_first(Waiting(0, 8, 60, 1), running, room.view())) == [2, 3]
    assert other[0].number not in slurm_youngest_first(Waiting(0, 8, 60, 1), running, room.view())


def test_the_one_that_makes_it_fit_is_tried_by_itself_next():
    room = NodeRoom(3, 8)
    # 1 goes first; only with 2 are two nodes empty, and then 2 alone is enough
    running = held(room, (1, 0, 30, (0,), 8, 900), (2, 0, 10, (1, 2), 8, 900))
    assert slurm_youngest_first(Waiting(0, 16, 60, 1), running, room.view()) == [2]
    assert slurm_youngest_first(Waiting(0, 24, 60, 1), running, room.view()) == [2, 1]
    assert slurm_youngest_first(Waiting(0, 8, 60, 1), running, room.view()) == [1]


def test_nobody_goes_where_it_would_not_be_enough_or_the_node_is_closed():
    room = NodeRoom(2, 8)
    running = held(room, (1, 0, 10, (0,), 8, 900))
    held(room, (2, 5, 10, (1,), 8, 900))
    assert slurm_youngest_first(Waiting(0, 16, 60, 1), running, room.view()) == []
    room.close(0)
    assert slurm_youngest_first(Waiting(0, 8, 60, 1), running, room.view()) == []
    assert slurm_youngest_first(Waiting(0, 8, 60, 1), [], room.view()) == []


def test_a_job_far_behind_preempts_where_the_first_is_not_delayed():
    room = NodeRoom(3, 8)
    held(room, (1, 9, 0, (0, 1), 8, 500))
    lower = held(room, (2, 0, 0, (2,), 8, 5000))
    head, behind = Waiting(0, 16, 60, 1), Waiting(1, 8, 100, 1)
    found = slurm_backfill([head, behind], room.view(lower, slurm_youngest_first), 200)
    assert [(one.place, one.nodes, one.victims) for one in found] == [(1, [2], (2,))]
    # of the same level nobody goes
    assert (
        slurm_backfill(
            [head, behind._replace(level=0)], room.view(lower, slurm_youngest_first), 200
        )
        == []
    )
    # nor where nobody is shown that may go
    assert slurm_backfill([head, behind], room.view(), 200) == []


def test_a_job_for_which_more_would_have_to_go_than_do_waits_for_its_nodes():
    room = NodeRoom(2, 8)
    lower = held(room, (1, 0, 0, (0,), 4, 5000), (2, 0, 0, (0,), 4, 5000))
    waiting = [Waiting(0, 8, 60, 2), Waiting(1, 4, 60, 1)]
    room.take(3, [1], 8, 900)
    # newest-first takes one other job at most for it; node 0 is kept for it all the same
    assert slurm_backfill(waiting, room.view(lower, newest_first), 200) == []
    found = slurm_backfill(waiting, room.view(lower, slurm_youngest_first), 200)
    assert [(one.place, sorted(one.victims)) for one in found] == [(0, [1, 2])]


def test_jobs_that_may_be_preempted_count_as_gone_in_the_plan_of_those_that_wait():
    room = NodeRoom(2, 8)
    held(room, (1, 9, 0, (0,), 8, 500))
    lower = held(room, (2, 0, 0, (1,), 4, 5000))
    # both nodes at 500, as if job 2 were gone: what takes node 1 must be over by then
    head = Waiting(0, 16, 60, 1)
    for limit_s, starts in ((299, True), (400, False)):
        found = slurm_backfill(
            [head, Waiting(1, 4, limit_s, 0)], room.view(lower, slurm_youngest_first), 200
        )
        assert bool(found) is starts


def test_with_one_reservation_the_third_may_delay_the_second():
    room = NodeRoom(4, 8)
    held(room, (1, 9, 0, (0, 1, 2), 8, 100))
    # nodes 0 to 2 at 100 for the first; all four at 150 for the second, whom a long job delays
    waiting = [Waiting(0, 24, 50, 1), Waiting(1, 32, 30, 1), Waiting(2, 8, 999, 1)]
    assert slurm_backfill(waiting, room.view(), 0) == []
    assert [(one.place, one.nodes) for one in slurm_easy(waiting, room.view(), 0)] == [(2, [3])]


def test_of_a_real_slurm_22_05_a_pass_in_which_a_job_preempts():
    """Its own log of a pass: node 6 was dead; job 122 preempted 86, and two took node 7 from it."""
    room = NodeRoom(8, 8)
    running = held(
        room,
        (86, 1, -131, (0,), 8, 949), (96, 1, -131, (7,), 8, 409), (31, 0, -331, (1,), 2, 209),
        (111, 0, -270, (1,), 2, 630), (110, 1, -270, (1,), 2, 570), (121, 1, -120, (1,), 2, 480),
        (106, 0, -90, (4,), 4, 630), (112, 2, -388, (2, 3), 8, 452), (116, 2, -278, (4,), 4, 622),
    )  # fmt: skip
    room.close(5)
    ready = [job for job in running if job.level < 2 and job.start_s <= -120]
    waiting = [Waiting(122, 16, 840, 2), Waiting(125, 4, 420, 2), Waiting(124, 1, 540, 0)]
    found = slurm_easy(waiting, room.view(ready, slurm_youngest_first), 0)
    assert [(one.place, [node + 1 for node in one.nodes], one.victims) for one in found] == [
        (122, [1, 7], (86,)), (125, [7], ()), (124, [7], ())
    ]  # fmt: skip
    # job 122 kept nodes 1 and 2, which it would get if all of lower levels were gone
    plans = slurm_plans(waiting[1:], room.view(ready, slurm_youngest_first), 0, 1)
    assert [plan.nodes for plan in plans] == [[6], [6]]


def test_nobody_starts_in_the_pass_on_a_node_that_others_are_leaving():
    """As in Slurm, where a node takes no job while another completes there."""
    room = NodeRoom(2, 8)
    held(room, (1, 9, 0, (0,), 8, 500))
    lower = held(room, (2, 0, 0, (1,), 2, 900))
    held(room, (3, 9, 0, (1,), 4, 900))
    head, preempts, small = Waiting(0, 16, 50, 1), Waiting(1, 4, 90, 1), Waiting(2, 1, 90, 0)
    view = room.view(lower, slurm_youngest_first)
    found = slurm_easy([head, preempts, small], view, 100)
    assert [(one.place, one.victims) for one in found] == [(1, (2,))]
    # without the one that preempts there is room for the small one
    assert [one.place for one in slurm_easy([head, small], view, 100)] == [2]


def test_a_room_counts_the_gpus_of_those_who_leave():
    room = NodeRoom(2, 8)
    held(room, (1, 0, 0, (0,), 6, 900), (2, 0, 0, (0,), 2, 900), (3, 0, 0, (1,), 8, 900))
    assert not room.has([0], 4)
    assert not room.has([0], 4, [2, 3])
    assert room.has([0], 4, [1])
    assert not room.has([0, 1], 4, [1])
    assert room.has([0, 1], 4, [1, 3])
    room.close(0)
    assert not room.has([0], 4, [1])


def test_a_job_that_has_just_preempted_others_preempts_no_more():
    room = NodeRoom(1, 8)
    lower = held(room, (1, 0, 0, (0,), 8, 900))
    view = room.view(lower, slurm_youngest_first)
    assert [one.victims for one in slurm_easy([Waiting(0, 8, 60, 1)], view, 200)] == [(1,)]
    assert slurm_easy([Waiting(0, 8, 60, 1, may_preempt=False)], view, 200) == []


sizes = st.sampled_from((1, 2, 4, 8, 16, 24, 32))
mixed = st.lists(st.tuples(sizes, st.integers(1, 500), st.integers(0, 2)), max_size=14)


def filled(room: NodeRoom, jobs: Sequence[tuple[int, int, int]]) -> list[Running]:
    """As many of these jobs (GPUs, limit, level) as there is room for."""
    found = []
    for number, (gpus, limit_s, level) in enumerate(jobs):
        nodes = place(room.by_free, gpus)
        if nodes is not None:
            job = Running(number, level, -number, tuple(nodes), min(gpus, 8), limit_s)
            room.take(number, nodes, job.gpus_on_each, limit_s)
            found.append(job)
    return found


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(running=mixed, jobs=mixed, closed=st.sets(st.integers(0, 5)))
def test_who_starts_has_room_once_the_victims_of_lower_levels_have_left(running, jobs, closed):
    room = NodeRoom(6, 8)
    there = {job.number: job for job in filled(room, running)}
    for node in closed:
        room.close(node)
    waiting = [
        Waiting(at, gpus, limit_s, level)
        for at, (gpus, limit_s, level) in enumerate(sorted(jobs, key=lambda job: -job[2]))
    ]
    policies = product((slurm_backfill, slurm_easy), (slurm_youngest_first, newest_first))
    for policy, victims_of in policies:
        now = NodeRoom(6, 8)
        filled(now, running)
        for node in closed:
            now.close(node)
        left = dict(there)
        for_others: set[int] = set()
        for start in policy(waiting, now.view(list(left.values()), victims_of), 0):
            job = waiting[start.place]
            # nobody starts on a node that others are leaving
            assert not for_others & set(start.nodes)
            for number in start.victims:
                assert left[number].level < job.level
                for_others |= set(left[number].nodes)
                now.give_back(number, list(left.pop(number).nodes))
            assert len(set(start.nodes)) == max(1, job.gpus // 8)
            assert now.has(start.nodes, min(job.gpus, 8))
            # one for which others leave starts later, on what is then there
            if not start.victims:
                now.take(100 + job.place, start.nodes, min(job.gpus, 8), job.limit_s)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(running=mixed, gone=st.sets(st.integers(0, 13)), closed=st.sets(st.integers(0, 5)))
def test_the_times_without_some_jobs_are_those_of_nodes_that_they_have_left(running, gone, closed):
    room = NodeRoom(6, 8)
    jobs = filled(room, running)
    for node in closed:
        room.close(node)
    without = removed(room.ready_s, [job for job in jobs if job.number in gone])
    for job in jobs:
        if job.number in gone:
            room.give_back(job.number, list(job.nodes))
    assert without.tolist() == room.ready_s.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waiting", "quotas"),
    [
        ("slurm-backfill", ()),
        ("slurm-easy", ()),
        ("slurm-easy", (Quota("user", "*", 96), Quota("account", "*", 240))),
    ],
)
def test_a_cluster_with_it_preempts_lower_levels_alone_and_keeps_every_gpu_hour(waiting, quotas):
    scenario = scenario_of(scenario_text("small")[0])
    rules = replace(
        scenario.scheduling, waiting=waiting, preemption="slurm-youngest-first", preempt_after_s=600
    )
    period = replace(scenario.period, days=0.75)
    scenario = replace(scenario, scheduling=rules, period=period, quotas=quotas)
    assert not loop_can(scenario)
    cluster = SimulatedCluster(scenario, 3, "0")
    for _ in cluster.play():
        assert min(cluster._scheduler.room.free) >= 0
    truth = cluster.truth()
    attempts = truth["attempts"]
    preempted = attempts.filter(pc.equal(attempts["end"], "PREEMPTED"))
    assert preempted.num_rows > 10
    assert preempted["for_job_id"].null_count == 0
    machines, days = scenario.machines, scenario.period.days
    there = 24 * days * machines.nodes * machines.gpus_per_node
    assert pc.sum(truth["hours"]["gpu_hours"]).as_py() == pytest.approx(there, rel=1e-9)


def test_with_fair_share_a_job_behind_one_of_a_low_level_preempts_as_a_grace_ends():
    """The first of the queue is of the lowest level, so that nobody preempts for it."""
    scenario = scenario_of(scenario_text("small")[0])
    rules = replace(
        scenario.scheduling, waiting="slurm-backfill", preemption="slurm-youngest-first",
        preempt_after_s=600,
    )  # fmt: skip
    jobs = tuple(replace(one, share=1 / 3) for one in scenario.jobs if one.gpus <= 8)
    scenario = replace(
        scenario, machines=replace(scenario.machines, nodes=2), faults=(), bursts=(), jobs=jobs,
        scheduling=rules, fair_share=FairShare(1e5, 86400, 1e5, 0.0, 1e6, 0.0, 0.0),
    )  # fmt: skip
    cluster = SimulatedCluster(scenario, 1, "0")
    calendar = cluster._calendar
    while calendar.next_before(1 << 60, EventKind.PASS):
        pass  # no faults and no checks
    low, waits, high = (
        Job(0, 0, gpus, limit_s - 1, limit_s, 0, 0, priority, 10**7, at_s, at_s)
        for gpus, limit_s, priority, at_s in (
            (16, 50000, 0, 0),
            (16, 50000, 0, 10),
            (8, 3000, 2, 20),
        )
    )
    for job in (low, waits, high):
        while event := calendar.next_before(job.submit_s, EventKind.ARRIVAL):
            cluster._happen(event)
        cluster._submit(job, job.submit_s)
    while high.start_s < 0 and (event := calendar.next_before(90000, EventKind.PASS)):
        cluster._happen(event)
    assert (low.restarts, waits.start_s, high.start_s) == (1, -1, 600)
