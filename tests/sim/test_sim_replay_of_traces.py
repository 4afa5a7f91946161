"""Faults of published traces replayed: which of them, on which nodes, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from cluster_scenarios import fault, one_size, quiet
from ettr.analysis import Analysis
from ettr.analysis.calibration.replay import replay_of
from ettr.cli.main import build_app
from ettr.errors import UsageError
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.run import simulate_into
from ettr.sim.cluster.scenario import EVIDENCE, ClusterScenario, text_of
from ettr.sim.cluster.workload import Replay
from ettr.store import open_store
from shared_data import shared

LANL = "data/traces/lanl/LA-UR-05-7318-failure-data-1996-2005.csv.zst"
HEAD = (
    "System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,"
    "node decom,fru type,mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,"
    "Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software,Same Event"
)


def record(system: int, node: str, began: str, fixed: str) -> str:
    return (
        f"{system},cluster,4,16,4,{node},{node},1-Jan,1-Jan,current,part,1,1,1,0,compute,"
        f"{began},{fixed},60,,Disk Drive,,,,,No"
    )


def cluster(nodes: int) -> ClusterScenario:
    """Some nodes with a job now and then, and a process for every symptom that there is."""
    return quiet(
        machines={"nodes": nodes},
        arrivals={"jobs_per_day": 1.0},
        jobs=one_size(8, 3600.0),
        faults=tuple(
            fault(one, 0.0, node_down_chance=1.0, crash_chance=0.0, seen_chance=1.0)
            for one in EVIDENCE
        ),
    )


def stored(folder: Path, trace: Path, *options: str) -> Path:
    words = ["ingest", str(folder / "store"), str(trace), *options]
    done = CliRunner().invoke(build_app(words[0]), words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "store"


def of_lanl(folder: Path, lines: list[str]) -> Path:
    (folder / "lanl.csv").write_text("\n".join(lines) + "\n", "utf-8")
    return stored(folder, folder / "lanl.csv", "--timezone", "America/Denver")


def replayed(store: Path, scenario: ClusterScenario) -> tuple[ClusterScenario, Replay]:
    with open_store(store) as opened:
        return replay_of(scenario, None, Analysis(opened))


def played(scenario: ClusterScenario, replay: Replay) -> SimulatedCluster:
    run = SimulatedCluster(scenario, 1, "x", replay)
    for _ in run.play():
        if run.log.is_full:
            run.log.batch()
    return run


@pytest.mark.slow
def test_nodes_of_one_name_in_two_clusters_are_not_one_node(tmp_path: Path):
    lines = [record(at, "3", f"6/{day}/2004 10:00", f"6/{day}/2004 11:00")
             for at in (18, 19) for day in (1, 5, 9)]  # fmt: skip
    with pytest.raises(UsageError, match=r"holds 2 clusters \(lanl-18, lanl-19\); .* store of one"):
        replayed(of_lanl(tmp_path, [HEAD, *lines]), cluster(8))


@pytest.mark.slow
def test_faults_that_name_no_node_are_left_out_and_counted(tmp_path: Path):
    lines = [
        record(17, node, f"6/{day}/2004 10:00", f"6/{day}/2004 11:00")
        for node, day in (("1", 1), ("", 2), ("", 3), ("2", 9))
    ]
    _, replay = replayed(of_lanl(tmp_path, [HEAD, *lines]), cluster(8))
    assert [(one.time_s // 86_400, one.node) for one in replay.faults] == [(0, 0), (8, 1)]
    assert "2 faults that name no node are left out." in replay.notes


def test_a_store_of_which_no_fault_names_a_node_is_refused(tmp_path: Path):
    lines = [record(17, "", f"6/{day}/2004 10:00", f"6/{day}/2004 11:00") for day in (2, 9)]
    with pytest.raises(UsageError, match="none of its 2 faults names a node"):
        replayed(of_lanl(tmp_path, [HEAD, *lines]), cluster(8))


@pytest.mark.slow
def test_what_comes_after_the_end_and_to_nodes_in_repair_is_counted(tmp_path: Path):
    """Five days of jobs, ten of faults, of other years; the third fault meets a repair."""
    jobs = replace(cluster(4), period=replace(cluster(4).period, days=5.0))
    with open_store(tmp_path / "jobs", create=True) as opened:
        simulate_into(opened, jobs, 1, text_of(jobs), "jobs.toml", tmp_path / "truth")
    times = {1: ("10:00", "6/3/2004 10:00"), 2: ("10:00", "6/2/2004 11:00")}
    lines = [record(17, "1", f"6/{day}/2004 {at}", fixed) for day, (at, fixed) in times.items()]
    lines += [record(17, "2", f"6/{day}/2004 10:00", f"6/{day}/2004 11:00") for day in (3, 9, 10)]
    faults = of_lanl(tmp_path, [HEAD, *lines])
    with open_store(tmp_path / "jobs") as one, open_store(faults) as other:
        scenario, replay = replay_of(jobs, Analysis(one), Analysis(other))
        assert scenario.period.days <= 5.0
        with open_store(tmp_path / "made", create=True) as opened:
            found = simulate_into(
                opened, scenario, 1, "", "", tmp_path / "made-truth", replay=replay
            )
    assert len(replay.faults) == 3
    said = " ".join(found.replayed)
    assert "3 faults on 2 nodes are replayed" in said
    assert "2 faults that came after the end of what is simulated are left out." in said
    assert "1 replayed fault came to a node that was out of service in the run." in said
    assert "The logs of jobs begin on 2026-01-05, those of faults on 2004-06-01" in said
    assert found.faults == 2


@pytest.mark.slow
def test_lanl_is_refused_as_a_whole_and_system_17_for_its_lack_of_nodes(tmp_path: Path):
    trace = shared(LANL)
    with pytest.raises(UsageError, match=r"holds 23 clusters \(lanl-\d+, .*, \.\.\.\)"):
        replayed(stored(tmp_path, trace, "--timezone", "America/Denver"), cluster(5000))
    own = [line for line in pa.input_stream(trace).read().decode("utf-8", "replace").splitlines()
           if line.startswith("17,")]  # fmt: skip
    (tmp_path / "one").mkdir()
    with pytest.raises(UsageError, match="none of its 126 faults names a node"):
        replayed(of_lanl(tmp_path / "one", [HEAD, *own]), cluster(200))


@pytest.mark.slow
def test_each_fault_of_a_lanl_system_arises_on_its_node_or_meets_a_repair(tmp_path: Path):
    """System 20 of the release: 512 nodes, node 0 is known to fail far more often than others."""
    lines = pa.input_stream(shared(LANL)).read().decode("utf-8", "replace").splitlines()
    own = [line for line in lines if line.startswith("20,")]
    scenario, replay = replayed(of_lanl(tmp_path, [HEAD, *own]), cluster(600))
    left_out = sum(
        int(note.split()[0].replace(",", "")) for note in replay.notes if "left out" in note
    )
    assert len(replay.faults) + left_out == len(own)
    run = played(scenario, replay)
    arisen = run.truth()["faults"].to_pylist()
    planned = {(one.time_s, run.log.names[one.node]) for one in replay.faults}
    origin = scenario.period.origin
    came = {((row["time"] - origin).total_seconds(), row["node"]) for row in arisen}
    assert came <= planned
    assert 0.9 * len(replay.faults) < len(arisen) <= len(replay.faults)
    by_node = [row["node"] for row in arisen]
    assert max(set(by_node), key=by_node.count) == run.log.names[0]  # node0 is the first by name


@pytest.mark.slow
def test_infinitehbd_keeps_as_many_nodes_out_as_its_trace_does(tmp_path: Path):
    """Its nodes are down 2.31 % of the time; faults of a node that is out already are passed over.

    Without jobs nothing drains, so that a node is out for as long as it was.
    """
    trace = shared("data/traces/infinitehbd/fault_trace.json.zst")
    made = replace(cluster(400), arrivals=replace(cluster(400).arrivals, jobs_per_day=0.0))
    scenario, replay = replayed(stored(tmp_path, trace, "--nodes", "400"), made)
    assert len(replay.faults) == 584
    run = played(scenario, replay)
    rows = run.truth()["hours"].to_pylist()
    hours = {row["what"]: row["node_hours"] or 0.0 for row in rows}
    share = hours["node out of service"] / sum(hours.values())
    assert 500 < run.truth()["faults"].num_rows <= 584
    assert share == pytest.approx(0.0231, abs=0.0006)
