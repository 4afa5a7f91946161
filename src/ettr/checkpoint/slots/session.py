"""One generation of a slot while it is open for writing.

A round is described by the plan of the slot, chosen by the policy, staged, and handed to the writer
thread, which commits it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.checkpoint.retention import Keep, Retention
from ettr.checkpoint.selection import POLICIES, BlockView, Budget, BudgetAccount, choose
from ettr.checkpoint.slots.durable_io import Disk, slot_of
from ettr.checkpoint.slots.layout import OBJECTS, aligned
from ettr.checkpoint.slots.reader import EarlierRecords, earlier_records
from ettr.checkpoint.slots.writer import SlotWriter
from ettr.checkpoint.staging import (
    FiniteCheck,
    Round,
    RoundWriter,
    Scorer,
    SlotPlan,
    Staging,
    plan_slot,
    record_bytes,
)
from ettr.checkpoint.state import State
from ettr.checkpoint.tensors.shards import UNCOUNTED
from ettr.errors import refuse, too_small

_RECORDING_MOVEMENT = ("priority", "touched", "dirty")  # policies that know which blocks have moved
_DEFAULT_STAGING_SHARE = 0.25
_OBJECTS_ALIGN = 4096  # room for objects comes in such steps, with half as much again to grow


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """The options of a slot's file and of its rounds; see `RunningCheckpoint`."""

    policy: str = "priority"
    budget: Budget = field(default_factory=lambda: Budget(fraction=1 / 8))
    every_steps: int = 1
    block_bytes: int = 4 << 20
    rows: Mapping[str, int] = field(default_factory=dict)
    checksum: str | None = None
    staging_bytes: int | None = None
    under_way: int = 1
    world: int | None = None
    run: str | None = None
    keep: Keep | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        problems = []
        if self.policy not in POLICIES:
            problems.append(f"policy: {self.policy!r} was given; give one of {', '.join(POLICIES)}")
        if self.keep is not None and self.policy != "full":
            problems.append(f"keep: with policy {self.policy!r}; whole steps are of policy 'full'")
        if self.under_way > 1 and self.policy != "full":
            problems.append(
                "under_way: more than 1 needs policy='full'; others choose by what is saved"
            )
        problems += too_small(self, every_steps=1, block_bytes=1, under_way=1)
        refuse("running checkpoint", problems)


@dataclass(frozen=True, slots=True)
class StagedRound:
    """A round that was handed to the writer: its bytes, and those of its record of movement."""

    n_bytes: int
    movement_bytes: int
    staging_s: float


