"""The warm buffer through which blocks leave the training loop.

It is allocated once and touched once: a copy into fresh pages runs at a sixth of the speed of a
copy into warm ones. On CUDA it is pinned, the copies are queued on the current stream (so that the
next optimizer step cannot overtake them) and the writer waits for their event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.rounds.copy_threads import CopyThreads, Piece
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, aligned
from ettr.checkpoint.slots.plan import SlotPlan
from ettr.checkpoint.tensors.regions import split_dim
from ettr.checkpoint.tensors.shards import Shard
from ettr.checkpoint.tensors.tensor_slices import block_view, pack_number

_ALIGN = 64
_MOST_COPY_THREADS = 4  # more do not make memory faster


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """One block in the buffer: its number, and where its record (header and payload) lies."""

    block: int
    offset: int
    length: int


class Staging:
    """A buffer of `capacity_bytes` for the blocks of one round."""

    def __init__(self, capacity_bytes: int, *, cuda: bool) -> None:
        self.capacity_bytes = aligned(capacity_bytes, _ALIGN)
        self._buffer = torch.zeros(self.capacity_bytes, dtype=torch.uint8, pin_memory=cuda)
        self._buffer.fill_(1)  # zeros may be pages that do not exist yet
        self.memory: memoryview = self._buffer.numpy().data
        self._bytes: NDArray[np.uint8] = self._buffer.numpy()
        self._views: dict[torch.dtype, Tensor] = {}
        self._cuda = cuda
        # As many as torch may use: a launcher that gives each rank one core says so to torch.
        threads = 1 if cuda else min(torch.get_num_threads(), _MOST_COPY_THREADS)
        self._copy_threads = CopyThreads(threads - 1)

    def close(self) -> None:
        """End the threads that help to copy."""
        self._copy_threads.close()

    def stage(
        self, plan: SlotPlan, blocks: Sequence[int], reserved: Mapping[int, bytes]
    ) -> tuple[list[StagedBlock], torch.cuda.Event | None]:
        """Copy blocks in; returns where they lie and the event to wait for (None on CPU).

        Args:
            blocks: together no larger than the buffer; see `record_bytes`.
            reserved: the payloads of the reserved blocks among them.
        """
        staged: list[StagedBlock] = []
        copies: list[tuple[Tensor, Tensor]] = []
        pieces: list[Piece] = []
        live: dict[tuple[int, str], _Live] = {}
        offset = 0
        for block in blocks:
            length = HEADER_BYTES + plan.layout.payload_bytes(block)
            staged.append(StagedBlock(block, offset, length))
            base = offset + HEADER_BYTES
            offset += aligned(length, _ALIGN)
            shard, spec = plan.shard(block), plan.layout.blocks[block]
            if shard is None:
                self._put(base, length - HEADER_BYTES, reserved[block])
                continue
            for component, at, n_bytes in plan.layout.components(block):
                place = (spec.tensor, component.name)
                if place not in live:
                    live[place] = _Live(shard, component)
                of_block = live[place]
                value = of_block.value
                if of_block.flat is not None:
                    begin = of_block.offset(spec)
                    target = self._bytes[base + at : base + at + n_bytes]
                    pieces.append((target, of_block.flat[begin : begin + n_bytes]))
                elif not isinstance(value, Tensor):
                    pack_number(component, self.memory, base + at, value)
                else:
                    if component.kind == "sliced":
                        value = block_view(value, shard, spec.offsets, spec.sizes)
                    copies.append((self.typed(value, base + at, n_bytes), value))
        self._copy_threads.copy(pieces)
        return staged, self._copy(copies)

    def _copy(self, copies: list[tuple[Tensor, Tensor]]) -> torch.cuda.Event | None:
        if not self._cuda:
            for target, source in copies:
                target.copy_(source)
            return None
        if not copies:
            return None
        targets, sources = zip(*copies, strict=True)
        torch._foreach_copy_(targets, sources, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def typed(self, like: Tensor, offset: int, n_bytes: int) -> Tensor:
        """The bytes at `offset` as a tensor of the type and shape of `like`."""
        view = self._views.get(like.dtype)
        if view is None:
            view = self._views[like.dtype] = self._buffer.view(like.dtype)
        begin = offset // like.element_size()
        return view[begin : begin + n_bytes // like.element_size()].view(like.shape)

    def record(self, staged: StagedBlock) -> memoryview:
        """The memory of one record."""
        return self.memory[staged.offset : staged.offset + staged.length]

    def _put(self, offset: int, length: int, data: bytes) -> None:
        self.memory[offset : offset + length] = data.ljust(length, b"\0")


class _Live:
    """A live component of a shard: its value, and its bytes where they lie in a row on the CPU.

    Raises:
        CheckpointError: it is not of the size that was planned.
    """

    def __init__(self, shard: Shard, component: Component) -> None:
        self.value = shard.value(component.name)
        self.flat: NDArray[np.uint8] | None = None
        self._shard, self._sliced = shard, component.kind == "sliced"
        if not isinstance(self.value, Tensor):
            return
        planned = component.n_bytes(shard.sizes)
        if self.value.nbytes != planned:
            raise CheckpointError(
                f"{shard.spec.fqn}: {component.name} has {self.value.nbytes} bytes, and "
                f"{planned} were planned for it; it was replaced while the round began"
            )
        self._dim = split_dim(shard.sizes)
        self._row_bytes = planned // shard.sizes[self._dim] if shard.sizes else planned
        if self.value.is_cpu and self.value.is_contiguous():
            self.flat = self.value.view(-1).view(torch.uint8).numpy()

    def offset(self, spec: BlockSpec) -> int:
        """Where the bytes of a block begin; blocks are cut along the first dimension with rows."""
        if not self._sliced or not spec.offsets:
            return 0
        return (spec.offsets[self._dim] - self._shard.offsets[self._dim]) * self._row_bytes


def record_bytes(layout: SlotLayout, block: int) -> int:
    """Room that a block takes in the buffer."""
    return aligned(HEADER_BYTES + layout.payload_bytes(block), _ALIGN)
