"""A loop that is asked for fewer steps than the run has made leaves its checkpoint as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from ettr.adapters import CheckpointedRun
from ettr.checkpoint import RandomStates

pytestmark = pytest.mark.torch


def run(root: Path, n_steps: int) -> tuple[list[int], nn.Linear]:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    state = {"model": model, "random": RandomStates()}
    made = []
    for step in CheckpointedRun(root, state, run="counting").steps(n_steps):
        with torch.no_grad():
            model.weight += 1.0
        made.append(step)
    return made, model


def test_fewer_steps_than_were_made_do_not_rename_the_last_one(tmp_path: Path) -> None:
    assert run(tmp_path, 12)[0] == list(range(1, 13))
    assert run(tmp_path, 5)[0] == []
    made, model = run(tmp_path, 13)
    assert made == [13]  # and not steps 6 to 13, made upon the weights of step 12
    assert model.weight.item() == 13.0
