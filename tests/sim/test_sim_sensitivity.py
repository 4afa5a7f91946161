"""Sensitivity to assumed values, and sweeps on several workers: equal wherever they run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cli.program import PROGRAM
from cluster_scenarios import fault, one_size, quiet, small
from ettr.cli.main import build_app
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.report.numbers import number
from ettr.report.section import section_text
from ettr.report.sections.what_if import sensitivity_section
from ettr.sim.cluster.run import ClusterHours, simulate_into
from ettr.sim.cluster.scenario import ClusterScenario, scenario_text
from ettr.sim.cluster.whatif import (
    HEADLINES,
    difference_interval,
    hours_of,
    mean_hours,
    sensitivity,
    varied_values,
    what_if,
)
from ettr.sim.compiled import on_backend, results_of
from ettr.store import open_store


def tiny(**parts: object) -> ClusterScenario:
    """Ten nodes for two days with one kind of fault; jobs of one node that all fit."""
    usual = {
        "period": {"days": 2.0},
        "machines": {"nodes": 10},
        "jobs": one_size(8, 10_000.0),
        "arrivals": {"jobs_per_day": 40.0},
        "faults": (fault("gpu-memory", 500.0, crash_chance=0.0, repair_sigma=0.0),),
        "lemons": {"share": 0.0},
    }
    return quiet(**(usual | parts))


def by_name(scenario: ClusterScenario, *patterns: str) -> dict[str, object]:
    return {one.name: one for one in varied_values(scenario, patterns or ("*",))[0]}


def test_half_and_half_more_of_every_assumed_value_and_the_rest_is_named():
    scenario = small()
    found = by_name(scenario)
    _, not_varied = varied_values(scenario)
    less, more = found["checkpoints.interval_s"].sides
    assert (less[0], more[0]) == (1800.0, 5400.0)
    assert less[1].checkpoints.interval_s == 1800
    # a chance is 1 at most
    assert found["checkpoints.resubmit_chance"].sides[1][0] == 1.0
    # the other sizes fill up what the changed one leaves, in proportion
    _, (_, larger) = found["jobs.1.share"].sides
    shares = [job.share for job in larger.jobs]
    assert shares[0] == pytest.approx(0.675)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[1] / shares[2] == pytest.approx(0.15 / 0.3)
    # texts, zeros and what no scenario can be are not passed over
    reasons = dict(line.split(": ", 1) for line in not_varied)
    assert reasons["scheduling.waiting"] == "is a text"
    assert reasons["faults.infiniband.node_down_chance"] == "0 has no half"
    assert not set(found) & set(reasons)
    named = {"period.start", "period.days"} | {
        name for name in scenario.sources if name.endswith((".symptom", "s[1].name", "].name"))
    }
    left_out = {"arrivals.peak_hour"} & set(found)  # with its default
    assert len(found) + len(reasons) == len(set(scenario.sources) - named) + len(left_out)


def test_what_somebody_measured_is_not_varied():
    scenario = small()
    sources = {**scenario.sources, "lemons.share": "our logs", "faults[1].repair_mean_s": "paper"}
    found = by_name(replace(scenario, sources=sources))
    assert "lemons.factor" in found
    assert "lemons.share" not in found
    assert "faults.gpu-memory.repair_mean_s" not in found
    assert "faults.nvlink.repair_mean_s" in found


@pytest.mark.slow
def test_repairs_half_as_long_halve_what_is_out_and_what_is_never_used_is_not_varied():
    """Repairs of one length: the time out is their number times that length."""
    patterns = ("faults.*.repair_mean_s", "lemons.factor", "checks.heartbeat_s")
    found = sensitivity(tiny(), range(4), patterns=patterns)
    assert found.simulations == 4 * (1 + 2)
    assert found.not_varied == (
        "checks.heartbeat_s: is not read where no fault stops a node",
        "lemons.factor: is not read where no node is a lemon",
    )
    out = {one.value: one for one in found.effects if one.headline == "out_gpu_hours"}
    repairs = out["faults.gpu-memory.repair_mean_s"]
    assert repairs.rank == 1
    half = found.base.out_gpu_hours / 2
    assert repairs.at_less.estimate == pytest.approx(-half, rel=0.15)
    assert repairs.at_more.estimate == pytest.approx(half, rel=0.15)
    assert 0 < repairs.shown_change <= abs(repairs.at_more.estimate)


@pytest.mark.slow
def test_twice_as_many_jobs_are_twice_the_work_where_all_have_room():
    """Useful hours follow arrivals: half the jobs, half the hours, within Poisson's error."""
    scenario = tiny(faults=(), arrivals={"jobs_per_day": 40.0})
    found = sensitivity(scenario, range(8), patterns=("arrivals.jobs_per_day",))
    (useful,) = [one for one in found.effects if one.headline == "useful_gpu_hours"]
    half = found.base.useful_gpu_hours / 2
    # 80 jobs a run, 8 runs: the mean of each has a standard error of 4 %
    assert useful.at_less.estimate == pytest.approx(-half, rel=0.2)
    assert useful.at_more.estimate == pytest.approx(half, rel=0.2)


