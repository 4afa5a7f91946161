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

Memory beside the model: the staging buffer (the budget's bytes and one block), and under `priority`
one copy of the parameters. Disk: two places for every block.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch import Tensor, nn

from ettr.checkpoint.block_scores import Scorer
from ettr.checkpoint.block_selection import (
    BlockView,
    Budget,
    check_options,
    choose,
    plan_layout,
    rows_of,
)
from ettr.checkpoint.durable_io import Disk
from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.layout import EXTRA, Layout
from ettr.checkpoint.metadata_records import OwnRecords, inherited
from ettr.checkpoint.round_writer import Round, RoundWriter
from ettr.checkpoint.slot_file import SlotWriter, slot_folder
from ettr.checkpoint.staging import Staging, record_bytes
from ettr.checkpoint.state import UNCOUNTED, State, as_state
from ettr.checkpoint.verification import BlockAge

_RECORDING = ("priority", "touched", "dirty")  # policies that know which blocks have moved
_RATE_MEMORY = 0.8  # weight of the past in the measured staging rate


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one call of `step` or `save_all` did.

    skipped: a round was due and the writer was busy. durable_step: the newest step of which
    something is durable. error: why the latest round failed; its blocks keep their older copies.
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


class RunningCheckpoint:
    """Saves one slot of a running checkpoint; see the module.

    Args:
        root: folder shared by all slots; local to a node or shared between nodes.
        state: a `TrainingState`, a module without optimizer, or a dictionary of tensors.
        slot: mesh coordinate of the shard: a rank or a tuple; the same for a replacement.
        policy: full, round-robin, random, priority (distance from the saved value), touched (see
            `touch`), dirty (version counters).
        budget: ignored by `full`.
        every_steps: a round is due at steps that this divides.
        block_bytes: size of a block with its moments; `rows` sets rows a block by tensor name.
        generation: None takes the next; a supervisor gives what `slotfile.fence` returned.
        checksum: `xxh3` or `crc32`; None: the fastest at hand.
        extra_bytes: room for what is no parameter (`extra` of `step`); 0: none.
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
        check_options(policy, every_steps, block_bytes, extra_bytes)
        self.folder = slot_folder(root, slot)
        self.policy, self.budget = policy, budget or Budget(fraction=1 / 8)
        self.skipped_rounds = 0
        self._root, self._state = root, as_state(state)
        self._every_steps, self._extra_bytes = every_steps, extra_bytes
        self._options = {
            "block_bytes": block_bytes,
            "rows": rows or {},
            "extra_bytes": extra_bytes,
            "movement": policy in _RECORDING,
        }
        self._own = OwnRecords(Layout((), ()), 0, None)
        self._checksum, self._disk, self._staging_bytes = checksum, disk, staging_bytes
        self._rng, self._clock = np.random.default_rng(seed), clock
        self._stage_bytes_per_s = 5e9
        self._last_round_s: float | None = None
        self._last_round_step = 0
        self._left_bytes = 0  # of the budget, after the last round; below 0: overspent
        self._closed = False
        self._open(generation)

    def _open(self, generation: int | None) -> None:
        fingerprint, shards = self._state.fingerprint(), self._state.shards()
        layout, of_shard = plan_layout(shards, **self._options)  # type: ignore[arg-type]
        n, n_data = len(layout.blocks), len(layout.blocks) - of_shard.count(-1)
        trusted, extra = inherited(self._root, self.folder)
        own = OwnRecords(layout, n_data, self._own.latest or extra)
        slot = SlotWriter.create(
            self.folder,
            layout,
            generation=generation,
            checksum=self._checksum,
            inherits=trusted,
            disk=self._disk,
        )
        # Only now: where there is no room for the file, the next call finds all as it was.
        self._fingerprint, self._shards, self._own = fingerprint, shards, own
        self._layout, self._of_shard, self._n_data = layout, of_shard, n_data
        self._sizes = np.array([record_bytes(layout, block) for block in range(n)], np.int64)
        cuda = any(shard.tensor.is_cuda for shard in shards)
        self._staging = Staging(self._capacity_bytes(), cuda=cuda)
        self._versions = np.full(n, -1, np.int64)
        self._touches = np.zeros(n, np.int64)
        self._rows_of = rows_of(layout)
        self._failed_seen = 0
        self._in_flight: tuple[list[int], np.ndarray[Any, np.dtype[np.int64]]] = ([], self._touches)
        scorer = Scorer(layout, of_shard, shards) if self.policy == "priority" else None
        self._writer = RoundWriter(slot, self._staging, scorer)

    def _capacity_bytes(self) -> int:
        total = int(self._sizes.sum())
        if self.policy == "full":
            return total
        wanted = self._staging_bytes
        if wanted is None:
            wanted = int(total * (self.budget.fraction or 0.25)) + 1
        own = int(self._sizes[self._n_data :].sum())
        return min(wanted + int(self._sizes.max()) + own, total)

    @property
    def generation(self) -> int:
        """Generation of the slot's file."""
        return self._writer.slot.superblock.generation

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks of the slot, headers included."""
        return int(self._sizes.sum())

    def step(self, step: int, extra: Mapping[str, Any] | None = None) -> StepReport:
        """Save a round if one is due and the writer is free; returns what was done.

        Call it after `optimizer.step()`, where nothing changes the parameters.

        Args:
            extra: what is no parameter (loader position, `randomness.rng_state()`, a scheduler's
                state_dict()); see `extras`. None: what was given last stays, with its own step.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed; or moments have appeared and there is no room for a file
                that holds them: the older copies remain and the next call tries again.
        """
        begin = time.perf_counter()
        self._writer.raise_if_fenced()
        self._writer.reached_step = step
        if extra is not None:
            self._own.give(extra, step)  # also where no round begins now: the next one writes it
        if step % self._every_steps:
            if self.policy == "priority" and (step + 1) % self._every_steps == 0:
                self._writer.score_soon(step)
            return self._report(step, begin, [], 0)
        if self._writer.busy:
            self.skipped_rounds += 1
            return self._report(step, begin, [], 0, skipped=True)
        self._replan()
        blocks = self._choose(step)
        # Scored at the step before the round; where the writer was busy then, or `step` is called
        # when a round is due only, behind the round for the next one.
        score = self._every_steps == 1 or not self._writer.scored
        staged_bytes = self._submit(step, blocks, score=score)
        return self._report(step, begin, blocks, staged_bytes)

    def save_all(self, step: int, extra: Mapping[str, Any] | None = None) -> StepReport:
        """Save every block of this step and wait until all are durable.

        Through the same buffer in several rounds: the loop waits, memory stays bounded. For the
        beginning, the end, and before a planned stop.

        Raises:
            FencedError: another process has taken this slot.
            CheckpointError: a round failed; the older copies remain.
        """
        begin = time.perf_counter()
        self._writer.wait()  # a round that failed before is no reason not to try now
        self._writer.raise_if_fenced()
        self._replan()
        self._take_back_failed()
        if extra is not None:
            self._own.give(extra, step)
        waiting = every = list(range(self._n_data))
        total = 0
        while True:
            blocks = self._fitting(waiting)
            total += self._submit(step, blocks, score=False)
            waiting = waiting[len(blocks) :]
            self.wait()
            if not waiting:  # at the end, for a slot without blocks may have been given `extra`
                return self._report(step, begin, every, total)

    def touch(self, name: str, rows: Sequence[int] | Tensor | None = None) -> None:
        """Count touches for the policy `touched`: rows of a table, an expert, a layer.

        Args:
            name: a tensor's name, or the beginning of names (`layers.0.experts.3`).
            rows: global row numbers along the first dimension; None: all of it.
        """
        counts = None
        if rows is not None:
            met = np.bincount(np.asarray(rows).reshape(-1))
            counts = np.concatenate(([0], np.cumsum(met)))
        for fqn, (blocks, first, end) in self._rows_of.items():
            if fqn != name and not fqn.startswith(name + "."):
                continue
            if counts is None:
                self._touches[blocks] += 1
            else:
                last = len(counts) - 1
                self._touches[blocks] += (
                    counts[np.minimum(end, last)] - counts[np.minimum(first, last)]
                )

    def wait(self, timeout_s: float | None = None) -> None:
        """Return once the latest round is durable and scored.

        Raises:
            FencedError: another process has taken this slot.
            CheckpointError: the latest round failed, or the time is over.
        """
        if not self._writer.wait(timeout_s):
            raise CheckpointError(f"{self.folder}: the writer is still busy after {timeout_s} s")
        self._writer.raise_if_fenced()
        if self._writer.error is not None:
            raise CheckpointError(f"{self.folder}: {self._writer.error}")

    def ages(self) -> list[BlockAge]:
        """Step of the newest durable copy of each block; None: not saved yet."""
        saved = self._writer.saved_step
        return [
            BlockAge(
                self.folder.name.removeprefix("slot-"),
                *self._layout.key(block),
                int(saved[block]) if saved[block] >= 0 else None,
            )
            for block in range(self._n_data)
        ]

    def close(self) -> None:
        """Finish the latest round and end the writer; a round that failed is not raised here."""
        if not self._closed:
            self._closed = True
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _replan(self) -> None:
        # Adam makes its moments at its first step: from then on they belong to the blocks.
        if self._state.fingerprint() != self._fingerprint:
            self._writer.close()
            self._writer.slot.check_owner()  # a zombie must not take the slot back
            self._open(None)

    def _choose(self, step: int) -> list[int]:
        now = self._clock()
        since_s = 0.0 if self._last_round_s is None else now - self._last_round_s
        n, sizes = self._n_data, self._sizes[: self._n_data]
        round_bytes = self.budget.round_bytes(
            int(sizes.sum()), since_s, self._stage_bytes_per_s, step - self._last_round_step
        )
        round_bytes += self._left_bytes
        self._last_round_s, self._last_round_step = now, step
        self._take_back_failed()
        saved_round, distance2 = self._writer.saved_round[:n], self._writer.distance2[:n]
        view = BlockView(sizes, saved_round, distance2, self._touches[:n], self._changed()[:n])
        blocks = self._fitting(choose(self.policy, view, round_bytes, self._rng).tolist())
        # Blocks seldom fit the budget to the byte: what is left goes to the next round, at most one
        # block, so that no policy saves more or less than another on the mean.
        largest = int(sizes.max(initial=0))
        left = round_bytes - int(sizes[blocks].sum())
        self._left_bytes = max(-largest, min(left, largest))
        return blocks

    def _moved(self, step: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Distance of each block from its saved value, step of that, step at which it was so."""
        if self.policy == "priority":
            return self._writer.moved
        moved = np.zeros((len(self._sizes), 3))
        still = self._touches == 0 if self.policy == "touched" else ~self._changed()
        saved = self._writer.saved_step
        still &= saved >= 0
        moved[still, 1], moved[still, 2] = saved[still], step
        return moved

    def _take_back_failed(self) -> None:
        # What was touched or changed when a round failed still waits to be saved.
        if self._writer.failed_rounds > self._failed_seen:
            self._failed_seen = self._writer.failed_rounds
            blocks, touches = self._in_flight
            self._touches[blocks] += touches
            self._versions[blocks] = -1
            self._own.take_back()

    def _changed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self.policy != "dirty":
            return np.ones(len(self._sizes), bool)
        now = self._versions_now()
        return np.asarray((now != self._versions) | (now == UNCOUNTED), np.bool_)

    def _versions_now(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        now = np.array([shard.version() for shard in self._shards] + [-2], np.int64)
        return np.asarray(now[self._of_shard], np.int64)

    def _fitting(self, blocks: list[int]) -> list[int]:
        room = self._staging.capacity_bytes - int(self._sizes[self._n_data :].sum())
        fits = int(np.searchsorted(np.cumsum(self._sizes[blocks]), room, side="right"))
        return blocks[:fits]

    def _submit(self, step: int, blocks: list[int], *, score: bool) -> int:
        own = self._own.due(step, int(self._sizes[blocks].sum()), self._moved(step))
        # `extra` is the user's own and beside the budget; the record of movement is within it.
        recorded = [block for block in own if self._layout.key(block)[0] != EXTRA]
        self._left_bytes -= int(self._sizes[recorded].sum())
        blocks = [*blocks, *own]
        begin = time.perf_counter()
        staged, event = self._staging.stage(self._layout, blocks, self._of_shard, self._shards, own)
        took_s = max(time.perf_counter() - begin, 1e-9)
        n_bytes = sum(s.length for s in staged)
        self._stage_bytes_per_s = (
            _RATE_MEMORY * self._stage_bytes_per_s + (1 - _RATE_MEMORY) * n_bytes / took_s
        )
        self._in_flight = (blocks, self._touches[blocks])
        self._touches[blocks] = 0
        if self.policy == "dirty":
            self._versions[blocks] = self._versions_now()[blocks]
        self._writer.submit(Round(step, staged, event, score=score))
        return n_bytes

    def _report(
        self, step: int, begin: float, blocks: list[int], n_bytes: int, *, skipped: bool = False
    ) -> StepReport:
        saved = self._writer.saved_step[: self._n_data]
        known = saved[saved >= 0]
        return StepReport(
            step=step,
            stall_s=time.perf_counter() - begin,
            blocks=len(blocks),
            staged_bytes=n_bytes,
            skipped=skipped,
            durable_step=self._writer.durable_step,
            written_bytes=self._writer.slot.written_bytes,
            unsaved_blocks=len(saved) - len(known),
            oldest_age_steps=step - int(known.min()) if len(known) else None,
            mean_age_steps=step - float(known.mean()) if len(known) else None,
            error=self._writer.error,
        )
