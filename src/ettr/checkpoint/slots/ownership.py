"""Who owns a slot: the generations of its file, and fencing.

Every process that opens a slot makes a file of its own, `blocks-<generation>.bin`, with a
generation above all before it. A process that was taken for dead and wakes up holds the old file
only; it sees the later generation at its next round and stops. A supervisor that replaces a process
takes the next generation beforehand with `fence`. Standard library only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ettr.checkpoint.errors import CheckpointError
from ettr.checkpoint.slots.durable_io import make_folder, sync_folder

_NAME = re.compile(r"(blocks|fence)-(\d{8,})(\.bin)?$")


def slot_folder(root: str | os.PathLike[str], slot: int | str | tuple[int, ...]) -> Path:
    """The folder of a slot: its mesh coordinate, not its process or host."""
    coordinate = "-".join(map(str, slot)) if isinstance(slot, tuple) else str(slot)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", coordinate):
        raise CheckpointError(
            f"slot: {slot!r} was given; use a rank, a tuple of mesh coordinates, or letters, "
            f"digits, '-', '_' and '.'"
        )
    return Path(root) / f"slot-{coordinate}"


def slot_of(folder: Path) -> str:
    """The slot of a folder that `slot_folder` returned."""
    return folder.name.removeprefix("slot-")


def slot_files(folder: Path) -> dict[int, Path]:
    """The slot files of a folder by generation, the latest first."""
    files = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.match(entry.name)
        if match and match[1] == "blocks":
            files[int(match[2])] = entry
    return dict(sorted(files.items(), reverse=True))


def slot_file_name(generation: int) -> str:
    """The name of the file of one generation."""
    return f"blocks-{generation:08d}.bin"


def latest_generation(folder: Path) -> int:
    """The highest generation that owns or fences the slot; 0: not one does."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - once a round, fast
    matches = (_NAME.match(name) for name in names)
    return max((int(match[2]) for match in matches if match), default=0)


def generations_of_other_slots(folder: Path) -> dict[str, int]:
    """Slot -> generation of its latest file, of every other slot of the root that has one.

    One listing a slot, no file is opened.
    """
    latest_of = {}
    for other in sorted(folder.parent.glob("slot-*")):
        latest = next(iter(slot_files(other)), None) if other != folder else None
        if latest is not None:
            latest_of[slot_of(other)] = latest
    return latest_of


def fence(root: str | os.PathLike[str], slot: int | str | tuple[int, ...]) -> int:
    """Shut the present owner out of a slot; returns the generation its successor must open with."""
    folder = slot_folder(root, slot)
    make_folder(folder)
    while True:
        generation = latest_generation(folder) + 1
        try:
            (folder / f"fence-{generation:08d}").touch(exist_ok=False)
        except FileExistsError:
            continue
        sync_folder(folder)
        return generation
