"""Check every byte of a running checkpoint without a model, and read the ages of its blocks.

Standard library only (and `xxhash` where the checkpoint was written with it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ettr.checkpoint.slots.layout import RESERVED, Key
from ettr.checkpoint.slots.reader import (
    BadBlock,
    PayloadReader,
    Slot,
    bad_record,
    open_slot,
    record_at,
    slot_names,
)
from ettr.checkpoint.slots.resharding import superseded

_SECOND_LOOKS = 3


@dataclass(frozen=True, slots=True)
class BlockAge:
    """The step of a block's newest record; None: the block has none."""

    slot: str
    fqn: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    step: int | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The ages of the blocks of a running checkpoint, and the slots that are not read any more.

    Attributes:
        superseded_slots: Slots of a job of another number of ranks. They may be removed, and have
            no ages here, which would grow without end.
    """

    ages: list[BlockAge]
    superseded_slots: tuple[str, ...]


def verify(root: str | os.PathLike[str]) -> list[BadBlock]:
    """Every place of every slot that cannot be trusted; an empty list: all are good.

    Reads every record of every generation, the older copies included.

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    bad: list[BadBlock] = []
    for name in slot_names(root):
        with open_slot(root, name) as slot:
            bad += _verify_slot(slot)
    return bad


def _verify_slot(slot: Slot) -> list[BadBlock]:
    reader = PayloadReader()
    good: set[Key] = set()
    damaged = list(slot.damaged)
    for key, records in slot.records.items():
        for record in records:
            if reader.read(record) is None:
                damaged.append(bad_record(slot.name, record))
            else:
                good.add(key)
    bad_keys = {(bad.fqn, bad.offsets, bad.sizes) for bad in damaged if bad.fqn}
    good |= _good_by_now(slot, bad_keys - good, reader)
    return [
        bad if not bad.fqn else replace(bad, lost=(bad.fqn, bad.offsets, bad.sizes) not in good)
        for bad in damaged
    ]


def _good_by_now(slot: Slot, keys: set[Key], reader: PayloadReader) -> set[Key]:
    """Which blocks have a good record on a second look."""
    good: set[Key] = set()
    for file in slot.files[:1]:
        layout = file.superblock.layout
        for block in range(len(layout.blocks)):
            if layout.key(block) in keys:
                # in vain where that place is written just now: then the other one is whole
                tried = (record_at(file, block, place) for place in (0, 1) * _SECOND_LOOKS)
                if any(record and reader.read(record) is not None for record in tried):
                    good.add(layout.key(block))
    return good


def block_ages(root: str | os.PathLike[str], *, slot: str | None = None) -> list[BlockAge]:
    """The step of each block's newest record by its header; see `survey`.

    Args:
        slot: only this slot, whatever the others have superseded; no other is opened.
    """
    if slot is None:
        return survey(root).ages
    if slot not in slot_names(root):
        return []
    with open_slot(root, slot) as opened:
        return _ages_of(opened)


def survey(root: str | os.PathLike[str]) -> Survey:
    """The ages of all blocks, by the headers of their records (payloads are not read).

    Raises:
        CheckpointError: there is no running checkpoint below `root`.
    """
    with ExitStack() as stack:
        slots = [stack.enter_context(open_slot(root, name)) for name in slot_names(root)]
        superseded_files = superseded(slots)
        ages: list[BlockAge] = []
        superseded_slots: list[str] = []
        for slot in slots:
            if slot.files and all(file.path in superseded_files for file in slot.files):
                superseded_slots.append(slot.name)
            else:
                ages += _ages_of(slot)
    return Survey(ages, tuple(superseded_slots))


def _keys(slot: Slot) -> Iterable[Key]:
    # Blocks of the latest generation's layout; earlier ones may be of another world size.
    for file in slot.files[:1]:
        layout = file.superblock.layout
        yield from (
            key for key in map(layout.key, range(len(layout.blocks))) if key[0] not in RESERVED
        )


def _ages_of(slot: Slot) -> list[BlockAge]:
    newest = {key: records[0].header.step for key, records in slot.records.items() if records}
    return [BlockAge(slot.name, *key, newest.get(key)) for key in _keys(slot)]
