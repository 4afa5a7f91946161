"""Jobs and faults of a store replayed: the same attempts where nothing was changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cluster_scenarios import fault, one_size, quiet, seconds, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.back_test import replayed_waits
from ettr.analysis.calibration.replay import replay_of
from ettr.cli.main import build_app
from ettr.errors import UsageError
from ettr.report.sections.what_if import replayed_waits_section
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import (
    ClusterScenario,
    Validation,
    owners_of,
    text_of,
    with_validation,
)
from ettr.sim.cluster.scenario_parts import ArrayClass
from ettr.sim.cluster.standing import values_digest
from ettr.sim.cluster.workload import Replay, ReplayedFault, ReplayedJob
from ettr.store import open_store

COLUMNS = (
    *("job_id", "user", "account", "qos", "name", "state", "submit", "eligible", "start", "end"),
    *("node_list", "n_gpus", "restarts", "time_limit_s", "elapsed_s"),
)


def site() -> ClusterScenario:
    """Two days of 20 nodes with three levels, preemptions and ends of all kinds; no faults."""
    return small(
        period={"days": 2.0},
        machines={"nodes": 20},
        arrivals={"jobs_per_day": 110.0},
        outcomes={"impatient_share": 0.0, "timeout_share": 0.05},
        faults=(),
        bursts=(),
        lemons={"share": 0.0},
        checks={"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    )


def stored(scenario: ClusterScenario, folder: Path, seed: int = 4) -> Path:
    with open_store(folder / "site", create=True) as opened:
        simulate_into(opened, scenario, seed, text_of(scenario), "site.toml", folder / "truth")
    return folder / "site"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(site(), tmp_path_factory.mktemp("replay"))


def rows_of(run: SimulatedCluster) -> list[dict[str, object]]:
    for _ in run.play():
        pass
    rows = run.log.batch().tables["attempts"].to_pylist()
    return sorted(
        ({name: row[name] for name in COLUMNS} for row in rows),
        key=lambda row: (int(row["job_id"]), row["submit"]),
    )


@pytest.mark.slow
def test_the_jobs_of_a_store_replayed_on_the_same_cluster_run_as_they_did(store: Path):
    """Attempt for attempt: what accounting records is all that the schedule depends on."""
    with open_store(store) as opened:
        scenario, replay = replay_of(site(), Analysis(opened), None)
    begun = {row["job_id"] for row in rows_of(SimulatedCluster(site(), 4, "a")) if row["start"]}
    was = [row for row in rows_of(SimulatedCluster(site(), 4, "a")) if row["job_id"] in begun]
    now = rows_of(SimulatedCluster(scenario, 99, "b", replay))
    last = max(row["start"] for row in was if row["start"])
    assert {"PREEMPTED", "TIMEOUT", "FAILED", "COMPLETED"} <= {row["state"] for row in was}
    assert len(was) > 150
    over = [row for row in was if row["state"] not in ("RUNNING", "PENDING")]
    by_key = {(row["job_id"], row["submit"]): row for row in now}
    same = [row == by_key.get((row["job_id"], row["submit"])) for row in over]
    assert all(same), (len(same) - sum(same), last)


@pytest.mark.slow
def test_the_command_replays_says_so_and_repeats_to_the_byte(store: Path, tmp_path: Path):
    scenario = tmp_path / "mine.toml"
    scenario.write_text(text_of(replace(site(), period=replace(site().period, days=9.0))), "utf-8")
    found = []
    for name in ("one", "two"):
        words = ["simulate", "run", str(scenario), "--store", str(tmp_path / name)]
        done = CliRunner().invoke(
            build_app("simulate"),
            [*words, "--jobs-from", str(store), "--json"],
            catch_exceptions=False,
        )
        found.append(json.loads(done.stdout))
    assert found[0]["days"] == pytest.approx(2.0, abs=0.1)
    assert "are replayed from" in found[0]["replayed"][0]
    assert "no jobs of a real cluster. SIMULATED" in found[0]["replayed"][1]
    tables = [pq.read_table(tmp_path / name / "parts" / "attempts") for name in ("one", "two")]
    assert tables[0] == tables[1]
    assert {"user1", "team1"} <= {*tables[0]["user"].to_pylist(), *tables[0]["account"].to_pylist()}


@pytest.mark.slow
def test_a_scenario_that_failed_its_back_test_says_so_as_it_replays(store: Path, tmp_path: Path):
    scenario = tmp_path / "mine.toml"
    failed = Validation(
        "site", "2026-01-29", "2026-02-06", 30, 1, 0.05, (), ("lost goodput",), (),
        values_digest(site()),
    )  # fmt: skip
    scenario.write_text(with_validation(text_of(site()), failed), "utf-8")
    words = ["simulate", "run", str(scenario), "--store", str(tmp_path / "again")]
    done = CliRunner().invoke(
        build_app("simulate"), [*words, "--jobs-from", str(store), "--json"], catch_exceptions=False
    )
    standing = json.loads(done.stdout)["standing"]
    assert standing["verdict"] == "failed"
    assert "does not predict lost goodput (site, 2026-01-29 until" in standing["sentence"]


@pytest.mark.slow
def test_tasks_of_arrays_are_replayed_without_their_limit_and_the_answer_says_so(tmp_path: Path):
    scenario = replace(
        site(), arrays=(ArrayClass(1, 1.0, 4.0, 1),), period=replace(site().period, days=0.5)
    )
    with open_store(stored(scenario, tmp_path)) as opened:
        _, replay = replay_of(scenario, Analysis(opened), None)
    tasks = sum("_" in one.job_id for one in replay.jobs)
    assert tasks > 5
    said = f"{tasks} of them are tasks of job arrays; no accounting has %N, so nothing limits"
    assert any(note.startswith(said) for note in replay.notes)
    none = replace(scenario, arrays=())
    with open_store(stored(none, tmp_path / "none")) as opened:
        _, replay = replay_of(none, Analysis(opened), None)
    assert not any("of job arrays" in note for note in replay.notes)


def one_fault(repair_s: int | None = 3600) -> SimulatedCluster:
    """A silent fault on the fourth node at 10:00, and nothing else."""
    scenario = quiet(
        period={"days": 1.0},
        machines={"nodes": 8},
        jobs=one_size(8, 600.0),
        faults=(fault("node-hardware", 1e5, node_down_chance=1.0, crash_chance=0.0),),
    )
    replay = Replay(faults=(ReplayedFault(36_000, 3, "node-hardware", repair_s),))
    return SimulatedCluster(scenario, 1, "x", replay)


def test_a_replayed_fault_comes_when_and_where_it_did_and_lasts_as_long():
    """Its process would have brought hundreds a day: none of them is drawn."""
    run = one_fault()
    for _ in run.play():
        pass
    (state,) = run.log.batch().tables["node_states"].to_pylist()
    origin = run._scenario.period.origin
    assert state["node"] == "n4"
    # the heartbeat notices after 300 s
    assert (state["start"] - origin).total_seconds() == 36_300
    assert (state["end"] - state["start"]).total_seconds() == 3600
    assert run.truth()["faults"].num_rows == 1


def test_a_repair_that_no_log_shows_is_drawn_by_its_process():
    run = one_fault(repair_s=None)
    for _ in run.play():
        pass
    (state,) = run.log.batch().tables["node_states"].to_pylist()
    assert state["end"] is None or state["end"] > state["start"]


def test_a_job_waits_until_it_is_eligible_and_keeps_its_id_and_owner():
    scenario = quiet(period={"days": 1.0}, machines={"nodes": 2}, jobs=one_size(8, 600.0))
    job = ReplayedJob("17_3", "train", 100, 5000, 8, 700, 3600, 0, 1, 0, 0)
    owners = replace(owners_of(scenario), users=["ann", "bob"], accounts=["physics"], members=[2])
    run = SimulatedCluster(scenario, 1, "x", Replay(jobs=(job,), owners=owners))
    for _ in run.play():
        pass
    (row,) = run.log.batch().tables["attempts"].to_pylist()
    assert (row["job_id"], row["array_job_id"], row["user"], row["account"], row["name"]) == (
        "17_3", "17", "bob", "physics", "train",
    )  # fmt: skip
    starts = [(row[name] - scenario.period.origin).total_seconds() for name in ("submit", "start")]
    assert starts == [100, 5000]
    assert row["state"] == "COMPLETED"


@pytest.mark.slow
def test_faults_of_a_store_come_back_at_their_times_on_their_nodes(tmp_path: Path):
    scenario = replace(
        site(), faults=(fault("node-hardware", 150.0, node_down_chance=1.0, crash_chance=0.0),)
    )
    store = stored(scenario, tmp_path)
    with open_store(store) as opened:
        made, replay = replay_of(scenario, None, Analysis(opened))
    truth = pq.read_table(tmp_path / "truth" / "faults.parquet")
    assert len(replay.faults) == truth.num_rows > 3
    origin = made.period.origin.timestamp()
    real = zip(seconds(truth["time"]), truth["node"].to_pylist(), strict=True)
    for one, (time_s, node) in zip(replay.faults, sorted(real), strict=True):
        assert f"n{one.node + 1:02d}" == node
        # a silent node is in the logs from its heartbeat on
        assert origin + one.time_s - time_s == 300
    tables, run = played_again(made, replay)
    assert run.truth()["faults"].num_rows == len(replay.faults)
    hours = [row["gpu_hours"] or 0.0 for row in run.truth()["hours"].to_pylist()]
    assert sum(hours) == pytest.approx(20 * 8 * made.period.end_s / 3600, rel=1e-12)
    assert "NODE_FAIL" in tables["attempts"]["state"].to_pylist()


def played_again(
    scenario: ClusterScenario, replay: Replay
) -> tuple[dict[str, pa.Table], SimulatedCluster]:
    run = SimulatedCluster(scenario, 1, "x", replay)
    for _ in run.play():
        pass
    return run.log.batch().tables, run


@pytest.mark.slow
def test_what_the_scenario_lacks_is_named(store: Path):
    few = replace(site(), machines=replace(site().machines, nodes=16))
    one = replace(
        few, priorities=(replace(few.priorities[0], share_of_shared=1.0, share_of_gangs=1.0),)
    )
    with open_store(store) as opened:
        analysis = Analysis(opened)
        with pytest.raises(UsageError, match=r"2 qualities of service .* \(high, normal\)"):
            replay_of(one, analysis, None)
        with pytest.raises(UsageError, match="no faults of nodes to replay"):
            replay_of(few, None, analysis)


@pytest.mark.slow
def test_the_waits_of_a_replay_that_changes_nothing_are_the_real_ones(store: Path, tmp_path: Path):
    scenario, page = tmp_path / "site.toml", tmp_path / "waits.html"
    scenario.write_text(text_of(site()), "utf-8")
    words = ["simulate", "run", str(scenario), "--store", str(tmp_path / "again")]
    drawn = ["--jobs-from", str(store), "--html", str(page)]
    done = CliRunner().invoke(build_app("simulate"), [*words, *drawn], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert f"Page: {page}" in done.output
    with open_store(store) as real, open_store(tmp_path / "again") as again:
        waits = replayed_waits(Analysis(real), Analysis(again))
    known = [one for one in waits if one.real_s is not None]
    assert known
    assert any(one.real_s for one in known), "some jobs waited"
    assert all(one.simulated_s == one.real_s for one in known)
    of_simulation = replayed_waits_section(waits, "site", "site", 1, "SIMULATED, so.")
    names = [trace["name"] for trace in of_simulation.figures[0].traces]
    assert names == ["simulated", "replayed, of a simulation"]
    assert "real" not in of_simulation.title
    assert "site is not a real cluster. SIMULATED, so." in of_simulation.lead
    section = replayed_waits_section(waits, "site", "site", 1)
    assert [one.slug for one in section.figures] == ["waits-median", "waits-p90"]
    with pytest.raises(UsageError, match="give the store that has them with --jobs-from"):
        CliRunner().invoke(
            build_app("simulate"), [*words, "--html", str(page)], catch_exceptions=False
        )
