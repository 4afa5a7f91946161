"""Restore from the running checkpoint after a loss: the lost shards alone, or every shard."""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ettr.checkpoint import (
    CheckpointError,
    FencedError,
    RunningCheckpoint,
    TrainingState,
    block_ages,
    fence,
    restore,
)
from ettr.checkpoint.slots.durable_io import slot_folder
from ettr.checkpoint.slots.reader import keep_aside
from ettr.checkpoint.tensors.shards import Shard
from ettr.elastic.protection import Protection
from ettr.elastic.rank_inventory import RankInventory
from ettr.elastic.rendezvous import RankMessages
from ettr.elastic.shard_image import (
    ObjectBuffer,
    Piece,
    ShardStore,
    as_tensor,
    image_bytes,
    pieces_of,
    put_parts,
    reset_step_counts,
    take_image,
)
from ettr.errors import EttrError, UsageError
from ettr.recovery import Situation


@dataclass(frozen=True, slots=True)
class CopyAge:
    """Message of each rank before a partial recovery.

    Attributes:
        stale_steps: Mean age of the copy of a lost shard; None: not lost, or not covered.
    """

    stale_steps: float | None = None
    oldest_step: int | None = None
    relative_perturbation: float | None = None


@dataclass(frozen=True, slots=True)
class Composite:
    """A state put together of every slot's running checkpoint, in the live tensors."""

    situation: Situation
    oldest_step: int
    began_s: float


@dataclass(frozen=True, slots=True)
class _CompositePart:
    """Message of each rank that read its shard for a composite."""

    mean_step: float | None = None
    oldest_step: int | None = None
    delta_norm: float | None = None
    parameter_norm: float | None = None


class RunningSource:
    """The running checkpoint as a source for one recovery of one rank."""

    def __init__(
        self, root: Path, slot: int, shards: ShardStore, messages: RankMessages, shard: ModelShard
    ) -> None:
        self._root, self._slot = root, slot
        self._shards, self._messages, self._shard = shards, messages, shard

    def gather_ages(self, inventory: RankInventory) -> list[CopyAge]:
        """How old the lost shards' copies are, and how far the survivors are from theirs."""
        age = CopyAge()
        try:
            if self._slot in inventory.lost:
                age = self._age_of_copy(inventory.reached)
            elif self._shards.live is not None:
                age = CopyAge(relative_perturbation=self._own_distance())
        except CheckpointError as error:  # nothing that could be used: that is an empty age
            self._warn(error)
        return self._messages.gather("ages", age)

    def restore_lost(self, inventory: RankInventory) -> int | None:
        """Restore the lost shards and leave the others as they are; every rank calls it.

        What a lost rank held in common with a survivor comes from the survivor.

        Returns:
            The oldest step of a block that was restored; None: some rank could not restore.
        """
        oldest: int | None = inventory.reached
        if self._slot in inventory.lost:
            try:
                report = restore(self._root, self._shard.state, slot=self._slot)
                oldest = report.oldest_step
                self._shard.capture_objects(report.objects_step or 0)
            except CheckpointError as error:
                self._warn(error)
                oldest = None
        elif self._shards.live is not None:
            put_parts(self._shard.pieces, self._shards.live)
        ranks = self._messages.gather("restored", oldest)
        steps = [step for step in ranks if step is not None]
        if len(steps) < len(ranks):
            return None
        copy_from_survivors(
            self._shard.pieces, self._messages, slot=self._slot, lost=inventory.lost
        )
        self._shards.drop_images()
        return min(steps)

    def restore_all(self, inventory: RankInventory) -> Composite | None:
        """Read every shard from its own running checkpoint into the live tensors.

        It has to be read before it can be chosen: how far its blocks moved is stored in them.

        Returns:
            None: some slot is not covered, or could not be read.
        """
        steps = self._covered_steps()
        covered = self._messages.gather("composite-ages", max(steps, default=None))
        newest = [step for step in covered if step is not None]
        if len(newest) < len(covered):
            return None
        reached = max([*inventory.full[:1], *newest])
        began_s = time.monotonic()
        parts = self._messages.gather("composite", self._composite_part(reached))
        means = [part.mean_step for part in parts if part.mean_step is not None]
        oldest = [part.oldest_step for part in parts if part.oldest_step is not None]
        if len(means) < len(parts) or len(oldest) < len(parts):
            return None
        mean_step = sum(n * mean for n, mean in zip(inventory.sizes, means, strict=True))
        situation = Situation(
            reached_step=reached,
            stale_steps=max(0.0, reached - mean_step / inventory.total_bytes),
            relative_perturbation=_relative(parts),
            full_step=inventory.full[0] if inventory.full else 0,
            survivors=False,
        )
        return Composite(situation, min(oldest), began_s)

    def _warn(self, error: CheckpointError) -> None:
        warnings.warn(
            f"slot {self._slot}: its running checkpoint cannot be used: {error}", stacklevel=2
        )

    def _age_of_copy(self, reached_step: int) -> CopyAge:
        steps = self._covered_steps()
        if not steps:
            return CopyAge()
        return CopyAge(
            stale_steps=max(0.0, reached_step - sum(steps) / len(steps)), oldest_step=min(steps)
        )

    def _own_distance(self) -> float:
        """‖live − saved‖/‖live‖ of this rank's own parameters."""
        restore(self._root, self._shard.state, slot=self._slot)
        distance = norm = 0.0
        for piece in self._shard.pieces:
            value = (self._shards.live or {}).get(piece.part)
            saved = piece.live()
            if piece.name == "param" and isinstance(value, Tensor) and isinstance(saved, Tensor):
                distance += float((value - saved).double().square().sum())
                norm += float(value.double().square().sum())
        return (distance / norm) ** 0.5 if norm else 0.0

    def _covered_steps(self) -> list[int]:
        """Step of the newest record of each block of this slot; empty: not all are known."""
        try:
            steps = [age.step for age in block_ages(self._root, slot=str(self._slot))]
        except CheckpointError:
            return []
        known = [step for step in steps if step is not None]
        return known if len(known) == len(steps) else []

    def _composite_part(self, reached_step: int) -> _CompositePart:
        try:
            report = restore(
                self._root, self._shard.state, slot=self._slot, reached_step=reached_step
            )
        except CheckpointError as error:
            self._warn(error)
            return _CompositePart()
        self._shard.capture_objects(report.objects_step or 0)
        part = _CompositePart(report.mean_step, report.oldest_step)
        moved = report.perturbation
        if moved is None or moved.unmeasured:
            return part
        delta_norm = max(moved.delta_norm, moved.walk_norm or 0.0)
        return _CompositePart(part.mean_step, part.oldest_step, delta_norm, moved.parameter_norm)


