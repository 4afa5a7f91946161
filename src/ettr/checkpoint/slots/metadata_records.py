"""The reserved blocks of a slot file: `extra`, and the movement of each block.

Both have two places and a checksum like any other block: a torn record falls back to its older
copy. `extra` is written in the round for which it was given, or the next, and once more in a new
generation's file, so that it is not lost with the old one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.layout import EXTRA
from ettr.checkpoint.slots.ownership import slot_of
from ettr.checkpoint.slots.plan import SlotPlan
from ettr.checkpoint.slots.reader import last_rounds
from ettr.checkpoint.slots.record_selection import extras_of, open_checkpoint
from ettr.checkpoint.tensors.extra_state import Extra, decode, encode

# Largest share of the bytes written that the record of movement may be: for tables of small rows it
# would otherwise cost as much as the rows.
_MOVEMENT_SHARE = 0.02
_MOVEMENT_ROW_BYTES = 12


class MetadataRecords:
    """The reserved blocks of one slot file, and those that the next round is to write.

    Args:
        latest: the last `extra` given, to this process or one before it.
    """

    def __init__(self, plan: SlotPlan, latest: Extra | None) -> None:
        self._n_data = plan.n_data
        self._blocks = {plan.layout.key(b)[0]: b for b in range(plan.n_data, plan.n_blocks)}
        extra_block = self._blocks.get(EXTRA)
        self._room_bytes = 0 if extra_block is None else plan.layout.payload_bytes(extra_block)
        self._since_movement_bytes = 0
        self._encoded, self._extra_due = b"", False
        if latest is not None and self._room_bytes:
            self.set_extra(latest.values, latest.step)

    @property
    def latest_extra(self) -> Extra | None:
        """The last `extra`, as it was when it was given."""
        return decode(self._encoded) if self._encoded else None

    def set_extra(self, values: Mapping[str, object], step: int) -> None:
        """Take the `extra` of a step; the next round writes it.

        Raises:
            UsageError: it holds a value that cannot be saved, or does not fit.
        """
        self._encoded = encode(values, step, room_bytes=self._room_bytes)
        self._extra_due = True

    def undo_last(self) -> None:
        """The round failed: its records are due again."""
        self._extra_due = bool(self._encoded)

    def due(self, step: int, n_bytes: int, movement: NDArray[np.float64]) -> dict[int, bytes]:
        """Reserved block -> its payload, for a round.

        Args:
            n_bytes: that the round writes into the other blocks.
            movement: a row per block: distance, from the step of its copy to the step of the
                measurement (both the same: not measured).
        """
        payloads = {}
        self._since_movement_bytes += n_bytes
        for name, block in self._blocks.items():
            if name == EXTRA:
                if self._extra_due:
                    payloads[block] = self._encoded
            elif self._movement_fits() and (movement[:, 2] > movement[:, 1]).any():
                payloads[block] = _movement_rows(movement[: self._n_data], step)
                self._since_movement_bytes = 0
        self._extra_due = False
        return payloads

    def _movement_fits(self) -> bool:
        n_bytes = _MOVEMENT_ROW_BYTES * self._n_data
        return n_bytes <= _MOVEMENT_SHARE * self._since_movement_bytes


def _movement_rows(movement: NDArray[np.float64], step: int) -> bytes:
    # As differences: they stay exact in half the room, however many steps a run has.
    distance, copy_step, scored_step = movement.T
    rows = np.stack([distance, scored_step - copy_step, step - scored_step], axis=1)
    return rows.astype("<f4").tobytes()


def inherited(root: str | os.PathLike[str], folder: Path) -> tuple[dict[int, int], Extra | None]:
    """The last trusted round of a slot's earlier generations, and the latest `extra` in them.

    Raises:
        CheckpointError: the folder holds a file of another slot, which would be replaced.
    """
    if not folder.is_dir():
        return {}, None  # a new slot
    with ExitStack() as stack:
        checkpoint = open_checkpoint(stack, root, slot_of(folder))
        for written_for, path in checkpoint.slots[0].misplaced.items():
            raise CheckpointError(
                f"{path}: it was written for slot {written_for}; move it to the folder of that "
                f"slot, or give another root"
            )
        extras = extras_of(checkpoint)
        return last_rounds(checkpoint.slots[0]), next(iter(extras.values()), None)
