"""The sharded parameters of FSDP2, which a model does not show while it computes.

From a forward pass to the end of the backward one (of the root module, after an evaluation too) the
whole parameters lie in the modules, in the type of computing and in memory that is freed at any
moment. What is trained, and what the optimizer knows, is the shard.

FSDP2 has no public name for it. Its `model.state_dict()` and `reshard()` put the shards back, but
on this rank alone: its next step would gather them again, and not where a round was skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

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
