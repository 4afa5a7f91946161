"""One scenario file in AIReSim and here: equal where lives are exponential, explained elsewhere."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.airesim_side_by_side import FOLDER, PYTHON, RUNS, Run, by_airesim, by_ettr, runs_of

needs_airesim = pytest.mark.skipif(
    not os.environ.get(FOLDER),
    reason=f"needs AIReSim: {FOLDER} names its clone, {PYTHON} a Python with simpy "
    "(benchmarks/airesim_side_by_side.py)",
)


def run(name: str) -> Run:
    (found,) = [one for one in runs_of(RUNS) if one.name.startswith(name)]
    return found


@pytest.mark.parametrize(
    ("name", "failures"),
    [("Weibull 0.5", 375.7), ("Weibull 2", 66.2), ("lognormal 1", 158.4)],
)
def test_failures_of_new_servers_are_those_of_renewal(name: str, failures: float) -> None:
    """Source: renewal of each server by itself, 256 servers, mean 100 days, 60 days."""
    found = by_ettr(run(name))
    assert abs(found.failures - failures) < 4.0 * found.failures_error + 0.005 * failures


def test_exponential_run_has_the_closed_form_of_its_ettr() -> None:
    found = by_ettr(run("exponential"))
    # failures come while the job recovers, too: a recovery lasts (exp(rate R) - 1) / rate
    assert found.ettr == pytest.approx(0.99289, abs=3.0 * found.ettr_error + 0.00008)


@needs_airesim
def test_exponential_lives_agree() -> None:
    both = run("exponential")
    theirs = by_airesim(both, os.environ[FOLDER], os.environ.get(PYTHON, sys.executable))
    ours = by_ettr(both)
    error = (theirs.ettr_error**2 + ours.ettr_error**2) ** 0.5
    # their job has no failures while it recovers: 0.7 % of 0.7 % of the time
    assert abs(theirs.ettr - ours.ettr) < 3.0 * error + 0.00005
    error = (theirs.failures_error**2 + ours.failures_error**2) ** 0.5
    assert abs(theirs.failures - ours.failures) < 3.0 * error + 0.01 * ours.failures


@needs_airesim
def test_other_lives_differ_as_every_clock_begins_again_at_each_failure() -> None:
    both = run("Weibull 2")
    theirs = by_airesim(both, os.environ[FOLDER], os.environ.get(PYTHON, sys.executable))
    assert theirs.failures < 0.3 * by_ettr(both).failures
