"""Restore from the running checkpoint after a loss: the lost shards alone, or every shard."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.checkpoint import CheckpointError, block_ages, restore
from ettr.checkpoint.tensors.shards import Shard
from ettr.elastic.buddies.shard_history import ShardStore
from ettr.elastic.buddies.shard_image import Piece, put_parts
from ettr.elastic.membership.control_store import RankMessages
from ettr.elastic.restore.rank_inventory import RankInventory
from ettr.elastic.restore.running_guard import ModelShard
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
class _Restored:
    """Message of each rank after the lost shards were restored; None: it could not restore."""

    oldest_step: int | None


@dataclass(frozen=True, slots=True)
class _Covered:
    """Message of each rank: the newest step of its slot; None: the slot is not covered."""

    newest_step: int | None


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
        ranks = self._messages.gather("restored", _Restored(oldest))
        steps = [rank.oldest_step for rank in ranks if rank.oldest_step is not None]
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
        covered = self._messages.gather("composite-ages", _Covered(max(steps) if steps else None))
        newest = [rank.newest_step for rank in covered if rank.newest_step is not None]
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


@dataclass(frozen=True, slots=True)
class _Replicated:
    """Message of each rank: the regions that it holds in common with others."""

    regions: list[str]


def copy_from_survivors(
    pieces: Sequence[Piece], messages: RankMessages, *, slot: int, lost: Collection[int]
) -> None:
    """Bring the lost ranks' replicated shards, with their moments, from a survivor's live ones.

    Every rank of the generation calls it, after the lost ones were restored. A region of which no
    survivor has a copy stays as it was restored.
    """
    mine = _replicated(pieces)
    held = [rank.regions for rank in messages.gather("replicas", _Replicated(sorted(mine)))]
    survivors = [other for other in range(len(held)) if other not in lost]
    of_survivor = {other: frozenset(held[other]) for other in survivors}
    for receiver in sorted(lost):
        for region in held[receiver]:
            sender = next((one for one in survivors if region in of_survivor[one]), None)
            if sender is None:
                continue
            if slot == sender:
                for piece in mine[region]:
                    dist.send(_packed(piece), receiver)
            elif slot == receiver:
                for piece in mine[region]:
                    value = torch.empty_like(_packed(piece))
                    dist.recv(value, sender)
                    _put(piece, value)


def _replicated(pieces: Sequence[Piece]) -> dict[str, list[Piece]]:
    """Region -> its pieces, of shards that others hold too."""
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        owner = piece.owner
        if isinstance(owner, Shard) and owner.replica[1] > 1:
            found.setdefault(f"{owner.spec.fqn} {owner.offsets} {owner.sizes}", []).append(piece)
    return found


def _packed(piece: Piece) -> Tensor:
    """A copy of the live part in host memory; of a number as float64."""
    value = piece.live()
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().clone()
    return torch.tensor(float(value), dtype=torch.float64)


def _put(piece: Piece, value: Tensor) -> None:
    with torch.no_grad():
        piece.put(value if piece.shape is not None else float(value))
