"""Logs that are no files: standard input (`-`), pipes, FIFOs, devices, must-gather folders.

A log is read more than once (to recognise its format, for its key in the store, for its rows), and
a pipe only once. So what comes through it is first written to a temporary file; so are the files of
a folder of Kubernetes objects, since jobs, pods and nodes in them belong together.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ettr.errors import SourceError

STDIN = Path("-")
# what may come through a pipe; a log beyond it wants a file of its own
SPOOL_LIMIT_BYTES = 64 << 30
# without a byte for so long, the user is informed that the program waits
PATIENCE_S = 3.0

_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
_KINDS = (
    rb'"?(?:(?:Pod|Node|Event|Workload|LeaderWorkerSet|(?:Stateful|Replica|Daemon)Set|Deployment|'
    rb'JobSet|\w{0,20}Job)(?:List)?|List)"?'
)
_OBJECTS = re.compile(rb'^(?:- |  )?kind: %b\s*$|"kind"\s*:\s*%b' % (_KINDS, _KINDS), re.MULTILINE)
_NAMELESS = ("/dev/", "/proc/")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file with the bytes of a log."""

    path: Path
    label: str = ""
    is_nameless: bool = False

    def __str__(self) -> str:
        return self.label or str(self.path)

    @property
    def name(self) -> str:
        """The log's name without its folder; all of it where it is a descriptor."""
        if not self.label:
            return self.path.name
        return self.label if self.is_nameless else Path(self.label).name


def is_there(path: Path) -> bool:
    """Whether a log can be looked for there: standard input, or something that exists."""
    return path == STDIN or path.exists()


@contextmanager
def log_file(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[LogFile]:
    """A log as a file: the file itself, or a temporary one with what a stream wrote.

    The temporary file lies in the folder for such files (`TMPDIR`) until the context is left.

    Args:
        waiting: called once, with a sentence, when a stream is silent for `PATIENCE_S` seconds.

    Raises:
        SourceError: the stream cannot be read, holds more than `SPOOL_LIMIT_BYTES`, or does not
            fit on the disk.
    """
    objects = _objects_in(path)
    if path != STDIN and not objects and not _is_stream(path):
        yield LogFile(path)
        return
    label = "stdin" if path == STDIN else str(path if path.name else path.absolute())
    log = LogFile(Path(), label, path == STDIN or label.startswith(_NAMELESS))
    with tempfile.TemporaryDirectory(prefix="ettr-") as folder:
        spool = Path(folder) / "log"
        try:
            with spool.open("wb") as file:
                for each in objects:
                    file.write(b"\n" if objects[0].suffix == ".json" else b"\n---\n")
                    with each.open("rb") as stream:
                        _copy(stream, file, label)
                if not objects:
                    with _opened(path) as stream:
                        _wait_for_bytes(stream, label, waiting)
                        _copy(stream, file, label)
        except OSError as error:
            raise SourceError(_why_not(label, folder, error)) from error
        yield LogFile(spool, log.label, log.is_nameless)


def _objects_in(folder: Path) -> list[Path]:
    """Files of a folder that hold objects of Kubernetes as YAML, then those as JSON."""
    found: list[tuple[bool, Path]] = []
    for path in folder.rglob("*") if folder.is_dir() else ():
        is_one = path.suffix in {".yaml", ".yml", ".json"} and not path.is_symlink()
        if is_one and path.is_file():
            try:
                with path.open("rb") as file:
                    head = file.read(_HEAD_BYTES)
            except OSError as error:
                raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
            if b"apiVersion" in head and _OBJECTS.search(head):
                found.append((path.suffix == ".json", path))
    return [path for _, path in sorted(found)]


def _is_stream(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # whoever opens it says so
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _opened(path: Path) -> BinaryIO:
    """The stream, opened without waiting for who writes to it."""
    if path == STDIN:
        return os.fdopen(os.dup(0), "rb", buffering=0)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    return os.fdopen(handle, "rb", buffering=0)


def _wait_for_bytes(stream: BinaryIO, label: str, waiting: Callable[[str], None] | None) -> None:
    """Return when there is a byte to read, or nobody will write one any more."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    if poll.poll(PATIENCE_S * 1000):
        return
    if waiting:
        end = "; end the input with Ctrl-D" if stream.isatty() else ""
        waiting(f"{label}: waiting, nothing has been written to it yet{end}")
    poll.poll()


def _copy(stream: BinaryIO, file: BinaryIO, label: str) -> None:
    while chunk := stream.read(_CHUNK_BYTES):
        if file.tell() + len(chunk) > SPOOL_LIMIT_BYTES:
            raise SourceError(
                f"{label}: more than {SPOOL_LIMIT_BYTES / (1 << 30):g} GiB come through it; write "
                "the log to a file (compressed, if you like) and name that"
            )
        file.write(chunk)


def _why_not(label: str, folder: str, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"{label}: no room for it in {Path(folder).parent}; set TMPDIR to a folder with more, "
            "or write the log to a file and name that"
        )
    return f"{label}: cannot be read: {error.strerror or error}"
