"""What a scheduler decides, one file for each policy: pure functions of the queue and the room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ettr.sim.cluster.policies.conservative_backfill import conservative_backfill
from ettr.sim.cluster.policies.easy_backfill import easy_backfill
from ettr.sim.cluster.policies.in_order import in_order
from ettr.sim.cluster.policies.newest_first import newest_first
from ettr.sim.cluster.policies.no_preemption import no_preemption
from ettr.sim.cluster.policies.slurm_backfill import slurm_backfill

if TYPE_CHECKING:
    from ettr.sim.cluster.policies.base import JobStart, Running, Waiting
    from ettr.sim.cluster.room import Room

WaitingPolicy = Callable[["Sequence[Waiting]", "Room", int], "list[JobStart]"]
PreemptionPolicy = Callable[["Waiting", "Sequence[Running]", "Room"], list[int]]

WAITING: Mapping[str, WaitingPolicy] = {
    "conservative-backfill": conservative_backfill,
    "easy-backfill": easy_backfill,
    "in-order": in_order,
    "slurm-backfill": slurm_backfill,
}
"""What starts while the first job of the queue, which does not fit, waits."""
PREEMPTION: Mapping[str, PreemptionPolicy] = {"newest-first": newest_first, "none": no_preemption}
"""Numbers of the running jobs that are preempted for the first job of the queue."""
