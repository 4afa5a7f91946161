"""The distance ‖δ‖ of a restored state from the one that was lost, measured or estimated.

It is estimated: each block is assumed to have moved on as it last did, in a straight line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.slots.layout import MOVEMENT, Key, Region
from ettr.checkpoint.slots.reader import PayloadReader, Record
from ettr.checkpoint.slots.record_selection import OpenCheckpoint, reserved_records
from ettr.checkpoint.tensors.shards import Shard
from ettr.checkpoint.tensors.tensor_slices import local_view, stored_parameter

_PIECE_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Perturbation:
    """‖δ‖ of the restored state against the lost one, and ‖x‖ of the restored state (L2).

    Of parameters and floating-point buffers, without moments.

    Attributes:
        exact: Measured against the live values; otherwise estimated from the last measured
            movement of each block, assumed to go on in a straight line.
        walk_norm: The same estimate if each block wanders instead, its steps independent; a dense
            model is nearer the line, a table whose rows are used now and then nearer the walk.
        unmeasured: How many of them have no known movement; they count as not moved.
    """

    delta_norm: float
    parameter_norm: float
    exact: bool
    blocks: int
    unmeasured: int = 0
    walk_norm: float | None = None

    @property
    def relative(self) -> float:
        """‖δ‖/‖x‖; infinite where ‖x‖ is 0 and ‖δ‖ is not."""
        return self._relative(self.delta_norm)

    def _relative(self, delta_norm: float) -> float:
        if self.parameter_norm == 0:
            return math.inf if delta_norm else 0.0
        return delta_norm / self.parameter_norm

    def __str__(self) -> str:
        """The ratio and where it comes from."""
        if self.exact:
            basis = "measured against the live values"
        else:
            basis = "estimated from the last measured movement, in a straight line"
            if self.walk_norm is not None:
                basis += f"; {self._relative(self.walk_norm):.2%} as a walk"
        if self.unmeasured:
            basis += f"; {self.unmeasured} of {self.blocks} blocks unmeasured"
        return f"‖δ‖/‖x‖ = {self.relative:.2%} of it ({basis})"


@dataclass(frozen=True, slots=True)
class RestoredBlock:
    """A block that was restored: its record, the block's other records, the regions written.

    share: of the block's elements that were restored.
    """

    record: Record
    others: Sequence[Record]
    targets: Sequence[tuple[Shard, Region]]
    share: float


@dataclass(frozen=True, slots=True)
class Movement:
    """The L2 distance of a block at `at_step` from its value at `since_step`, when it was saved."""

    distance: float
    since_step: int
    at_step: int


def norm(tensors: Sequence[Tensor]) -> float:
    """L2 norm of floating-point tensors together."""
    return math.sqrt(
        sum(_square(piece) for t in tensors if t.is_floating_point() for piece in _pieces(t))
    )


def distance(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """L2 distance of pairs of tensors together."""
    return math.sqrt(
        sum(
            _square(piece.double() - other.to(piece.device).double())
            for a, b in pairs
            if a.is_floating_point()
            for piece, other in zip(_pieces(a), _pieces(b), strict=True)
        )
    )


def measured(shards: Sequence[Shard], before: Sequence[Tensor]) -> Perturbation:
    """‖δ‖ of restored shards against copies of the values that they held before."""
    live = [shard.parameter for shard in shards]
    return Perturbation(distance(list(zip(live, before, strict=True))), norm(live), True, 0)


def estimated(
    checkpoint: OpenCheckpoint,
    restored: Mapping[Key, RestoredBlock],
    shards: Sequence[Shard],
    reached_step: int,
) -> Perturbation:
    """‖δ‖ if every block moved on at its last measured speed since its restored copy.

    The speed is the one that the checkpoint recorded (policy `priority`), else the distance
    between the restored copy and an older one of the same block; what was recorded not to have
    moved (`touched`, `dirty`) is assumed to move from then on.
    """
    reader = PayloadReader()
    recorded = last_movements(checkpoint, reader)
    straight2, walk2, unmeasured = 0.0, 0.0, 0
    for key, block in restored.items():
        step = block.record.header.step
        if step >= reached_step or not block.targets[0][0].parameter.is_floating_point():
            continue
        known = recorded.get(key)
        last = known if known is not None and known.distance else _between_copies(block, reader)
        last = last or known  # never moved, as far as it was watched
        if last is None:
            unmeasured += 1
            continue
        if known is not None and known.distance == 0 and known.since_step == step:
            # It had not moved by then: that time counts to the movement before it.
            last = Movement(last.distance, last.since_step, known.at_step)
            step = known.at_step
        times = max(reached_step - step, 0) / (last.at_step - last.since_step)
        straight2 += block.share * (last.distance * times) ** 2
        walk2 += block.share * last.distance**2 * times
    size = norm([shard.parameter for shard in shards])
    return Perturbation(
        math.sqrt(straight2), size, False, len(restored), unmeasured, math.sqrt(walk2)
    )


def last_movements(checkpoint: OpenCheckpoint, reader: PayloadReader) -> dict[Key, Movement]:
    """The movement of each block from its saved value when it was last recorded.

    Runs with the policies `priority`, `touched` and `dirty` record it, the last two only where a
    block had not moved at all.
    """
    movements: dict[Key, Movement] = {}
    for slot in checkpoint.slots:
        for record, payload in reserved_records(checkpoint, slot, MOVEMENT, reader):
            layout = record.file.superblock.layout
            n = layout.blocks[record.block].sizes[0]
            rows: NDArray[np.float32] = np.frombuffer(payload, np.float32)
            for block, (moved, steps, ago) in enumerate(rows[: 3 * n].reshape(n, 3).tolist()):
                if steps > 0:
                    at = record.header.step - int(ago)
                    movements[layout.key(block)] = Movement(moved, at - int(steps), at)
            break
    return movements


def _between_copies(block: RestoredBlock, reader: PayloadReader) -> Movement | None:
    """The movement between the restored copy and an older one; None: there is no older one."""
    for copy in block.others:
        steps = block.record.header.step - copy.header.step
        payload = reader.read(copy) if steps > 0 else None
        if payload is None:
            continue
        pairs = [
            (local_view(shard.parameter, shard, region), stored_parameter(copy, payload, region))
            for shard, region in block.targets
        ]
        # The regions are `share` of the block; the speed is that of the whole block.
        moved = distance(pairs) / math.sqrt(block.share)
        return Movement(moved, copy.header.step, block.record.header.step)
    return None


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    # In double precision a large tensor would take several times its own memory at once.
    flat = tensor.detach().reshape(-1)
    for begin in range(0, flat.numel(), _PIECE_ELEMENTS):
        yield flat[begin : begin + _PIECE_ELEMENTS]


def _square(flat: Tensor) -> float:
    wide = flat.double()
    return float(wide.dot(wide))
