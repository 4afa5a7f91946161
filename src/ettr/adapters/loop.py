"""A running checkpoint and a progress record for a training loop, in one object.

state = {"model": model, "optimizer": optimizer, "lrs": scheduler, "loader": loader}
run = CheckpointedRun("/local/ckpt", state, run="gpt", progress="progress.jsonl")
for step in run.steps(1000):
    train_step()
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ettr.checkpoint import RandomStates, RunningCheckpoint, Start, StepReport
from ettr.progress import ProgressRecorder


class CheckpointedRun(AbstractContextManager["CheckpointedRun"]):
    """One rank of a run: resumes or begins, saves, and records what the loop did.

    Args:
        root: folder of the running checkpoint.
        state: everything that the run needs, as for `RunningCheckpoint`.
        run: name of the run, the same over restarts.
        progress: file of the progress record; ranks after the first add their number to its name.
            None: nothing is recorded.
        slot: None: the rank in `torch.distributed`, 0 without it.
        options: of `RunningCheckpoint`. Unless given: the policy `full`, every 10 steps.

    Raises:
        UsageError, CheckpointError: as `RunningCheckpoint`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        state: Mapping[str, object],
        *,
        run: str,
        progress: str | os.PathLike[str] | None = None,
        slot: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        rank = rank_of_process() if slot is None else slot
        self._clock, self._begin_s = clock, clock()
        self.checkpoint = RunningCheckpoint(
            root, state, slot=rank, run=run, **{"policy": "full", "every_steps": 10, **options}
        )
        self.recorder = None
        if progress is not None:
            path = Path(progress)
            path = path.with_stem(f"{path.stem}-{rank}") if rank else path
            self.recorder = ProgressRecorder(path, run=run, rank=rank)

    def begin(self) -> Start:
        """Resume or begin, and say which; see `RunningCheckpoint.resume_or_begin`.

        Raises:
            CheckpointError: there is something, and it cannot be resumed from.
        """
        restored_s = self._clock()
        start = self.checkpoint.resume_or_begin()
        now_s = self._clock()
        if self.recorder is not None:
            self.recorder.start(start.step, restored_s - self._begin_s)
            if start.resumed:
                self.recorder.restore(start.step, now_s - restored_s, source="resume")
        self._begin_s = now_s
        return start

    def done(self, step: int, *, save: bool = True) -> None:
        """Record a step that was made, and save if a round is due.

        Call it after the update and what belongs to it.

        Args:
            save: False: record only.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed.
        """
        now_s = self._clock()
        if self.recorder is not None:
            self.recorder.step(step, now_s - self._begin_s)
        self._begin_s = now_s
        if save:
            self.save(step)

    def save(self, step: int) -> StepReport:
        """Save if a round is due and the writer is free, and record it.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed.
        """
        report = self.checkpoint.step(step)
        if self.recorder is not None and report.blocks and report.error is None:
            self.recorder.save(step, report.stall_s, scheme=self.checkpoint.policy)
        self._begin_s = self._clock()
        return report

    def end(self, step: int) -> None:
        """Save all of the last step and record the end.

        Raises:
            CheckpointError: it could not be saved; older copies remain.
        """
        report = self.checkpoint.save_all(step)
        if self.recorder is not None:
            self.recorder.save(step, report.stall_s, scheme=self.checkpoint.policy)
            self.recorder.end(step)

    def steps(self, n_steps: int) -> Iterator[int]:
        """The numbers of the steps that are left, each saved and recorded once it was made.

        Raises:
            FencedError, CheckpointError: as `begin`, `done` and `end`.
        """
        with self:
            for step in range(self.begin().step + 1, n_steps + 1):
                yield step
                self.done(step)
            self.end(n_steps)

    def close(self) -> None:
        """Finish what is being written; twice is harmless."""
        self.checkpoint.close()
        if self.recorder is not None:
            self.recorder.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


class FrameworkCallback:
    """What the callbacks of all frameworks have; the framework's own class is the other base.

    Args:
        root: folder of the running checkpoint.
        run: name of the run, the same over restarts.
        progress: file of the progress record; None: nothing is recorded.
        options: of `CheckpointedRun` and `RunningCheckpoint`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        run: str,
        progress: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._root = root
        self._options: dict[str, Any] = {"run": run, "progress": progress, **options}
        self._run: CheckpointedRun | None = None
        self._random = RandomStates()
        self._resumed_random: dict[str, Any] | None = None


def rank_of_process() -> int:
    """The rank in `torch.distributed`; 0 where no group was formed."""
    formed = dist.is_available() and dist.is_initialized()
    return int(dist.get_rank()) if formed else 0
