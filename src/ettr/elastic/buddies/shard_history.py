"""What a rank holds across generations: its live shard, and images of it and of its neighbour's.

Each rank copies its shard after every update and sends the copy to the next rank of the ring. An
update begins only when every rank has come to the vote before it, and so has sent the copy of the
one before: whoever dies, some step is held for every slot by a rank that lives, unless two
neighbours die together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ettr.elastic.buddies.ring import Ring, RingAddress
from ettr.elastic.buddies.shard_image import (
    Part,
    PartName,
    Piece,
    drifting_parts,
    image_bytes,
    live_parts,
    put_image,
    put_parts,
    take_image,
)
from ettr.elastic.restore.rank_inventory import Holdings, RankInventory


class ShardHistory:
    """Two images of one shard, each of one step; a new one replaces the older.

    Attributes:
        n_images: 1: a new one replaces the only one.
    """

    def __init__(self) -> None:
        self.n_images = 2
        self._images: list[Tensor] = []
        self._steps = [-1, -1]

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""
        return sum(image.numel() for image in self._images)

    @property
    def steps(self) -> list[int]:
        """The steps held, the newest first."""
        return sorted((step for step in self._steps if step >= 0), reverse=True)

    def image_of(self, step: int) -> Tensor:
        """The image of a step that is held."""
        return self._images[self._steps.index(step)]

    def buffer(self, n_bytes: int) -> Tensor:
        """The buffer of the older image, which is no longer held from here on."""
        if not self._images or self._images[0].numel() != n_bytes:
            self._images = [torch.empty(n_bytes, dtype=torch.uint8) for _ in range(self.n_images)]
            self._steps = [-1] * self.n_images
        index = self._steps.index(min(self._steps))
        self._steps[index] = -1
        return self._images[index]

    def commit(self, image: Tensor, step: int) -> None:
        """Hold the image of a step that was written into `buffer`."""
        for index, held in enumerate(self._images):
            if held is image:
                self._steps[index] = step
            elif self._steps[index] == step:
                self._steps[index] = -1

    def drop_after(self, step: int) -> None:
        """Drop newer images: the run goes on from a step, and they are no longer part of it.

        An image of the step that is done again would keep its buffer, and the copy of the new one
        would replace that of the step from which all go on.
        """
        self._steps = [held if held <= step else -1 for held in self._steps]

    def drop(self) -> None:
        """Hold nothing."""
        self._steps = [-1] * len(self._steps)

    def release(self) -> None:
        """Hold nothing, and no memory."""
        self._images, self._steps = [], [-1, -1]


@dataclass(slots=True)
class ShardStore:
    """One rank's memory over the generations.

    Attributes:
        live: The local tensors themselves at `live_step`; None where the process is new, or where
            an update was broken off half way.
        checksums: Step -> of this rank's shard and of the previous one's in the group; parity
            only.
        drifting: Step -> what changes between updates too, and the random state, where no image
            holds them.
    """

    live: dict[PartName, Part] | None = None
    live_step: int = -1
    own: ShardHistory = field(default_factory=ShardHistory)
    neighbour: ShardHistory = field(default_factory=ShardHistory)
    checksums: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    drifting: dict[int, tuple[dict[PartName, Part], Tensor]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether this rank holds nothing of its own shard."""
        return self.live is None and not self.own.steps

    @property
    def held_bytes(self) -> int:
        """Bytes of memory besides the live shard, in which a copy or a parity is held."""
        kept = (value for parts, rng in self.drifting.values() for value in (*parts.values(), rng))
        drifting = sum(value.nbytes for value in kept if isinstance(value, Tensor))
        return self.own.n_bytes + self.neighbour.n_bytes + drifting

    def hold_live(self, pieces: Sequence[Piece], step: int) -> None:
        """Hold the live tensors, without a copy."""
        self.live, self.live_step = live_parts(pieces), step

    def keep_drifting(self, pieces: Sequence[Piece], step: int) -> None:
        """Keep what will not be of this step any more when the next update begins."""
        before = {kept: parts for kept, parts in self.drifting.items() if kept == step - 1}
        self.drifting = {**before, step: (drifting_parts(pieces), torch.get_rng_state())}

    def put_back(self, pieces: Sequence[Piece], step: int) -> None:
        """Put this rank's shard of a step into a rebuilt model: from its image, or as it lives."""
        if step in self.own.steps:
            # with the random state as the step left it, which has moved on since
            put_image(pieces, self.own.image_of(step))
            return
        if self.live is not None:
            put_parts(pieces, self.live)
            self.put_drifting(pieces, step)

    def put_drifting(self, pieces: Sequence[Piece], step: int) -> None:
        """Put back what `keep_drifting` has kept of a step; nothing where it has not."""
        if step in self.drifting:
            drifting, random_state = self.drifting[step]
            put_parts([piece for piece in pieces if piece.part in drifting], drifting)
            torch.set_rng_state(random_state)

    def copy_own(self, pieces: Sequence[Piece], step: int) -> Tensor:
        """Copy the live shard over the older of its two images."""
        image = self.own.buffer(image_bytes(pieces))
        take_image(pieces, image)
        self.own.commit(image, step)
        return image

    def drop_images(self) -> None:
        """Drop all images: the run goes on from another state."""
        self.own.drop()
        self.neighbour.drop()


class BuddyExchange:
    """One rank's copies within one generation: its own, and those it exchanges with neighbours.

    Args:
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
        """Connect to both neighbours."""
        self._previous_bytes = ranks[(self._slot - self._stride) % self._world].n_bytes
        addresses = [rank.address for rank in ranks if rank.address is not None]
        if self._ring is not None:
            self._ring.join(addresses)

    def copy(self, pieces: Sequence[Piece], step: int) -> None:
        """Copy this rank's shard, and exchange copies with the neighbours."""
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
