"""Runs stitched from attempts, and their ETTR against a cluster whose truth is known."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.metrics.run_progress import (
    ScheduledSplit,
    record_of_run,
    records_of,
    split_scheduled,
)
from ettr.metrics.run_rules import CheckpointAssumptions, RunRule, Scenario
from ettr.metrics.runs import job_runs
from ettr.progress import EVENTS, Goodput, ProgressRecorder, RunState, goodput_of_file
from ettr.progress.goodput import Row
from ettr.progress.timeline import ScheduledAttempt
from ettr.sources.base import ReadOptions
from ettr.sources.origin import HEAD_BYTES, Origin
from ettr.sources.progress import read as read_progress_lines
from ettr.tables import ATTEMPTS, PROGRESS
from fact_tables import facts_of
from synthetic.cluster import ClusterPlan, SyntheticCluster, build_cluster
from synthetic.tables import every_table

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
    tables = every_table(
        {"attempts": pa.Table.from_pylist(list(rows), schema=ATTEMPTS.arrow_schema)}
        | ({"progress": progress} if progress is not None else {})
    )
    options.setdefault("min_scheduled_h", 0.0)
    return job_runs(facts_of(tables), **options)


def test_ettr_and_its_parts_come_back_exactly_where_the_training_told(cluster):
    tables = every_table(cluster.tables)
    found = job_runs(facts_of(tables))
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
    silent = every_table({"attempts": cluster.tables["attempts"]})
    found = job_runs(facts_of(silent))
    truth = {run.name: run for run in cluster.truth.runs}
    held = [run for run in found.runs if run.name in truth]
    assert len(held) >= 6
    for run in held:
        assert run.basis == "assumed"
        assert run.ettr_ratio.low < run.ettr_ratio.estimate < run.ettr_ratio.high
        assert run.ettr_ratio.contains(truth[run.name].ettr), run.name


def test_with_the_true_interval_the_middle_of_the_band_is_the_expected_ettr(cluster):
    silent = every_table({"attempts": cluster.tables["attempts"]})
    true = Scenario(
        (PLAN.step_s * PLAN.steps_per_save + PLAN.save_s) / 60,
        (PLAN.restart_s + PLAN.restore_s) / 60,
        PLAN.save_s / 60,
        0.5,
    )
    found = job_runs(facts_of(silent), assumptions=CheckpointAssumptions(middle=true))
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
    assert run.interruptions is None  # nobody asked attribution


def test_a_job_queued_behind_its_predecessor_waits_from_its_end():
    behind = attempt("2", 1, 10, start=START + timedelta(hours=11))
    (run,) = runs_of(attempt("1", 0, 10), behind).runs
    assert run.queue_h == pytest.approx(1.0)
    assert run.between_h == 0.0


def test_what_completed_what_came_late_and_what_differs_are_runs_apart():
    """Each pair on a cluster of its own."""
    pairs = {
        "completed": [attempt("1", 0, 1, state="COMPLETED"), attempt("2", 2, 1)],
        "late": [attempt("1", 0, 1), attempt("2", 14, 1)],
        "another folder": [attempt("1", 0, 1), attempt("2", 2, 1, work_dir="/v")],
        "another user": [attempt("1", 0, 1), attempt("2", 2, 1, user="bob")],
        "of one run": [attempt("1", 0, 1), attempt("2", 2, 1)],
    }
    rows = [
        row | {"cluster": name, "attempt_id": f"{name}/{row['attempt_id']}"}
        for name, pair in pairs.items()
        for row in pair
    ]
    runs = Counter(run.cluster for run in runs_of(*rows).runs)
    assert runs == dict.fromkeys(pairs, 2) | {"of one run": 1}
    assert len(runs_of(*pairs["late"], rule=RunRule(gap_h=24)).runs) == 1


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
    progress = [
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
    progress = pa.Table.from_pylist(progress, schema=PROGRESS.arrow_schema)
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
    wrong = CheckpointAssumptions(worst=Scenario(5.0, 1.0, 5.0, 1.0))
    with pytest.raises(UsageError, match="worst scenario"):
        runs_of(attempt("1", 0, 1), assumptions=wrong)


@pytest.mark.parametrize(
    ("state", "productive_s", "unsaved_s"),
    [("TIMEOUT", 50, 50), ("COMPLETED", 100, 0), ("RUNNING", 100, 0)],
)
def test_a_run_loses_what_it_never_saved_as_its_file_does(tmp_path, state, productive_s, unsaved_s):
    """Ten steps of 10 s, saved at the fifth, nothing after the tenth."""
    path = tmp_path / "progress.jsonl"
    with ProgressRecorder(path, run="r", job="1") as recorder:
        for step in range(1, 11):
            time_s = START.timestamp() + 10 * step
            recorder.record("step", step, 10.0, time_s=time_s)
            if step == 5:
                recorder.record("save", step, 0.0, time_s=time_s)
    origin = Origin(path, "f", path.read_bytes()[:HEAD_BYTES])
    (batch,) = read_progress_lines(origin, ReadOptions())
    found = runs_of(attempt("1", 0, 100 / 3600, state=state), progress=batch.tables["progress"])
    (run,) = found.runs
    assert run.split.productive_h * 3600 == pytest.approx(productive_s)
    assert run.split.unsaved_h * 3600 == pytest.approx(unsaved_s)
    assert run.ettr_ratio.estimate == pytest.approx(productive_s / 100)
    stands = {"TIMEOUT": RunState.INTERRUPTED, "COMPLETED": RunState.COMPLETED}
    of_file = goodput_of_file(path, state=stands.get(state, RunState.RUNNING))
    assert (of_file.productive_s, of_file.unsaved_s) == (productive_s, unsaved_s)


def lines(
    *events: tuple[float, str, int, float | None], first_line: int = 1, **given: Any
) -> pa.Table:
    """Rows of `progress`, their times in hours since the first attempt."""
    told = [
        {
            "run_id": "r",
            "job_id": "1",
            "rank": 0,
            "time": START + timedelta(hours=hours),
            "event": event,
            "step": step,
            "duration_s": duration_s,
            "source": "t",
            "file_id": "t",
            "line": number,
            **given,
        }
        for number, (hours, event, step, duration_s) in enumerate(events, first_line)
    ]
    return pa.Table.from_pylist(told, schema=PROGRESS.arrow_schema)


def test_ten_lines_without_durations_over_108_days_are_a_band():
    """Every twelve days; 9,100 to 10,300 steps lie between two lines."""
    steps = [0, 9_100, 19_400, 29_400, 39_000, 48_900, 58_800, 68_500, 78_700, 88_500]
    progress = lines(*((288 * n, "step", step, None) for n, step in enumerate(steps)))
    (run,) = runs_of(attempt("1", 0, 24 * 108, state="COMPLETED"), progress=progress).runs
    assert run.basis == "progress"
    assert 0.8 < run.ettr_ratio.low < 0.93
    assert run.ettr_ratio.low < run.ettr_ratio.estimate < 1
    assert run.ettr_ratio.high == pytest.approx(1)


def test_a_step_that_ends_with_its_attempt_is_of_it():
    """Attempts of two hours, each with one step of an hour logged at its very end.

    Accounting cuts an end to whole seconds: by these the step may lie in the attempt after it. Each
    lateness, with attempts in a row and apart, of one job and of many, has a cluster of its own.
    """
    n_attempts = 12
    attempts, progress = [], []
    for late_s, apart_h, one_job in product((0.0, 0.25, 0.9), (0, 1), (False, True)):
        cluster, every_h = f"{late_s} {apart_h} {one_job}", 2 + apart_h
        jobs = ["1" if one_job else str(n + 1) for n in range(n_attempts)]
        for n, job in enumerate(jobs):
            state = "COMPLETED" if n == n_attempts - 1 else "NODE_FAIL"
            row = attempt(job, every_h * n, 2, state=state, cluster=cluster)
            attempts.append(row | {"attempt_id": f"{cluster}/{row['attempt_id']}"})
            step = (every_h * n + 2 + late_s / 3600, "step", n + 1, 3600.0)
            given = {"job_id": job, "cluster": cluster, "run_id": cluster}
            progress.append(lines(step, first_line=len(attempts), **given))
    found = runs_of(*attempts, progress=pa.concat_tables(progress)).runs
    assert len(found) == 12
    for run in found:
        assert run.attempts == n_attempts, run.cluster
        assert run.ettr_ratio.estimate == pytest.approx(0.5, rel=1e-3), run.cluster
        assert run.ettr_ratio.low == pytest.approx(0.5, rel=1e-3), run.cluster


def test_durations_that_overlap_do_not_count_twice():
    """A 48-h job with steps of 86,400, 172,800 and 172,800 s."""
    progress = lines(
        (24, "step", 1, 86_400.0), (47, "step", 2, 172_800.0), (48, "step", 3, 172_800.0)
    )
    (run,) = runs_of(attempt("1", 0, 48, state="COMPLETED"), progress=progress).runs
    assert run.ettr_ratio.estimate == run.ettr_ratio.high == pytest.approx(1)
    assert run.ettr_ratio.low < 0.5


def test_a_run_shorter_than_its_assumed_restart_is_unknown_and_no_part_of_a_mean():
    found = runs_of(
        attempt("1", 0, 4 / 60, state="COMPLETED"),
        attempt("2", 0, 24, name="long", state="COMPLETED"),
    )
    long, short = found.runs
    assert short.ettr_ratio == short.productive_h == short.ettr_without_queue_ratio
    assert short.ettr_ratio == Interval.unknown()
    (size,) = found.by_size
    assert size.runs == 2
    assert size.mean_ettr_ratio == long.ettr_ratio


def test_suspended_time_has_its_own_place():
    progress = lines((1, "step", 1, 3600.0), (4, "step", 2, 3600.0))
    given = {"state": "COMPLETED", "elapsed_s": 2.5 * 3600}
    (run,) = runs_of(attempt("1", 0, 4, **given), progress=progress).runs
    assert (run.suspended_h, run.split.suspended_h) == pytest.approx((1.5, 1.5))
    assert (run.split.productive_h, run.split.other_h) == pytest.approx((2, 0.5))
    (named,) = runs_of(attempt("1", 0, 4, **given, suspended_s=7200.0), progress=progress).runs
    assert named.split.suspended_h == pytest.approx(2)


def test_ettr_without_queue_stands_beside_ettr():
    waited = attempt("1", 0, 10, start=START + timedelta(hours=10), state="COMPLETED")
    progress = lines((15, "step", 1, 5 * 3600.0))
    (run,) = runs_of(waited, progress=progress).runs
    assert run.ettr_ratio.estimate == pytest.approx(0.25)
    assert run.ettr_without_queue_ratio.estimate == pytest.approx(0.5)


def test_every_tenth_step_logged_is_a_band_around_the_runs_own_ettr():
    """8,800 s of steps in 10,000 s; the lines hold every tenth with its own second."""
    events = [((120 + n) / 3600, "step", n, 1.0) for n in range(10, 8801, 10)]
    progress = lines((120 / 3600, "start", 0, 120.0), *events)
    (run,) = runs_of(attempt("1", 0, 10_000 / 3600, state="COMPLETED"), progress=progress).runs
    ettr = run.ettr_without_queue_ratio
    assert (ettr.low, ettr.estimate, ettr.high) == pytest.approx((0.088, 0.88, 0.88))
    assert run.split.unrecorded_steps == 7920
    assert run.split.scheduled_h == pytest.approx(10_000 / 3600)


def test_progress_beyond_the_attempts_measures_nothing():
    progress = lines((30, "step", 1, 3600.0), (31, "step", 2, 3600.0))
    (run,) = runs_of(attempt("1", 0, 10, state="COMPLETED"), progress=progress).runs
    assert (run.basis, run.split) == ("assumed", None)


@pytest.mark.parametrize("names_cluster", [True, False])
def test_progress_of_one_cluster_does_not_measure_a_job_of_another(names_cluster: bool):
    """Two clusters have a job 17; where the record names no cluster, it measures neither."""
    cluster = "alpha" if names_cluster else None
    found = runs_of(
        attempt("17", 0, 1, cluster="alpha", state="COMPLETED"),
        attempt("17", 0, 1, cluster="beta", state="COMPLETED"),
        progress=lines((1, "step", 1, 3000.0), job_id="17", cluster=cluster),
    )
    bases = {run.cluster: run.basis for run in found.runs}
    assert bases == {"alpha": "progress" if names_cluster else "assumed", "beta": "assumed"}


def test_jobs_that_write_to_one_file_are_read_in_the_order_of_its_lines():
    """The second job's node has a clock that is a day behind."""
    first = lines((5, "step", 1, 5 * 3600.0), (5, "save", 1, 0.0))
    behind = ((-12.0, "start", 1, None), (-11.0, "step", 2, 3600.0))
    second = lines(*behind, first_line=10, job_id="2")
    found = runs_of(
        attempt("1", 0, 5),
        attempt("2", 12, 2, state="COMPLETED"),
        progress=pa.concat_tables([first, second]),
    )
    (run,) = found.runs
    assert run.jobs == 2
    assert run.split.productive_h == pytest.approx(6)


