"""The tensors of a training run as the checkpoint sees them: local shards with global coordinates.

Names come from `torch.distributed.checkpoint.state_dict`, so that they are the same under DDP,
FSDP2 and no wrapper. Moments are looked up in the optimizer each time, never held: an optimizer may
replace them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.layout import DTYPE_BYTES, Component, TensorSpec
from ettr.checkpoint.regions import Region, region_of

Moments: TypeAlias = Mapping[str, object]  # an optimizer's state of one parameter

# A moment of another shape than its parameter is saved with every block up to this size; above it,
# it is saved as a tensor with blocks of its own (Adafactor's row and column factors).
_WHOLE_LIMIT_ELEMENTS = 1024
UNCOUNTED = -3  # instead of a version: changes of this tensor are not counted
_WRAPPERS = ("module.", "_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


@dataclass(frozen=True, slots=True)
class Shard:
    """The local part of one parameter: its global region, and access to its live values."""

    spec: TensorSpec
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    replica: tuple[int, int]
    tensor: Tensor
    optimizer: torch.optim.Optimizer | None = None
    moment_name: str = ""  # set where the shard is itself one moment of `tensor`
    fused: bool = False  # torch's fused kernels change plain tensors and count no version

    @property
    def region(self) -> Region:
        """Its region of the global tensor."""
        return region_of(self.offsets, self.sizes)

    def value(self, name: str) -> Tensor | float:
        """The live local tensor (or the Python number) of one component."""
        if self.optimizer is None or (name == "param" and not self.moment_name):
            return local_tensor(self.tensor)
        value: Tensor | float = self.optimizer.state[self.tensor][self.moment_name or name]
        return local_tensor(value) if isinstance(value, Tensor) else value

    def tensor_value(self, name: str) -> Tensor:
        """The live local tensor of one component.

        Raises:
            CheckpointError: it is a Python number.
        """
        value = self.value(name)
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{self.spec.fqn}: {name} is a number and was saved as a tensor")
        return value

    @property
    def parameter(self) -> Tensor:
        """The live local tensor of the parameter itself."""
        return self.tensor_value("param")

    def set_number(self, name: str, value: float) -> None:
        """Set a component that is a Python number."""
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
        """A number that changes when moments have appeared or gone: the slot is planned again."""

    def materialise(self) -> None:
        """Make the optimizer create its moments, so that they can be restored into."""

    def set_step_of_empty_shards(self, step_count: float) -> None:
        """Set the step count of parameters of which this rank holds no element."""


class TensorState:
    """A dictionary of tensors or DTensors without an optimizer."""

    def __init__(self, tensors: Mapping[str, Tensor], *, replica: tuple[int, int] = (0, 1)) -> None:
        self._tensors, self._replica = dict(tensors), replica

    def shards(self) -> list[Shard]:
        """One shard per tensor."""
        return [_shard(fqn, t, {}, None, self._replica) for fqn, t in self._tensors.items()]

    def fingerprint(self) -> int:
        """Constant."""
        return len(self._tensors)

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
        CheckpointError: an optimizer holds a parameter that the model does not have.
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
        self._tensors = _named_tensors(model)
        self._owner: dict[int, torch.optim.Optimizer] = {}
        for inner in self._local:
            for group in inner.param_groups:
                self._owner.update((id(p), inner) for p in group["params"])
        of_model = {id(t) for t in self._tensors.values()}
        foreign = sum(p not in of_model for p in self._owner)
        if foreign:
            raise CheckpointError(
                f"{foreign} parameters of the optimizer are not in the model; build the optimizer "
                f"from model.parameters() after wrapping (fully_shard, DDP)"
            )
        groups = (group for inner in self._local for group in inner.param_groups)
        self._fused = {id(p) for group in groups if group.get("fused") for p in group["params"]}
        both = zip(self.optimizers, self._local, strict=True)
        self._partitioned = any(given is not inner for given, inner in both)

    def shards(self) -> list[Shard]:
        """The local shards, each parameter with its moments; empty local shards are left out."""
        shards: list[Shard] = []
        for fqn, tensor in self._tensors.items():
            optimizer = self._owner.get(id(tensor))
            if self._partitioned and optimizer is None and isinstance(tensor, nn.Parameter):
                continue  # another rank owns this partition
            moments = optimizer.state.get(tensor, {}) if optimizer is not None else {}
            replica = (0, 1) if self._partitioned and optimizer is not None else self._replica
            shard = _shard(fqn, tensor, moments, optimizer, replica)
            if id(tensor) in self._fused:
                shard = replace(shard, fused=True)
            if math.prod(shard.sizes):
                shards += [shard, *_factors(shard, moments)]
        return shards

    def fingerprint(self) -> int:
        """Number of parameters that have moments."""
        return sum(len(optimizer.state) for optimizer in self._local)

    def materialise(self) -> None:
        """Let torch create the moments (a step at learning rate 0) where it has not."""
        for inner in self._local:
            if not inner.state and any(group["params"] for group in inner.param_groups):
                _make_moments(self.model, inner)

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


def local_tensor(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds, detached from autograd."""
    if isinstance(tensor, DTensor):
        return tensor._local_tensor.detach()
    return tensor.detach()


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32.

    Raises:
        CheckpointError: the type cannot be saved.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise CheckpointError(
            f"dtype {name} cannot be saved; it is one of {', '.join(DTYPE_BYTES)}"
        )
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
    by_memory = {_memory(t): t for t in live.values() if local_tensor(t).numel()}
    by_name = {_canonical(name): t for name, t in live.items()}
    named: dict[str, Tensor] = {}
    taken: set[int] = set()
    for fqn, value in get_model_state_dict(model).items():
        if not isinstance(value, Tensor):
            continue
        tensor = by_memory.get(_memory(value)) if local_tensor(value).numel() else by_name.get(fqn)
        tensor = by_name.get(fqn, value) if tensor is None else tensor
        if id(tensor) not in taken:
            taken.add(id(tensor))
            named[fqn] = tensor
    return named


