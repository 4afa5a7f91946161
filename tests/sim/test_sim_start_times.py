"""Starts of a recorded schedule, each predicted from what was real before it."""

from __future__ import annotations

from dataclasses import replace

from campaigns.start_times import (
    NEVER,
    Passes,
    RecordedAttempt,
    RecordedOutage,
    predicted_starts,
)
from ettr.sim.cluster.scenario import scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import Machines

TWO_NODES = Machines(nodes=2, gpus_per_node=8, nodes_per_rack=2, racks_per_pod=1, gpu_type="a100")
RULES = replace(scenario_of(scenario_text("small")[0]).scheduling, preempt_after_s=100)


def ran(
    number: int, gpus: int, eligible_s: int, start_s: int, end_s: int, *nodes: int,
    level: int = 1, limit_s: int = 1000,
) -> RecordedAttempt:  # fmt: skip
    return RecordedAttempt(
        number, gpus, limit_s, level, eligible_s, eligible_s, start_s, end_s, nodes, "COMPLETED"
    )


def starts(*attempts: RecordedAttempt, outages: tuple[RecordedOutage, ...] = ()) -> list[int]:
    return predicted_starts(attempts, outages, TWO_NODES, RULES, 30)


def test_a_job_starts_when_its_nodes_are_really_free():
    held = ran(0, 16, 0, 5, 400, 0, 1)
    # the limit ends at 1005, the job ended at 400; Slurm's pass came at 412
    assert starts(held, ran(1, 8, 10, 412, 500, 0)) == [0, 400]


def test_a_start_at_the_moment_of_its_submission_is_in_time():
    assert starts(ran(0, 8, 50, 50, 60, 0)) == [50]


def test_one_difference_is_counted_once():
    """Job 1 could have started at 0 and did at 300; job 2 comes as it really can."""
    found = starts(
        ran(0, 8, 0, 0, 200, 0), ran(1, 8, 0, 300, 350, 1), ran(2, 16, 310, 350, 400, 0, 1)
    )
    assert found == [0, 0, 350]


def test_a_job_that_the_policies_would_not_have_started_has_no_time():
    """It overtakes a job of two nodes that it delays."""
    first = ran(0, 8, 0, 0, 900, 0)
    waits = ran(1, 16, 10, 1500, 1600, 0, 1)
    early = ran(2, 8, 20, 21, 1500, 1, limit_s=5000)
    assert starts(first, waits, early) == [0, 1500, NEVER]


def test_a_higher_job_takes_the_place_of_a_lower_one_after_its_grace():
    low = replace(ran(0, 16, 0, 0, 131, 0, 1, level=0), state="PREEMPTED")
    assert starts(low, ran(1, 8, 20, 133, 200, 0, level=2)) == [0, 100]


def test_a_job_for_which_another_is_preempted_starts_once_that_has_left():
    low = replace(ran(0, 16, 0, 0, 110, 0, 1, level=0), state="PREEMPTED")
    # the scheduler preempts at 110; whoever is first when it looks again gets the nodes
    assert starts(low, ran(1, 16, 20, 133, 200, 0, 1, level=2)) == [0, 111]
    later = ran(2, 16, 105, 115, 200, 0, 1, level=3)
    assert starts(low, ran(1, 16, 20, 215, 300, 0, 1, level=2), later) == [0, 200, 111]


def test_who_overtakes_by_preemption_waits_for_who_leaves():
    head = replace(ran(0, 16, 5, 900, 950, 0, 1, level=1), limit_s=50)
    held = ran(1, 8, 0, 0, 900, 0, level=1)
    low = replace(ran(2, 8, 0, 0, 150, 1, level=0), state="PREEMPTED")
    small = replace(ran(3, 8, 10, 175, 600, 1, level=1), limit_s=500)
    rules = replace(RULES, waiting="slurm-backfill", preemption="slurm-youngest-first")
    passes = Passes(in_order_s=[5, 175], overtaking_s=[95, 150, 175])
    found = predicted_starts((head, held, low, small), (), TWO_NODES, rules, 30, passes)
    # at 95 the low job is within its grace; at 150 it is preempted, and the small one comes at 175
    assert found[3] == 175
    # where it stays in truth the policy preempts it at 150 all the same; the textbook's does not
    stays = replace(low, state="COMPLETED", end_s=900)
    late = replace(small, start_s=900, end_s=950)
    for policy, said_s in ((rules, 150), (replace(rules, waiting="easy-backfill"), NEVER)):
        assert predicted_starts(
            (head, held, stays, late), (), TWO_NODES, policy, 30, passes
        )[3] == said_s  # fmt: skip


def test_a_node_that_is_out_takes_no_job():
    out = (RecordedOutage(0, 0, 500), RecordedOutage(1, 0, 600))
    assert starts(ran(0, 16, 10, 605, 700, 0, 1), outages=out) == [600]


def test_a_dead_node_that_still_has_its_job_is_promised_to_nobody():
    """Job 1 needs both nodes, of which one comes back; job 2 would end before that."""
    dies = ran(0, 8, 0, 0, 300, 0, limit_s=100)
    waits = ran(1, 16, 10, NEVER, 900)
    found = starts(dies, waits, ran(2, 8, 20, 20, 800, 1), outages=(RecordedOutage(0, 15, 5000),))
    assert found == [0, NEVER, 20]