def test_utilisation_and_first_waits_are_what_the_store_says(tmp_path: Path):
    """Counted a second time from the rows that the same run writes."""
    scenario = small(period={"days": 1.0})
    found = hours_of(scenario, 3)
    with open_store(str(tmp_path / "site"), create=True) as store:
        written = simulate_into(store, scenario, 3, "text", "small", tmp_path / "truth")
        rows = store.rows("attempts").to_pylist()
    assert found.held_share == pytest.approx(written.held_share)
    largest = max(job.gpus for job in scenario.jobs)
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["start"] is not None and (
            row["job_id"] not in first or row["start"] < first[row["job_id"]]["start"]
        ):
            first[row["job_id"]] = row
    waits = [
        ((row["start"] - row["eligible"]).total_seconds(), row["requested_gpus"])
        for row in first.values()
    ]
    assert found.first_wait_s == pytest.approx(np.mean([wait for wait, _ in waits]))
    own = [wait for wait, gpus in waits if gpus == largest]
    assert own
    assert found.largest_first_wait_s == pytest.approx(np.mean(own))


@pytest.mark.slow
def test_half_the_nodes_hold_more_of_their_hours_and_jobs_wait_longer():
    found = sensitivity(
        tiny(arrivals={"jobs_per_day": 50.0}, jobs=one_size(8, 12_000.0)),
        range(4),
        patterns=("machines.nodes", "lemons.factor"),
    )
    own = {(one.headline, one.value): one for one in found.effects}
    nodes = own["held_share", "machines.nodes"]
    assert (nodes.rank, nodes.at_less.low > 0, nodes.at_more.high < 0) == (1, True, True)
    wait = own["first_wait_s", "machines.nodes"]
    assert wait.rank == 1
    assert wait.at_less.low > 1000
    assert own["largest_first_wait_s", "machines.nodes"].at_less == wait.at_less  # one size
    text = " ".join(section_text(sensitivity_section(found)).split())
    held = 100 * found.base.held_share
    assert f"utilisation, % of the GPU-hours: {number(held, 4)} as it is" in text
    assert f"started, min: {number(found.base.first_wait_s / 60, 4)} as it is" in text
    assert "jobs that still wait at the end are in no mean" in text


def test_a_wait_that_no_job_of_a_seed_has_is_unknown_and_not_0():
    base = ClusterHours(1.0, 1.0, 1.0, 1, 1, 0.0, 0.5, 10.0, None)
    other = replace(base, useful_gpu_hours=2.0, largest_first_wait_s=5.0)
    runs = [base, replace(base, largest_first_wait_s=3.0), base]
    found = difference_interval(runs, [other] * 3, "largest_first_wait_s", 0.9)
    assert found == Interval.unknown()
    assert mean_hours(runs).largest_first_wait_s is None
    assert mean_hours(runs).first_wait_s == 10.0
    # what no seed moves may be moved by another
    for headline in ("first_wait_s", "held_share"):
        assert math.isinf(difference_interval(runs, [other] * 3, headline, 0.9).high)