def rows(*events: tuple[float, str, int, float | None]) -> list[Row]:
    return [
        (name, step, round(time_s * 1e6), None if seconds is None else round(seconds * 1e6))
        for time_s, name, step, seconds in events
    ]


def scheduled(start_s: float, end_s: float, suspended_s: float = 0) -> ScheduledAttempt:
    return ScheduledAttempt(*(round(value * 1e6) for value in (start_s, end_s, suspended_s)))


def seconds(split: ScheduledSplit) -> dict[str, float]:
    return {
        name.removesuffix("_h"): pytest.approx(hours * 3600, abs=1e-6)
        for name, hours in asdict(split).items()
        if hours and name.endswith("_h")
        if name not in ("productive_low_h", "productive_high_h", "at_risk_h")
    }


def test_steps_behind_the_restored_one_are_redone_and_the_unsaved_end_is_lost():
    record = rows(
        (20, "step", 1, 10),
        (30, "step", 2, 10),
        (35, "save", 2, 5),
        (45, "step", 3, 10),
        (70, "restore", 2, 5),
        (80, "step", 3, 10),
        (90, "step", 4, 10),
    )
    attempts = [scheduled(0, 50), scheduled(60, 100)]
    going_on = split_scheduled(record, attempts, RunState.RUNNING)
    assert seconds(going_on) == {
        "productive": 40,
        "redone": 10,
        "save": 5,
        "restore": 5,
        "restart": 10 + 5,
        "other": 5 + 10,
    }
    dead = split_scheduled(record, attempts, RunState.INTERRUPTED)
    assert seconds(dead)["unsaved"] == 20
    assert seconds(dead)["productive"] == 20


