"""Objects after a recovery that leaves ranks at different steps.

A scheduler is the same on every rank, a loader is each rank's own; nobody says which is which. An
object counts as common where the ranks that do not lag behind hold it in one state, or where the
running checkpoint holds it in one state for this slot and for another, both of the same step. A
rank that lags behind takes the common ones, and the options of parameter groups, from one that does
not; its own objects keep their older state, with a warning.
"""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ettr.checkpoint import CheckpointError
from ettr.checkpoint.slots.reader import PayloadReader
from ettr.checkpoint.slots.record_selection import object_records, open_checkpoint
from ettr.checkpoint.tensors.objects import GROUPS, ObjectRecord, pack_objects, unpack_objects
from ettr.elastic.buddies.shard_image import ObjectBuffer
from ettr.elastic.membership.control_store import RankMessages

_Item = tuple[str, str]  # kind and name
_FEWEST_THAT_AGREE = 2


@dataclass(frozen=True, slots=True)
class _ObjectStep:
    """Message of each rank: the step that its objects are of, and (kind, name, hash) of each."""

    step: int
    hashes: list[list[str]]


@dataclass(frozen=True, slots=True)
class _ObjectItems:
    """Message of the first rank that does not lag behind: (kind, name, base64) of each item."""

    items: list[list[str]] = field(default_factory=list)


def settle_objects(
    buffer: ObjectBuffer,
    messages: RankMessages,
    *,
    root: Path | None,
    slot: int,
    reached_step: int,
) -> None:
    """Bring common objects of ranks that lag behind to the step reached; every rank calls it.

    Args:
        buffer: this rank's objects, as restored.
        root: of the running checkpoint; None: there is no such checkpoint.
    """
    own = buffer.record
    hashes = [[kind, name, _hash(raw)] for (kind, name), raw in own.items.items()]
    ranks = messages.gather("object-step", _ObjectStep(own.step, hashes))
    steps = [rank.step for rank in ranks]
    if min(steps) >= reached_step:
        return
    giver = steps.index(max(steps))
    given = _ObjectItems()
    if slot == giver:
        encoded = ((*item, base64.b64encode(raw).decode()) for item, raw in own.items.items())
        given = _ObjectItems([list(one) for one in encoded])
    received = messages.gather("object-items", given)[giver]
    if own.step >= max(steps):
        return
    in_time = [rank for rank in ranks if rank.step == max(steps)]
    common = _agreed_by(in_time) | _alike_on_disk(root, slot, own) | {(GROUPS, GROUPS)}
    newer = {
        (kind, name): base64.b64decode(raw)
        for kind, name, raw in received.items
        if (kind, name) in common
    }
    raw = pack_objects(ObjectRecord(own.step, {**own.items, **newer}))
    value = torch.zeros_like(buffer.tensor)
    value[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    buffer.put(value)
    if behind := sorted(name for kind, name in own.items if (kind, name) not in newer):
        warnings.warn(
            f"slot {slot}: {', '.join(behind)} keep the state of step {own.step}, training goes on "
            f"after step {reached_step}",
            stacklevel=2,
        )


def _agreed_by(ranks: Sequence[_ObjectStep]) -> set[_Item]:
    """Items that several ranks hold in one state; a single rank agrees with nobody."""
    if len(ranks) < _FEWEST_THAT_AGREE:
        return set()
    held = [{(kind, name, digest) for kind, name, digest in rank.hashes} for rank in ranks]
    return {(kind, name) for kind, name, _ in set.intersection(*held)}


def _alike_on_disk(root: Path | None, slot: int, own: ObjectRecord) -> set[_Item]:
    """Items that this slot and another hold in one state, both of the step of `own`."""
    alike: set[_Item] = set()
    if root is None:
        return alike
    try:
        with ExitStack() as stack:
            checkpoint = open_checkpoint(stack, root, None)
            reader = PayloadReader()
            for record in (r for of_slot in object_records(checkpoint).values() for r in of_slot):
                if record.header.step != own.step or record.file.superblock.slot == str(slot):
                    continue
                payload = reader.read(record)
                other = {} if payload is None else unpack_objects(payload).items
                alike |= {item for item, raw in other.items() if own.items.get(item) == raw}
    except CheckpointError:
        return set()  # nothing to compare with: every object counts as this rank's own
    return alike


def _hash(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