class SlotSession:
    """One generation of a slot while it is open for writing; `open` makes its file."""

    def __init__(
        self,
        plan: SlotPlan,
        fingerprint: int,
        slot: SlotWriter,
        earlier: EarlierRecords,
        options: SlotOptions,
        finite: set[str] | None = None,
    ) -> None:
        self.plan, self.fingerprint, self.earlier = plan, fingerprint, earlier
        self.metadata = MetadataRecords(plan)
        self.sizes = _sizes(plan)
        self.changes = ChangeTracker(plan, count_versions=options.policy == "dirty")
        self._policy = options.policy
        self._failed_rounds = 0
        cuda = any(shard.tensor.is_cuda for shard in plan.shards)
        capacity_bytes = _capacity_bytes(self.sizes, plan.n_data, options)
        # taken in turn, as the writer takes the rounds
        self._stagings = deque(Staging(capacity_bytes, cuda=cuda) for _ in range(options.under_way))
        scorer = Scorer(plan) if options.policy == "priority" else None
        self.retention = None
        if options.keep is not None:
            folder = slot.folder
            self.retention = Retention(folder.parent, slot_of(folder), options.keep)
        check = None if finite is None else FiniteCheck(plan, finite)
        self.writer = RoundWriter(slot, scorer, check, self.retention, options.under_way)

    def close(self) -> None:
        """Finish the rounds under way and end all threads."""
        self.writer.close()
        for staging in self._stagings:
            staging.close()

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        folder: Path,
        state: State,
        options: SlotOptions,
        *,
        objects_bytes: int = 0,
        generation: int | None = None,
        disk: Disk | None = None,
        finite: set[str] | None = None,
    ) -> Self:
        """Plan the slot and make the file of a new generation."""
        fingerprint, shards = state.fingerprint(), state.shards()
        plan = plan_slot(
            shards,
            block_bytes=options.block_bytes,
            rows=options.rows,
            objects_bytes=aligned(objects_bytes + objects_bytes // 2, _OBJECTS_ALIGN),
            movement=options.policy in _RECORDING_MOVEMENT,
        )
        earlier = earlier_records(root, folder)
        slot = SlotWriter.create(
            folder,
            plan.layout,
            generation=generation,
            checksum=options.checksum,
            inherits=earlier.last_rounds,
            world=options.world,
            run=options.run,
            disk=disk,
        )
        return cls(plan, fingerprint, slot, earlier, options, finite)

    @property
    def data_bytes(self) -> int:
        """Bytes of the blocks that are cut from shards, headers included."""
        return int(self._data_sizes.sum())

    @property
    def _data_sizes(self) -> NDArray[np.int64]:
        return self.sizes[: self.plan.n_data]

    def choose(
        self, account: BudgetAccount, step: int, now_s: float, rng: np.random.Generator
    ) -> list[int]:
        """The blocks of the round of a step, within the budget and the staging buffer."""
        n, sizes = self.plan.n_data, self._data_sizes
        round_bytes = account.open_round(self.data_bytes, step, now_s)
        self.undo_failed_round()
        view = BlockView(
            n_bytes=sizes,
            saved_round=self.writer.saved.round[:n],
            distance2=self.writer.saved.distance2[:n],
            touches=self.changes.touches[:n],
            changed=self.changes.changed()[:n],
        )
        blocks = self.fitting(choose(self._policy, view, round_bytes, rng).tolist())
        account.close_round(round_bytes, int(sizes[blocks].sum()), int(sizes.max(initial=0)))
        return blocks

    def fitting(self, blocks: list[int]) -> list[int]:
        """The first of these blocks that fit into the staging buffer with the reserved ones."""
        room = self._stagings[0].capacity_bytes - int(self.sizes[self.plan.n_data :].sum())
        n_fit = int(np.searchsorted(np.cumsum(self.sizes[blocks]), room, side="right"))
        return blocks[:n_fit]

    def submit(
        self,
        step: int,
        blocks: list[int],
        objects: bytes,
        *,
        score: bool,
        metrics: Mapping[str, float] | None = None,
    ) -> StagedRound:
        """Stage blocks, with the reserved ones that are due, and hand them to the writer thread.

        A copy of the step is kept where its metrics are given and `keep` asks for it.
        """
        keeps = self.retention is not None and self.retention.wants(step, metrics or {})
        n_bytes, movement = int(self.sizes[blocks].sum()), self._movement(step)
        payloads = self.metadata.due(step, n_bytes, movement, objects)
        movement_blocks = [b for b in payloads if self.plan.layout.key(b)[0] != OBJECTS]
        blocks = [*blocks, *payloads]
        begin = time.perf_counter()
        staging = self._stagings[0]
        staged, event = staging.stage(self.plan, blocks, payloads)
        self._stagings.rotate(-1)
        staging_s = time.perf_counter() - begin
        self.changes.note_staged(blocks)
        kept = (metrics or {}) if keeps else None
        self.writer.submit(Round(step, staging, staged, event, score, kept))
        n_bytes = sum(one.length for one in staged)
        return StagedRound(n_bytes, int(self.sizes[movement_blocks].sum()), staging_s)

    def undo_failed_round(self) -> None:
        """Count what a failed round has staged as not saved."""
        failed_rounds = self.writer.status.failed_rounds
        if failed_rounds > self._failed_rounds:
            self._failed_rounds = failed_rounds
            self.changes.undo_last()

    def _movement(self, step: int) -> NDArray[np.float64]:
        """Distance of each block from its saved value, step of that, step at which it was so."""
        saved = self.writer.saved
        if self._policy == "priority":
            return saved.movement
        still = self.changes.touches == 0 if self._policy == "touched" else ~self.changes.changed()
        still &= saved.step >= 0
        movement = np.zeros((self.plan.n_blocks, 3))
        movement[still, 1], movement[still, 2] = saved.step[still], step
        return movement


def _sizes(plan: SlotPlan) -> NDArray[np.int64]:
    sizes = [record_bytes(plan.layout, block) for block in range(plan.n_blocks)]
    return np.array(sizes, np.int64)


def _capacity_bytes(sizes: NDArray[np.int64], n_data: int, options: SlotOptions) -> int:
    """Size of the staging buffer: the budget's bytes, one block, and the reserved blocks."""
    total = int(sizes.sum())
    if options.policy == "full":
        return total
    wanted = options.staging_bytes
    if wanted is None:
        wanted = int(total * (options.budget.fraction or _DEFAULT_STAGING_SHARE)) + 1
    return min(wanted + int(sizes.max()) + int(sizes[n_data:].sum()), total)


_NEVER_SAVED = -1
_RESERVED = -2


class ChangeTracker:
    """Touches and version counters of one slot's blocks."""

    def __init__(self, plan: SlotPlan, *, count_versions: bool) -> None:
        self._plan, self._count_versions = plan, count_versions
        self.touches = np.zeros(plan.n_blocks, np.int64)
        self._saved_versions = np.full(plan.n_blocks, _NEVER_SAVED, np.int64)
        self._last_blocks: list[int] = []
        self._last_touches = np.zeros(0, np.int64)

    def touch(self, name: str, rows: ArrayLike | None) -> None:
        """Count touches of a tensor, or of those whose names begin so; None: of all its rows."""
        touched_before = None
        if rows is not None:
            touched_before = np.concatenate(
                ([0], np.cumsum(np.bincount(np.asarray(rows).reshape(-1))))
            )
        for fqn, (blocks, first, end) in self._plan.rows_of.items():
            if fqn != name and not fqn.startswith(name + "."):
                continue
            if touched_before is None:
                self.touches[blocks] += 1
            else:
                last = len(touched_before) - 1
                self.touches[blocks] += (
                    touched_before[np.minimum(end, last)] - touched_before[np.minimum(first, last)]
                )

    def changed(self) -> NDArray[np.bool_]:
        """Whether each block may have changed since it was last saved."""
        if not self._count_versions:
            return np.ones(self._plan.n_blocks, bool)
        now = self._versions()
        return np.asarray((now != self._saved_versions) | (now == UNCOUNTED), np.bool_)

    def note_staged(self, blocks: list[int]) -> None:
        """Start over for blocks that a round has staged."""
        self._last_blocks, self._last_touches = blocks, self.touches[blocks]
        self.touches[blocks] = 0
        if self._count_versions:
            self._saved_versions[blocks] = self._versions()[blocks]

    def undo_last(self) -> None:
        """The round that was staged last has failed: its touches and changes are still to save."""
        self.touches[self._last_blocks] += self._last_touches
        self._saved_versions[self._last_blocks] = _NEVER_SAVED

    def _versions(self) -> NDArray[np.int64]:
        of_shard = [shard.version() for shard in self._plan.shards]
        # Reserved blocks have no shard (-1) and take the last entry.
        return np.array([*of_shard, _RESERVED], np.int64)[self._plan.shard_of_block]


# Largest share of the bytes written that the record of movement may be: for tables of small rows it
# would otherwise cost as much as the rows.
_MOVEMENT_SHARE = 0.02
_MOVEMENT_ROW_BYTES = 12


class MetadataRecords:
    """The reserved blocks of one slot file, and those that the next round is to write."""

    def __init__(self, plan: SlotPlan) -> None:
        self._n_data = plan.n_data
        self._blocks = {plan.layout.key(b)[0]: b for b in range(plan.n_data, plan.n_blocks)}
        objects = self._blocks.get(OBJECTS)
        self.objects_room_bytes = 0 if objects is None else plan.layout.payload_bytes(objects)
        self._since_movement_bytes = 0

    def due(
        self, step: int, n_bytes: int, movement: NDArray[np.float64], objects: bytes
    ) -> dict[int, bytes]:
        """Reserved block -> its payload, for a round."""
        payloads = {}
        self._since_movement_bytes += n_bytes
        movement_bytes = _MOVEMENT_ROW_BYTES * self._n_data
        movement_fits = movement_bytes <= _MOVEMENT_SHARE * self._since_movement_bytes
        for name, block in self._blocks.items():
            if name == OBJECTS:
                if objects:
                    payloads[block] = objects
            elif movement_fits and (movement[:, 2] > movement[:, 1]).any():
                payloads[block] = _movement_rows(movement[: self._n_data], step)
                self._since_movement_bytes = 0
        return payloads


def _movement_rows(movement: NDArray[np.float64], step: int) -> bytes:
    # As differences: they stay exact in half the room, however many steps a run has.
    distance, copy_step, scored_step = movement.T
    rows = np.stack([distance, scored_step - copy_step, step - scored_step], axis=1)
    return rows.astype("<f4").tobytes()
