"""A rank's shard as one flat run of bytes: parameters, moments, step counts, objects, random state.

Every rank that holds the same slot lays it out alike, so that an image taken on one process can be
put into the model of its replacement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ettr.checkpoint import CheckpointError, TrainingState
from ettr.checkpoint.object_selection import choose_objects
from ettr.checkpoint.slots.format import StreamingDigest, default_checksum, streaming_digest
from ettr.checkpoint.tensors.objects import ObjectRecord, encode_objects, unpack_objects
from ettr.checkpoint.tensors.shards import Shard, flat_bytes
from ettr.elastic.rank_inventory import Holdings, RankInventory
from ettr.elastic.ring import Ring, RingAddress
from ettr.errors import UsageError

_ALIGN = 16
_NUMBER_BYTES = 8
_LEAST_ROOM_BYTES = 1 << 16
_GROWTH = 4  # objects may grow to so many times what they take when they are built
OBJECTS = "objects"

# A tensor, or a number where the optimizer keeps one (a step count).
Part: TypeAlias = Tensor | float
PartName = tuple[str, str]  # parameter, and which part of it: `param`, or the name of a moment


class ObjectBuffer:
    """The objects and parameter groups of a rank, as they were after its last update.

    A tensor of fixed size, so that images of all generations have one layout. Between two updates
    the objects themselves run ahead: a loader has handed out the next batch when a rank is lost.
    """

    def __init__(self, state: TrainingState, room_bytes: int | None) -> None:
        self._state = state
        n_bytes = len(encode_objects(state.objects(), state.groups(), 0))
        if room_bytes is None:
            room_bytes = max(_LEAST_ROOM_BYTES, 1 << (_GROWTH * n_bytes - 1).bit_length())
        self.tensor = torch.zeros(-(-room_bytes // _ALIGN) * _ALIGN, dtype=torch.uint8)
        self.capture(0)

    @property
    def record(self) -> ObjectRecord:
        """What was captured last."""
        return unpack_objects(self.tensor.numpy().data)

    def capture(self, step: int) -> None:
        """Take the state of the objects as it is now, of this step."""
        raw = encode_objects(self._state.objects(), self._state.groups(), step)
        if len(raw) > self.tensor.numel():
            raise UsageError(
                f"objects of {len(raw)} bytes do not fit into the {self.tensor.numel()} that each "
                f"copy of a shard has for them; give Protection(objects_bytes=...) more"
            )
        self.tensor[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    def put(self, value: Tensor) -> None:
        """Hand the objects what another buffer held."""
        self.tensor.copy_(value)
        choice = choose_objects(self._state, {"": self.record}, None)
        if choice.reasons:
            raise CheckpointError(
                f"{'; '.join(choice.reasons)}; build the same objects in every generation"
            )
        choice.load(self._state)


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a shard, and its place in the image."""

    owner: Shard | ObjectBuffer
    name: str
    shape: tuple[int, ...] | None
    offset: int
    n_bytes: int

    @property
    def part(self) -> PartName:
        """The parameter and which part of it."""
        fqn = self.owner.spec.fqn if isinstance(self.owner, Shard) else OBJECTS
        return fqn, self.name

    def live(self) -> Part:
        """The part itself as it is now, not a copy."""
        if isinstance(self.owner, ObjectBuffer):
            return self.owner.tensor
        return self.owner.value(self.name)

    def put(self, value: Part) -> None:
        """Copy a value into the live part; objects are handed theirs."""
        if isinstance(self.owner, ObjectBuffer):
            self.owner.put(torch.as_tensor(value))
            return
        live = self.live()
        if isinstance(live, Tensor):
            live.detach().copy_(torch.as_tensor(value))
        else:
            self.owner.set_number(self.name, type(live)(float(value)))


