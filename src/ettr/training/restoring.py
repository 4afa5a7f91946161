"""Restore a state from a running checkpoint, on any layout, trusting no unchecked byte."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ettr.errors import UsageError
from ettr.training.composing import (
    MODES,
    Source,
    candidates,
    good_payloads,
    newest_common,
    open_source,
)
from ettr.training.coverage import Coverage, intersection
from ettr.training.faults import CheckpointError
from ettr.training.layout import EXTRA, Component, Key
from ettr.training.slotfile import slot_folder
from ettr.training.slotread import BadBlock, PayloadReader, Record
from ettr.training.staging import copy_plainly
from ettr.training.state import Shard, State, as_state


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored, and how old it is.

    fell_back: places that could not be trusted; the block's next older copy was taken. missing:
    parameters that no good record covers (only with strict=False). fresh_moments: moments that no
    record held and that were set to zero, their step counts with them. extra: what the newest
    round was given as `extra`.
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

    @property
    def consistent(self) -> bool:
        """Whether all blocks are of one step; else the state is a composite."""
        return self.oldest_step == self.newest_step


@dataclass(slots=True)
class _Tally:
    blocks: int = 0
    n_bytes: int = 0
    oldest: int | None = None
    newest: int | None = None

    def add(self, record: Record) -> None:
        step = record.header.step
        self.blocks += 1
        self.n_bytes += record.header.payload_bytes
        self.oldest = step if self.oldest is None else min(self.oldest, step)
        self.newest = step if self.newest is None else max(self.newest, step)


def restore(
    root: str | os.PathLike[str],
    state: State | Any,
    *,
    slot: int | str | tuple[int, ...] | None = None,
    mode: str = "newest",
    check: bool = True,
    strict: bool = True,
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

    Raises:
        UsageError: no such mode.
        CheckpointError: no checkpoint, no consistent step, or something is not covered.
    """
    begin = time.perf_counter()
    if mode not in MODES:
        raise UsageError(f"mode: {mode!r} was given; it is one of {', '.join(MODES)}")
    tracked = as_state(state)
    tracked.materialise()
    shards: dict[str, list[Shard]] = {}
    for shard in tracked.shards():
        shards.setdefault(shard.spec.fqn, []).append(shard)
    reader = PayloadReader(check=check)
    with ExitStack() as stack:
        name = None if slot is None else slot_folder(root, slot).name.removeprefix("slot-")
        source = open_source(stack, root, name)
        found = candidates(source)
        if mode == "consistent":
            wanted = {k: r for k, r in found.items() if k[0] in shards or k[0] == EXTRA}
            found = newest_common(wanted, reader)[1]
        coverage = Coverage(shards)
        tally, extra = _copy_all(found, reader, source, shards, coverage)
    step_count = coverage.step_count()
    if step_count is not None:
        tracked.settle(step_count)
    missing = coverage.missing()
    if missing and strict:
        raise CheckpointError(_not_covered(root, missing, source.bad))
    return RestoreReport(
        blocks=tally.blocks,
        restored_bytes=tally.n_bytes,
        oldest_step=tally.oldest,
        newest_step=tally.newest,
        fell_back=tuple(replace(bad, lost=False) for bad in source.bad),
        missing=tuple(missing),
        fresh_moments=tuple(coverage.reset_fresh_moments()),
        extra=extra,
        restore_s=time.perf_counter() - begin,
    )


def _copy_all(
    found: dict[Key, list[Record]],
    reader: PayloadReader,
    source: Source,
    shards: dict[str, list[Shard]],
    coverage: Coverage,
) -> tuple[_Tally, dict[str, Any]]:
    tally, extra, extra_step = _Tally(), {}, -1
    kept = {
        key: records
        for key, records in found.items()
        if key[0] == EXTRA or any(intersection(key, s) is not None for s in shards.get(key[0], ()))
    }
    with torch.no_grad():
        for key, record, payload in good_payloads(kept, reader, source):
            if record is None or payload is None:
                continue
            if key[0] == EXTRA:
                if record.header.step > extra_step:
                    extra, extra_step = _extra_of(payload), record.header.step
                continue
            for shard in shards[key[0]]:
                _copy_block(key, record, payload, shard, coverage)
            tally.add(record)
    return tally, extra


def _extra_of(payload: memoryview) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", payload)
    found: dict[str, Any] = json.loads(bytes(payload[4 : 4 + length]) or b"{}")
    return found


def _copy_block(
    key: Key, record: Record, payload: memoryview, shard: Shard, coverage: Coverage
) -> None:
    box = intersection(key, shard)
    if box is None:
        return
    layout = record.file.superblock.layout
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
            coverage.latest_number(shard, component.name, struct.unpack(code, data)[0])
        elif component.kind == "whole":
            _copy_whole(shard, component, data, coverage)
        else:
            stored = tensor_of(data, component.dtype, key[2])
            _copy_box(shard.part(component.name), stored, key, shard, box)
        coverage.add(shard, component.name, box)
    for name in absent:
        # Saved before the optimizer had moments: those of this box begin anew.
        coverage.begin_anew(shard, name)
        if known[name].kind == "sliced":
            narrow_to(shard.part(name), shard, box).zero_()


def _copy_whole(shard: Shard, component: Component, data: memoryview, coverage: Coverage) -> None:
    target: Tensor = shard.part(component.name)
    stored = tensor_of(data, component.dtype, component.shape).to(target.dtype)
    if component.name != "step":
        target.copy_(stored)
    elif coverage.latest_number(shard, component.name, float(stored), put=False):
        # Blocks of one tensor may be of several steps; its count is that of the newest.
        target.copy_(stored)


def _copy_box(
    target: Tensor,
    stored: Tensor,
    key: Key,
    shard: Shard,
    box: tuple[tuple[int, int], ...],
) -> None:
    for dim, (begin, end) in enumerate(box):
        if end - begin != stored.shape[dim]:
            stored = stored.narrow(dim, begin - key[1][dim], end - begin)
    copy_plainly(narrow_to(target, shard, box), stored)


def narrow_to(part: Tensor, shard: Shard, box: tuple[tuple[int, int], ...]) -> Tensor:
    """The view of a local tensor that a global box covers."""
    for dim, (begin, end) in enumerate(box):
        if end - begin != part.shape[dim]:
            part = part.narrow(dim, begin - shard.offsets[dim], end - begin)
    return part


def tensor_of(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes as a tensor that shares their memory."""
    kind: torch.dtype = getattr(torch, dtype)
    if not math.prod(shape):
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=kind, count=math.prod(shape)).view(shape)


def _not_covered(root: Any, missing: list[str], bad: list[BadBlock]) -> str:
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    reason = f"; {len(bad)} damaged places were found" if bad else ""
    return (
        f"{root}: {len(missing)} tensors are not covered by whole blocks ({shown}){reason}; "
        f"restore an earlier full checkpoint, or give strict=False to go on without them"
    )
