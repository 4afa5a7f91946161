"""A running checkpoint and a progress record for torchtitan's `Trainer`, as its checkpointer.

    config.checkpoint = TitanCheckpoint.Config(enable=True, interval=10, run="llama3")

torchtitan builds it, loads through it before the first step and hands it each step; the trainer,
the optimizers of its container, all model parts of a pipeline, schedulers, the loader and random
states come back. The folder lies in the trainer's `dump_folder`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from torchtitan.components.checkpointer.base import BaseCheckpointManager

from ettr.adapters.loop import CheckpointedRun
from ettr.checkpoint import RandomStates
from ettr.errors import UsageError

_NOT_HERE = ("initial_load_path", "last_save_in_hf", "create_seed_checkpoint")


class TitanCheckpoint(BaseCheckpointManager):  # type: ignore[misc]
    """torchtitan's checkpoint manager with a running checkpoint behind it.

    Raises:
        UsageError: an option of torchtitan's own formats was given.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):  # type: ignore[misc]
        """Options of torchtitan that count here: enable, folder, interval, load_step, load_only,
        exclude_from_loading. A running checkpoint keeps two copies of each block.
        """

        run: str = "torchtitan"
        """Name of the run, the same over restarts"""

        progress: str | None = None
        """File of the progress record"""

        options: Annotated[dict[str, Any] | None, tyro.conf.Suppress] = None
        """Of `CheckpointedRun` and `RunningCheckpoint`: `policy`, `resume`, ..."""

    def __init__(
        self,
        config: Config,
        *,
        dataloader: Any,
        model_parts: list[Any],
        optimizers: Any,
        lr_schedulers: Any,
        states: dict[str, Any],
        sd_adapter: object = None,
        base_folder: str = "",
    ) -> None:
        self.enable, self.save_future = config.enable, None
        if not self.enable:
            return
        if given := [name for name in _NOT_HERE if getattr(config, name)]:
            raise UsageError(
                f"TitanCheckpoint: {', '.join(given)} was given, which only torchtitan's own "
                f"checkpoint manager reads; start the weights with that one, or leave it out"
            )
        self._config = config
        self._run: CheckpointedRun | None = None
        self._root = os.path.join(base_folder, config.folder)  # noqa: PTH118  it may be an address
        self._state: dict[str, Any] = {
            "model": model_parts,
            "optimizer": optimizers,
            "lr_scheduler": lr_schedulers,
            "dataloader": dataloader,
            **states,
            "random": RandomStates(),
        }
        for name in config.exclude_from_loading:
            if name in self._state:
                self._state[name] = _NotLoaded(self._state[name])

    def _load(self, step: int = -1) -> bool:
        """Resume after a step, or after the newest; begin where there is none."""
        options = {"every_steps": self._config.interval, **(self._config.options or {})}
        if self._config.exclude_from_loading:  # what ranks hold differently may be just that
            options["resume"] = {"objects_of": 0, **options.get("resume", {})}
        self._run = CheckpointedRun(
            self._root, self._state, run=self._config.run, progress=self._config.progress, **options
        )
        start = self._run.begin(**({} if step == -1 else {"step": step}))
        return bool(start.resumed)

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        """Record a step; save if a round is due, and all of the last step."""
        if self._run is None or self._config.load_only:
            return False
        self._run.done(curr_step)
        if last_step:
            self._run.end(curr_step)
        return bool(last_step or curr_step % self._config.interval == 0)

    def _maybe_wait_for_staging(self) -> None:
        """Nothing waits: a round is copied before `save` returns."""

    def _wait_for_saving(self) -> None:
        """Nothing to wait for: `close` does."""

    def _close(self) -> None:
        if (run := getattr(self, "_run", None)) is not None:
            run.close()


@dataclass(frozen=True, slots=True)
class _NotLoaded:
    """Saves what another object holds, and keeps that at a resume."""

    of: Any

    def state_dict(self) -> dict[str, Any]:
        """Of the other."""
        state: dict[str, Any] = self.of.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Leave the other as it is."""
