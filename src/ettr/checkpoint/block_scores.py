"""How far each block has moved from its saved value: the writer thread's work between rounds.

Keeps one copy of the parameters as last saved, on the parameters' own device. Blocks are compared
one at a time, so that they stay in the cache. Parameters are read while training may change them; a
score that mixes two steps orders blocks as well as one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ettr.checkpoint.layout import Layout
from ettr.checkpoint.staging import box_of
from ettr.checkpoint.state import Shard


class Scorer:
    """Distances of one slot's blocks; used from the writer thread only."""

    def __init__(self, layout: Layout, of_shard: Sequence[int], shards: Sequence[Shard]) -> None:
        self._layout, self._of_shard, self._shards = layout, of_shard, shards
        self._saved: dict[int, Tensor] = {}
        self._scratch = np.empty(0, np.float32)
        devices = {shard.tensor.device for shard in shards if shard.tensor.is_cuda}
        # A stream of its own: scoring neither waits for training's kernels nor holds them up.
        self._stream: Any = None
        if devices:
            self._stream = torch.cuda.Stream(devices.pop())  # type: ignore[no-untyped-call]

    def saved(self, block: int, value: Tensor) -> None:
        """Note the parameter's value that has become durable."""
        kept = self._saved.get(block)
        if kept is None:
            device = self._shards[self._of_shard[block]].tensor.device
            self._saved[block] = value.to(device, copy=True)
        else:
            kept.copy_(value)

    def like(self, block: int) -> Tensor | None:
        """The live parameter of a block; None: the block holds no parameter."""
        index = self._of_shard[block]
        if index < 0:
            return None
        shard, spec = self._shards[index], self._layout.blocks[block]
        return box_of(shard.part("param"), shard, spec.offsets, spec.sizes)

    def distances2(
        self, reached_step: Callable[[], int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Squared L2 distance of every block (0: never saved), and the step at which it was read.

        Args:
            reached_step: the step that the parameters are of now.
        """
        found = np.zeros(len(self._layout.blocks))
        at_step = np.full(len(found), reached_step(), np.int64)
        if self._stream is None:
            for block, saved in self._saved.items():
                live = self.like(block)
                if live is not None:
                    at_step[block] = reached_step()
                    found[block] = self._distance2(live, saved)
            return found, at_step
        with torch.cuda.stream(self._stream):
            pairs = [(b, self.like(b), saved) for b, saved in self._saved.items()]
            parts = [(b, torch.sum((x - s).float().square())) for b, x, s in pairs if x is not None]
            if parts:
                values = torch.stack([value for _, value in parts]).cpu().numpy()
                found[[block for block, _ in parts]] = values
        return found, at_step

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
