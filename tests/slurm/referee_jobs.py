"""The referee's cluster, its jobs, and the rules by which the simulator schedules them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ettr.sim.cluster.scenario_parts import Scheduling

NODES = tuple(f"node{i}" for i in range(1, 9))
GPUS_PER_NODE = 8
LEVELS = {"scavenger": 0, "normal": 1, "high": 2}
PASS_INTERVAL_S = 30
GRACE_S = 120
REQUEUE_DELAY_S = 10
RULES = Scheduling(
    waiting="easy-backfill",
    preemption="newest-first",
    pass_interval_s=PASS_INTERVAL_S,
    backfill_depth=1000,
    preempt_after_s=GRACE_S,
    longest_job_s=86400,
    requeue_delay_s=REQUEUE_DELAY_S,
    most_requeues=50,
)


@dataclass(frozen=True)
class PlannedJob:
    """A job to submit; it would run for `length_s` and end with `exit_code`."""

    at_s: float
    gpus: int
    length_s: int
    limit_s: int
    qos: str
    exit_code: int
    patience_s: int | None


def planned(n: int, seed: int) -> tuple[PlannedJob, ...]:
    """Jobs of one GPU to half the cluster, somewhat more than it can run at once."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(32.0, n))
    jobs = []
    for i in range(n):
        gpus = int(rng.choice([1, 2, 4, 8, 16, 32], p=[0.2, 0.15, 0.15, 0.25, 0.15, 0.1]))
        length_s = max(20, int(rng.lognormal(5.3, 0.8)))
        is_late = rng.random() < 0.05
        limit_s = 60 * int(np.ceil((0.6 if is_late else rng.uniform(1.1, 3.0)) * length_s / 60))
        # a start takes the batch script some seconds of the fast clock
        limit_s = limit_s if is_late else limit_s + 120
        qos = str(rng.choice(["scavenger", "normal", "high"], p=[0.25, 0.6, 0.15]))
        jobs.append(
            PlannedJob(
                float(at_s[i]), gpus, length_s, limit_s, qos if gpus <= 16 else "normal",
                int(rng.random() < 0.08), 600 if rng.random() < 0.05 else None,
            )
        )  # fmt: skip
    return tuple(jobs)
