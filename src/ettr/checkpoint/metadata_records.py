"""What a running checkpoint writes beside the blocks: `extra`, and how far each block has moved.

Both are blocks of their own in the slot file, with two places and a checksum like any other: a torn
one falls back to its older copy. `extra` is written in the round for which it was given, or the
next, and once more in a new generation's file, so that it is not lost with the old one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.extra_state import Extra, decode, encode
from ettr.checkpoint.layout import EXTRA, Layout
from ettr.checkpoint.record_selection import extras_of, open_source
from ettr.checkpoint.slot_reader import last_rounds

# Of the bytes written, the record of movement may be this share: for tables of small rows it would
# else cost as much as the rows.
_MOVEMENT_SHARE = 0.02


class OwnRecords:
    """The reserved blocks of one slot file, and what is due in them.

    Args:
        layout: of the file; its blocks from `n_data` on are reserved.
        latest: what was last given as `extra`, by this process or one before it.
    """

    def __init__(self, layout: Layout, n_data: int, latest: Extra | None) -> None:
        self._n_data = n_data
        self._blocks = {layout.key(b)[0]: b for b in range(n_data, len(layout.blocks))}
        extra = self._blocks.get(EXTRA)
        self._room_bytes = 0 if extra is None else layout.payload_bytes(extra)
        self._movement_bytes = 12 * n_data
        self._since_movement_bytes = 0
        self._encoded, self._extra_due = b"", False
        if latest is not None and self._room_bytes:
            self.give(latest.values, latest.step)

    @property
    def latest(self) -> Extra | None:
        """What was last given, as it was then."""
        return decode(self._encoded) if self._encoded else None

    def give(self, values: Mapping[str, Any], step: int) -> None:
        """Take what the user has given for a step; the next round writes it.

        Raises:
            UsageError: it holds what cannot be kept, or does not fit.
        """
        self._encoded = encode(values, step, room_bytes=self._room_bytes)
        self._extra_due = True

    def take_back(self) -> None:
        """The round failed: what it held is due again."""
        self._extra_due = bool(self._encoded)

    def due(self, step: int, n_bytes: int, moved: NDArray[np.float64]) -> dict[int, bytes]:
        """Reserved block -> its payload, for a round.

        Args:
            n_bytes: that the round writes into the other blocks.
            moved: a row a block: distance, from the step of its copy to the step of the measurement
                (both the same: not measured).
        """
        found = {}
        self._since_movement_bytes += n_bytes
        for name, block in self._blocks.items():
            if name == EXTRA:
                if self._extra_due:
                    found[block] = self._encoded
            elif (
                self._movement_bytes <= _MOVEMENT_SHARE * self._since_movement_bytes
                and (moved[:, 2] > moved[:, 1]).any()
            ):
                found[block] = _movement_rows(moved[: self._n_data], step)
                self._since_movement_bytes = 0
        self._extra_due = False
        return found


def _movement_rows(moved: NDArray[np.float64], step: int) -> bytes:
    # As differences: they stay exact in half the room, however many steps a run has.
    rows = np.stack([moved[:, 0], moved[:, 2] - moved[:, 1], step - moved[:, 2]], axis=1)
    return rows.astype("<f4").tobytes()


def inherited(root: str | os.PathLike[str], folder: Path) -> tuple[dict[int, int], Extra | None]:
    """How far the earlier generations of a slot are trusted, and the latest `extra` they hold."""
    if not folder.is_dir():
        return {}, None  # a slot that is new has nothing to hand down
    with ExitStack() as stack:
        source = open_source(stack, root, folder.name.removeprefix("slot-"))
        return last_rounds(source.slots[0]), next(iter(extras_of(source).values()), None)
