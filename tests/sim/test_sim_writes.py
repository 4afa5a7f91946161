"""Writes of checkpoints that hold up jobs: they run longer, and the time has a place of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster_scenarios import fault, one_size, played, quiet, small
from ettr.analysis import Analysis
from ettr.analysis.calibration.replay import replay_of
from ettr.errors import UsageError
from ettr.sim.cluster.run import hours_of_truth, simulate_into
from ettr.sim.cluster.scenario import scenario_of, text_of
from ettr.sim.cluster.standing import values_digest
from ettr.sim.cluster.whatif import changed_scenario, what_if
from ettr.store import open_store

WORK_S = 9000


def writing(gpus: int, interval_s: int, write_s: int, **parts: object):
    """Jobs of one length that never wait for each other."""
    rules = {"interval_s": interval_s, "write_s": write_s, "restart_s": 100}
    usual = {"jobs": one_size(gpus, float(WORK_S)), "checkpoints": rules}
    return quiet(**(usual | parts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval_s", "write_s", "n_writes"),
    # none is written as the work comes to its end
    [(1000, 10, 8), (999, 10, 9), (3600, 60, 2), (9000, 500, 0), (1, 1, 8999), (4000, 0, 2)],
)
def test_a_job_of_whole_nodes_runs_longer_by_its_writes(interval_s, write_s, n_writes):
    for gpus, length_s in ((8, 100 + WORK_S + n_writes * write_s), (4, WORK_S)):
        tables, run = played(writing(gpus, interval_s, write_s, period={"days": 2.0}))
        rows = [r for r in tables["attempts"].to_pylist() if r["state"] == "COMPLETED"]
        assert len(rows) > 100
        assert {row["elapsed_s"] for row in rows} == {length_s}
        truth = [r for r in run.truth()["attempts"].to_pylist() if r["end"] == "COMPLETED"]
        assert {row["saved_s"] for row in truth} == {WORK_S}
        assert {row.get("write_s", 0) for row in truth} == {length_s - WORK_S - 100 * (gpus == 8)}


@pytest.mark.slow
def test_an_interrupted_job_keeps_what_is_written_and_writes_the_rest_again():
    interval_s, write_s, restart_s = 600, 60, 100
    faults = (fault("gpu-memory", 900.0, crash_chance=0.0, node_down_chance=0.0),)
    _, run = played(writing(32, interval_s, write_s, faults=faults))
    rows = [row for row in run.truth()["attempts"].to_pylist() if row["fault"] is not None]
    assert len(rows) > 100
    for row in rows:
        length_s = sum(row[f"{name}_s"] for name in ("saved", "lost", "restart", "write"))
        moved_s = max(0, length_s - restart_s)
        cycles, rest_s = divmod(moved_s, interval_s + write_s)
        assert row["saved_s"] == cycles * interval_s
        assert row["write_s"] == cycles * write_s + max(0, rest_s - interval_s)
    assert {row["saved_s"] > 0 for row in rows} == {True, False}


@pytest.mark.slow
def test_limits_allow_for_the_writes():
    tables, _ = played(small(checkpoints={"interval_s": 60, "write_s": 60}))
    ended = [one for one in tables["attempts"]["state"].to_pylist() if one != "RUNNING"]
    assert ended.count("TIMEOUT") < 0.03 * len(ended)


@pytest.mark.slow
def test_a_checkpoint_a_second_wins_nothing_where_writes_cost_ten():
    base = small(checkpoints={"write_s": 10}, period={"days": 1.0})
    found = what_if(base, ["checkpoints.interval_s=1", "checkpoints.interval_s=1800"], (1, 2, 3))
    worth = {one.change: one.won_gpu_hours for one in found.interventions}
    assert worth["checkpoints.interval_s=1"].high < 0
    assert found.base.write_gpu_hours > 0
    assert "checkpoint stalls" not in found.not_simulated
    assert not found.warnings


@pytest.mark.slow
def test_without_the_value_hours_are_as_before_and_answers_warn():
    """Of a change of the interval alone, not of one of both."""
    both = "checkpoints.interval_s=60, checkpoints.write_s=10"
    changes = ["checkpoints.interval_s=1", "lemons.share=0", both]
    found = what_if(small(period={"days": 1.0}), changes, (1, 2, 3))
    assert found.base.write_gpu_hours == 0
    (warning,) = found.warnings
    assert "checkpoints.interval_s=1:" in warning
    assert "lemons.share" not in warning
    assert both not in warning
    assert (
        "checkpoint stalls"
        in what_if(small(period={"days": 0.1}), changes[:2], (1, 2, 3)).not_simulated
    )


def test_the_value_is_written_read_checked_and_no_value_where_it_is_0():
    made = small(checkpoints={"write_s": 10})
    assert scenario_of(text_of(made)).checkpoints.write_s == 10
    assert "write_s" not in text_of(small())
    assert values_digest(made) != values_digest(small())
    assert changed_scenario(small(), "checkpoints.write_s=10").checkpoints.write_s == 10
    for wrong in (-1, 86_401):
        with pytest.raises(UsageError, match=r"checkpoints\.write_s"):
            replace(made, checkpoints=replace(made.checkpoints, write_s=wrong))


@pytest.mark.slow
def test_useful_lost_and_written_hours_are_those_of_the_attempts():
    _, run = played(small(checkpoints={"interval_s": 300, "write_s": 30}))
    tables = run.truth()
    hours = hours_of_truth(tables)
    rows = tables["attempts"].to_pylist()
    written = sum(row["gpus"] * row["write_s"] for row in rows) / 3600
    assert hours.write_gpu_hours == pytest.approx(written)
    # of the time in which whole nodes move, a write takes 30 s of 330
    assert 0.05 < hours.write_gpu_hours / (hours.write_gpu_hours + hours.useful_gpu_hours) < 0.0909


@pytest.mark.slow
def test_a_replay_takes_the_writes_out_of_the_lengths(tmp_path: Path):
    parts = {"period": {"days": 2.0}, "arrivals": {"jobs_per_day": 130.0}}
    scenario = writing(16, 600, 60, faults=(fault("gpu-memory", 300.0),), **parts)
    with open_store(str(tmp_path / "site"), create=True) as opened:
        simulate_into(opened, scenario, 1, text_of(scenario), "site", tmp_path / "truth")
        _, replay = replay_of(scenario, Analysis(opened), None)
    works = [job.work_s for job in replay.jobs if job.submit_s < 86_400]
    assert len(works) > 100
    # what a fault ended for good has been seen for a part of its work
    assert sum(one == WORK_S for one in works) > 0.8 * len(works)
    assert max(works) == WORK_S