def _memory(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    own = local_tensor(tensor)
    return (own.data_ptr(), tuple(own.shape))


def _canonical(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper).replace("." + wrapper, ".")
    return name


def _shard(
    fqn: str,
    tensor: Tensor,
    moments: Moments,
    optimizer: torch.optim.Optimizer | None,
    replica: tuple[int, int],
) -> Shard:
    own = local_tensor(tensor)
    sizes, offsets = tuple(own.shape), (0,) * own.dim()
    if isinstance(tensor, DTensor):
        expected, begins = compute_local_shape_and_global_offset(
            tensor.shape, tensor.device_mesh, tensor.placements
        )
        if tuple(expected) != sizes:
            raise CheckpointError(
                f"{fqn}: its placements {tensor.placements} are not one region of the global "
                f"tensor; supported are Shard and Replicate over any mesh"
            )
        offsets, replica = tuple(begins), _replica_of(tensor)
    components = [Component("param", dtype_name(own.dtype))]
    of_moments = (_component(name, value, own.shape) for name, value in moments.items())
    components += (component for component in of_moments if component is not None)
    spec = TensorSpec(fqn, tuple(tensor.shape), tuple(components))
    return Shard(spec, offsets, sizes, replica, tensor, optimizer if moments else None)


def _component(name: str, value: object, shape: torch.Size) -> Component | None:
    if isinstance(value, bool | int | float):
        return Component(name, "float64" if isinstance(value, float) else "int64", "number")
    if not isinstance(value, Tensor):
        return None
    own = local_tensor(value)
    if own.shape == shape:
        return Component(name, dtype_name(own.dtype))
    if own.numel() <= _WHOLE_LIMIT_ELEMENTS:
        return Component(name, dtype_name(own.dtype), "whole", tuple(own.shape))
    return None


def _factors(shard: Shard, moments: Moments) -> Iterator[Shard]:
    """Moments that are saved as tensors with blocks of their own."""
    components = {component.name for component in shard.spec.components}
    for name, value in moments.items():
        if name in components or not isinstance(value, Tensor):
            continue
        factor = _shard(f"{shard.spec.fqn}#{name}", value, {}, None, shard.replica)
        yield replace(
            factor,
            tensor=shard.tensor,
            optimizer=shard.optimizer,
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
