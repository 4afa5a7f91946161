"""The tutorial's ten lines followed to the letter, with two neighbours killed at once."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

import forked_python

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "survive-a-killed-rank.md"
LOOP = "    while step < STEPS:"
# In one write: with PYTHONUNBUFFERED `print` writes each of its arguments by itself, and the ranks
# share the pipe.
NOTE = """\
    note = f"slot {generation.slot} of {generation.number} goes on after {step}\\n"
    print(note, end="", flush=True)
"""


def test_two_overlapping_kills_cost_at_most_the_steps_since_the_full_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script,) = re.findall(r"```python\n(# train.py\n.*?)```", PAGE.read_text("utf-8"), re.S)
    assert script.count(LOOP) == 1
    # what the page has, and a line that says from which step a generation goes on
    noted = script.replace(LOOP, NOTE + LOOP)
    (tmp_path / "train.py").write_text(noted)
    words = ["ettr", "elastic", "-n", "4", "--spares", "1", "--", sys.executable, "train.py"]
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "output.txt"
    with output.open("wb") as out:
        job = forked_python.fork_server().start(
            [sys.executable, forked_python.__file__, *words],
            {**os.environ, "OMP_NUM_THREADS": "1"},
            streams=(0, out.fileno(), out.fileno()),
        )
    try:
        while not any(tmp_path.glob("full/step-*/checkpoint.json")):
            assert job.poll() is None
            time.sleep(0.01)
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        # after what forks them: slots 1 and 2, of which each holds the other's only copy
        for pid in children[2:4]:
            os.kill(int(pid), signal.SIGKILL)
        job.wait(500)
    finally:
        job.kill()
    printed = output.read_text()
    assert job.returncode == 0, printed
    notes = re.findall(r"slot (\d) of (\d+) goes on after (\d+)\n", printed)
    first = {slot: int(step) for slot, generation, step in notes if generation == "1"}
    assert first == dict.fromkeys("0123", 0)
    newest = max(int(generation) for _, generation, _ in notes)
    last = {slot: int(step) for slot, generation, step in notes if int(generation) == newest}
    assert last.keys() == first.keys(), "every rank of the last generation has trained"
    later = [int(step) for _, generation, step in notes if generation != "1"]
    assert min(later) >= 20, "no rank has begun at 0 again"
