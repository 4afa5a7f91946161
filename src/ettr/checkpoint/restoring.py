"""Restore a state from a running checkpoint, on any layout, trusting no unchecked byte."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ettr.checkpoint import perturbation as movement
from ettr.checkpoint.coverage import Box, Coverage, intersection
from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.extra_state import Extra
from ettr.checkpoint.layout import Component, Key
from ettr.checkpoint.perturbation import Perturbation, Restored
from ettr.checkpoint.record_selection import (
    MODES,
    OpenCheckpoint,
    candidates,
    extras_of,
    good_payloads,
    newest_common,
    open_source,
)
from ettr.checkpoint.slot_file import slot_folder
from ettr.checkpoint.slot_reader import BadBlock, PayloadReader, Record
from ettr.checkpoint.state import Shard, State, as_state
from ettr.checkpoint.tensor_slices import copy_box, narrow_to, tensor_of
from ettr.errors import UsageError
from ettr.recovery.planner import RecoveryPolicy, iteration_cost


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored, and how old it is.

    fell_back: places that could not be trusted; the block's next older copy was taken. missing:
    parameters that no good record covers (only with strict=False). fresh_moments: moments that no
    record held and that were set to zero, their step counts with them. extra, extra_step: what was
    last given as `extra` and the step that it belongs to, of the slot that was read or, where all
    were, of the one that is furthest; extras: of every slot. restored_fraction: share of the
    model's parameters. mean_step: mean over the blocks. perturbation: distance from the lost
    values; None where `reached_step` was not given.
    """

    blocks: int
    restored_bytes: int
    oldest_step: int | None
    newest_step: int | None
    fell_back: tuple[BadBlock, ...]
    missing: tuple[str, ...]
    fresh_moments: tuple[str, ...]
    extra: dict[str, Any]
    restore_s: float
    extra_step: int | None = None
    extras: Mapping[str, Extra] = field(default_factory=dict)
    restored_fraction: float = 1.0
    mean_step: float | None = None
    reached_step: int | None = None
    perturbation: Perturbation | None = None

    @property
    def consistent(self) -> bool:
        """Whether all blocks are of one step; else the state is a composite."""
        return self.oldest_step == self.newest_step

    @property
    def delta_norm(self) -> float | None:
        """‖δ‖; `perturbation` says whether it was measured or estimated."""
        return None if self.perturbation is None else self.perturbation.delta_norm

    def __str__(self) -> str:
        """The report in a sentence."""
        return self.summary()

    def summary(self, policy: RecoveryPolicy | None = None) -> str:
        """The report in a sentence.

        Args:
            policy: with it, the iterations that the recovery is predicted to cost.
        """
        said = [f"restored {self.restored_fraction:.3g} of the parameters in {self.blocks} blocks"]
        if self.oldest_step is None or self.newest_step is None:
            return f"{said[0]}, in {self.restore_s:.2f} s"
        said.append(f"of step {_span(self.oldest_step, self.newest_step)}")
        if self.reached_step is not None:
            youngest, oldest = (self.reached_step - s for s in (self.newest_step, self.oldest_step))
            said.append(f"staleness {_span(youngest, oldest)} steps")
        if self.perturbation is not None:
            said.append(str(self.perturbation))
        if policy is not None and self.reached_step is not None and self.mean_step is not None:
            relative = None if self.perturbation is None else self.perturbation.relative
            cost = iteration_cost(self.reached_step - self.mean_step, relative, policy)
            said.append(f"predicted cost {cost:.1f} iterations")
        if self.fell_back:
            said.append(f"{len(self.fell_back)} damaged places, older copies taken")
        return ", ".join([*said, f"in {self.restore_s:.2f} s"])


@dataclass(slots=True)
class _Tally:
    blocks: dict[Key, Restored] = field(default_factory=dict)
    n_bytes: int = 0
    elements: int = 0

    def add(self, key: Key, others: list[Record], record: Record, boxes: list[Any]) -> None:
        """Note a block that was copied into these boxes of shards."""
        n = sum(math.prod(end - begin for begin, end in box) for _, box in boxes)
        older = [other for other in others if other is not record]
        self.blocks[key] = Restored(record, older, boxes, n / max(math.prod(key[2]), 1))
        self.n_bytes += record.header.payload_bytes
        self.elements += n

    def steps(self) -> list[int]:
        """Of the restored records."""
        return [one.record.header.step for one in self.blocks.values()]


