"""What an optimizer is made of: those that it steps, and whether all it holds can be saved.

Containers and wrappers hold others in an attribute (torchtitan's `optimizers`, accelerate's
`optimizer`, SAM's `base_optimizer`) and may keep moments of their own next to theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

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
