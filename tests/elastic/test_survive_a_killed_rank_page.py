"""The tutorial's ten lines followed to the letter, with two neighbours killed at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "survive-a-killed-rank.md"
LOOP = "    while step < STEPS:"


def test_two_overlapping_kills_cost_at_most_the_steps_since_the_full_checkpoint(
    tmp_path: Path,
) -> None:
    (script,) = re.findall(r"```python\n(# train.py\n.*?)```", PAGE.read_text("utf-8"), re.S)
    assert script.count(LOOP) == 1
    # what the page has, and a line that says from which step a generation goes on: one write a
    # line, because unbuffered ranks that share a pipe mix the pieces of theirs
    line = 'print(f"goes on after {step}\\n", end="", flush=True)'
    noted = script.replace(LOOP, f"    {line}\n{LOOP}")
    (tmp_path / "train.py").write_text(noted)
    command = "from ettr.cli.main import main; main()"
    words = ["elastic", "-n", "4", "--spares", "1", "--", sys.executable, "train.py"]
    with subprocess.Popen(
        [sys.executable, "-c", command, *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as job:
        try:
            while not any(tmp_path.glob("full/step-*/checkpoint.json")):
                assert job.poll() is None
                time.sleep(0.01)
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            for pid in children[1:3]:  # slots 1 and 2: each holds the other's only copy
                os.kill(int(pid), signal.SIGKILL)
            printed, _ = job.communicate(timeout=600)
        finally:
            job.kill()
    assert job.returncode == 0, printed
    steps = [int(step) for step in re.findall(r"goes on after (\d+)", printed)]
    assert steps[:4] == [0] * 4
    assert len(steps) >= 8
    assert min(steps[4:]) >= 20, "no rank has begun at 0 again"
