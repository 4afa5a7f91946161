"""The blocks that shards are cut into, and the warm buffer through which they leave the loop.

Blocks are cut along the first dimension that has more than one row. The buffer is allocated once
and touched once: a copy into fresh pages runs at a sixth of the speed of a copy into warm ones. On
CUDA it is pinned, the copies are queued on the current stream (so that the next optimizer step
cannot overtake them) and the writer waits for their event.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.restore_report import first_names
from ettr.checkpoint.retention import Retention
from ettr.checkpoint.slots.durable_io import slot_files
from ettr.checkpoint.slots.format import HEADER_BYTES
from ettr.checkpoint.slots.layout import (
    RESERVED,
    BlockSpec,
    Component,
    SlotLayout,
    TensorSpec,
    aligned,
    movement_tensor,
    objects_tensor,
    region_of,
    split_dim,
)
from ettr.checkpoint.slots.writer import SlotWriter
from ettr.checkpoint.tensors.shards import Shard, flat_bytes, local_view, pack_number
from ettr.errors import CheckpointError, FencedError

_NO_SHARD = -1


@dataclass(frozen=True)
class SlotPlan:
    """The layout of a slot and the live shards that its blocks are cut from."""

    layout: SlotLayout
    shards: Sequence[Shard]
    shard_of_block: NDArray[np.int64]

    @cached_property
    def n_data(self) -> int:
        """Number of blocks that are cut from shards; the blocks after them are reserved."""
        return int(np.count_nonzero(self.shard_of_block != _NO_SHARD))

    @property
    def n_blocks(self) -> int:
        """Number of all blocks."""
        return len(self.shard_of_block)

    def shard(self, block: int) -> Shard | None:
        """The shard that a block is cut from; None: a reserved block."""
        index = int(self.shard_of_block[block])
        return None if index == _NO_SHARD else self.shards[index]

    @cached_property
    def rows_of(self) -> dict[str, tuple[NDArray[np.int64], ...]]:
        """Name -> its blocks, and the rows (first, end) of each along the first dimension."""
        rows: dict[str, list[tuple[int, int, int]]] = {}
        for block, spec in enumerate(self.layout.blocks):
            first = spec.offsets[0] if spec.offsets else 0
            length = spec.sizes[0] if spec.sizes else 1
            fqn = self.layout.tensors[spec.tensor].fqn
            rows.setdefault(fqn, []).append((block, first, first + length))
        return {fqn: tuple(np.array(of_name, np.int64).T) for fqn, of_name in rows.items()}


def plan_slot(
    shards: Sequence[Shard],
    *,
    block_bytes: int,
    rows: Mapping[str, int],
    objects_bytes: int,
    movement: bool = False,
) -> SlotPlan:
    """Cut shards into blocks.

    Blocks of replicated tensors are dealt out among the replicas in turn, so that each is saved
    once.
    """
    tensors: list[TensorSpec] = []
    blocks: list[BlockSpec] = []
    shard_of_block: list[int] = []
    for index, shard in enumerate(shards):
        tensors.append(shard.spec)
        replica, n_replicas = shard.replica
        rows_per_block = rows.get(shard.spec.fqn)
        for number, (offsets, sizes) in enumerate(_cut_shard(shard, block_bytes, rows_per_block)):
            # Shifted by the tensor's number, or the first replica would own every small tensor.
            if (number + index) % n_replicas == replica:
                blocks.append(BlockSpec(index, offsets, sizes))
                shard_of_block.append(index)
    reserved = [objects_tensor(objects_bytes)] if objects_bytes else []
    if movement and blocks:
        reserved.append(movement_tensor(len(blocks)))
    for spec in reserved:
        blocks.append(BlockSpec(len(tensors), (0,) * len(spec.shape), spec.shape))
        tensors.append(spec)
        shard_of_block.append(_NO_SHARD)
    layout = SlotLayout(tuple(tensors), tuple(blocks), _holders(shards))
    return SlotPlan(layout, shards, np.array(shard_of_block, np.int64))


def _holders(shards: Sequence[Shard]) -> dict[str, list[tuple[str, str]]]:
    holders: dict[str, list[tuple[str, str]]] = {}
    for shard in shards:
        for name, holder in shard.holders():
            of_name = holders.setdefault(name, [])
            if holder not in of_name:
                of_name.append(holder)
    return holders


def _cut_shard(
    shard: Shard, block_bytes: int, rows: int | None
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Global offsets and sizes of the blocks of a shard."""
    sizes = shard.sizes
    if not sizes or shard.uncut:
        yield shard.offsets, sizes
        return
    dim = split_dim(sizes)
    one_row = (*sizes[:dim], 1, *sizes[dim + 1 :])
    row_bytes = sum(c.n_bytes(one_row) for c in shard.spec.components if c.kind == "sliced")
    step = rows or max(1, block_bytes // max(row_bytes, 1))
    for begin in range(0, sizes[dim], step):
        length = min(step, sizes[dim] - begin)
        offsets = list(shard.offsets)
        offsets[dim] += begin
        yield tuple(offsets), (*sizes[:dim], length, *sizes[dim + 1 :])


# -- the warm buffer -----------------------------------------------------------------------------

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
                n_bytes = length - HEADER_BYTES
                self.memory[base : base + n_bytes] = reserved[block].ljust(n_bytes, b"\0")
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
                        value = local_view(value, shard, region_of(spec.offsets, spec.sizes))
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
        return self._buffer[offset : offset + n_bytes].view(like.dtype).view(like.shape)

    def record(self, staged: StagedBlock) -> memoryview:
        """The memory of one record."""
        return self.memory[staged.offset : staged.offset + staged.length]


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
        self._pool = ThreadPoolExecutor(max(helpers, 1), "ettr-checkpoint-copy")

    def copy(self, pieces: Iterable[Piece]) -> None:
        """Copy every source into its target; returns once all are there, whoever copied them."""
        left = deque(_cut(pieces))
        helping: list[Future[None]] = []
        if sum(source.nbytes for _, source in left) >= _ALONE_BYTES:
            with suppress(RuntimeError):  # closed, or Python is ending: the caller copies alone
                helping += (self._pool.submit(_copy, left) for _ in range(self._helpers))
        try:
            _copy(left)
        finally:
            left.clear()  # after an error nothing more is begun
            begun = [one for one in helping if not one.cancel()]
            wait(begun)
        for one in begun:
            one.result()

    def close(self) -> None:
        """End the helpers; later copies are made by the caller alone."""
        self._pool.shutdown()


def _copy(left: deque[Piece]) -> None:
    """Copy one piece at a time until none is left."""
    while True:
        try:
            target, source = left.popleft()
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


# -- the writer thread: rounds are checked, become durable in order, and blocks are scored ---------
# A round that fails leaves every block its older copy and is tried again with later values; a slot
# that another process owns ends the writer for good.


_LOG = logging.getLogger("ettr.checkpoint")
_FAILED = "a round failed, older copies remain"


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks of one step in a buffer; `event` is to be waited for on CUDA.

    metrics: with them a copy of the step is kept; None: it is not.
    """

    step: int
    staging: Staging
    staged: list[StagedBlock]
    event: torch.cuda.Event | None
    score: bool
    metrics: Mapping[str, float] | None = None


@dataclass(slots=True)
class SavedBlocks:
    """The durable copies of a slot's blocks, one entry per block.

    Attributes:
        distance2: Squared L2 distance of the parameter from it when last scored, or 0.
        movement: Rows of (distance when last scored, step of the copy, step of the scoring).
    """

    step: NDArray[np.int64]
    round: NDArray[np.int64]
    distance2: NDArray[np.float64]
    movement: NDArray[np.float64]

    @classmethod
    def none_of(cls, n: int) -> SavedBlocks:
        """No block of `n` has a durable copy yet."""
        unsaved = np.full(n, -1, np.int64)
        return cls(unsaved, unsaved.copy(), np.zeros(n), np.zeros((n, 3)))


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """The state of the writer thread between two rounds.

    durable_step: newest step of which a block is durable. error: why the latest round failed.
    refused: why it was not to be written.
    """

    durable_step: int | None = None
    written_bytes: int = 0
    error: str | None = None
    failed_rounds: int = 0
    refused: str | None = None


class RoundWriter:
    """Owns the slot's file and a daemon thread.

    The training loop reads `saved` and `status` while the thread is idle. It sets `reached_step`,
    the step that the parameters are of: a slow disk delays the scoring by many steps.
    """

    def __init__(
        self,
        slot: SlotWriter,
        scorer: Scorer | None,
        finite: FiniteCheck | None,
        retention: Retention | None,
        under_way: int = 1,
    ) -> None:
        self.slot = slot
        self.saved = SavedBlocks.none_of(len(slot.superblock.layout.blocks))
        self.scored = False
        self.reached_step = 0
        self._scorer, self._under_way = scorer, under_way
        self._finite, self._retention = finite, retention
        self._status = WriterStatus()
        self._fenced: FencedError | None = None
        layout = slot.superblock.layout
        self._is_reserved = [layout.key(b)[0] in RESERVED for b in range(len(layout.blocks))]
        self._earlier_files = len(slot_files(slot.folder)) > 1
        self._condition = threading.Condition()
        self._rounds: deque[Round] = deque()  # the first is being written
        self._score = self._end = False
        self._idle = True
        self._thread = threading.Thread(target=self._run, name="ettr-checkpoint", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it takes no further round now."""
        return len(self._rounds) >= self._under_way or (self._under_way == 1 and not self._idle)

    @property
    def status(self) -> WriterStatus:
        """The outcome of the rounds so far."""
        return replace(self._status, written_bytes=self.slot.written_bytes)

    def submit(self, work: Round) -> None:
        """Hand a round over; the writer is not busy."""
        with self._condition:
            if self._end:
                raise CheckpointError(
                    f"{self.slot.folder}: the checkpoint is closed; open it again"
                )
            self._rounds.append(work)
            self._idle = self.scored = False
            self.reached_step = work.step
            self._condition.notify_all()

    def score_soon(self, step: int) -> None:
        """Score the blocks as they are at this step, if the thread is idle."""
        with self._condition:
            if self._idle and not self._end:
                self._score, self.reached_step, self._idle = True, step, False
                self._condition.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread is idle; returns whether it is, within the time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._idle, timeout_s)

    def raise_if_fenced(self) -> None:
        """Raise the fencing that the thread met."""
        if self._fenced is not None:
            raise FencedError(str(self._fenced))

    def close(self) -> None:
        """Finish, end the thread, close the file."""
        with self._condition:
            self._end = True
            self._condition.notify_all()
        self._thread.join()
        self.slot.close()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._rounds or self._score or self._end)
                work, score = self._rounds[0] if self._rounds else None, self._score
                if work is None and not score:
                    return
            try:
                if work is not None:
                    self._write(work)
                if score or (work is not None and work.score):
                    self._measure()
            except FencedError as error:
                self._fenced = error
                self._note_failure(str(error))
            except OSError as error:
                self._note_failure(f"{_FAILED}: {error.strerror or error}")
            except CheckpointError as error:
                self._note_failure(f"{_FAILED}: {error}")
            except Exception as error:  # a checkpoint must not end the training
                self._note_failure(f"{_FAILED}: {error!r}")
            with self._condition:
                if work is not None:
                    self._rounds.popleft()
                self._score, self._idle = False, not self._rounds
                self._condition.notify_all()

    def _note_failure(self, error: str) -> None:
        failed_rounds = self._status.failed_rounds + 1
        self._status = replace(self._status, error=error, failed_rounds=failed_rounds)

    def _write(self, work: Round) -> None:
        if work.event is not None:
            work.event.synchronize()
        if self._finite and (broken := self._finite.broken(work.staged, work.staging)):
            self._status = replace(
                self._status,
                refused=f"step {work.step} is not saved because it holds NaN or infinity: "
                f"{first_names(broken)}; the copies before it stay",
                failed_rounds=self._status.failed_rounds + 1,
            )
            return
        self._status = replace(self._status, refused=None)
        self.slot.begin_round()
        for staged in work.staged:
            self.slot.write(staged.block, work.step, work.staging.record(staged))
        blocks = [staged.block for staged in work.staged]
        self.slot.commit(blocks)
        self.saved.step[blocks] = work.step
        self.saved.round[blocks] = self.slot.seq
        # Until the next scoring: or the same blocks would be chosen again.
        self.saved.distance2[blocks] = 0.0
        saves_tensors = any(not self._is_reserved[block] for block in blocks)
        durable_step = work.step if saves_tensors else self._status.durable_step
        self._status = replace(self._status, error=None, durable_step=durable_step)
        if self._scorer is not None:
            self._note_saved(self._scorer, work)
        if self._retention is not None and work.metrics is not None:
            records = {staged.block: work.staging.record(staged) for staged in work.staged}
            try:
                self._retention.copy(work.step, work.metrics, self.slot, records)
            except (OSError, CheckpointError) as error:
                _LOG.warning("no copy of step %d is kept: %s", work.step, error)
        if self._earlier_files and self.slot.covered:
            self.slot.drop_earlier_files()
            self._earlier_files = False

    def _measure(self) -> None:
        self.scored = True
        if self._scorer is None:
            return
        saved = self.saved
        distance2, at_step = self._scorer.distances2(lambda: self.reached_step)
        saved.distance2 = np.where(np.isnan(distance2), np.inf, distance2)
        # A block that was saved at this very step keeps the measurement of its copy before.
        known = (saved.step >= 0) & (saved.step < at_step)
        saved.movement[known, 0] = np.sqrt(saved.distance2[known])
        saved.movement[known, 1] = saved.step[known]
        saved.movement[known, 2] = at_step[known]

    def _note_saved(self, scorer: Scorer, work: Round) -> None:
        for staged in work.staged:
            live = scorer.live_parameter(staged.block)
            if live is not None:
                n_bytes = live.numel() * live.element_size()
                payload = staged.offset + HEADER_BYTES
                scorer.note_saved(staged.block, work.staging.typed(live, payload, n_bytes))


