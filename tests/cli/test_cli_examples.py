"""The examples at the foot of each help page run, and end without an error."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.program import PROGRAM, ettr
from ettr.cli.main import commands
from ettr.cli.main import examples as examples_for
from flight.records import calls, record, write

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "examples" / "slurm"
NAMES = [name for _, name, _ in commands()]
TRAINING = ("verify", "elastic", "chaos", "measure-recovery")  # elastic/test_pages_of_training.py
INPUT = ("input trace", "input plan")  # tests/projection/test_input_plan.py
GATES = ("gate query", "gate grade", "gate items")  # tests/language, tests/gates
IMAGES = ("records",)  # tests/records
DEMO = ("demo",)  # tests/cli/test_cli_first_answer.py
# tests/cli/test_cli_watch.py, tests/collect: these need a server, or do not end by themselves
SERVED = ("watch", "collect kubernetes", "collect prometheus")
CATALOGUE = """format = "ettr checks 1"
[[check]]
name = "dcgmi diag"
command = "dcgmi diag -r 3"
minutes = 12
covers = {gpu-memory = 0.8}
"""
BUDGETS = """[[slo]]
name = "useful hours"
effective = 0.95
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the logs of the examples and a store made from them."""
    place = tmp_path_factory.mktemp("examples")
    for log in LOGS.iterdir():
        shutil.copy(log, place)
    done = ettr("ingest", place / "site", *sorted(LOGS.iterdir()), "--timezone", "UTC")
    assert done.code == 0, done.err
    (place / "checks.toml").write_text(CATALOGUE)
    (place / "budgets.toml").write_text(BUDGETS)
    # rank 2 of 4 did not start the last collective
    write(place / "records", {n: record(calls(6, True) if n == 2 else calls(7)) for n in range(4)})
    return place


def examples_of(names: list[str]) -> list[str]:
    return [example for name in names for example in examples_for(name)]


@pytest.mark.parametrize("name", NAMES)
def test_every_help_page_ends_with_its_examples(name: str) -> None:
    text = ettr(name, "--help").out
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert [line.strip() for line in examples] == list(examples_for(name))
    assert 1 <= len(examples) <= 2
    assert all(line.startswith(f"  ettr {name} ") or line == "  ettr sources" for line in examples)


@pytest.mark.slow
@pytest.mark.parametrize("example", examples_for("forecast"))
def test_a_past_of_a_day_is_too_short_to_forecast_a_week(example: str, folder: Path) -> None:
    done = ettr(*shlex.split(example)[1:], folder=folder)
    assert done.code == 2
    assert "days: to forecast" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    examples_of(
        [
            n
            for n in NAMES
            if n not in (*TRAINING, *GATES, *INPUT, *IMAGES, *DEMO, *SERVED, "forecast")
        ]
    ),
)
def test_an_example_runs(example: str, folder: Path) -> None:
    done = ettr(*shlex.split(example)[1:], folder=folder)
    assert done.code == 0, done.err
    assert done.out


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint and a small model."""
    torch = pytest.importorskip("torch")
    from ettr.checkpoint import RunningCheckpoint

    place = tmp_path_factory.mktemp("training")
    with RunningCheckpoint(place / "checkpoints", {"w": torch.ones(8)}, policy="full") as rc:
        rc.step(1)
        rc.wait()
    shutil.copy(ROOT / "tests" / "contraction.py", place / "model.py")
    return place


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("example", examples_of(["verify", "measure-recovery"]))
def test_an_example_of_the_training_side_runs(example: str, training: Path) -> None:
    done = ettr(*shlex.split(example)[1:], folder=training)
    assert done.code == 0, done.err
    assert done.out


@pytest.mark.parametrize("example", examples_for("chaos"))
def test_an_example_of_faults_runs(example: str, tmp_path: Path) -> None:
    """Around a program without ranks: what it is around is the example of `elastic`."""
    words, inner = example.split(" -- ", 1)
    assert [inner.replace(" -n ", " --ranks ")] == list(examples_for("elastic"))
    done = program([PROGRAM, *shlex.split(words)[1:], "--", sys.executable, "-c", "1"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the command: status 0" in done.stdout


def program(words: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join([str(PROGRAM.parent), os.environ["PATH"]])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
