"""The local shard of one parameter: its region of the global tensor, and access to its live values.

A tensor subclass that wraps others (`__tensor_flatten__`) is saved through its inner tensors: those
of its own shape are cut with it; with an inner tensor of another shape, such as a scale, all of it
is one block, so that codes are never paired with the scale of another step. Moments that are codes
with scales next to them, or factors of another basis, make their parameter one block as well.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import _get_fqns
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ettr.checkpoint.slots.layout import (
    DTYPE_BYTES,
    Component,
    Region,
    TensorSpec,
    region_of,
)
from ettr.checkpoint.slots.reader import Record
from ettr.checkpoint.tensors.objects import Stateful
from ettr.errors import CheckpointError

# -- the parameters and persistent buffers of a model: canonical names for the live objects --------
# Names are those of `torch.distributed.checkpoint.state_dict`, so that they are the same under DDP,
# FSDP2, torch.compile and no wrapper. A tensor is identified by its place in its module, never by
# its memory: tensor subclasses have none of their own, and buffers are replaced by assignment.


_EXTRA_STATE = "_extra_state"


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """The place of a live tensor: an entry of a module's parameters or buffers, or of a mapping."""

    holder: Mapping[str, Tensor | None]
    key: str
    fsdp: FsdpParameter | None = None

    @property
    def tensor(self) -> Tensor:
        """The tensor that lies there now; of FSDP2 the shard, also while the model computes."""
        if self.fsdp is not None:
            shard: Tensor = self.fsdp.sharded_param
            return shard
        tensor = self.holder[self.key]
        if tensor is None:
            raise CheckpointError(f"{self.key}: the tensor was taken out of the model")
        return tensor


def model_tensors(model: nn.Module) -> dict[str, TensorPlace]:
    """Canonical name -> place of every parameter and persistent buffer; tied ones once."""
    places: dict[str, TensorPlace] = {}
    taken: set[int] = set()
    sharded = fsdp_parameters(model)
    for raw_name, value in _raw_tensors(model).items():
        if raw_name.rpartition(".")[2] == _EXTRA_STATE:
            continue  # an object of its own: see `extra_states`
        name = _canonical(model, raw_name)
        if isinstance(value, UninitializedBuffer | UninitializedParameter):
            raise CheckpointError(
                f"{name} of a lazy module has no size yet; run one batch through the model before "
                f"the checkpoint is made, or the run resumed"
            )
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"{name}: a hook of the model's state dictionary added a {type(value).__name__}; "
                f"remove the hook, and give what it adds as an object with state_dict"
            )
        place = _place(model, raw_name)
        if place is None or place.tensor is not value:
            raise CheckpointError(
                f"{name}: a hook of the model's state dictionary made this tensor; it cannot be "
                f"restored in place. Remove the hook, or give TensorState the tensors to save"
            )
        if id(value) not in taken:
            taken.add(id(value))
            places[name] = replace(place, fsdp=sharded.get(id(value)))
    return places


def _raw_tensors(model: nn.Module) -> Mapping[str, Any]:
    """The state dictionary; without hooks where those of loading undo all that they do."""
    hooked = [module for module in model.modules() if module._state_dict_hooks]
    translated = [_is_translated(module) for module in hooked]
    if any(translated) and None not in translated:
        return _without_hooks(model)
    values: Mapping[str, Any] = model.state_dict(keep_vars=True)
    return values


def _without_hooks(model: nn.Module) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        prefix = f"{name}." if name else ""
        for prepare in module._state_dict_pre_hooks.values():  # FSDP2 puts its shards back
            prepare(module, prefix, True)  # type: ignore[arg-type]
        module._save_to_state_dict(values, prefix, keep_vars=True)
    return values


def _is_translated(module: nn.Module) -> bool | None:
    """Whether hooks put into the state dictionary what they took out, in other pieces."""
    before: dict[str, Any] = {
        name: torch.empty(value.shape, dtype=value.dtype, device="meta")
        for name, value in _without_hooks(module).items()
        if isinstance(value, Tensor)
    }
    after = dict(before)
    try:
        for hook in module._state_dict_hooks.values():
            result = hook(module, after, "", {})  # type: ignore[operator]
            if result is not None and not getattr(hook, "_from_public_api", False):
                after = result
    except Exception:  # of another project; the dictionary itself will say what is wrong
        return None
    put = [after[name] for name in after.keys() - before.keys()]
    kept = all(after[name] is before[name] for name in after.keys() & before.keys())
    if not kept or not all(isinstance(value, Tensor) for value in put):
        return None
    taken = sum(before[name].numel() for name in before.keys() - after.keys())
    if taken != sum(value.numel() for value in put) or (
        put and not module._load_state_dict_pre_hooks
    ):
        return None
    return bool(put)


