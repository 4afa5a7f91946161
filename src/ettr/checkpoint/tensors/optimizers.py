"""What an optimizer is made of: those that it steps, and whether all it holds can be saved.

Containers and wrappers hold others in an attribute (torchtitan's `optimizers`, accelerate's
`optimizer`, SAM's `base_optimizer`) and may keep moments of their own next to theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ettr.errors import CheckpointError

_ZERO = "ZeroRedundancyOptimizer"


def is_optimizer(one: object) -> TypeGuard[torch.optim.Optimizer]:
    """Whether it is one, or steps one and is in its form without being of the class."""
    form = all(hasattr(one, name) for name in ("step", "state", "param_groups"))
    return isinstance(one, torch.optim.Optimizer) or (form and next(_inner(one), None) is not None)


def is_partitioned(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is a `ZeroRedundancyOptimizer`, which steps the partition of this rank."""
    return any(base.__name__ == _ZERO for base in type(optimizer).__mro__)


def parts_of(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """The optimizers that hold the moments: those it steps, innermost first, then itself.

    One that only hands on the state of another is no part.
    """
    if is_partitioned(optimizer):
        return [optimizer.optim]  # type: ignore[attr-defined]
    parts: list[torch.optim.Optimizer] = []
    for inner in _inner(optimizer):
        parts += [one for one in parts_of(inner) if one not in parts]
    if all(optimizer.state is not one.state for one in parts):
        parts.append(optimizer)
    return parts


def steps_others(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step is that of optimizers within it."""
    return next(_inner(optimizer), None) is not None


def _inner(optimizer: object) -> Iterator[torch.optim.Optimizer]:
    for name, value in getattr(optimizer, "__dict__", {}).items():
        if name in ("state", "param_groups", "defaults"):
            continue
        held: Iterable[object] = (value,)
        if isinstance(value, Mapping):
            held = value.values()
        elif isinstance(value, list | tuple):
            held = value
        for one in held:
            if isinstance(one, torch.optim.Optimizer) and one is not optimizer:
                yield one


def counted_numbers(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """What it keeps in numbers of its own: steps counted, whether it trains or evaluates.

    Those of `ZeroRedundancyOptimizer` are its rank and the size of the world, known at each start.
    """
    if is_partitioned(optimizer):
        return {}
    return {
        name: value
        for name, value in vars(optimizer).items()
        if isinstance(value, int | float) and not name.startswith("_")
    }


class GroupOptions(MutableMapping[str, Any]):
    """The options of a parameter group, and the numbers of optimizers as `.<class>.<attribute>`."""

    def __init__(self, group: dict[str, Any], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._group = group
        self._numbers = {
            f".{type(one).__name__}.{name}": (one, name)
            for one in optimizers
            for name in counted_numbers(one)
        }

    def __getitem__(self, key: str) -> Any:
        if key in self._numbers:
            return getattr(*self._numbers[key])
        return self._group[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._numbers:
            setattr(*self._numbers[key], value)
        else:
            self._group[key] = value

    def __delitem__(self, key: str) -> None:
        del self._group[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._group
        yield from self._numbers

    def __len__(self) -> int:
        return len(self._group) + len(self._numbers)


def hides_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its state dictionary is not that of its class's `state` alone."""
    return type(optimizer).state_dict is not torch.optim.Optimizer.state_dict


def saved_whole(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its state dictionary is saved as an object: its state is not that of parameters."""
    return isinstance(optimizer, torch.optim.LBFGS) or bool(unsaved_state(optimizer))


def unsaved_state(optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of what its state dictionary holds and is no moment or option of a parameter.

    Looked for where the class has a `state_dict` of its own, or steps other optimizers; a
    `ZeroRedundancyOptimizer` has one on one rank only, and is known.
    """
    if is_partitioned(optimizer):
        return []
    parts = parts_of(optimizer)
    foreign = [
        f"state of {key!r}" for one in parts for key in one.state if not isinstance(key, Tensor)
    ]
    if not hides_state(optimizer):
        return foreign
    try:
        held = optimizer.state_dict()
    except Exception as error:  # of another project
        return [*foreign, f"its state_dict ({error!r})"]
    known, names = _known(parts)
    for path, value in _leaves(held, ()):
        if isinstance(value, Tensor) and value.numel() > 1:
            if _address(value) not in known:
                foreign.append(".".join(map(str, path)))
        elif isinstance(value, Tensor | int | float) and not names & {
            part for key in path for part in (key, *str(key).split("."))
        }:
            foreign.append(".".join(map(str, path)))
    return foreign


def _known(parts: Iterable[torch.optim.Optimizer]) -> tuple[set[object], set[object]]:
    """Addresses of the tensors that are saved, and names of what is."""
    addresses: set[object] = set()
    names: set[object] = {"params"}
    for one in parts:
        for group in one.param_groups:
            names |= group.keys()
            addresses |= {_address(value) for _, value in _leaves(group, ())}
        for moments in one.state.values():
            if isinstance(moments, Mapping):
                names |= moments.keys()
                addresses |= {_address(value) for _, value in _leaves(moments, ())}
    return addresses, names


def _leaves(value: object, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], object]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _leaves(one, (*path, number))
    else:
        yield path, value


def _address(value: object) -> object:
    if not isinstance(value, Tensor):
        return None
    local = value._local_tensor if isinstance(value, DTensor) else value
    try:
        return local.data_ptr() or id(value)
    except RuntimeError:  # a subclass without memory of its own
        return id(value)


# -- The moments of an optimizer: when they have changed, and creating them before a restore ------

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


def moments_signature(optimizer: torch.optim.Optimizer) -> int:
    """Changes when a moment appears, goes, or changes its type or size.

    An optimizer may add one to what it holds of a parameter already, or fill an entry that was
    made empty. Computed at every round.
    """
    signature: list[object] = []
    for entry in optimizer.state.values():
        if not isinstance(entry, Mapping):
            continue  # of no parameter
        signature.append(len(entry))
        for key, value in entry.items():
            tensor = isinstance(value, Tensor)
            signature += (key, value.dtype, value.numel()) if tensor else (key, type(value))
    return hash(tuple(signature))


def create_moments(optimizer: torch.optim.Optimizer) -> None:
    """Create the moments of the parameters that have none, by a step at learning rate 0.

    Parameters, gradients, learning rates and existing moments stay as they are, and no hook of the
    optimizer runs. Parameters that are not trained get none.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    without = [p for p in parameters if p.requires_grad and not optimizer.state.get(p)]
    if not without:
        return
    stateful = {id(p) for p in without}
    gradients = {id(p): p.grad for p in parameters}
    try:
        with _learning_rates_at_zero(optimizer), _without_hooks(optimizer):
            for parameter in parameters:
                fresh = id(parameter) in stateful
                parameter.grad = torch.zeros_like(parameter) if fresh else None
            type(optimizer).step(optimizer)
    except Exception as error:
        raise CheckpointError(
            f"{type(optimizer).__name__} could not create its moments by a step without gradients "
            f"({error!r}); take one step of training before the restore"
        ) from error
    finally:
        for parameter in parameters:
            parameter.grad = gradients[id(parameter)]


@contextmanager
def _learning_rates_at_zero(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put back rates, other options, and what the optimizer counts in attributes."""
    before = [dict(group) for group in optimizer.param_groups]
    values = [{k: v.clone() for k, v in g.items() if isinstance(v, Tensor)} for g in before]
    counts = {k: v for k, v in vars(optimizer).items() if isinstance(v, int | float)}
    try:
        for group in optimizer.param_groups:
            if (rate := group.get("lr")) is not None:
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, Tensor) else 0.0
        yield
    finally:
        for group, options, tensors in zip(optimizer.param_groups, before, values, strict=True):
            group.update(options)
            for key, value in tensors.items():
                with torch.no_grad():
                    group[key].copy_(value)
        vars(optimizer).update(counts)


@contextmanager
def _without_hooks(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    holders: list[tuple[object, str]] = [(optimizer, name) for name in _HOOKS]
    module = import_module("torch.optim.optimizer")  # torch.optim hides its name
    holders += [(module, name) for name in _GLOBAL_HOOKS]
    hooks = [(holder, name, getattr(holder, name)) for holder, name in holders]
    try:
        for holder, name, _ in hooks:
            setattr(holder, name, OrderedDict())
        yield
    finally:
        for holder, name, registered in hooks:
            setattr(holder, name, registered)
