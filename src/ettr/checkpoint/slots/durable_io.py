"""Bytes and names to the disk, durably, and back. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from ettr.files import DRAFT_ENDING, new_file


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


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of `data`, however the system splits it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[FileIO]:
    """A file to write that takes the place of `path` when the block ends; a reader never sees half.

    An exception leaves `path` as it was.

    Args:
        durable: the bytes and the name are on the disk when the block has ended.
    """
    # a name that nobody can have prepared as a link
    aside = path.with_name(f".{os.urandom(8).hex()}{DRAFT_ENDING}")
    try:
        with os.fdopen(new_file(aside), "wb", buffering=0) as file:
            yield file
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder where it is not there; its name, and of those above it, is durable.

    A file that is durable in a folder whose own name is not may be gone after a power cut.
    """
    fresh = [above for above in folder.parents if not above.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *fresh):
        with suppress(PermissionError):  # a folder above that this user may not list
            sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
