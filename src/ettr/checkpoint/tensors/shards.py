"""The local shard of one parameter: its region of the global tensor, and access to its live values.

A tensor subclass that wraps others (`__tensor_flatten__`) is saved through its inner tensors: those
of its own shape are cut with it; with an inner tensor of another shape, such as a scale, all of it
is one block, so that codes are never paired with the scale of another step. Moments that are codes
with scales next to them, or factors of another basis, make their parameter one block as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.layout import DTYPE_BYTES, Component, Region, TensorSpec, region_of
from ettr.checkpoint.tensors.model_tensors import TensorPlace

PARAM = "param"
FACTOR = "#"  # between a parameter and a moment of it that has blocks of its own
UNCOUNTED = -3  # instead of a version: changes of this tensor are not counted
# A moment of another shape than its parameter is saved with every block up to this size; above it,
# it is saved as a tensor with blocks of its own (Adafactor's row and column factors).
_WHOLE_LIMIT_ELEMENTS = 1024


@dataclass(frozen=True, slots=True)
class _ValuePath:
    """The way to a value: PARAM or an optimizer's key, then attributes of subclasses.

    holder: which of the shard's optimizers has it.
    """

    key: str
    inner: tuple[str, ...] = ()
    holder: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """The local part of one parameter: its global region, and access to its live values.

    Attributes:
        replica: (index, count) of identical copies.
        optimizers: Those that hold moments of it; they may not have made them yet.
    """

    spec: TensorSpec
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    replica: tuple[int, int]
    place: TensorPlace
    optimizers: Sequence[torch.optim.Optimizer] = ()
    counted: bool = True  # whether its optimizer's updates count as versions
    uncut: bool = False
    paths: Mapping[str, _ValuePath] = field(default_factory=dict)

    @property
    def tensor(self) -> Tensor:
        """The live parameter, as the model holds it."""
        return self.place.tensor

    @property
    def region(self) -> Region:
        """Its region of the global tensor."""
        return region_of(self.offsets, self.sizes)

    @property
    def is_parameter(self) -> bool:
        """Whether it is a parameter or buffer, rather than a moment with blocks of its own."""
        return self.paths[PARAM].key == PARAM

    def value(self, name: str) -> Tensor | float:
        """The live local tensor (or the Python number) of one component."""
        path, tensor = self.paths[name], self.place.tensor
        if path.key == PARAM:
            return _inner(local_tensor(tensor), path.inner)
        value: Tensor | float = self.optimizers[path.holder].state[tensor][path.key]
        return _inner(local_tensor(value), path.inner) if isinstance(value, Tensor) else value

    def tensor_value(self, name: str) -> Tensor:
        """The live local tensor of one component."""
        value = self.value(name)
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{self.spec.fqn}: {name} is a number and was saved as a tensor")
        return value

    @property
    def parameter(self) -> Tensor:
        """The live local tensor of the parameter itself; of a subclass, its first inner tensor."""
        return self.tensor_value(PARAM)

    def set_number(self, name: str, value: float) -> None:
        """Set a component that is a Python number."""
        path = self.paths[name]
        moments = self.optimizers[path.holder].state[self.place.tensor]
        moments[path.key] = type(moments[path.key])(value)

    def holders(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Each moment, with the class of the optimizer that keeps it and its key there."""
        for name, path in self.paths.items():
            if path.key != PARAM and not path.inner:
                moment = self.spec.fqn.rpartition(FACTOR)[2] if name == PARAM else name
                yield moment, (type(self.optimizers[path.holder]).__name__, path.key)

    def create(self, component: Component, holders: Sequence[tuple[str, str]]) -> bool:
        """Make a moment that is not there, for a restore; returns whether it was made."""
        tensor = self.place.tensor
        for optimizer in self.optimizers:
            key = dict(holders).get(type(optimizer).__name__)
            moments = optimizer.state[tensor] if key is not None else {}
            if key is None or key in moments:
                continue
            dtype = getattr(torch, component.dtype)
            if component.kind == "sliced":
                moments[key] = torch.zeros_like(tensor, dtype=dtype, requires_grad=False)
            elif component.kind == "number":
                moments[key] = 0.0 if dtype.is_floating_point else 0
            else:
                device = "cpu" if key == "step" else self.parameter.device
                moments[key] = torch.zeros(component.shape, dtype=dtype, device=device)
            return True
        return False

    def version(self) -> int:
        """Grows with every in-place change of the parameter or of a moment; or `UNCOUNTED`."""
        tensor = self.place.tensor
        updated_unseen = tensor.requires_grad and not self.counted
        if updated_unseen or any(p.inner for p in self.paths.values()):
            return UNCOUNTED
        held = (optimizer.state.get(tensor, {}) for optimizer in self.optimizers)
        tensors = [v for moments in held for v in moments.values() if isinstance(v, Tensor)]
        return int(tensor._version + sum(value._version for value in tensors))


