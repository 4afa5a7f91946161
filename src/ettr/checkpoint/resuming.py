"""Where a run starts: from what a checkpoint holds, or at the beginning, and never in silence."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from ettr.checkpoint.restore_report import RestoreReport
from ettr.checkpoint.restoring import RestoreOptions, restorable_steps, restore_with
from ettr.checkpoint.retention import kept_root, kept_steps
from ettr.checkpoint.slots.durable_io import slot_of
from ettr.checkpoint.slots.reader import EarlierRecords, open_slot, slot_names, steps_of
from ettr.checkpoint.slots.record_selection import MODES
from ettr.checkpoint.state import State
from ettr.checkpoint.tensors.objects import ObjectRecord
from ettr.errors import CheckpointError, UsageError, refuse

_LOG = logging.getLogger("ettr.checkpoint")
EXISTING = ("resume", "keep", "stop")
_FAILED = -1
_N_OFFERED = 8  # steps that a rank offers to the others; a block has two copies a generation


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run starts."""

    step: int
    resumed: bool
    reason: str
    report: RestoreReport | None = None

    def __str__(self) -> str:
        """In a sentence."""
        what = f"resumes after step {self.step}" if self.resumed else f"begins at step {self.step}"
        return f"the run {what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Existing:
    """What a start has found."""

    slot: str | None
    steps: tuple[int, int] | None
    damaged: int = 0

    @property
    def anything(self) -> bool:
        """Whether there is something that a beginning would leave behind."""
        return self.damaged > 0 if self.steps is None else self.steps[1] > 0

    def __str__(self) -> str:
        """What it is, in words."""
        if self.steps is None:
            return f"{self.damaged} damaged places and no block that can be read"
        oldest, newest = self.steps
        span = f"step {oldest}" if oldest == newest else f"steps {oldest} to {newest}"
        return f"blocks of {span}"


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """How a run may start; see `RunningCheckpoint.resume_or_begin`."""

    folder: Path
    earlier: EarlierRecords
    world: int | None
    run: str | None
    existing: str
    must_exist: bool
    restored: RestoreOptions

    def options(self, found: Existing, step: int | None = None) -> RestoreOptions:
        """Those of the restore; a rank that reads its own slot prefers no other."""
        objects_of = self.restored.objects_of if found.slot is None else None
        own = slot_of(self.folder)
        return replace(
            self.restored, slot=found.slot, step=step, objects_of=objects_of, own_slot=own
        )


def _find_existing(root: str | os.PathLike[str], question: StartQuestion) -> Existing:
    """What there is to resume from, in this slot or, if it has nothing, in all."""
    _check_options(question)
    own = question.earlier
    same_world = None in (question.world, own.world) or own.world == question.world
    if own.steps is not None and same_world:
        found = Existing(slot_of(question.folder), own.steps, own.damaged)
    else:
        found = _in_all_slots(root)
    if question.existing == "stop" and found.anything:
        raise CheckpointError(
            f"{root} holds {found}; existing='resume' goes on from there, existing='keep' moves "
            f"it aside and begins"
        )
    other_run = None not in (question.run, own.run) and own.run != question.run
    if question.existing == "resume" and other_run:
        raise CheckpointError(
            f"{question.folder} holds {found} of run {own.run!r}, and this is run "
            f"{question.run!r}; give that name, another root, or existing='keep'"
        )
    return found


def _check_options(question: StartQuestion) -> None:
    mode, step, existing = question.restored.mode, question.restored.step, question.existing
    problems = [
        f"{name}: {given!r} was given; give one of {', '.join(allowed)}"
        for name, given, allowed in (("mode", mode, MODES), ("existing", existing, EXISTING))
        if given not in allowed
    ]
    if step is not None and (mode, existing) != ("consistent", "resume"):
        problems.append("step: it needs mode='consistent' and existing='resume'")
    refuse("resume_or_begin", problems)


