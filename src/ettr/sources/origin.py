"""Where the bytes of a log come from: what a reader is given, and logs that are no files.

A log is read more than once (to recognise its format, for its key in the store, for its rows), and
a pipe only once. So what comes through it is first written to a temporary file; so are the files of
a folder of Kubernetes objects, since jobs, pods and nodes in them belong together.
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import re
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from ettr.errors import SourceError
from ettr.files import private_folder

HEAD_BYTES = 65536
# a first line longer than the head is cut, and the lines behind it are looked for so far
_FIRST_LINE_BYTES = 1 << 20
# what reading a corrupt or cut-off file raises, whatever it is compressed with
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)

_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz"}


_WIDE_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# how archives begin, or what stands at a place in them, and what unpacks them
_ARCHIVES = (
    (0, b"PK\x03\x04", "a zip archive", "unzip"),
    (0, b"PK\x05\x06", "an empty zip archive", "unzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"),
    (0, b"Rar!\x1a\x07", "a rar archive", "unrar x"),
    (257, b"ustar", "a tar archive", "tar -xf"),
)
_LOOKED_AT_BYTES = 4096
# the share of characters that may be otherwise
_FEW = 0.2


class ReadMeter:
    """How far into its file a log has been read, compressed bytes where it is compressed."""

    def __init__(self) -> None:
        self._position: Callable[[], int] = lambda: 0
        self._most_bytes = 0

    def watch(self, position: Callable[[], int]) -> None:
        """Ask this function for the position from now on."""
        self._position = position

    @property
    def bytes_read(self) -> int:
        """The furthest position so far: a log that is read twice does not go back."""
        with contextlib.suppress(ValueError):  # closed: it was read as far as it had come
            self._most_bytes = max(self._most_bytes, self._position())
        return self._most_bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """The bytes of one log, as often as they are needed, and what its rows call it.

    In a message, write the origin itself (`f"{origin}: ..."`): it prints what the user typed.

    Attributes:
        file_id: key of the log in the table `files`; goes into each of its rows.
        label: what messages call the log where that is not the path: `stdin`, a FIFO's name.
    """

    path: Path
    file_id: str
    head: bytes
    label: str = ""
    is_nameless: bool = False
    meter: ReadMeter = field(default_factory=ReadMeter, compare=False, repr=False)

    def __str__(self) -> str:
        return self.label or str(self.path)

    @property
    def changed(self) -> datetime:
        """When the bytes were last written."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)

    def open(self) -> BinaryIO:
        """Open the bytes, decompressed (zstd, gzip, bzip2 and xz by their magic).

        Raises:
            SourceError: they cannot be opened.
        """
        return open_bytes(self.path, self.label, self.meter)


def open_bytes(path: Path, label: str = "", meter: ReadMeter | None = None) -> BinaryIO:
    """Open a file for reading, decompressing by its first bytes; `meter` watches its position.

    Raises:
        SourceError: the file cannot be opened; named by its label, if it has one.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        codec = next((codec for mark, codec in _MAGIC.items() if magic.startswith(mark)), None)
        stream, position = _decompressed(path, codec)
    except OSError as error:
        raise SourceError(f"{label or path}: cannot be read: {error.strerror or error}") from error
    if meter is not None:
        meter.watch(position)
    return stream


def _decompressed(path: Path, codec: str | None) -> tuple[BinaryIO, Callable[[], int]]:
    """The file's bytes, and a function for how many of its own bytes have been read."""
    if codec is None:
        plain = path.open("rb")
        return plain, plain.tell
    if codec == "xz":
        packed = path.open("rb")
        return cast(BinaryIO, _Xz(packed)), packed.tell
    squeezed = pa.OSFile(str(path))
    return pa.CompressedInputStream(squeezed, codec), squeezed.tell


class _Xz(lzma.LZMAFile):
    """Closes the file that it decompresses, too."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(packed)
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


def head_of(path: Path, label: str = "") -> bytes:
    """The first bytes of a file, decompressed.

    Of a first line that is longer they hold the beginning, and then the lines that follow it: one
    odd line would hide what the file is.

    Raises:
        SourceError: they cannot be read, are no text, or those of an archive.
    """
    try:
        with open_bytes(path, label) as file:
            head = bytes(file.read(HEAD_BYTES))
            if len(head) == HEAD_BYTES and b"\n" not in head:
                _, _, behind = bytes(file.read(_FIRST_LINE_BYTES)).partition(b"\n")
                if behind.strip():
                    head = head + b"\n" + behind[:HEAD_BYTES]
    except READ_ERRORS as error:
        raise SourceError(f"{label or path}: is corrupt or truncated: {error}") from error
    refuse_wide(head, label or str(path))
    for place, magic, what, command in _ARCHIVES:
        if head.startswith(magic, place):
            name = label or str(path)
            raise SourceError(f"{name}: is {what}; unpack it first ({command} {name})")
    return head.removeprefix(BYTE_ORDER_MARK)


def refuse_wide(head: bytes, what: str) -> None:
    """Check that the first bytes of a log are not UTF-16 or UTF-32, marked or not.

    Raises:
        SourceError: they are; the message says how to convert the log.
    """
    name = next((name for mark, name in _WIDE_MARKS if head.startswith(mark)), None)
    name = name or _wide_without_mark(head[:_LOOKED_AT_BYTES])
    if name:
        raise SourceError(f"{what}: is {name}; convert it first: iconv -f {name} -t UTF-8 {what}")


def _wide_without_mark(head: bytes) -> str | None:
    """The encoding in which most characters are ASCII and their other bytes NUL, if it is one."""
    for width, name in ((4, "UTF-32"), (2, "UTF-16")):
        n = len(head) // width
        empty = [head[place : n * width : width].count(0) for place in range(width)]
        full = [place for place in range(width) if empty[place] <= _FEW * n]
        mostly_empty = n > 1 and sum(empty) >= (1 - _FEW) * n * (width - 1)
        if mostly_empty and len(full) == 1 and full[0] in {0, width - 1}:
            return f"{name}{'LE' if full[0] == 0 else 'BE'}"
    return None


# -- logs that are no files: standard input (`-`), pipes, FIFOs, devices, must-gather folders ----

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
    with private_folder() as folder:
        spool = folder / "log"
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


def _why_not(label: str, folder: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"{label}: no room for it in {folder.parent}; set TMPDIR to a folder with more, "
            "or write the log to a file and name that"
        )
    return f"{label}: cannot be read: {error.strerror or error}"
