"""From shards to the blocks of a slot, and which of them a round saves.

Blocks are cut along the first dimension that has more than one row. Selection works on arrays with
one entry a block; it needs NumPy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ettr.checkpoint.layout import (
    EXTRA,
    BlockSpec,
    Layout,
    TensorSpec,
    extra_tensor,
    movement_tensor,
)
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.checkpoint.state import Shard

POLICIES = ("full", "round-robin", "random", "priority", "touched", "dirty")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a round may save; the smallest of those given holds, and one block always may.

    What a round leaves of it, at most one block, the next may spend: the mean is kept.

    fraction: share of the slot's bytes. bytes_per_s: mean rate to the disk. step_time_share: mean
    share of a step's time that staging may take, by the measured rates.
    """

    fraction: float | None = None
    bytes_per_s: float | None = None
    step_time_share: float | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: nothing is given, or a value is out of range; all problems at once.
        """
        problems = []
        if self.fraction is None and self.bytes_per_s is None and self.step_time_share is None:
            problems.append("give fraction, bytes_per_s or step_time_share")
        for name in ("fraction", "step_time_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                problems.append(f"{name}: {value!r} was given; it lies above 0 and up to 1")
        if self.bytes_per_s is not None and not self.bytes_per_s > 0:
            problems.append(f"bytes_per_s: {self.bytes_per_s!r} was given; it lies above 0")
        if problems:
            raise UsageError("budget: " + "; ".join(problems))

    def round_bytes(
        self, total_bytes: int, since_last_s: float, stage_bytes_per_s: float, steps: int
    ) -> int:
        """Bytes that the next round may save.

        Args:
            total_bytes: of the slot.
            since_last_s: seconds since the round before it.
            stage_bytes_per_s: measured rate of staging.
            steps: training steps in that time.
        """
        limits = [float(total_bytes)]
        if self.fraction is not None:
            limits.append(math.ceil(self.fraction * total_bytes))
        if self.bytes_per_s is not None:
            limits.append(self.bytes_per_s * since_last_s)
        if self.step_time_share is not None and steps:
            limits.append(self.step_time_share * since_last_s * stage_bytes_per_s)
        return int(min(limits))


@dataclass(slots=True)
class BlockView:
    """What selection knows: one entry a block.

    saved_round: round of the newest durable record, -1 none. distance2: squared L2 distance of the
    parameter from its saved value. touches: touches since it was saved. changed: whether a version
    counter has moved since it was saved.
    """

    n_bytes: NDArray[np.int64]
    saved_round: NDArray[np.int64]
    distance2: NDArray[np.float64]
    touches: NDArray[np.int64]
    changed: NDArray[np.bool_]


def plan_layout(
    shards: Sequence[Shard],
    *,
    block_bytes: int,
    rows: Mapping[str, int],
    extra_bytes: int,
    movement: bool = False,
) -> tuple[Layout, list[int]]:
    """The slot's layout, and for each block the index of its shard (-1: a reserved block, last).

    Blocks of replicated tensors are dealt out among the replicas in turn, so that each is saved
    once.
    """
    tensors: list[TensorSpec] = []
    blocks: list[BlockSpec] = []
    of_shard: list[int] = []
    for index, shard in enumerate(shards):
        tensors.append(shard.spec)
        mine, count = shard.replica
        wanted = rows.get(shard.spec.fqn)
        for number, (offsets, sizes) in enumerate(_boxes(shard, block_bytes, wanted)):
            # Shifted by the tensor's place, or the first replica would own every small tensor.
            if (number + index) % count == mine:
                blocks.append(BlockSpec(index, offsets, sizes))
                of_shard.append(index)
    own = [movement_tensor(len(blocks))] if movement and blocks else []
    for spec in (*([extra_tensor(extra_bytes)] if extra_bytes else ()), *own):
        blocks.append(BlockSpec(len(tensors), (0,) * len(spec.shape), spec.shape))
        tensors.append(spec)
        of_shard.append(-1)
    return Layout(tuple(tensors), tuple(blocks)), of_shard


def _boxes(
    shard: Shard, block_bytes: int, rows: int | None
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    sizes = shard.sizes
    dim = split_dim(sizes)
    if not sizes:
        yield (), ()
        return
    one_row = (*sizes[:dim], 1, *sizes[dim + 1 :])
    row_bytes = sum(c.n_bytes(one_row) for c in shard.spec.components if c.kind == "sliced")
    step = rows or max(1, block_bytes // max(row_bytes, 1))
    for begin in range(0, sizes[dim], step):
        length = min(step, sizes[dim] - begin)
        offsets = list(shard.offsets)
        offsets[dim] += begin
        yield tuple(offsets), (*sizes[:dim], length, *sizes[dim + 1 :])


def rows_of(layout: Layout) -> dict[str, tuple[NDArray[np.int64], ...]]:
    """Name -> its blocks, and the rows (first, end) of each along the first dimension."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for block, spec in enumerate(layout.blocks):
        first = spec.offsets[0] if spec.offsets else 0
        length = spec.sizes[0] if spec.sizes else 1
        fqn = layout.tensors[spec.tensor].fqn
        found.setdefault(fqn, []).append((block, first, first + length))
    return {fqn: tuple(np.array(rows, np.int64).T) for fqn, rows in found.items()}


