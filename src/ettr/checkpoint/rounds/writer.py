"""The writer thread: rounds become durable in their order, then blocks are scored.

A round that fails leaves every block its older copy and is tried again with later values; a slot
that another process owns ends the writer for good.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ettr.checkpoint.errors import CheckpointError, FencedError
from ettr.checkpoint.restore_report import first_names
from ettr.checkpoint.retention import Retention
from ettr.checkpoint.rounds.finite import FiniteCheck
from ettr.checkpoint.rounds.scores import Scorer
from ettr.checkpoint.rounds.staging import StagedBlock, Staging
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.layout import RESERVED
from ettr.checkpoint.slots.ownership import slot_files
from ettr.checkpoint.slots.writer import SlotWriter

_LOG = logging.getLogger("ettr.checkpoint")
_FAILED = "a round failed, older copies remain"


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks of one step in a buffer; `event` is to be waited for on CUDA.

    metrics: with them a copy of the step is kept; None: it is not.
    """

    step: int
    staging: Staging
    staged: list[StagedBlock]
    event: torch.cuda.Event | None
    score: bool
    metrics: Mapping[str, float] | None = None


@dataclass(slots=True)
class SavedBlocks:
    """The durable copies of a slot's blocks, one entry per block.

    Attributes:
        distance2: Squared L2 distance of the parameter from it when last scored, or 0.
        movement: Rows of (distance when last scored, step of the copy, step of the scoring).
    """

    step: NDArray[np.int64]
    round: NDArray[np.int64]
    distance2: NDArray[np.float64]
    movement: NDArray[np.float64]

    @classmethod
    def none_of(cls, n: int) -> SavedBlocks:
        """No block of `n` has a durable copy yet."""
        unsaved = np.full(n, -1, np.int64)
        return cls(unsaved, unsaved.copy(), np.zeros(n), np.zeros((n, 3)))


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """The state of the writer thread between two rounds.

    durable_step: newest step of which a block is durable. error: why the latest round failed.
    refused: why it was not to be written.
    """

    durable_step: int | None = None
    written_bytes: int = 0
    error: str | None = None
    failed_rounds: int = 0
    refused: str | None = None


