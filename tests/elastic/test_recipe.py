"""The recipe that users copy, with one layer, and killed; the campaign has both and more kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import forked_python

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("torchdata")

LAYERS = "LAYERS = 64, 32, 32, 4, 2"


def test_a_killed_recipe_ends_with_the_losses_and_the_model_of_the_unkilled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from campaigns import recipe_kills

    recipe = recipe_kills.RECIPE.read_text()
    assert recipe.count(LAYERS) == 1
    one_layer = tmp_path / "recipe.py"  # the second is compiled as the first is
    one_layer.write_text(recipe.replace(LAYERS, LAYERS[:-1] + "1"))
    monkeypatch.setattr(recipe_kills, "RECIPE", one_layer)
    forks = forked_python.fork_server("torch._inductor.compile_fx")

    def popen(command, *, stdout, env, **_):  # its own session, and errors among the output
        return forks.start(command, env, streams=(0, stdout.fileno(), stdout.fileno()))

    monkeypatch.setattr(recipe_kills, "ETTR", [sys.executable, forked_python.__file__, "ettr"])
    processes = {"Popen": popen, "STDOUT": None, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(recipe_kills, "subprocess", SimpleNamespace(**processes))
    outcome = recipe_kills.row("2D", recipe_kills.BUDDY, 1, seed=11, steps=10)
    assert (outcome.kills, outcome.lost) == (1, 0)
    assert outcome.replaced == 1, "survivors keep their processes"
    assert outcome.other_losses == outcome.other_models == 0
