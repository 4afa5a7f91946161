"""A real Slurm, real jobs, real kills: the report must tell the story exactly."""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli import program
from ettr.analysis import Analysis
from ettr.report.rows import plain
from ettr.store import open_store
from slurm.cluster import CLUSTER, memory_cgroup, slurm_cluster
from slurm.scenario import DRAIN_REASON, HOSTILE_NAME, Story, capture, play

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1800),  # the first test waits for the whole scenario
]


def ettr(*words: str) -> str:
    done = program.ettr(*words)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Path]:
    logs = tmp_path_factory.mktemp("logs")
    # a folder that MariaDB's own user may enter, which those of pytest are not
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(Path(folder)) as cluster:
            story = play(cluster)
            capture(cluster, story, logs)
            since = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
            cluster.command(
                str(program.PROGRAM), "collect", str(collected(logs)), "--since", since, "--run"
            )
    return story, logs


def collected(logs: Path) -> Path:
    """What `ettr collect` wrote of the same day."""
    return logs.with_name("collected")


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


def test_collect_writes_the_same_attempts_and_outages(
    day: tuple[Story, Path], store: Path, tmp_path: Path
) -> None:
    files = sorted(collected(day[1]).iterdir())
    assert [path.name.split("-")[0] for path in files] == ["events", "nodes", "sacct"]
    ettr("ingest", str(tmp_path / "site"), *map(str, files), "--timezone", "UTC")
    tables = {"attempts": ["attempt_id", "state"], "node_states": ["node", "state", "start"]}
    with open_store(store) as by_hand, open_store(tmp_path / "site") as by_command:
        for table, columns in tables.items():
            wanted, found = (
                sorted(map(str, one.rows(table).select(list(columns)).to_pylist()))
                for one in (by_hand, by_command)
            )
            assert found == wanted


@pytest.fixture(scope="module")
def analysis(store: Path) -> Iterator[Analysis]:
    """The store's analysis, made once for all tests that ask it about jobs."""
    with open_store(store) as opened:
        yield Analysis(opened)


def job(analysis: Analysis, job_id: str) -> dict[str, Any]:
    """What `ettr explain --json` prints."""
    story: dict[str, Any] = plain(analysis.explain(job_id))
    return story


