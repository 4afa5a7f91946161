"""When a full checkpoint is due: at a fixed distance, or at the one of largest expected ETTR."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import torch
import torch.distributed as dist

from ettr.checkpoint import CheckpointError
from ettr.elastic.protection import Protection
from ettr.elastic.restore.full_checkpoint import save_full
from ettr.elastic.restore.model_shard import ModelShard
from ettr.recovery.timings import Measuring, interval_steps

# save_if_due <- Generation._guard <- Generation.update <- contextlib <- the script's `with`
_TO_THE_SCRIPT = 5


class FullSchedule:
    """Saves full checkpoints of one generation as they become due; every rank calls it alike.

    Args:
        step: training steps done when the generation began.
        timings: what was timed of the run.
    """

    def __init__(self, protection: Protection, slot: int, timings: Measuring, step: int) -> None:
        self._protection, self._slot, self._timings = protection, slot, timings
        # The next multiple, so that a replacement counts from where the others do.
        every = protection.full_every_steps
        self.due_step = (step // every + 1) * every
        self.stalls_s: list[float] = []

    def save_if_due(self, step: int, shard: ModelShard, *, stops: bool = False) -> None:
        """Save all ranks' state if a checkpoint is due; warn where it could not be written.

        Args:
            stops: it is due because the run ends here.

        Raises:
            RuntimeError: a rank was lost meanwhile.
        """
        root = self._protection.full
        if root is None or (step < self.due_step and not stops):
            return
        begin_s = time.monotonic()
        try:
            save_full(root, step, shard.state)
            self.stalls_s.append(time.monotonic() - begin_s)
        except CheckpointError as error:
            # A full disk is no reason to end a run that has what it needs to go on.
            if self._slot == 0:
                warnings.warn(
                    f"{error}; earlier ones remain, training goes on", stacklevel=_TO_THE_SCRIPT
                )
        self.due_step = step + self._interval_steps()

    def _interval_steps(self) -> int:
        """Steps to the next full checkpoint; the first rank's measurements decide for all."""
        steps, mttf_s = self._protection.full_every_steps, self._protection.mttf_s
        if mttf_s is None or not self.stalls_s:
            return steps
        run = self._timings.run()
        stall_s = sum(self.stalls_s) / len(self.stalls_s)
        if run.step_s > 0:
            steps = interval_steps(replace(run, save_stall_s=stall_s), mttf_s=mttf_s)
        chosen = torch.tensor([steps], dtype=torch.int64)
        dist.broadcast(chosen, 0)
        return int(chosen)
