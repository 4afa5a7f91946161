"""Slow nodes: planted ones in records, what cannot be judged, and real ranks of gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.program import ettr
from ettr.lemons.slow import slow_nodes
from ettr.progress.recorder import ProgressRecorder

RANKS, STEPS = 16, 80


def _record(place: Path, work_s: np.ndarray, *, with_waits: bool = True) -> Path:
    """A store of a synchronous run: every rank ends a step when the slowest does."""
    for rank in range(work_s.shape[1]):
        clock_s = 1.7e9
        file = place / f"progress-{rank}.jsonl"
        with ProgressRecorder(file, run="r1", cluster="c", job="1", rank=rank) as recorder:
            for step, row in enumerate(work_s):
                clock_s += row.max()
                more = {"wait_s": float(row.max() - row[rank])} if with_waits else {}
                recorder.record(
                    "step", step, float(row.max()), time_s=clock_s, node=f"n{rank // 2}", **more
                )
    done = ettr("ingest", place / "store", *sorted(place.glob("progress-*.jsonl")))
    assert done.code == 0, done.err
    return place / "store"


def _work_s(slow: float) -> np.ndarray:
    """Seconds by step and rank; ranks 6 and 7, of node n3, are slower."""
    rng = np.random.default_rng(5)
    work_s = rng.lognormal(0.0, 0.1, (STEPS, 1)) * rng.normal(1.0, 0.01, (STEPS, RANKS))
    work_s[:, 6:8] *= 1 + slow
    return work_s


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
    assert "n3" in ettr("slow", tmp_path / "store").out


def test_equal_nodes_are_left_alone(tmp_path: Path):
    found = ettr("slow", _record(tmp_path, _work_s(0.0)), "--json").json
    assert len(found["candidates"]) == RANKS // 2
    assert not any(one["claimed"] for one in found["candidates"])


def test_without_waits_nothing_is_judged_and_the_reason_is_given(tmp_path: Path):
    store = _record(tmp_path, _work_s(0.2), with_waits=False)
    found = ettr("slow", store, "--json").json
    assert found["candidates"] == []
    assert "wait_s" in found["runs"][0]["not_judged"]
    assert "Not measured" in ettr("slow", store).out


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


GLOO = """
import sys, time
import torch, torch.distributed as dist
from ettr.progress.recorder import ProgressRecorder

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=8)
    value = torch.ones(1)
    file = f"{folder}/progress-{rank}.jsonl"
    with ProgressRecorder(file, run="r", job="1", rank=rank) as recorder:
        for step in range(72):
            begun = time.thread_time()  # of this rank alone, whatever else the machine does
            sum(range(140_000 if rank == 5 else 100_000))
            work_s = time.thread_time() - begun
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
