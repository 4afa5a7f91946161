"""The moments of an optimizer: when they have changed, and creating them before a restore."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

import torch
from torch import Tensor

from ettr.checkpoint.errors import CheckpointError

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
