"""How far a restored state lies from the one that was lost: ‖δ‖, measured or estimated.

What a dead rank held is gone, so its distance from the copies that are left cannot be measured. It
is estimated: each block is taken to have moved on as it last did, in a straight line. Where the
live values are at hand (a drill, a test) the distance is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.coverage import Box
from ettr.checkpoint.layout import MOVEMENT, Key
from ettr.checkpoint.record_selection import OpenCheckpoint, reserved
from ettr.checkpoint.slot_reader import PayloadReader, Record
from ettr.checkpoint.state import Shard
from ettr.checkpoint.tensor_slices import narrow_to, stored_parameter

_PIECE_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class Perturbation:
    """‖δ‖ of what was restored against what was lost, and ‖x‖ of what was restored (L2).

    Of parameters and floating-point buffers; moments are not in it. exact: measured against the
    live values; else estimated from the last measured movement of each block, which is thought to
    go on in a straight line. walk_norm: the same estimate if each block wanders instead, its steps
    independent; a dense model is nearer the line, a table whose rows are met now and then nearer
    the walk. blocks, unmeasured: how many took part, and of how many of them no movement was known:
    those count as not moved.
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
class Restored:
    """A block that was restored: its record, the others that there are, where it went."""

    record: Record
    others: Sequence[Record]
    boxes: Sequence[tuple[Shard, Box]]
    share: float


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a block lay at `at_step` from what it was at `since_step`, when it was saved."""

    moved: float
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


def exact(shards: Sequence[Shard], truth: Sequence[Tensor]) -> Perturbation:
    """‖δ‖ of restored shards against copies of the values that they held before."""
    live = [shard.part("param") for shard in shards]
    return Perturbation(distance(list(zip(live, truth, strict=True))), norm(live), True, 0)


def estimate(
    source: OpenCheckpoint,
    restored: Mapping[Key, Restored],
    shards: Sequence[Shard],
    reached_step: int,
) -> Perturbation:
    """‖δ‖ if every block moved on at its last measured speed since its restored copy.

    The speed is the one that the checkpoint recorded (policy `priority`), else the distance between
    the restored copy and an older one of the same block; what was recorded not to have moved
    (`touched`, `dirty`) is thought to move from then on. A block of which less than the whole was
    restored counts in proportion.
    """
    reader = PayloadReader()
    recorded = last_movement(source, reader)
    straight2, walk2, unmeasured = 0.0, 0.0, 0
    for key, one in restored.items():
        step = one.record.header.step
        if step >= reached_step or not one.boxes[0][0].part("param").is_floating_point():
            continue
        seen = recorded.get(key)
        last = seen if seen is not None and seen.moved else _between_copies(one, reader)
        last = last or seen  # never moved, as far as it was watched
        if last is None:
            unmeasured += 1
            continue
        if seen is not None and seen.moved == 0 and seen.since_step == step:
            # It had not moved by then: that time counts to the movement before it.
            last, step = Moved(last.moved, last.since_step, seen.at_step), seen.at_step
        times = max(reached_step - step, 0) / (last.at_step - last.since_step)
        straight2 += one.share * (last.moved * times) ** 2
        walk2 += one.share * last.moved**2 * times
    size = norm([shard.part("param") for shard in shards])
    return Perturbation(
        math.sqrt(straight2), size, False, len(restored), unmeasured, math.sqrt(walk2)
    )


def last_movement(source: OpenCheckpoint, reader: PayloadReader) -> dict[Key, Moved]:
    """How far each block had moved from its saved value when that was last recorded.

    Runs with the policies `priority`, `touched` and `dirty` record it, the last two only where a
    block had not moved at all.
    """
    found: dict[Key, Moved] = {}
    for slot in source.slots:
        for record, payload in reserved(source, slot, MOVEMENT, reader):
            layout = record.file.superblock.layout
            n = layout.blocks[record.block].sizes[0]
            rows: NDArray[np.float32] = np.frombuffer(payload, np.float32)
            for block, (moved, steps, ago) in enumerate(rows[: 3 * n].reshape(n, 3).tolist()):
                if steps > 0:
                    at = record.header.step - int(ago)
                    found[layout.key(block)] = Moved(moved, at - int(steps), at)
            break
    return found


def _between_copies(one: Restored, reader: PayloadReader) -> Moved | None:
    """The movement between the restored copy and an older one; None: there is none."""
    for copy in one.others:
        steps = one.record.header.step - copy.header.step
        payload = reader.read(copy) if steps > 0 else None
        if payload is None:
            continue
        pairs = [
            (narrow_to(shard.part("param"), shard, box), stored_parameter(copy, payload, box))
            for shard, box in one.boxes
        ]
        # The boxes are `share` of the block; the speed is that of the whole.
        moved = distance(pairs) / math.sqrt(one.share)
        return Moved(moved, copy.header.step, one.record.header.step)
    return None


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    # In double precision a large tensor would take several times its own memory at once.
    flat = tensor.detach().reshape(-1)
    for begin in range(0, flat.numel(), _PIECE_ELEMENTS):
        yield flat[begin : begin + _PIECE_ELEMENTS]


def _square(flat: Tensor) -> float:
    wide = flat.double()
    return float(wide.dot(wide))
