"""What a scheduler decides, one file for each policy: pure functions of the queue and the room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ettr.sim.cluster.policies.conservative_backfill import conservative_backfill
from ettr.sim.cluster.policies.easy_backfill import easy_backfill
from ettr.sim.cluster.policies.in_order import in_order
from ettr.sim.cluster.policies.newest_first import newest_first
from ettr.sim.cluster.policies.no_preemption import no_preemption
from ettr.sim.cluster.policies.slurm_backfill import slurm_backfill, slurm_easy
from ettr.sim.cluster.policies.slurm_nodes import free_neighbours
from ettr.sim.cluster.policies.slurm_youngest_first import slurm_youngest_first
from ettr.sim.cluster.room import place

if TYPE_CHECKING:
    from ettr.sim.cluster.policies.base import JobStart
    from ettr.sim.cluster.room import Room, VictimChoice, Waiting

WaitingPolicy = Callable[["Sequence[Waiting]", "Room", int], "list[JobStart]"]
Placing = Callable[[list[int], int], list[int] | None]

WAITING: Mapping[str, WaitingPolicy] = {
    "conservative-backfill": conservative_backfill,
    "easy-backfill": easy_backfill,
    "in-order": in_order,
    "slurm-backfill": slurm_backfill,
    "slurm-easy": slurm_easy,
}
"""What starts while the first job of the queue, which does not fit, waits."""
PREEMPT_FOR_ANY = frozenset({"slurm-backfill", "slurm-easy"})
"""Of those, the ones that preempt for others than the first job, and are shown who may go."""
PLACING: Mapping[str, Placing] = {
    **dict.fromkeys(WAITING, place),
    **dict.fromkeys(PREEMPT_FOR_ANY, free_neighbours),
}
"""Nodes for a job that starts in the order of the queue, None where it has no room now."""
PREEMPTION: Mapping[str, VictimChoice] = {
    "newest-first": newest_first,
    "none": no_preemption,
    "slurm-youngest-first": slurm_youngest_first,
}
"""Numbers of the running jobs that are preempted for one that waits."""