def _relative(parts: Sequence[_CompositePart]) -> float | None:
    """‖δ‖/‖x‖ of all shards together; None: some block's movement is not known."""
    deltas = [part.delta_norm for part in parts if part.delta_norm is not None]
    norms = [part.parameter_norm for part in parts if part.parameter_norm is not None]
    if len(deltas) < len(parts) or len(norms) < len(parts):
        return None
    norm = math.hypot(*norms)
    return math.hypot(*deltas) / norm if norm > 0 else None


def copy_from_survivors(
    pieces: Sequence[Piece], messages: RankMessages, *, slot: int, lost: Collection[int]
) -> None:
    """Bring the lost ranks' replicated shards, with their moments, from a survivor's live ones.

    Every rank of the generation calls it, after the lost ones were restored. A region of which no
    survivor has a copy stays as it was restored.
    """
    mine = _replicated(pieces)
    held = messages.gather("replicas", sorted(mine))
    survivors = [other for other in range(len(held)) if other not in lost]
    of_survivor = {other: frozenset(held[other]) for other in survivors}
    for receiver in sorted(lost):
        for region in held[receiver]:
            sender = next((one for one in survivors if region in of_survivor[one]), None)
            if sender is None:
                continue
            if slot == sender:
                for piece in mine[region]:
                    dist.send(as_tensor(piece.live()).cpu().contiguous().clone(), receiver)
            elif slot == receiver:
                for piece in mine[region]:
                    value = torch.empty_like(
                        as_tensor(piece.live()),
                        device="cpu",
                        memory_format=torch.contiguous_format,
                    )
                    dist.recv(value, sender)
                    with torch.no_grad():
                        piece.put(value)


def _replicated(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Region -> its pieces, of shards that others hold too."""
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        owner = piece.owner
        if isinstance(owner, Shard) and owner.replica[1] > 1:
            found.setdefault(f"{owner.spec.fqn} {owner.offsets} {owner.sizes}", []).append(piece)
    return found


# -- The running checkpoint of one slot during one generation -------------------------------------

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
        """Save what is due; a failed round is only warned of, since the run has other guards."""
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


def keep_earlier_run(root: Path, messages: RankMessages, slot: int, *, stop: bool = False) -> None:
    """Move aside what an earlier run has left in a running checkpoint; every rank calls it.

    A run that starts at step 0 would overwrite it.
    """
    failure: str | None = None
    if slot == 0:
        try:
            _move_aside(root, stop=stop)
        except (CheckpointError, OSError) as error:
            failure = str(error)
    if (failure := messages.gather("kept", failure)[0]) is not None:
        raise CheckpointError(
            f"{root} holds the running checkpoint of an earlier run, which is not moved aside "
            f"({failure}); give an empty folder, move it yourself, or allow "
            f"RecoverySource.COMPOSITE to resume from it"
        )


def _move_aside(root: Path, *, stop: bool) -> None:
    slots = [path for path in root.glob("slot-*") if path.is_dir()]
    steps = [age.step for age in block_ages(root) if age.step is not None] if slots else []
    if max(steps, default=0) == 0:
        return
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
