"""What lies in a folder store, who may read it, and how it is written without following a link."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from ettr.errors import StoreError
from ettr.files import DRAFT_ENDING, new_file

MANIFEST = "store.json"
LOCK = ".lock"
PARTS = "parts"
# what an older ettr left of a manifest that it could not finish
_OLD_DRAFT = f"{MANIFEST}{DRAFT_ENDING}"


class Access(StrEnum):
    """Who may read a store; job names and comments in it are not for everybody."""

    OWNER = "owner"
    GROUP = "group"
    ALL = "all"

    @property
    def file_mode(self) -> int:
        """Permissions of a file of the store."""
        return {Access.OWNER: 0o600, Access.GROUP: 0o640, Access.ALL: 0o644}[self]


def folder_mode(file_mode: int) -> int:
    """Permissions of a folder whose files have these: who may read may enter."""
    return file_mode | 0o100 | (file_mode & 0o044) >> 2


def access_mode(folder: Path) -> int:
    """Permissions of the files of a store: those of its manifest."""
    mode = stat.S_IMODE((folder / MANIFEST).stat().st_mode)
    return Access.OWNER.file_mode | mode & Access.ALL.file_mode


def make_folder(folder: Path, file_mode: int) -> None:
    """Make a folder of a store; one that is there stays as it is.

    Raises:
        StoreError: it is a symbolic link.
    """
    if folder.is_symlink():
        raise _is_link(folder)
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.is_dir():
            return
        raise
    folder.chmod(folder_mode(file_mode))


def new_part(folder: Path, table: str, name: str) -> Path:
    """An empty part file under a name that nobody can have prepared, for a writer to open.

    Raises:
        StoreError: a folder on the way is a symbolic link.
        OSError: it cannot be made.
    """
    return _new_file(folder, table, f"{name}-{os.urandom(8).hex()}")


def new_summary(folder: Path, table: str, part: Path) -> Path:
    """An empty file for a summary of a part, under the part's own name, for a writer to open.

    Raises:
        StoreError: a folder on the way is a symbolic link.
        OSError: it cannot be made.
    """
    return _new_file(folder, table, part.stem)


def _new_file(folder: Path, table: str, stem: str) -> Path:
    mode = access_mode(folder)
    for place in (folder / PARTS, folder / PARTS / table):
        make_folder(place, mode)
    path = folder / PARTS / table / f"{stem}.parquet"
    handle = new_file(path, mode)
    os.fchmod(handle, mode)
    os.close(handle)
    return path


def leads_elsewhere(folder: Path, part: str) -> bool:
    """Whether a part is, or lies behind, a symbolic link."""
    return (folder / part).resolve() != folder.resolve() / part


def others_in(folder: Path) -> bool:
    """Whether a folder without manifest holds more than a creation that failed leaves."""
    return any(not (path.name == LOCK or _is_draft(path)) for path in folder.iterdir())


def sweep(folder: Path, named: Collection[str]) -> None:
    """Remove drafts, and part files that the manifest does not name; no link is followed."""
    for path in folder.iterdir():
        if _is_draft(path):
            path.unlink(missing_ok=True)
    root = folder / PARTS
    for table in _real_folders(root):
        for path in table.glob("*.parquet"):
            is_folder = path.is_dir() and not path.is_symlink()
            if not is_folder and str(path.relative_to(folder)) not in named:
                path.unlink(missing_ok=True)


def open_to(folder: Path, parts: Collection[str], access: Access) -> None:
    """Give every file and folder of a store the permissions of `access`."""
    mode = access.file_mode
    for path in (folder, folder / PARTS, *_real_folders(folder / PARTS)):
        if path.is_dir() and (path == folder or not path.is_symlink()):
            path.chmod(folder_mode(mode))
    for name in (MANIFEST, LOCK, *parts):
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        os.fchmod(handle, mode)
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a store.

    Raises:
        StoreError: another process has it, or a symbolic link has its place.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(folder / LOCK, flags, Access.OWNER.file_mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _is_link(folder / LOCK) from None
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder}: another process is ingesting into this store; try again when it is done"
        ) from None
    else:
        yield
    finally:
        os.close(handle)


def cannot_write(
    folder: Path, error: Exception, then: str = "the store is as it was before"
) -> StoreError:
    """The error for a disk that does not take what is written."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(there).free
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return StoreError(
        f"{folder}: cannot be written: {why} ({free_bytes / 1e6:.0f} MB free); {then}"
    )


def _is_draft(path: Path) -> bool:
    return path.name == _OLD_DRAFT or (
        path.name.startswith(".") and path.name.endswith(DRAFT_ENDING)
    )


def _real_folders(root: Path) -> list[Path]:
    """Folders in a folder, none of them behind a link."""
    if root.is_symlink() or not root.is_dir():
        return []
    return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]


def _is_link(path: Path) -> StoreError:
    return StoreError(
        f"{path}: is a symbolic link, and no link within a store is followed; remove it"
    )
