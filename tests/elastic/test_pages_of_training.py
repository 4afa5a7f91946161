"""What help and docs say of training, run in forks of a process that has imported torch."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

import forked_python
from cli.docs_pages import ROOT
from cli.test_docs_imports import EACH, documented_programs
from cli.test_docs_tour import hops_of, out_of_order, program_of, tour
from ettr.cli.main import examples
from forked_python import run_together

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

TUTORIAL = ROOT / "docs" / "tutorials" / "survive-a-killed-rank.md"
# before calls are noted: torch calls a million functions as it is imported
TORCH = """
import torch
from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState, restore
"""
SAVE_AND_RESTORE = """
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 64)).sum().backward()
optimizer.step()
state = TrainingState(model, optimizer)
checkpoint = RunningCheckpoint(
    "ckpt", state, slot=0, policy="round-robin", budget=Budget(fraction=1 / 2)
)
checkpoint.save_all(0)
checkpoint.wait()
first.clear()
checkpoint.step(1)
checkpoint.wait()
checkpoint.close()
restore("ckpt", TrainingState(model, optimizer), slot=0, reached_step=1)
"""


def printed(words: list[str], folder: Path) -> str:
    """What a Python program writes that ends well."""
    (done,) = run_together([[sys.executable, *words]], folder, limit_s=300)
    assert done.status == 0, done.errors
    return done.output


@pytest.mark.parametrize("example", examples("elastic"))
def test_an_example_of_ranks_runs(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script,) = re.findall(r"```python\n# train.py\n(.*?)```", TUTORIAL.read_text("utf-8"), re.S)
    (tmp_path / "train.py").write_text(script.replace("STEPS = 200", "STEPS = 4"))
    monkeypatch.chdir(tmp_path)
    assert printed([forked_python.__file__, *shlex.split(example)], tmp_path)


def test_a_tensor_to_a_slot_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hops = tour("A tensor to a slot and back")
    assert len(hops) > 5
    monkeypatch.chdir(tmp_path)
    calls = hops_of(printed(["-c", program_of(SAVE_AND_RESTORE, TORCH)], tmp_path))
    assert out_of_order(hops, calls) == []


def test_imports_of_each_page_run_and_each_dotted_name_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "programs.json"
    given.write_text(json.dumps(documented_programs(training=True)))
    monkeypatch.chdir(ROOT)
    path = f"import sys; sys.path[:0] = {[str(ROOT / name) for name in ('src', 'tests', '')]}\n"
    assert json.loads(printed(["-c", path + EACH, str(given)], tmp_path).splitlines()[-1]) == {}
