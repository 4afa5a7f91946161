"""Files that grow, are rotated and compressed, read into a store so that nothing counts twice.

A file is known by its content, not by its name or inode: what begins with all that was read before
is the same file, longer, and takes the place of its earlier reading at one commit. How much was
read, and its checksum, stand in the store's own row of the file, so that the two never disagree.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from ettr.collect.running import CollectCommand, CollectError, write_output
from ettr.errors import NoRecordError, SourceError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import Ingested, refuse_simulation, task_of
from ettr.sources.origin import READ_ERRORS, open_bytes
from ettr.sources.spool import LogFile
from ettr.store import Store, open_store
from ettr.store.base import IngestedFile

_CHUNK_BYTES = 1 << 20
_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class Follower:
    """The files of some patterns, with those into which they were rotated.

    Attributes:
        seen: Inode, size and time of each file when it was last read, so that a file that did not
            change is not opened.
        begun: The same of files that end within a line: read whole if the next look finds them so.
    """

    patterns: Sequence[str]
    options: ReadOptions
    source: str | None = None
    seen: dict[Path, _Stamp] = field(default_factory=dict)
    begun: dict[Path, _Stamp] = field(default_factory=dict)

    def read_new(self, store: str, complain: Callable[[str], None]) -> list[Ingested]:
        """Read what is new in any of the files; one that cannot be read is spoken of.

        Raises:
            StoreError: the store cannot be written; it is as it was before the file under way.
        """
        done = []
        for path in self._files():
            try:
                stamp = _stamp(path)
                if self.seen.get(path) == stamp:
                    continue
                is_settled = self.begun.get(path) == stamp
                found, ends_within = read_file(store, path, self.options, self.source, is_settled)
                if ends_within:
                    self.begun[path] = stamp
                    done += [] if found is None else [found]
                    continue
            except NoRecordError:
                found = None
            except FileNotFoundError:
                continue  # rotated meanwhile: the next look finds it under its new name
            except SourceError as error:
                complain(f"{error}; it is left out until it changes")
                found = None
            self.seen[path] = stamp
            self.begun.pop(path, None)
            done += [] if found is None else [found]
        there = set(self._files())
        for known in (self.seen, self.begun):
            for gone in known.keys() - there:
                del known[gone]
        return done

    def _files(self) -> list[Path]:
        """The files, the oldest first: what was rotated is complete."""
        names = {name for pattern in self.patterns for name in names_of(pattern)}
        found: list[tuple[int, Path]] = []
        for path in map(Path, names):
            with suppress(FileNotFoundError):
                found += [(path.stat().st_mtime_ns, path)] if path.is_file() else []
        return [path for _, path in sorted(found)]


def names_of(pattern: str) -> list[str]:
    """The files of a pattern, and those into which they were rotated."""
    endings = ("", ".*", "-*")
    return [one for end in endings for one in glob.glob(f"{pattern}{end}", recursive=True)]  # noqa: PTH207 - absolute


def read_file(
    store: str,
    path: Path,
    options: ReadOptions,
    source: str | None = None,
    is_settled: bool = False,
) -> tuple[Ingested | None, bool]:
    """Read the whole lines of a file; None where the store has them. Whether it ends within one.

    Args:
        is_settled: nobody writes to it: its last line is whole too.

    Raises:
        SourceError: the file is of no known format, or damaged.
        StoreError: the store cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="ettr-") as folder, open_store(store) as opened:
        streams = [one for one in map(_stream, opened.files()) if one is not None]
        lengths = {one.read_bytes for one in streams}
        spool = Path(folder) / path.name
        # as the file had it: the year of a line without one follows from it
        changed_ns = path.stat().st_mtime_ns
        try:
            with open_bytes(path) as plain:
                size_bytes, digests, ends_within = _whole_lines(plain, spool, lengths, is_settled)
        except FileNotFoundError:
            raise
        except READ_ERRORS as error:
            raise SourceError(f"{path}: is corrupt or truncated: {error}") from error
        os.utime(spool, ns=(changed_ns, changed_ns))
        same = [one for one in streams if digests.get(one.read_bytes) == one.sha256]
        longest = max(same, key=lambda one: one.read_bytes, default=None)
        if not size_bytes or (longest and longest.read_bytes == size_bytes):
            return None, ends_within
        followed = replace(options, followed=f"{size_bytes}:{digests[size_bytes]}")
        log, known = LogFile(spool, str(path)), None if longest is None else longest.file_id
        return read_as(opened, log, followed, source, known), ends_within