def test_steps_without_a_duration_last_since_the_event_before():
    record = rows((10, "step", 1, None), (30, "step", 2, None), (35, "save", 2, 5))
    split = split_scheduled(record, [scheduled(0, 40)], RunState.COMPLETED)
    assert seconds(split) == {"productive": 30, "save": 5, "other": 5}


def test_a_record_without_steps_says_nothing():
    record = rows((1, "restart", 0, 5))
    assert split_scheduled(record, [scheduled(0, 9)], RunState.COMPLETED) is None


def test_no_more_than_the_scheduled_time_is_split():
    """Events before, between and behind the attempts; an attempt within another."""
    record = rows(
        (5, "step", 1, 10),
        (15, "step", 2, 10),
        (25, "step", 3, 10),
        (47, "step", 4, 10),
    )
    attempts = [scheduled(10, 20), scheduled(12, 18), scheduled(40, 45)]
    split = split_scheduled(record, attempts, RunState.COMPLETED)
    assert seconds(split) == {"productive": 10 + 5}  # what two attempts share passes once


def test_an_attempt_without_a_word_is_all_start_up():
    record = rows((8, "step", 1, 2), (8, "save", 1, 0))
    attempts = [scheduled(0, 10), scheduled(20, 27)]
    split = split_scheduled(record, attempts, RunState.INTERRUPTED)
    assert seconds(split) == {"productive": 2, "restart": 6 + 7, "other": 2}


