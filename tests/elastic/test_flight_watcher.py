"""The watcher that writes flight records, on ranks of real gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORKER = """
import os, sys, time
import torch, torch.distributed as dist
from ettr.elastic.flight import FlightWatcher
from ettr.errors import UsageError

folder, mode = sys.argv[1:]
try:
    FlightWatcher(folder)
except UsageError as error:
    print(error)
dist.init_process_group("gloo", init_method=f"file://{folder}.store", rank=0, world_size=1)
x = torch.ones(4)
with FlightWatcher(folder, 0.4, node="n1"):
    dist.all_reduce(x)
    if mode == "fails":
        raise ValueError("planted")
    if mode == "stalls":
        until = time.monotonic() + 60
        while not os.path.exists(folder + "/rank_0.json") and time.monotonic() < until:
            time.sleep(0.05)
        os._exit(0)
dist.destroy_process_group()  # torch itself aborts now and then at exit where it is left
"""


def worked(folder: Path, mode: str, buffer: str = "2000") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WORKER, str(folder), mode],
        env={**os.environ, "TORCH_FR_BUFFER_SIZE": buffer, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(("mode", "reason"), [("stalls", "stall"), ("fails", "failure")])
def test_a_record_is_written_whole_with_who_and_why(tmp_path: Path, mode: str, reason: str) -> None:
    done = worked(tmp_path / "records", mode)
    assert "call torch.distributed.init_process_group first" in done.stdout
    (path,) = (tmp_path / "records").iterdir()
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
    assert [one["profiling_name"] for one in document["entries"]] == ["gloo:all_reduce"]
    assert "frames" not in document["entries"][0]


def test_a_run_without_a_stall_leaves_nothing(tmp_path: Path) -> None:
    done = worked(tmp_path / "records", "ends")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "records").iterdir()) == []


def test_a_recorder_that_is_off_is_an_error(tmp_path: Path) -> None:
    done = worked(tmp_path / "records", "ends", buffer="0")
    assert done.returncode == 1
    assert "set TORCH_FR_BUFFER_SIZE=2000" in done.stderr