def test_every_attempt_is_in_its_end_state(day: tuple[Story, Path], analysis: Analysis) -> None:
    story, _ = day
    told = {
        name: [attempt["state"] for attempt in job(analysis, job_id)["attempts"]]
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


def blame(ids: dict[str, str]) -> dict[str, str]:
    """Each failure that was played, and the node that died: five failures of four nodes."""
    nodes = {"nodefail_requeue": "node2", "nodefail_lost": "node4", "het_lost": "node6"}
    nodes |= {"twin_a": "node3", "twin_b": "node3"}
    return {ids[name]: node for name, node in nodes.items()}


def test_the_five_node_failures_are_found_with_their_nodes(
    day: tuple[Story, Path], report: dict[str, Any]
) -> None:
    blamed = {row["job_id"]: row["node"] for row in report["failures"]["rows"]}
    assert blamed == blame(day[0].ids)
    assert len(report["failures"]["rows"]) == 5


def test_maintenance_fails_no_job(day: tuple[Story, Path], analysis: Analysis) -> None:
    (attempt,) = job(analysis, day[0].ids["maintained"])["attempts"]
    assert (attempt["state"], attempt["kind"]) == ("NODE_FAIL", "operator")
    assert attempt["verdict"] is None


def test_a_heterogeneous_job_is_one_job(day: tuple[Story, Path], analysis: Analysis) -> None:
    leader = day[0].ids["het_lost"]
    (attempt,) = job(analysis, f"{leader}+1")["attempts"]
    assert (attempt["nodes"], attempt["n_gpus"]) == (["node1", "node6"], 5)


def test_a_chain_by_dependency_is_one_run(day: tuple[Story, Path], report: dict[str, Any]) -> None:
    ids = day[0].ids
    chained = [run["job_ids"] for run in report["runs"]["runs"] if run["name"] == "chain"]
    assert chained in ([[ids["chain_1"], ids["chain_2"]]], [])  # none where a slice took no second


@contextmanager
def analysed(folder: Path, *files: Path, timezone: str = "UTC") -> Iterator[Analysis]:
    """Another store of some of the logs, one call for each."""
    for file in files:
        done = program.ettr("ingest", folder / "other", file, "--timezone", timezone)
        assert done.code == 0, done.err
    with open_store(folder / "other") as opened:
        yield Analysis(opened)


def measured(made: Analysis) -> tuple[object, ...]:
    """What must not depend on the order of files: numbers, not the lines that they came from."""
    failed = [(row["cluster"], row["job_id"], row["node"]) for row in made.failure_rows]
    ends = {(state.state, state.attempts, state.gpu_hours) for state in made.status.states}
    return made.totals, failed, ends, made.goodput.first_order_gpu_hours


def test_without_the_controllers_log_no_other_nodes_are_blamed(
    day: tuple[Story, Path], tmp_path: Path
) -> None:
    story, logs = day
    with analysed(tmp_path, logs / "sacct.psv", logs / "events.psv") as made:
        blamed = {row["job_id"]: row["node"] for row in made.failure_rows}
    # minutes after node4 the other node of that job died too: states alone may not say which
    lost, known = story.ids["nodefail_lost"], blame(story.ids)
    assert blamed.pop(lost) in {known.pop(lost), None}
    assert blamed == known


@pytest.mark.parametrize("order", [("half", "full"), ("full", "half"), ("full",)])
def test_half_a_dump_and_the_whole_one(
    day: tuple[Story, Path], store: Path, tmp_path: Path, order: tuple[str, ...]
) -> None:
    story, logs = day
    half = tmp_path / "half.psv"
    half.write_text(story.half)
    dumps = {"half": half, "full": logs / "sacct.psv"}
    others = [path for path in sorted(logs.iterdir()) if path.name != "sacct.psv"]
    with (
        analysed(tmp_path, *(dumps[name] for name in order), *others) as made,
        open_store(store) as opened,
    ):
        assert measured(made) == measured(Analysis(opened))


@pytest.mark.parametrize("order", [("sacct.psv", "beta.psv"), ("beta.psv", "sacct.psv")])
def test_two_clusters_with_the_same_ids_and_nodes_stay_apart(
    day: tuple[Story, Path], store: Path, tmp_path: Path, order: tuple[str, ...]
) -> None:
    story, logs = day
    beta = tmp_path / "beta.psv"
    beta.write_text((logs / "sacct.psv").read_text().replace(f"|{CLUSTER}|", "|beta|"))
    files = {"sacct.psv": logs / "sacct.psv", "beta.psv": beta}
    others = [logs / "events.psv", logs / "slurmctld.log"]
    with (
        analysed(tmp_path, *(files[name] for name in order), *others) as made,
        open_store(store) as opened,
    ):
        alone = Analysis(opened)
        assert made.clusters == ("beta", CLUSTER)
        assert made.totals.jobs == 2 * alone.totals.jobs
        assert made.totals.gpu_hours == pytest.approx(2 * alone.totals.gpu_hours)
        mine = {
            row["job_id"]: row["node"] for row in made.failure_rows if row["cluster"] == CLUSTER
        }
        assert mine == blame(story.ids)


def test_a_wrong_zone_is_said_with_the_right_one(day: tuple[Story, Path], tmp_path: Path) -> None:
    _, logs = day
    ettr("ingest", str(tmp_path / "other"), str(logs / "sacct.psv"), "--timezone", "Asia/Tokyo")
    others = (logs / "slurmctld.log", logs / "events.psv", logs / "progress.jsonl")
    with analysed(tmp_path, *others) as made:
        shifts = {shift.source: shift for shift in made.clock_shifts}
        assert set(shifts) == {"slurmctld-log", "slurm-events", "progress"}
        for shift in shifts.values():
            assert shift.shift_s == pytest.approx(9 * 3600, abs=180)
            assert any(fix.zones[:1] == ("UTC",) for fix in shift.remedies)
        assert made.runs.measured_runs == 0


def test_who_cancelled_is_in_the_controllers_log(day: tuple[Story, Path], tmp_path: Path) -> None:
    story, logs = day
    forgetful = tmp_path / "sacct.psv"
    forgetful.write_text(re.sub(r"CANCELLED by \d+", "CANCELLED", (logs / "sacct.psv").read_text()))
    with analysed(tmp_path, forgetful, logs / "slurmctld.log") as made:
        rows = made.facts.rows("attempts")
    known = {row["job_id"]: row["cancelled_by"] for row in rows}
    assert known[story.ids["cancel"]] == "0"


def test_the_gpu_that_fell_off_explains_one_and_nothing_explains_the_other(
    day: tuple[Story, Path], report: dict[str, Any]
) -> None:
    ids = day[0].ids
    rows = {row["job_id"]: row for row in report["failures"]["rows"]}
    assert rows[ids["nodefail_requeue"]]["symptom"] == "gpu-unavailable"
    assert rows[ids["nodefail_requeue"]]["confidence"] == "high"
    assert rows[ids["nodefail_lost"]]["symptom"] == "unattributed"


def test_user_ends_are_no_failures_of_the_infrastructure(
    day: tuple[Story, Path], analysis: Analysis
) -> None:
    ids = day[0].ids
    for name in ("fail", "segv", "cancel", "timeout", "hostile", "op_requeue", "scavenger"):
        story = job(analysis, ids[name])
        assert all(attempt["verdict"] is None for attempt in story["attempts"]), name


def test_the_preemption_is_told_with_its_instigator(day: tuple[Story, Path], store: Path) -> None:
    ids = day[0].ids
    text = ettr("explain", str(store), ids["scavenger"], "--detail")
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
