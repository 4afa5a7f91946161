"""The tensors of a training run as a checkpoint saves them: local shards of global tensors.

Moments are looked up in the optimizer each time, never held: an optimizer may replace them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.tensors.model_tensors import TensorPlace, model_tensors, tensor_signature
from ettr.checkpoint.tensors.moments import create_moments
from ettr.checkpoint.tensors.shards import Shard, ShardOwner, local_tensor, shards_of


class State(Protocol):
    """The state that a running checkpoint saves."""

    def shards(self) -> list[Shard]:
        """The local shards now; moments are there once the optimizer has made them.

        Raises:
            CheckpointError: a tensor cannot be saved; it is named.
        """

    def fingerprint(self) -> int:
        """A number that changes when tensors or moments have appeared, gone or changed their type.

        The slot is planned again then.
        """

    def materialise(self) -> None:
        """Make the optimizer create its moments, so that they can be restored into."""

    def set_step_of_empty_shards(self, step_count: float) -> None:
        """Set the step count of parameters of which this rank holds no element."""


class TensorState:
    """A dictionary of tensors or DTensors without an optimizer.

    Args:
        tensors: by name; the values may be replaced as long as type and shape stay.
        replica: (index, count) of identical copies; see `TrainingState`.
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, replica: tuple[int, int] = (0, 1)) -> None:
        self._tensors, self._replica = tensors, replica

    def shards(self) -> list[Shard]:
        """One shard per tensor; empty local shards are left out."""
        owner = ShardOwner(replica=self._replica)
        return [
            shard
            for name in self._tensors
            for shard in shards_of(name, TensorPlace(self._tensors, name), owner)
        ]

    def fingerprint(self) -> int:
        """By names, types and shapes."""
        return hash(tuple((name, t.dtype, t.shape) for name, t in self._tensors.items()))

    def materialise(self) -> None:
        """Do nothing: there is no optimizer."""

    def set_step_of_empty_shards(self, step_count: float) -> None:
        """Do nothing: there are no step counts."""


class TrainingState:
    """A model and its optimizers: plain, DDP, FSDP2 (DTensor) or ZeRO-1.

    Args:
        model: its persistent buffers are included, without moments.
        optimizers: one or several; under `ZeroRedundancyOptimizer` only the partition that this
            rank owns is part of its slot.
        replica: (index, count) of identical copies among which plain tensors are split, so that
            each is saved once; under DDP (rank, world size). DTensors know their own.

    Raises:
        CheckpointError: an optimizer holds a parameter that the model does not have, or a tensor
            cannot be saved; it is named.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
        *,
        replica: tuple[int, int] = (0, 1),
    ) -> None:
        if isinstance(optimizers, torch.optim.Optimizer):
            optimizers = [optimizers]
        self.model, self.optimizers = model, list(optimizers)
        self._replica = replica
        self._local = [_local_optimizer(optimizer) for optimizer in self.optimizers]
        for inner in self._local:
            if isinstance(inner, torch.optim.LBFGS):
                raise CheckpointError(
                    "LBFGS keeps lists of tensors for all parameters together and cannot be saved "
                    "in blocks; use a full checkpoint, or give the model without the optimizer"
                )
        both = zip(self.optimizers, self._local, strict=True)
        self._partitioned = any(given is not inner for given, inner in both)
        self.shards()  # a tensor that cannot be saved is an error now, not at the first save

    def shards(self) -> list[Shard]:
        """The local shards, each parameter with its moments; empty local shards are left out."""
        places, owners = model_tensors(self.model), self._owners()
        foreign = owners.keys() - {id(place.tensor) for place in places.values()}
        if foreign:
            raise CheckpointError(
                f"{len(foreign)} parameters of the optimizer are not in the model; build the "
                f"optimizer from model.parameters() after wrapping (fully_shard, DDP)"
            )
        shards: list[Shard] = []
        for name, place in places.items():
            owner = owners.get(id(place.tensor))
            if self._partitioned and owner is None and isinstance(place.tensor, nn.Parameter):
                continue  # another rank owns this partition
            shards += shards_of(name, place, owner or ShardOwner(replica=self._replica))
        return shards

    def _owners(self) -> dict[int, ShardOwner]:
        """The optimizer of each parameter, by the identity of the parameter."""
        replica = (0, 1) if self._partitioned else self._replica
        return {
            id(parameter): ShardOwner(inner, replica, bool(group.get("fused")))
            for inner in self._local
            for group in inner.param_groups
            for parameter in group["params"]
        }

    def fingerprint(self) -> int:
        """By the identities, types and sizes of the tensors, and the number of moments."""
        moments = tuple(len(inner.state) for inner in self._local)
        groups = tuple(len(g["params"]) for inner in self._local for g in inner.param_groups)
        return hash((tensor_signature(self.model), moments, groups))

    def materialise(self) -> None:
        """Create the moments of parameters that have none; see `create_moments`."""
        for inner in self._local:
            create_moments(inner)

    def set_step_of_empty_shards(self, step_count: float) -> None:
        """Set the step count of parameters whose local shard is empty.

        It updates no element, but a state dictionary may take it for that of all ranks.
        """
        for inner in self._local:
            for tensor, moments in inner.state.items():
                if local_tensor(tensor).numel() == 0 and isinstance(moments.get("step"), Tensor):
                    moments["step"].fill_(step_count)


def as_state(state: State | nn.Module | Mapping[str, Tensor]) -> State:
    """A module or a dictionary of tensors as a `State`; a `State` as it is."""
    if isinstance(state, nn.Module):
        return TrainingState(state)
    return TensorState(state) if isinstance(state, Mapping) else state


def _local_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    # ZeroRedundancyOptimizer keeps the optimizer of its own partition in `optim`.
    inner = getattr(optimizer, "optim", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer
