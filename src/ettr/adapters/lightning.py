"""A running checkpoint and a progress record for Lightning's `Trainer`.

    saver = LightningCheckpoint("/local/ckpt", run="gpt", progress="progress.jsonl")
    trainer = Trainer(callbacks=[saver], ...)
    trainer.fit(module)                     # resumes, or begins

Callbacks, a data module and `on_save_checkpoint` hooks keep their state, a `WeightAveraging`
callback its average. Rounds are saved after all other callbacks, whatever their order is.

Lightning puts a loader back to the middle of an epoch only if it has `state_dict` (torchdata's
`StatefulDataLoader`). With other loaders rounds are saved after the last batch of each epoch, which
is before `on_train_epoch_end`: a resume from such a round does not call it for that epoch, so
`EarlyStopping` and `ModelCheckpoint` on training metrics lack that epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from torch import nn

from ettr.adapters.device_idle import idle_of
from ettr.adapters.loop import CheckpointedRun, FrameworkCallback
from ettr.errors import UsageError
from ettr.progress.recorder import EPOCH_START, TRAINING, DataWaits

try:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import WeightAveraging
except ImportError:  # the same under its older name; an older one has no averages
    from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer

    WeightAveraging = None


class _Loops:
    """Where Lightning is: epochs, batches, optimizer steps, and loaders that can say it."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._before_next: list[dict[str, Any]] | None = None

    def note_loaders(self) -> None:
        """Keep the loaders' states: of one without a length Lightning takes a batch in advance."""
        loop = self.trainer.fit_loop
        fetcher = loop._data_fetcher
        ahead = fetcher is not None and fetcher.length is None and getattr(fetcher, "batches", [])
        self._before_next = deepcopy(loop._combined_loader._state_dicts()) if ahead else None

    def state_dict(self) -> dict[str, Any]:
        state = dict(self.trainer.fit_loop.state_dict())
        if self._before_next:
            state["state_dict"] = {**state["state_dict"], "combined_loader": self._before_next}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.trainer.fit_loop.load_state_dict(dict(state))


class LightningCheckpoint(FrameworkCallback, Callback):  # type: ignore[misc]
    """Resumes, saves and records `Trainer.fit`. It is built as `FrameworkCallback` is."""

    _in_epochs = True
    _last_step = 0
    _loops: _Loops | None = None
    _begins = True
    _timed_loop: Any = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Come last in each batch, when averages are made, and first at the end of training."""
        others = [one for one in trainer.callbacks if not isinstance(one, _OWN)]
        # another list: Lightning goes through this one just now
        trainer.callbacks = [_Ending(self), *others, self]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything but the loaders is built: restore it, or begin."""
        if trainer.ckpt_path:
            raise UsageError(
                f"fit: ckpt_path={str(trainer.ckpt_path)!r} and a running checkpoint were given; "
                f"give one of them to resume from"
            )
        every = self._options.get("every_steps", 10)
        state: dict[str, object] = {"model": pl_module}
        state |= {f"optimizer{i}": one for i, one in enumerate(trainer.optimizers)}
        configs = trainer.lr_scheduler_configs
        state |= {f"lrs{i}": config.scheduler for i, config in enumerate(configs)}
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        state |= {"scaler": scaler} if scaler is not None else {}
        state |= average_of(trainer)
        state |= {"callbacks": CallbackStates(trainer, _OWN)}
        state |= {"hooks": CheckpointHooks(trainer, pl_module, _OWN)}
        if (data := getattr(trainer, "datamodule", None)) is not None:
            state |= {"data": data}
        self._loops = _Loops(trainer)
        state |= {"loops": self._loops, "random": self._random}
        # A round is due whenever `done` is called: which steps those are is decided here.
        options = {**self._options, "every_steps": 1, "slot": trainer.global_rank}
        self._run, self._every_steps = CheckpointedRun(self._root, state, **options), every
        start = self._run.begin()
        self._last_step = start.step
        if start.step > 0:
            end_again(trainer, pl_module)
        # From step 0 loaders and epochs draw what they drew in the run that was killed.
        self._resumed_random = self._random.state_dict() if start.step > 0 else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The loaders are there: whether they can be put back to the middle of an epoch."""
        loaders = trainer.fit_loop._combined_loader.flattened
        plain = [type(one).__name__ for one in loaders if not hasattr(one, "state_dict")]
        self._in_epochs = not plain
        if self._loops is not None:
            self._loops.note_loaders()
        if self._run is not None and self._run.recorder is not None:
            self._time_batches(trainer, self._run.recorder.data_waits)
        if plain:
            warnings.warn(
                f"{', '.join(plain)}: has no state_dict, so the checkpoint is saved at the end of "
                f"each epoch only; give a torchdata.stateful_dataloader.StatefulDataLoader",
                stacklevel=2,
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Before the loaders draw their seeds: the random states of the end of an epoch."""
        self._begins = True
        if self._resumed_random is not None:
            self._random.load_state_dict(self._resumed_random)
        if self._loops is not None:
            self._loops.note_loaders()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int
    ) -> None:
        """In the middle of an epoch loaders have drawn their seeds once more."""
        if self._resumed_random is not None and batch_idx > 0:
            self._random.load_state_dict(self._resumed_random)
        self._resumed_random = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *batch: object
    ) -> None:
        """A batch was used; an update was made unless gradients are accumulated."""
        step = trainer.global_step
        if self._run is not None and step != self._last_step:
            self._last_step = step
            due = step % self._every_steps == 0 if self._in_epochs else trainer.is_last_batch
            self._run.done(step, save=due)
        if self._loops is not None:
            self._loops.note_loaders()

    def _time_batches(self, trainer: Trainer, waits: DataWaits) -> None:
        """Record what steps wait for their batches, between the hooks of Lightning's profilers."""
        loop, (known, idle) = trainer.fit_loop.epoch_loop, idle_of(trainer.strategy.root_device)
        before, after = loop._on_before_fetch, loop._on_after_fetch
        begin_s = 0.0

        def begin() -> None:
            nonlocal begin_s
            before()
            begin_s = waits.begin(idle)

        def end() -> None:
            part, self._begins = EPOCH_START if self._begins else TRAINING, False
            waits.end(begin_s, part=part, known=known, idle=idle)
            after()

        loop._on_before_fetch, loop._on_after_fetch = begin, end
        self._timed_loop = loop

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The loop is Lightning's own again."""
        if self._timed_loop is not None:
            del self._timed_loop._on_before_fetch, self._timed_loop._on_after_fetch
            self._timed_loop = None

    def end(self, trainer: Trainer) -> None:
        """Save the last step."""
        if self._run is not None:
            self._run.end(trainer.global_step)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Finish what is being written."""
        if self._run is not None:
            self._run.close()


class _Ending(Callback):  # type: ignore[misc]
    """Saves the last step before other callbacks change the weights, as averages do."""

    def __init__(self, saver: LightningCheckpoint) -> None:
        self._saver = saver

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saver.end(trainer)


_OWN = (LightningCheckpoint, _Ending)


_SAVES, _LOADS = "on_save_checkpoint", "on_load_checkpoint"


class CallbackStates:
    """The states of a trainer's callbacks by their keys."""

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
