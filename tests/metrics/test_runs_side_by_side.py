"""Jobs of one run that ran at the same time: the time passes once, and each holds its GPUs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ettr.metrics.run_rules import RunRule
from ettr.metrics.runs import JobRun, JobRuns, job_runs
from ettr.report.sections.runs import runs_section
from ettr.tables import ATTEMPTS, PROGRESS
from fact_tables import facts_of
from synthetic.tables import every_table

START = datetime(2026, 1, 1, tzinfo=UTC)
BY_COMMENT = RunRule(comment_pattern="run=([a-z]+)")


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def attempt(job_id: str, start_h: float, end_h: float, **given: Any) -> dict[str, Any]:
    row = {
        "cluster": "c",
        "attempt_id": f"c/{job_id}@{start_h}",
        "job_id": job_id,
        "user": "ann",
        "name": "train",
        "state": "COMPLETED",
        "submit": at(start_h),
        "start": at(start_h),
        "end": at(end_h),
        "elapsed_s": (end_h - start_h) * 3600.0,
        "n_nodes": 2,
        "n_gpus": 16,
        "comment": "run=llm",
        "source": "t",
        "file_id": "t",
        "line": 1,
        **given,
    }
    return {name: row.get(name) for name in ATTEMPTS.names}


def step(job_id: str, number: int, hours: float, event: str = "step") -> dict[str, Any]:
    row = {
        "run_id": "llm",
        "job_id": job_id,
        "rank": 0,
        "time": at(hours),
        "event": event,
        "step": number,
        "duration_s": 3600.0 if event == "step" else 0.0,
        "source": "t",
        "file_id": job_id,
        "line": number,
    }
    return {name: row.get(name) for name in PROGRESS.names}


def runs_of(attempts: list[dict[str, Any]], progress: list[dict[str, Any]] = []) -> JobRuns:  # noqa: B006
    tables = every_table(
        {
            "attempts": pa.Table.from_pylist(attempts, schema=ATTEMPTS.arrow_schema),
            "progress": pa.Table.from_pylist(progress, schema=PROGRESS.arrow_schema),
        }
    )
    return job_runs(facts_of(tables), rule=BY_COMMENT, min_scheduled_h=0.0)


def one_run(*given: Any) -> JobRun:
    (run,) = runs_of(*given).runs
    return run


def test_time_in_which_two_jobs_of_a_run_ran_passes_once() -> None:
    """0 to 10 h and 4 to 12 h; then nothing until a third is submitted at 14 and runs 15 to 16."""
    run = one_run(
        [attempt("1", 0, 10), attempt("2", 4, 12), attempt("3", 15, 16, submit=at(14))],
    )
    assert (run.scheduled_h, run.concurrent_h) == (13.0, 6.0)
    assert (run.queue_h, run.between_h) == (1.0, 2.0)
    assert run.wallclock_h == 14.0
    assert run.first_eligible + timedelta(hours=14.0 + 2.0) == run.end
    assert run.gpu_hours == 16 * (10 + 8 + 1)
    # each that began alone spends five minutes in starting; the second did so beside the first
    assert run.productive_h.estimate == pytest.approx(13.0 - 2 * 5 / 60)
    assert run.ettr_ratio.estimate == pytest.approx((13.0 - 2 * 5 / 60) / 14.0)


def test_a_job_that_ran_while_another_did_adds_no_time() -> None:
    """A check of two hours within a training of ten, suspended for one of the two."""
    within = attempt("2", 4, 6, suspended_s=3600.0, elapsed_s=3600.0)
    run = one_run([attempt("1", 0, 10), within])
    assert (run.wallclock_h, run.scheduled_h, run.suspended_h) == (10.0, 10.0, 0.0)
    assert run.ettr_ratio.high <= 1.0
    assert run.ettr_ratio.estimate == pytest.approx((10 - 5 / 60) / 10)


def test_the_record_of_one_of_two_jobs_measures_the_run() -> None:
    """Nine steps of an hour in ten hours, and an evaluation beside them that records none."""
    steps = [step("1", n, n + 1.0) for n in range(1, 10)]
    run = one_run([attempt("1", 0, 10), attempt("2", 4, 8)], [*steps, step("1", 9, 10.0, "save")])
    assert run.basis == "progress"
    assert run.split is not None
    assert run.split.scheduled_h == run.scheduled_h == 10.0
    assert run.ettr_ratio.estimate == pytest.approx(0.9)


def test_two_records_of_steps_at_the_same_time_are_not_one_record() -> None:
    """Read as one, each step of a replica would be that of the other, done again."""
    steps = [step(job, n, n + 0.5 + 0.1 * (job == "2")) for job in "12" for n in range(1, 10)]
    run = one_run([attempt("1", 0, 10), attempt("2", 0.1, 10)], steps)
    assert (run.basis, run.split) == ("assumed", None)
    assert run.ettr_ratio.estimate == pytest.approx((10 - 5 / 60) / 10)


def test_records_of_jobs_that_follow_each_other_stay_one_record() -> None:
    """The second is submitted by the first, and starts in its last minutes."""
    steps = [step("1", n, n + 1.0) for n in range(1, 9)]
    steps += [step("2", n, n + 2.0) for n in range(9, 18)]
    run = one_run([attempt("1", 0, 10), attempt("2", 9.9, 19.9)], steps)
    assert run.basis == "progress"
    assert run.ettr_ratio.estimate == pytest.approx(17 / 19.9)


def test_the_report_says_that_jobs_ran_side_by_side() -> None:
    section = runs_section(runs_of([attempt("1", 0, 10), attempt("2", 4, 12)]))
    (note,) = [one for one in section.notes if "at the same time" in one]
    assert "1 run (train (1))" in note
    assert "6 h" in note


def test_a_chart_has_the_largest_runs_over_time_and_short_logs_a_strip_of_them() -> None:
    """Ninety days hold three windows of a trend: each run is a point. Two days are a strip."""
    small = attempt("2", 10, 34, name="eval", comment="run=eval", n_gpus=8)
    late = attempt("3", 24 * 89, 24 * 90, comment="run=late")
    (strip,) = runs_section(runs_of([attempt("1", 0, 30), small])).figures
    (line, words) = strip.traces
    assert line["y"][::3] == ["train (1)", "eval (2)"]
    assert line["x"][:3] == ["2026-01-01 00:00:00", "2026-01-02 06:00:00", None]
    assert [float(one) for one in words["text"]] == [1.0, 1.0]  # but for a start of 5 minutes
    (trend,) = runs_section(runs_of([attempt("1", 0, 30), small, late])).figures
    (dots,) = trend.traces
    assert dots["x"] == ["2026-01-01 00:00:00", "2026-01-01 10:00:00", "2026-03-31 00:00:00"]
    assert dots["y"] == pytest.approx([1 - 5 / 60 / 30, *[1 - 5 / 60 / 24] * 2])
