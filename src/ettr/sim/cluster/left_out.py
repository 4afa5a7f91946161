"""What a simulation leaves out, and what makes an answer look better: each answer says it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ettr.sim.cluster.replay import DRAWN, Replay
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.units import SECONDS_PER_DAY

WRONG_BLAME, WRITES = "blame on the wrong node", "checkpoint stalls"
"""Simulated where the scenario gives a chance of it, and where it gives the time of a write."""
NOT_SIMULATED = (
    *("placement by switch", "network contention", WRITES, "progress records"),
    *(WRONG_BLAME, "users who react to failures"),
)


def not_simulated(scenario: ClusterScenario) -> tuple[str, ...]:
    """What a scenario leaves out."""
    has = {
        WRONG_BLAME: scenario.checks.wrong_node_chance > 0,
        WRITES: scenario.checkpoints.write_s > 0,
    }
    return tuple(one for one in NOT_SIMULATED if not has.get(one))


def not_simulated_lines(left_out: Sequence[str]) -> tuple[str, ...]:
    """The same for a reader, as a sentence or none."""
    return (f"Not simulated: {', '.join(left_out)}.",) if left_out else ()


def free_writes(
    scenario: ClusterScenario, changed: Sequence[tuple[str, ClusterScenario]]
) -> tuple[str, ...]:
    """A warning where checkpoints come more or less often, and cost nothing.

    Args:
        scenario: As it is.
        changed: Changes, and the scenario with each.
    """
    free = [
        change
        for change, other in changed
        if other.checkpoints.interval_s != scenario.checkpoints.interval_s
        and not other.checkpoints.write_s
    ]
    if not free:
        return ()
    return (
        f"CHECKPOINTS COST NOTHING in {', '.join(free)}: checkpoints.write_s is 0, so that a "
        "shorter interval always wins; give the time that a write holds up a job, such as "
        "checkpoints.write_s=10.",
    )


def overfull_series(
    scenarios: Sequence[ClusterScenario], replay: Replay = DRAWN
) -> tuple[str, ...]:
    """A warning for each series whose runs take more time than there is, so that most never come.

    Runs come one at a time: by their mean lengths alone, without waits and restarts, more than a
    day of them is submitted each day.

    Args:
        scenarios: As it is, and with each change.
        replay: Replayed jobs come when their log says, one after another or not.
    """
    if replay.jobs is not None:
        return ()
    found: dict[str, float] = {}
    for scenario in scenarios:
        busy: dict[str, float] = defaultdict(float)
        for job in scenario.jobs:
            if job.series:
                per_day = scenario.arrivals.jobs_per_day * job.share
                busy[job.series] += per_day * job.mean_s / SECONDS_PER_DAY
        for name, days in busy.items():
            found[name] = max(found.get(name, 0.0), days)
    return tuple(
        f"THE SERIES {name} FALLS BEHIND: each day {days:.3g} days of its runs are to come, one "
        "after another, so that many are never submitted and their GPU-hours are missing; give "
        "fewer or shorter runs, or more than one series."
        for name, days in found.items()
        if days >= 1.0
    )
