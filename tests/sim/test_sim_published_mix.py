"""The scenario after RSC-1 against what its paper publishes of its jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cluster_scenarios import played
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text

LOWEST = "scavenger"


@pytest.fixture(scope="module")
def scenario() -> ClusterScenario:
    return scenario_of(scenario_text("rsc-1-like")[0])


def test_the_sizes_of_jobs_are_those_published(scenario: ClusterScenario):
    """Kokolis et al.: over 40 % of one GPU, over 90 % within a server, 4,096 GPUs under 1 %."""
    share = Counter[int]()
    for job in scenario.jobs:
        share[job.gpus] += job.share
    assert 0.40 < share[1] < 0.43
    assert 0.90 < sum(share[gpus] for gpus in share if gpus <= 8) < 0.93
    assert 0.0 < share[4096] < 0.01


def test_what_jobs_ask_for_leaves_room_for_what_is_done_twice(scenario: ClusterScenario):
    """83 % of the GPUs are held: what is asked for, restarts, and work that was lost."""
    machines, per_s = scenario.machines, scenario.arrivals.jobs_per_day / 86_400
    asked = {
        (job.gpus, job.priority): per_s * job.share * job.gpus * job.mean_s for job in scenario.jobs
    }
    total = sum(asked.values()) / machines.nodes / machines.gpus_per_node
    assert 0.77 < total < 0.83
    large = sum(value for (gpus, _), value in asked.items() if gpus >= 256)
    assert 0.65 < large / sum(asked.values()) < 0.69


def test_only_jobs_within_a_node_are_of_the_lowest_level(scenario: ClusterScenario):
    (lowest,) = (one for one in scenario.priorities if one.name == LOWEST)
    assert lowest.level < min(one.level for one in scenario.priorities if one is not lowest)
    assert lowest.share_of_shared == lowest.share_of_gangs == 0.0
    assert {job.gpus for job in scenario.jobs if job.priority == LOWEST} == {1, 2, 4, 8}


@pytest.mark.slow
def test_most_of_what_is_preempted_is_of_the_lowest_level_and_comes_to_its_end(
    scenario: ClusterScenario,
):
    """How much is preempted differs too much between weeks: the benchmark has eleven months."""
    short = replace(scenario, period=replace(scenario.period, days=4.0))
    rows = played(short)[0]["attempts"].to_pylist()
    of_lowest = [row for row in rows if row["qos"] == LOWEST]
    preempted = Counter(row["job_id"] for row in of_lowest if row["state"] == "PREEMPTED")
    everyone = sum(row["state"] == "PREEMPTED" for row in rows)
    assert everyone / 2 < sum(preempted.values())
    done = {row["job_id"] for row in of_lowest if row["state"] == "COMPLETED"}
    assert sum(times > 1 and job in done for job, times in preempted.items()) > 50
