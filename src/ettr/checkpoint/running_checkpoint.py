"""The running checkpoint: each rank saves some of its blocks each round, off the critical path.

    state = {"model": model, "optimizer": optimizer, "lrs": scheduler, "loader": loader}
    checkpoint = RunningCheckpoint(root, state, slot=rank, budget=Budget(fraction=1/8))
    start = checkpoint.resume_or_begin()        # whichever it is, it says so
    for step in range(start.step + 1, ...):
        loss.backward(); optimizer.step(); scheduler.step()
        report = checkpoint.step(step)          # never waits for the disk: a busy writer skips
    checkpoint.close()

No collective is called. `step` copies the chosen blocks into a warm buffer; a writer thread writes
them, makes them durable and scores the blocks for the next round. Under `priority` it reads
parameters while training changes them: a score may mix two steps, a saved block never does.

Memory in addition to the model: the staging buffer (the budget's bytes and one block), and under
`priority` one copy of the parameters. Disk: two places for every block.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ettr.checkpoint.restoring import RestoreOptions
from ettr.checkpoint.resuming import Start, StartQuestion, start_run
from ettr.checkpoint.retention import Keep
from ettr.checkpoint.selection import Budget, BudgetAccount
from ettr.checkpoint.slots.durable_io import Disk, slot_folder, slot_of
from ettr.checkpoint.slots.reader import EarlierRecords, keep_aside
from ettr.checkpoint.slots.session import SlotOptions, SlotSession
from ettr.checkpoint.state import State, TrainingState, as_state
from ettr.checkpoint.tensors.objects import ObjectRecord, RandomStates, encode_objects
from ettr.checkpoint.tensors.shards import counts_versions
from ettr.checkpoint.verification import BlockAge
from ettr.errors import CheckpointError, EttrError, FencedError, UsageError

# -- what a training loop keeps outside of its checkpoint, where that can be seen: it is warned of
# A checkpoint holds what it was given. A scheduler that was not given begins again at step 0 after
# a resume, and gradients that wait for an update are in no checkpoint.


_LOG = logging.getLogger("ettr.checkpoint")


def warn_of_left_out(state: State, step: int) -> None:
    """Warn, at a resume, of a scheduler or of random states that are no part of the state."""
    if not isinstance(state, TrainingState) or not state.whole_run or not step:
        return
    objects = state.objects()
    if not any(_is_random(name, one) for name, one in objects.items()):
        _LOG.warning(
            "the dictionary of the checkpoint holds no random states, and nothing else "
            "that it does not name, such as a loader: dropout and the order of the data "
            'will differ from the unbroken run; add "random": RandomStates(), and the '
            "loader if it has a state_dict"
        )
    if any(_is_scheduler(one) for one in objects.values()):
        return
    for optimizer in state.optimizers:
        if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
            _LOG.warning(
                "a scheduler was made for %s and is not in the dictionary of the "
                "checkpoint: it is at its beginning while the run is at step %d; add it, "
                'as "lrs": scheduler',
                type(optimizer).__name__,
                step,
            )
            return


def _is_random(name: str, one: object) -> bool:
    """Whether it holds random states, by its class or by what it is called."""
    called = f"{name} {type(one).__name__}".lower()
    return isinstance(one, RandomStates) or "rng" in called or "random" in called


def _is_scheduler(one: object) -> bool:
    """Whether it is a scheduler, or keeps one, as the wrappers of libraries do."""
    kinds = (LRScheduler, ReduceLROnPlateau)
    return isinstance(one, kinds) or any(
        isinstance(held, kinds) for held in getattr(one, "__dict__", {}).values()
    )


class GradientWatch:
    """Warns, once, where `step` is called while gradients are being accumulated."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Of each optimizer a parameter that has had a gradient, and its version at the last call.
        self._last: dict[int, tuple[torch.Tensor, int]] = {}
        self._silent = not isinstance(state, TrainingState)

    def look(self, step: int) -> None:
        """Compare a parameter with a gradient, of each optimizer, with itself at the last call."""
        if self._silent or not isinstance(self._state, TrainingState):
            return
        waits, moved = False, False
        for number, optimizer in enumerate(self._state.optimizers):
            waiting, last = _first_with_gradient(optimizer), self._last.get(number)
            waits |= waiting is not None
            if waiting is None and last is not None:
                waiting = last[0]  # its gradient was used since then
            if waiting is not None:
                moved |= last is None or (id(waiting), waiting._version) != (id(last[0]), last[1])
                self._last[number] = waiting, waiting._version
        if moved or not waits:
            return
        self._silent = True
        if any(isinstance(one, torch.amp.GradScaler) for one in self._state.objects().values()):
            return  # it leaves out updates
        _LOG.warning(
            "step %d: parameters have not changed since the last call and their gradients wait for "
            "an update; gradients are in no checkpoint. Call `step` after the optimizer's, and "
            "count updates",
            step,
        )