def restore(
    root: str | os.PathLike[str],
    state: State | Any,
    *,
    slot: int | str | tuple[int, ...] | None = None,
    mode: str = "newest",
    check: bool = True,
    strict: bool = True,
    reached_step: int | None = None,
    drill: bool = False,
) -> RestoreReport:
    """Copy a checkpoint into the live tensors of `state`; returns what was restored.

    The state may be sharded otherwise than it was saved: blocks are global boxes. Moments are
    created where the optimizer has none. If this raises, the state may be half restored and must
    not be trained on.

    Args:
        state: as for `RunningCheckpoint`.
        slot: read this slot only (a replaced rank reads its own); None: all slots.
        mode: `newest`, each block's newest whole copy (ages may differ); or `consistent`, the
            newest step of which every block is whole.
        check: False skips the checksums of payloads (to measure what they cost; never to train).
        strict: raise where a parameter is not covered; else report it.
        reached_step: step that the survivors have reached; with it the report tells how stale the
            restored blocks are, and estimates ‖δ‖ (see `movement.estimate`).
        drill: the live values are those that count as lost: ‖δ‖ is measured against them instead.

    Raises:
        UsageError: no such mode.
        CheckpointError: no checkpoint, no consistent step, or something is not covered.
    """
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: {mode!r} was given; it is one of {', '.join(MODES)}")
    tracked = as_state(state)
    tracked.materialise()
    live = tracked.shards()
    truth = [shard.part("param").clone() for shard in live] if drill else []
    shards: dict[str, list[Shard]] = {}
    for shard in live:
        shards.setdefault(shard.spec.fqn, []).append(shard)
    reader = PayloadReader(check=check)
    perturbation: Perturbation | None = None
    with ExitStack() as stack:
        name = None if slot is None else slot_folder(root, slot).name.removeprefix("slot-")
        source = open_source(stack, root, name)
        found, at_most = candidates(source), None
        if mode == "consistent":
            found = {key: records for key, records in found.items() if key[0] in shards}
            at_most, found = newest_common(found, reader)
        coverage = Coverage(shards)
        tally = _copy_all(found, reader, source, shards, coverage)
        extras = extras_of(source, at_most=at_most)
        if drill:
            perturbation = movement.exact(live, truth)
        elif reached_step is not None:
            perturbation = movement.estimate(source, tally.blocks, live, reached_step)
    step_count = coverage.step_count()
    if step_count is not None:
        tracked.settle(step_count)
    missing = coverage.missing()
    if missing and strict:
        raise CheckpointError(_not_covered(root, missing, source.bad))
    steps = tally.steps()
    latest = max(extras.values(), key=lambda extra: extra.step, default=None)
    return RestoreReport(
        blocks=len(steps),
        restored_bytes=tally.n_bytes,
        oldest_step=min(steps, default=None),
        newest_step=max(steps, default=None),
        fell_back=tuple(replace(bad, lost=False) for bad in source.bad),
        missing=tuple(missing),
        fresh_moments=tuple(coverage.reset_fresh_moments()),
        extra={} if latest is None else latest.values,
        restore_s=time.perf_counter() - begin,
        extra_step=None if latest is None else latest.step,
        extras=extras,
        restored_fraction=tally.elements / max(_model_elements(live), 1),
        mean_step=sum(steps) / len(steps) if steps else None,
        reached_step=reached_step,
        perturbation=perturbation,
    )


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _model_elements(shards: list[Shard]) -> int:
    return sum({s.spec.fqn: math.prod(s.spec.shape) for s in shards}.values())


def _copy_all(
    found: dict[Key, list[Record]],
    reader: PayloadReader,
    source: OpenCheckpoint,
    shards: dict[str, list[Shard]],
    coverage: Coverage,
) -> _Tally:
    tally = _Tally()
    boxes: dict[Key, list[tuple[Shard, Box]]] = {}
    for key in found:
        met = [(shard, intersection(key, shard)) for shard in shards.get(key[0], ())]
        boxes[key] = [(shard, box) for shard, box in met if box is not None]
    kept = {key: records for key, records in found.items() if boxes[key]}
    with torch.no_grad():
        for key, record, payload in good_payloads(kept, reader, source):
            if record is None or payload is None:
                continue
            for shard, box in boxes[key]:
                _copy_block(key, record, payload, shard, box, coverage)
            tally.add(key, found[key], record, boxes[key])
    return tally


def _copy_block(
    key: Key, record: Record, payload: memoryview, shard: Shard, box: Box, coverage: Coverage
) -> None:
    layout = record.file.superblock.layout
    saved = layout.tensors[layout.blocks[record.block].tensor]
    if saved.shape != shard.spec.shape:
        raise CheckpointError(
            f"{key[0]}: it was saved with shape {list(saved.shape)} and has "
            f"{list(shard.spec.shape)} now; build the model that was saved, or give a new run a "
            f"folder of its own"
        )
    known = {component.name: component for component in shard.spec.components}
    absent = set(known)
    for component, at, n_bytes in layout.parts(record.block):
        mine = known.get(component.name)
        if mine is None:
            continue
        absent.discard(component.name)
        if mine.kind != component.kind:
            raise CheckpointError(
                f"{key[0]}: {component.name} was saved as {component.kind} and is "
                f"{mine.kind} now; build the same optimizer as the saved run's"
            )
        data = payload[at : at + n_bytes]
        if component.kind == "number":
            code = "<d" if component.dtype == "float64" else "<q"
            _copy_number(shard, component.name, struct.unpack(code, data)[0], coverage)
        elif component.kind == "whole":
            _copy_whole(shard, component, data, coverage)
        else:
            stored = tensor_of(data, component.dtype, key[2])
            copy_box(shard.part(component.name), stored, key, shard, box)
        coverage.add(shard, component.name, box)
    for name in absent:
        # Saved before the optimizer had moments: those of this box begin anew.
        coverage.begin_anew(shard, name)
        if known[name].kind == "sliced":
            narrow_to(shard.part(name), shard, box).zero_()


def _copy_number(shard: Shard, name: str, value: float, coverage: Coverage) -> None:
    # Blocks of one tensor may be of several steps, and come oldest first: the newest stays.
    if name == "step":
        coverage.latest_number(shard, name, value)
    else:
        shard.put_number(name, value)


def _copy_whole(shard: Shard, component: Component, data: memoryview, coverage: Coverage) -> None:
    target: Tensor = shard.part(component.name)
    stored = tensor_of(data, component.dtype, component.shape).to(target.dtype)
    if component.name != "step":
        target.copy_(stored)
    elif coverage.latest_number(shard, component.name, float(stored), put=False):
        # Blocks of one tensor may be of several steps; its count is that of the newest.
        target.copy_(stored)


def _not_covered(root: Any, missing: list[str], bad: list[BadBlock]) -> str:
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    reason = f"; {len(bad)} damaged places were found" if bad else ""
    return (
        f"{root}: {len(missing)} tensors are not covered by whole blocks ({shown}){reason}; "
        f"restore an earlier full checkpoint, or give strict=False to go on without them"
    )
