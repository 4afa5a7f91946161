"""Conservative backfill on the nodes that Slurm would choose, with preemption as Slurm has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.policies.base import JobStart
from ettr.sim.cluster.policies.conservative_backfill import Planned, planned
from ettr.sim.cluster.policies.slurm_nodes import neighbours
from ettr.sim.cluster.room import FAR_S, Room, Waiting

WINDOW_S = 30
"""Running jobs that end so close to each other end at once in a plan, the last of them."""
APART_S = 1
"""Slurm takes two that meet in one moment for an overlap: its times include their ends."""


def slurm_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although others ahead of them wait, as by Slurm's sched/backfill.

    A job may preempt others wherever it stands in the queue. Until it starts, jobs that it might
    preempt count as gone: its nodes are kept from when all others have left them.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.

    Source:
        Slurm 22.05, src/plugins/sched/backfill/backfill.c and select/cons_tres/job_test.c, whose
        nodes are in one line without a topology.
    """
    return _starts(waiting, room, now_s, None)


def slurm_easy(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """As `slurm_backfill` with bf_job_part_count_reserve=1: nodes are kept for the first alone."""
    return _starts(waiting, room, now_s, 1)


def _starts(
    waiting: Sequence[Waiting], room: Room, now_s: int, most_kept: int | None
) -> list[JobStart]:
    return [
        JobStart(job.place, plan.nodes, plan.victims)
        for job, plan in zip(waiting, slurm_plans(waiting, room, now_s, most_kept), strict=True)
        if plan.start_s == now_s
    ]


def slurm_plans(
    waiting: Sequence[Waiting], room: Room, now_s: int, most_kept: int | None = None
) -> list[Planned]:
    """When and where Slurm would start each job, as `slurm_backfill` has it.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.
        most_kept: Jobs for which nodes are kept; for all where None.
    """
    return planned(waiting, room, now_s, neighbours, APART_S, most_kept, first_ends_at_once)


def first_ends_at_once(ready_s: NDArray[np.int64]) -> NDArray[np.int64]:
    """`Room.ready_s` where the running jobs that end first do so with the last of them.

    Those that end up to `WINDOW_S` after the next full half minute after the first. After them
    Slurm looks at each end by itself with `bf_window_linear=1`; by default at more and more at
    once.
    """
    runs = (ready_s > 0) & (ready_s < FAR_S)
    if not runs.any():
        return ready_s
    first_s = int(ready_s[runs].min())
    soon = runs & (ready_s <= first_s - first_s % WINDOW_S + 2 * WINDOW_S)
    return np.where(soon, ready_s[soon].max(), ready_s)
