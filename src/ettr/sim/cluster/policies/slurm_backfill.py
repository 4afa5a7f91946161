"""Conservative backfill on the nodes that Slurm would choose, with preemption as Slurm has it."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.sim.cluster.policies.base import JobStart
from ettr.sim.cluster.policies.conservative_backfill import planned
from ettr.sim.cluster.policies.slurm_nodes import neighbours
from ettr.sim.cluster.room import Room, Waiting

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
    plans = planned(waiting, room, now_s, neighbours, APART_S, most_kept)
    return [
        JobStart(job.place, plan.nodes, plan.victims)
        for job, plan in zip(waiting, plans, strict=True)
        if plan.start_s == now_s
    ]
