"""What-ifs: changes of a scenario by name, and their paired differences on common seeds."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from cluster_scenarios import fault, one_size, small
from ettr.errors import UsageError
from ettr.report.section import section_text
from ettr.report.sections.what_if import sensitivity_section, what_if_section
from ettr.sim.cluster import whatif as sensitivity_module
from ettr.sim.cluster.run import ClusterHours
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import BurstProcess
from ettr.sim.cluster.standing import standing_of
from ettr.sim.cluster.unread import refuse_no_effect
from ettr.sim.cluster.whatif import (
    Intervention,
    WhatIf,
    changed_scenario,
    difference_interval,
    effect_plan,
    hours_of,
    mean_interval,
    varied_values,
    what_if,
)
from ettr.sim.cluster.workload import Replay, ReplayedFault


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


def test_a_change_of_what_nothing_comes_to_is_named():
    """No job is as long as either limit: another cluster, of which every run is the same."""
    found = what_if(tiny(), ["scheduling.longest_job_s=604801"], range(3))
    assert found.interventions[0].won_gpu_hours.estimate == 0.0
    assert "NOTHING DIFFERS" in found.warnings[0]
    assert what_if(tiny(), ["machines.nodes=11"], range(3)).warnings == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("machines.nodes=x1.01", "machines.nodes is 10 with it, as before"),
        ("scheduling.longest_job_s=604800", "longest_job_s is 604800 with it, as before"),
        ("lemons.share=0.12", "lemons.share: 0.11 and 0.12 of 10 nodes are both 1 lemon. Give"),
        ("faults.*.form=2", "faults.*.form is not read where the law is constant"),
        ("faults.gpu-memory.seen_chance=x1", "faults.gpu-memory.seen_chance stays as it is"),
        (
            "machines.nodes=10, lemons.share=x1.2",
            "as before; lemons.share: 0.11 and 0.132 of 10 nodes",
        ),
    ],
)
def test_a_change_that_changes_nothing_is_refused_with_the_reason(change: str, says: str):
    made = replace(tiny(), lemons=replace(tiny().lemons, share=0.11))
    with pytest.raises(UsageError, match=f"changes nothing that is simulated.*{re.escape(says)}"):
        what_if(made, [change], range(3))


def test_lemons_that_are_not_there_are_not_said_to_cost_nothing():
    """Of 10 nodes 1 % are lemons: none. How often they would fail is not read."""
    none = replace(tiny(), lemons=replace(tiny().lemons, share=0.01))
    says = "is not read where no node is a lemon"
    with pytest.raises(UsageError, match=f"nothing that is simulated: lemons.factor {says}"):
        what_if(none, ["lemons.factor=9"], range(3))
    values, not_varied = varied_values(none, ["lemons.factor"])
    assert (values, not_varied) == ([], [f"lemons.factor: {says}"])
    # a change that makes lemons reads it
    plan = effect_plan(none, ["lemons.share=0.2"], ["lemons.factor"])
    assert [one.name for one, _ in plan.varied] == ["lemons.factor"]
    with pytest.raises(UsageError, match=f"\n  lemons.factor: {says}"):
        effect_plan(none, ["machines.nodes=11"], ["lemons.factor"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("lemons.factor=30", "no node is a lemon"),
        ("lemons.factor=30,lemons.share=0.04", "no node is a lemon"),
        ("checks.false_repair_mean_s=x2", "there are no false alarms"),
        ("outcomes.mean_patience_s=x0.5", "nobody is impatient"),
        ("outcomes.mean_crash_loop_s=60", "no job loops"),
        ("checkpoints.mean_resubmit_s=60", "nobody submits a job again"),
    ],
)
def test_a_change_of_what_there_is_none_of_is_refused(change: str, why: str):
    """Its difference of 0 would be no answer, and its reason is named."""
    none_of_them = {
        "lemons": {"share": 0.0},
        "checks": {"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
        "outcomes": {"impatient_share": 0.0},
        "checkpoints": {"resubmit_chance": 0.0},
    }
    made = small(period={"days": 0.02}, machines={"nodes": 10}, jobs=one_size(8, 600.0), bursts=(),
                 **none_of_them)  # fmt: skip
    name = change.partition("=")[0]
    with pytest.raises(UsageError, match=f"{name} is not read where {why}"):
        what_if(made, [change], range(3))
    some = {"checks": "checks.false_low_per_node_day=1", "outcomes": "outcomes.impatient_share=1"}
    some |= {"lemons": "lemons.share=1", "checkpoints": "checkpoints.resubmit_chance=1"}
    if "loop" in name:
        return  # all values of a loop go together
    both = f"{change.partition(',')[0]},{some[name.partition('.')[0]]}"
    assert what_if(made, [both], range(3)).interventions[0].change == both


def some_come() -> ClusterScenario:
    """Faults that come by themselves, in bursts alone, and not at all; none stops a node."""
    comes = {"per_year": 300.0, "hit_share": 0.5, "spread_s": 60.0}
    return replace(
        tiny(),
        faults=(
            fault("gpu-memory", 500.0),
            fault("filesystem", 0.0, law="weibull", form=0.7),
            fault("nvlink", 0.0, node_down_chance=0.5),
        ),
        bursts=(
            BurstProcess("filesystem", "cluster", **comes),
            BurstProcess("nvlink", "cluster", **(comes | {"hit_share": 0.0})),
        ),
        rate_changes=(),
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("checks.heartbeat_s=x9", "no fault stops a node"),
        ("faults.gpu-memory.as_new_share=0", "the law is constant"),
        ("faults.gpu-memory.form=2", "the law is constant"),
        ("faults.filesystem.as_new_share=0", "filesystem comes in bursts alone"),
        ("faults.filesystem.law=lognormal", "filesystem comes in bursts alone"),
        ("faults.nvlink.repair_mean_s=x9", "nvlink has a rate of 0 and comes in no burst"),
        ("faults.nvlink.node_down_chance=0.1", "nvlink has a rate of 0 and comes in no burst"),
        (
            "faults.*.as_new_share=0",
            "the law is constant and filesystem comes in bursts alone and nvlink has a rate of 0",
        ),
    ],
)
def test_a_value_that_no_fault_reads_is_refused(change: str, why: str):
    """Both runs are the same to the last digit, which is no finding about the value."""
    made = some_come()
    assert hours_of(made, 1) == hours_of(changed_scenario(made, change), 1)
    name = change.partition("=")[0]
    with pytest.raises(UsageError, match=re.escape(f"{name} is not read where {why}")):
        what_if(made, [change], range(3))
    if name == "checks.heartbeat_s":
        assert varied_values(made, [name]) == ([], [f"{name}: is not read where {why}"])


@pytest.mark.parametrize(
    "change",
    [
        "checks.heartbeat_s=x9,faults.filesystem.node_down_chance=0.5",
        "checks.heartbeat_s=x9,faults.nvlink.per_1000_node_days=500",
        "checks.heartbeat_s=x9,bursts.nvlink.hit_share=1",
        "faults.gpu-memory.as_new_share=0,faults.gpu-memory.law=weibull",
        "faults.filesystem.repair_mean_s=x9",
        "faults.*.repair_mean_s=x9",
    ],
)
def test_a_value_that_some_fault_reads_is_not_refused(change: str):
    made = some_come()
    refuse_no_effect(made, change, changed_scenario(made, change))


def test_values_of_replayed_faults_are_read_whatever_the_rate():
    """A silent node of a log waits for the heartbeat, and its repair is drawn: no log shows it."""
    made = some_come()
    replay = Replay(faults=(ReplayedFault(3600, 0, "nvlink", None),))
    for change in ("checks.heartbeat_s=40000", "faults.nvlink.repair_mean_s=x9"):
        refuse_no_effect(made, change, changed_scenario(made, change), replay)
        with pytest.raises(UsageError, match="is not read"):
            refuse_no_effect(made, change, changed_scenario(made, change))
    silent = replace(made.faults[2], node_down_chance=1.0, crash_chance=0.0)
    made = replace(made, faults=(*made.faults[:2], silent))
    later = changed_scenario(made, "checks.heartbeat_s=40000")
    assert hours_of(made, 1, replay) != hours_of(later, 1, replay)


@pytest.mark.parametrize(
    "change",
    [
        "machines.nodes=x1.01,checks.interval_s=600",
        "lemons.share=0.2",
        "faults.*.law=weibull,faults.*.form=1",
        "faults.gpu-memory.law=weibull,faults.*.form=2",
    ],
)
def test_a_change_with_one_part_that_changes_something_is_simulated(change: str):
    made = replace(tiny(), period=replace(tiny().period, days=0.02))
    assert what_if(made, [change], range(3)).interventions[0].change == change


def test_nodes_that_are_bought_count_by_what_they_cost_and_what_they_run():
    """Two nodes more run more work, of which more is lost: that is no loss of theirs.

    Without a restart every job has the time of its restarts for work: the whole of it counts.
    """
    made = replace(tiny(), machines=replace(tiny().machines, nodes=4))
    found = what_if(made, ["machines.nodes=6", "checkpoints.restart_s=0"], range(3))
    by_change = {one.change: one for one in found.interventions}
    more = by_change["machines.nodes=6"]
    assert more.bought_gpu_hours == 2 * 8 * 2 * 24
    assert more.useful_gpu_hours.estimate > 0.5 * more.bought_gpu_hours
    net = more.useful_gpu_hours.estimate - more.bought_gpu_hours
    assert more.net_gpu_hours.estimate == pytest.approx(net)
    assert more.first_wait_s.estimate < 0
    runs = [hours_of(made, seed) for seed in range(3)]
    restarts = [run.lost_gpu_hours for run in runs]
    free = [hours_of(changed_scenario(made, "checkpoints.restart_s=0"), seed) for seed in range(3)]
    assert sum(restarts) > sum(one.lost_gpu_hours for one in free)
    text = " ".join(section_text(what_if_section(found)).split())
    assert "highest priority" in text
    assert "How much longer jobs wait" in text


@pytest.mark.slow
def test_nodes_that_never_fail_win_back_all_that_faults_took():
    changes = ["scheduling.longest_job_s=604801", "faults.*.per_1000_node_days=0"]
    found = what_if(tiny(), changes, range(5))
    first = found.interventions[0]
    assert first.change == changes[1]
    assert first.won_gpu_hours.low > 0
    assert first.failed_attempts.estimate == pytest.approx(-found.base.failed_attempts, abs=1)
    text = " ".join(section_text(what_if_section(found)).split())
    assert "SIMULATED" in text
    assert f"Most useful work is won by {changes[1]}" in text


def test_the_interval_is_students_of_the_paired_differences():
    """t(0.95, 3 degrees) = 2.3534, from any table."""
    values = [1.0, 2.0, 3.0, 6.0]
    found = mean_interval(values, 0.9)
    half = 2.3534 * np.std(values, ddof=1) / 2.0
    assert (found.low, found.high) == pytest.approx((3.0 - half, 3.0 + half), rel=1e-4)


def hours(failed_attempts: int, lost: float = 5.0, out: float = 1.0) -> ClusterHours:
    return ClusterHours(100.0, lost, out, failed_attempts, 0)


def test_three_counts_that_differ_alike_are_no_certainty():
    """A spread of 0 over three seeds: by chance alone, counts of small numbers often agree."""
    base = [hours(3), hours(5), hours(4)]
    other = [hours(4, 5.5), hours(6, 6.0), hours(5, 5.2)]
    found = difference_interval(base, other, "failed_attempts", 0.9)
    assert (found.estimate, found.low, found.high) == (1.0, -math.inf, math.inf)
    none = difference_interval(base, other, "preemptions", 0.9)
    assert (none.estimate, none.low, none.high) == (0.0, -math.inf, math.inf)
    # nor is what no run changes: what it is about may not have happened in three seeds
    for runs, headline in (
        (base, "preemptions"),
        (base, "out_gpu_hours"),
        (other, "out_gpu_hours"),
    ):
        found = difference_interval(base, runs, headline, 0.9)
        assert (found.estimate, found.low, found.high) == (0.0, -math.inf, math.inf)
    lost = difference_interval(base, other, "lost_gpu_hours", 0.9)
    wanted = mean_interval([0.5, 1.0, 0.2], 0.9)
    assert (lost.low, lost.high) == pytest.approx((wanted.low, wanted.high))
    # equal but for rounding
    third = [replace(one, lost_gpu_hours=one.lost_gpu_hours + 0.1 + k * 1e-15)
             for k, one in enumerate(base)]  # fmt: skip
    assert math.isinf(difference_interval(base, third, "lost_gpu_hours", 0.9).high)
    text = " ".join(section_text(what_if_section(answer(base, other))).split())
    assert "1 (no interval)" in text
    assert "every seed differs by the same number" in text
    assert "No change is shown to win anything" in text


def test_a_change_of_what_did_not_happen_in_the_seeds_is_no_effect_of_0():
    """Two bursts a year: in ten seeds of one week there is none, in a hundred there are some."""
    made = tiny()
    bursts = (BurstProcess("filesystem", "cluster", 2.0, 1.0, 60.0),)
    found = what_if(replace(made, bursts=bursts), ["bursts.filesystem.hit_share=0"], range(1, 4))
    (one,) = found.interventions
    assert (one.won_gpu_hours.estimate, one.won_gpu_hours.high) == (0.0, math.inf)
    (warning,) = found.warnings
    assert "NOTHING DIFFERS in any of 3 seeds with bursts.filesystem.hit_share=0" in warning
    text = " ".join(section_text(what_if_section(found)).split())
    assert "0 (no interval)" in text
    assert "may not have happened in them" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lemons.share=0,lemons.share=0.5", "sets lemons.share twice"),
        ("jobs.8.mean_s=x2,jobs.8.mean_s=x2", "sets jobs.8.mean_s twice"),
        ("nosuch.x=1", "it has period, machines, scheduling"),
        ("quotas.user.most_gpus=3", "the scenario has none of them"),
    ],
)
def test_a_change_that_cannot_be_says_what_there_is(change: str, words: str):
    with pytest.raises(UsageError, match=re.escape(words)):
        changed_scenario(small(), change)


def answer(base: list[ClusterHours], other: list[ClusterHours]) -> WhatIf:
    ends = {
        name: difference_interval(base, other, headline, 0.9)
        for name, headline in (
            ("won_gpu_hours", "out_gpu_hours"),
            ("net_gpu_hours", "useful_gpu_hours"),
            ("first_wait_s", "first_wait_s"),
            ("highest_first_wait_s", "highest_first_wait_s"),
            ("largest_first_wait_s", "largest_first_wait_s"),
            ("useful_gpu_hours", "useful_gpu_hours"),
            ("failed_attempts", "failed_attempts"),
            ("preemptions", "preemptions"),
        )
    }
    one = Intervention("a.b=1", **ends, bought_gpu_hours=0.0)
    return WhatIf("small", 7.0, (1, 2, 3), 0.9, base[0], (one,), 3, 4, standing_of(small()))


def test_what_cannot_be_estimated_does_not_rank_as_shown(monkeypatch: pytest.MonkeyPatch):
    """One value moves a count by 1 in each of three seeds, the other by 2, 3 and 4."""
    counts = {3600: (3, 5, 4), 1800: (4, 6, 5), 5400: (3, 5, 4)}
    by_restart = {150: (5, 8, 8), 450: (3, 5, 4)}

    def faked(scenario: ClusterScenario, seed: int, replay: object) -> ClusterHours:
        rules = scenario.checkpoints
        found = by_restart.get(rules.restart_s) or counts[rules.interval_s]
        return hours(found[seed], lost=float(sum(found)) + seed)

    made = tiny()
    made = replace(made, checkpoints=replace(made.checkpoints, interval_s=3600, restart_s=300))
    monkeypatch.setattr(sensitivity_module, "hours_of", faked)
    patterns = ("checkpoints.interval_s", "checkpoints.restart_s")
    found = sensitivity_module.sensitivity(made, range(3), patterns=patterns)
    own = {one.value: one for one in found.effects if one.headline == "failed_attempts"}
    assert own["checkpoints.restart_s"].rank == 1
    assert own["checkpoints.interval_s"].shown_change == 0.0
    assert own["checkpoints.interval_s"].at_less.estimate == 1.0
    text = " ".join(section_text(sensitivity_section(found)).split())
    assert "1 (no interval)" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("period.days=14", "period says what is simulated"),
        ("period.start=2026-02-02", "period says what is simulated"),
        ("lemons.share=0,period.days=x2", "period says what is simulated"),
        ("machines.gpu_type=B200", "gpu_type is a name"),
        ("faults.gpu-memory.symptom=nvlink", "symptom is a name"),
        ("priorities.*.name=all", "name is a name"),
    ],
)
def test_what_is_no_intervention_is_not_compared(change: str, says: str):
    with pytest.raises(UsageError, match=says):
        what_if(tiny(), [change], range(3))


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
        ("lemons.share=many", "'many' is not a number"),
        ("lemons.share=2", "give a share from 0 to 1"),
        ("faults.rust.seen_chance=1", "it has gpu-memory, filesystem"),
        ("faults.seen_chance=1", "faults.WHICH.NAME=VALUE"),
        ("machines.nodes=19.7", "nodes is a whole number"),
        ("machines.nodes=nan", "'nan' is not a number"),
        ("machines.nodes=xinf", "nodes is a whole number"),
        ("lemons.factor=inf", "lemons.factor: inf"),
        ("jobs.8.share=0.2", "they sum to 0.2"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change: str, says: str):
    with pytest.raises(UsageError, match=says):
        changed_scenario(tiny(), change)
