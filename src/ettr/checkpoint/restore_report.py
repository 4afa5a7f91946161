"""The report of a restore: what was restored, how old it is, and how far from what was lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.slots.layout import MOVEMENT, Key, Region
from ettr.checkpoint.slots.reader import BadBlock, PayloadReader, Record
from ettr.checkpoint.slots.record_selection import OpenCheckpoint, reserved_records
from ettr.checkpoint.tensors.shards import Shard, local_view, stored_parameter
from ettr.recovery.planner import RecoveryPolicy, iteration_cost

# -- the distance ‖δ‖ of a restored state from the one that was lost, measured or estimated --------
# It is estimated: each block is assumed to have moved on as it last did, in a straight line.


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


# -- the report of a restore: what was restored, how old it is, and how far from what was lost -----


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore has put into a state.

    Attributes:
        fell_back: Places that could not be trusted; the block's next older copy was taken.
        missing: Parameters of which no good record covers some element (only with
            allow_missing=True).
        fresh_moments: Parameters that were saved before the optimizer had made their moments:
            those are zero again, their step counts with them.
        objects_step: The step that objects and parameter groups are of; after a torn write an
            earlier one than the blocks'. None: none were saved.
        unused_tensors: Saved tensors that a state with an optimizer does not have (only with
            allow_missing=True).
        restored_fraction: Share of the elements of the model's parameters and buffers, those of
            all ranks counted.
    """

    blocks: int
    known_blocks: int
    restored_bytes: int
    oldest_step: int | None
    newest_step: int | None
    fell_back: tuple[BadBlock, ...]
    missing: tuple[str, ...]
    fresh_moments: tuple[str, ...]
    restore_s: float
    objects: tuple[str, ...] = ()
    objects_step: int | None = None
    missing_objects: tuple[str, ...] = ()
    unused_objects: tuple[str, ...] = ()
    restored_fraction: float = 1.0
    mean_step: float | None = None
    reached_step: int | None = None
    perturbation: Perturbation | None = None
    unused_moments: tuple[str, ...] = ()
    unused_tensors: tuple[str, ...] = ()
    replaced_options: tuple[str, ...] = ()

    @property
    def consistent(self) -> bool:
        """Whether all blocks are of one step; otherwise the state is a composite."""
        return self.oldest_step == self.newest_step

    @property
    def delta_norm(self) -> float | None:
        """‖δ‖; `perturbation` says whether it was measured or estimated."""
        return None if self.perturbation is None else self.perturbation.delta_norm

    def __str__(self) -> str:
        """The report in a sentence."""
        return self.summary()

    def summary(self, policy: RecoveryPolicy | None = None) -> str:
        """The report in a sentence."""
        clauses = [
            f"restored {_percent(self.restored_fraction)} of the parameters "
            f"({self.blocks} of {self.known_blocks} blocks)",
            *self._age_clauses(policy),
            f"in {self.restore_s:.2f} s",
            *self._object_clauses(),
        ]
        return ", ".join(clauses)

    def _object_clauses(self) -> list[str]:
        clauses = []
        if self.objects_step is not None and self.objects_step != self.newest_step:
            clauses.append(f"objects of step {self.objects_step}")
        not_restored = (
            *self.missing,
            *self.missing_objects,
            *self.unused_objects,
            *self.unused_tensors,
            *self.unused_moments,
        )
        if not_restored:
            clauses.append(f"not restored: {first_names(not_restored)}")
        if self.replaced_options:
            clauses.append(f"options as saved, not as built: {first_names(self.replaced_options)}")
        if self.fresh_moments:
            clauses.append(f"moments begun from zero: of {first_names(self.fresh_moments)}")
        return clauses

    def _age_clauses(self, policy: RecoveryPolicy | None) -> list[str]:
        if self.oldest_step is None or self.newest_step is None:
            return []
        clauses = [f"of step {_span(self.oldest_step, self.newest_step)}"]
        if self.reached_step is not None:
            youngest, oldest = (self.reached_step - s for s in (self.newest_step, self.oldest_step))
            clauses.append(f"staleness {_span(youngest, oldest)} steps")
        if self.perturbation is not None:
            clauses.append(str(self.perturbation))
        if policy is not None and self.reached_step is not None and self.mean_step is not None:
            relative = None if self.perturbation is None else self.perturbation.relative
            cost = iteration_cost(self.reached_step - self.mean_step, relative, policy)
            clauses.append(f"predicted cost {cost:.1f} iterations")
        if self.fell_back:
            clauses.append(f"{len(self.fell_back)} damaged places, older copies taken")
        return clauses


def first_names(names: Sequence[str], n: int = 5) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return ", ".join(names[:n]) + more


def _percent(fraction: float) -> str:
    """A share to three digits, rounded down: 100 % is all of it."""
    if fraction <= 0:
        return "0 %"
    percent = 100 * fraction
    digits = 2 - math.floor(math.log10(percent))
    rounded_down = math.floor(percent * 10.0**digits + 1e-9) / 10.0**digits
    return f"{rounded_down:.3g} %"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