# -- Values that are no longer finite: a round that holds them is not saved over copies that are --

_WRITER_PIECE_BYTES = 1 << 20  # stays in the cache
# The bits of an exponent that says infinity or not a number; of `e4m3fn` of the latter alone.
_EXPONENT = {
    "float16": (np.uint16, 0x7C00),
    "bfloat16": (np.uint16, 0x7F80),
    "float8_e5m2": (np.uint8, 0x7C),
    "float8_e4m3fn": (np.uint8, 0x7F),
}
_SUMMED = {
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.float32,
    "complex128": np.float64,
}


class FiniteCheck:
    """Looks at trained parameters and their moments before they are written.

    A tensor that was not finite when it was first saved (a mask of infinities that is trained, a
    run resumed from such a step) is left alone.
    """

    def __init__(self, plan: SlotPlan, finite: set[str]) -> None:
        self._plan, self._finite = plan, finite

    def broken(self, staged: list[StagedBlock], staging: Staging) -> list[str]:
        """Names of tensors that were finite when last saved and are not; without any, note all."""
        good: set[str] = set()
        bad: set[str] = set()
        layout = self._plan.layout
        for one in staged:
            shard = self._plan.shard(one.block)
            if shard is None or not shard.optimizers or not shard.tensor.requires_grad:
                continue
            name = shard.spec.fqn
            payload = np.frombuffer(staging.record(one), np.uint8)[HEADER_BYTES:]
            parts = layout.components(one.block)
            finite = all(_finite(payload[at : at + n], part.dtype) for part, at, n in parts)
            (good if finite else bad).add(name)
        broken = sorted(bad & self._finite)
        if not broken:
            self._finite |= good - bad
        return broken