def _first_with_gradient(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not isinstance(parameter, torch.Tensor) or parameter.grad is None:
                continue
            if counts_versions(optimizer, group, parameter):
                return parameter
    return None


# -- the running checkpoint: each rank saves some of its blocks each round, off the critical path


NEWER = ("stop", "keep", "overwrite")


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
        state: a dictionary of modules, optimizers, tensors, and objects with `state_dict` and
            `load_state_dict`; or a `TrainingState`, or a module without optimizer.
        slot: mesh coordinate of the shard: a rank or a tuple; the same for a replacement.
        policy: full, round-robin, random, priority (distance from the saved value), touched (see
            `touch`), dirty (version counters).
        budget: ignored by `full`.
        every_steps: a round is due at steps that this divides.
        block_bytes: size of a block with its moments.
        rows: rows per block by tensor name, instead of `block_bytes`.
        generation: None takes the next; a supervisor gives what `fence` returned.
        checksum: `xxh3` or `crc32`; None: the faster of those installed.
        newer: if the slot holds blocks of later steps than the first that is saved, and they were
            not resumed from: `stop` with an error, `keep` them aside, or `overwrite` them.
        run: a name; a slot that holds files of another run counts as one with later steps.
        world: number of slots of the job, recorded in the file; None: that of
            `torch.distributed`, where it is initialised.
        staging_bytes: size of the buffer; None: the budget's fraction, or a quarter of the slot.
        under_way: rounds that may wait or be written, each in a buffer of its own, before one is
            skipped; with `full`. **Source**: PCcheck, Strati et al. (2025), ASPLOS.
        seed: of the random policy.
        keep: steps to keep as whole copies, for `full`; see `Keep`.
        refuse_nonfinite: a round is not saved in which trained parameters or their moments have
            become NaN or infinite; the copies before it stay, and it is warned of.

    Raises:
        UsageError: an option is out of range, all problems at once; or an object has no
            `state_dict`, or one that cannot be saved without pickle.
        FencedError: a later generation owns the slot.
        CheckpointError: the slot's file cannot be made.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        state: State | nn.Module | Mapping[str, object],
        *,
        slot: int | str | tuple[int, ...] = 0,
        policy: str = "priority",
        budget: Budget | None = None,
        every_steps: int = 1,
        block_bytes: int = 4 << 20,
        rows: Mapping[str, int] | None = None,
        generation: int | None = None,
        checksum: str | None = None,
        staging_bytes: int | None = None,
        under_way: int = 1,
        newer: str = "stop",
        run: str | None = None,
        world: int | None = None,
        seed: int = 0,
        keep: Keep | None = None,
        refuse_nonfinite: bool = True,
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
            staging_bytes=staging_bytes,
            under_way=under_way,
            world=world if world is not None else _world(),
            run=run,
            keep=keep,
        )
        if newer not in NEWER:
            raise UsageError(f"newer: {newer!r} was given; give one of {', '.join(NEWER)}")
        self.folder = slot_folder(root, slot)
        self.skipped_rounds = 0
        self._root, self._state, self._disk = root, as_state(state), disk
        self._newer, self._owns_steps = newer, False
        self._last_step = 0
        self._gradients = GradientWatch(self._state)
        self._account = BudgetAccount(self.budget)
        self._rng, self._clock = np.random.default_rng(seed), clock
        self._closed = False
        self._finite: set[str] | None = set() if refuse_nonfinite else None
        self._error: str | None = None
        self._warned: str | None = None
        # Objects that were just restored: some know their state only once the loop runs.
        self._restored: Mapping[str, ObjectRecord] = {}
        self._session = self._open(generation, len(self._objects(0)))

    def _open(self, generation: int | None, objects_bytes: int) -> SlotSession:
        return SlotSession.open(
            self._root,
            self.folder,
            self._state,
            self._options,
            objects_bytes=objects_bytes,
            generation=generation,
            disk=self._disk,
            finite=self._finite,
        )

    def _objects(self, step: int) -> bytes:
        return encode_objects(self._state.objects(), self._state.groups(), step, self._restored)

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

    def resume_or_begin(
        self,
        *,
        mode: str = "consistent",
        existing: str = "resume",
        must_exist: bool = False,
        objects_of: int | str | tuple[int, ...] | None = None,
        allow_missing: bool = False,
        cast: bool = False,
        rename: Mapping[str, str] | None = None,
        step: int | None = None,
    ) -> Start:
        """Take up the run where the checkpoint has it, or begin; one of both, and it says which.

        Objects, parameter groups, parameters and moments are restored; then all blocks are saved
        (a disk without room is warned of). What happens is logged as a warning of the logger
        `ettr.checkpoint`. Every rank calls it; where `torch.distributed` is initialised, ranks
        agree on the newest step that all of them can restore.

        Args:
            mode: `consistent`, the newest step of which every block has a good copy, exactly as it
                was; or `newest`, each block's newest copy (ages may differ).
            existing: if there is something to resume from: `resume`; `keep` it aside and begin; or
                `stop` with an error.
            must_exist: an error instead of a beginning.
            objects_of: as for `restore`, where the job had another number of ranks. Random states
                are those of this rank's slot; a rank that has none keeps its own, which is said.
            allow_missing: as for `restore`, where the model has changed.
            cast: likewise.
            rename: likewise.
            step: go back to this one, from the running checkpoint or a kept copy.

        Raises:
            UsageError: an option is out of range.
            CheckpointError: there is something, and it cannot be resumed from; or it was asked to
                stop, or to resume only.
        """
        self._check_open()
        options = self._options
        question = StartQuestion(
            self.folder,
            self._session.earlier,
            options.world,
            options.run,
            existing,
            must_exist,
            RestoreOptions(
                mode=mode,
                step=step,
                objects_of=objects_of,
                allow_missing=allow_missing,
                cast=cast,
                rename=rename,
                resumes=True,
            ),
        )
        start, self._restored = start_run(
            self._root,
            self._state,
            question,
            keep=lambda: keep_aside(self.folder, before=self.generation),
        )
        self._owns_steps, self._last_step = True, start.step
        warn_of_left_out(self._state, start.step)
        try:
            self.save_all(start.step)
        except FencedError:
            raise
        except CheckpointError as error:
            _LOG.warning("%s; older copies remain, training goes on", error)
        finally:
            self._restored = {}
        return start

    def step(self, step: int, *, metrics: Mapping[str, float] | None = None) -> StepReport:
        """Save a round if one is due and the writer is free.

        Call it after `optimizer.step()` and what belongs to the step (the scheduler's, the EMA's),
        where nothing changes the parameters.

        Args:
            metrics: of this step, for `Keep.best`.

        Raises:
            FencedError: another process has taken this slot; this one must end.
            CheckpointError: it was closed; or, at the first step, the slot holds later ones.
            UsageError: the step is negative.

        Any other failure is in `error` of the report, and is warned of once: a tensor or an object
        that cannot be saved has appeared, a disk without room. Older copies remain, and the next
        call tries again.
        """
        begin = time.perf_counter()
        self._check_open()
        writer, every_steps = self._session.writer, self._options.every_steps
        writer.raise_if_fenced()
        self._check_step(step)
        writer.reached_step = step
        self._gradients.look(step)
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
            objects = self._replan(step)
            blocks = self._session.choose(self._account, step, self._clock(), self._rng)
            # Blocks are scored at the step before the round. Where the writer was busy then, or
            # `step` is called only when a round is due, they are scored after it, for the next.
            score = every_steps == 1 or not self._session.writer.scored
            staged_bytes = self._submit(step, blocks, objects, score=score, metrics=metrics)
        except FencedError:
            raise
        except Exception as error:  # a checkpoint must not end the training
            reason = str(error) if isinstance(error, EttrError) else repr(error)
            self._error = f"a round could not begin, older copies remain: {reason}"
            blocks = []
        return self._report(step, begin, blocks, staged_bytes)

    def save_all(self, step: int, *, metrics: Mapping[str, float] | None = None) -> StepReport:
        """Save every block of this step and wait until all are durable.

        Through the same buffer in several rounds: the loop waits, memory stays bounded. For the
        beginning, the end, and before a planned stop.

        Raises:
            FencedError: another process has taken this slot.
            CheckpointError: a round failed, or holds NaN or infinity; the older copies remain. Or
                the slot holds later steps that were not resumed from.
            UsageError: the state of an object cannot be saved, or the step is negative.
        """
        begin = time.perf_counter()
        self._check_open()
        self._check_step(step)
        self._error = None
        self._session.writer.wait()  # a round that failed before is no reason not to try now
        self._session.writer.raise_if_fenced()
        objects = self._replan(step)
        self._session.undo_failed_round()
        blocks = list(range(self._session.plan.n_data))
        left, staged_bytes = blocks, 0
        while True:
            of_round = self._session.fitting(left)
            staged_bytes += self._submit(step, of_round, objects, score=False, metrics=metrics)
            left = left[len(of_round) :]
            self.wait()
            if (refused := self._session.writer.status.refused) is not None:
                raise CheckpointError(f"{self.folder}: {refused}")
            if not left:  # at the end: a slot without blocks may have objects to write
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
            self._session.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise CheckpointError(f"{self.folder}: the checkpoint is closed; open it again")

    def _check_step(self, step: int) -> None:
        if step < 0:
            raise UsageError(f"step: {step} was given; give 0 or more")
        self._check_newer(step)
        if step < self._last_step:
            _LOG.warning(
                "%s: step %d is saved after step %d, as if the run had gone back; after a resume "
                "count on from the step that resume_or_begin() returns",
                self.folder,
                step,
                self._last_step,
            )
        self._last_step = step

    def _check_newer(self, step: int) -> None:
        """Before the first save: what lies in the slot and was not resumed from stays, if asked."""
        if self._owns_steps:
            return
        earlier = self._session.earlier
        if reason := _not_to_overwrite(earlier, step, self._options.run):
            if self._newer == "stop":
                raise CheckpointError(
                    f"{self.folder}: {reason}. resume_or_begin() resumes from them; newer='keep' "
                    f"moves them aside, newer='overwrite' gives them up"
                )
            kept = None
            if self._newer == "keep":
                kept = keep_aside(self.folder, before=self.generation)
            where = "are given up" if kept is None else f"are now in {kept}"
            _LOG.warning("%s: %s; they %s", self.folder, reason, where)
        self._owns_steps = True

    def _replan(self, step: int) -> bytes:
        """Plan the slot again where tensors have changed or objects have grown; the objects."""
        # Adam makes its moments at its first step: from then on they belong to the blocks.
        before, objects = self._session, self._objects(step)
        grown = len(objects) > before.metadata.objects_room_bytes
        if grown or self._state.fingerprint() != before.fingerprint:
            before.writer.slot.check_owner()  # a replaced process must not take the slot back
            # Closed last: without room for the file, the next call finds everything as it was.
            self._session = self._open(None, len(objects))
            before.close()
        return objects

    def _submit(
        self,
        step: int,
        blocks: list[int],
        objects: bytes,
        *,
        score: bool,
        metrics: Mapping[str, float] | None,
    ) -> int:
        staged = self._session.submit(step, blocks, objects, score=score, metrics=metrics)
        # Objects are not part of the budget; the record of movement is.
        self._account.spend(staged.movement_bytes)
        self._account.note_staging(staged.n_bytes, staged.staging_s)
        return staged.n_bytes

    def _report(
        self, step: int, begin: float, blocks: list[int], n_bytes: int, *, skipped: bool = False
    ) -> StepReport:
        saved_step = self._session.writer.saved.step[: self._session.plan.n_data]
        steps = saved_step[saved_step >= 0]
        status = self._session.writer.status
        error = self._error or status.error or status.refused
        if error is not None and error != self._warned:
            _LOG.warning("%s: %s; training goes on", self.folder, error)
        self._warned = error
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
            error=error,
        )


def _not_to_overwrite(earlier: EarlierRecords, step: int, run: str | None) -> str | None:
    """Why what lies in a slot must not be overwritten unasked; None: it may be."""
    if earlier.steps is None:
        return None
    oldest, newest = earlier.steps
    held = f"it holds blocks of steps {oldest} to {newest}"
    if run is not None and earlier.run is not None and run != earlier.run:
        return f"{held} of run {earlier.run!r}, and this is run {run!r}"
    return f"{held}, and step {step} is to be saved" if newest > step else None


def _world() -> int | None:
    """Number of ranks, where a group was formed."""
    initialised = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if initialised else None
