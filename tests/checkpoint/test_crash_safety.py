"""A thousand damaged saves: no wrong tensor is ever loaded, the newest whole state always is."""

import importlib.util
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench():
    path = ROOT / "benchmarks" / "training_crash_safety.py"
    spec = importlib.util.spec_from_file_location("training_crash_safety", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        yield module
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


def test_a_thousand_kills_at_random_bytes(bench, tmp_path: Path) -> None:
    running = bench.Running()
    found = bench.trials(running, "kill", 1000, tmp_path, seed=1)
    for outcomes in (found, running.objects):
        assert outcomes["wrong"] == outcomes["none"] == 0
        assert outcomes["newest"] + outcomes["older"] == 1000
    assert running.objects["newest"]  # some of the kills come after it: it is written last


@pytest.mark.parametrize("kind", ["power cut", "bit flip", "truncation", "disk full"])
def test_no_damage_loads_a_wrong_tensor(bench, tmp_path: Path, kind: str) -> None:
    running = bench.Running()
    found = bench.trials(running, kind, 300, tmp_path, seed=2)
    assert sum(running.objects.values()) == 300
    for outcomes in (found, running.objects):
        assert outcomes["wrong"] == 0
        if kind != "truncation":  # which may take both places of a block
            assert outcomes["none"] == 0


def test_checked_dcp_notices_and_plain_formats_do_not(bench, tmp_path: Path) -> None:
    assert bench.trials(bench.CheckedDcp(), "bit flip", 60, tmp_path, seed=3)["wrong"] == 0
    for fmt in (bench.TorchSave(), bench.SafeTensors(), bench.Dcp()):
        assert bench.trials(fmt, "bit flip", 60, tmp_path, seed=3)["wrong"] > 30


# forked children: Python warns that the parent may have threads; it has none by then
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_really_killed_while_saving(bench, tmp_path: Path) -> None:
    found, objects = bench.real_kills(40, tmp_path, seed=4)
    assert found == objects == {"newest": 40}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: root only")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    program = f"""
import torch
from pathlib import Path
from ettr.checkpoint import CheckedWriter, CheckpointError, RunningCheckpoint, restore
root = Path({str(disk)!r})
state = {{"x": torch.ones(20_000)}}
checkpoint = RunningCheckpoint(root, state, policy="full")
checkpoint.save_all(1)
(root / "filler").write_bytes(b"")
try:
    with open(root / "filler", "wb", buffering=0) as file:
        while True: file.write(b"x" * 4096)
except OSError: pass
state["x"].fill_(2)
checkpoint.step(2); checkpoint.wait()  # its places were laid out at the start: there is room
checkpoint.close()
into = {{"x": torch.zeros(20_000)}}
assert restore(root, into).newest_step == 2 and bool((into["x"] == 2).all())
try:
    RunningCheckpoint(root, state)
except CheckpointError as error:
    assert "cannot make a slot file" in str(error), error
else:
    raise SystemExit("a second generation found room on a full disk")
assert restore(root, into).newest_step == 2
"""
    try:
        subprocess.run([sys.executable, "-c", program], check=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