@pytest.mark.slow
def test_one_worker_two_and_a_backend_of_the_users_give_the_same():
    joblib = pytest.importorskip("joblib")
    scenario = tiny()
    patterns = ("checkpoints.*",)
    alone = sensitivity(scenario, range(3), patterns=patterns)
    reports: list[int] = []
    two = sensitivity(scenario, range(3), patterns=patterns, workers=2, progress=reports.append)
    assert two == alone
    assert reports == list(range(1, alone.simulations + 1))
    with joblib.parallel_config(backend="threading"):
        assert sensitivity(scenario, range(3), patterns=patterns, workers=3) == alone
    changes = ["checkpoints.interval_s=600", "lemons.share=0.3"]
    assert what_if(scenario, changes, range(3), workers=2) == what_if(scenario, changes, range(3))


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_on_dask_and_ray_the_results_are_the_same(backend: str, module: str, tmp_path: Path):
    """In processes of their own: what a backend starts is there until its process ends."""
    pytest.importorskip(module)
    short = tmp_path / "short.toml"
    short.write_text(scenario_text("small")[0].replace("days = 7", "days = 0.2"), "utf-8")
    words = ["simulate", "sensitivity", str(short), "--runs", "3", "--vary", "lemons.share"]
    words.append("--json")
    spread = subprocess.run(
        [PROGRAM, *words, "--workers", "2", "--backend", backend],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert spread.returncode == 0, spread.stderr
    assert spread.stdout == run(*words[1:])
    assert json.loads(spread.stdout)["format"] == "ettr-sensitivity"


def test_one_worker_needs_no_joblib_and_two_ask_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert results_of(divmod, [(7, 2), (9, 4)]) == [(3, 1), (2, 1)]
    with pytest.raises(UsageError, match=r"pip install 'ettr\[sim\]'"):
        results_of(divmod, [(7, 2)], 2)
    with pytest.raises(UsageError, match="joblib is not installed"), on_backend("loky"):
        pass


def test_a_backend_that_nobody_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="give one of loky, dask, ray"), on_backend("spark"):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    needs = "pip install joblib dask distributed"
    with pytest.raises(UsageError, match=needs), on_backend("dask"):
        pass


def run(*words: str) -> str:
    done = CliRunner().invoke(build_app("simulate"), ["simulate", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_the_command_ranks_by_headline(tmp_path: Path):
    short = tmp_path / "short.toml"
    short.write_text(scenario_text("small")[0].replace("days = 7", "days = 0.2"), "utf-8")
    words = ("sensitivity", str(short), "--runs", "3", "--vary", "lemons.*")
    text = " ".join(run(*words).split())
    assert text.startswith("Sensitivity =========== SIMULATED, no cluster logged this")
    for name in ("lemons.share", "lemons.factor", "NOT VALIDATED"):
        assert name in text
    document = json.loads(run(*words, "--json"))
    assert document["format"] == "ettr-sensitivity"
    ranks = [(one["headline"], one["rank"]) for one in document["effects"]]
    assert ranks == [(headline, rank) for headline in HEADLINES for rank in (1, 2)]
    lines = run(*words, "--csv").splitlines()
    assert len(lines) == 1 + 2 * len(HEADLINES)
    with pytest.raises(UsageError, match=r"no assumed value is called lemon\.\*"):
        run("sensitivity", "small", "--vary", "lemon.*")
    with pytest.raises(UsageError, match="--set: simulate sensitivity has no use for it"):
        run("sensitivity", "small", "--set", "lemons.share=0")
