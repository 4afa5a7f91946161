"""The distance of each block from its saved value: the writer thread's work between rounds.

Parameters are read while training may change them; a score that mixes two steps orders blocks as
well as one that does not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.slots.plan import SlotPlan
from ettr.checkpoint.tensors.tensor_slices import block_view


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
        return block_view(shard.parameter, shard, spec.offsets, spec.sizes)

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
