"""What-ifs: changes of a scenario by name, and their paired differences on common seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_scenarios import fault, one_size, small
from ettr.errors import UsageError
from ettr.report.sections.what_if import what_if_section
from ettr.report.text import section_text
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.whatif import changed_scenario, mean_interval, what_if


def tiny() -> ClusterScenario:
    """Ten nodes for two days that fail every other day, running jobs of one node."""
    return small(
        period={"days": 2.0},
        machines={"nodes": 10},
        jobs=one_size(8, 20_000.0),
        arrivals={"jobs_per_day": 40.0},
        faults=(fault("gpu-memory", 500.0), fault("filesystem", 100.0)),
        bursts=(),
    )


def test_a_change_that_changes_nothing_wins_exactly_nothing():
    (one,) = what_if(tiny(), ["scheduling.longest_job_s=604800"], range(3)).interventions
    assert (one.won_gpu_hours.low, one.won_gpu_hours.high) == (0.0, 0.0)


def test_nodes_that_never_fail_win_back_all_that_faults_took():
    changes = ["checks.heartbeat_s=200", "faults.*.per_1000_node_days=0"]
    found = what_if(tiny(), changes, range(5))
    first = found.interventions[0]
    assert first.change == changes[1]
    assert first.won_gpu_hours.low > 0
    assert first.failed_attempts.estimate == pytest.approx(-found.base.failed_attempts, abs=1)
    text = " ".join(section_text(what_if_section(found)).split())
    assert "SIMULATED" in text
    assert f"Most is won by {changes[1]}" in text


def test_the_interval_is_students_of_the_paired_differences():
    """t(0.95, 3 degrees) = 2.3534, from any table."""
    values = [1.0, 2.0, 3.0, 6.0]
    found = mean_interval(values, 0.9)
    half = 2.3534 * np.std(values, ddof=1) / 2.0
    assert (found.low, found.high) == pytest.approx((3.0 - half, 3.0 + half), rel=1e-4)


def test_changes_name_values_as_the_file_does():
    scenario = tiny()
    assert changed_scenario(scenario, "lemons.share=0").lemons.share == 0.0
    halved = changed_scenario(scenario, "faults.filesystem.repair_mean_s=x0.5,machines.nodes=11")
    assert [one.repair_mean_s for one in halved.faults] == [7200.0, 3600.0]
    assert halved.machines.nodes == 11
    assert changed_scenario(scenario, "machines.nodes=x0.55").machines.nodes == 6
    every = changed_scenario(scenario, "faults.*.seen_chance=0.5")
    assert every.faults == tuple(replace(one, seen_chance=0.5) for one in scenario.faults)


def test_shares_that_sum_to_one_together_change_together():
    changed = changed_scenario(small(), "jobs.1.share=0.40,jobs.4.share=0.20")
    assert [job.share for job in changed.jobs[:2]] == [0.4, 0.2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("lemons", "NAME=VALUE"),
        ("lemon.share=0", "no 'lemon'"),
        ("lemons.portion=0", "no value 'portion'"),
        ("lemons.share=many", "'many' is no number"),
        ("lemons.share=2", "give a share from 0 to 1"),
        ("faults.rust.seen_chance=1", "it has gpu-memory, filesystem"),
        ("faults.seen_chance=1", "faults.WHICH.NAME=VALUE"),
        ("machines.nodes=19.7", "nodes is a whole number"),
        ("machines.nodes=nan", "'nan' is no number"),
        ("machines.nodes=xinf", "nodes is a whole number"),
        ("lemons.factor=inf", "lemons.factor: inf"),
        ("jobs.8.share=0.2", "they sum to 0.2"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change: str, says: str):
    with pytest.raises(UsageError, match=says):
        changed_scenario(tiny(), change)
