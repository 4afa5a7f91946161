"""A running checkpoint and a progress record for `transformers.Trainer`.

    saver = TrainerCheckpoint("/local/ckpt", run="gpt", progress="progress.jsonl")
    saver.train(trainer)        # instead of trainer.train(): resumes, or begins

Epochs, batches that were used, and logs go on by the Trainer's own way of resuming. It reads them
from a folder `checkpoint-N`; here it is given a folder with its state only, and what it would load
from further files there (weights, moments, scheduler, random states) comes from the running
checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import TrainOutput

from ettr.adapters.device_idle import idle_of
from ettr.adapters.loop import CheckpointedRun, FrameworkCallback, rank_of_process
from ettr.checkpoint import CheckpointError, saved_objects
from ettr.errors import UsageError

_LOADERS = ("_load_from_checkpoint", "_load_optimizer_and_scheduler", "_load_scaler")
_LOADS_RANDOM_STATES = "_load_rng_state"
_STATE_FILE = "trainer_state.json"
_POSITION = "trainer"


class _OtherStepError(Exception):
    """The checkpoint was resumed at another step than the Trainer was."""


class _OverError(Exception):
    """The run that was resumed had made all of its steps."""


class _Position:
    """The Trainer's state as JSON: steps, epochs, logs, and states of other callbacks."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.restored: str | None = None

    def state_dict(self) -> dict[str, Any]:
        state: TrainerState = self.trainer.state
        for name, callbacks in self._stateful().items():
            states = [callback.state() for callback in callbacks]
            state.stateful_callbacks[name] = states if len(states) > 1 else states[0]
        return {"state": json.dumps(dataclasses.asdict(state)), "step_rows": self._step_rows()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.restored = state["state"]
        now, saved = self._step_rows(), state.get("step_rows", 0)
        if saved and now != saved and not self.trainer.args.ignore_data_skip:
            raise UsageError(
                f"a step took {saved} rows in the saved run and takes {now} now; the Trainer finds "
                f"its place by counting steps, so rows would be left out or come twice. Choose "
                f"per_device_train_batch_size x gradient_accumulation_steps x ranks = {saved}, or "
                f"ignore_data_skip=True, which begins the epoch's data again"
            )

    def _step_rows(self) -> int:
        args = self.trainer.args
        rows: int = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return rows

    def restore_callbacks(self) -> None:
        """Give callbacks their saved attributes, such as the patience that is left."""
        saved = json.loads(self.restored or "{}").get("stateful_callbacks", {})
        for name, callbacks in self._stateful().items():
            states = saved.get(name, [])
            for callback, state in zip(
                callbacks, states if isinstance(states, list) else [states], strict=False
            ):
                for attribute, value in state.get("attributes", {}).items():
                    setattr(callback, attribute, value)

    def _stateful(self) -> dict[str, list[ExportableState]]:
        """Callbacks that have a state, by the name of their class."""
        named: dict[str, list[ExportableState]] = {}
        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, ExportableState):
                named.setdefault(type(callback).__name__, []).append(callback)
        return named


