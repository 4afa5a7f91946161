"""The running checkpoint: each rank saves some of its blocks each round, off the critical path.

    checkpoint = RunningCheckpoint(root, TrainingState(model, optimizer), slot=rank,
                                   policy="priority", budget=Budget(fraction=1/8))
    checkpoint.save_all(0)                      # the checkpoint begins as the whole state
    for step in ...:
        loss.backward(); optimizer.step()
        report = checkpoint.step(step)          # never waits for the disk: a busy writer skips
    checkpoint.close()

No collective is called. `step` copies the chosen blocks into a warm buffer; a writer thread writes
them, makes them durable and scores the blocks for the next round. Under `priority` it reads
parameters while training changes them: a score may mix two steps, a saved block never does.

Memory in addition to the model: the staging buffer (the budget's bytes and one block), and under
`priority` one copy of the parameters. Disk: two places for every block.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from ettr.checkpoint.errors import CheckpointError, FencedError
from ettr.checkpoint.rounds.budget import Budget, BudgetAccount
from ettr.checkpoint.slots.durable_io import Disk
from ettr.checkpoint.slots.ownership import slot_folder, slot_of
from ettr.checkpoint.slots.session import SlotOptions, SlotSession
from ettr.checkpoint.state import State, as_state
from ettr.checkpoint.tensors.extra_state import Extra
from ettr.checkpoint.verification import BlockAge


@dataclass(frozen=True, slots=True)
class StepReport:
    """The outcome of one call of `step` or `save_all`.

    skipped: a round was due and the writer was busy. durable_step: the newest step of which
    a block is durable. error: why the latest round failed or could not begin; blocks keep their
    older copies.
    """

    step: int
    stall_s: float
    blocks: int
    staged_bytes: int
    skipped: bool
    durable_step: int | None
    written_bytes: int
    unsaved_blocks: int
    oldest_age_steps: int | None
    mean_age_steps: float | None
    error: str | None


class RunningCheckpoint(AbstractContextManager["RunningCheckpoint"]):
    """Saves one slot of a running checkpoint; see the module. Leaving its block closes it.

    Args:
        root: folder shared by all slots; local to a node or shared between nodes.
        state: a `TrainingState`, a module without optimizer, or a dictionary of tensors.
        slot: mesh coordinate of the shard: a rank or a tuple; the same for a replacement.
        policy: full, round-robin, random, priority (distance from the saved value), touched (see
            `touch`), dirty (version counters).
        budget: ignored by `full`.
        every_steps: a round is due at steps that this divides.
        block_bytes: size of a block with its moments.
        rows: rows per block by tensor name, instead of `block_bytes`.
        generation: None takes the next; a supervisor gives what `fence` returned.
        checksum: `xxh3` or `crc32`; None: the faster of those installed.
        extra_bytes: room for the `extra` of `step`; 0: none.
        staging_bytes: size of the buffer; None: the budget's fraction, or a quarter of the slot.
        seed: of the random policy.

    Raises:
        UsageError: an option is out of range; all problems at once.
        FencedError: a later generation owns the slot.
        CheckpointError: the slot's file cannot be made.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        state: State | nn.Module | Mapping[str, Tensor],
        *,
        slot: int | str | tuple[int, ...] = 0,
        policy: str = "priority",
        budget: Budget | None = None,
        every_steps: int = 1,
        block_bytes: int = 4 << 20,
        rows: Mapping[str, int] | None = None,
        generation: int | None = None,
        checksum: str | None = None,
        extra_bytes: int = 1 << 15,
        staging_bytes: int | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        disk: Disk | None = None,
    ) -> None:
        self.policy, self.budget = policy, budget or Budget(fraction=1 / 8)
        self._options = SlotOptions(
            policy=policy,
            budget=self.budget,
            every_steps=every_steps,
            block_bytes=block_bytes,
            rows=rows or {},
            checksum=checksum,
            extra_bytes=extra_bytes,
            staging_bytes=staging_bytes,
        )
        self.folder = slot_folder(root, slot)
        self.skipped_rounds = 0
        self._root, self._state, self._disk = root, as_state(state), disk
        self._account = BudgetAccount(self.budget)
        self._rng, self._clock = np.random.default_rng(seed), clock
        self._closed = False
        self._error: str | None = None
        self._session = self._open(generation)

    def _open(self, generation: int | None, latest_extra: Extra | None = None) -> SlotSession:
        return SlotSession.open(
            self._root,
            self.folder,
            self._state,
            self._options,
            generation=generation,
            latest_extra=latest_extra,
            disk=self._disk,
        )

    @property
    def generation(self) -> int:
        """Generation of the slot's file."""
        return self._session.writer.slot.superblock.generation

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks of the slot, headers included."""
        return int(self._session.sizes.sum())

    @property
    def durable_step(self) -> int | None:
        """The newest step of which a block is durable; None: no block is yet."""
        return self._session.writer.status.durable_step

    def step(self, step: int, extra: Mapping[str, object] | None = None) -> StepReport:
        """Save a round if one is due and the writer is free.

        Call it after `optimizer.step()`, where nothing changes the parameters.

        Args:
            extra: loader position, `rng_state()`, a scheduler's state_dict(): see `extra_state`.
                None: the last one given stays, with its own step.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed.
            UsageError: `extra` holds a value that cannot be saved, or does not fit.

        Any other failure is in `error` of the report, and the older copies remain: a tensor that
        cannot be saved has appeared, a disk without room. The next call tries again.
        """
        begin = time.perf_counter()
        self._check_open()
        writer, every_steps = self._session.writer, self._options.every_steps
        writer.raise_if_fenced()
        writer.reached_step = step
        if extra is not None:  # also where no round begins now: the next one writes it
            self._session.metadata.set_extra(extra, step)
        if step % every_steps:
            if self.policy == "priority" and (step + 1) % every_steps == 0:
                writer.score_soon(step)
            return self._report(step, begin, [], 0)
        if writer.busy:
            self.skipped_rounds += 1
            return self._report(step, begin, [], 0, skipped=True)
        blocks: list[int] = []
        staged_bytes = 0
        self._error = None
        try:
            self._replan()
            blocks = self._session.choose(self._account, step, self._clock(), self._rng)
            # Blocks are scored at the step before the round. Where the writer was busy then, or
            # `step` is called only when a round is due, they are scored after it, for the next.
            score = every_steps == 1 or not self._session.writer.scored
            staged_bytes = self._submit(step, blocks, score=score)
        except FencedError:
            raise
        except Exception as error:  # a checkpoint must not end the training
            reason = str(error) if isinstance(error, CheckpointError) else repr(error)
            self._error = f"a round could not begin, older copies remain: {reason}"
            blocks = []
        return self._report(step, begin, blocks, staged_bytes)

    def save_all(self, step: int, extra: Mapping[str, object] | None = None) -> StepReport:
        """Save every block of this step and wait until all are durable.

        Through the same buffer in several rounds: the loop waits, memory stays bounded. For the
        beginning, the end, and before a planned stop.

        Raises:
            FencedError: another process has taken this slot.
            CheckpointError: a round failed; the older copies remain.
        """
        begin = time.perf_counter()
        self._check_open()
        self._error = None
        self._session.writer.wait()  # a round that failed before is no reason not to try now
        self._session.writer.raise_if_fenced()
        self._replan()
        self._session.undo_failed_round()
        if extra is not None:
            self._session.metadata.set_extra(extra, step)
        blocks = list(range(self._session.plan.n_data))
        left, staged_bytes = blocks, 0
        while True:
            of_round = self._session.fitting(left)
            staged_bytes += self._submit(step, of_round, score=False)
            left = left[len(of_round) :]
            self.wait()
            if not left:  # at the end: a slot without blocks may have an `extra` to write
                return self._report(step, begin, blocks, staged_bytes)

    def touch(self, name: str, rows: Sequence[int] | Tensor | None = None) -> None:
        """Count touches for the policy `touched`: rows of a table, an expert, a layer.

        Args:
            name: a tensor's name, or the beginning of names (`layers.0.experts.3`).
            rows: global row numbers along the first dimension; None: all of it.
        """
        self._session.changes.touch(name, None if rows is None else np.asarray(rows))

    def wait(self, timeout_s: float | None = None) -> None:
        """Return once the latest round is durable and scored.

        Raises:
            FencedError: another process has taken this slot.
            CheckpointError: the latest round failed or could not begin, or the time is over.
        """
        writer = self._session.writer
        if not writer.wait(timeout_s):
            raise CheckpointError(f"{self.folder}: the writer is still busy after {timeout_s} s")
        writer.raise_if_fenced()
        if (error := self._error or writer.status.error) is not None:
            raise CheckpointError(f"{self.folder}: {error}")

    def ages(self) -> list[BlockAge]:
        """Step of the newest durable copy of each block; None: not saved yet."""
        saved_step, layout = self._session.writer.saved.step, self._session.plan.layout
        slot = slot_of(self.folder)
        return [
            BlockAge(slot, *layout.key(block), int(step) if step >= 0 else None)
            for block, step in enumerate(saved_step[: self._session.plan.n_data])
        ]

    def close(self) -> None:
        """Finish the latest round and end the writer; a round that failed is not raised here."""
        if not self._closed:
            self._closed = True
            self._session.writer.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise CheckpointError(f"{self.folder}: the checkpoint is closed; open it again")

    def _replan(self) -> None:
        # Adam makes its moments at its first step: from then on they belong to the blocks.
        before = self._session
        if self._state.fingerprint() != before.fingerprint:
            before.writer.slot.check_owner()  # a replaced process must not take the slot back
            # Closed last: without room for the file, the next call finds everything as it was.
            self._session = self._open(None, before.metadata.latest_extra)
            before.writer.close()

    def _submit(self, step: int, blocks: list[int], *, score: bool) -> int:
        staged = self._session.submit(step, blocks, score=score)
        # `extra` is not part of the budget; the record of movement is.
        self._account.spend(staged.movement_bytes)
        self._account.note_staging(staged.n_bytes, staged.staging_s)
        return staged.n_bytes

    def _report(
        self, step: int, begin: float, blocks: list[int], n_bytes: int, *, skipped: bool = False
    ) -> StepReport:
        saved_step = self._session.writer.saved.step[: self._session.plan.n_data]
        steps = saved_step[saved_step >= 0]
        status = self._session.writer.status
        return StepReport(
            step=step,
            stall_s=time.perf_counter() - begin,
            blocks=len(blocks),
            staged_bytes=n_bytes,
            skipped=skipped,
            durable_step=status.durable_step,
            written_bytes=status.written_bytes,
            unsaved_blocks=len(saved_step) - len(steps),
            oldest_age_steps=step - int(steps.min()) if len(steps) else None,
            mean_age_steps=step - float(steps.mean()) if len(steps) else None,
            error=self._error or status.error,
        )
