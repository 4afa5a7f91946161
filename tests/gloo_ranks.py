"""Ranks of one abortable gloo group in one process, for what needs peers and no processes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta


class GlooRanks:
    """A group, once for each of its ranks.

    Attributes:
        lost: while it is not empty, the generation is over.
        groups: by rank.
    """

    def __init__(self, world: int) -> None:
        import torch.distributed as dist

        from ettr.elastic.abortable_gloo import AbortableGloo

        self.lost: list[str] = []
        store, wait = dist.HashStore(), timedelta(seconds=300)
        self._pool = ThreadPoolExecutor(world)
        self.groups = list(
            self._pool.map(
                lambda rank: AbortableGloo(store, rank, world, wait, lambda: bool(self.lost)),
                range(world),
            )
        )

    def all(self, act: Callable) -> list:
        """What `act(group, rank)` returns on each rank, at the same time."""
        return list(self._pool.map(act, self.groups, range(len(self.groups))))

    def close(self) -> None:
        for group in self.groups:
            group.abort()
            group.detach()
