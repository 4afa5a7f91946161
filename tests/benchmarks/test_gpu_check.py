"""The check of a GPU, on the CPU: the same code, and a page that says where it was not run."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_whole_check_runs_without_a_gpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    check = importlib.import_module("gpu_check")
    kept = ("undisturbed", "parity of 2")
    monkeypatch.setattr(check, "GUARDS", {name: check.GUARDS[name] for name in kept})
    text = check.page("cpu", 13, 1)
    assert "not run on a GPU" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    cells = {row[0]: row[1:] for row in rows if row}
    for name in check.POLICIES:
        assert cells[name][3].endswith("bit for bit")
        assert cells[name][4].endswith(" 0 bad")
    assert cells["parity of 2"][0] == "bit for bit"
    assert float(cells["parity of 2"][1]) > 0.0


def test_without_a_gpu_nothing_is_claimed() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py")]
    done = subprocess.run(command, env=hidden, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:19]) == (0, "not run on a GPU: t"), done.stderr
