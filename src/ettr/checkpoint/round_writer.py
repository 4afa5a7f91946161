"""The writer thread: rounds become durable, then blocks are scored. One round at a time.

A round that fails leaves every block its older copy and is tried anew with later values; a slot
that another process owns ends the writer for good.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from ettr.checkpoint.block_scores import Scorer
from ettr.checkpoint.errors import CheckpointError, FencedError
from ettr.checkpoint.slot_file import HEADER_BYTES, SlotWriter, files_of
from ettr.checkpoint.staging import Staged, Staging


@dataclass(frozen=True, slots=True)
class Round:
    """Staged blocks of one step; `event` is to be waited for on CUDA."""

    step: int
    staged: list[Staged]
    event: Any
    score: bool


class RoundWriter:
    """Owns the slot's file and a daemon thread.

    Read from the training loop while the thread is idle: saved_step and saved_round (-1: none) of
    each block's newest durable record, distance2, durable_step, error; `moved`, each block's
    distance from its saved value when last scored, the step of that value and that of the scoring;
    `scored`, whether blocks were scored since the last round. The loop sets `reached_step`, the
    step that the parameters are of: a slow disk delays the scoring by many steps.
    """

    def __init__(self, slot: SlotWriter, staging: Staging, scorer: Scorer | None) -> None:
        n = len(slot.superblock.layout.blocks)
        self.slot = slot
        self.saved_step = np.full(n, -1, np.int64)
        self.saved_round = np.full(n, -1, np.int64)
        self.distance2 = np.zeros(n)
        self.moved = np.zeros((n, 3))
        self.durable_step: int | None = None
        self.error: str | None = None
        self.failed_rounds = 0
        self.scored = False
        self.reached_step = 0
        self._staging, self._scorer = staging, scorer
        self._fenced: FencedError | None = None
        self._old_files = len(files_of(slot.folder)) > 1
        self._condition = threading.Condition()
        self._round: Round | None = None
        self._score = self._end = False
        self._idle = True
        self._thread = threading.Thread(target=self._run, name="ettr-checkpoint", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a round or a scoring is under way."""
        return not self._idle

    def submit(self, work: Round) -> None:
        """Hand a round over; the thread is idle.

        Raises:
            CheckpointError: the writer was closed.
        """
        with self._condition:
            if self._end:
                raise CheckpointError(f"{self.slot.folder}: the checkpoint is closed; open it anew")
            self._round, self._idle, self.scored = work, False, False
            self.reached_step = work.step
            self._condition.notify_all()

    def score_soon(self, step: int) -> None:
        """Score the blocks as they are at this step, if the thread is idle."""
        with self._condition:
            if self._idle and not self._end:
                self._score, self.reached_step, self._idle = True, step, False
                self._condition.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the thread came to rest within the time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._idle, timeout_s)

    def raise_if_fenced(self) -> None:
        """Raise the fencing that the thread met.

        Raises:
            FencedError: a later generation owns the slot.
        """
        if self._fenced is not None:
            raise FencedError(str(self._fenced))

    def close(self) -> None:
        """Finish, end the thread, close the file."""
        with self._condition:
            self._end = True
            self._condition.notify_all()
        self._thread.join()
        self.slot.close()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._round or self._score or self._end)
                work, score = self._round, self._score
                if work is None and not score:
                    return
            try:
                if work is not None:
                    self._write(work)
                if score or (work is not None and work.score):
                    self._measure()
            except FencedError as error:
                self._fenced = error
                self._failed(str(error))
            except OSError as error:
                self._failed(f"a round failed, older copies remain: {error.strerror or error}")
            except Exception as error:  # a checkpoint must not end the training
                self._failed(f"a round failed, older copies remain: {error!r}")
            with self._condition:
                self._round, self._score, self._idle = None, False, True
                self._condition.notify_all()

    def _failed(self, why: str) -> None:
        self.error = why
        self.failed_rounds += 1

    def _write(self, work: Round) -> None:
        if work.event is not None:
            work.event.synchronize()
        self.slot.begin_round()
        for staged in work.staged:
            self.slot.write(staged.block, work.step, self._staging.record(staged))
        blocks = [staged.block for staged in work.staged]
        self.slot.commit(blocks)
        self.saved_step[blocks] = work.step
        self.saved_round[blocks] = self.slot.seq
        self.distance2[blocks] = 0.0  # until the next scoring: or the same ones would be next
        self.durable_step, self.error = work.step, None
        if self._scorer is not None:
            self._note_saved(self._scorer, work)
        if self._old_files and self.slot.covered:
            self._drop_old_files()

    def _measure(self) -> None:
        self.scored = True
        if self._scorer is None:
            return
        self.distance2, at_step = self._scorer.distances2(lambda: self.reached_step)
        # A block that was saved this very step keeps the measurement of its copy before.
        known = (self.saved_step >= 0) & (self.saved_step < at_step)
        self.moved[known, 0] = np.sqrt(self.distance2[known])
        self.moved[known, 1] = self.saved_step[known]
        self.moved[known, 2] = at_step[known]

    def _note_saved(self, scorer: Scorer, work: Round) -> None:
        for staged in work.staged:
            like = scorer.like(staged.block)
            if like is not None:
                n_bytes = like.numel() * like.element_size()
                base = staged.offset + HEADER_BYTES
                scorer.saved(staged.block, self._staging.typed(like, base, n_bytes))

    def _drop_old_files(self) -> None:
        # Every block is durable in this generation's file: the earlier ones hold nothing newer.
        for generation, path in files_of(self.slot.folder).items():
            if generation < self.slot.superblock.generation:
                path.unlink(missing_ok=True)
        self._old_files = False