def read_as(
    store: Store, log: LogFile, options: ReadOptions, source: str | None, file_id: str | None
) -> Ingested:
    """Read a log into the place of what a file of that id had left; its own id where None."""
    task = task_of(log, options, source)
    if file_id is not None:
        task = replace(task, origin=replace(task.origin, file_id=file_id))
    refuse_simulation(store, store.files(), log)
    with store.ingestion(task.origin.file_id) as ingestion:
        return task.read_into(ingestion, None)


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """A file as far as it was read."""

    file_id: str
    read_bytes: int
    sha256: str


def _stream(known: IngestedFile) -> FollowedLog | None:
    followed = json.loads(known.options or "{}").get("followed")
    if followed is None:
        return None
    read_bytes, _, sha256 = str(followed).partition(":")
    return FollowedLog(known.file_id, int(read_bytes), sha256)


def _whole_lines(
    plain: BinaryIO, spool: Path, lengths: Iterable[int], is_settled: bool
) -> tuple[int, dict[int, str], bool]:
    """Copy the whole lines; their bytes, the digest at each of these lengths and at the end."""
    digests: dict[int, str] = {}
    digest, size_bytes, rest = hashlib.sha256(), 0, b""
    marks = sorted(lengths)
    with spool.open("wb") as file:
        for chunk in chain(iter(lambda: plain.read(_CHUNK_BYTES), b""), (None,)):
            if chunk is None:
                whole, rest = (rest, b"") if is_settled else (b"", rest)
            else:
                lines, end, rest = (rest + chunk).rpartition(b"\n")
                whole = lines + end
            file.write(whole)
            begun = size_bytes
            while marks and marks[0] <= begun + len(whole):
                mark = marks.pop(0)
                digest.update(whole[size_bytes - begun : mark - begun])
                size_bytes = mark
                digests[mark] = digest.hexdigest()
            digest.update(whole[size_bytes - begun :])
            size_bytes = begun + len(whole)
    digests[size_bytes] = digest.hexdigest()
    return size_bytes, digests, bool(rest)


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# -- the kernel's lines of a journal, taken out of it after the cursor of the last one -------------
# They are kept in files next to the store, which are read as any log that grows: the last whole
# line has the cursor, so that a kill or a full disk loses no line and repeats none.


_MOST_BYTES = 8 << 20
_TAIL_BYTES = 1 << 20


def take_journal(
    folder: Path,
    options: Sequence[str],
    now: datetime,
    since: datetime | None,
    complain: Callable[[str], None],
) -> None:
    """Add what came since the last look to the newest piece, or to another if that is large.

    Raises:
        CollectError: journalctl failed, or its output is cut: the next look goes on behind what
            is whole.
        OSError: a piece cannot be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    after: tuple[str, ...] = () if since is None else (f"--since=@{since.timestamp():.0f}",)
    piece = folder / f"{now.astimezone(UTC):%Y%m%dT%H%M%S%f}.json"
    for newest in sorted(folder.glob("*.json"), reverse=True):
        cursor, size_bytes = _end_of(newest)
        if not size_bytes:
            newest.unlink()  # made just before a kill
            continue
        after = (f"--after-cursor={cursor}",)
        # the newest is the last by name, even where the clock was set back
        later = piece if piece >= newest else newest.with_stem(f"{newest.stem}0")
        piece = newest if size_bytes < _MOST_BYTES else later
        break
    words = ("journalctl", "--quiet", "--no-pager", "--output=json", *options, *after)
    command = CollectCommand(words, piece.name, may_be_empty=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(piece, flags, 0o600), "ab") as file:
        try:
            write_output(command, os.environ, file, complain)
        except FileNotFoundError as error:
            raise CollectError("journalctl: there is no such command on the PATH") from error


def drop_read_pieces(folder: Path) -> None:
    """Remove all pieces but the newest that has a line, whose cursor is the next beginning."""
    with_lines = [path for path in sorted(folder.glob("*.json")) if path.stat().st_size]
    for path in with_lines[:-1]:
        path.unlink()


def _end_of(piece: Path) -> tuple[str, int]:
    """The cursor of the last whole line; what is behind it is cut off. The bytes that stay."""
    with piece.open("r+b") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - _TAIL_BYTES))
        tail = file.read()
        whole, end, _ = tail.rpartition(b"\n")
        size_bytes += len(whole + end) - len(tail)
        file.truncate(size_bytes)
    try:
        last = whole.rpartition(b"\n")[2]
        return str(json.loads(last)["__CURSOR"]) if size_bytes else "", size_bytes
    except (ValueError, KeyError, TypeError):
        raise CollectError(
            f"{piece}: its last line has no cursor; remove it, and journalctl is read from "
            "collect-since"
        ) from None
