"""A running checkpoint and a progress record for a training loop, in one object.

state = {"model": model, "optimizer": optimizer, "lrs": scheduler, "loader": loader}
run = CheckpointedRun("/local/ckpt", state, run="gpt", progress="progress.jsonl")
for step in run.steps(1000):
    train_step()
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from ettr.adapters.device_idle import idle_of
from ettr.checkpoint import (
    CheckpointError,
    FencedError,
    RandomStates,
    RunningCheckpoint,
    RunStopped,
    Start,
    StepReport,
    StopNotice,
)
from ettr.checkpoint.notice import AgreedStop
from ettr.progress import ProgressRecorder
from ettr.progress.recorder import Item

_LOG = logging.getLogger("ettr.checkpoint")
_OTHERS_SAVE_S = 30.0  # a rank that has saved waits so long for the others


class CheckpointedRun(AbstractContextManager["CheckpointedRun"]):
    """One rank of a run: resumes or begins, saves, and records what the loop did.

    Args:
        state: everything that the run needs, as for `RunningCheckpoint`.
        progress: file of the progress record; ranks after the first add their number to its name.
            None: nothing is recorded.
        slot: None: the rank in `torch.distributed`, 0 without it.
        notice: what asks the run to end; None: SIGTERM does. The step that is under way ends, all
            is saved, and the process ends with status 75 (`RunStopped`); all ranks after one step.
        resume: options of `RunningCheckpoint.resume_or_begin`, such as `{"objects_of": 0}`.
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
        notice: StopNotice | None = None,
        resume: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self.notice = notice or StopNotice()
        self._resume = dict(resume or {})
        self._agreed, self._step_s, self._save_s = AgreedStop(), 0.0, 0.0
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

    def begin(self, **resume: Any) -> Start:
        """Resume or begin, and say which; see `RunningCheckpoint.resume_or_begin`.

        Raises:
            CheckpointError: there is something, and it cannot be resumed from.
        """
        self.notice.listen()
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            store = dist.distributed_c10d._get_default_store()
            self._agreed = AgreedStop(store, dist.get_world_size())
        restored_s = self._clock()
        start = self.checkpoint.resume_or_begin(**{**self._resume, **resume})
        now_s = self._clock()
        if self.recorder is not None:
            self.recorder.start(start.step, restored_s - self._begin_s)
            if start.resumed:
                self.recorder.restore(start.step, now_s - restored_s, source="resume")
        self._save_s = now_s - restored_s  # all was read, and written once
        self._begin_s = now_s
        return start

    def done(self, step: int, *, save: bool = True) -> None:
        """Record a step that was made, and save if a round is due or the run is to end.

        Call it after the update and what belongs to it.

        Args:
            save: False: record only.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed.
            RunStopped: the run was asked to end.
        """
        now_s = self._clock()
        self._step_s = now_s - self._begin_s
        if self.recorder is not None:
            self.recorder.step(step, self._step_s)
        self._begin_s = now_s
        if save:
            self.save(step)

    def save(self, step: int) -> StepReport:
        """Save if a round is due and the writer is free, and record it; end if asked to.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed.
            RunStopped: the run was asked to end.
        """
        if self.ends_after(step):
            self._stop(step)
        report = self.checkpoint.step(step)
        if self.recorder is not None and report.blocks and report.error is None:
            self.recorder.save(step, report.stall_s, scheme=self.checkpoint.policy)
        self._begin_s = self._clock()
        return report

    def ends_after(self, step: int) -> bool:
        """Whether the run is to end after this step; ask once a step, on every rank."""
        asked = self.notice.asked(needs_s=self._step_s + 2 * self._save_s)
        return self._agreed.ends_after(step, asked=asked is not None)

    def end(self, step: int) -> None:
        """Save all of the last step and record the end.

        A disk that has no room, or a step that is not finite, is warned of: what follows the loop
        is to run.

        Raises:
            FencedError: another process has taken this slot; this one must end.
        """
        if error := self._save_all(step):
            _LOG.warning("the last step is not saved, older copies remain: %s", error)
        if self.recorder is not None:
            self.recorder.end(step)

    def batches(self, loader: Iterable[Item], device: object = "cpu") -> Iterator[Item]:
        """The batches of one epoch; what each step waits for them goes into the record.

        Args:
            device: on which the steps run; on CUDA its idle time is measured, too.
        """
        if self.recorder is None:
            return iter(loader)
        known, idle = idle_of(device)
        return self.recorder.batches(loader, synchronised=known, idle=idle)

    def steps(self, n_steps: int) -> Iterator[int]:
        """The numbers of the steps that are left, each saved and recorded once it was made.

        Raises:
            FencedError, CheckpointError, RunStopped: as `begin`, `done` and `end`.
        """
        with self:
            begun = self.begin().step
            for step in range(begun + 1, n_steps + 1):
                yield step
                self.done(step)
            self.end(max(begun, n_steps))  # a run that was longer stays at the step that it is of

    def close(self) -> None:
        """Finish what is being written; twice is harmless."""
        self.notice.close()
        self.checkpoint.close()
        if self.recorder is not None:
            self.recorder.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _save_all(self, step: int) -> CheckpointError | None:
        """Save all of a step and record it; why it is not saved."""
        try:
            report = self.checkpoint.save_all(step)
        except FencedError:
            raise
        except CheckpointError as error:
            return error
        if self.recorder is not None:
            self.recorder.save(step, report.stall_s, scheme=self.checkpoint.policy)
        return None

    def _stop(self, step: int) -> NoReturn:
        reason = self.notice.asked() or "another rank was asked to end"
        if error := self._save_all(step):
            _LOG.warning("%s: the run ends; %s; older copies remain", reason, error)
        else:
            _LOG.warning("%s: all of step %d is saved, the run ends", reason, step)
        self._agreed.wait_for_all(_OTHERS_SAVE_S)
        raise RunStopped(step, reason)


class FrameworkCallback:
    """What the callbacks of all frameworks have; the framework's own class is the other base.

    Args:
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
