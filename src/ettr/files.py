"""Files that are written whole or not at all, without following a symbolic link.

What is written goes to a draft under a random name, which nobody can have prepared, and takes its
place by a rename. In a folder that others can write to, no link of theirs leads a write elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ettr.errors import UsageError

DRAFT_ENDING = ".draft"
# links that name what a process has open, not a file that somebody placed
_DESCRIPTORS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
_BY_UMASK = 0o666
_ASIDE = "ettr-locked-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def new_file(path: Path, mode: int = _BY_UMASK) -> int:
    """Descriptor of a file that is made by this call; the umask reduces `mode`.

    Raises:
        FileExistsError: the name is taken, be it by a link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, mode)


@contextmanager
def written_whole(
    path: Path, mode: int = _BY_UMASK, *, durable: bool = False
) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends without an exception.

    A link of that name is replaced, not followed.

    Args:
        durable: its bytes are on the disk when the block has ended; its name is not, before
            `flush` of the folder.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    draft = path.with_name(f".{os.urandom(8).hex()}{DRAFT_ENDING}")
    try:
        with os.fdopen(new_file(draft, mode), "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write the whole file or leave the old one; a device or a pipe (/dev/stdout) is written to.

    Raises:
        OSError: it cannot be written (a full disk, say); names the file.
    """
    try:
        if _is_stream(path):
            path.write_text(text, encoding="utf-8")
            return
        with written_whole(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def flush(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_stream(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        return path.absolute().parent in _DESCRIPTORS
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def folder_aside() -> tuple[str, Callable[[], None]]:
    """A private folder for what is put aside, and what removes it.

    It is locked for as long as it is there: one without a lock is a killed process's, and goes. Its
    name has that of the machine, since some file systems keep locks to one machine.

    Raises:
        OSError: none can be made.
    """
    import glob
    import shutil
    import tempfile

    prefix = f"{_ASIDE}{os.uname().nodename}-"
    for left in Path(tempfile.gettempdir()).glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):
            handle = os.open(left, _FOLDER)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        with suppress(FileNotFoundError):  # another process has taken it for one that was left
            handle = os.open(folder, _FOLDER)
            with suppress(OSError):  # without locks no process takes it for one that was left
                fcntl.flock(handle, fcntl.LOCK_EX)
            if Path(folder).is_dir():
                break
            os.close(handle)

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)

    return folder, remove


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder as of `folder_aside`, until the end of the block.

    Raises:
        OSError: none can be made.
    """
    folder, remove = folder_aside()
    try:
        yield Path(folder)
    finally:
        remove()


def toml_tables(text: str, where: str, file_format: str, what: str) -> dict[str, object]:
    """The tables of a TOML file that says in `format` what it is.

    Args:
        text: Of the file.
        where: Its name, for messages.
        file_format: The value of its key `format`.
        what: It describes, such as "a failure model".

    Raises:
        UsageError: it is no TOML, or has another format.
    """
    import tomllib

    try:
        tables = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # numbers of too many digits are no TOML error
        raise UsageError(f"{where}: no TOML ({error})") from None
    if tables.get("format") != file_format:
        raise UsageError(
            f"{where}: format is {tables.get('format')!r}; a file of {what} begins with "
            f'format = "{file_format}"'
        )
    return tables
