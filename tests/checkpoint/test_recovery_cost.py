"""The experiment against a contraction, where the cost of a stale shard is known in closed form."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ettr.errors import UsageError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import contraction  # noqa: E402
from cli.program import ettr  # noqa: E402
from contraction import CONTRACTION, build  # noqa: E402
from ettr.checkpoint import RecoveryExperiment, measure_recovery  # noqa: E402
from ettr.checkpoint.recovery_cost import ExperimentTimes  # noqa: E402

# Everything is saved every 8 steps, so all of it is of one age; the mean loss is that of the step.
EXPERIMENT = {"steps": 120, "policy": "full", "every_steps": 8, "window": 1, "failures": 4}


def partial_cost(age: int, lost: float) -> float:
    """x is c^t everywhere: the squares that were lost are c^(-2 age) as large."""
    return math.log(1 - lost + lost * CONTRACTION ** (-2 * age)) / (-2 * math.log(CONTRACTION))


def test_the_shares_are_those_of_the_closed_form(tmp_path: Path) -> None:
    experiment = RecoveryExperiment(**EXPERIMENT, ranks=4)
    costs = measure_recovery(build, experiment, tmp_path / "experiment")
    ages = [step % 8 for step in experiment.failure_steps() if step % 8]
    assert len(ages) >= 2
    assert costs.mean_age_steps == pytest.approx(sum(ages) / len(ages))
    assert costs.noise_steps == 0
    # between two steps the decay is taken for a straight line: up to 0.013 of a step
    assert costs.composite.share.estimate == pytest.approx(1.0, abs=0.02)
    expected = sum(partial_cost(age, 1 / 4) / age for age in ages) / len(ages)
    assert costs.partial.share.estimate == pytest.approx(expected, abs=0.02)
    assert costs.partial.share.low < expected < costs.partial.share.high
    assert (costs.partial.trials, costs.partial.cut) == (4 * len(ages), 0)


def test_the_command_prints_the_values_for_the_policy(tmp_path: Path) -> None:
    words = ["--steps", "120", "--policy", "full", "--every-steps", "8", "--window", "1"]
    words = [f"{contraction.__file__}:build", str(tmp_path / "made"), *words, "--failures", "4"]
    done = ettr("measure-recovery", *words, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["composite_cost_share"] == pytest.approx(1.0, abs=0.02)
    assert document["partial"]["share"]["low"] < document["iteration_cost_share"]
    assert document["plan"]["state_bytes"] > 64 * 8  # the parameters, and headers
    assert document["plan"]["device_bytes_per_s"] >= document["plan"]["storage_bytes_per_s"] > 0
    assert done.err.count("cost of a partial recovery") == 4
    again = ettr("measure-recovery", *words)
    assert again.code == 2
    assert "is not empty; give a new folder" in again.err


def test_the_terms_are_options_of_a_plan() -> None:
    terms = ExperimentTimes(4e9, [0.3, 0.2, 0.2], [0.4], [2.0, 9.0, 1.0], [0.5]).terms()
    assert (terms.step_s, terms.device_bytes_per_s, terms.storage_bytes_per_s) == (0.2, 1e10, 2e9)
    assert terms.restore_bytes_per_s == 8e9
    words = str(terms).split()[1:]
    words += ["--assume", "partial-recovery.iteration-cost-share=0.31"]
    done = ettr(*words, "--gpus", "64", "--failures-per-1000-node-days", "6.5", "--json")
    assert done.code == 0, done.err


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    done = ettr("measure-recovery", "nowhere.py:build", str(tmp_path / "new"), "--steps", "400")
    assert (done.code, "give FILE:FUNCTION" in done.err) == (2, True)
    done = ettr(
        "measure-recovery", f"{contraction.__file__}:make", str(tmp_path / "new"), "--steps", "99"
    )
    assert (done.code, "has no function 'make'" in done.err) == (2, True)
    with pytest.raises(UsageError, match=r"steps: 10 was given; .*; ranks: 1 was given; give 2"):
        RecoveryExperiment(steps=10, ranks=1)
    with pytest.raises(UsageError, match=r"returned nan; it returns the loss"):
        measure_recovery(
            lambda: ({"x": torch.ones(4)}, lambda step: float("nan")),
            RecoveryExperiment(steps=100),
            tmp_path / "nan",
        )


@pytest.mark.parametrize("made", [{"model": 1, "optimizer": 2}, 3, ({}, 0.5)])
def test_a_build_that_gives_no_step_is_refused(tmp_path: Path, made: object) -> None:
    with pytest.raises(UsageError, match=f"type {type(made).__name__}; return the state and the"):
        measure_recovery(lambda: made, RecoveryExperiment(steps=80), tmp_path / "new")
