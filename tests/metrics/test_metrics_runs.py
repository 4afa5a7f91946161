"""Runs stitched from attempts, and their ETTR against a cluster whose truth is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ettr.errors import UsageError
from ettr.metrics.run_progress import RunRecord, split_scheduled
from ettr.metrics.runs import Assumptions, Scenario, job_runs
from ettr.metrics.stitching import RunRule
from ettr.tables import ATTEMPTS, PROGRESS
from synthetic.cluster import ClusterPlan, SyntheticCluster, build_cluster
from synthetic.tables import on_duckdb

pytestmark = pytest.mark.slow

START = datetime(2025, 1, 1, tzinfo=UTC)
PLAN = ClusterPlan(days=40.0, work_s=8 * 86400)


@pytest.fixture(scope="module")
def cluster() -> SyntheticCluster:
    return build_cluster(PLAN, seed=7)


def attempt(job_id: str, submit_h: float, hours: float, **given: Any) -> dict[str, Any]:
    submit = START + timedelta(hours=submit_h)
    start = given.pop("start", submit)
    row = {
        "cluster": "c",
        "attempt_id": f"c/{job_id}@{submit_h}",
        "job_id": job_id,
        "user": "ann",
        "name": "train",
        "state": "TIMEOUT",
        "submit": submit,
        "eligible": submit,
        "start": start,
        "end": start + timedelta(hours=hours),
        "elapsed_s": hours * 3600.0,
        "n_nodes": 2,
        "n_cpus": 4,
        "n_gpus": 16,
        "work_dir": "/w",
        "source": "t",
        "file_id": "t",
        "line": 1,
    }
    return {name: {**row, **given}.get(name) for name in ATTEMPTS.names}


def runs_of(*rows: dict[str, Any], progress: pa.Table | None = None, **options: Any):
    tables = on_duckdb(
        {"attempts": pa.Table.from_pylist(list(rows), schema=ATTEMPTS.arrow_schema)}
        | ({"progress": progress} if progress is not None else {})
    )
    options.setdefault("min_scheduled_h", 0.0)
    return job_runs(tables["attempts"], tables["progress"], **options)


def test_ettr_and_its_parts_come_back_exactly_where_the_training_told(cluster):
    tables = on_duckdb(cluster.tables)
    found = job_runs(tables["attempts"], tables["progress"])
    truth = {run.name: run for run in cluster.truth.runs if run.scheduled_s >= 86400}
    measured = {run.name: run for run in found.runs if run.basis == "progress"}
    assert set(measured) == set(truth)
    assert found.measured_runs == len(truth) >= 6
    for name, run in measured.items():
        true = truth[name]
        assert run.ettr_ratio.estimate == pytest.approx(true.ettr, rel=1e-9), name
        assert run.queue_h * 3600 == pytest.approx(true.queue_s)
        assert run.attempts == true.attempts
        assert run.split.productive_h * 3600 == pytest.approx(true.productive_s)
        lost_s = (run.split.redone_h + run.split.unsaved_h) * 3600
        assert lost_s <= true.redone_s + 1e-6
        assert run.split.scheduled_h == pytest.approx(run.scheduled_h)
        rest = run.scheduled_h - run.split.scheduled_h + run.queue_h + run.scheduled_h
        assert run.wallclock_h == pytest.approx(rest)


def test_without_progress_the_band_holds_the_truth(cluster):
    tables = on_duckdb(cluster.tables)
    silent = on_duckdb({"attempts": cluster.tables["attempts"]})
    found = job_runs(tables["attempts"], silent["progress"])
    truth = {run.name: run for run in cluster.truth.runs}
    held = [run for run in found.runs if run.name in truth]
    assert len(held) >= 6
    for run in held:
        assert run.basis == "assumed"
        assert run.ettr_ratio.low < run.ettr_ratio.estimate < run.ettr_ratio.high
        assert run.ettr_ratio.contains(truth[run.name].ettr), run.name


def test_with_the_true_interval_the_middle_of_the_band_is_the_expected_ettr(cluster):
    silent = on_duckdb({"attempts": cluster.tables["attempts"]})
    true = Scenario(
        (PLAN.step_s * PLAN.steps_per_save + PLAN.save_s) / 60,
        (PLAN.restart_s + PLAN.restore_s) / 60,
        PLAN.save_s / 60,
        0.5,
    )
    found = job_runs(silent["attempts"], silent["progress"], assumptions=Assumptions(middle=true))
    truth = {run.name: run for run in cluster.truth.runs if run.in_job_restarts == 0}
    error = [r.ettr_ratio.estimate - truth[r.name].ettr for r in found.runs if r.name in truth]
    assert abs(np.mean(error)) < 0.004


def test_a_requeue_and_a_resubmission_are_one_run():
    found = runs_of(
        attempt("1", 0, 10, state="NODE_FAIL"),
        attempt("1", 10.5, 10),
        attempt("2", 22, 10, state="COMPLETED"),
    )
    (run,) = found.runs
    assert (run.jobs, run.attempts, run.job_ids) == (2, 3, ("1", "2"))
    assert run.between_h == pytest.approx(2.0)
    assert run.wallclock_h == pytest.approx(30.0)
    assert run.interruptions == 2


def test_a_job_queued_behind_its_predecessor_waits_from_its_end():
    behind = attempt("2", 1, 10, start=START + timedelta(hours=11))
    (run,) = runs_of(attempt("1", 0, 10), behind).runs
    assert run.queue_h == pytest.approx(1.0)
    assert run.between_h == 0.0


def test_what_completed_what_came_late_and_what_differs_are_runs_apart():
    assert len(runs_of(attempt("1", 0, 1, state="COMPLETED"), attempt("2", 2, 1)).runs) == 2
    assert len(runs_of(attempt("1", 0, 1), attempt("2", 14, 1)).runs) == 2
    assert len(runs_of(attempt("1", 0, 1), attempt("2", 14, 1), rule=RunRule(gap_h=24)).runs) == 1
    assert len(runs_of(attempt("1", 0, 1), attempt("2", 2, 1, work_dir="/v")).runs) == 2
    assert len(runs_of(attempt("1", 0, 1), attempt("2", 2, 1, user="bob")).runs) == 2


def test_a_sweep_of_one_name_is_not_one_run():
    sweep = [attempt(str(i), 0.1 * i, 5) for i in range(4)]
    again = attempt("2", 6, 5)
    found = runs_of(*sweep, again)
    assert sorted(run.attempts for run in found.runs) == [1, 1, 1, 2]


def test_the_users_own_id_wins_over_names():
    rows = [
        attempt("1", 0, 1, comment="run=a7 x"),
        attempt("2", 100, 1, comment="y run=a7", name="z"),
    ]
    (run,) = runs_of(*rows, rule=RunRule(comment_pattern="run=([a-z0-9]+)")).runs
    assert run.jobs == 2
    rows = [attempt("1", 0, 1, account="p"), attempt("2", 100, 1, account="p")]
    assert len(runs_of(*rows, rule=RunRule(id_column="account")).runs) == 1


def test_one_training_run_id_in_two_jobs_joins_them():
    told = [
        {
            "run_id": "llm",
            "job_id": job,
            "rank": 0,
            "time": START + timedelta(hours=h),
            "event": "step",
            "step": step,
            "duration_s": 60.0,
            "source": "t",
            "file_id": "t",
            "line": 1,
            "cluster": None,
            "detail": None,
        }
        for job, h, step in (("1", 0.5, 1), ("2", 100.5, 2))
    ]
    progress = pa.Table.from_pylist(told, schema=PROGRESS.arrow_schema)
    (run,) = runs_of(attempt("1", 0, 1), attempt("2", 100, 1, name="z"), progress=progress).runs
    assert run.basis == "progress"
    assert run.jobs == 2


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (RunRule(gap_h=-1), "gap_h -1 is negative"),
        (RunRule(id_column="nope"), "no column 'nope'"),
        (RunRule(comment_pattern="run=x"), "has no group"),
        (RunRule(comment_pattern="("), "comment pattern"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule, message):
    with pytest.raises(UsageError, match=message):
        runs_of(attempt("1", 0, 1), rule=rule)


def test_an_impossible_scenario_is_refused():
    wrong = Assumptions(worst=Scenario(5.0, 1.0, 5.0, 1.0))
    with pytest.raises(UsageError, match="worst scenario"):
        runs_of(attempt("1", 0, 1), assumptions=wrong)


def record(*events: tuple[float, str, float, float]) -> RunRecord:
    times, names, steps, durations = zip(*events, strict=True)
    return RunRecord(
        np.array(times),
        np.array(names, dtype=str),
        np.array(steps, dtype=float),
        np.array(durations, dtype=float),
    )


def test_steps_behind_the_restored_one_are_redone_and_the_unsaved_end_is_lost():
    told = record(
        (20, "step", 1, 10),
        (30, "step", 2, 10),
        (35, "save", 2, 5),
        (45, "step", 3, 10),
        (70, "restore", 2, 5),
        (80, "step", 3, 10),
        (90, "step", 4, 10),
    )
    spans = [(0.0, 50.0), (60.0, 100.0)]
    open_run = split_scheduled(told, spans, ended=False, completed=False)
    assert open_run.productive_h * 3600 == pytest.approx(40)
    assert open_run.redone_h * 3600 == pytest.approx(10)
    assert open_run.restart_h * 3600 == pytest.approx(10 + 5)
    assert open_run.other_h * 3600 == pytest.approx(5 + 10)
    dead = split_scheduled(told, spans, ended=True, completed=False)
    assert dead.unsaved_h * 3600 == pytest.approx(20)
    assert dead.productive_h * 3600 == pytest.approx(20)


def test_steps_without_a_duration_last_since_the_event_before():
    told = record((10, "step", 1, np.nan), (30, "step", 2, np.nan), (35, "save", 2, 5))
    split = split_scheduled(told, [(0.0, 40.0)], ended=True, completed=True)
    assert split.productive_h * 3600 == pytest.approx(30)
    assert split.other_h * 3600 == pytest.approx(5)


def test_a_record_without_steps_says_nothing():
    assert (
        split_scheduled(record((1, "restart", 0, 5)), [(0.0, 9.0)], ended=True, completed=True)
        is None
    )
