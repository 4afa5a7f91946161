"""The warm buffer through which blocks leave the training loop.

It is allocated once and touched once: a copy into fresh pages runs at a sixth of the speed of a
copy into warm ones. On CUDA it is pinned, the copies are queued on the current stream (so that the
next optimizer step cannot overtake them) and the writer waits for their event.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ettr.checkpoint.block_selection import split_dim
from ettr.checkpoint.layout import Layout, aligned
from ettr.checkpoint.slot_file import HEADER_BYTES
from ettr.checkpoint.state import Shard

_ALIGN = 64
_SMALL = 64  # elements: below, the detour costs more than the copy


@dataclass(frozen=True, slots=True)
class Staged:
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
        self.memory = self._buffer.numpy().data
        self._views: dict[torch.dtype, Tensor] = {}
        self._cuda = cuda

    def stage(
        self,
        layout: Layout,
        blocks: Sequence[int],
        of_shard: Sequence[int],
        shards: Sequence[Shard],
        reserved: Mapping[int, bytes],
    ) -> tuple[list[Staged], Any]:
        """Copy blocks in; returns where they lie and the event to wait for (None on CPU).

        `blocks` fit: see `record_bytes`. `reserved`: the payloads of those that are no tensor's.
        """
        staged: list[Staged] = []
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        live: dict[tuple[int, str], Any] = {}
        offset = 0
        for block in blocks:
            length = HEADER_BYTES + layout.payload_bytes(block)
            staged.append(Staged(block, offset, length))
            base = offset + HEADER_BYTES
            offset += aligned(length, _ALIGN)
            index = of_shard[block]
            if index < 0:
                self._put(base, length - HEADER_BYTES, reserved[block])
                continue
            shard = shards[index]
            spec = layout.blocks[block]
            for component, at, n_bytes in layout.parts(block):
                place = (index, component.name)
                if place not in live:
                    live[place] = shard.part(component.name)
                value = live[place]
                if component.kind == "number":
                    code = "<d" if component.dtype == "float64" else "<q"
                    struct.pack_into(code, self.memory, base + at, value)
                    continue
                if component.kind == "sliced":
                    value = box_of(value, shard, spec.offsets, spec.sizes)
                targets.append(self.typed(value, base + at, n_bytes))
                sources.append(value)
        event = None
        if not self._cuda:
            for target, source in zip(targets, sources, strict=True):
                copy_plainly(target, source)
        elif targets:
            torch._foreach_copy_(targets, sources, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        return staged, event

    def typed(self, like: Tensor, offset: int, n_bytes: int) -> Tensor:
        """The bytes at `offset` as a tensor of the type and shape of `like`."""
        view = self._views.get(like.dtype)
        if view is None:
            view = self._views[like.dtype] = self._buffer.view(like.dtype)
        begin = offset // like.element_size()
        return view[begin : begin + n_bytes // like.element_size()].view(like.shape)

    def record(self, staged: Staged) -> memoryview:
        """The memory of one record."""
        return self.memory[staged.offset : staged.offset + staged.length]

    def _put(self, offset: int, length: int, data: bytes) -> None:
        self.memory[offset : offset + length] = data.ljust(length, b"\0")


def copy_plainly(target: Tensor, source: Tensor) -> None:
    """Copy in this thread alone where that is possible.

    Blocks are of a size at which torch would call its pool of threads for each of them; on a
    machine whose cores are busy that wait costs several times the copy.
    """
    alike = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
    if not alike or target.is_cuda or source.is_cuda or target.numel() <= _SMALL:
        target.copy_(source)
        return
    into = target.view(-1).view(torch.uint8).numpy()
    into[:] = source.view(-1).view(torch.uint8).numpy()


def record_bytes(layout: Layout, block: int) -> int:
    """Room that a block takes in the buffer."""
    return aligned(HEADER_BYTES + layout.payload_bytes(block), _ALIGN)


def box_of(part: Tensor, shard: Shard, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    """The block's box of a local tensor, as a view."""
    if sizes == shard.sizes:
        return part
    dim = split_dim(shard.sizes)
    return part.narrow(dim, offsets[dim] - shard.offsets[dim], sizes[dim])
