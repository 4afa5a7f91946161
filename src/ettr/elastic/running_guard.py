"""The running checkpoint of one slot during one generation."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ettr.checkpoint import CheckpointError, RunningCheckpoint, block_ages, fence
from ettr.elastic.control_store import RankMessages
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


@dataclass(frozen=True, slots=True)
class _Kept:
    """Message of each rank; only slot 0 has something to say."""

    folder: str | None = None
    error: str | None = None


def keep_earlier_run(root: Path, messages: RankMessages, slot: int) -> Path | None:
    """Move aside what an earlier run has left in a running checkpoint; every rank calls it.

    A run that starts at step 0 would overwrite it.

    Returns:
        Where it is now, with a warning; None: there was nothing.

    Raises:
        CheckpointError: on every rank, where it could not be moved.
    """
    kept = _Kept()
    if slot == 0:
        try:
            kept = _Kept(folder=_move_aside(root))
        except (CheckpointError, OSError) as error:
            kept = _Kept(error=str(error))
    kept = messages.gather("kept", kept)[0]
    if kept.error is not None:
        raise CheckpointError(
            f"{root} holds the running checkpoint of an earlier run, which cannot be moved aside "
            f"({kept.error}); give an empty folder, or move it yourself"
        )
    return None if kept.folder is None else Path(kept.folder)


def _move_aside(root: Path) -> str | None:
    slots = [path for path in root.glob("slot-*") if path.is_dir()]
    steps = [age.step for age in block_ages(root) if age.step is not None] if slots else []
    if max(steps, default=0) == 0:
        return None
    name = f"kept-from-step-{max(steps)}"
    number = sum(path.name.split(".")[0] == name for path in root.glob("kept-*"))
    folder = root / (f"{name}.{number + 1}" if number else name)
    folder.mkdir()
    for path in slots:
        path.rename(folder / path.name)
    warnings.warn(
        f"training starts at step 0 although {root} holds blocks of steps {min(steps)} to "
        f"{max(steps)}, which are now in {folder}; to continue from them stop, move them back and "
        f"allow RecoverySource.COMPOSITE in RecoveryPolicy",
        stacklevel=2,
    )
    return str(folder)
