"""The running checkpoint of one slot during one generation."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ettr.checkpoint import (
    CheckpointError,
    FencedError,
    RunningCheckpoint,
    TrainingState,
    block_ages,
    fence,
)
from ettr.checkpoint.slots.earlier_records import keep_aside
from ettr.checkpoint.slots.ownership import slot_folder
from ettr.checkpoint.tensors.shards import Shard
from ettr.elastic.buddies.shard_image import (
    ObjectBuffer,
    Piece,
    image_bytes,
    pieces_of,
    reset_step_counts,
    take_image,
)
from ettr.elastic.membership.control_store import RankMessages
from ettr.elastic.protection import Protection
from ettr.errors import EttrError, UsageError

# step <- Generation._guard <- Generation.update <- contextlib <- the script's `with`
_TO_THE_SCRIPT = 5


class RunningGuard:
    """Saves rounds of the running checkpoint, and warns when they begin to fail."""

    def __init__(self, checkpoint: RunningCheckpoint, slot: int) -> None:
        self.checkpoint, self._slot = checkpoint, slot
        self._error: str | None = None

    @classmethod
    def open(
        cls, protection: Protection, slot: int, shard: ModelShard, *, rolled_back: bool
    ) -> RunningGuard | None:
        """Take over a slot of the running checkpoint.

        Args:
            rolled_back: the slot may hold blocks of steps that the run has gone back behind;
                without room for a new file they are moved aside.

        Returns:
            None where no running checkpoint is kept, or it has no room, which is warned of.
        """
        root = protection.running
        if root is None:
            return None
        # Whoever had the slot before, wherever it may hang, cannot write into it any more.
        generation = fence(root, slot)
        try:
            checkpoint = RunningCheckpoint(
                root,
                shard.state,
                slot=slot,
                generation=generation,
                newer="overwrite",  # the group has decided already: `keep_earlier_run`
                **protection.running_options,
            )
        except FencedError:
            raise
        except CheckpointError as error:
            kept = _give_up_steps(slot_folder(root, slot), generation) if rolled_back else ""
            warnings.warn(
                f"running checkpoint, slot {slot}: {error}{kept}; training goes on without it "
                f"until the next generation",
                stacklevel=3,
            )
            return None
        return cls(checkpoint, slot)

    def step(self, step: int, *, stops: bool = False) -> None:
        """Save what is due; a failed round is only warned of, since the run has other guards.

        Args:
            stops: all of it is due, because the run ends here.
        """
        try:
            save = self.checkpoint.save_all if stops else self.checkpoint.step
            error = save(step).error
        except FencedError:
            raise
        except CheckpointError as failure:  # no room for a file that holds the new moments
            error = str(failure)
        if error is not None and error != self._error:
            warnings.warn(
                f"running checkpoint, slot {self._slot}: {error}", stacklevel=_TO_THE_SCRIPT
            )
        self._error = error

    def save_all(self, step: int) -> None:
        """Save every block; a failure is only warned of, since later rounds fill the slot.

        What the slot held before is moved aside then: the run begins, or has gone back behind it.
        """
        try:
            self.checkpoint.save_all(step)
        except FencedError:
            raise
        except CheckpointError as error:
            self._error = str(error)
            kept = _give_up_steps(self.checkpoint.folder, self.checkpoint.generation)
            warnings.warn(
                f"running checkpoint, slot {self._slot}: {error}{kept}; training goes on",
                stacklevel=3,
            )

    def close(self) -> None:
        """Finish the latest round if that is possible."""
        with suppress(EttrError):
            self.checkpoint.close()


def _give_up_steps(folder: Path, generation: int) -> str:
    """Move aside what a slot held before a generation; what became of it, in words."""
    try:
        kept = keep_aside(folder, before=generation)
    except OSError as error:
        return f"; what it holds of steps given up cannot be moved aside ({error})"
    return "" if kept is None else f"; its blocks of steps given up are now in {kept}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """Message of each rank; only slot 0 has something to say."""

    folder: str | None = None
    error: str | None = None


def keep_earlier_run(
    root: Path, messages: RankMessages, slot: int, *, stop: bool = False
) -> Path | None:
    """Move aside what an earlier run has left in a running checkpoint; every rank calls it.

    A run that starts at step 0 would overwrite it.

    Returns:
        Where it is now, with a warning; None: there was nothing.
    """
    kept = _Kept()
    if slot == 0:
        try:
            kept = _Kept(folder=_move_aside(root, stop=stop))
        except (CheckpointError, OSError) as error:
            kept = _Kept(error=str(error))
    kept = messages.gather("kept", kept)[0]
    if kept.error is not None:
        raise CheckpointError(
            f"{root} holds the running checkpoint of an earlier run, which is not moved aside "
            f"({kept.error}); give an empty folder, move it yourself, or allow "
            f"RecoverySource.COMPOSITE to resume from it"
        )
    return None if kept.folder is None else Path(kept.folder)


def _move_aside(root: Path, *, stop: bool) -> str | None:
    slots = [path for path in root.glob("slot-*") if path.is_dir()]
    steps = [age.step for age in block_ages(root) if age.step is not None] if slots else []
    if max(steps, default=0) == 0:
        return None
    if stop:
        raise CheckpointError(f"it has blocks of steps {min(steps)} to {max(steps)}")
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


@dataclass(frozen=True, slots=True)
class ModelShard:
    """The rebuilt model of one generation."""

    state: TrainingState
    pieces: tuple[Piece, ...]

    @classmethod
    def of(
        cls,
        parts: nn.Module | Mapping[str, object],
        optimizer: torch.optim.Optimizer | None = None,
        *,
        objects_bytes: int | None = None,
    ) -> ModelShard:
        """The shard of a state as it was built; its moments are made where there are none.

        Args:
            parts: a dictionary as for `RunningCheckpoint`; or a model, with its optimizer: then
                parameter groups stay as `train` sets them.
        """
        if isinstance(parts, nn.Module) and optimizer is not None:
            state = TrainingState(parts, optimizer, groups=False)
        elif isinstance(parts, Mapping) and optimizer is None:
            state = TrainingState.of(parts)
        else:
            raise UsageError(
                "recover: give a model and its optimizer, or one dictionary of all that a run needs"
            )
        state.materialise()
        pieces = tuple(pieces_of(state, objects_bytes=objects_bytes))
        reset_step_counts(pieces)
        return cls(state, pieces)

    @property
    def objects(self) -> ObjectBuffer | None:
        """The objects as they were after the last update; None: there are no objects."""
        owner = self.pieces[-1].owner if self.pieces else None
        return owner if isinstance(owner, ObjectBuffer) else None

    @property
    def tensor_pieces(self) -> list[Piece]:
        """The pieces of tensors, without the objects."""
        return [piece for piece in self.pieces if isinstance(piece.owner, Shard)]

    @property
    def region(self) -> str:
        """Names which parts of which tensors it holds."""
        held = ((one.spec.fqn, one.offsets, one.sizes) for one in self.state.shards())
        return hashlib.blake2b(repr(list(held)).encode(), digest_size=16).hexdigest()

    def capture_objects(self, step: int) -> None:
        """Take the state of the objects as it is now, of this step."""
        if self.objects is not None:
            self.objects.capture(step)

    def image(self) -> Tensor:
        """A copy of the shard as it is now."""
        image = torch.empty(image_bytes(self.pieces), dtype=torch.uint8)
        take_image(self.pieces, image)
        return image