def pieces_of(state: TrainingState, *, objects_bytes: int | None = None) -> list[Piece]:
    """The pieces of a rank's state in the order of its image; objects come last."""
    pieces: list[Piece] = []
    offset = 0
    for shard in state.shards():
        for component in shard.spec.components:
            value = shard.value(component.name)
            shape, n_bytes = None, _NUMBER_BYTES
            if isinstance(value, Tensor):
                shape, n_bytes = tuple(value.shape), value.numel() * value.element_size()
            pieces.append(Piece(shard, component.name, shape, offset, n_bytes))
            offset += -(-n_bytes // _ALIGN) * _ALIGN
    if state.objects() or state.groups():
        buffer = ObjectBuffer(state, objects_bytes)
        n_bytes = buffer.tensor.numel()
        pieces.append(Piece(buffer, OBJECTS, (n_bytes,), offset, n_bytes))
    return pieces


def image_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of the image: all pieces, followed by the random state of the CPU."""
    end = pieces[-1].offset + -(-pieces[-1].n_bytes // _ALIGN) * _ALIGN if pieces else 0
    return end + int(torch.get_rng_state().numel())


class ImageReader:
    """Reads bytes of the image that the live shard would give, without making it."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces, self._ends = pieces, [piece.offset + piece.n_bytes for piece in pieces]
        random_state = torch.get_rng_state()
        self._random_state = image_bytes(pieces) - random_state.numel(), random_state

    def read(self, begin: int, n_bytes: int) -> Tensor:
        """A copy of the bytes from `begin` on; zeros behind the end."""
        into, end = torch.zeros(n_bytes, dtype=torch.uint8), begin + n_bytes
        parts = [self._random_state]
        with torch.no_grad():
            for piece in self._pieces[bisect_right(self._ends, begin) :]:
                if piece.offset >= end:
                    break
                value = flat_bytes(as_tensor(piece.live()).contiguous())
                parts.append((piece.offset, value))
            for at, value in parts:
                first, last = max(begin, at), min(end, at + value.numel())
                if first < last:
                    into[first - begin : last - begin].copy_(value[first - at : last - at])
        return into


def drifting_parts(pieces: Sequence[Piece]) -> dict[PartName, Part]:
    """Copies of what changes between two updates too: buffers, and tensors without a module."""
    return {
        piece.part: part.clone() if isinstance(part := piece.live(), Tensor) else part
        for piece in pieces
        if isinstance(piece.owner, Shard)
        and not piece.owner.optimizers
        and not isinstance(piece.owner.tensor, nn.Parameter)
    }


def take_image(pieces: Sequence[Piece], image: Tensor) -> None:
    """Copy the live shard and the random state into an image (uint8, of `image_bytes`)."""
    with torch.no_grad():
        for piece in pieces:
            _stored(image, piece).copy_(as_tensor(piece.live()))
        random_state = torch.get_rng_state()
        image[-random_state.numel() :].copy_(random_state)


def put_image(pieces: Sequence[Piece], image: Tensor) -> None:
    """Copy an image into the live shard and set the random state."""
    if image.numel() != image_bytes(pieces):
        raise CheckpointError(
            f"a shard's image has {image.numel()} bytes and this model's shard takes "
            f"{image_bytes(pieces)}; build the same model and optimizer in every generation"
        )
    with torch.no_grad():
        for piece in pieces:
            piece.put(_stored(image, piece))
    torch.set_rng_state(image[-torch.get_rng_state().numel() :].clone())


def live_parts(pieces: Sequence[Piece]) -> dict[PartName, Part]:
    """The live local tensors and numbers: references, nothing is copied.

    They keep no module and no process group alive.
    """
    return {piece.part: piece.live() for piece in pieces}


def put_parts(pieces: Sequence[Piece], parts: Mapping[PartName, Part]) -> None:
    """Copy what `live_parts` kept into a rebuilt model."""
    with torch.no_grad():
        for piece in pieces:
            value = parts.get(piece.part)
            shape = tuple(value.shape) if isinstance(value, Tensor) else None
            if value is None or shape != piece.shape:
                raise CheckpointError(
                    f"{piece.part[0]}: its {piece.name} had shape {shape} before the "
                    f"failure and has {piece.shape} now; build the same model in every generation"
                )
            piece.put(value)


def copied_parts(pieces: Sequence[Piece]) -> dict[PartName, Part]:
    """Copies of the live local tensors and numbers."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in live_parts(pieces).items()
    }


def checksum_of(values: Iterable[Part]) -> int:
    """A checksum of tensors and numbers in their order."""
    digest = streaming_digest(default_checksum())
    for value in values:
        digest.update(flat_bytes(as_tensor(value).cpu().contiguous()).numpy().data)
    return digest.intdigest()


def fingerprint(pieces: Sequence[Piece]) -> str:
    """A hash of the live shard, parameters and moments; equal where nothing has changed."""
    return f"{checksum_of(piece.live() for piece in pieces):016x}"


def reset_step_counts(pieces: Sequence[Piece]) -> None:
    """Set the optimizer's step counts to 0: moments that were made and never used."""
    for piece in pieces:
        if piece.name == "step":
            piece.put(0.0)


def as_tensor(value: Part) -> Tensor:
    """A part as a tensor; a number as float64."""
    if isinstance(value, Tensor):
        return value.detach()
    return torch.tensor(float(value), dtype=torch.float64)


def _stored(image: Tensor, piece: Piece) -> Tensor:
    raw = image[piece.offset : piece.offset + piece.n_bytes]
    live = piece.live()
    if piece.shape is None or not isinstance(live, Tensor):
        return raw.view(torch.float64).view(())
    return raw.view(live.dtype).view(piece.shape)


# -- What a rank holds across generations: its live shard, and images of it and of its neighbour's
#
# Each rank copies its shard after every update and sends the copy to the next rank of the ring.
# An update begins only when every rank has come to the vote before it, and so has sent the copy
# of the one before: whoever dies, some step is held for every slot by a rank that lives, unless
# two neighbours die together.


class ShardHistory:
    """Two images of one shard, each of one step; a new one replaces the older."""

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
        self.own.drop_after(-1)
        self.neighbour.drop_after(-1)


class BuddyExchange:
    """One rank's copies within one generation: its own, and those it exchanges with neighbours."""

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


# -- one XOR parity over the shards of a group of ranks, and the shard of a lost one from it -------
# Each shard is cut into k - 1 chunks, k ranks in the group; a rank's parity is the XOR of one chunk
# of each other rank, 1/(k - 1) of a shard. Whoever is lost, the others' parities and shards give
# its shard again, checked by its checksum. Partial XORs go around the group's ring, block by block,
# and every rank sends its shard once, as to a buddy.
#
# The parity is changed in place. A kill between the vote and the end of the copy finds ranks at two
# steps and a parity of neither; then another source is taken. With `images` the two last images of
# the rank's own shard and two parities are kept, and there is no such moment.
#
# **Source**: in-memory checkpoints under parity: Plank, Li, Puening (1998), "Diskless
# Checkpointing", IEEE TPDS 9(10); of trained models REFT (Wang et al., arXiv 2310.12670v1).


_BLOCK_BYTES = 1 << 20
_FEWEST_BLOCKS = 8  # two of them are in memory besides the parity


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
        digest = streaming_digest(default_checksum())
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
                checksum, _ = self._shards.checksums[step]
                previous = torch.empty(8, dtype=torch.uint8)
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
        digest = streaming_digest(default_checksum())
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


def _as_bytes(digest: StreamingDigest) -> Tensor:
    value = digest.intdigest().to_bytes(8, "little")
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)
