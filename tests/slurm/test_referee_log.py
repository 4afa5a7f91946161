"""What the judge of the simulated scheduler reads from a real Slurm's accounting and log."""

from __future__ import annotations

from dataclasses import replace

from campaigns.start_times import NEVER, Passes, RecordedOutage
from slurm.referee_jobs import PlannedJob
from slurm.referee_log import (
    RecordedPlan,
    read_attempts,
    read_lost_gpus,
    read_outages,
    read_passes,
    read_plans,
)

ORIGIN_S = 1_764_000_000  # 2025-11-24 16:00:00 UTC
JOBS = (PlannedJob(0.0, 2, 300, 600, "normal", 0, None),)
ROW = {
    "JobIDRaw": "7",
    "State": "COMPLETED",
    "Submit": "2025-11-24T16:08:00",
    "Eligible": "2025-11-24T16:08:10",
    "Start": "2025-11-24T16:08:20",
    "End": "2025-11-24T16:13:20",
    "NodeList": "node5",
    "QOS": "normal",
}


def test_an_attempt_that_the_accounting_has_lost_is_read_from_the_log() -> None:
    """The first went to a dead node, and slurmdbd kept the second in its place."""
    log = """\
[2025-11-24T16:01:00.100] sched: Allocate JobId=7 NodeList=node1 #CPUs=4 Partition=train
[2025-11-24T16:01:11.100] _job_complete: requeue JobId=7 per user/system request
[2025-11-24T16:08:15.900] cleanup_completing: JobId=7 completion process took 424 seconds
[2025-11-24T16:08:20.100] sched: Allocate JobId=7 NodeList=node5 #CPUs=4 Partition=train
"""
    row = {**ROW, "Submit": "2025-11-24T16:00:50", "Eligible": "2025-11-24T16:00:50"}
    lost, kept = read_attempts([row], log, ["7"], JOBS, ORIGIN_S)
    assert (lost.eligible_s, lost.start_s, lost.end_s, lost.nodes) == (50, 60, 71, (0,))
    assert lost.state == "NODE_FAIL"
    # it kept its place, and had to wait until Slurm was done with the first
    assert (kept.submit_s, kept.eligible_s, kept.start_s) == (50, 495, 500)
    assert (kept.nodes, kept.state) == ((4,), "COMPLETED")


def test_a_job_that_a_dead_node_never_lets_go_keeps_its_place_in_the_queue() -> None:
    """Slurm gives a preempted one another place only as it puts it back."""
    log = """\
[2025-11-24T16:01:00.100] sched: Allocate JobId=7 NodeList=node1 #CPUs=4 Partition=train
[2025-11-24T16:03:00.100] preempted JobId=7 has been requeued to reclaim resources for JobId=9
{}[2025-11-24T16:08:20.100] sched: Allocate JobId=7 NodeList=node5 #CPUs=4 Partition=train
"""
    row = {**ROW, "Submit": "2025-11-24T16:00:50", "Eligible": "2025-11-24T16:00:50"}
    for put_back, submit_s in (("", 50), ("[2025-11-24T16:03:02.100] Requeuing JobId=7\n", 180)):
        lost, kept = read_attempts([row], log.format(put_back), ["7"], JOBS, ORIGIN_S)
        assert (lost.end_s, lost.state, kept.submit_s) == (180, "PREEMPTED", submit_s)


def test_what_came_in_the_second_of_a_pass_but_after_it_was_not_seen_by_it() -> None:
    log = """\
[2025-11-24T16:08:10.300] {}
[2025-11-24T16:08:10.500] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=100 usec=9600
[2025-11-24T16:13:20.200] {}
[2025-11-24T16:13:20.400] _job_complete: JobId=7 done
"""
    passes = (
        "sched/backfill: _attempt_backfill: beginning",
        "debug:  sched: Running job scheduler for default depth.",
    )
    (one,) = read_attempts([ROW], log.format(*passes), ["7"], JOBS, ORIGIN_S)
    assert (one.eligible_s, one.end_s) == (491, 801)
    seen = "\n".join(reversed(log.format(*passes).splitlines()))
    seen_later = log.format(*passes) + f"[2025-11-24T16:13:20.500] {passes[1]}\n"
    for text, times_s in ((seen, (490, 800)), (seen_later, (491, 800))):
        (one,) = read_attempts([ROW], text, ["7"], JOBS, ORIGIN_S)
        assert (one.eligible_s, one.end_s) == times_s


