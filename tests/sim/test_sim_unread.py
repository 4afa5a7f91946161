"""Values of a scenario that nothing of it reads: a change of them is refused, not found to be 0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from cluster_scenarios import fault, one_size, small
from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ASKED, ClusterScenario, parts_of
from ettr.sim.cluster.scenario_parts import (
    AccountShares,
    ArrayClass,
    BurstProcess,
    FairShare,
    JobClass,
    Priority,
    Quota,
    RateChange,
)
from ettr.sim.cluster.unread import is_simulated_alike, refuse_no_effect
from ettr.sim.cluster.whatif import changed_scenario, hours_of, what_if

Change = Callable[[float], float]
NO_ALARMS = {"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0}
BURST = BurstProcess("filesystem", "cluster", 300.0, 0.5, 60.0)


def made(**parts: Mapping[str, object] | tuple[object, ...]) -> ClusterScenario:
    """Ten nodes for two days with two kinds of faults and jobs of half a node and of two."""
    usual: dict[str, Mapping[str, object] | tuple[object, ...]] = {
        "period": {"days": 2.0},
        "machines": {"nodes": 10},
        "lemons": {"share": 0.2},
        "arrivals": {"jobs_per_day": 60.0},
        "jobs": (JobClass(4, 0.5, 9000.0, 0.0), JobClass(16, 0.5, 9000.0, 0.0)),
        "faults": (fault("gpu-memory", 500.0), fault("filesystem", 100.0)),
        "bursts": (),
    }
    return small(**(usual | parts))


def never(**parts: object) -> ClusterScenario:
    """The same where no fault comes by itself, and no false alarm."""
    calm = {"faults": (fault("gpu-memory", 0.0), fault("filesystem", 0.0)), "checks": NO_ALARMS}
    return made(**(calm | parts))


ALIKE = (Priority("normal", 1, 0.5, 0.5), Priority("low", 1, 0.5, 0.5))
SHARES = FairShare(86_400.0, 600, 86_400.0, 0.0, 0.0, 100.0, 100.0)
SWITCHED_OFF = {
    "no own faults": never(),
    "bursts alone": never(
        bursts=(BURST, replace(BURST, symptom="gpu-memory", per_year=0.0)),
        rate_changes=(RateChange("filesystem", 1.0, 3.0),),
    ),
    "no hit": never(bursts=(replace(BURST, hit_share=0.0),)),
    "late faults": made(
        faults=(fault("gpu-memory", 500.0, from_day=2.0), fault("filesystem", 90.0, to_day=9.0)),
        rate_changes=(RateChange("gpu-memory", 0.0, 0.0), RateChange("filesystem", 2.0, 5.0)),
    ),
    "no hazard left": made(
        faults=(fault("filesystem", 500.0),), rate_changes=(RateChange("filesystem", 0.0, 0.0),)
    ),
    "lemons as others": made(lemons={"share": 0.5, "factor": 1.0}),
    "silent nodes": made(faults=(fault("gpu-memory", 500.0, node_down_chance=1.0,
                                       crash_chance=0.0),)),
    "unseen faults": made(faults=(fault("gpu-memory", 500.0, seen_chance=0.0),)),
    "no jobs": made(arrivals={"jobs_per_day": 0.0}),
    "one level": made(priorities=ALIKE, scheduling={"waiting": "in-order"}),
    "level of all jobs": made(jobs=(JobClass(4, 1.0, 9000.0, 0.0, priority="low"),)),
    "parts of nodes": made(jobs=(*one_size(4, 9000.0), JobClass(16, 0.0, 9000.0, 0.0))),
    "whole nodes": made(jobs=one_size(8, 9000.0), arrivals={"day_amplitude": 0.0}),
    "nothing interrupts": never(priorities=ALIKE),
    "no requeues": never(
        priorities=ALIKE, scheduling={"most_requeues": 0},
        jobs=(JobClass(16, 1.0, 9000.0, 0.0, requeued_share=0.2),),
    ),
    "no failures": made(outcomes={"failed_share": 0.0, "impatient_share": 0.0}),
    "loose quotas": made(quotas=(Quota("qos", "*", 300),)),
    "quotas of users": made(quotas=(Quota("user", "*", 16),)),
    "no weight": replace(made(), fair_share=SHARES, accounts=(AccountShares("team1", 5.0),)),
    "one account": replace(
        made(users={"accounts": 1}), accounts=(AccountShares("team1", 5.0),),
        fair_share=replace(SHARES, fair_share_weight=1000.0, age_weight=10.0),
    ),
    "arrays of none": made(arrays=(ArrayClass(4, 0.0, 9.0, 2), ArrayClass(16, 0.5, 1.0, 2))),
}  # fmt: skip


def with_unread_changed(scenario: ClusterScenario, change: Change) -> list[ClusterScenario]:
    """The scenario with all its unread numbers changed, as many at once as are unread together."""
    found: list[ClusterScenario] = []
    seen: dict[str, int] = {}
    for group, part in parts_of(scenario):
        at = seen[group] = seen.get(group, -1) + 1
        for one in fields(part):
            now = getattr(part, one.name)
            if group in ASKED or isinstance(now, str) or math.isinf(now):
                continue
            value = round(change(now)) if isinstance(now, int) else change(now)
            alone = changed_number(scenario, group, at, one.name, value)
            if alone is None or not is_simulated_alike(scenario, alone) or alone == scenario:
                continue
            for k, several in enumerate(found):
                more = changed_number(several, group, at, one.name, value)
                if more is not None and is_simulated_alike(scenario, more):
                    found[k] = more
                    break
            else:
                found.append(alone)
    return found


def changed_number(
    scenario: ClusterScenario, group: str, at: int, name: str, value: float
) -> ClusterScenario | None:
    """With another number in the part at that place of a group; None where it cannot be."""
    whole = getattr(scenario, group)
    try:
        if not isinstance(whole, tuple):
            return replace(scenario, **{group: replace(whole, **{name: value})})
        changed = replace(whole[at], **{name: value})
        return replace(scenario, **{group: (*whole[:at], changed, *whole[at + 1 :])})
    except UsageError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_what_is_said_to_be_unread_changes_no_run(name: str):
    """Every number of each scenario is halved, and one more: the run is the same to a digit."""
    scenario = SWITCHED_OFF[name]
    own = hours_of(scenario, 1)
    for change in (lambda now: now * 0.5, lambda now: now + 1):
        several = with_unread_changed(scenario, change)
        assert several
        for one in several:
            assert hours_of(one, 1) == own


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("no own faults", "lemons.share=0.5", "no fault comes by itself"),
        ("no own faults", "lemons.factor=9", "no fault comes by itself"),
        ("no own faults", "checks.interval_s=60", "no fault comes, and no false alarm"),
        ("no own faults", "checks.wrong_node_chance=1", "no fault comes"),
        ("no own faults", "checkpoints.resubmit_chance=1", "no fault ends a job as FAILED"),
        ("no own faults", "machines.nodes_per_rack=4", "no burst is of a rack or a pod"),
        ("bursts alone", "lemons.factor=9", "no fault comes by itself"),
        ("bursts alone", "rate_changes.filesystem.factor=9", "filesystem has a rate of 0"),
        ("bursts alone", "rate_changes.filesystem.from_day=0", "filesystem has a rate of 0"),
        ("bursts alone", "bursts.gpu-memory.spread_s=9",
         "per_year of these bursts of gpu-memory is 0"),
        ("no hit", "bursts.*.per_year=9", "hit_share of these bursts of filesystem is 0"),
        ("late faults", "faults.gpu-memory.repair_mean_s=x9", "gpu-memory comes on no day and"),
        ("late faults", "rate_changes.gpu-memory.factor=9",
         "gpu-memory comes on no day by itself"),
        ("late faults", "rate_changes.filesystem.factor=9", "it holds after the last day only"),
        ("no hazard left", "faults.filesystem.per_1000_node_days=9", "filesystem comes on no day"),
        ("lemons as others", "lemons.share=1", "lemons fail as often as other nodes"),
        ("silent nodes", "faults.*.seen_chance=0.5", "each fault of gpu-memory stops its node"),
        ("silent nodes", "faults.*.severity=low", "each fault of gpu-memory stops its node"),
        ("unseen faults", "faults.*.crash_chance=1", "no log shows a fault of gpu-memory"),
        ("unseen faults", "faults.*.repair_mean_s=9", "no fault of gpu-memory is found"),
        ("no jobs", "checkpoints.interval_s=60", "no jobs come"),
        ("no jobs", "jobs.16.mean_s=60", "no jobs come"),
        ("no jobs", "scheduling.backfill_depth=2", "no jobs come"),
        ("no jobs", "arrivals.weekend_factor=2", "no jobs come"),
        ("one level", "scheduling.preempt_after_s=0", "the jobs have one level of priority"),
        ("one level", "scheduling.preemption=none", "the jobs have one level of priority"),
        ("one level", "scheduling.backfill_depth=2", "nobody overtakes"),
        ("one level", "priorities.normal.share_of_gangs=0.1,priorities.low.share_of_gangs=0.9",
         "all have one level, and no quota is of one of them"),
        ("level of all jobs", "scheduling.preemption=none", "the jobs have one level of priority"),
        ("parts of nodes", "checkpoints.restart_s=9", "no job has whole nodes"),
        ("parts of nodes", "checks.wrong_node_chance=1", "no job has several nodes"),
        ("parts of nodes", "jobs.16.mean_s=60",
         "no job is of a class of 16 GPUs with a share of 0"),
        ("whole nodes", "arrivals.peak_hour=3", "all hours are alike"),
        ("whole nodes", "users.users=2", "no quota is of a user or an account"),
        ("nothing interrupts", "checkpoints.interval_s=60",
         "nothing interrupts a job, and a write costs nothing"),
        ("nothing interrupts", "scheduling.requeue_delay_s=60", "nothing interrupts a job"),
        ("no requeues", "jobs.16.requeued_share=1", "no job is requeued"),
        ("no failures", "outcomes.crash_loop_share=0.5,outcomes.mean_crash_loop_tries=3,"
         "outcomes.mean_crash_loop_s=60", "no job fails by its own fault"),
        ("no weight", "fair_share.half_life_s=60", "fair_share_weight is 0"),
        ("no weight", "fair_share.longest_age_s=60", "age_weight is 0"),
        ("one account", "accounts.team1.shares=9", "there is one account"),
        ("arrays of none", "arrays.4.mean_tasks=2", "no submission is an array"),
        ("arrays of none", "arrays.16.most_running=1", "each array has one task"),
    ],
)  # fmt: skip
def test_a_change_of_what_is_switched_off_is_refused(name: str, change: str, why: str):
    """Its difference of exactly 0 would read as a finding."""
    says = re.escape(f"{change.partition('=')[0]} is not read where {why}")
    with pytest.raises(UsageError, match=f"changes nothing that is simulated: {says}"):
        what_if(SWITCHED_OFF[name], [change], range(3))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("loose quotas", "quotas.qos.most_gpus=x2", "300 and 600 are no limit of a cluster of 80"),
        ("late faults", "faults.filesystem.to_day=3", "9 and 3 are both after the last of 2 days"),
        ("late faults", "rate_changes.filesystem.from_day=3", "2 and 3 are both after the last"),
        ("lemons as others", "priorities.high.level=99", "30 and 99 leave the order of the levels"),
    ],
)
def test_values_that_come_to_the_same_are_refused(name: str, change: str, says: str):
    says = f"{re.escape(change.partition('=')[0])}: {says}"
    with pytest.raises(UsageError, match=f"changes nothing that is simulated: {says}"):
        what_if(SWITCHED_OFF[name], [change], range(3))


def test_how_long_a_job_is_safe_from_preemption_is_not_asked_where_there_is_none():
    """It moves passes over the queue, so that runs differ by chance alone."""
    scenario = made(scheduling={"preemption": "none"})
    says = "scheduling.preempt_after_s is not read where nobody is preempted"
    with pytest.raises(UsageError, match=says):
        what_if(scenario, ["scheduling.preempt_after_s=60"], range(3))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("no own faults", "lemons.factor=9,faults.filesystem.per_1000_node_days=5"),
        ("bursts alone", "checkpoints.resubmit_chance=1"),
        ("bursts alone", "bursts.gpu-memory.per_year=50"),
        ("late faults", "faults.gpu-memory.from_day=1,rate_changes.gpu-memory.factor=1"),
        ("no hazard left", "rate_changes.filesystem.from_day=1"),
        ("lemons as others", "lemons.factor=2"),
        ("silent nodes", "faults.*.node_down_chance=0.5"),
        ("no jobs", "arrivals.jobs_per_day=9"),
        ("one level", "priorities.low.level=0"),
        ("parts of nodes", "jobs.4.share=0.5,jobs.16.share=0.5"),
        ("whole nodes", "arrivals.day_amplitude=0.5"),
        ("nothing interrupts", "checkpoints.write_s=9"),
        ("no requeues", "scheduling.most_requeues=1"),
        ("loose quotas", "quotas.qos.most_gpus=79"),
        ("quotas of users", "users.users=2"),
    ],
)
def test_what_switches_it_on_is_simulated(name: str, change: str):
    scenario = SWITCHED_OFF[name]
    refuse_no_effect(scenario, change, changed_scenario(scenario, change))
