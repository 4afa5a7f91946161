"""Crash loops: jobs that fail by their own fault, submitted again at once until given up."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster_scenarios import fault, one_size, played, quiet, small
from ettr.analysis import Analysis
from ettr.errors import UsageError
from ettr.metrics.goodput import CRASH_LOOP_FAILURES
from ettr.metrics.run_rules import RunRule
from ettr.metrics.stitching import jobs_of_runs
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.run import loop_can, simulate_into, simulated_cluster
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text, text_of
from ettr.sim.cluster.scenario_parts import ArrayClass, Outcomes
from ettr.sim.cluster.whatif import changed_scenario, varied_values
from ettr.store import open_store
from ettr.tables import TABLES
from fact_tables import facts_of

WORK_S = 20_000
TRIES, TRY_S = 5.0, 600.0
Row = Mapping[str, object]


def looping(share: float, gpus: int = 8, **parts: object) -> ClusterScenario:
    """Jobs of one length of which every fourth fails, and of these a share again and again."""
    loops = (share, TRIES, TRY_S) if share else ()
    ends = Outcomes(0.25, 0.0, 0.0, 0.0, 0.0, 1.0, 4.0, *loops)
    usual = {
        "jobs": one_size(gpus, float(WORK_S)),
        "outcomes": ends,
        "arrivals": {"jobs_per_day": 400.0},
        "machines": {"nodes": 400},
        "users": {"users": 2000, "accounts": 10},
    }
    return quiet(**(usual | parts))


def by_name(attempts: list[Row]) -> dict[object, list[Row]]:
    """Attempts of one name, which is that of the first try, in order of submission."""
    found = defaultdict(list)
    for row in attempts:
        found[row["name"]].append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row["submit"], int(str(row["job_id"]))))
    return found


def loops_of(scenario: ClusterScenario, seed: int) -> tuple[list[list[Row]], list[list[Row]]]:
    """Attempts of the jobs that were submitted several times, and of the others."""
    tables, _ = played(scenario, seed)
    jobs = by_name(tables["attempts"].to_pylist())
    several = [rows for rows in jobs.values() if len({row["job_id"] for row in rows}) > 1]
    return several, [rows for rows in jobs.values() if len({row["job_id"] for row in rows}) == 1]


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_that_share_of_the_failed_jobs_comes_again_at_once_and_fails_again(gpus: int):
    loops, others = loops_of(looping(0.4, gpus), 1)
    failed = sum(rows[0]["state"] == "FAILED" for rows in others)
    n = failed + len(loops)
    # a job that fails late may still run at the end, which takes from those that do not loop
    assert n > 500
    assert abs(len(loops) - 0.4 * n) < 4 * math.sqrt(0.4 * 0.6 * n) + 0.03 * n
    for rows in loops:
        assert len({row["job_id"] for row in rows}) == len(rows)
        assert len({(row["user"], row["account"], row["qos"], row["n_gpus"]) for row in rows}) == 1
        for before, after in itertools.pairwise(rows):
            assert (before["state"], before["restarts"]) == ("FAILED", 0)
            assert after["submit"] == before["end"]
    assert {row["state"] for rows in loops for row in rows} <= {"FAILED", "RUNNING"}


@pytest.mark.slow
def test_tries_are_geometric_from_two_on_and_their_work_exponential():
    scenario = looping(1.0, 1)
    loops, _ = loops_of(scenario, 2)
    over = [rows for rows in loops if rows[-1]["state"] == "FAILED"]
    tries = [len(rows) for rows in over]
    assert len(tries) > 500
    assert min(tries) == 2
    mean = sum(tries) / len(tries)
    deviation = math.sqrt((TRIES - 1.0) * (TRIES - 2.0))
    assert abs(mean - TRIES) < 4 * deviation / math.sqrt(len(tries)) + 0.1
    assert abs(sum(n == 2 for n in tries) / len(tries) - 1 / (TRIES - 1)) < 0.08
    lasted = [float(str(row["elapsed_s"])) for rows in over for row in rows]
    assert abs(sum(lasted) / len(lasted) - TRY_S) < 4 * TRY_S / math.sqrt(len(lasted))
    median = sorted(lasted)[len(lasted) // 2]
    assert abs(median - TRY_S * math.log(2)) < 0.1 * TRY_S


@pytest.mark.slow
def test_no_try_works_for_longer_than_the_job_would_have():
    scenario = looping(1.0, 1, jobs=one_size(1, 300.0))
    loops, _ = loops_of(scenario, 3)
    lasted = [row["elapsed_s"] for rows in loops for row in rows if row["state"] == "FAILED"]
    assert len(lasted) > 500
    assert max(lasted) == 300.0


@pytest.mark.slow
def test_the_truth_says_that_their_users_ended_them():
    scenario = looping(0.5)
    tables, run = played(scenario, 4)
    truth = {row["attempt_id"]: row for row in run.truth()["attempts"].to_pylist()}
    jobs = by_name(tables["attempts"].to_pylist())
    tries = [row for rows in jobs.values() if len(rows) > 1 for row in rows if row["end"]]
    assert len(tries) > 500
    for row in tries:
        true = truth[row["attempt_id"]]
        assert true["end"] == "FAILED"
        assert {true["fault"], true["node"], true["symptom"], true["for_job_id"]} == {None}
        assert true["saved_s"] + true["lost_s"] + true["restart_s"] == row["elapsed_s"]
        assert true["restart_s"] == scenario.checkpoints.restart_s


@pytest.mark.slow
def test_a_loop_that_a_fault_interrupts_goes_on_where_its_owner_submits_it_again():
    rules = {"resubmit_chance": 1.0, "mean_resubmit_s": 60.0}
    faults = (fault("node-hardware", 3000.0, crash_chance=1.0),)
    parts = {"period": {"days": 3.0}, "machines": {"nodes": 200}}
    scenario = looping(1.0, 32, faults=faults, checkpoints=rules, **parts)
    tables, run = played(scenario, 5)
    truth = {row["attempt_id"]: row for row in run.truth()["attempts"].to_pylist()}
    went_on = 0
    for rows in by_name(tables["attempts"].to_pylist()).values():
        failed = [
            truth[row["attempt_id"]]["fault"] is not None
            for row in rows
            if row["state"] == "FAILED"
        ]
        # a try that a fault ended as FAILED, and two more of its user's after it
        went_on += True in failed and failed[failed.index(True) :].count(False) >= 2
    assert went_on > 20


@pytest.mark.slow
def test_loops_move_nothing_else_that_is_drawn_and_more_tries_move_no_other_loop():
    def first(share: float, tries: float) -> dict[object, tuple[object, ...]]:
        scenario = looping(share, 1)
        ends = replace(scenario.outcomes, mean_crash_loop_tries=tries)
        tables, _ = played(replace(scenario, outcomes=ends), 6)
        jobs = by_name(tables["attempts"].to_pylist()).values()
        return {
            (rows[0]["submit"], rows[0]["user"], rows[0]["time_limit_s"]): (
                *(rows[0]["state"], rows[0]["elapsed_s"]),
            )
            for rows in jobs
        }

    def ended(found: dict[object, tuple[object, ...]]) -> dict[object, object]:
        return {job: row[1] for job, row in found.items() if row[0] != "RUNNING"}

    none, some, more = first(0.0, TRIES), first(0.5, TRIES), first(0.5, 2 * TRIES)
    assert len(none) > 1000
    assert none.keys() == some.keys() == more.keys()
    assert ended(some) == ended(more)
    assert ended(none) != ended(some)


@pytest.mark.slow
def test_tasks_of_arrays_do_not_loop():
    arrays = (ArrayClass(8, 1.0, 3.0, 0),)
    tables, _ = played(looping(1.0, arrays=arrays), 7)
    rows = tables["attempts"].to_pylist()
    assert sum(row["state"] == "FAILED" for row in rows) > 500
    assert all(row["array_job_id"] for row in rows)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tables_and_another_does_not():
    short = looping(0.3, period={"days": 1.0})
    (one, _), (same, _), (other, _) = (played(short, seed) for seed in (3, 3, 4))
    assert one == same
    assert one["attempts"] != other["attempts"]


@pytest.mark.slow
def test_a_share_of_zero_gives_the_tables_of_a_scenario_that_does_not_name_it():
    day = small(period={"days": 1.0})
    loops = replace(day.outcomes, mean_crash_loop_tries=6.0, mean_crash_loop_s=300.0)
    (without, _), (named, _) = played(day, 8), played(replace(day, outcomes=loops), 8)
    assert named == without


def test_such_a_scenario_runs_in_the_plain_engine():
    large = scenario_of(*scenario_text("rsc-1-like"))
    loops = replace(
        large,
        outcomes=replace(
            large.outcomes,
            crash_loop_share=0.01,
            mean_crash_loop_tries=3.0,
            mean_crash_loop_s=60.0,
        ),
    )
    assert loop_can(large)
    assert not loop_can(loops)
    assert isinstance(simulated_cluster(loops, 1, "x"), SimulatedCluster)


def test_a_scenario_with_loops_is_written_changed_varied_and_checked():
    scenario = looping(0.02)
    assert scenario_of(text_of(scenario)).outcomes == scenario.outcomes
    assert "crash_loop" not in text_of(small())
    change = (
        "outcomes.crash_loop_share=0.5,outcomes.mean_crash_loop_tries=4,"
        "outcomes.mean_crash_loop_s=120"
    )
    changed = changed_scenario(small(), change).outcomes
    assert (changed.crash_loop_share, changed.mean_crash_loop_tries) == (0.5, 4.0)
    assert changed.mean_crash_loop_s == 120.0
    varied, left = varied_values(scenario_of(text_of(scenario)), ["outcomes.*crash_loop*"])
    sides = {
        one.name.rpartition(".")[2]: [side and side[0] for side in one.sides] for one in varied
    }
    assert left == []
    assert sides == {
        "crash_loop_share": [0.01, 0.03],
        "mean_crash_loop_tries": [TRIES / 2, TRIES * 1.5],
        "mean_crash_loop_s": [TRY_S / 2, TRY_S * 1.5],
    }
    assert varied_values(small(), ["outcomes.*crash_loop*"]) == ([], [])
    with pytest.raises(UsageError, match=r"mean_crash_loop_tries: 0; crash loops .* 2 or more"):
        changed_scenario(small(), "outcomes.crash_loop_share=0.5,outcomes.mean_crash_loop_s=60")
    with pytest.raises(UsageError, match=r"mean_crash_loop_s: 0; the tries of crash loops"):
        changed_scenario(small(), "outcomes.crash_loop_share=0.5,outcomes.mean_crash_loop_tries=3")
    with pytest.raises(UsageError, match=r"outcomes.crash_loop_share: 1.5; give a share"):
        looping(1.5)
    with pytest.raises(UsageError, match="and tries of crash loops"):
        looping(
            1.0,
            outcomes=replace(scenario.outcomes, crash_loop_share=1.0, mean_crash_loop_tries=1e4),
        )


@pytest.mark.slow
@pytest.mark.parametrize("per_1000_node_days", [0.0, 60.0])
def test_reports_find_the_loops_and_blame_only_what_faults_ended(
    per_1000_node_days: float, tmp_path: Path
):
    """The truth is that of the truth's files; a name is that of one task and its resubmissions."""
    faults = (fault("infiniband", per_1000_node_days, crash_chance=1.0),)
    scenario = looping(
        0.4,
        32,
        faults=faults if per_1000_node_days else (),
        lemons={"share": 0.05, "factor": 10.0},
        arrivals={"jobs_per_day": 300.0},
    )
    with open_store(tmp_path / "site", create=True) as opened:
        simulate_into(opened, scenario, 1, "site", "site", tmp_path / "truth")
    truth = {
        row["attempt_id"]: row
        for row in pq.read_table(tmp_path / "truth" / "attempts.parquet").to_pylist()
    }
    by_fault = {key for key, row in truth.items() if row["fault"] is not None}
    by_user = {key for key, row in truth.items() if row["end"] == "FAILED"} - by_fault
    assert len(by_user) > 1000
    with open_store(tmp_path / "site") as opened:
        found = Analysis(opened)
        tables = {name: opened.rows(name) for name in TABLES}
        rows = tables["attempts"].to_pylist()
        tasks = by_name(rows)
        # the tries are failures of users, with what they held
        assert found.user_failures.attempts == len(by_user)
        held_s = sum(
            truth[key]["gpus"] * (truth[key]["saved_s"] + truth[key]["restart_s"])
            for key in by_user
        )
        assert found.user_failures.gpu_hours == pytest.approx(held_s / 3600)
        # each loop is one run of all of its jobs that ran
        of_users = [row["attempt_id"] in by_user for row in rows]
        asked = tables["attempts"].filter(pa.array(of_users))
        runs = jobs_of_runs(facts_of({**tables, "failures": asked}), RunRule())
        loops = {
            tuple(dict.fromkeys(row["job_id"] for row in of_task if row["start"]))
            for of_task in tasks.values()
            if any(row["attempt_id"] in by_user for row in of_task)
        }
        loops = {jobs for jobs in loops if len(jobs) > 1}
        assert len(loops) > 100
        assert {run.job_ids for run in runs.values()} == loops
        # and jobs with repeated failures are those that faults ended again and again, no others
        names = {row["job_id"]: row["name"] for row in rows}
        ended = Counter(row["name"] for row in rows if row["attempt_id"] in by_fault)
        listed = {names[one.job_id]: one.failures for one in found.goodput.crash_loops}
        often = {name: n for name, n in ended.items() if n >= CRASH_LOOP_FAILURES}
        assert listed == often
        assert bool(listed) == bool(per_1000_node_days)
        # at least one of them is a loop of its user, too, and its own failures do not count
        assert any(row["attempt_id"] in by_user for name in often for row in tasks[name]) == bool(
            per_1000_node_days
        )
