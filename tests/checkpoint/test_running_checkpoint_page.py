"""The how-to followed to the letter: its scripts run as printed, are killed, and go on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from forked_python import run_together

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "running-checkpoint.md"

BEFORE = """
import os, sys, torch
from torch import nn
torch.manual_seed(int(sys.argv[1]))
rank, n_steps, die_at = 0, 60, int(sys.argv[2])
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=60)
POSITION
class Loader(Position):
    at = 0
    def state_dict(self):
        return {"at": self.at, **super().state_dict()}
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.at = state["at"]
loader = Loader()
def train_step():
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(loader.at))
    loader.at += 1
    optimizer.zero_grad()
    loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(loader.at, loss.item(), scheduler.get_last_lr()[0], flush=True)
    if loader.at == die_at:
        os.kill(os.getpid(), 9)
"""


def run(script: Path, seed: int, die_at: int) -> tuple[list[str], str]:
    words = [sys.executable, str(script), str(seed), str(die_at)]
    (done,) = run_together([words], script.parent, limit_s=300)
    assert done.status == (-9 if die_at else 0), done.errors
    return done.output.splitlines(), done.errors


def test_the_script_of_the_page_is_killed_and_goes_on(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (position,) = (block for block in blocks if "class Position" in block)
    (loop,) = (block for block in blocks if "resume_or_begin()" in block)
    results = {}
    for name in ("unbroken", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        text = BEFORE.replace("POSITION", position) + loop.replace("/local/ckpt", str(folder))
        (folder / "train.py").write_text(text)
        results[name] = folder / "train.py"
    expected, said = run(results["unbroken"], 1, 0)
    assert "the run begins at step 0" in said
    run(results["killed"], 1, 37)
    found, said = run(results["killed"], 2, 0)
    step = int(re.findall(r"the run resumes after step (\d+):", said)[0])
    assert step in (10, 20, 30), "every ten steps; a round is left out while one is under way"
    assert found == expected[step:], "losses and learning rates, dropout included"
