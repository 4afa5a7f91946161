"""One XOR parity over the shards of a group of ranks, and the shard of a lost one from it.

Each shard is cut into k - 1 chunks, k ranks in the group; a rank's parity is the XOR of one chunk
of each other rank, 1/(k - 1) of a shard. Whoever is lost, the others' parities and shards give its
shard again, checked by its checksum. Partial XORs go around the group's ring, block by block, and
every rank sends its shard once, as to a buddy.

The parity is changed in place. A kill between the vote and the end of the copy finds ranks at two
steps and a parity of neither; then another source is taken. With `images` the two last images of
the rank's own shard and two parities are kept, and there is no such moment.

**Source**: in-memory checkpoints under parity: Plank, Li, Puening (1998), "Diskless Checkpointing",
IEEE TPDS 9(10); of trained models REFT (Wang et al., arXiv 2310.12670v1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from ettr.checkpoint.slots import checksums
from ettr.elastic.buddies.ring import Ring, RingAddress
from ettr.elastic.buddies.shard_image import ImageReader, Piece, ShardStore
from ettr.elastic.restore.rank_inventory import Holdings, RankInventory

_BLOCK_BYTES = 1 << 20
_FEWEST_BLOCKS = 8  # two of them are in memory besides the parity
_ALIGN = 16


def parity_groups(world: int, size: int, stride: int) -> tuple[tuple[int, ...], ...]:
    """The groups of a world: of `size` slots, or of one more or less where it is no multiple.

    Args:
        stride: slots from a rank to its buddy, on another node where there are several; the slots
            of a group lie so far apart as long as there are nodes enough.
    """
    order = [slot for first in range(stride) for slot in range(first, world, stride)]
    n_groups = max(1, world // size)
    cuts = [world * n // n_groups for n in range(n_groups + 1)]
    return tuple(tuple(order[a:b]) for a, b in pairwise(cuts))


class ParityExchange:
    """One rank's share of its group's parity within one generation; in place of `BuddyExchange`."""

    def __init__(
        self, shards: ShardStore, slot: int, group: tuple[int, ...], images: bool, ring: Ring
    ) -> None:
        self._shards, self._slot, self._group = shards, slot, group
        self._images, self._ring = images, ring
        self._chunk_bytes = 0
        if not images:
            shards.neighbour.n_images = 1

    @property
    def address(self) -> RingAddress | None:
        """Where the previous slot of the group finds this rank."""
        return self._ring.address

    def join(self, ranks: Sequence[Holdings]) -> None:
        """Connect to both neighbours in the group."""
        largest = max(ranks[slot].n_bytes for slot in self._group)
        self._chunk_bytes = -(-largest // ((len(self._group) - 1) * _ALIGN)) * _ALIGN
        self._ring.join([rank.address for rank in ranks if rank.address is not None])

    def copy(self, pieces: Sequence[Piece], step: int) -> None:
        """Make the group's parity of this step from the live shards."""
        self._keep_own(pieces, step)
        reader, last = ImageReader(pieces), len(self._group) - 2
        parity = self._shards.neighbour.buffer(self._chunk_bytes)
        digest = checksums.streaming_digest(checksums.default_name())
        for begin, n_bytes in self._blocks():
            # round t: this rank's chunk last - t joins what comes around to the rank t + 1 back
            partial = torch.zeros(n_bytes, dtype=torch.uint8)
            for t in range(last + 1):
                own = reader.read((last - t) * self._chunk_bytes + begin, n_bytes)
                digest.update(own.numpy().data)
                self._ring.exchange(step, own.bitwise_xor_(partial), partial)
            parity[begin : begin + n_bytes] = partial
        checksum, previous = _as_bytes(digest), torch.empty(8, dtype=torch.uint8)
        self._ring.exchange(step, checksum, previous)
        self._shards.neighbour.commit(parity, step)
        self._keep_checksums(step, checksum, previous)

    def hand_back(self, pieces: Sequence[Piece], inventory: RankInventory, step: int) -> bool:
        """Bring the shard of a step to the slot of this rank's group that lacks it.

        The live shards of the others are of that step.

        Returns:
            Whether what this rank received is what its slot had; True where it received nothing.
        """
        lacking = [slot for slot in self._group if not inventory.has(slot, step)]
        if not lacking:
            return True
        lost = self._group.index(lacking[0])
        if self._own == lost:
            return self._receive_shard(inventory.sizes[self._slot], step)
        k, reader = len(self._group), ImageReader(pieces)
        parity = self._shards.neighbour.image_of(step)
        checksum = torch.empty(8, dtype=torch.uint8)
        first = self._hops_from(lost) == 1
        if first:
            _, checksum = self._shards.checksums[step]
        else:
            self._ring.receive("previous", step, checksum)
        self._ring.send("next", step, checksum)
        for begin, n_bytes in self._blocks():
            rows = torch.zeros((k - 1) * n_bytes, dtype=torch.uint8)
            if not first:
                self._ring.receive("previous", step, rows)
            for holder in range(k):
                if holder != lost:
                    row = rows.view(k - 1, n_bytes)[(holder - lost - 1) % k]
                    at = (holder - self._own - 1) % k * self._chunk_bytes + begin
                    own = self._own == holder
                    row ^= parity[begin : begin + n_bytes] if own else reader.read(at, n_bytes)
            self._ring.send("next", step, rows)
        return True

    def copy_missing(self, pieces: Sequence[Piece], inventory: RankInventory, step: int) -> None:
        """Make the parity of a new rank; drop images of later steps."""
        self._shards.own.drop_after(step)
        self._shards.neighbour.drop_after(step)
        if step not in self._shards.own.steps or not self._images:
            self._keep_own(pieces, step)
        k, reader = len(self._group), ImageReader(pieces)
        for holder, slot in enumerate(self._group):
            if step in inventory.neighbour[slot]:
                continue
            hops = self._hops_from(holder)
            parity = self._shards.neighbour.buffer(self._chunk_bytes) if not hops else None
            for begin, n_bytes in self._blocks():
                partial = torch.zeros(n_bytes, dtype=torch.uint8)
                if hops != 1:
                    self._ring.receive("previous", step, partial)
                if parity is not None:
                    parity[begin : begin + n_bytes] = partial
                    continue
                at = (holder - self._own - 1) % k * self._chunk_bytes + begin
                self._ring.send("next", step, partial.bitwise_xor_(reader.read(at, n_bytes)))
            if hops == k - 1:  # the next rank holds the checksum of this one's shard
                self._ring.send("next", step, self._shards.checksums[step][0])
            if parity is not None:
                checksum, previous = (
                    self._shards.checksums[step][0],
                    torch.empty(8, dtype=torch.uint8),
                )
                self._ring.receive("previous", step, previous)
                self._shards.neighbour.commit(parity, step)
                self._keep_checksums(step, checksum, previous)

    def close(self) -> None:
        """Close the connections; twice is harmless."""
        self._ring.close()

    @property
    def _own(self) -> int:
        return self._group.index(self._slot)

    def _hops_from(self, member: int) -> int:
        """How far this rank is behind a member of the group on the way around the ring."""
        return (self._own - member) % len(self._group)

    def _keep_own(self, pieces: Sequence[Piece], step: int) -> None:
        if self._images:
            self._shards.copy_own(pieces, step)
        else:
            self._shards.own.release()
            self._shards.keep_drifting(pieces, step)

    def _keep_checksums(self, step: int, own: Tensor, previous: Tensor) -> None:
        held, now = self._shards.checksums, self._shards.neighbour.steps
        kept = {of: held[of] for of in held if of in now}
        self._shards.checksums = {**kept, step: (own, previous)}

    def _receive_shard(self, n_bytes: int, step: int) -> bool:
        """Receive this rank's own shard; whether it is whole."""
        expected = torch.empty(8, dtype=torch.uint8)
        self._ring.receive("previous", step, expected)
        into = self._shards.own.buffer(n_bytes)
        digest = checksums.streaming_digest(checksums.default_name())
        n_chunks = len(self._group) - 1
        for begin, n_block in self._blocks():
            rows = torch.empty(n_chunks * n_block, dtype=torch.uint8)
            self._ring.receive("previous", step, rows)
            for number in reversed(range(n_chunks)):
                chunk = rows.view(n_chunks, n_block)[number]
                digest.update(chunk.numpy().data)
                at = number * self._chunk_bytes + begin
                n_left = min(n_block, max(0, n_bytes - at))
                into[at : at + n_left] = chunk[:n_left]
        self._shards.own.commit(into, step)
        checksum = _as_bytes(digest)
        self._shards.checksums[step] = checksum, expected
        return torch.equal(checksum, expected)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Beginning and length of each block of a chunk."""
        longest = min(_BLOCK_BYTES, max(_ALIGN, self._chunk_bytes // _FEWEST_BLOCKS))
        for begin in range(0, self._chunk_bytes, longest):
            yield begin, min(longest, self._chunk_bytes - begin)


def _as_bytes(digest: checksums.StreamingDigest) -> Tensor:
    value = digest.intdigest().to_bytes(8, "little")
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)