class RoundWriter:
    """Owns the slot's file and a daemon thread.

    The training loop reads `saved` and `status` while the thread is idle. It sets `reached_step`,
    the step that the parameters are of: a slow disk delays the scoring by many steps.
    """

    def __init__(
        self,
        slot: SlotWriter,
        scorer: Scorer | None,
        finite: FiniteCheck | None,
        retention: Retention | None,
        under_way: int = 1,
    ) -> None:
        self.slot = slot
        self.saved = SavedBlocks.none_of(len(slot.superblock.layout.blocks))
        self.scored = False
        self.reached_step = 0
        self._scorer, self._under_way = scorer, under_way
        self._finite, self._retention = finite, retention
        self._durable_step: int | None = None
        self._error: str | None = None
        self._refused: str | None = None
        self._failed_rounds = 0
        self._fenced: FencedError | None = None
        layout = slot.superblock.layout
        self._is_reserved = [layout.key(b)[0] in RESERVED for b in range(len(layout.blocks))]
        self._earlier_files = len(slot_files(slot.folder)) > 1
        self._condition = threading.Condition()
        self._rounds: deque[Round] = deque()  # the first is being written
        self._score = self._end = False
        self._idle = True
        self._thread = threading.Thread(target=self._run, name="ettr-checkpoint", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it takes no further round now."""
        return len(self._rounds) >= self._under_way or (self._under_way == 1 and not self._idle)

    @property
    def status(self) -> WriterStatus:
        """The outcome of the rounds so far."""
        return WriterStatus(
            self._durable_step,
            self.slot.written_bytes,
            self._error,
            self._failed_rounds,
            self._refused,
        )

    def submit(self, work: Round) -> None:
        """Hand a round over; the writer is not busy."""
        with self._condition:
            if self._end:
                raise CheckpointError(
                    f"{self.slot.folder}: the checkpoint is closed; open it again"
                )
            self._rounds.append(work)
            self._idle = self.scored = False
            self.reached_step = work.step
            self._condition.notify_all()

    def score_soon(self, step: int) -> None:
        """Score the blocks as they are at this step, if the thread is idle."""
        with self._condition:
            if self._idle and not self._end:
                self._score, self.reached_step, self._idle = True, step, False
                self._condition.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread is idle; returns whether it is, within the time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._idle, timeout_s)

    def raise_if_fenced(self) -> None:
        """Raise the fencing that the thread met."""
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
                self._condition.wait_for(lambda: self._rounds or self._score or self._end)
                work, score = self._rounds[0] if self._rounds else None, self._score
                if work is None and not score:
                    return
            try:
                if work is not None:
                    self._write(work)
                if score or (work is not None and work.score):
                    self._measure()
            except FencedError as error:
                self._fenced = error
                self._note_failure(str(error))
            except OSError as error:
                self._note_failure(f"{_FAILED}: {error.strerror or error}")
            except CheckpointError as error:
                self._note_failure(f"{_FAILED}: {error}")
            except Exception as error:  # a checkpoint must not end the training
                self._note_failure(f"{_FAILED}: {error!r}")
            with self._condition:
                if work is not None:
                    self._rounds.popleft()
                self._score, self._idle = False, not self._rounds
                self._condition.notify_all()

    def _note_failure(self, reason: str) -> None:
        self._error = reason
        self._failed_rounds += 1

    def _write(self, work: Round) -> None:
        if work.event is not None:
            work.event.synchronize()
        if self._finite and (broken := self._finite.broken(work.staged, work.staging)):
            self._refused = (
                f"step {work.step} is not saved, it holds NaN or infinity: {first_names(broken)}; "
                f"the copies before it stay"
            )
            self._failed_rounds += 1
            return
        self._refused = None
        self.slot.begin_round()
        for staged in work.staged:
            self.slot.write(staged.block, work.step, work.staging.record(staged))
        blocks = [staged.block for staged in work.staged]
        self.slot.commit(blocks)
        self.saved.step[blocks] = work.step
        self.saved.round[blocks] = self.slot.seq
        # Until the next scoring: or the same blocks would be chosen again.
        self.saved.distance2[blocks] = 0.0
        self._error = None
        if any(not self._is_reserved[block] for block in blocks):
            self._durable_step = work.step
        if self._scorer is not None:
            self._note_saved(self._scorer, work)
        if self._retention is not None and work.metrics is not None:
            records = {staged.block: work.staging.record(staged) for staged in work.staged}
            try:
                self._retention.copy(work.step, work.metrics, self.slot, records)
            except (OSError, CheckpointError) as error:
                _LOG.warning("no copy of step %d is kept: %s", work.step, error)
        if self._earlier_files and self.slot.covered:
            self.slot.drop_earlier_files()
            self._earlier_files = False

    def _measure(self) -> None:
        self.scored = True
        if self._scorer is None:
            return
        saved = self.saved
        distance2, at_step = self._scorer.distances2(lambda: self.reached_step)
        saved.distance2 = np.where(np.isnan(distance2), np.inf, distance2)
        # A block that was saved at this very step keeps the measurement of its copy before.
        known = (saved.step >= 0) & (saved.step < at_step)
        saved.movement[known, 0] = np.sqrt(saved.distance2[known])
        saved.movement[known, 1] = saved.step[known]
        saved.movement[known, 2] = at_step[known]

    def _note_saved(self, scorer: Scorer, work: Round) -> None:
        for staged in work.staged:
            live = scorer.live_parameter(staged.block)
            if live is not None:
                n_bytes = live.numel() * live.element_size()
                payload = staged.offset + HEADER_BYTES
                scorer.note_saved(staged.block, work.staging.typed(live, payload, n_bytes))
