"""A rank's models, optimizers and objects, and the shard of their state that the rank holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ettr.checkpoint import TrainingState
from ettr.checkpoint.tensors.shards import Shard
from ettr.elastic.buddies.shard_image import (
    ObjectBuffer,
    Piece,
    image_bytes,
    pieces_of,
    reset_step_counts,
    take_image,
)
from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModelShard:
    """The rebuilt model of one generation.

    Attributes:
        state: The model and optimizer as a checkpoint sees them.
        pieces: Every tensor of the local shard, with the moments.
    """

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
            objects_bytes: room for objects; see `Protection`.

        Raises:
            CheckpointError: the optimizer holds parameters that the model does not have.
            UsageError: a part cannot be saved, or an optimizer is missing or given twice.
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
