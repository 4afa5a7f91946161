"""The parameters and persistent buffers of a model: canonical names for the live objects.

Names are those of `torch.distributed.checkpoint.state_dict`, so that they are the same under DDP,
FSDP2, torch.compile and no wrapper. A tensor is identified by its place in its module, never by its
memory: tensor subclasses have none of their own, and buffers are replaced by assignment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import _get_fqns
from torch.distributed.fsdp import FSDPModule
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.tensors.objects import Stateful

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
