"""The tensors of a training run as the checkpoint sees them: local shards with global coordinates.

Names come from `torch.distributed.checkpoint.state_dict`, so that they are the same under DDP,
FSDP2 and no wrapper. Moments are looked up in the optimizer each time, never held: an optimizer may
replace them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.layout import DTYPE_BYTES, Component, TensorSpec

# A part of another shape than its parameter moves with every block up to this size; above it, it
# becomes a tensor of its own (Adafactor's row and column factors).
_WHOLE_LIMIT = 1024
UNCOUNTED = -3  # instead of a version: nobody can say whether it has changed
_WRAPPERS = ("module.", "_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


@dataclass(frozen=True, slots=True)
class Shard:
    """One parameter's local part: its global place, and how to reach its parts as they are now."""

    spec: TensorSpec
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    replica: tuple[int, int]
    tensor: Tensor
    optimizer: torch.optim.Optimizer | None = None
    moment_name: str = ""  # set where the shard is itself one moment of `tensor`
    fused: bool = False  # torch's fused kernels change plain tensors and count no version

    def part(self, name: str) -> Any:
        """The live local tensor (or the number) of one component."""
        if self.optimizer is None or (name == "param" and not self.moment_name):
            return local(self.tensor)
        value = self.optimizer.state[self.tensor][self.moment_name or name]
        return local(value) if isinstance(value, Tensor) else value

    def put_number(self, name: str, value: float) -> None:
        """Set a part that is a Python number."""
        if self.optimizer is not None:
            self.optimizer.state[self.tensor][name] = value

    def version(self) -> int:
        """Grows with every in-place change of the parameter or of a moment; or `UNCOUNTED`."""
        if self.fused and self.tensor.requires_grad:
            return UNCOUNTED
        total = self.tensor._version
        if self.optimizer is not None:
            for value in self.optimizer.state[self.tensor].values():
                if isinstance(value, Tensor):
                    total += value._version
        return total


class State(Protocol):
    """What a running checkpoint saves."""

    def shards(self) -> list[Shard]:
        """The local shards now; moments are there once the optimizer has made them."""

    def fingerprint(self) -> int:
        """Changes when moments have appeared or gone, so that the layout must be planned anew."""

    def materialise(self) -> None:
        """Make the optimizer create its moments, so that they can be restored into."""

    def settle(self, step_count: float) -> None:
        """Set the step count of parameters of which this rank holds nothing."""


class TensorState:
    """A dictionary of tensors or DTensors without an optimizer."""

    def __init__(self, tensors: Mapping[str, Tensor], *, replica: tuple[int, int] = (0, 1)) -> None:
        self._tensors, self._replica = dict(tensors), replica

    def shards(self) -> list[Shard]:
        """One shard a tensor."""
        return [_shard(fqn, t, {}, None, self._replica) for fqn, t in self._tensors.items()]

    def fingerprint(self) -> int:
        """Constant."""
        return len(self._tensors)

    def materialise(self) -> None:
        """Nothing to make."""

    def settle(self, step_count: float) -> None:
        """Nothing to set."""


class TrainingState:
    """A model and its optimizers: plain, DDP, FSDP2 (DTensor) or ZeRO-1.

    Args:
        model: its persistent buffers are included, without moments.
        optimizers: one or several; under `ZeroRedundancyOptimizer` only the partition that this
            rank owns is part of its slot.
        replica: (index, count) of identical copies among which plain tensors are split, so that
            each is saved once; under DDP (rank, world size). DTensors know their own.

    Raises:
        CheckpointError: an optimizer holds a parameter that the model does not have.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = (),
        *,
        replica: tuple[int, int] = (0, 1),
    ) -> None:
        given = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)
        self.model, self.optimizers = model, given
        self._replica = replica
        self._local = [_local_optimizer(optimizer) for optimizer in given]
        self._tensors = _named_tensors(model)
        self._owner: dict[int, torch.optim.Optimizer] = {}
        for inner in self._local:
            for group in inner.param_groups:
                self._owner.update((id(p), inner) for p in group["params"])
        known = {id(t) for t in self._tensors.values()}
        foreign = sum(p not in known for p in self._owner)
        if foreign:
            raise CheckpointError(
                f"{foreign} parameters of the optimizer are not in the model; build the optimizer "
                f"from model.parameters() after wrapping (fully_shard, DDP)"
            )
        groups = (group for inner in self._local for group in inner.param_groups)
        self._fused = {id(p) for group in groups if group.get("fused") for p in group["params"]}
        self._sharded = any(a is not b for a, b in zip(given, self._local, strict=True))

    def shards(self) -> list[Shard]:
        """The local shards, each parameter with its moments; empty local shards are left out."""
        found: list[Shard] = []
        for fqn, tensor in self._tensors.items():
            optimizer = self._owner.get(id(tensor))
            if self._sharded and optimizer is None and isinstance(tensor, nn.Parameter):
                continue  # another rank owns this partition
            moments = optimizer.state.get(tensor, {}) if optimizer is not None else {}
            replica = (0, 1) if self._sharded and optimizer is not None else self._replica
            shard = _shard(fqn, tensor, moments, optimizer, replica)
            if id(tensor) in self._fused:
                shard = replace(shard, fused=True)
            if math.prod(shard.sizes):
                found += [shard, *_apart(shard, moments)]
        return found

    def fingerprint(self) -> int:
        """Number of parameters that have moments."""
        return sum(len(optimizer.state) for optimizer in self._local)

    def materialise(self) -> None:
        """Let torch create the moments (a step at learning rate 0) where there are none."""
        for inner in self._local:
            if not inner.state and any(group["params"] for group in inner.param_groups):
                _make_moments(self.model, inner)

    def settle(self, step_count: float) -> None:
        """Set the step count of parameters whose local shard is empty.

        Nothing is updated with it, but a state dictionary would save it in another rank's place.
        """
        for inner in self._local:
            for tensor, moments in inner.state.items():
                if local(tensor).numel() == 0 and isinstance(moments.get("step"), Tensor):
                    moments["step"].fill_(step_count)


def as_state(state: State | nn.Module | Mapping[str, Tensor]) -> State:
    """A module or a dictionary of tensors as a `State`; a `State` as it is."""
    if isinstance(state, nn.Module):
        return TrainingState(state)
    return TensorState(state) if isinstance(state, Mapping) else state


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lives on this rank, detached from autograd."""
    if isinstance(tensor, DTensor):
        return tensor._local_tensor.detach()
    return tensor.detach()


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32.

    Raises:
        CheckpointError: the type cannot be kept.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise CheckpointError(f"dtype {name} cannot be kept; it is one of {', '.join(DTYPE_BYTES)}")
    return name


