"""The compiled loop over arrays gives the tables of the engine with a queue of objects."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cluster_scenarios import fault, one_size
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import AnyCluster, LoopCluster, loop_can, simulated_cluster
from ettr.sim.cluster.scenario import ClusterScenario, owners_of, scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import ArrayClass, BurstProcess, FairShare, Quota, RateChange
from ettr.sim.cluster.workload import DRAWN, Replay, ReplayedFault, ReplayedJob

pytest.importorskip("numba")
pytestmark = pytest.mark.slow  # what is not kept yet is compiled first, for half a minute

Change = Callable[[ClusterScenario], ClusterScenario]


def small(days: float = 3.0) -> ClusterScenario:
    scenario = scenario_of(*scenario_text("small"))
    return replace(scenario, period=replace(scenario.period, days=days))


def tables_of(run: AnyCluster) -> dict[str, pa.Table]:
    """All batches of all tables one after the other, and the truth."""
    parts: dict[str, list[pa.Table]] = {}
    for batch in batches(run.log, run.play()):
        for name, table in batch.tables.items():
            parts.setdefault(name, []).append(table)
    logged = {name: pa.concat_tables(tables) for name, tables in parts.items()}
    return logged | {f"truth {name}": table for name, table in run.truth().items()}


def with_jobs(scenario: ClusterScenario, gpus: int, mean_s: float, per_day: float):
    arrivals = replace(scenario.arrivals, jobs_per_day=per_day)
    return replace(scenario, jobs=one_size(gpus, mean_s, "exponential"), arrivals=arrivals)


def with_rules(**rules: object) -> Change:
    def change(scenario: ClusterScenario) -> ClusterScenario:
        return replace(scenario, scheduling=replace(scenario.scheduling, **rules))

    return change


def one_gpu_nodes(scenario: ClusterScenario) -> ClusterScenario:
    machines = replace(scenario.machines, gpus_per_node=1)
    per_node = scenario.machines.gpus_per_node
    jobs = tuple(replace(one, gpus=max(1, one.gpus // per_node)) for one in scenario.jobs)
    return replace(scenario, machines=machines, jobs=jobs)


def broken(scenario: ClusterScenario) -> ClusterScenario:
    """Faults every few hours, of all effects, with alarms, lemons and bursts of a rack."""
    faults = (
        fault("gpu-memory", 400.0, node_down_chance=0.3, crash_chance=0.4),
        fault("infiniband", 300.0, node_down_chance=0.5, seen_chance=0.5),
    )
    checks = replace(scenario.checks, false_high_per_node_day=0.05, false_low_per_node_day=0.1)
    bursts = (BurstProcess("infiniband", "rack", 60.0, 0.8, 600.0),)
    lemons = replace(scenario.lemons, share=0.2, factor=5.0)
    return replace(scenario, faults=faults, checks=checks, bursts=bursts, lemons=lemons)


def blamed_wrongly(scenario: ClusterScenario) -> ClusterScenario:
    """The same, and many jobs of several nodes of which another node is blamed."""
    made = with_jobs(broken(scenario), 32, 9000.0, 150.0)
    return replace(made, checks=replace(made.checks, wrong_node_chance=0.6))


def with_requeues(share: float) -> Change:
    def change(scenario: ClusterScenario) -> ClusterScenario:
        jobs = tuple(replace(one, requeued_share=share) for one in scenario.jobs)
        return replace(broken(scenario), jobs=jobs)

    return change


def with_writes(interval_s: int, write_s: int) -> Change:
    def change(scenario: ClusterScenario) -> ClusterScenario:
        made = with_requeues(0.2)(scenario)
        rules = replace(made.checkpoints, interval_s=interval_s, write_s=write_s)
        return replace(made, checkpoints=rules)

    return change


CHANGES: dict[str, Change] = {
    "as it is": lambda one: one,
    "in order": with_rules(waiting="in-order"),
    "no preemption": with_rules(preemption="none"),
    "preempted at once, a pass at every event": with_rules(preempt_after_s=0, pass_interval_s=0),
    "never requeued": with_rules(most_requeues=0),
    "backfill looks at three jobs": with_rules(backfill_depth=3),
    "many faults": broken,
    "blame on the wrong node": blamed_wrongly,
    "jobs put back by their owners": with_requeues(0.3),
    "writes of ten seconds": with_writes(600, 10),
    "writes that take longer than the work between them": with_writes(7, 11),
    "hazards that change": lambda one: replace(
        broken(one), rate_changes=(RateChange("infiniband", 1.0, 4.0),)
    ),
    "one GPU a node": one_gpu_nodes,
    "a queue that grows": lambda one: with_jobs(one, 8, 20_000.0, 3000.0),
    "small jobs only": lambda one: with_jobs(one, 1, 3000.0, 4000.0),
    "gangs that preempt each other": lambda one: with_rules(preempt_after_s=600)(
        with_jobs(one, 64, 9000.0, 300.0)
    ),
    "a fraction of a day": lambda one: replace(one, period=replace(one.period, days=0.37)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(("seed", "days"), [(1, 3.0), (2, 1.0)])
def test_tables_are_those_of_the_engine_of_objects(name: str, seed: int, days: float) -> None:
    scenario = CHANGES[name](small(days))
    expected = SimulatedCluster(scenario, seed, "x")
    found = LoopCluster(scenario, seed, "x", DRAWN)
    of_objects, of_loop = tables_of(expected), tables_of(found)
    assert of_loop.keys() == of_objects.keys()
    states = of_objects["attempts"]["state"].to_pylist()
    assert ("REQUEUED" in states) == any(one.requeued_share for one in scenario.jobs)
    if scenario.checks.wrong_node_chance:
        n_wrong = len(of_objects["truth faults"]["blamed"].drop_null())
        assert n_wrong > 5
    differ = [table for table in of_objects if not of_loop[table].equals(of_objects[table])]
    assert differ == []
    assert found.tally == expected.tally


def test_replayed_faults_strike_alike() -> None:
    faults = tuple(ReplayedFault(3600 * k, k % 16, "gpu-memory", 7200) for k in range(1, 60))
    replay = Replay(faults=faults)
    scenario = broken(small())
    expected = tables_of(SimulatedCluster(scenario, 1, "x", replay))
    found = tables_of(LoopCluster(scenario, 1, "x", replay))
    assert [name for name in expected if not found[name].equals(expected[name])] == []


def test_arrays_that_are_too_short_are_made_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = CHANGES["a queue that grows"](small(1.0))
    expected = tables_of(SimulatedCluster(scenario, 1, "x"))
    monkeypatch.setattr("ettr.sim.cluster.play.SLOTS", 80)
    monkeypatch.setattr("ettr.sim.cluster.play.ROWS", 90)
    found = tables_of(LoopCluster(scenario, 1, "x", DRAWN))
    assert [name for name in expected if not found[name].equals(expected[name])] == []


def test_the_truth_is_whole_though_the_last_rows_were_not_handed_out() -> None:
    scenario = broken(small())
    run = LoopCluster(scenario, 1, "x", DRAWN)
    for _ in run.play():
        pass
    expected = tables_of(SimulatedCluster(scenario, 1, "x"))
    assert run.truth()["attempts"].equals(expected["truth attempts"])


def digests() -> list[str]:
    """Each table of a run of the loop, as a line."""
    tables = tables_of(LoopCluster(broken(small(0.25)), 1, "x", DRAWN))
    return [
        f"{name} {hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest()}"
        for name, table in sorted(tables.items())
    ]


def test_interpreted_gives_what_compiled_gives() -> None:
    """A compiler that turns a loop into another one would not be seen otherwise."""
    here = Path(__file__).parent
    paths = os.pathsep.join((str(here), str(here.parent), *sys.path))
    interpreted = subprocess.run(
        [sys.executable, "-c", "import test_sim_loop as it; print(*it.digests(), sep='\\n')"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    assert len(interpreted) > 8
    assert interpreted == digests()


def test_many_jobs_run_in_the_loop_and_what_it_does_not_know_does_not() -> None:
    large = scenario_of(*scenario_text("rsc-1-like"))
    assert isinstance(simulated_cluster(large, 1, "x"), LoopCluster)
    assert isinstance(simulated_cluster(small(), 1, "x"), SimulatedCluster)
    other = with_rules(waiting="conservative-backfill")(large)
    assert not loop_can(other)
    assert isinstance(simulated_cluster(other, 1, "x"), SimulatedCluster)


ONE_JOB = ReplayedJob("1", "train", 100, 100, 8, 700, 3600, 0, 0, 0, 0)
FAIR = FairShare(604_800, 300, 604_800, 10_000, 1000, 0, 2000)


@pytest.mark.parametrize(
    ("parts", "jobs"),
    [
        ({"quotas": (Quota("user", "*", 64),)}, None),
        ({"arrays": (ArrayClass(1, 0.05, 20.0, 4),)}, None),
        ({"fair_share": FAIR}, None),
        ({"outcomes": {"crash_loop_share": 0.05, "mean_crash_loop_tries": 6.0,
                       "mean_crash_loop_s": 600.0}}, None),
        ({"scheduling": {"waiting": "conservative-backfill"}}, None),
        ({"scheduling": {"waiting": "slurm-backfill"}}, None),
        ({}, (ONE_JOB,)),
        ({}, ()),
    ],
)  # fmt: skip
def test_what_the_loop_lacks_is_never_left_out(parts: dict[str, object], jobs: object) -> None:
    """Each runs with objects, however many jobs a scenario has."""
    large = scenario_of(*scenario_text("rsc-1-like"))
    assert loop_can(large)
    changes = {
        name: replace(getattr(large, name), **part) if isinstance(part, dict) else part
        for name, part in parts.items()
    }
    other = replace(large, **changes)
    replay = Replay(jobs=jobs, owners=owners_of(large)) if jobs is not None else DRAWN
    assert isinstance(simulated_cluster(other, 1, "x", replay), SimulatedCluster)
