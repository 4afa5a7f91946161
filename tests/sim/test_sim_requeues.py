"""Jobs that their owners put back into the queue as they run: REQUEUED, and the same id again."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import pytest

from cluster_scenarios import fault, one_size, played, quiet, small
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, text_of
from ettr.sim.cluster.whatif import changed_scenario

WORK_S = 9000


def put_back(share: float, gpus: int = 8, **parts: object) -> ClusterScenario:
    """Jobs of one length on 40 nodes that never wait for each other, and nothing fails."""
    (jobs,) = one_size(gpus, float(WORK_S))
    return quiet(**({"jobs": (replace(jobs, requeued_share=share),)} | parts))


def attempts_by_job(scenario: ClusterScenario, seed: int) -> dict[str, list[dict[str, object]]]:
    tables, _ = played(scenario, seed)
    by_job = defaultdict(list)
    for row in tables["attempts"].to_pylist():
        by_job[row["job_id"]].append(row)
    for rows in by_job.values():
        rows.sort(key=lambda row: row["submit"])
    return by_job


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_that_share_of_the_jobs_is_put_back_once_and_runs_to_its_end(gpus: int):
    scenario = put_back(0.2, gpus, period={"days": 9.0}, arrivals={"jobs_per_day": 180.0})
    jobs = attempts_by_job(scenario, 1)
    back = [rows for rows in jobs.values() if rows[0]["state"] == "REQUEUED"]
    n = len(jobs)
    assert n > 1000
    assert abs(len(back) - 0.2 * n) < 4 * math.sqrt(0.2 * 0.8 * n)
    delay_s = scenario.scheduling.requeue_delay_s
    for first, *later in back:
        assert first["elapsed_s"] < WORK_S
        assert len(later) == 1
        assert later[0]["restarts"] == 1
        assert later[0]["submit"] == first["end"]
        assert later[0]["state"] in ("COMPLETED", "RUNNING", "PENDING")
        if later[0]["start"] is not None:
            assert (later[0]["start"] - first["end"]).total_seconds() >= delay_s
    others = [rows for rows in jobs.values() if rows[0]["state"] != "REQUEUED"]
    assert all(len(rows) == 1 for rows in others)


@pytest.mark.slow
def test_the_time_is_uniform_over_the_length():
    jobs = attempts_by_job(put_back(1.0), 2)
    lasted = [rows[0]["elapsed_s"] / WORK_S for rows in jobs.values() if len(rows) > 1]
    assert len(lasted) > 1000
    mean = sum(lasted) / len(lasted)
    assert abs(mean - 0.5) < 4 * math.sqrt(1 / 12 / len(lasted))
    below = sum(one < 0.1 for one in lasted)
    assert abs(below - 0.1 * len(lasted)) < 4 * math.sqrt(0.09 * len(lasted))


@pytest.mark.slow
def test_jobs_of_whole_nodes_keep_their_checkpoints_and_others_start_over():
    for gpus, keeps in ((1, False), (8, True)):
        scenario = put_back(1.0, gpus)
        _, run = played(scenario, 3)
        truth = [row for row in run.truth()["attempts"].to_pylist() if row["end"] == "REQUEUED"]
        assert len(truth) > 1000
        assert {row["fault"] for row in truth} == {row["for_job_id"] for row in truth} == {None}
        interval_s = scenario.checkpoints.interval_s
        saved = {row["saved_s"] for row in truth}
        assert saved == ({0, interval_s, 2 * interval_s} if keeps else {0})
        assert all(row["lost_s"] < interval_s for row in truth) == keeps


@pytest.mark.slow
def test_a_job_that_was_interrupted_too_often_is_not_put_back():
    never = put_back(1.0, scheduling={"most_requeues": 0}, period={"days": 2.0})
    jobs = attempts_by_job(never, 4)
    assert len(jobs) > 500
    assert all(len(rows) == 1 and rows[0]["state"] != "REQUEUED" for rows in jobs.values())


@pytest.mark.slow
def test_jobs_that_nodes_end_are_put_back_once_at_most():
    faults = (fault("node-hardware", 500.0, node_down_chance=0.6, crash_chance=0.2),)
    jobs = attempts_by_job(put_back(0.5, 32, faults=faults), 5)
    states = [[row["state"] for row in rows] for rows in jobs.values()]
    assert max(one.count("REQUEUED") for one in states) == 1
    assert any({"REQUEUED", "NODE_FAIL"} <= set(one) for one in states)


@pytest.mark.slow
def test_who_is_put_back_moves_nothing_else_that_is_drawn():
    (plain, _), (other, _) = (
        played(put_back(share, period={"days": 4.0}), 6) for share in (0.0, 0.3)
    )
    first = {
        row["job_id"]: (row["submit"], row["user"], row["time_limit_s"])
        for row in reversed(other["attempts"].to_pylist())
        if row["restarts"] == 0
    }
    assert len(first) > 1000
    assert first == {
        row["job_id"]: (row["submit"], row["user"], row["time_limit_s"])
        for row in plain["attempts"].to_pylist()
    }


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tables_and_another_does_not():
    (one, _), (same, _), (other, _) = (
        played(put_back(0.2, period={"days": 1.0}), seed) for seed in (3, 3, 4)
    )
    assert one == same
    assert one["attempts"] != other["attempts"]


def test_a_scenario_with_the_share_is_written_changed_and_checked():
    scenario = put_back(0.02)
    assert scenario_of(text_of(scenario)).jobs[0].requeued_share == 0.02
    assert "requeued_share" not in text_of(small())
    changed = changed_scenario(small(), "jobs.*.requeued_share=0.5")
    assert {one.requeued_share for one in changed.jobs} == {0.5}
    for value in (1.5, -0.1):
        with pytest.raises(UsageError, match=rf"jobs.8.requeued_share: {value}; give a"):
            put_back(value)
