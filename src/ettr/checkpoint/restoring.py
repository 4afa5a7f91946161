"""Restore a state from a running checkpoint, on any layout, trusting no unchecked byte.

The live shards are described, the record of each block is chosen, payloads are copied as they are
checked, and step counts are settled last.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ettr.checkpoint import perturbation as perturbations
from ettr.checkpoint.coverage import RestoreCoverage
from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.perturbation import Perturbation, RestoredBlock
from ettr.checkpoint.restore_report import RestoreReport
from ettr.checkpoint.slots.layout import Component, Key
from ettr.checkpoint.slots.ownership import slot_folder, slot_of
from ettr.checkpoint.slots.reader import BadBlock, PayloadReader, Record
from ettr.checkpoint.slots.record_selection import (
    MODES,
    OpenCheckpoint,
    candidates,
    extras_of,
    good_payloads,
    newest_consistent,
    open_checkpoint,
)
from ettr.checkpoint.state import State, as_state
from ettr.checkpoint.tensors.extra_state import Extra
from ettr.checkpoint.tensors.regions import Region, intersection, n_elements, region_of
from ettr.checkpoint.tensors.shards import Shard
from ettr.checkpoint.tensors.tensor_slices import (
    as_tensor,
    copy_in_this_thread,
    local_view,
    region_view,
    unpack_number,
)
from ettr.errors import UsageError


def restore(
    root: str | os.PathLike[str],
    state: State | nn.Module | Mapping[str, Tensor],
    *,
    slot: int | str | tuple[int, ...] | None = None,
    mode: str = "newest",
    check: bool = True,
    allow_missing: bool = False,
    cast: bool = False,
    reached_step: int | None = None,
    drill: bool = False,
) -> RestoreReport:
    """Copy a checkpoint into the live tensors of `state`; returns what was restored.

    The state may be sharded otherwise than it was saved: blocks are global regions. Moments are
    created where the optimizer has none; gradients stay. If this raises, the state may be half
    restored and must not be trained on.

    Args:
        state: as for `RunningCheckpoint`.
        slot: read this slot only (a replaced rank reads its own); None: all slots.
        mode: `newest`, each block's newest good copy (ages may differ); or `consistent`, the
            newest step of which every block has a good copy.
        check: False skips the checksums of payloads (to measure what they cost; never to train).
        allow_missing: go on where an element of a parameter or buffer is not covered, or a saved
            moment has no place in the optimizer; the report names them.
        cast: convert values that were saved in another type.
        reached_step: step that the survivors have reached; with it the report says how stale the
            restored blocks are, and estimates ‖δ‖ (see `perturbation.estimated`).
        drill: the live values are those that count as lost: ‖δ‖ is measured against them instead.

    Raises:
        UsageError: no such mode.
        CheckpointError: no checkpoint, no consistent step, a value of another shape or type, or one
            that is not restored.
    """
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: {mode!r} was given; it is one of {', '.join(MODES)}")
    target = as_state(state)
    target.materialise()
    live = target.shards()
    before = [shard.parameter.clone() for shard in live] if drill else None
    with ExitStack() as stack:
        name = None if slot is None else slot_of(slot_folder(root, slot))
        checkpoint = open_checkpoint(stack, root, name)
        plan = _plan(checkpoint, live, mode, PayloadReader(check=check))
        copied = _copy_all(plan, checkpoint, live, cast=cast)
        extras = extras_of(checkpoint, at_most=plan.step)
        perturbation = _perturbation(checkpoint, copied, live, before, reached_step)
    if not allow_missing:
        _raise_if_missing(root, copied.coverage, checkpoint.damaged)
    fresh_moments = _settle_step_counts(target, copied.coverage)
    return _report(
        plan,
        copied,
        extras,
        fell_back=tuple(replace(bad, lost=False) for bad in checkpoint.damaged),
        fresh_moments=fresh_moments,
        reached_step=reached_step,
        perturbation=perturbation,
        restore_s=time.perf_counter() - begin,
    )


@dataclass(frozen=True, slots=True)
class _RestorePlan:
    """The records to try for each block, and the regions of live shards that the block lies in.

    step: of all records in mode `consistent`; None in mode `newest`.
    """

    reader: PayloadReader
    step: int | None
    records_of: Mapping[Key, list[Record]]
    targets_of: Mapping[Key, list[tuple[Shard, Region]]]


@dataclass(slots=True)
class _Copied:
    """The blocks that were copied, and what they cover of the live shards."""

    coverage: RestoreCoverage
    blocks: dict[Key, RestoredBlock] = field(default_factory=dict)
    n_bytes: int = 0

    def add(
        self,
        key: Key,
        records: Sequence[Record],
        record: Record,
        targets: list[tuple[Shard, Region]],
    ) -> None:
        """Note a block of which one of several records was copied into these regions."""
        n = sum(n_elements(region) for _, region in targets)
        others = [other for other in records if other is not record]
        self.blocks[key] = RestoredBlock(record, others, targets, n / max(math.prod(key[2]), 1))
        self.n_bytes += record.header.payload_bytes

    def steps(self) -> list[int]:
        """Of the restored records."""
        return [block.record.header.step for block in self.blocks.values()]


def _plan(
    checkpoint: OpenCheckpoint, live: Sequence[Shard], mode: str, reader: PayloadReader
) -> _RestorePlan:
    shards_of: dict[str, list[Shard]] = {}
    for shard in live:
        shards_of.setdefault(shard.spec.fqn, []).append(shard)
    records_of, step = candidates(checkpoint), None
    if mode == "consistent":
        of_model = {key: records for key, records in records_of.items() if key[0] in shards_of}
        step, records_of = newest_consistent(of_model, reader)
    targets_of: dict[Key, list[tuple[Shard, Region]]] = {}
    for key in records_of:
        stored = region_of(*key[1:])
        for shard in shards_of.get(key[0], ()):
            region = intersection(stored, shard.region)
            if region is not None:
                targets_of.setdefault(key, []).append((shard, region))
    in_state = {key: records for key, records in records_of.items() if key in targets_of}
    return _RestorePlan(reader, step, in_state, targets_of)


def _copy_all(
    plan: _RestorePlan, checkpoint: OpenCheckpoint, live: Sequence[Shard], *, cast: bool
) -> _Copied:
    copied = _Copied(RestoreCoverage(live))
    with torch.no_grad():
        for key, record, payload in good_payloads(plan.records_of, plan.reader, checkpoint):
            if record is None or payload is None:
                continue
            targets = plan.targets_of[key]
            for shard, region in targets:
                _copy_block(record, payload, shard, region, copied.coverage, cast=cast)
            copied.add(key, plan.records_of[key], record, targets)
    return copied


def _copy_block(
    record: Record,
    payload: memoryview,
    shard: Shard,
    region: Region,
    coverage: RestoreCoverage,
    *,
    cast: bool,
) -> None:
    layout = record.file.superblock.layout
    _, offsets, sizes = layout.key(record.block)
    live = _live_components(record, shard, cast=cast)
    absent = set(live)
    for component, at, n_bytes in layout.components(record.block):
        if component.name not in live:
            if shard.optimizer is not None:
                coverage.note_unused(shard, component.name)
            continue
        absent.discard(component.name)
        data = payload[at : at + n_bytes]
        if component.kind == "number":
            _copy_number(shard, component, data, coverage)
        elif component.kind == "whole":
            _copy_whole(shard, component, data, coverage)
        else:
            stored = as_tensor(data, component.dtype, sizes)
            target = local_view(shard.tensor_value(component.name), shard, region)
            copy_in_this_thread(target, region_view(stored, offsets, region))
        coverage.add(shard, component.name, region)
    for name in absent:
        # Saved before the optimizer had moments: those of this region start from zero.
        coverage.note_absent(shard, name)
        if live[name].kind == "sliced":
            local_view(shard.tensor_value(name), shard, region).zero_()


def _live_components(record: Record, shard: Shard, *, cast: bool) -> dict[str, Component]:
    """The components of a shard by name, if those of the record fit them.

    Raises:
        CheckpointError: another shape or kind, or another type without `cast`.
    """
    layout = record.file.superblock.layout
    saved = layout.tensors[layout.blocks[record.block].tensor]
    if saved.shape != shard.spec.shape:
        raise CheckpointError(
            f"{saved.fqn}: it was saved with shape {list(saved.shape)} and has "
            f"{list(shard.spec.shape)} now; build the model that was saved, or give a new run a "
            f"folder of its own"
        )
    live = {component.name: component for component in shard.spec.components}
    for component in saved.components:
        now = live.get(component.name, component)
        if now.kind != component.kind:
            raise CheckpointError(
                f"{saved.fqn}: {component.name} was saved as {component.kind} and is {now.kind} "
                f"now; build the same optimizer as the saved run's"
            )
        if now.dtype != component.dtype and component.kind != "number" and not cast:
            raise CheckpointError(
                f"{saved.fqn}: {component.name} was saved as {component.dtype} and is {now.dtype} "
                f"now; build it in the saved type, or give cast=True to convert"
            )
    return live


def _copy_number(
    shard: Shard, component: Component, data: memoryview, coverage: RestoreCoverage
) -> None:
    value = unpack_number(component, data)
    # Blocks of one tensor may be of several steps, and come oldest first: the newest stays.
    if component.name != "step" or coverage.is_largest(shard, component.name, value):
        shard.set_number(component.name, value)


def _copy_whole(
    shard: Shard, component: Component, data: memoryview, coverage: RestoreCoverage
) -> None:
    target = shard.tensor_value(component.name)
    stored = as_tensor(data, component.dtype, component.shape).to(target.dtype)
    if component.name != "step" or coverage.is_largest(shard, component.name, float(stored)):
        target.copy_(stored)


def _perturbation(
    checkpoint: OpenCheckpoint,
    copied: _Copied,
    live: Sequence[Shard],
    before: Sequence[Tensor] | None,
    reached_step: int | None,
) -> Perturbation | None:
    if before is not None:
        return perturbations.measured(live, before)
    if reached_step is not None:
        return perturbations.estimated(checkpoint, copied.blocks, live, reached_step)
    return None


def _raise_if_missing(
    root: str | os.PathLike[str], coverage: RestoreCoverage, damaged: Sequence[BadBlock]
) -> None:
    if missing := coverage.missing():
        reason = f"; {len(damaged)} damaged places were found" if damaged else ""
        raise CheckpointError(
            f"{root}: {len(missing)} tensors are not covered by intact blocks "
            f"({_first(missing)}){reason}; restore an earlier full checkpoint, or give "
            f"allow_missing=True to go on without them"
        )
    if unused := coverage.unused_moments:
        raise CheckpointError(
            f"{root}: {len(unused)} saved moments have no place in the optimizer "
            f"({_first(unused)}); build the same optimizer as the saved run's, or give "
            f"allow_missing=True to go on without them"
        )


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _settle_step_counts(target: State, coverage: RestoreCoverage) -> list[str]:
    """Set the step counts that no record held; names of parameters with reset moments."""
    step_count = coverage.step_count()
    if step_count is not None:
        target.set_step_of_empty_shards(step_count)
    return coverage.reset_absent_moments()


def _report(
    plan: _RestorePlan,
    copied: _Copied,
    extras: Mapping[str, Extra],
    *,
    fell_back: tuple[BadBlock, ...],
    fresh_moments: Sequence[str],
    reached_step: int | None,
    perturbation: Perturbation | None,
    restore_s: float,
) -> RestoreReport:
    steps = copied.steps()
    latest = max(extras.values(), key=lambda extra: extra.step, default=None)
    return RestoreReport(
        blocks=len(steps),
        known_blocks=len(plan.records_of),
        restored_bytes=copied.n_bytes,
        oldest_step=min(steps, default=None),
        newest_step=max(steps, default=None),
        fell_back=fell_back,
        missing=tuple(copied.coverage.missing()),
        fresh_moments=tuple(fresh_moments),
        extra={} if latest is None else latest.values,
        restore_s=restore_s,
        extra_step=None if latest is None else latest.step,
        extras=extras,
        restored_fraction=copied.coverage.restored_fraction(),
        mean_step=sum(steps) / len(steps) if steps else None,
        reached_step=reached_step,
        perturbation=perturbation,
        unused_moments=tuple(copied.coverage.unused_moments),
    )
