"""On what figures rest: all jobs, not those chosen; what was recorded; what an inventory says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.program import ettr
from ettr.analysis import Analysis
from ettr.selection import Selection
from ettr.store import open_store

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HEADER = "Cluster|JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"


def at(hours: float) -> str:
    return (BEGIN + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")


def job(
    number: int, gpus: int | None, *, cluster: str = "c", user: str = "ann", name: str = "train",
    state: str = "COMPLETED", start_h: float = 0.0, hours: float = 10.0, nodes: str = "n[1-2]",
    n_nodes: int = 2,
) -> str:  # fmt: skip
    held = "" if gpus is None else f"gres/gpu={gpus},node={n_nodes}"
    ran = f"{at(start_h)}|{at(start_h)}|{at(start_h + hours)}|{int(3600 * hours)}"
    return f"{cluster}|{number}|{name}|{user}|{state}|{ran}|{n_nodes}|{nodes}|{held}"


def stored(folder: Path, *logs: Path) -> Path:
    done = ettr("ingest", folder / "site", *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    return folder / "site"


def accounting(folder: Path, *rows: str, name: str = "sacct.psv") -> Path:
    (folder / name).write_text("\n".join([HEADER, *rows]) + "\n")
    return folder / name


def progress(folder: Path, *events: dict[str, object]) -> Path:
    lines = [{"v": 1, "run": f"run-{one['job']}", **one} for one in events]
    (folder / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder / "progress.jsonl"


def event(job_id: int, hours: float, kind: str, rank: int = 0, **more: object) -> dict[str, object]:
    time = BEGIN.timestamp() + 3600.0 * hours
    return {"job": str(job_id), "rank": rank, "time": time, "event": kind, **more}


@pytest.mark.parametrize("chosen", [{}, {"cluster": ("a",)}, {"user": ("ann",)}])
def test_a_selection_gives_nobody_the_progress_of_another_cluster(
    chosen: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    """Two clusters have a job 100, and the record names no cluster: it may be of either."""
    sacct = accounting(
        tmp_path, job(100, 16, cluster="a"), job(100, 16, cluster="b", user="eve", nodes="m[1-2]")
    )
    steps = [event(100, 0.2 + n / 60, "step", step=n + 1, duration_s=55.0) for n in range(19)]
    with open_store(stored(tmp_path, sacct, progress(tmp_path, *steps))) as store:
        found = Analysis(store, selection=Selection(**chosen)).runs.runs
    assert {run.cluster for run in found} >= {"a"}
    assert {run.basis for run in found} == {"assumed"}


def test_restarts_are_of_the_jobs_that_record_them(tmp_path: Path) -> None:
    """Three jobs of 100 h: restarts by rank 1 alone, by rank 0, and no record at all."""
    sacct = accounting(
        tmp_path,
        *(job(n, gpus, hours=100, name=f"j{n}") for n, gpus in ((1, 8), (2, 16), (3, 32))),
    )
    events = [event(1, n, "step", step=n, duration_s=9.0) for n in range(1, 9)]
    events += [event(1, 20 + n, "restart", rank=1, step=8, duration_s=60.0) for n in range(3)]
    events += [event(2, 30 + n, "restart", step=8, duration_s=60.0) for n in range(2)]
    with open_store(stored(tmp_path, sacct, progress(tmp_path, *events))) as store:
        found = Analysis(store).mttf
    assert [one.in_job_restarts for one in found.classes] == [3, 2, None]
    assert [one.recorded_job_hours for one in found.classes] == [100.0, 100.0, 0.0]
    between_h = [one.interruption_mttf_h.estimate for one in found.classes]
    assert between_h == pytest.approx([100 / 3, 50.0, None])
    assert found.interruption_mttf_h.estimate == pytest.approx(200 / 5)
    assert found.recorded_job_hours == 200.0
    text = ettr("mttf", tmp_path / "site", "--detail").out
    assert "5 restarts within jobs are counted too in the 200 job-hours" in " ".join(text.split())


def test_gpus_of_a_node_are_those_of_the_inventory(tmp_path: Path) -> None:
    """Jobs of one GPU on nodes of eight: a run of 1,024 takes 128 nodes."""
    rows = [job(n, 1, nodes="n1", n_nodes=1, start_h=n, hours=1.0) for n in range(24)]
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n1 Arch=x86_64 CPUTot=64 Gres=gpu:h100:8 State=IDLE\n"
    )
    logs = (accounting(tmp_path, *rows), tmp_path / "nodes.txt")
    with open_store(stored(tmp_path, *logs)) as store:
        analysis = Analysis(store)
        assert analysis.gpus_per_node == 8.0
        assert next(one for one in analysis.mttf.line if one.size == 1024).nodes == 128.0


def test_advice_on_checkpoints_counts_all_runs(tmp_path: Path) -> None:
    """300 runs of one size, of which 200 are listed."""
    rows = [
        job(n, 16, name=f"r{n}", hours=26.0, nodes=f"n[{2 * n + 1}-{2 * n + 2}]",
            state="NODE_FAIL" if n % 50 == 0 else "COMPLETED")
        for n in range(300)
    ]  # fmt: skip
    with open_store(stored(tmp_path, accounting(tmp_path, *rows))) as store:
        analysis = Analysis(store)
        found = analysis.checkpoint_advice
        assert len(analysis.runs.runs) == 200
    assert found is not None
    (one,) = found.sizes
    assert (one.runs, one.gpu_hours) == (300, pytest.approx(300 * 26 * 16))
    assert one.gpu_hours_gained == pytest.approx(
        one.gpu_hours * (one.ettr_at_best - one.ettr_at_hourly)
    )


def test_hours_of_runs_whose_gpus_no_log_names_are_unknown(tmp_path: Path) -> None:
    """A dump with AllocTRES and one without: half the runs name their GPUs."""
    sacct = accounting(tmp_path, job(1, 64, name="a"), job(2, None, name="b"))
    with open_store(stored(tmp_path, sacct)) as store:
        analysis = Analysis(store)
        found = {run.name: run.gpu_hours for run in analysis.runs.runs}
        assert found["a"] == pytest.approx(640.0)
        assert found.get("b") is None
        assert "b" in found or analysis.runs.attempts_without_gpus == 1
        by_size = {one.size.label: one.gpu_hours for one in analysis.runs.by_size}
        assert by_size.get("unknown") is None
    text = " ".join(ettr("runs", tmp_path / "site", "--detail").out.split())
    assert "b" in found or "since no log names their GPUs: 1 attempt that ran" in text


def test_a_crash_loop_of_a_period_ran_in_that_period(tmp_path: Path) -> None:
    """200 h in March, then three failures after an hour each in April."""
    april_h = 31 * 24.0
    rows = [
        job(5, 16, state="NODE_FAIL", start_h=april_h - 250, hours=200),
        *(job(5, 16, state="NODE_FAIL", start_h=april_h + 2 * n, hours=1) for n in range(3)),
        *(job(100 + n, 16, name=f"o{n}", start_h=24 * n, hours=20, nodes="m[1-2]")
          for n in range(34)),
    ]  # fmt: skip
    with open_store(stored(tmp_path, accounting(tmp_path, *rows))) as store:
        of_april = Selection(since=datetime(2026, 4, 1, tzinfo=UTC))
        for selection, run_hours in ((Selection(), 203.0), (of_april, 3.0)):
            (loop,) = Analysis(store, selection=selection).goodput.crash_loops
            assert loop.run_hours == pytest.approx(run_hours)


def test_nodes_of_one_name_in_two_clusters_are_two(tmp_path: Path) -> None:
    rows = [
        job(n, 8, cluster=cluster, state="FAILED", start_h=20 * n, nodes="n1", n_nodes=1)
        for n, cluster in enumerate("aab")
    ]
    with open_store(stored(tmp_path, accounting(tmp_path, *rows))) as store:
        both = Analysis(store).user_failures.by_node
        alone = Analysis(store, selection=Selection(cluster=("b",))).user_failures.by_node
    assert [(one.name, one.attempts) for one in both] == [("a/n1", 2), ("b/n1", 1)]
    assert [(one.name, one.attempts) for one in alone] == [("n1", 1)]


def test_a_cluster_that_accounts_no_gpus_is_not_known_by_another(tmp_path: Path) -> None:
    """Cluster b lists no GPU of any job, and its node has eight: whether they ran is not known."""
    rows = [
        job(1, 16, cluster="a"),
        f"b|2|train|eve|COMPLETED|{at(0)}|{at(0)}|{at(10)}|36000|1|m1|cpu=64,node=1",
    ]
    stored(tmp_path, accounting(tmp_path, *rows))
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("NodeName=m1 Arch=x86_64 CPUTot=64 Gres=gpu:h100:8 State=IDLE\n")
    done = ettr("ingest", tmp_path / "site", nodes, "--timezone", "UTC", "--cluster", "b")
    assert done.code == 0, done.err
    with open_store(tmp_path / "site") as store:
        of_b = Analysis(store, selection=Selection(cluster=("b",)))
        of_a = Analysis(store, selection=Selection(cluster=("a",)))
        assert (of_a.gpus_are_known, of_b.gpus_are_known) == (True, False)
        # nor where the one is asked about after the other
        assert not of_a.of(Selection(cluster=("b",))).gpus_are_known
        assert of_b.of(Selection(cluster=("a",))).gpus_are_known
        assert not of_b.of(
            Selection(cluster=("b",), since=datetime(2026, 3, 1, tzinfo=UTC))
        ).gpus_are_known
        assert of_a.ran_gpu_hours == pytest.approx(160.0)
    ends = ettr("status", tmp_path / "site", "--cluster", "b", "--json").json["states"]
    assert [(one["attempts"], one["gpu_hours"]) for one in ends] == [(1, None)]
