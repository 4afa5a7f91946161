"""The watcher that writes flight records, on ranks of real gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from ettr.elastic.flight import FlightWatcher
from ettr.errors import UsageError

pytestmark = pytest.mark.torch

WORKER = """
import os, sys, time
import torch, torch.distributed as dist
from ettr.elastic.flight import FlightWatcher
from ettr.errors import UsageError

folder = sys.argv[1]
try:
    FlightWatcher(folder)
except UsageError as error:
    print(error)
dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=0, world_size=1)
x = torch.ones(4)
with FlightWatcher(folder + "/stalls", 0.4, node="n1"):
    dist.all_reduce(x)
    until = time.monotonic() + 60
    while not os.path.exists(folder + "/stalls/rank_0.json") and time.monotonic() < until:
        time.sleep(0.05)
try:
    with FlightWatcher(folder + "/fails", 0.4, node="n1"):
        dist.all_reduce(x)
        raise ValueError("planted")
except ValueError:
    pass
with FlightWatcher(folder + "/ends", 60.0, node="n1"):
    dist.all_reduce(x)
dist.destroy_process_group()  # torch itself aborts now and then at exit where it is left
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rank that stalls, one that fails and one that ends, one after the other in one process."""
    folder = tmp_path_factory.mktemp("flight") / "records"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(folder)],
        env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "call torch.distributed.init_process_group first" in done.stdout
    return folder


@pytest.mark.parametrize(
    ("how", "reason", "collectives"), [("stalls", "stall", 1), ("fails", "failure", 2)]
)
def test_a_record_is_written_whole_with_who_and_why(
    records: Path, how: str, reason: str, collectives: int
) -> None:
    (path,) = (records / how).iterdir()
    document = json.loads(path.read_bytes())
    added = document["ettr"]
    assert added.pop("written_ns") > 1_700_000_000_000_000_000
    assert added == {
        "rank": 0,
        "world_size": 1,
        "node": "n1",
        "after_s": 0.4,
        "reason": reason,
        "groups": {"0": [0]},
    }
    names = [one["profiling_name"] for one in document["entries"]]
    assert names == ["gloo:all_reduce"] * collectives
    assert "frames" not in document["entries"][0]


def test_a_run_without_a_stall_leaves_nothing(records: Path) -> None:
    assert list((records / "ends").iterdir()) == []


def test_a_recorder_that_is_off_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(UsageError, match="set TORCH_FR_BUFFER_SIZE=2000"):
            FlightWatcher(tmp_path)
    finally:
        dist.destroy_process_group()
