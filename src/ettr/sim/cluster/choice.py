"""Which engine simulates a cluster: both give the same tables, byte for byte."""

from __future__ import annotations

from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.loop.cluster import LoopCluster
from ettr.sim.cluster.replay import DRAWN, Replay
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.compiled import engine_name

AnyCluster = SimulatedCluster | LoopCluster
MANY_JOBS = 100_000
"""From so many jobs on the compiled loop is quicker although it may have to be compiled first."""


def simulated_cluster(
    scenario: ClusterScenario, seed: int, file_id: str, replay: Replay = DRAWN
) -> AnyCluster:
    """One run of a scenario, by the engine that is quicker for it."""
    n_jobs = scenario.arrivals.jobs_per_day * scenario.period.days
    if n_jobs >= MANY_JOBS and engine_name() != "interpreted" and loop_can(scenario, replay):
        return LoopCluster(scenario, seed, file_id, replay)
    return SimulatedCluster(scenario, seed, file_id, replay)


def loop_can(scenario: ClusterScenario, replay: Replay = DRAWN) -> bool:
    """Whether the loop knows all that a scenario asks for."""
    others = (scenario.quotas, scenario.arrays, scenario.fair_share)
    loops = scenario.outcomes.crash_loop_share > 0
    return (
        not any(others)
        and not any(job.series for job in scenario.jobs)
        and replay.jobs is None  # none at all are replayed, too
        and not loops
        and scenario.scheduling.waiting in ("easy-backfill", "in-order")
        and scenario.scheduling.preemption in ("newest-first", "none")
    )