def _finite(raw: NDArray[np.uint8], dtype: str) -> bool:
    if dtype in _SUMMED:
        values = raw[: len(raw) // 8 * 8 if dtype != "float32" else len(raw)].view(_SUMMED[dtype])
        with np.errstate(all="ignore"):
            # One that is not finite makes the sum so; a sum that overflows is looked at again.
            return bool(np.isfinite(np.add.reduce(values)) or np.isfinite(values).all())
    if dtype in _EXPONENT:
        unsigned, mask = _EXPONENT[dtype]
        return not any(
            bool(((raw[at : at + _WRITER_PIECE_BYTES].view(unsigned) & mask) == mask).any())
            for at in range(0, len(raw), _WRITER_PIECE_BYTES)
        )
    return True


# -- The distance of each block from its saved value: the writer thread's work between rounds -----
#
# Parameters are read while training may change them; a score that mixes two steps orders blocks
# as well as one that does not.


class Scorer:
    """Distances of one slot's blocks; used from the writer thread only."""

    def __init__(self, plan: SlotPlan) -> None:
        self._plan = plan
        self._saved: dict[int, Tensor] = {}
        self._scratch = np.empty(0, np.float32)
        devices = {shard.tensor.device for shard in plan.shards if shard.tensor.is_cuda}
        # Its own stream: scoring neither waits for training's kernels nor holds them up.
        self._stream: torch.cuda.Stream | None = None
        if devices:
            self._stream = torch.cuda.Stream(devices.pop())  # type: ignore[no-untyped-call]

    def note_saved(self, block: int, value: Tensor) -> None:
        """Keep a copy of the parameter's value that has become durable."""
        saved = self._saved.get(block)
        if saved is not None:
            saved.copy_(value)
        elif (shard := self._plan.shard(block)) is not None:
            self._saved[block] = value.to(shard.tensor.device, copy=True)

    def live_parameter(self, block: int) -> Tensor | None:
        """The live parameter of a block, as a view; None: a reserved block."""
        shard, spec = self._plan.shard(block), self._plan.layout.blocks[block]
        if shard is None:
            return None
        return local_view(shard.parameter, shard, region_of(spec.offsets, spec.sizes))

    def distances2(
        self, reached_step: Callable[[], int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Squared L2 distance of every block (0: never saved), and the step when it was read."""
        squared = np.zeros(self._plan.n_blocks)
        at_step = np.full(len(squared), reached_step(), np.int64)
        if self._stream is not None:
            self._score_on_device(squared, self._stream)
            return squared, at_step
        for block, saved in self._saved.items():
            live = self.live_parameter(block)
            if live is not None:
                at_step[block] = reached_step()
                squared[block] = self._distance2(live, saved)
        return squared, at_step

    def _score_on_device(self, squared: NDArray[np.float64], stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            scored: list[int] = []
            sums: list[Tensor] = []
            for block, saved in self._saved.items():
                live = self.live_parameter(block)
                if live is not None:
                    scored.append(block)
                    sums.append(torch.sum((live - saved).float().square()))
            if sums:
                squared[scored] = torch.stack(sums).cpu().numpy()

    def _distance2(self, live: Tensor, saved: Tensor) -> float:
        # In NumPy: torch would start a second pool of threads from this one and crowd out training.
        if live.dtype != torch.float32:
            live, saved = live.to(torch.float32), saved.to(torch.float32)
        n = live.numel()
        if len(self._scratch) < n:
            self._scratch = np.empty(n, np.float32)
        scratch = self._scratch[:n]
        np.subtract(live.numpy(), saved.numpy(), out=scratch.reshape(live.shape))
        return float(np.einsum("i,i->", scratch, scratch))
