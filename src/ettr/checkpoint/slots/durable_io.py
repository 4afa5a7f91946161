"""Bytes and names to the disk, durably, and back. Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from ettr.errors import CheckpointError
from ettr.files import flush, written_whole


class Disk(Protocol):
    """Writes to the disk; tests give their own to tear a write or to fill the disk."""

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write some of `data` at `offset`; returns how much."""

    def fdatasync(self, fd: int) -> None:
        """Return once everything written is durable."""


class OsDisk:
    """The operating system's own calls."""

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """As os.pwrite."""
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """As os.fdatasync."""
        os.fdatasync(fd)


def read_at(fd: int, n_bytes: int, offset: int) -> bytes:
    """Bytes of a file; fewer at its end, none where the medium cannot give them."""
    try:
        return os.pread(fd, n_bytes, offset)
    except OSError:
        return b""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path`, durably, when the block ends.

    A reader never sees half of it; an exception leaves `path` as it was.
    """
    with written_whole(path, durable=True) as file:
        yield file
    flush(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder where it is not there; its name, and of those above it, is durable.

    A file that is durable in a folder whose own name is not may be gone after a power cut.
    """
    fresh = [above for above in folder.parents if not above.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *fresh):
        with suppress(PermissionError):  # a folder above that this user may not list
            flush(made.parent)


# -- who owns a slot: the generations of its file, and fencing -------------------------------------
# Every process that opens a slot makes a file of its own, `blocks-<generation>.bin`, with a
# generation above all before it. A process that was taken for dead and wakes up holds the old file
# only; it sees the later generation at its next round and stops. A supervisor that replaces a
# process takes the next generation beforehand with `fence`. Standard library only.


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
        flush(folder)
        return generation
