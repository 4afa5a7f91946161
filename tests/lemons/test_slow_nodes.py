"""Slow nodes: planted ones in records, what cannot be judged, and real ranks of gloo."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cli.program import ettr
from ettr.analysis.slow_nodes import _asked_nodes
from ettr.lemons.slow_runs import RunSegments, slow_by_runs, slow_nodes
from ettr.progress.recorder import ProgressRecorder
from ettr.selection import Selection

RANKS, STEPS = 16, 80


def _record(
    place: Path, work_s: np.ndarray, *, with_waits: bool = True, run: str = "r1", cluster: str = "c"
) -> Path:
    """A store of a synchronous run: every rank ends a step when the slowest does.

    The records lie in one file, which is read sixteen times as fast as a file a rank.
    """
    file = place / f"progress-{run}.jsonl"
    for rank in range(work_s.shape[1]):
        clock_s = 1.7e9
        with ProgressRecorder(file, run=run, cluster=cluster, job="1", rank=rank) as recorder:
            for step, row in enumerate(work_s):
                clock_s += row.max()
                more = {"wait_s": float(row.max() - row[rank])} if with_waits else {}
                recorder.record(
                    "step", step, float(row.max()), time_s=clock_s, node=f"n{rank // 2}", **more
                )
    done = ettr("ingest", place / "store", file)
    assert done.code == 0, done.err
    return place / "store"


def _work_s(slow: float) -> np.ndarray:
    """Seconds by step and rank; ranks 6 and 7, of node n3, are slower."""
    rng = np.random.default_rng(5)
    work_s = rng.lognormal(0.0, 0.1, (STEPS, 1)) * rng.normal(1.0, 0.01, (STEPS, RANKS))
    work_s[:, 6:8] *= 1 + slow
    return work_s


@pytest.mark.slow
def test_the_slow_node_is_claimed_with_what_the_others_waited(tmp_path: Path):
    work_s = _work_s(0.2)
    found = ettr("slow", _record(tmp_path, work_s), "--json").json
    first, *others = found["candidates"]
    assert (first["node"], first["ranks"], first["claimed"]) == ("n3", [6, 7], True)
    assert not any(one["claimed"] for one in others)
    assert first["slowdown"]["estimate"] == pytest.approx(0.2, abs=0.005)
    # each rank waits for n3 from when the slowest other has done its work
    other_s = np.delete(work_s, (6, 7), axis=1).max(axis=1)
    waited_s = np.maximum(work_s[:, 6:8].max(axis=1) - other_s, 0.0).sum() * RANKS
    assert first["lost_gpu_hours"] == pytest.approx(waited_s / 3600, rel=1e-6)
    assert "n3" in ettr("slow", tmp_path / "store", "--detail").out


@pytest.mark.slow
def test_runs_of_one_name_on_two_clusters_are_two_runs(tmp_path: Path):
    """The same job id, ranks and node names; n3 of cluster a is slow, n6 of cluster b."""
    of_b = _work_s(0.0)
    of_b[:, 12:14] *= 1.2
    for cluster, work_s in (("a", _work_s(0.2)), ("b", of_b)):
        (tmp_path / cluster).mkdir()
        _record(tmp_path / cluster, work_s, cluster=cluster)
    files = [tmp_path / cluster / "progress-r1.jsonl" for cluster in "ab"]
    done = ettr("ingest", tmp_path / "both", *files)
    assert done.code == 0, done.err
    found = ettr("slow", tmp_path / "both", "--json").json
    assert [(one["cluster"], one["ranks"]) for one in found["runs"]] == [("a", 16), ("b", 16)]
    claimed = {(one["cluster"], one["node"]) for one in found["candidates"] if one["claimed"]}
    assert claimed == {("a", "n3"), ("b", "n6")}
    out = ettr("slow", tmp_path / "both", "--detail").out
    assert "a/n3" in out
    assert "b/n6" in out


def test_a_gpu_type_is_that_of_the_nodes_own_cluster():
    rows = [("a", "n3", "h100"), ("b", "n3", "a100"), ("b", "n4", "a100")]
    names = ("cluster", "node", "gpu_type")
    lives = [dict(zip(names, row, strict=True)) | {"has_gpus": True} for row in rows]
    facts = SimpleNamespace(
        distinct=lambda _, *columns: [tuple(life[name] for name in columns) for life in lives]
    )
    analysis = SimpleNamespace(selection=Selection(gpu_type=("a100",)), facts=facts)
    asked = _asked_nodes(analysis)
    assert [asked("a", "n3"), asked("b", "n3"), asked("a", "n4")] == [False, True, False]
    # where no record names the cluster, n3 may be either
    assert [asked(None, "n3"), asked(None, "n4"), asked("b", None)] == [False, True, False]


@pytest.mark.slow
def test_a_selection_of_nodes_or_jobs_holds_those_alone(tmp_path: Path):
    store = _record(tmp_path, _work_s(0.2))
    assert ettr("slow", store, "--node", "n5", "--json").json["candidates"][0]["node"] == "n5"
    assert "No node is claimed" in ettr("slow", store, "--node", "n5", "--detail").out
    found = ettr("slow", store, "--node", "n3", "--json").json["candidates"]
    assert [(one["node"], one["claimed"]) for one in found] == [("n3", True)]
    # the store has no accounting that says whose job 1 is
    assert ettr("slow", store, "--user", "bob", "--json").json["candidates"] == []


@pytest.mark.slow
def test_a_selection_of_users_reads_the_job_of_their_own_cluster(tmp_path: Path):
    times = "|".join(["2023-11-14T22:00:00"] * 3 + ["2023-11-14T23:00:00"])
    rows = [
        f"{cluster}|1|train|{user}|FAILED|1:0|{times}|3600|8|n[0-7]|node=8,gres/gpu=64"
        for cluster, user in (("c", "ann"), ("d", "bob"))
    ]
    sacct = tmp_path / "sacct.psv"
    sacct.write_text("\n".join([SACCT, *rows]) + "\n", encoding="utf-8")
    _record(tmp_path, _work_s(0.2), run="of-ann")
    store = _record(tmp_path, _work_s(0.2), run="of-bob", cluster="d")
    assert ettr("ingest", store, sacct, "--timezone", "UTC").code == 0
    found = ettr("slow", store, "--user", "ann", "--json").json
    assert [run["run_id"] for run in found["runs"]] == ["of-ann"]
    assert {one["run_id"] for one in found["candidates"]} == {"of-ann"}


@pytest.mark.slow
def test_equal_nodes_are_left_alone(tmp_path: Path):
    found = ettr("slow", _record(tmp_path, _work_s(0.0)), "--json").json
    assert len(found["candidates"]) == RANKS // 2
    assert not any(one["claimed"] for one in found["candidates"])


@pytest.mark.slow
def test_without_waits_nothing_is_judged_and_the_reason_is_given(tmp_path: Path):
    store = _record(tmp_path, _work_s(0.2), with_waits=False)
    found = ettr("slow", store, "--json").json
    assert found["candidates"] == []
    assert "wait_s" in found["runs"][0]["not_judged"]
    assert "Not measured" in ettr("slow", store, "--detail").out


@pytest.mark.slow
def test_intervals_of_the_slowdown_hold_the_truth_as_often_as_they_state():
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        work_s = rng.lognormal(0.0, 0.1, (STEPS, 1)) * rng.normal(1.0, 0.01, (STEPS, RANKS))
        work_s[:, 6:8] *= 1.2
        found = slow_nodes(work_s, np.arange(RANKS) // 2, 0.1, 0.9)
        held += bool(found.low[3] <= 0.2 <= found.high[3])
    # the standard deviation of a share of .9 over 100 draws is .03
    assert held >= 81


def test_few_steps_are_refused():
    with pytest.raises(ValueError, match="give 60 or more"):
        slow_nodes(np.ones((10, 8)), np.arange(8), 0.1, 0.9)


SACCT = (
    "Cluster|JobID|JobName|User|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|NNodes|NodeList"
    "|AllocTRES"
)
FLEET = 24


def _runs(place: Path, slow: float, *, change: bool = True, unsaid: int = 0) -> Path:
    """Ten runs of six jobs on four nodes each, whose rank 0 records 25 steps; n7 is slower.

    So many of the first jobs do not say their GPUs.
    """
    rng, rows, number = np.random.default_rng(3), [SACCT], 0
    file = place / "progress.jsonl"
    node = np.log1p(slow) * (np.arange(FLEET) == 7) + rng.normal(0, 0.002, FLEET)
    for run in range(10):
        base_s = float(rng.lognormal(2.0, 0.3))
        held = rng.choice(FLEET, 4, replace=False)
        for _ in range(6):
            number += 1
            if change:
                held = rng.choice(FLEET, 4, replace=False)
            clock_s = 1.7e9 + 1e5 * number
            times = "|".join(
                f"{datetime.fromtimestamp(clock_s + late_s, UTC):%Y-%m-%dT%H:%M:%S}"
                for late_s in (0, 0, 0, 5000)
            )
            rows.append(
                f"c|{number}|train|ann|FAILED|1:0|{times}|5000|4|n[{','.join(map(str, held))}]"
                + ("|" if number <= unsaid else "|node=4,gres/gpu=32")
            )
            step_s = base_s * float(np.exp(node[held].max() + rng.normal(0, 0.01)))
            with ProgressRecorder(file, run=f"r{run}", cluster="c", job=str(number)) as recorder:
                for step in range(25):
                    clock_s += step_s
                    recorder.record("step", step, step_s * rng.normal(1, 0.01), time_s=clock_s)
    (place / "sacct.psv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = ettr("ingest", place / "store", place / "sacct.psv", file, "--timezone", "UTC")
    assert done.code == 0, done.err
    return place / "store"


@pytest.mark.slow
def test_a_slow_node_shows_in_the_step_times_of_the_runs_it_was_in(tmp_path: Path):
    store = _runs(tmp_path, 0.2)
    found = ettr("slow", store, "--json").json["by_runs"]
    assert (found["runs"], found["segments"], found["not_judged"]) == (10, 60, None)
    first, *others = found["candidates"]
    assert (first["nodes"], first["claimed"]) == (["n7"], True)
    assert not any(one["claimed"] for one in others)
    assert first["slowdown"]["estimate"] == pytest.approx(0.2, abs=0.02)
    assert first["slowdown"]["low"] > 0.15
    assert first["lost_gpu_hours"] > 0
    assert "n7" in ettr("slow", store, "--detail").out


@pytest.mark.slow
def test_runs_without_gpus_did_not_lose_none(tmp_path: Path):
    """Of 60 jobs the first 30 do not say their GPUs: nodes held them in some of their segments."""
    store = _runs(tmp_path, 0.2, unsaid=30)
    some = ettr("slow", store, "--json").json["by_runs"]["candidates"][0]
    assert some["nodes"] == ["n7"]
    assert some["lost_gpu_hours"] > 0
    assert some["segments_without_gpus"] > 0
    assert "at least" in ettr("slow", store, "--detail").out
    (tmp_path / "none").mkdir()
    store = _runs(tmp_path / "none", 0.2, unsaid=60)
    for one in ettr("slow", store, "--json").json["by_runs"]["candidates"]:
        assert one["lost_gpu_hours"] is None


@pytest.mark.slow
def test_runs_that_never_change_their_nodes_say_nothing_of_them(tmp_path: Path):
    found = ettr("slow", _runs(tmp_path, 0.2, change=False), "--json").json["by_runs"]
    assert found["candidates"] == []
    assert "cannot tell" in found["not_judged"]


def _drawn_runs(
    slow: int, by: float, seed: int, spread: float = 0.004
) -> tuple[RunSegments, np.ndarray]:
    """25 runs of up to 8 segments on 4 to 16 of 64 nodes, and which of those are slow."""
    rng = np.random.default_rng([slow, seed])
    is_slow = np.zeros(64, dtype=bool)
    is_slow[rng.choice(64, slow, replace=False)] = True
    node = spread * rng.standard_t(5, 64) + np.log1p(by) * is_slow
    run, log_step, nodes = [], [], []
    for at in range(25):
        base, size = rng.normal(2.0, 0.5), rng.choice([4, 8, 16])
        for _ in range(rng.integers(1, 9)):
            held = rng.choice(64, size, replace=False)
            run.append(at)
            nodes.append(held)
            log_step.append(base + node[held].max() + 0.01 * rng.standard_t(4))
    hours = np.full(len(run), 100.0)
    return RunSegments(np.array(run), np.array(log_step), nodes, hours), is_slow


def test_segments_without_gpus_lose_an_unknown_time():
    """All segments are of 100 GPU-hours: of n of them, n - 1 lose that part of what n do."""
    segments, _ = _drawn_runs(1, 0.1, 0)
    whole = slow_by_runs(segments, 0.1, 0.9)
    assert not isinstance(whole, str)
    first = whole.groups[0]
    assert first.lost_gpu_hours is not None
    assert first.segments_without_gpus == 0
    own = [at for at, held in enumerate(segments.nodes) if np.isin(first.nodes, held).any()]
    runs = np.bincount(segments.run)
    own = [at for at in own if runs[segments.run[at]] > 1]  # one alone has no control
    for unknown, lost in (
        (own[:1], first.lost_gpu_hours * (len(own) - 1) / len(own)),
        (own, None),
    ):
        hours = segments.gpu_hours.copy()
        hours[unknown] = np.nan
        judged = slow_by_runs(replace(segments, gpu_hours=hours), 0.1, 0.9)
        assert not isinstance(judged, str)
        assert judged.groups[0].nodes == first.nodes
        assert judged.groups[0].segments_without_gpus == len(unknown)
        assert judged.groups[0].lost_gpu_hours == (None if lost is None else pytest.approx(lost))


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "by"), [(0, 0.0), (1, 0.1), (3, 0.2)])
def test_slow_nodes_of_runs_are_claimed_and_those_that_ran_with_them_are_not(slow: int, by: float):
    right = wrong = 0
    for seed in range(8):
        segments, is_slow = _drawn_runs(slow, by, seed)
        judged = slow_by_runs(segments, 0.1, 0.9)
        assert not isinstance(judged, str)
        for one in judged.groups:
            right += one.claimed and is_slow[list(one.nodes)].any()
            wrong += one.claimed and not is_slow[list(one.nodes)].any()
    assert right >= 0.8 * slow * 8
    assert wrong <= 2


@pytest.mark.slow
def test_a_node_of_an_unequal_fleet_has_to_be_slower_for_a_claim_by_runs():
    least, claimed = {}, 0
    for spread in (0.004, 0.02):
        judged = [slow_by_runs(_drawn_runs(0, 0.0, seed, spread)[0], 0.1, 0.9) for seed in range(6)]
        found = [one for one in judged if not isinstance(one, str)]
        claimed += sum(group.claimed for one in found for group in one.groups)
        # no slowdown may be enough
        least[spread] = np.median([one.least_slowdown or np.inf for one in found])
        assert np.median([one.spread for one in found]) == pytest.approx(spread, rel=0.8)
    assert least[0.02] > 2 * least[0.004] > 2 * 0.03
    assert claimed <= 1


@pytest.mark.slow
def test_intervals_by_runs_hold_the_truth_as_often_as_they_state():
    held = 0
    for seed in range(12):
        segments, is_slow = _drawn_runs(1, 0.1, seed)
        judged = slow_by_runs(segments, 0.1, 0.9)
        assert not isinstance(judged, str)
        at = int(is_slow.argmax())
        own = next(one for one in judged.groups if at in one.nodes)
        held += own.low <= 0.1 <= own.high
    # 12 of .9, less 2.5 standard deviations
    assert held >= 8


GLOO = """
import random, sys, time
import torch, torch.distributed as dist
from ettr.progress.recorder import ProgressRecorder

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=8)
    value = torch.ones(1)
    # drawn, since the processor time of equal work differs between ranks on a busy machine, and a
    # rank that the machine slows down is rightly found
    drawn = random.Random(rank)
    file = f"{folder}/progress-{rank}.jsonl"
    with ProgressRecorder(file, run="r", job="1", rank=rank) as recorder:
        for step in range(72):
            work_s = (0.006 if rank == 5 else 0.003) * drawn.lognormvariate(0.0, 0.1)
            time.sleep(work_s)
            worked = time.monotonic()
            dist.all_reduce(value)
            wait_s = time.monotonic() - worked
            recorder.record("step", step, work_s + wait_s, wait_s=wait_s, node=f"n{rank}")
    dist.destroy_process_group()

torch.multiprocessing.start_processes(work, (sys.argv[1],), nprocs=8, start_method="fork")
"""


@pytest.mark.torch
def test_a_delayed_rank_of_gloo_is_the_slow_one(tmp_path: Path):
    pytest.importorskip("torch")
    subprocess.run([sys.executable, "-c", GLOO, str(tmp_path)], check=True, timeout=300)
    store = tmp_path / "store"
    done = ettr("ingest", store, *sorted(tmp_path.glob("progress-*.jsonl")))
    assert done.code == 0, done.err
    found = ettr("slow", store, "--json").json
    assert [one["node"] for one in found["candidates"] if one["claimed"]] == ["n5"]