def columns_of(progress: pa.Table) -> dict[str, Any]:
    """Columns of the fact of the records, from a table of `progress`."""
    rows = progress.set_column(
        progress.column_names.index("time"), "time_us", progress["time"].cast(pa.int64())
    )
    return {name: rows[name].to_numpy(zero_copy_only=False) for name in rows.column_names}


RECORDED = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.integers(0, 6),
        st.integers(1, 20_000_000),
        st.none() | st.integers(0, 15_000_000),
    ),
    min_size=1,
    max_size=30,
)


@given(RECORDED, st.sampled_from(RunState))
def test_one_record_has_one_split_live_from_its_file_and_in_runs(events: list, state: RunState):
    """To the microsecond; the scheduler's attempt is given the very time of the record."""
    clock_us = round(START.timestamp()) * 1_000_000
    first_us = clock_us + events[0][2] - (events[0][3] or 0)
    live = Goodput()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "progress.jsonl"
        with ProgressRecorder(path, run="r", job="1", listener=live.add) as recorder:
            for event, step, gap_us, duration_us in events:
                clock_us += gap_us
                duration_s = None if duration_us is None else duration_us / 1e6
                recorder.record(event, step, duration_s, time_s=clock_us / 1e6)
        from_file = goodput_of_file(path, state=state)
        (batch,) = read_progress_lines(
            Origin(path, "f", path.read_bytes()[:HEAD_BYTES]), ReadOptions()
        )
    assert from_file == live.split(state)
    record = record_of_run(records_of(columns_of(batch.tables["progress"])).values())
    split = split_scheduled(record, [ScheduledAttempt(first_us, clock_us)], state)
    if split is None:
        assert clock_us == first_us or all(event != "step" for event, *_ in events)
        return
    shared = ("productive", "redone", "unsaved", "save", "restore", "restart", "stall")
    for name in shared:
        hours, whole_s = getattr(split, f"{name}_h"), getattr(from_file, f"{name}_s")
        assert round(hours * 3600e6) == round(whole_s * 1e6), name
    assert round(split.other_h * 3600e6) == round(from_file.idle_s * 1e6)
    assert round(split.scheduled_h * 3600e6) == clock_us - first_us


