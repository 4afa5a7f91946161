"""The running checkpoint of one slot during one generation."""

from __future__ import annotations

import warnings
from contextlib import suppress

from ettr.checkpoint import RunningCheckpoint, fence
from ettr.elastic.model_shard import ModelShard
from ettr.elastic.protection import Protection
from ettr.errors import EttrError

# step <- Generation._guard <- Generation.update <- contextlib <- the script's `with`
_TO_THE_SCRIPT = 5


class RunningGuard:
    """Saves rounds of the running checkpoint, and warns when they begin to fail."""

    def __init__(self, checkpoint: RunningCheckpoint, slot: int) -> None:
        self.checkpoint, self._slot = checkpoint, slot
        self._error: str | None = None

    @classmethod
    def open(cls, protection: Protection, slot: int, shard: ModelShard) -> RunningGuard | None:
        """Take over a slot of the running checkpoint; None where there is none.

        Raises:
            CheckpointError: it cannot be written.
        """
        root = protection.running
        if root is None:
            return None
        # Whoever had the slot before, wherever it may hang, cannot write into it any more.
        generation = fence(root, slot)
        checkpoint = RunningCheckpoint(
            root, shard.state, slot=slot, generation=generation, **protection.running_options
        )
        return cls(checkpoint, slot)

    def step(self, step: int) -> None:
        """Save what is due; a failed round is only warned of, since the run has other guards."""
        error = self.checkpoint.step(step).error
        if error is not None and error != self._error:
            warnings.warn(
                f"running checkpoint, slot {self._slot}: {error}", stacklevel=_TO_THE_SCRIPT
            )
        self._error = error

    def save_all(self, step: int) -> None:
        """Save every block.

        Raises:
            CheckpointError: it cannot be written.
        """
        self.checkpoint.save_all(step)

    def close(self) -> None:
        """Finish the latest round if that is possible."""
        with suppress(EttrError):
            self.checkpoint.close()
