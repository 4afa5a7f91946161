"""Differences between ways of the kills benchmark, over the schedules that both met."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("kills.summary")
    for name in [name for name in sys.modules if name.split(".")[0] == "kills"]:
        del sys.modules[name]


def runs(**kept: float) -> list[dict]:
    return [{"seed": int(s[1:]), "kept_steps": k, "wall_s": 10.0} for s, k in kept.items()]


def test_what_all_schedules_do_alike_does_not_widen_a_difference(summary) -> None:
    # the schedules differ by half, the ways by a tenth under each of them
    results = {"a": runs(s1=90, s2=40, s3=65), "b": runs(s2=30, s3=55, s1=80)}
    found = summary.paired(results, 0.1)
    assert found["a", "b"] == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-12))
    assert found["b", "a"][0] == pytest.approx(-0.1)
    assert summary.t_half([0.9, 0.4, 0.65]) > 0.5


def test_the_interval_is_that_of_the_differences(summary) -> None:
    # differences 0, 0.1, 0.2: t of 2 degrees of freedom is 4.302653, times 0.1 / sqrt(3)
    results = {"a": runs(s1=50, s2=60, s3=70), "b": runs(s1=50, s2=50, s3=50)}
    mean, half = summary.paired(results, 0.1)["a", "b"]
    assert mean == pytest.approx(0.1)
    assert half == pytest.approx(0.248414, abs=1e-5)


def test_only_schedules_that_both_met_are_compared(summary) -> None:
    results = {"a": runs(s1=50, s2=60), "b": runs(s2=50, s3=10), "c": runs(s3=20)}
    assert summary.paired(results, 0.1)["a", "b"] == (pytest.approx(0.1), None)
    assert ("a", "c") not in summary.paired(results, 0.1)
    assert summary.paired_table(results, 0.1).splitlines() == [
        "| less: | b | c |",
        "|---|---|---|",
        "| a | +0.10 | - |",
        "| b |  | -0.10 |",
    ]
