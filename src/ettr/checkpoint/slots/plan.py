"""The blocks of a slot, and the shards they are cut from.

Blocks are cut along the first dimension that has more than one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.slots.layout import (
    BlockSpec,
    SlotLayout,
    TensorSpec,
    movement_tensor,
    objects_tensor,
    split_dim,
)

if TYPE_CHECKING:
    from ettr.checkpoint.tensors.shards import Shard

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
        for number, (offsets, sizes) in enumerate(_cut(shard, block_bytes, rows_per_block)):
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


def _cut(
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
