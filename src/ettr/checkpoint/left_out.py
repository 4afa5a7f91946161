"""What a training loop keeps outside of its checkpoint, where that can be seen: it is warned of.

A checkpoint holds what it was given. A scheduler that was not given begins again at step 0 after a
resume, and gradients that wait for an update are in no checkpoint.
"""

from __future__ import annotations

import logging

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ettr.checkpoint.state import State, TrainingState
from ettr.checkpoint.tensors.rng import RandomStates
from ettr.checkpoint.tensors.shards import counts_versions

_LOG = logging.getLogger("ettr.checkpoint")


def warn_of_left_out(state: State, step: int) -> None:
    """Warn, at a resume, of a scheduler or of random states that are no part of the state."""
    if not isinstance(state, TrainingState) or not state.whole_run or not step:
        return
    objects = state.objects()
    if not any(_is_random(name, one) for name, one in objects.items()):
        _LOG.warning(
            "the dictionary of the checkpoint holds no random states, and nothing else "
            "that it does not name, such as a loader: dropout and the order of the data "
            'will differ from the unbroken run; add "random": RandomStates(), and the '
            "loader if it has a state_dict"
        )
    if any(_is_scheduler(one) for one in objects.values()):
        return
    for optimizer in state.optimizers:
        if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
            _LOG.warning(
                "a scheduler was made for %s and is not in the dictionary of the "
                "checkpoint: it is at its beginning while the run is at step %d; add it, "
                'as "lrs": scheduler',
                type(optimizer).__name__,
                step,
            )
            return


def _is_random(name: str, one: object) -> bool:
    """Whether it holds random states, by its class or by what it is called."""
    called = f"{name} {type(one).__name__}".lower()
    return isinstance(one, RandomStates) or "rng" in called or "random" in called


def _is_scheduler(one: object) -> bool:
    """Whether it is a scheduler, or keeps one, as the wrappers of libraries do."""
    kinds = (LRScheduler, ReduceLROnPlateau)
    return isinstance(one, kinds) or any(
        isinstance(held, kinds) for held in getattr(one, "__dict__", {}).values()
    )


class GradientWatch:
    """Warns, once, where `step` is called while gradients are being accumulated."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Of each optimizer a parameter that has had a gradient, and its version at the last call.
        self._last: dict[int, tuple[torch.Tensor, int]] = {}
        self._silent = not isinstance(state, TrainingState)

    def look(self, step: int) -> None:
        """Compare a parameter with a gradient, of each optimizer, with itself at the last call."""
        if self._silent or not isinstance(self._state, TrainingState):
            return
        waits, moved = False, False
        for number, optimizer in enumerate(self._state.optimizers):
            waiting, last = _first_with_gradient(optimizer), self._last.get(number)
            waits |= waiting is not None
            if waiting is None and last is not None:
                waiting = last[0]  # its gradient was used since then
            if waiting is not None:
                moved |= last is None or (id(waiting), waiting._version) != (id(last[0]), last[1])
                self._last[number] = waiting, waiting._version
        if moved or not waits:
            return
        self._silent = True
        if any(isinstance(one, torch.amp.GradScaler) for one in self._state.objects().values()):
            return  # it leaves out updates
        _LOG.warning(
            "step %d: parameters have not changed since the last call and their gradients wait for "
            "an update; gradients are in no checkpoint. Call `step` after the optimizer's, and "
            "count updates",
            step,
        )


def _first_with_gradient(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not isinstance(parameter, torch.Tensor) or parameter.grad is None:
                continue
            if counts_versions(optimizer, group, parameter):
                return parameter
    return None