@dataclass(frozen=True, slots=True)
class _ExtraState:
    """What a module keeps besides tensors, as an object with `state_dict`."""

    module: nn.Module

    def state_dict(self) -> dict[str, Any]:
        """What `get_extra_state` returns."""
        return {_EXTRA_STATE: self.module.get_extra_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Hand it to `set_extra_state`."""
        self.module.set_extra_state(state_dict[_EXTRA_STATE])


def extra_states(model: nn.Module) -> dict[str, Stateful]:
    """Name -> extra state of each module that has some (`get_extra_state`)."""
    return {
        f"{name}.{_EXTRA_STATE}" if name else _EXTRA_STATE: _ExtraState(module)
        for name, module in model.named_modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    }


def tensor_signature(model: nn.Module) -> tuple[object, ...]:
    """Changes when parameters appear, go, move or are replaced, or a type, size or device changes.

    A parametrization moves a parameter to another module. Buffers may be replaced at every step:
    their modules, names, types and sizes count. Computed at every round, so it does no more than
    it must.
    """
    signature: list[object] = []
    gathered: dict[int, Tensor] = {}
    modules = [model]
    while modules:
        module = modules.pop()
        modules += [child for child in module._modules.values() if child is not None]
        gathered |= shards_of_gathered(module)
        for name, held in module._parameters.items():
            if isinstance(held, UninitializedParameter):
                signature.append(id(held))
            elif held is not None:
                parameter = gathered.get(id(held), held)
                signature += (
                    id(module._parameters),
                    name,
                    id(parameter),
                    parameter.dtype,
                    parameter.numel(),
                    parameter.is_cuda,
                )
        for name, buffer in module._buffers.items():
            if buffer is None or name in module._non_persistent_buffers_set:
                continue
            if isinstance(buffer, UninitializedBuffer):
                signature.append(id(buffer))
            else:
                signature += (
                    id(module._buffers),
                    name,
                    buffer.dtype,
                    buffer.numel(),
                    buffer.is_cuda,
                )
    return tuple(signature)


def _canonical(model: nn.Module, raw_name: str) -> str:
    try:
        names: set[str] = _get_fqns(model, raw_name)
    except AttributeError:
        names = {raw_name}  # a hook has made it; who asks finds no place for it
    if len(names) != 1:
        raise CheckpointError(
            f"{raw_name}: FullyShardedDataParallel (FSDP1) flattens {len(names)} parameters into "
            f"one; use fully_shard (FSDP2)"
        )
    return next(iter(names))


def _place(model: nn.Module, raw_name: str) -> TensorPlace | None:
    prefix, _, key = raw_name.rpartition(".")
    try:
        module = model.get_submodule(prefix)
    except AttributeError:
        return None
    for holder in (module._parameters, module._buffers):
        if holder.get(key) is not None:
            return TensorPlace(holder, key)
    return None


# An object of FSDP2's that has the shard of one parameter as `sharded_param`.
FsdpParameter = Any


def fsdp_parameters(model: nn.Module) -> dict[int, FsdpParameter]:
    """Identity of each sharded parameter -> FSDP2's object that has it."""
    return {
        id(parameter.sharded_param): parameter
        for module in model.modules()
        for group in _groups(module)
        for parameter in group.fsdp_params
    }


def shards_of_gathered(module: nn.Module) -> dict[int, Tensor]:
    """Identity of each whole parameter that lies in a model now -> its shard.

    Only those that one `fully_shard` call manages, in this module and below.
    """
    shards: dict[int, Tensor] = {}
    for group in _groups(module):
        if group.is_sharded:
            continue
        for parameter in group.fsdp_params:
            info = parameter._module_info
            now = info.module._parameters.get(info.param_name)
            shards[id(now)] = parameter.sharded_param
    return shards


def _groups(module: nn.Module) -> Iterator[Any]:
    if not isinstance(module, FSDPModule):
        return
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # torch before 2.13 has one at most
        groups = [state._fsdp_param_group]
    yield from (group for group in groups if group is not None)


# -- the local shard of one parameter: its region of the global tensor, and access to its live
# values


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


# -- regions of tensors: of a shard's local tensors, and of the bytes of a record ------------------


_SMALL_ELEMENTS = 64  # below, the detour costs more than the copy


def copy_in_this_thread(target: Tensor, source: Tensor) -> None:
    """Copy without torch's pool of threads where that is possible.

    Blocks are of a size at which torch would use its pool for each of them; on a machine whose
    cores are busy that wait costs several times the copy.
    """
    alike = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
    if not alike or target.is_cuda or source.is_cuda or target.numel() <= _SMALL_ELEMENTS:
        target.copy_(source)
        return
    flat_bytes(target).numpy()[:] = flat_bytes(source).numpy()


def flat_bytes(tensor: Tensor) -> Tensor:
    """View a contiguous tensor as its bytes; one of a single element may have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def local_view(tensor: Tensor, shard: Shard, region: Region) -> Tensor:
    """A global region of a shard's local tensor, as a view."""
    return region_view(tensor, shard.offsets, region)


def region_view(tensor: Tensor, offsets: tuple[int, ...], region: Region) -> Tensor:
    """A global region of a tensor that begins at these global offsets, as a view."""
    for dim, (begin, end) in enumerate(region):
        if end - begin != tensor.shape[dim]:
            tensor = tensor.narrow(dim, begin - offsets[dim], end - begin)
    return tensor


def as_tensor(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes as a tensor that shares their memory."""
    torch_dtype: torch.dtype = getattr(torch, dtype)
    if not math.prod(shape):
        return torch.empty(shape, dtype=torch_dtype)
    return torch.frombuffer(data, dtype=torch_dtype, count=math.prod(shape)).view(shape)


def pack_number(component: Component, into: memoryview, offset: int, value: float) -> None:
    """Write the bytes of a component that is a Python number."""
    struct.pack_into(_number_code(component), into, offset, value)


def unpack_number(component: Component, data: memoryview) -> float:
    """A component that is a Python number, from its bytes."""
    value: float = struct.unpack(_number_code(component), data)[0]
    return value


def _number_code(component: Component) -> str:
    return "<d" if component.dtype == "float64" else "<q"


def stored_parameter(record: Record, payload: memoryview, region: Region) -> Tensor:
    """A global region of the parameter in a record."""
    layout = record.file.superblock.layout
    component, at, n_bytes = next(iter(layout.components(record.block)))
    _, offsets, sizes = layout.key(record.block)
    stored = as_tensor(payload[at : at + n_bytes], component.dtype, sizes)
    return region_view(stored, offsets, region)
