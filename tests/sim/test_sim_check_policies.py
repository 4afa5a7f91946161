"""Checks of nodes as a policy of a simulated cluster: none, all, every day, those that pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_scenarios import fault, one_size, played, quiet
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_file import scenario_of, text_of
from ettr.sim.cluster.scenario_parts import NodeCheck
from ettr.sim.cluster.whatif import changed_scenario, hours_of, what_if

KINDS = ("gpu-memory", "nvlink", "pcie", "infiniband", "main-memory")


def fleet(seed: int, days: float = 20.0, restart_s: int = 12_600) -> ClusterScenario:
    """64 nodes, two jobs of 32 nodes at a time; rates, latencies, coverage and minutes drawn."""
    rng = np.random.default_rng(seed)
    rates = rng.dirichlet(np.ones(5)) * rng.uniform(0.5, 1.0) / 32 * 1000
    checks = []
    for check in range(5):
        kinds = sorted({check, int(rng.integers(5))})
        run_s = float(rng.choice([2, 4, 6, 10, 15]) * 60)
        covers = " ".join(f"{KINDS[kind]}:{rng.uniform(0.75, 0.95):.3f}" for kind in kinds)
        checks.append(NodeCheck(f"check {check}", run_s, covers))
    latent_s = rng.uniform(4, 24, 5) * 3600
    return quiet(
        machines={"nodes": 64},
        period={"days": days},
        jobs=one_size(8 * 32, 86_400.0),
        arrivals={"jobs_per_day": 2.5, "day_amplitude": 0.0, "weekend_factor": 1.0},
        checkpoints={
            **{"interval_s": 3600, "restart_s": restart_s},
            **{"resubmit_chance": 1.0, "mean_resubmit_s": 60.0},
        },
        lemons={"share": 0.04, "factor": 12.0},
        faults=tuple(
            fault(kind, float(rate), latent_s=float(hidden_s), repair_mean_s=14_400.0)
            for kind, rate, hidden_s in zip(KINDS, rates, latent_s, strict=True)
        ),
        node_checks=tuple(checks),
    )


def with_policy(scenario: ClusterScenario, policy: str) -> ClusterScenario:
    return replace(scenario, checks=replace(scenario.checks, policy=policy))


def useful_share(scenario: ClusterScenario, policy: str) -> float:
    found = hours_of(with_policy(scenario, policy), 1)
    return found.useful_gpu_hours / (found.useful_gpu_hours + found.lost_gpu_hours)


@pytest.mark.slow
def test_the_selector_is_at_least_as_useful_as_none_and_all_in_ten_fleets():
    for seed in range(10):
        scenario = fleet(seed)
        others = [useful_share(scenario, one) for one in ("none", "before-each-job")]
        assert useful_share(scenario, "selector") >= max(others)


def test_nothing_runs_where_incidents_cost_less_than_the_checks():
    scenario = fleet(3, days=6.0, restart_s=0)
    cheap = replace(scenario, checkpoints=replace(scenario.checkpoints, interval_s=60))
    tables, _ = played(with_policy(cheap, "selector"))
    assert not {one.name for one in scenario.node_checks} & set(
        tables["events"]["check"].to_pylist()
    )


def test_what_checks_find_before_a_job_is_repaired_and_fails_none():
    scenario = fleet(2, days=8.0)
    sure = tuple(
        replace(one, covers=" ".join(f"{k}:1" for k in KINDS)) for one in scenario.node_checks
    )
    tables, run = played(with_policy(replace(scenario, node_checks=sure[:1]), "before-each-job"))
    truth = run.truth()
    early = [
        one
        for one in truth["faults"].to_pylist()
        if one["effect"] == "hidden" and one["found"] is not None
    ]
    assert early
    assert all(one["attempts_ended"] == 0 for one in early)
    events = [one for one in tables["events"].to_pylist() if one["check"] == "check 0"]
    assert sum(one["severity"] == "critical" for one in events) == len(early)
    # the jobs that were put back lost the time of the check, and nothing else
    back = [one for one in truth["attempts"].to_pylist() if one["end"] == "REQUEUED"]
    assert {(one["saved_s"], one["lost_s"], one["restart_s"]) for one in back} == {
        (0, 0, int(sure[0].run_s))
    }
    # each node-hour is still somewhere
    hours = truth["hours"].to_pylist()
    assert sum(one["node_hours"] or 0.0 for one in hours) == pytest.approx(64 * 8 * 24)


def test_every_day_checks_a_node_once_a_day_at_most():
    tables, _ = played(with_policy(fleet(1, days=8.0), "every-day"))
    times: dict[tuple[str, str], list[float]] = {}
    for one in tables["events"].to_pylist():
        if one["check"].startswith("check ") and one["severity"] == "ok":
            times.setdefault((one["check"], one["node"]), []).append(one["time"].timestamp())
    gaps = [gap for own in times.values() for gap in np.diff(own)]
    assert gaps
    # a pass is dated by its own begin, the day by that of the first check of the job
    assert min(gaps) >= 86_400 - 5 * 900


def test_a_what_if_weighs_policies_and_refuses_what_changes_nothing():
    scenario = fleet(1, days=6.0)
    found = what_if(scenario, ["checks.policy=before-each-job"], (1, 2, 3))
    assert found.interventions[0].failed_attempts.estimate < 0
    assert (
        scenario_of(text_of(with_policy(scenario, "selector"))).node_checks == scenario.node_checks
    )
    with pytest.raises(UsageError, match=r"checks.policy says none"):
        what_if(scenario, ["node_checks.*.run_s=x2"], (1, 2, 3))
    with pytest.raises(UsageError, match="give one of none, before-each-job"):
        changed_scenario(scenario, "checks.policy=always")
    with pytest.raises(UsageError, match=r"faults with a latent_s are: gpu-memory"):
        changed_scenario(scenario, "node_checks.*.covers=oom:0.5")
    with pytest.raises(UsageError, match="give chances"):
        changed_scenario(scenario, "node_checks.*.covers=gpu-memory")
