"""Which blocks were touched or changed since they were last saved, for `touched` and `dirty`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.checkpoint.slots.plan import SlotPlan
from ettr.checkpoint.tensors.shards import UNCOUNTED

_NEVER_SAVED = -1
_RESERVED = -2


class ChangeTracker:
    """Touches and version counters of one slot's blocks.

    Attributes:
        touches: Touches of each block since it was last saved.

    Args:
        count_versions: compare the version counters of tensors; without, every block counts as
            changed.
    """

    def __init__(self, plan: SlotPlan, *, count_versions: bool) -> None:
        self._plan, self._count_versions = plan, count_versions
        self.touches = np.zeros(plan.n_blocks, np.int64)
        self._saved_versions = np.full(plan.n_blocks, _NEVER_SAVED, np.int64)
        self._last_blocks: list[int] = []
        self._last_touches = np.zeros(0, np.int64)

    def touch(self, name: str, rows: ArrayLike | None) -> None:
        """Count touches of a tensor, or of those whose names begin so; None: of all its rows."""
        touched_before = None
        if rows is not None:
            touched_before = np.concatenate(
                ([0], np.cumsum(np.bincount(np.asarray(rows).reshape(-1))))
            )
        for fqn, (blocks, first, end) in self._plan.rows_of.items():
            if fqn != name and not fqn.startswith(name + "."):
                continue
            if touched_before is None:
                self.touches[blocks] += 1
            else:
                last = len(touched_before) - 1
                self.touches[blocks] += (
                    touched_before[np.minimum(end, last)] - touched_before[np.minimum(first, last)]
                )

    def changed(self) -> NDArray[np.bool_]:
        """Whether each block may have changed since it was last saved."""
        if not self._count_versions:
            return np.ones(self._plan.n_blocks, bool)
        now = self._versions()
        return np.asarray((now != self._saved_versions) | (now == UNCOUNTED), np.bool_)

    def note_staged(self, blocks: list[int]) -> None:
        """Start over for blocks that a round has staged."""
        self._last_blocks, self._last_touches = blocks, self.touches[blocks]
        self.touches[blocks] = 0
        if self._count_versions:
            self._saved_versions[blocks] = self._versions()[blocks]

    def undo_last(self) -> None:
        """The round that was staged last has failed: its touches and changes are still to save."""
        self.touches[self._last_blocks] += self._last_touches
        self._saved_versions[self._last_blocks] = _NEVER_SAVED

    def _versions(self) -> NDArray[np.int64]:
        of_shard = [shard.version() for shard in self._plan.shards]
        # Reserved blocks have no shard (-1) and take the last entry.
        return np.array([*of_shard, _RESERVED], np.int64)[self._plan.shard_of_block]