@dataclass(frozen=True, slots=True)
class ShardOwner:
    """The optimizers with moments of a parameter, and how its plain copies are shared out.

    replica: (index, count) among identical copies of a tensor that is no DTensor.
    counted: whether the optimizer's updates count as versions; see `counts_versions`.
    """

    optimizers: Sequence[torch.optim.Optimizer] = ()
    replica: tuple[int, int] = (0, 1)
    counted: bool = True


def counts_versions(
    optimizer: torch.optim.Optimizer, group: Mapping[str, object], parameter: Tensor
) -> bool:
    """Whether every update of a parameter raises its version counter.

    Fused kernels raise none. Kernels for lists of tensors (`foreach`) raise none of a DTensor;
    optimizers of others may use those without an option that says so.
    """
    if group.get("fused"):
        return False
    if not isinstance(parameter, DTensor):
        return True
    return not group.get("foreach") and type(optimizer).__module__.startswith("torch.optim")


def shards_of(fqn: str, place: TensorPlace, owner: ShardOwner) -> list[Shard]:
    """The shard of one tensor with its moments, and shards of moments that have their own blocks.

    An empty local part gives none.
    """
    tensor = place.tensor
    leaves = list(_leaves(fqn, PARAM, local_tensor(tensor)))
    primary = leaves[0].tensor
    builder = _Builder(fqn, tuple(primary.shape), isinstance(tensor, DTensor))
    for leaf in leaves:
        builder.add(_ValuePath(PARAM), leaf)
    factors: dict[str, tuple[_ValuePath, Tensor]] = {}
    moments = _moments(owner.optimizers, tensor)
    together = _belong_together(moments, primary)
    for name, (path, value) in moments.items():
        if isinstance(value, bool | int | float):
            builder.add_number(name, path, value)
        elif not isinstance(value, Tensor):
            raise CheckpointError(
                f"{fqn}: the optimizer keeps {name} as a {type(value).__name__}; tensors and "
                f"numbers can be saved. Use another optimizer, or a full checkpoint"
            )
        elif not together and _has_own_blocks(value, primary):
            factors[name] = path, value
        else:
            for leaf in _leaves(f"{fqn}: {name}", name, local_tensor(value)):
                builder.add(path, leaf)
    shard = builder.shard(place, owner, uncut=together)
    if not math.prod(shard.sizes):
        return []
    return [
        shard,
        *(f for name, of_name in factors.items() for f in _factor(shard, name, *of_name)),
    ]


def _moments(
    optimizers: Sequence[torch.optim.Optimizer], tensor: Tensor
) -> dict[str, tuple[_ValuePath, object]]:
    """The moments of a parameter by name; where two optimizers use a key, with the class of one."""
    moments: dict[str, tuple[_ValuePath, object]] = {}
    for holder, optimizer in enumerate(optimizers):
        for key, value in optimizer.state.get(tensor, {}).items():
            if value is not None:
                name = f"{type(optimizer).__name__}/{key}" if key in moments else key
                moments[name] = _ValuePath(key, holder=holder), value
    return moments


