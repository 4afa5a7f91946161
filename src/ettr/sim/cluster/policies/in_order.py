"""In order: nobody overtakes."""

from __future__ import annotations

from collections.abc import Sequence

from ettr.sim.cluster.policies.base import JobStart
from ettr.sim.cluster.room import Room, Waiting


def in_order(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """No job starts while the first one waits."""
    del waiting, room, now_s
    return []
