"""A real Slurm, real jobs, real kills: the report must tell the story exactly."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ettr.analysis import Analysis
from ettr.report.document import plain
from ettr.store import open_store
from slurm.cluster import memory_cgroup, slurm_cluster
from slurm.scenario import DRAIN_REASON, HOSTILE_NAME, Story, capture, play

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1800),  # the first test waits for the whole scenario
]


def ettr(*words: str) -> str:
    program = Path(sys.executable).with_name("ettr")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Path]:
    logs = tmp_path_factory.mktemp("logs")
    # a folder that MariaDB's own user may enter, which those of pytest are not
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(Path(folder)) as cluster:
            story = play(cluster)
            capture(cluster, story, logs)
    return story, logs


@pytest.fixture(scope="module")
def store(day: tuple[Story, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("store") / "site"
    files = [str(path) for path in sorted(day[1].iterdir())]
    ettr("ingest", str(place), *files, "--timezone", "UTC")
    return place


@pytest.fixture(scope="module")
def report(store: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ettr("report", str(store), "--json"))
    return document


def job(store: Path, job_id: str) -> dict[str, Any]:
    """What `ettr explain --json` prints, without a process for each of twenty jobs."""
    with open_store(store) as opened:
        story: dict[str, Any] = plain(Analysis(opened).explain(job_id))
    return story


def test_every_attempt_is_in_its_end_state(day: tuple[Story, Path], store: Path) -> None:
    story, _ = day
    told = {
        name: [attempt["state"] for attempt in job(store, job_id)["attempts"]]
        for name, job_id in story.ids.items()
    }
    assert told == story.ends


def test_no_record_is_lost(day: tuple[Story, Path], report: dict[str, Any]) -> None:
    story, _ = day
    assert report["quality"]["rows_rejected"] == 0
    assert report["totals"]["attempts"] == sum(len(ends) for ends in story.ends.values())


def test_what_could_not_be_played_is_said(day: tuple[Story, Path]) -> None:
    story = day[0]
    assert ("oom" in story.ends) == memory_cgroup()
    assert bool(story.left_out) != memory_cgroup()


def test_both_node_failures_are_found_with_their_nodes(
    day: tuple[Story, Path], report: dict[str, Any]
) -> None:
    ids = day[0].ids
    blamed = {row["job_id"]: row["node"] for row in report["failures"]["rows"]}
    assert blamed == {ids["nodefail_requeue"]: "node2", ids["nodefail_lost"]: "node4"}


def test_the_gpu_that_fell_off_explains_one_and_nothing_explains_the_other(
    day: tuple[Story, Path], report: dict[str, Any]
) -> None:
    ids = day[0].ids
    rows = {row["job_id"]: row for row in report["failures"]["rows"]}
    assert rows[ids["nodefail_requeue"]]["symptom"] == "gpu-unavailable"
    assert rows[ids["nodefail_requeue"]]["confidence"] == "high"
    assert rows[ids["nodefail_lost"]]["symptom"] == "unattributed"


def test_user_ends_are_no_failures_of_the_infrastructure(
    day: tuple[Story, Path], store: Path
) -> None:
    ids = day[0].ids
    for name in ("fail", "segv", "cancel", "timeout", "hostile", "op_requeue", "scavenger"):
        story = job(store, ids[name])
        assert all(attempt["verdict"] is None for attempt in story["attempts"]), name


def test_the_preemption_is_told_with_its_instigator(day: tuple[Story, Path], store: Path) -> None:
    ids = day[0].ids
    text = ettr("explain", str(store), ids["scavenger"])
    assert "PREEMPTED" in text
    assert f"JobId={ids['high']}" in text


def test_the_drain_is_told_with_its_reason(report: dict[str, Any], store: Path) -> None:
    classes = {entry["reason_class"] for entry in report["nodes"]["by_reason"]}
    assert "nhc" in {name.lower() for name in classes}, classes
    assert DRAIN_REASON.split(":", maxsplit=1)[0] == "NHC"


def test_the_requeued_training_run_is_measured_not_assumed(
    day: tuple[Story, Path], report: dict[str, Any]
) -> None:
    measured = [run for run in report["runs"]["runs"] if run["basis"] == "progress"]
    assert len(measured) == 1
    run = measured[0]
    assert run["job_ids"] == [day[0].ids["nodefail_requeue"]]
    assert run["attempts"] == 2
    split = run["split"]
    assert split["redone_h"] > 0
    within_productive = {"productive_low_h", "productive_high_h", "at_risk_h"}
    parts = sum(
        value
        for name, value in split.items()
        if name.endswith("_h") and name not in within_productive
    )
    # sacct has whole seconds, the recorder microseconds: up to a second at either end of each
    assert parts == pytest.approx(run["scheduled_h"], abs=4 / 3600)
    # 330 steps of a tenth of a second were kept, whatever was done twice
    assert split["productive_h"] * 3600 == pytest.approx(33, rel=0.15)


def test_a_hostile_job_name_is_harmless_in_the_page(
    day: tuple[Story, Path], store: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    ettr("report", str(store), "-o", str(page))
    assert "<script>alert(1)" not in page.read_text("utf-8")
    assert HOSTILE_NAME in ettr("explain", str(store), day[0].ids["hostile"])
