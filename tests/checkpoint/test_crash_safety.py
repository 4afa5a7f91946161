"""Hundreds of damaged saves: no wrong tensor is ever loaded, the newest whole state always is."""

import importlib.util
import logging
import os
import random
import subprocess
import warnings
from itertools import accumulate
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from ettr.checkpoint import CheckpointError, RunningCheckpoint, restore  # noqa: E402

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


class Cuts(random.Random):
    """Draws where each write ends and a byte to either side, then places spread over them all."""

    def __init__(self, running, spread: int) -> None:
        super().__init__(1)
        self._running, self._spread, self._left = running, spread, None

    def randrange(self, total: int) -> int:
        if self._left is None:
            ends = list(accumulate(len(data) for _, data in self._running.disk.writes))
            assert ends[-1] == total
            edges = {end + off for end in (0, *ends) for off in (-1, 0, 1)} & {*range(total)}
            width = total // self._spread
            places = [i * width + super(Cuts, self).randrange(width) for i in range(self._spread)]
            self._left = [*places, *sorted(edges)]
        return self._left.pop()


def test_kills_where_writes_end_and_all_over_them(bench, tmp_path: Path) -> None:
    """A disk that is full leaves the same bytes as a kill."""
    running = bench.Running()
    trials, edges = 320, 30  # ten writes
    cuts = Cuts(running, trials - edges)
    found = bench.trials(running, "kill", trials, tmp_path, seed=1, rng=cuts)
    assert cuts._left == []
    for outcomes in (found, running.objects):
        assert outcomes["wrong"] == outcomes["none"] == 0
        assert outcomes["newest"] + outcomes["older"] == trials
    assert running.objects["newest"]  # some of the kills come after it: it is written last


@pytest.mark.parametrize(
    ("kind", "trials"), [("power cut", 150), ("bit flip", 250), ("truncation", 150)]
)
def test_no_damage_loads_a_wrong_tensor(bench, tmp_path: Path, kind: str, trials: int) -> None:
    running = bench.Running()
    found = bench.trials(running, kind, trials, tmp_path, seed=2)
    assert sum(running.objects.values()) == trials
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
    try:
        _save_where_no_room_is_left(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _write_endlessly(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def _save_where_no_room_is_left(root: Path) -> None:
    state = {"x": torch.ones(20_000)}
    with RunningCheckpoint(root, state, policy="full") as checkpoint:
        checkpoint.save_all(1)
        with pytest.raises(OSError, match="No space left"):
            _write_endlessly(root / "filler")
        state["x"].fill_(2)
        checkpoint.step(2)  # its places were laid out at the start: there is room
        checkpoint.wait()
    into = {"x": torch.zeros(20_000)}
    assert restore(root, into).newest_step == 2
    assert bool((into["x"] == 2).all())
    with pytest.raises(CheckpointError, match="cannot make a slot file"):
        RunningCheckpoint(root, state)
    assert restore(root, into).newest_step == 2