def test_a_job_that_waited_has_neither_start_nor_nodes() -> None:
    row = {**ROW, "State": "CANCELLED by 0", "Start": "Unknown", "NodeList": "None assigned"}
    (one,) = read_attempts([row], "", ["7"], JOBS, ORIGIN_S)
    assert (one.start_s, one.nodes, one.state) == (NEVER, (), "CANCELLED")


def test_a_node_takes_jobs_from_its_death_until_slurm_notices() -> None:
    log = """\
[2025-11-24T16:01:00.100] error: Nodes node6 not responding
[2025-11-24T16:01:40.100] error: Nodes node[1,3] not responding
[2025-11-24T16:03:20.100] error: Nodes node[1,3] not responding
[2025-11-24T16:05:00.100] error: Nodes node3 not responding, setting DOWN
"""
    events = "node3|2025-11-24T16:05:00|2025-11-24T16:15:00|DOWN*\n"
    found = read_outages(events, log, [(5, 10), (2, 30), (2, 5000)], [], ORIGIN_S)
    assert found == (RecordedOutage(2, 100, 900),)


def test_a_dead_node_takes_no_job_from_when_one_ends_there() -> None:
    """It never says that it is done with it; what ended long before its death it has said."""
    log = "[2025-11-24T16:01:40.100] error: Nodes node3 not responding\n"
    events = "node3|2025-11-24T16:05:00|2025-11-24T16:15:00|DOWN*\n"
    (row,) = read_attempts([ROW], "", ["7"], JOBS, ORIGIN_S)
    for end_s, start_s in ((20, 100), (29, 30), (60, 61), (400, 100)):
        ended = [replace(row, nodes=(1, 2), end_s=end_s), replace(row, nodes=(1,), end_s=40)]
        found = read_outages(events, log, [(2, 30)], ended, ORIGIN_S)
        assert found == (RecordedOutage(2, start_s, 900),)


def test_silence_of_an_earlier_outage_does_not_lengthen_a_later_one() -> None:
    log = """\
[2025-11-24T16:01:00.100] error: Nodes node3 not responding
[2025-11-24T16:21:00.100] error: Nodes node3 not responding
"""
    events = (
        "node3|2025-11-24T16:05:00|2025-11-24T16:10:00|DOWN*\n"
        "node3|2025-11-24T16:25:00|2025-11-24T16:30:00|DOWN*\n"
    )
    first, second = read_outages(events, log, [(2, 30)], [], ORIGIN_S)
    assert (first.start_s, second.start_s) == (60, 1260)


def test_an_outage_of_which_the_log_says_nothing_begins_with_its_event() -> None:
    events = "node3|2025-11-24T16:05:00|Unknown|DOWN\n"
    assert read_outages(events, "", [], [], ORIGIN_S) == (RecordedOutage(2, 300, NEVER),)


def test_gpus_of_which_slurm_lost_count_are_those_of_the_job() -> None:
    log = (
        "[2025-11-24T16:02:00.100] error: gres/gpu: job 7 dealloc of node node5 bad node_offset 0 "
        "count is 0\n"
    )
    assert read_lost_gpus(log, ["7"], JOBS, ORIGIN_S) == (RecordedOutage(4, 120, NEVER, 2),)


def test_passes_are_those_in_order_and_those_of_backfill() -> None:
    log = """\
[2025-11-24T16:00:30.100] debug:  sched: Running job scheduler for default depth.
[2025-11-24T16:00:40.100] sched/backfill: _attempt_backfill: beginning
[2025-11-24T16:01:00.100] debug:  sched: Running job scheduler for full queue.
"""
    assert read_passes(log, ORIGIN_S) == Passes((30, 60), frozenset({40}))
    assert read_passes("", ORIGIN_S) == Passes(None, None)


def test_plans_are_those_of_each_pass() -> None:
    begun = "sched/backfill: _attempt_backfill: beginning"
    plan = "sched/backfill: _dump_job_sched: JobId={} to start at 2025-11-24T16:05:48, end at "
    plan += "2025-11-24T17:08:48 on nodes {} in partition train"
    log = "\n".join([
        f"[2025-11-24T16:01:00.100] {begun}",
        f"[2025-11-24T16:01:00.110] {plan.format(7, 'node[2-3,5]')}",
        f"[2025-11-24T16:01:00.120] {plan.format(70, 'node1')}",
        f"[2025-11-24T16:01:30.100] {begun}",
        "[2025-11-24T16:01:30.110] sched/backfill: _start_job: Started JobId=7 in train on node2",
    ])  # fmt: skip
    found = read_plans(log, ["6", "7"], ORIGIN_S)
    assert found == (RecordedPlan(60, {1: (348, (1, 2, 4))}), RecordedPlan(90, {}))