def _make_moments(model: nn.Module, inner: torch.optim.Optimizer) -> None:
    if isinstance(model, nn.Module) and {id(p) for p in model.parameters()} >= {
        id(p) for group in inner.param_groups for p in group["params"]
    }:
        get_optimizer_state_dict(model, inner)


def _local_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    # ZeroRedundancyOptimizer keeps the optimizer of its own partition in `optim`.
    inner = getattr(optimizer, "optim", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's own parameter and buffer objects by canonical name; tied ones once."""
    live: dict[str, Tensor] = dict(model.named_parameters())
    live.update(model.named_buffers())
    by_place = {_place(t): t for t in live.values() if local(t).numel()}
    by_name = {_canonical(name): t for name, t in live.items()}
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for fqn, value in get_model_state_dict(model).items():
        if not isinstance(value, Tensor):
            continue
        tensor = by_place.get(_place(value)) if local(value).numel() else by_name.get(fqn)
        tensor = by_name.get(fqn, value) if tensor is None else tensor
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[fqn] = tensor
    return found


def _place(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    part = local(tensor)
    return (part.data_ptr(), tuple(part.shape))


def _canonical(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper).replace("." + wrapper, ".")
    return name


def _shard(
    fqn: str,
    tensor: Tensor,
    moments: Mapping[str, Any],
    optimizer: torch.optim.Optimizer | None,
    replica: tuple[int, int],
) -> Shard:
    part = local(tensor)
    sizes, offsets = tuple(part.shape), (0,) * part.dim()
    if isinstance(tensor, DTensor):
        expected, where = compute_local_shape_and_global_offset(
            tensor.shape, tensor.device_mesh, tensor.placements
        )
        if tuple(expected) != sizes:
            raise CheckpointError(
                f"{fqn}: its placements {tensor.placements} are not one box of the global tensor; "
                f"supported are Shard and Replicate over any mesh"
            )
        offsets, replica = tuple(where), _replica_of(tensor)
    components = [Component("param", dtype_name(part.dtype))]
    components += (c for c in map(_component, [part] * len(moments), moments.items()) if c)
    spec = TensorSpec(fqn, tuple(tensor.shape), tuple(components))
    return Shard(spec, offsets, sizes, replica, tensor, optimizer if moments else None)


def _component(part: Tensor, moment: tuple[str, Any]) -> Component | None:
    name, value = moment
    if isinstance(value, bool | int | float):
        return Component(name, "float64" if isinstance(value, float) else "int64", "number")
    if not isinstance(value, Tensor):
        return None
    own = local(value)
    if own.shape == part.shape:
        return Component(name, dtype_name(own.dtype))
    if own.numel() <= _WHOLE_LIMIT:
        return Component(name, dtype_name(own.dtype), "whole", tuple(own.shape))
    return None


def _apart(shard: Shard, moments: Mapping[str, Any]) -> Iterator[Shard]:
    kept = {component.name for component in shard.spec.components}
    for name, value in moments.items():
        if name in kept or not isinstance(value, Tensor):
            continue
        part = _shard(f"{shard.spec.fqn}#{name}", value, {}, None, shard.replica)
        yield Shard(
            part.spec,
            part.offsets,
            part.sizes,
            part.replica,
            shard.tensor,
            shard.optimizer,
            moment_name=name,
            fused=shard.fused,
        )


def _replica_of(tensor: DTensor) -> tuple[int, int]:
    index, count = 0, 1
    coordinate: Sequence[int] = tensor.device_mesh.get_coordinate() or ()
    for dim, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            size = tensor.device_mesh.size(dim)
            index, count = index * size + coordinate[dim], count * size
    return index, count
