"""The recipe that users copy, run as it is and killed; the campaign has more kills."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import forked_python

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("torchdata")


def test_a_killed_recipe_ends_with_the_losses_and_the_model_of_the_unkilled_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from campaigns import recipe_kills

    forks = forked_python.fork_server()

    def popen(command, *, stdout, env, **_):  # its own session, and errors among the output
        return forks.start(command, env, streams=(0, stdout.fileno(), stdout.fileno()))

    monkeypatch.setattr(recipe_kills, "ETTR", [sys.executable, forked_python.__file__, "ettr"])
    processes = {"Popen": popen, "STDOUT": None, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(recipe_kills, "subprocess", SimpleNamespace(**processes))
    outcome = recipe_kills.row("2D", recipe_kills.BUDDY, 2, seed=11, steps=16)
    assert (outcome.kills, outcome.lost) == (2, 0)
    assert outcome.replaced == 2, "survivors keep their processes"
    assert outcome.other_losses == outcome.other_models == 0
