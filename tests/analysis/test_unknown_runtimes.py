"""What failed or was preempted after a time that no log says lost something, not nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from attempt_tables import site_of_attempts
from cli.program import ettr
from ettr.analysis import Analysis
from ettr.analysis.comparing import previous
from ettr.metrics.goodput import lost_gpu_s
from ettr.store import open_store

pytestmark = pytest.mark.slow


def job(number: int, state: str, start: str, end: str, ran_s: int | None, gpus: int = 8) -> str:
    began = f"2026-03-01T{start}Z" if start else ""
    submit = began or "2026-03-01T00:00:00Z"
    elapsed = "" if ran_s is None else ran_s
    return f"c,{number},{state},{submit},{began},2026-03-01T{end}Z,{elapsed},1,{gpus},n{number}\n"


UNSAID = job(1, "NODE_FAIL", "00:00:00", "10:00:00", None)
TEN_HOURS = job(2, "NODE_FAIL", "00:00:00", "10:00:00", 36000)
COMPLETED = job(3, "COMPLETED", "00:00:00", "10:00:00", 36000)


def test_a_failure_of_unknown_runtime_is_left_out_and_counted(tmp_path: Path) -> None:
    """Eight GPUs for the half hour that the cap leaves: 4 GPU-hours of the one that says it."""
    with open_store(site_of_attempts(tmp_path, UNSAID, TEN_HOURS, COMPLETED)) as store:
        analysis = Analysis(store)
        lost, trend = analysis.goodput, analysis.ask(previous)
    assert lost.first_order_gpu_hours == 4.0
    assert (lost.failures_without_runtime, lost.failures_without_gpus) == (1, 0)
    assert trend is not None
    assert trend.this.lost_gpu_hours is not None
    assert (trend.this.lost_gpu_hours.estimate, trend.this.failures_without_runtime) == (4.0, 1)
    listed = ettr("failures", tmp_path / "site", "--list", "--json").json["failures"]
    assert [one["lost_gpu_hours"] for one in listed] == [None, 4.0]
    said = " ".join(
        ettr("report", "--detail", tmp_path / "site", "-o", tmp_path / "r.html").out.split()
    )
    assert "a lower bound: 1 failure without a runtime adds nothing to the loss" in said


def test_failures_of_unknown_runtime_alone_did_not_lose_nothing(tmp_path: Path) -> None:
    store = site_of_attempts(tmp_path, UNSAID, COMPLETED)
    found = ettr("goodput", store, "--json").json
    assert (found["first_order_gpu_hours"], found["by_cause"][0]["gpu_hours"]) == (None, None)
    assert found["by_size"][0]["first_order_gpu_hours"] is None
    assert found["failures_without_runtime"] == 1
    said = " ".join(ettr("goodput", store, "--detail").out.split())
    assert "Not measured: no job that failed or was preempted says how long it ran" in said


def test_what_never_started_lost_nothing(tmp_path: Path) -> None:
    never = job(1, "NODE_FAIL", "", "01:00:00", None)
    found = ettr("goodput", site_of_attempts(tmp_path, never, COMPLETED), "--json").json
    assert (found["first_order_gpu_hours"], found["failures_without_runtime"]) == (0.0, 0)


def test_a_preempted_job_of_unknown_runtime_is_left_out_and_counted(tmp_path: Path) -> None:
    """Job 2 fails and starts again, for which job 4 had to go, as the controller's log says."""
    again = job(2, "COMPLETED", "10:01:00", "20:01:00", 36000)
    gone = job(4, "PREEMPTED", "02:00:00", "10:00:50", None)
    store = site_of_attempts(tmp_path, TEN_HOURS, again, gone, COMPLETED)
    (tmp_path / "events.csv").write_text(
        "cluster,time,check,code,job_id,related_job_id\n"
        "c,2026-03-01T10:00:50Z,slurmctld,PREEMPTED,4,2\n"
    )
    options = ("--source", "table", "--table", "events")
    assert ettr("ingest", store, tmp_path / "events.csv", *options).code == 0
    found = ettr("goodput", store, "--json").json
    (link,) = found["preemption_links"]["links"]
    assert (link["elapsed_s"], link["n_gpus"]) == (None, 8)
    assert (found["first_order_gpu_hours"], found["second_order_gpu_hours"]) == (4.0, None)
    assert (found["preemptions_without_runtime"], found["preemptions_without_gpus"]) == (1, 0)
    assert found["by_cause"][0]["gpu_hours"] == 4.0
    (listed,) = ettr("failures", store, "--list", "--json").json["failures"]
    assert listed["preempted_gpu_hours"] is None


@pytest.mark.parametrize(
    ("elapsed_s", "n_gpus", "lost"),
    [(100.0, 2, 200.0), (9000.0, 2, 3600.0), (None, 2, None), (100.0, None, None), (None, 0, 0.0)],
)
def test_loss_is_of_known_runtime_and_gpus(
    elapsed_s: float | None, n_gpus: int | None, lost: float | None
) -> None:
    """At most half an hour of it; without GPUs none are lost, however long it ran."""
    assert lost_gpu_s(elapsed_s, n_gpus, 1800.0) == lost


def test_the_exposure_counts_and_names_what_does_not_say_how_long_it_ran(tmp_path: Path) -> None:
    """Two nodes for ten hours; how long the third was held is not known, and it failed."""
    never = job(4, "CANCELLED", "", "01:00:00", None)
    store = site_of_attempts(tmp_path, UNSAID, TEN_HOURS, COMPLETED, never)
    quality = ettr("quality", store, "--json").json
    basis = quality["exposure"]
    assert (basis["node_hours"], basis["attempts_counted"]) == (20.0, 2)
    assert (basis["attempts_unknown"], basis["attempts_without_runtime"]) == (0, 1)
    says = (
        "1 attempt that began does not say how long it ran: it adds no exposure, so rates "
        "come out too high."
    )
    assert says in quality["assumptions"]
    assert says in " ".join(ettr("quality", store, "--detail").out.split())
    rest = ettr("quality", store, "--until", "2026-03-01T00:00:00Z", "--json").json
    assert rest["exposure"]["attempts_without_runtime"] == 0


def test_nodes_that_say_how_long_an_attempt_held_them_are_its_runtime(tmp_path: Path) -> None:
    """No row of `attempts` says it, and those of its nodes do: two hours of one node."""
    store = site_of_attempts(tmp_path, job(1, "COMPLETED", "00:00:00", "02:00:00", None))
    with open_store(store) as opened:
        attempt_id = Analysis(opened).facts.row("attempts")["attempt_id"]
    (tmp_path / "held.csv").write_text(
        "cluster,attempt_id,node,start,end,elapsed_s\n"
        f"c,{attempt_id},n1,2026-03-01T00:00:00Z,2026-03-01T02:00:00Z,7200\n"
    )
    options = ("--source", "table", "--table", "allocations")
    done = ettr("ingest", store, tmp_path / "held.csv", *options)
    assert done.code == 0, done.err
    with open_store(store) as opened:
        basis = Analysis(opened).exposure
    assert (basis.node_hours, basis.attempts_named, basis.attempts_without_runtime) == (2.0, 1, 0)