def local_tensor(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds, detached from autograd."""
    if isinstance(tensor, DTensor):
        return tensor._local_tensor.detach()
    return tensor.detach()


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise CheckpointError(
            f"dtype {name} cannot be saved; it is one of {', '.join(DTYPE_BYTES)}"
        )
    return name


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A plain tensor within a value: its component's name, and the attributes that lead to it."""

    name: str
    inner: tuple[str, ...]
    tensor: Tensor


def _leaves(where: str, name: str, value: Tensor) -> Iterator[_Leaf]:
    """The plain tensors of a value, those of its own shape first; the first takes its name."""
    if not is_traceable_wrapper_subclass(value):
        _check_bytes(where, value)
        yield _Leaf(name, (), value)
        return
    attributes, _ = value.__tensor_flatten__()
    inner = {attribute: getattr(value, attribute) for attribute in attributes}
    in_order = sorted(inner, key=lambda attribute: inner[attribute].shape != value.shape)
    for number, attribute in enumerate(in_order):
        own_name = name if number == 0 else f"{name}.{attribute}"
        for leaf in _leaves(f"{where}.{attribute}", own_name, inner[attribute].detach()):
            yield _Leaf(leaf.name, (attribute, *leaf.inner), leaf.tensor)


def _check_bytes(where: str, tensor: Tensor) -> None:
    if tensor.is_meta:
        raise CheckpointError(
            f"{where} is on the meta device and has no values; call to_empty() and initialise the "
            f"model, or restore into it after to_empty()"
        )
    reachable = tensor.layout is torch.strided and not tensor.is_quantized
    reachable = reachable and not tensor.is_neg() and not tensor.is_conj()
    if reachable and tensor.numel():
        try:
            reachable = tensor.data_ptr() != 0
        except RuntimeError:
            reachable = False
    if not reachable:
        raise CheckpointError(
            f"{where} is a {type(tensor).__name__} ({tensor.layout}) whose bytes cannot be "
            f"reached; plain tensors, DTensors and subclasses with __tensor_flatten__ can be saved"
        )


def _inner(tensor: Tensor, attributes: tuple[str, ...]) -> Tensor:
    for attribute in attributes:
        tensor = getattr(tensor, attribute)
    return tensor.detach() if attributes else tensor


def _belong_together(moments: Mapping[str, tuple[_ValuePath, object]], primary: Tensor) -> bool:
    """Whether a block of some moments is worth nothing without the others of the same step."""
    tensors = [local_tensor(value) for _, value in moments.values() if isinstance(value, Tensor)]
    tensors = [t for t in tensors if t.numel() > 1 and not is_traceable_wrapper_subclass(t)]
    others = [t for t in tensors if t.shape != primary.shape]
    coded = any(
        t.element_size() == 1 or not (t.is_floating_point() or t.is_complex()) for t in tensors
    )
    return bool(others) and (coded or not all(_is_mean(t, primary) for t in others))


def _is_mean(moment: Tensor, primary: Tensor) -> bool:
    dims = iter(primary.shape)
    return all(length in dims for length in moment.shape if length != 1)


def former_factors(shards: Sequence[Shard], saved: Iterable[str]) -> list[Shard]:
    """The places of moments that files of before have as tensors with blocks of their own."""
    of_name = {shard.spec.fqn: shard for shard in shards}
    found = []
    for name in saved:
        fqn, _, factor = name.partition(FACTOR)
        if not factor or name in of_name or fqn not in of_name:
            continue
        shard = of_name[fqn]
        for component in shard.spec.components:
            if component.name == factor and component.kind == "whole":
                spec = TensorSpec(name, component.shape, (Component(PARAM, component.dtype),))
                origin, paths = (0,) * len(component.shape), {PARAM: shard.paths[factor]}
                found.append(
                    replace(shard, spec=spec, offsets=origin, sizes=component.shape, paths=paths)
                )
    return found


def _has_own_blocks(moment: Tensor, primary: Tensor) -> bool:
    local = local_tensor(moment)
    if local.shape == primary.shape or is_traceable_wrapper_subclass(local):
        return False
    return bool(local.numel() > _WHOLE_LIMIT_ELEMENTS)


class _Builder:
    """Collects the components of one shard."""

    def __init__(self, fqn: str, sizes: tuple[int, ...], distributed: bool) -> None:
        self._fqn, self._sizes, self._distributed = fqn, sizes, distributed
        self._components: list[Component] = []
        self._paths: dict[str, _ValuePath] = {}
        self._uncut = False

    def add(self, path: _ValuePath, leaf: _Leaf) -> None:
        """Add a tensor: cut with the parameter if it has its shape, otherwise with every block."""
        shape, dtype = tuple(leaf.tensor.shape), dtype_name(leaf.tensor.dtype)
        self._paths[leaf.name] = replace(path, inner=leaf.inner)
        if shape == self._sizes:
            self._components.append(Component(leaf.name, dtype))
            return
        if leaf.inner and leaf.tensor.numel():
            # A scale belongs to the codes it was saved with.
            if self._distributed:
                raise CheckpointError(
                    f"{self._fqn}: {leaf.name} has shape {list(shape)} within a sharded tensor of "
                    f"local shape {list(self._sizes)}; such subclasses can be saved unsharded only"
                )
            self._uncut = True
        self._components.append(Component(leaf.name, dtype, "whole", shape))

    def add_number(self, name: str, path: _ValuePath, value: float) -> None:
        """Add a Python number."""
        self._paths[name] = path
        dtype = "float64" if isinstance(value, float) else "int64"
        self._components.append(Component(name, dtype, "number"))

    def shard(self, place: TensorPlace, owner: ShardOwner, *, uncut: bool) -> Shard:
        """The shard with these components."""
        tensor = place.tensor
        shape, offsets, replica = self._sizes, (0,) * len(self._sizes), owner.replica
        if isinstance(tensor, DTensor):
            shape, replica = tuple(tensor.shape), _replica(tensor)
            offsets = _offsets(self._fqn, tensor, self._sizes)
        spec = TensorSpec(self._fqn, shape, tuple(self._components))
        return Shard(
            spec,
            offsets,
            self._sizes,
            replica,
            place,
            optimizers=owner.optimizers,
            counted=owner.counted,
            uncut=self._uncut or uncut,
            paths=self._paths,
        )


def _factor(shard: Shard, name: str, path: _ValuePath, moment: Tensor) -> Iterator[Shard]:
    """A moment that is saved as a tensor with blocks of its own; none where it is empty here."""
    fqn = f"{shard.spec.fqn}{FACTOR}{name}"
    place = TensorPlace({name: moment}, name)
    for factor in shards_of(fqn, place, ShardOwner(replica=shard.replica)):
        yield replace(
            factor,
            place=shard.place,
            optimizers=shard.optimizers,
            counted=shard.counted,
            paths={PARAM: path},
        )


def _offsets(fqn: str, tensor: DTensor, sizes: tuple[int, ...]) -> tuple[int, ...]:
    expected, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    if tuple(expected) != sizes:
        raise CheckpointError(
            f"{fqn}: its placements {tensor.placements} are not one region of the global tensor; "
            f"supported are Shard and Replicate over any mesh"
        )
    return tuple(offsets)


def _replica(tensor: DTensor) -> tuple[int, int]:
    index, count = 0, 1
    coordinate: Sequence[int] = tensor.device_mesh.get_coordinate() or ()
    for dim, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            size = tensor.device_mesh.size(dim)
            index, count = index * size + coordinate[dim], count * size
    return index, count
