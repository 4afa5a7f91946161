"""The warm buffer through which blocks leave the training loop.

It is allocated once and touched once: a copy into fresh pages runs at a sixth of the speed of a
copy into warm ones. On CUDA it is pinned, the copies are queued on the current stream (so that the
next optimizer step cannot overtake them) and the writer waits for their event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.layout import BlockSpec, Component, SlotLayout, aligned, split_dim
from ettr.checkpoint.slots.plan import SlotPlan
from ettr.checkpoint.tensors.shards import Shard
from ettr.checkpoint.tensors.tensor_slices import block_view, flat_bytes, pack_number

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
        """Copy blocks in; returns where they lie and the event to wait for (None on CPU)."""
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
    """A live component of a shard: its value, and its bytes where they lie in a row on the CPU."""

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
            self.flat = flat_bytes(self.value).numpy()

    def offset(self, spec: BlockSpec) -> int:
        """Where the bytes of a block begin; blocks are cut along the first dimension with rows."""
        if not self._sliced or not spec.offsets:
            return 0
        return (spec.offsets[self._dim] - self._shard.offsets[self._dim]) * self._row_bytes


def record_bytes(layout: SlotLayout, block: int) -> int:
    """Room that a block takes in the buffer."""
    return aligned(HEADER_BYTES + layout.payload_bytes(block), _ALIGN)


Piece: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # target, source: of one length

_PIECE_BYTES = 2 << 20
_ALONE_BYTES = 16 << 20  # below, the copy is over before another thread has begun


class CopyThreads:
    """The calling thread and `helpers` others, which sleep between two copies; `close` ends them.

    Not for several callers at once.
    """

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        for number in range(helpers):
            threading.Thread(
                target=self._serve, name=f"ettr-checkpoint-copy-{number}", daemon=True
            ).start()

    def copy(self, pieces: Iterable[Piece]) -> None:
        """Copy every source into its target; returns once all are there, whoever copied them."""
        job = _Job(pieces)
        if job.n_bytes >= _ALONE_BYTES:
            for _ in range(self._helpers):
                self._jobs.put(job)
        job.run()

    def close(self) -> None:
        """End the helpers; later copies are made by the caller alone."""
        for _ in range(self._helpers):
            self._jobs.put(None)
        self._helpers = 0

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.help()
            del job  # it holds tensors of the model


class _Job:
    """The pieces of one copy, taken one at a time by whoever is free."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._left = deque(_cut(pieces))
        self.n_bytes = sum(source.nbytes for _, source in self._left)
        self._changed = threading.Condition()
        self._helping = 0
        self._error: BaseException | None = None

    def run(self) -> None:
        """Copy until nothing is left, then wait for the helpers that are still at a piece."""
        try:
            self._work()
        finally:
            self._left.clear()  # after an error nothing more is begun
            with self._changed:
                self._changed.wait_for(lambda: not self._helping)
        if self._error is not None:
            raise self._error

    def help(self) -> None:
        """Copy what is left; an error is for the caller of `run`."""
        with self._changed:
            self._helping += 1  # before a piece is taken, or `run` would not wait for it
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._helping -= 1
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            try:
                target, source = self._left.popleft()
            except IndexError:
                return
            target[:] = source  # NumPy lets other threads run meanwhile


def _cut(pieces: Iterable[Piece]) -> Iterator[Piece]:
    for target, source in pieces:
        if len(target) != len(source):
            raise ValueError(f"{len(source)} bytes cannot be copied into room for {len(target)}")
        for begin in range(0, len(source), _PIECE_BYTES):
            end = begin + _PIECE_BYTES
            yield target[begin:end], source[begin:end]
