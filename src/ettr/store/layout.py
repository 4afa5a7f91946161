"""The files of a folder store: their places, readers and manifest; no link is followed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ettr.errors import StoreError
from ettr.files import DRAFT_ENDING, flush, new_file, written_whole
from ettr.store.base import STORE_FORMAT, STORE_VERSION
from ettr.tables import EVENTS, FILES, TABLES
from ettr.tables.schemas import EVENT_SUMMARIES

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


def hold(folder: Path, owner: object) -> Callable[[], object]:
    """Keep every part of a store from being swept away until `owner` is gone, or this is called.

    By a shared lock of the folder, which needs no right to write. Where a file system has none, a
    reader may find that a part is gone, and begins again.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH)
    return weakref.finalize(owner, os.close, handle)


def sweep(folder: Path, named: Collection[str]) -> None:
    """Remove drafts, and part files that the manifest does not name; no link is followed.

    Parts stay while anybody has the store open to read: a later sweep takes them.
    """
    for path in folder.iterdir():
        if _is_draft(path):
            path.unlink(missing_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sweep_parts(folder, named)
    except BlockingIOError:
        return
    finally:
        os.close(handle)


def _sweep_parts(folder: Path, named: Collection[str]) -> None:
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
        f"{path}: is a symbolic link, and ettr follows none within a store; remove it"
    )


# -- The manifest of a folder store: which parts make up each table, and a checksum of each -------
#
# It is replaced atomically and last. Parquet's readers check no sums of their own here: a byte
# that flips on disk may give another number instead of an error, so the manifest keeps a CRC-32
# of every part, and one of itself.
#
# A checksum is no signature: a store may come from somebody else, so every value is checked, and
# a part lies in the folder of its table or the manifest is refused.

_OF_PARTS, _OF_ITSELF = "crc32", "manifest_crc32"
_PART = re.compile(rf"{PARTS}/(\w+)/[\w-]+\.parquet", re.ASCII)
_CRC32 = re.compile(r"[0-9a-f]{8}")
_LARGEST_BYTES = 1 << 28

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder store holds.

    Attributes:
        parts: of each table, the paths of its parts below the folder; a summary of events has the
            file name of the part that it sums up.
        crc32: of each part, the CRC-32 of its bytes in eight hexadecimal digits.
    """

    parts: dict[str, list[str]] = field(default_factory=dict)
    crc32: dict[str, str] = field(default_factory=dict)
    ingested: int = 0

    def all_parts(self) -> set[str]:
        """Paths of the parts of all tables."""
        return {part for parts in self.parts.values() for part in parts}


def read(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        StoreError: it is torn, corrupt, of another format, newer than this program, or names
            something that is no part of the store.
    """
    path = folder / MANIFEST
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return parsed(text, path)


def parsed(text: str, path: Path | str) -> Manifest:
    """The manifest that a text holds; raises as `read` does."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
        _check_kind(path, content)
        # either key alone shows that both were written
        sealed = _OF_PARTS in content or _OF_ITSELF in content
        if sealed and content.pop(_OF_ITSELF, None) != _seal(content):
            raise StoreError(
                f"{path}: does not match its checksum: it is corrupt or was edited; "
                "restore it from a backup, or ingest the logs into a new store"
            )
        held = Manifest(
            _parts(content), _checksums(content), _whole_number(content, "ingested", least=0)
        )
        _check_whole(held, sealed)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    return held


def _unreadable(path: Path | str, error: Exception) -> StoreError:
    return StoreError(f"{path}: cannot be read as a store's manifest: {error}")


def write(folder: Path, manifest: Manifest, mode: int = Access.OWNER.file_mode) -> None:
    """Replace the manifest of a store, whole or not at all."""
    with written_whole(folder / MANIFEST, mode, durable=True) as file:
        os.fchmod(file.fileno(), mode)
        file.write(sealed(manifest).encode())
    flush(folder)


def sealed(manifest: Manifest) -> str:
    """The text of a manifest, with a checksum of itself."""
    content: Json = {
        "format": STORE_FORMAT,
        "version": STORE_VERSION,
        "ingested": manifest.ingested,
        "parts": manifest.parts,
        _OF_PARTS: manifest.crc32,
    }
    return json.dumps({**content, _OF_ITSELF: _seal(content)}, indent=1)


def _text(path: Path) -> str:
    """Text of a regular file; a link is not followed, and nothing is waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a regular file")
        if about.st_size > _LARGEST_BYTES:
            raise ValueError(f"it holds more than {_LARGEST_BYTES / 1e6:.0f} MB")
        return file.read().decode("utf-8")


def _check_kind(path: Path | str, content: Json) -> None:
    """Accept a manifest of this format and of a version that is known."""
    if content.get("format") != STORE_FORMAT:
        raise StoreError(f"{path}: is no {STORE_FORMAT} manifest")
    version = _whole_number(content, "version", least=1)
    if version > STORE_VERSION:
        raise StoreError(
            f"{path}: written by a newer ettr (store version {version}, this one reads "
            f"{STORE_VERSION}); upgrade ettr, or ingest the logs into a new store"
        )


def _parts(content: Json) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for table, listed in _object(content, "parts").items():
        if table not in TABLES and table not in EVENT_SUMMARIES:
            raise ValueError(f"{table!r} is not a table")
        if not isinstance(listed, list):
            raise ValueError(f"the parts of {table} are no list")
        for part in listed:
            match = _PART.fullmatch(part) if isinstance(part, str) else None
            if match is None or match[1] != table:
                raise ValueError(f"{part!r} is no part of {table} within the store's folder")
        if len(set(listed)) < len(listed):
            raise ValueError(f"a part of {table} is named twice")
        parts[table] = listed
    return parts


def _checksums(content: Json) -> dict[str, str]:
    checksums: dict[str, str] = {}
    for part, checksum in _object({_OF_PARTS: {}, **content}, _OF_PARTS).items():
        if not (isinstance(checksum, str) and _CRC32.fullmatch(checksum)):
            raise ValueError(f"{checksum!r} is not a checksum of {part}")
        checksums[part] = checksum
    return checksums


def _check_whole(held: Manifest, sealed: bool) -> None:
    """Refuse a manifest whose values cannot all have been written by one ingestion."""
    if sealed and held.crc32.keys() != held.all_parts():
        raise ValueError("its checksums are not those of its parts")
    of_events = {Path(part).name for part in held.parts.get(EVENTS.name, [])}
    for name in EVENT_SUMMARIES:
        if not {Path(part).name for part in held.parts.get(name, [])} <= of_events:
            raise ValueError(f"a part of {name} sums up no part of the events")
    if bool(held.ingested) != bool(held.parts.get(FILES.name)):
        raise ValueError(
            f"{held.ingested} files were ingested, and {len(held.parts.get(FILES.name, []))} parts "
            "list them"
        )


def _object(content: Json, key: str) -> Json:
    value = content.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{key!r} is {'absent' if key not in content else 'no object'}")
    return value


def _whole_number(content: Json, key: str, least: int) -> int:
    value = content.get(key)
    if type(value) is not int or value < least:
        given = repr(value) if key in content else "absent"
        raise ValueError(f"{key!r} is {given}, and should be a whole number, {least} or more")
    return value


def _seal(content: Json) -> str:
    """Checksum of a manifest, however its text is laid out."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"