def test_of_several_ranks_the_slowest_decides_what_a_run_waited_for_data(tmp_path: Path):
    """Ten steps of 100 s: rank 0 waits 10 s in each, rank 1 30 s in every second, 2 s else."""
    path = tmp_path / "progress.jsonl"
    for rank, waits_s in enumerate([(10.0, 10.0), (2.0, 30.0)]):
        with ProgressRecorder(path, run="r", job="1", rank=rank) as recorder:
            end_s = START.timestamp()
            for step in range(1, 11):
                wait_s, end_s = waits_s[step % 2], end_s + 100.0
                known = {} if step % 2 else {"bound": "upper"}
                at_s = end_s - 100.0 + wait_s
                recorder.stall(step, wait_s, time_s=at_s, cause="data", **known)
                recorder.step(step, 100.0, time_s=end_s)
            recorder.stall(10, 7.0, time_s=end_s, cause="data", part="evaluation")
            recorder.save(10, 0.0, time_s=end_s)
    origin = Origin(path, "f", path.read_bytes()[:HEAD_BYTES])
    (batch,) = read_progress_lines(origin, ReadOptions())
    jobs = attempt("1", 0, 1), attempt("2", 100, 1, name="z")
    waited, other = runs_of(*jobs, progress=batch.tables["progress"]).runs
    assert other.input_stall is None
    waits = waited.input_waits
    assert waits is not None
    assert waits.wait_h * 3600 == pytest.approx(5 * 30.0 + 5 * 10.0)
    # of a training of 1,000 s; where the device's idleness is known: the 30 s
    assert waits.training_h * 3600 == pytest.approx(1000.0)
    stall = waited.input_stall
    assert (stall.estimate, stall.low, stall.high) == pytest.approx((0.2, 0.15, 0.2))
    assert waits.evaluation_h * 3600 == pytest.approx(7.0)
    assert waits.n_ranks == 2
    assert waits.gpu_hours == pytest.approx(waits.wait_h * waited.n_gpus)
    assert waited.split.input_stall_h * 3600 == pytest.approx(100.0)  # rank 0 alone
