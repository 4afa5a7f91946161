"""Where the bytes of a log come from: what a reader is given."""

from __future__ import annotations

import contextlib
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from ettr.errors import SourceError

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