class TrainerCheckpoint(FrameworkCallback, TrainerCallback):  # type: ignore[misc]
    """Saves and records a Trainer's run; `train` resumes it; built as `FrameworkCallback` is."""

    _trainer: Trainer | None = None
    _position: str | None = None
    _epoch: Iterator[Any] | None = None

    def train(self, trainer: Trainer) -> TrainOutput:
        """Train from the newest complete step of the checkpoint, or from the beginning.

        Raises:
            UsageError: this version of transformers resumes in another way.
            CheckpointError: there is something, and it cannot be resumed from.
        """
        if lacking := [n for n in (*_LOADERS, _LOADS_RANDOM_STATES) if not hasattr(trainer, n)]:
            raise UsageError(
                f"transformers.Trainer has no {', '.join(lacking)}: this version resumes in a way "
                f"that is not known here; versions 5.23 and near to it are"
            )
        self._trainer, self._position = trainer, self._saved_position()
        if self in trainer.callback_handler.callbacks:
            trainer.remove_callback(self)
        trainer.add_callback(self)  # last: what others change after a step belongs to it
        while True:
            try:
                with (
                    _resuming(trainer, self._position, self._load_random) as folder,
                    self._timing_batches(trainer),
                ):
                    return trainer.train(resume_from_checkpoint=folder)
            except _OtherStepError:
                continue  # `_position` is now that of the step which was restored
            except _OverError:
                return _ended(trainer)
            finally:
                if self._run is not None:
                    self._run.close()

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **live: Any) -> None:
        """Everything is built: restore it, or begin."""
        if self._trainer is None:
            raise UsageError("TrainerCheckpoint: call saver.train(trainer), which resumes")
        position = _Position(self._trainer)
        parts = {
            "model": live["model"],
            "optimizer": getattr(live["optimizer"], "optimizer", live["optimizer"]),
            "lrs": live["lr_scheduler"],
            _POSITION: position,
            "random": self._random,
        }
        scaler = getattr(self._trainer.accelerator, "scaler", None)
        self._run = CheckpointedRun(
            self._root, {**parts, "scaler": scaler} if scaler else parts, **self._options
        )
        start = self._run.begin()
        self._resumed_random = self._random.state_dict()
        if _on_any_rank(start.step != state.global_step):
            self._position = position.restored
            raise _OtherStepError
        position.restore_callbacks()
        if 0 < state.max_steps <= state.global_step:
            raise _OverError

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **live: Any) -> None:
        """An update was made."""
        if self._run is not None:
            self._run.done(state.global_step)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **live: Any) -> None:
        """Training is over."""
        if self._run is not None:
            self._run.end(state.global_step)

    @contextmanager
    def _timing_batches(self, trainer: Trainer) -> Iterator[None]:
        """Record what steps wait for their batches; not where this version fetches otherwise."""
        fetch = getattr(trainer, "get_batch_samples", None)
        if fetch is None:
            yield
            return
        known, idle = idle_of(trainer.args.device)

        def timed(epoch: Iterator[Any], *args: Any, **options: Any) -> Any:
            recorder = self._run.recorder if self._run is not None else None
            if recorder is None:
                return fetch(epoch, *args, **options)
            begins, self._epoch = epoch is not self._epoch, epoch
            waits = recorder.data_waits.timed(epoch, known=known, idle=idle, begins=begins)
            return fetch(waits, *args, **options)

        trainer.get_batch_samples = timed
        try:
            yield
        finally:
            del trainer.get_batch_samples
            self._epoch = None

    def _saved_position(self) -> str | None:
        slot = self._options.get("slot")
        try:
            saved = saved_objects(self._root, slot=rank_of_process() if slot is None else slot)
        except CheckpointError:
            return None  # nothing there, or nothing to be read: `begin` says which
        position: str | None = saved[_POSITION].values["state"] if _POSITION in saved else None
        return position

    def _load_random(self, *_checkpoint: object) -> None:
        if self._resumed_random is not None:
            self._random.load_state_dict(self._resumed_random)


def _ended(trainer: Trainer) -> TrainOutput:
    """The end of a run without a step left; the Trainer would make one more within an epoch."""
    state = trainer.state
    if trainer.args.load_best_model_at_end and state.best_model_checkpoint is not None:
        trainer._load_best_model()
    trainer.control = trainer.callback_handler.on_train_end(trainer.args, state, trainer.control)
    losses = [entry["train_loss"] for entry in state.log_history if "train_loss" in entry]
    return TrainOutput(state.global_step, losses[-1] if losses else float("nan"), {})


@contextmanager
def _resuming(trainer: Trainer, position: str | None, load_random: Any) -> Iterator[str | None]:
    """A folder for the Trainer to resume from; None: it begins."""
    if position is None or json.loads(position)["global_step"] == 0:
        yield None
        return
    for name in _LOADERS:
        setattr(trainer, name, lambda *_args, **_options: None)
    setattr(trainer, _LOADS_RANDOM_STATES, load_random)
    try:
        with tempfile.TemporaryDirectory(prefix="ettr-trainer-") as folder:
            (Path(folder) / _STATE_FILE).write_text(position, encoding="utf-8")
            yield folder
    finally:
        for name in (*_LOADERS, _LOADS_RANDOM_STATES):
            delattr(trainer, name)


def _on_any_rank(here: bool) -> bool:
    """Whether it holds on one rank at least."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return here
    ballot = torch.tensor([int(here)])
    ballot = ballot.cuda() if dist.get_backend() == "nccl" else ballot
    dist.all_reduce(ballot, op=dist.ReduceOp.MAX)
    return bool(ballot.item())
