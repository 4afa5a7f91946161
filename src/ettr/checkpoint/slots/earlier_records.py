"""What earlier processes have left in a slot, as their successor finds it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.durable_io import make_folder, sync_folder
from ettr.checkpoint.slots.format import Superblock
from ettr.checkpoint.slots.layout import RESERVED
from ettr.checkpoint.slots.ownership import slot_files, slot_of
from ettr.checkpoint.slots.reader import Slot, last_rounds, open_slot


@dataclass(frozen=True, slots=True)
class EarlierRecords:
    """The files of a slot's earlier generations.

    Attributes:
        last_rounds: Generation -> its last round, which is trusted.
        damaged: Places and files that cannot be trusted.
    """

    last_rounds: dict[int, int] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    world: int | None = None
    run: str | None = None
    damaged: int = 0


def earlier_records(root: str | os.PathLike[str], folder: Path) -> EarlierRecords:
    """What lies in a slot."""
    if not folder.is_dir():
        return EarlierRecords()  # a new slot
    with open_slot(root, slot_of(folder)) as slot:
        for written_for, path in slot.misplaced.items():
            raise CheckpointError(
                f"{path}: it was written for slot {written_for}; move it to the folder of that "
                f"slot, or give another root"
            )
        latest = superblock_of(slot)
        return EarlierRecords(
            last_rounds(slot),
            steps_of(slot),
            world=None if latest is None else latest.world,
            run=None if latest is None else latest.run,
            damaged=len(slot.damaged),
        )


def steps_of(slot: Slot) -> tuple[int, int] | None:
    """The oldest and the newest step of the latest records of a slot's blocks; None: no record."""
    steps = [
        records[0].header.step
        for key, records in slot.records.items()
        if records and key[0] not in RESERVED
    ]
    return (min(steps), max(steps)) if steps else None


def superblock_of(slot: Slot) -> Superblock | None:
    """The superblock of the latest file with a record; None: no file has one."""
    records = (records[0] for records in slot.records.values() if records)
    latest = max(records, key=lambda record: record.order, default=None)
    return None if latest is None else latest.file.superblock


def keep_aside(folder: Path, *, before: int) -> Path | None:
    """Move the files of a slot's earlier generations to `kept-<n>` below the root.

    That folder is a root of its own, which `restore` and `verify` can read.

    Returns:
        Where they are now; None: there were none.
    """
    files = [path for generation, path in slot_files(folder).items() if generation < before]
    if not files:
        return None
    number = 1
    while (kept := folder.parent / f"kept-{number}" / folder.name).exists():
        number += 1
    make_folder(kept)
    for path in files:
        path.rename(kept / path.name)
    sync_folder(kept)
    sync_folder(folder)
    return kept.parent