def start_run(
    root: str | os.PathLike[str],
    state: State,
    question: StartQuestion,
    keep: Callable[[], Path | None],
) -> tuple[Start, Mapping[str, ObjectRecord]]:
    """Resume or begin, and log which and why; all ranks of a group do the same.

    Returns:
        The start; and object -> the record that it was restored from.
    """
    offer = _own_offer(root, state, question)
    restored: Mapping[str, ObjectRecord] = {}
    newest_of_each = question.restored.mode == "newest"
    reached = _agreed(root, offer, newest_of_each=newest_of_each)
    if offer.found is None or reached is None:
        kept = keep() if offer.found is not None and offer.found.anything else None
        empty = offer.found is None or offer.found.steps is None
        reason = f"{root} holds {'no checkpoint' if empty else 'an unfinished save of step 0'}"
        if kept is not None and offer.found is not None:
            reason = f"{root} held {offer.found}, now in {kept}"
        start = Start(0, False, reason)
    else:
        source = offer.kept or root
        options = question.options(offer.found, None if newest_of_each else reached)
        report, objects = restore_with(source, state, options)
        restored = objects.record_of
        where = "all slots" if offer.found.slot is None else f"slot {offer.found.slot}"
        reason = f"{source}, {where}: {report}"
        newest = offer.found.steps[1] if offer.found.steps else reached
        if newest > reached:
            reason += f"; blocks of later steps, up to {newest}, are given up"
        start = Start(reached, True, reason, report)
    _LOG.warning("%s", start)
    return start, restored


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one rank can do: resume from one of some steps, begin without any, or neither."""

    found: Existing | None = None
    steps: tuple[int, ...] = ()
    error: Exception | None = None
    kept: Path | None = None  # the root of a kept copy, instead of the running checkpoint


def _own_offer(root: str | os.PathLike[str], state: State, question: StartQuestion) -> _Offer:
    try:
        found = _find_existing(root, question)
        if question.restored.step is not None:
            return _offer_of_step(root, state, found, question, question.restored.step)
        if found.steps == (0, 0) and not question.must_exist:
            # The very beginning, saved whole or not: nothing is lost where it cannot be restored.
            return _step_0(root, state, found, question)
        if not found.anything or question.existing == "keep":
            if question.must_exist:
                held = f"{found}, not to be resumed from" if found.anything else "no checkpoint"
                raise CheckpointError(
                    f"{root} holds {held}, and must_exist=True allows no beginning"
                )
            return _Offer(found)
        if found.steps is None:
            raise CheckpointError(_not_resumable(root, found, "all of them are damaged"))
        steps: tuple[int, ...] = (found.steps[1],)
        if question.restored.mode == "consistent":
            complete = _complete_steps(root, state, found, question)
            if not complete:
                raise CheckpointError(
                    _not_resumable(
                        root,
                        found,
                        "no step has an intact copy of every block with its objects; "
                        "mode='newest' takes the newest copy of each block, of several steps",
                    )
                )
            steps = tuple(complete[:_N_OFFERED])
        return _Offer(found, steps)
    except (CheckpointError, UsageError) as error:
        return _Offer(error=error)


def _offer_of_step(
    root: str | os.PathLike[str], state: State, found: Existing, question: StartQuestion, step: int
) -> _Offer:
    """One step only: of the running checkpoint if it has it, or else its kept copy."""
    running = _complete_steps(root, state, found, question) if found.steps else []
    if step in running:
        return _Offer(found, (step,))
    own = slot_of(question.folder)
    kept = kept_root(root, step)
    if kept.is_dir():
        same = question.earlier.world in (None, question.world) and (kept / f"slot-{own}").is_dir()
        of_kept = replace(found, slot=own if same else None)
        if step in _complete_steps(kept, state, of_kept, question):
            return _Offer(of_kept, (step,), kept=kept)
    raise CheckpointError(
        f"{root}: step {step} is not complete; the running checkpoint has {running or 'none'}"
        f"{_kept_copies(root)}"
    )


def _kept_copies(root: str | os.PathLike[str]) -> str:
    steps = kept_steps(root)
    return f"; copies are kept of steps {', '.join(map(str, steps))} (step=)" if steps else ""


def _step_0(
    root: str | os.PathLike[str], state: State, found: Existing, question: StartQuestion
) -> _Offer:
    try:
        resumes = question.existing == "resume" and _complete_steps(root, state, found, question)
    except CheckpointError:  # of another model
        resumes = False
    return _Offer(found, (0,)) if resumes else _Offer(found)


def _complete_steps(
    root: str | os.PathLike[str], state: State, found: Existing, question: StartQuestion
) -> list[int]:
    return restorable_steps(root, state, question.options(found))


def _not_resumable(root: str | os.PathLike[str], found: Existing, reason: str) -> str:
    return (
        f"{root} holds {found}, and cannot be resumed from: {reason}{_kept_copies(root)}. "
        f"existing='keep' moves it aside and begins"
    )


def _agreed(root: str | os.PathLike[str], offer: _Offer, *, newest_of_each: bool) -> int | None:
    """The step after which all ranks go on, or this process without a group; None: they begin."""
    row = [_FAILED if offer.error else int(bool(offer.steps)), *offer.steps]
    rows = _gathered(row + [-1] * (1 + _N_OFFERED - len(row)))
    if offer.error is not None:
        raise offer.error
    if failed := [rank for rank, one in enumerate(rows) if one[0] == _FAILED]:
        raise CheckpointError(f"{root}: rank {failed[0]} cannot start; its own error says why")
    if len({one[0] for one in rows}) > 1 and max(one[1] for one in rows) == 0:
        return None  # a first save that not every rank has finished
    if len({one[0] for one in rows}) > 1:
        without = [rank for rank, one in enumerate(rows) if not one[0]]
        raise CheckpointError(
            f"{root}: ranks {without} have nothing to resume from, and others do; give a root "
            f"that all ranks reach, or existing='keep' on all of them to begin"
        )
    if not offer.steps:
        return None
    if newest_of_each:
        return max(one[1] for one in rows)
    common = set.intersection(*({step for step in one[1:] if step >= 0} for one in rows))
    if not common:
        raise CheckpointError(
            f"{root}: no step is complete on every rank (this one has {list(offer.steps)}); "
            f"mode='newest' takes the newest copy of each block, of several steps"
        )
    return max(common)


def _gathered(row: list[int]) -> list[list[int]]:
    """The rows of all ranks, in their order; this one alone without a group."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [row]
    own = torch.tensor(row, dtype=torch.int64)
    own = own.cuda() if dist.get_backend() == "nccl" else own
    rows = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, own)
    return [[int(value) for value in one] for one in rows]


def _in_all_slots(root: str | os.PathLike[str]) -> Existing:
    spans, damaged = [], 0
    for name in slot_names(root):
        with open_slot(root, name) as slot:
            span = steps_of(slot)
            damaged += len(slot.damaged)
        if span is not None:
            spans.append(span)
    steps = (min(s for s, _ in spans), max(s for _, s in spans)) if spans else None
    return Existing(None, steps, damaged)
