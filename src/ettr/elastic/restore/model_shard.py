"""A rank's model and optimizer, and the shard of their state that the rank holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ettr.checkpoint import TrainingState
from ettr.elastic.buddies.shard_image import (
    Piece,
    image_bytes,
    pieces_of,
    reset_step_counts,
    take_image,
)


@dataclass(frozen=True, slots=True)
class ModelShard:
    """The rebuilt model of one generation.

    Attributes:
        state: The model and optimizer as a checkpoint sees them.
        pieces: Every tensor of the local shard, with the moments.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    state: TrainingState
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> ModelShard:
        """The shard of a model as it was built; its moments are made where there are none.

        Raises:
            CheckpointError: the optimizer holds parameters that the model does not have.
        """
        state = TrainingState(model, optimizer, groups=False)  # as `train` sets them
        state.materialise()
        pieces = tuple(pieces_of(state))
        reset_step_counts(pieces)
        return cls(model, optimizer, state, pieces)

    def image(self) -> Tensor:
        """A copy of the shard as it is now."""
        image = torch.empty(image_bytes(self.pieces), dtype=torch.uint8)
        take_image(self.pieces, image)
        return image
