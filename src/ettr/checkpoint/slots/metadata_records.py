"""The reserved blocks of a slot file: objects with parameter groups, and the movement of blocks.

Both have two places and a checksum like any other block: a torn record falls back to its older
copy. Objects are written in every round, so that they are of the step of its blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.slots.layout import OBJECTS
from ettr.checkpoint.slots.plan import SlotPlan

# Largest share of the bytes written that the record of movement may be: for tables of small rows it
# would otherwise cost as much as the rows.
_MOVEMENT_SHARE = 0.02
_MOVEMENT_ROW_BYTES = 12


class MetadataRecords:
    """The reserved blocks of one slot file, and those that the next round is to write."""

    def __init__(self, plan: SlotPlan) -> None:
        self._n_data = plan.n_data
        self._blocks = {plan.layout.key(b)[0]: b for b in range(plan.n_data, plan.n_blocks)}
        objects = self._blocks.get(OBJECTS)
        self.objects_room_bytes = 0 if objects is None else plan.layout.payload_bytes(objects)
        self._since_movement_bytes = 0

    def due(
        self, step: int, n_bytes: int, movement: NDArray[np.float64], objects: bytes
    ) -> dict[int, bytes]:
        """Reserved block -> its payload, for a round.

        Args:
            n_bytes: that the round writes into the other blocks.
            movement: a row per block: distance, from the step of its copy to the step of the
                measurement (both the same: not measured).
            objects: their record; empty: none in this round.
        """
        payloads = {}
        self._since_movement_bytes += n_bytes
        for name, block in self._blocks.items():
            if name == OBJECTS:
                if objects:
                    payloads[block] = objects
            elif self._movement_fits() and (movement[:, 2] > movement[:, 1]).any():
                payloads[block] = _movement_rows(movement[: self._n_data], step)
                self._since_movement_bytes = 0
        return payloads

    def _movement_fits(self) -> bool:
        n_bytes = _MOVEMENT_ROW_BYTES * self._n_data
        return n_bytes <= _MOVEMENT_SHARE * self._since_movement_bytes


def _movement_rows(movement: NDArray[np.float64], step: int) -> bytes:
    # As differences: they stay exact in half the room, however many steps a run has.
    distance, copy_step, scored_step = movement.T
    rows = np.stack([distance, scored_step - copy_step, step - scored_step], axis=1)
    return rows.astype("<f4").tobytes()
