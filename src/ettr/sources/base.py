"""What a source is: a name, a test on a file's first bytes, and a reader that yields batches.

A reader never raises for a bad record and never drops one in silence: each record it finds is a row
of some table, a row of `rejects`, or counted as skipped by design. It raises `SourceError` only
where the file as a whole cannot be this format, and `UsageError` where an option is missing.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from ettr.errors import SourceError
from ettr.tables.rows import Batch

HEAD_BYTES = 65536
BATCH_ROWS = 200_000
# what reading a damaged or cut-off file raises, whatever it is compressed with
DAMAGE = (OSError, EOFError, lzma.LZMAError, pa.ArrowException)

_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "xz"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user said about a file; None means not said."""

    timezone: str | None = None
    cluster: str | None = None
    fields: tuple[str, ...] | None = None
    n_nodes: int | None = None
    gpus_per_node: int | None = None
    column_map: dict[str, str] | None = None
    table: str | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file to read: where it is, what the rows that come from it will name it."""

    path: Path
    file_id: str
    head: bytes

    @property
    def name(self) -> str:
        """The file's own name, without its folder."""
        return self.path.name

    def open(self) -> BinaryIO:
        """Open the file's bytes, decompressed (zstd, gzip, bzip2 and xz by their magic)."""
        return open_bytes(self.path)


@dataclass(frozen=True, slots=True)
class Source:
    """A log format: how to know it and how to read it.

    `matches` looks at a file's first bytes and its name and returns a score: 0 not this format,
    1 certain. `local_time` says that the format may print local time without a zone, so that the
    caller must give one before `read` is called; `prints_local` tells from the first bytes
    whether this very file does (a dump whose stamps carry an offset needs none).
    `names_cluster` says that its rows carry the cluster's name; a file that does not takes the
    name given with --cluster, or that of the store's only cluster.
    """

    name: str
    title: str
    tables: tuple[str, ...]
    matches: Callable[[bytes, str], float]
    read: Callable[[RawFile, ReadOptions], Iterator[Batch]]
    names_cluster: bool = False
    local_time: bool = False
    prints_local: Callable[[bytes], bool] = lambda _head: True
    options: tuple[str, ...] = ()
    how_to_get: str = ""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressing by its first bytes.

    Raises:
        SourceError: the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        for prefix, codec in _MAGIC.items():
            if magic.startswith(prefix):
                if codec == "xz":
                    return cast(BinaryIO, lzma.open(path, "rb"))
                stream: BinaryIO = pa.input_stream(str(path), compression=codec)
                return stream
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