def test_jobs_overtake_only_when_the_real_scheduler_looked_for_them():
    held = ran(0, 8, 0, 0, 900, 0)
    waits, overtakes = ran(1, 16, 10, 900, 950, 0, 1), ran(2, 8, 20, 41, 100, 1, limit_s=60)
    attempts = (held, waits, overtakes)
    assert predicted_starts(attempts, (), TWO_NODES, RULES, 30) == [0, 900, 20]
    passes = Passes(overtaking_s=[5, 35, 65])
    assert predicted_starts(attempts, (), TWO_NODES, RULES, 30, passes) == [0, 900, 35]


def test_a_job_starts_when_the_real_scheduler_looked_at_its_queue():
    """Job 1 might start at 100, but when the scheduler next looks job 2 stands before it."""
    held = ran(0, 16, 0, 0, 100, 0, 1)
    attempts = (held, ran(1, 16, 20, 300, 400, 0, 1), ran(2, 16, 110, 120, 290, 0, 1, level=2))
    assert predicted_starts(attempts, (), TWO_NODES, RULES, 30) == [0, 100, NEVER]
    passes = Passes(in_order_s=[0, 50, 120, 300])
    assert predicted_starts(attempts, (), TWO_NODES, RULES, 30, passes) == [0, 300, 110]


def test_gpus_of_which_slurm_has_lost_count_take_no_job():
    lost = (RecordedOutage(0, 0, NEVER, gpus=6),)
    assert starts(ran(0, 8, 10, 10, 50, 1), ran(1, 4, 20, 51, 90, 1), outages=lost) == [10, 50]
    assert starts(ran(0, 8, 10, 10, 50, 1), ran(1, 2, 20, 20, 90, 0), outages=lost) == [10, 20]


def test_gpus_lost_twice_on_one_node_are_promised_to_nobody():
    """Job 1 waits for node 1, so that job 2 may overtake it on what is left of node 0."""
    lost = (RecordedOutage(0, 0, NEVER, gpus=3), RecordedOutage(0, 5, NEVER, gpus=3))
    held, waits = ran(0, 8, 10, 10, 900, 1), ran(1, 8, 20, 900, 950, 1)
    assert starts(held, waits, ran(2, 2, 30, 30, 90, 0, limit_s=5000), outages=lost) == [
        10,
        900,
        30,
    ]


SLURM = replace(RULES, waiting="slurm-backfill", preemption="slurm-youngest-first")


def test_an_attempt_that_was_started_early_may_be_preempted_without_any_grace():
    low = ran(0, 4, 0, 20, 500, 0, level=0, limit_s=100)
    high = ran(1, 16, 20, 600, 700, 0, 1, level=2)
    rules = replace(SLURM, preempt_after_s=0)
    assert predicted_starts((low, high), (), TWO_NODES, rules, 30) == [0, 20]


def test_who_has_just_preempted_others_preempts_no_more_for_a_while():
    """Another takes at 101 what was freed for job 3, which might preempt job 1 from 110 on."""
    leaves = replace(ran(0, 8, 0, 0, 100, 0, level=0), state="PREEMPTED")
    stays = ran(1, 8, 0, 10, 900, 1, level=0)
    takes = ran(2, 8, 101, 101, 190, 0, level=3)
    waits = ran(3, 8, 20, 191, 300, 0, level=2)
    passes = Passes(in_order_s=[0, 100, 101, 120, 191], overtaking_s=[])
    attempts, rules = (leaves, stays, takes, waits), replace(RULES, preemption="newest-first")
    at_once = predicted_starts(attempts, (), TWO_NODES, rules, 30, passes)
    later = predicted_starts(attempts, (), TWO_NODES, rules, 30, passes, preempt_again_s=102)
    assert (at_once[3], later[3]) == (120, 191)


def test_a_job_may_start_in_the_second_in_which_others_leave_for_it():
    low = replace(ran(0, 16, 0, 0, 110, 0, 1, level=0), state="PREEMPTED")
    attempts = (low, ran(1, 16, 105, 110, 200, 0, 1, level=2))
    passes = Passes(in_order_s=[0, 110])
    assert predicted_starts(attempts, (), TWO_NODES, RULES, 30, passes) == [0, 110]


def test_who_does_not_start_preempts_nobody():
    """The second of two that preempt is planned on what the first's victim has still to leave."""
    four_nodes = replace(TWO_NODES, nodes=4)
    attempts = (
        replace(ran(0, 16, 0, 2, 110, 0, 1, level=0, limit_s=5000), state="PREEMPTED"),
        ran(1, 8, 0, 1, 4000, 2, level=0, limit_s=5000),
        ran(2, 4, 0, 1, 4000, 3, level=2, limit_s=5000),
        ran(3, 8, 98, 140, 4000, 0, limit_s=300),
        ran(4, 16, 98, 4000, 4100, 1, 2, limit_s=300),
        ran(5, 4, 98, 102, 300, 3, level=0, limit_s=50),
    )
    passes = Passes(in_order_s=[1, 2, 111, 140], overtaking_s=[1, 2, 100, 111, 140])
    rules = replace(SLURM, preempt_after_s=50)
    # the last one starts at 100; nodes 0 and 1 are free from 111 on, and node 2 never
    assert predicted_starts(attempts, (), four_nodes, rules, 30, passes)[3:] == [111, 111, 100]