def split_dim(sizes: Sequence[int]) -> int:
    """The dimension along which a shard is cut: the first with more than one row."""
    return next((dim for dim, size in enumerate(sizes) if size > 1), 0)


def choose(
    policy: str, view: BlockView, round_bytes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Indices of the blocks to save, within `round_bytes` (at least one where any is wanted).

    Blocks that were never saved come first under every policy. Priority ranks by squared distance
    per byte: the choice that leaves the smallest L2 distance for the bytes written; for blocks of
    one size it is the paper's rule. Blocks at distance 0 are not saved again.

    **Source**: Qiao, Aragam, Zhang, Xing (2019), "Fault Tolerance in Iterative-Convergent Machine
    Learning", ICML: save the parameters with the largest change.

    Raises:
        UsageError: no such policy.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy: {policy!r} was given; it is one of {', '.join(POLICIES)}")
    n = len(view.n_bytes)
    unsaved = view.saved_round < 0
    if policy == "full":
        return np.arange(n)
    if policy == "random":
        rank = rng.random(n)
        wanted = np.ones(n, bool)
    elif policy == "priority":
        rank = -view.distance2 / np.maximum(view.n_bytes, 1)
        wanted = view.distance2 > 0
    elif policy == "touched":
        rank = -(view.touches / np.maximum(view.n_bytes, 1))
        wanted = view.touches > 0
    else:
        rank = view.saved_round.astype(float)
        wanted = view.changed if policy == "dirty" else np.ones(n, bool)
    rank = np.where(unsaved, -np.inf, rank)
    order = np.lexsort((np.arange(n), rank))
    order = order[(wanted | unsaved)[order]]
    fits = int(np.searchsorted(np.cumsum(view.n_bytes[order]), round_bytes, side="right"))
    return order[: max(fits, 1)]


def check_options(policy: str, every_steps: int, block_bytes: int, extra_bytes: int) -> None:
    """Pass if the options of a running checkpoint are in range.

    Raises:
        UsageError: some are not; all problems at once.
    """
    problems = []
    if policy not in POLICIES:
        problems.append(f"policy: {policy!r} was given; it is one of {', '.join(POLICIES)}")
    for name, value in (("every_steps", every_steps), ("block_bytes", block_bytes)):
        if value < 1:
            problems.append(f"{name}: {value} was given; it is 1 or more")
    if extra_bytes and extra_bytes < 16:
        problems.append(f"{EXTRA}: extra_bytes {extra_bytes} was given; it is 0, or 16 or more")
    if problems:
        raise UsageError("running checkpoint: " + "; ".join(problems))
