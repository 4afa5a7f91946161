"""Changes of values that a replay decides: none is answered by a difference of 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from cluster_scenarios import fault, small
from ettr.errors import UsageError
from ettr.report.section import section_text
from ettr.report.sections.what_if import sensitivity_section
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.scenario import ClusterScenario, owners_of
from ettr.sim.cluster.scenario_parts import (
    ArrayClass,
    BurstProcess,
    NodeCheck,
    Priority,
    Quota,
    RateChange,
)
from ettr.sim.cluster.whatif import changed_scenario, sensitivity, varied_values, what_if
from ettr.sim.cluster.workload import BY_FAULTS, BY_JOBS, DRAWN, Replay, ReplayedFault, ReplayedJob


def site() -> ClusterScenario:
    """Ten busy nodes for two days on which everything that can be drawn happens."""
    return small(
        period={"days": 2.0},
        machines={"nodes": 10, "nodes_per_rack": 2, "racks_per_pod": 2},
        arrivals={"jobs_per_day": 60.0, "day_amplitude": 0.3, "weekend_factor": 0.8},
        jobs=tuple(
            replace(one, share=share, mean_s=15_000.0)
            for one, share in zip(
                [one for one in small().jobs if one.gpus <= 32], (0.4, 0.3, 0.2, 0.1), strict=False
            )
        ),
        priorities=(Priority("high", 2, 0.3, 0.3), Priority("normal", 1, 0.7, 0.7)),
        outcomes={
            "out_of_memory_share": 0.1,
            "timeout_share": 0.1,
            "impatient_share": 0.4,
            "mean_patience_s": 600.0,
        },
        arrays=(ArrayClass(1, 0.2, 4.0, 2),),
        quotas=(Quota("account", "*", 64),),
        faults=tuple(
            fault(symptom, 300.0, law="weibull", form=0.7, as_new_share=0.5, **more)
            for symptom, more in {
                "gpu-memory": {"latent_s": 3600.0},
                "node-hardware": {"node_down_chance": 0.5},
                "nvlink": {},
            }.items()
        ),
        bursts=(BurstProcess("nvlink", "rack", 300.0, 0.5, 600.0),),
        rate_changes=(RateChange("gpu-memory", 1.0, 2.0),),
        checks={
            "false_high_per_node_day": 0.2,
            "false_low_per_node_day": 0.2,
            "policy": "before-each-job",
        },
        node_checks=(NodeCheck("diag", 600.0, "gpu-memory:0.5", 0.1),),
        lemons={"share": 0.2, "factor": 5.0},
    )


def faults() -> tuple[ReplayedFault, ...]:
    """Of two of the three symptoms; repairs of one are all known, of the other half."""
    return tuple(
        ReplayedFault(
            4000 * k, k % 10, ("gpu-memory", "node-hardware")[k % 2],
            None if k % 4 == 1 else 5000,
        )
        for k in range(1, 40)
    )  # fmt: skip


def jobs() -> tuple[ReplayedJob, ...]:
    return tuple(
        ReplayedJob(
            str(k), "train", 1000 * k, 1000 * k, (1, 8, 16)[k % 3], 9000, 40_000, 0, k % 3, k % 2,
            k % 2,
        )
        for k in range(1, 120)
    )  # fmt: skip


FAULTS = Replay(faults=faults())
JOBS = Replay(jobs=jobs(), owners=owners_of(site()))


def together(base: Any, others: Sequence[Any]) -> Any:
    """The dataclass with each value as the last of the others has it that changes it."""
    changed = {}
    for one in fields(base):
        own = getattr(base, one.name)
        others_own = [new for other in others if (new := getattr(other, one.name)) != own]
        if others_own and is_dataclass(own):
            changed[one.name] = together(own, others_own)
        elif others_own and isinstance(own, tuple):
            places = zip(own, *others_own, strict=True)
            changed[one.name] = tuple(together(part, news) for part, *news in places)
        elif others_own:
            changed[one.name] = others_own[-1]
    return replace(base, **changed)


def rows_of(scenario: ClusterScenario, replay: Replay) -> object:
    run = SimulatedCluster(scenario, 3, "x", replay)
    for _ in run.play():
        pass
    tables = run.log.batch().tables
    logged = {name: tables[name].to_pylist() for name in tables if name != "nodes"}
    return logged, run.truth()["hours"].to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(("replay", "table"), [(FAULTS, BY_FAULTS), (JOBS, BY_JOBS)])
def test_what_the_table_names_changes_no_row_and_does_where_it_is_drawn(
    replay: Replay, table: dict[str, tuple[str, ...]]
):
    scenario = site()
    own, drawn = rows_of(scenario, replay), rows_of(scenario, DRAWN)
    told = {line.split(": ")[0] for line in varied_values(scenario, replay=replay)[1]}
    decided = [
        one
        for one in varied_values(scenario)[0]
        if one.name in told and not one.name.startswith("faults.nvlink.repair")
    ]
    assert {one.name.partition(".")[0].partition("[")[0] for one in decided} == set(table)
    for sides in zip(*(one.sides for one in decided), strict=True):
        several = together(scenario, [side[1] for side in sides if side is not None])
        assert rows_of(several, DRAWN) != drawn
        assert rows_of(several, replay) == own
    moves = {
        one.name
        for one in decided
        if any(side is not None and rows_of(side[1], DRAWN) != drawn for side in one.sides)
    }
    # what moves nothing in two days of ten drawn nodes either: the longest limit is beyond them
    still = {one.name for one in decided} - moves
    assert still <= {"scheduling.longest_job_s"}, still


@pytest.mark.slow
def test_what_the_table_does_not_name_still_changes_a_replay():
    both = Replay(jobs(), owners_of(site()), faults())
    own = rows_of(site(), both)
    for change in (
        "faults.node-hardware.repair_mean_s=x0.1",
        "faults.node-hardware.repair_sigma=0",
        "faults.gpu-memory.crash_chance=1",
        "faults.gpu-memory.severity=low",
        "faults.gpu-memory.seen_chance=0",
        "faults.node-hardware.node_down_chance=0",
        "checks.heartbeat_s=3000",
        "checks.interval_s=x3",
        "checks.wrong_node_chance=1",
        "checkpoints.interval_s=60",
        "checkpoints.resubmit_chance=1",
        "scheduling.most_requeues=0",
        "scheduling.preemption=none",
        "priorities.normal.level=3",
        "machines.nodes=12",
    ):
        what_if(replace(site(), period=replace(site().period, days=0.02)), [change], range(3),
                replay=both)  # fmt: skip
        assert rows_of(changed_scenario(site(), change), both) != own, change


@pytest.mark.parametrize(
    ("replay", "change", "says"),
    [
        (FAULTS, "lemons.share=0", "lemons.share=0 changes nothing, since the replayed faults"),
        (FAULTS, "bursts.*.per_year=0", "the replayed faults decide it"),
        (FAULTS, "faults.*.per_1000_node_days=x10", "the replayed faults decide it"),
        (FAULTS, "checks.false_high_per_node_day=5", "the replayed faults decide it"),
        (FAULTS, "machines.nodes_per_rack=8", "the replayed faults decide it"),
        (FAULTS, "faults.gpu-memory.repair_mean_s=x0.1", "the replayed faults have their repairs"),
        (FAULTS, "faults.nvlink.crash_chance=1", "no fault of that symptom is replayed"),
        (FAULTS, "machines.nodes=5", "faults of 10 nodes are replayed"),
        (JOBS, "arrivals.jobs_per_day=x2", "the replayed jobs decide it"),
        (JOBS, "jobs.*.mean_s=x0.5", "the replayed jobs decide it"),
        (JOBS, "outcomes.failed_share=0", "without --jobs-from or --faults-from"),
        (JOBS, "scheduling.longest_job_s=86400", "the replayed jobs decide it"),
        (JOBS, "users.users=2", "the replayed jobs decide it"),
        (JOBS, "checkpoints.interval_s=60,outcomes.failed_share=0", "outcomes.failed_share=0 cha"),
        (
            JOBS,
            "machines.gpus_per_node=12,jobs.*.gpus=12,arrays.*.gpus=12",
            "replayed jobs ask for 16 GPUs",
        ),
    ],
)
def test_a_change_of_what_is_replayed_is_refused(replay: Replay, change: str, says: str):
    with pytest.raises(UsageError, match=says):
        what_if(site(), [change], range(3), replay=replay)
    short = replace(site(), period=replace(site().period, days=0.02))
    if "gpus_per_node" not in change:
        assert what_if(short, [change], range(3)).interventions[0].change == change


@pytest.mark.slow
def test_a_change_of_some_repairs_says_how_many_it_leaves():
    found = what_if(site(), ["faults.*.repair_mean_s=x0.1"], range(3), replay=FAULTS)
    assert found.interventions[0].won_gpu_hours.estimate > 0
    assert found.replayed == (
        "faults.*.repair_mean_s=x0.1 changes 10 repairs that no log shows; the other 29 are those "
        "that happened.",
    )
    assert what_if(site(), ["checks.interval_s=600"], range(3), replay=FAULTS).replayed == ()


@pytest.mark.slow
def test_sensitivity_names_what_a_replay_decides_as_not_varied():
    found = sensitivity(
        site(), range(3), patterns=("lemons.*", "checkpoints.restart_s"), replay=FAULTS
    )
    assert found.not_varied == (
        "lemons.share: the replayed faults decide it",
        "lemons.factor: the replayed faults decide it",
    )
    assert {one.value for one in found.effects} == {"checkpoints.restart_s"}
    text = " ".join(section_text(sensitivity_section(found)).split())
    assert "Not varied (the replayed faults decide it): lemons.share, lemons.factor." in text
    with pytest.raises(UsageError, match=r"lemons\.share: the replayed faults decide it"):
        sensitivity(site(), range(3), patterns=("lemons.*",), replay=FAULTS)


def test_nobody_is_called_a_lemon_where_faults_are_replayed():
    run = SimulatedCluster(site(), 3, "x", FAULTS)
    assert run.truth()["nodes"]["is_lemon"].to_pylist() == [False] * 10
