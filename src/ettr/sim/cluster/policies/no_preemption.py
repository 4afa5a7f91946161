"""No preemption: who runs keeps its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.sim.cluster.room import Room, Running, Waiting


def no_preemption(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Nobody is preempted."""
    del head, running, room
    return []
