"""Copies of shards in the memory of another rank, and their way back after a loss.

A slot's buddy is `stride` slots further on: the next rank on one machine, a rank of another node
where there are several.
"""

from __future__ import annotations

from collections.abc import Sequence

from ettr.elastic.buddies.ring import Ring, RingAddress
from ettr.elastic.buddies.shard_history import ShardStore
from ettr.elastic.buddies.shard_image import Piece
from ettr.elastic.restore.rank_inventory import Holdings, RankInventory


class BuddyExchange:
    """One rank's copies within one generation: its own, and those it exchanges with neighbours.

    Args:
        shards: this rank's memory.
        stride: slots from a rank to its buddy.
        ring: connections to both neighbours; None: nothing is exchanged.
    """

    def __init__(
        self, shards: ShardStore, slot: int, world: int, stride: int, ring: Ring | None
    ) -> None:
        self._shards, self._slot, self._world, self._ring = shards, slot, world, ring
        self._stride = stride
        self._previous_bytes = 0

    @property
    def address(self) -> RingAddress | None:
        """Where the previous slot finds this rank; None: nothing is exchanged."""
        return None if self._ring is None else self._ring.address

    def join(self, ranks: Sequence[Holdings]) -> None:
        """Connect to both neighbours.

        Raises:
            RuntimeError: a neighbour is not there.
        """
        self._previous_bytes = ranks[(self._slot - self._stride) % self._world].n_bytes
        addresses = [rank.address for rank in ranks if rank.address is not None]
        if self._ring is not None:
            self._ring.join(addresses)

    def copy(self, pieces: Sequence[Piece], step: int) -> None:
        """Copy this rank's shard, and exchange copies with the neighbours.

        Raises:
            RuntimeError: a neighbour is gone.
        """
        image = self._shards.copy_own(pieces, step)
        if self._ring is not None:
            into = self._shards.neighbour.buffer(self._previous_bytes)
            self._ring.exchange(step, image, into)
            self._shards.neighbour.commit(into, step)

    def hand_back(self, pieces: Sequence[Piece], inventory: RankInventory, step: int) -> bool:
        """Bring the image of a step to each slot that lacks it, from the rank that has the copy.

        Returns:
            True: TCP delivers what was sent.
        """
        for slot in range(self._world):
            if step in inventory.own[slot] or inventory.live[slot] == step:
                continue
            if self._slot == self._buddy(slot):
                self._connected.send("previous", step, self._shards.neighbour.image_of(step))
            elif self._slot == slot:
                into = self._shards.own.buffer(inventory.sizes[slot])
                self._connected.receive("next", step, into)
                self._shards.own.commit(into, step)
        return True

    def copy_missing(self, pieces: Sequence[Piece], inventory: RankInventory, step: int) -> None:
        """Make every copy of a step that should be held and is not; then drop newer ones."""
        own, neighbour = self._shards.own, self._shards.neighbour
        if step not in own.steps:
            self._shards.copy_own(pieces, step)
        for slot in range(self._world if self._world > 1 else 0):
            buddy = self._buddy(slot)
            if step in inventory.neighbour[buddy]:
                continue
            if self._slot == slot:
                self._connected.send("next", step, own.image_of(step))
            elif self._slot == buddy:
                into = neighbour.buffer(inventory.sizes[slot])
                self._connected.receive("previous", step, into)
                neighbour.commit(into, step)
        own.drop_after(step)
        neighbour.drop_after(step)

    def close(self) -> None:
        """Close the connections to both neighbours; twice is harmless."""
        if self._ring is not None:
            self._ring.close()

    def _buddy(self, slot: int) -> int:
        return (slot + self._stride) % self._world

    @property
    def _connected(self) -> Ring:
        if self._ring is None:
            raise RuntimeError("images lie with a neighbour and there is no connection to it")
        return self._ring
