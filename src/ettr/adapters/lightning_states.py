"""What Lightning keeps besides weights, moments and loops: callbacks, data modules, and hooks.

Lightning saves these in its own checkpoint files: the state of each callback and of the data
module, and what `on_save_checkpoint` of the module or of a callback adds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

try:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import WeightAveraging
except ImportError:  # the same under its older name; an older one has no averages
    from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer

    WeightAveraging = None

_SAVES, _LOADS = "on_save_checkpoint", "on_load_checkpoint"


class CallbackStates:
    """The states of a trainer's callbacks by their keys.

    Args:
        own: callbacks to leave out.
    """

    def __init__(self, trainer: Trainer, own: tuple[type[Callback], ...]) -> None:
        self._trainer, self._own = trainer, own

    def state_dict(self) -> dict[str, Any]:
        """State key -> state, of callbacks that have some."""
        states = {callback.state_key: callback.state_dict() for callback in self._callbacks()}
        return {key: dict(state) for key, state in states.items() if state}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Hand each callback its state; one that has none, or is gone, is warned of."""
        live = {callback.state_key: callback for callback in self._callbacks()}
        for key in sorted(live.keys() & states.keys()):
            live[key].load_state_dict(dict(states[key]))
        gone = sorted(states.keys() - live.keys())
        fresh = sorted(key for key in live.keys() - states.keys() if live[key].state_dict())
        for keys, what in ((gone, "saved and not given now"), (fresh, "given now and not saved")):
            if keys:
                warnings.warn(f"callbacks {what}: {', '.join(keys)}", stacklevel=2)

    def _callbacks(self) -> Iterator[Callback]:
        return (one for one in self._trainer.callbacks if not isinstance(one, self._own))


class CheckpointHooks:
    """What the hooks of a module and of callbacks add to Lightning's checkpoint.

    A hook is given what Lightning would save, as far as it is not saved here in another way: the
    weights may be looked at, and changes of them are not kept.
    """

    def __init__(
        self, trainer: Trainer, module: LightningModule, own: tuple[type[Callback], ...]
    ) -> None:
        self._trainer, self._module, self._own = trainer, module, own

    def state_dict(self) -> dict[str, Any]:
        """Name of the module or state key of a callback -> what its hook added."""
        added = {}
        for name, one, arguments in self._hooked():
            checkpoint = self._checkpoint()
            known = set(checkpoint)
            getattr(one, _SAVES)(*arguments, checkpoint)
            added[name] = {key: checkpoint[key] for key in checkpoint.keys() - known}
        return added

    def load_state_dict(self, added: Mapping[str, Any]) -> None:
        """Hand each hook what it had added."""
        for name, one, arguments in self._hooked():
            getattr(one, _LOADS)(*arguments, {**self._checkpoint(), **added.get(name, {})})

    def _checkpoint(self) -> dict[str, Any]:
        return {
            "epoch": self._trainer.current_epoch,
            "global_step": self._trainer.global_step,
            "state_dict": self._module.state_dict(),
        }

    def _hooked(self) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
        if _overrides(self._module, LightningModule):
            yield type(self._module).__name__, self._module, ()
        data = getattr(self._trainer, "datamodule", None)
        if data is not None and _overrides(data, LightningDataModule):
            yield type(data).__name__, data, ()
        averages = _averaging(self._trainer)  # see `average_of`
        for callback in self._trainer.callbacks:
            apart = callback in averages or isinstance(callback, self._own)
            if not apart and _overrides(callback, Callback):
                yield callback.state_key, callback, (self._trainer, self._module)


def average_of(trainer: Trainer) -> dict[str, nn.Module]:
    """The moving average of the weights, where a `WeightAveraging` callback keeps one."""
    averages = [callback._average_model for callback in _averaging(trainer)]
    return {f"average{i}": one for i, one in enumerate(averages) if one is not None}


def end_again(trainer: Trainer, module: LightningModule) -> None:
    """Put averages into the module of a run that was over when it was resumed.

    Lightning calls no hook of training then, and the state is that before training had ended.
    """
    if trainer.fit_loop.done:
        for callback in _averaging(trainer):
            callback.on_train_end(trainer, module)


def _averaging(trainer: Trainer) -> list[Any]:
    if WeightAveraging is None:
        return []
    return [callback for callback in trainer.callbacks if isinstance(callback, WeightAveraging)]


def _overrides(one: object, base: type) -> bool:
    return any(getattr(type(one), n) is not getattr(base, n, None) for n in (_SAVES, _LOADS))
