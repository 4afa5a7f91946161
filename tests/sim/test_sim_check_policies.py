"""Checks of nodes as a policy of a simulated cluster: none, all, every day, those that pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from campaigns.check_policies import KINDS, fleet, useful_shares, with_policy
from cluster_scenarios import played
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import scenario_of, text_of
from ettr.sim.cluster.whatif import changed_scenario, what_if


@pytest.mark.slow
def test_the_selector_is_more_useful_than_any_other_policy_of_a_fleet():
    """Ten fleets at three rates, each with 12 seeds, are a campaign: of one seed luck decides."""
    for number in (0, 4, 5):
        none, every, _, selected = useful_shares(fleet(number, days=10.0), 1)
        assert selected >= max(none, every)


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
