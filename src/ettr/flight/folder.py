"""A folder of flight records: one file a rank, read one after the other."""

from __future__ import annotations

import gc
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ettr.errors import SourceError, UsageError
from ettr.flight.calls import CallTable
from ettr.flight.entries import LARGEST_JSON_BYTES, MOST_RANKS, MOST_RECORDS, Signatures
from ettr.flight.record import FlightRecord, read_record

# what PyTorch names the group of all ranks
DEFAULT_GROUP = "0"
_DEEPEST = 3
_NAMED_RANK = re.compile(r"(?P<before>.*)rank[-_.]?(?P<rank>\d{1,9})(?!\d)", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(?P<before>.*?)(?P<rank>\d{1,9})(?:\.(?:json|pickle|pkl|bin))?")
_SEPARATORS = "-_. "


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file of the folder that is no flight record, or not a whole one, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What is kept of one rank's record in addition to its calls."""

    rank: int
    file: str
    node: str | None
    # None of a record whose time only its file has
    written_ns: int | None
    # None where the file is older than its own newest call: a time that says nothing
    file_ns: int | None
    after_s: float | None
    reason: str | None
    wrapped: bool
    n_entries: int
    unreadable_entries: int

    @property
    def known_ns(self) -> int | None:
        """When it was written, by its own word or its file's time."""
        return self.written_ns if self.written_ns is not None else self.file_ns


@dataclass(frozen=True, slots=True)
class FlightFolder:
    """All records of a folder: the calls side by side, and facts on each record."""

    path: str
    table: CallTable
    records: dict[int, RankRecord]
    refused: tuple[Refusal, ...]
    # older records of ranks that have a newer one
    superseded: int
    world_size: int | None


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    name: str
    rank: int
    before: str
    file_ns: int


def read_folder(path: Path) -> FlightFolder:
    """Read every flight record below a folder, one at a time.

    Where a rank has several, the newest file counts. A file that cannot be read is refused with a
    reason; links, pipes and devices are not opened.

    Raises:
        UsageError: no such folder.
        SourceError: nothing in it is a flight record.
    """
    if not path.is_dir():
        raise UsageError(f"--flight {path}: no such folder; give the folder of the records")
    refused: list[Refusal] = []
    newest: dict[int, list[_File]] = {}
    for file in _files(path, refused):
        newest.setdefault(file.rank, []).append(file)
    table, signatures = CallTable(), Signatures()
    records: dict[int, RankRecord] = {}
    superseded = world_size = 0
    prefixes = {file.before for files in newest.values() for file in files}
    with _no_collection():
        for rank in sorted(newest):
            for file in sorted(newest[rank], key=lambda one: one.file_ns, reverse=True):
                if rank in records:
                    superseded += 1
                    continue
                try:
                    record = read_record(_bytes(file.path), signatures)
                    _check_rank(record, rank)
                except (ValueError, OSError) as error:
                    refused.append(Refusal(file.name, _why(error)))
                    continue
                table.add(rank, record.entries, record.groups)
                records[rank] = _facts(file, record, len(prefixes) > 1)
                world_size = max(world_size, _stated_size(record))
    if not records:
        raise SourceError(_nothing(path, refused))
    return FlightFolder(str(path), table, records, tuple(refused), superseded, world_size or None)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of small objects without cycles: looking for cycles takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _files(root: Path, refused: list[Refusal], depth: int = 0) -> Iterator[_File]:
    folders = []
    with os.scandir(root) as listing:
        for entry in sorted(listing, key=lambda one: one.name)[:MOST_RECORDS]:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
                continue
            name = entry.name if depth == 0 else f"{root.name}/{entry.name}"
            match = _NAMED_RANK.match(entry.name) or _LAST_NUMBER.fullmatch(entry.name)
            if not entry.is_file(follow_symlinks=False):
                refused.append(Refusal(name, "no regular file"))
            elif match is None or int(match["rank"]) >= MOST_RANKS:
                refused.append(Refusal(name, "no rank in its name"))
            else:
                before = root.name if depth else match["before"].strip(_SEPARATORS)
                written_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                yield _File(Path(entry.path), name, int(match["rank"]), before, written_ns)
    for folder in folders if depth < _DEEPEST else ():
        yield from _files(folder, refused, depth + 1)


def _bytes(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no regular file")
        if status.st_size > LARGEST_JSON_BYTES:
            raise ValueError(f"larger than {LARGEST_JSON_BYTES >> 20} MB")
        return file.read(LARGEST_JSON_BYTES + 1)


def _check_rank(record: FlightRecord, rank: int) -> None:
    if record.added.rank not in (None, rank):
        raise ValueError(f"its name says rank {rank}, its content rank {record.added.rank}")


def _facts(file: _File, record: FlightRecord, by_prefix: bool) -> RankRecord:
    added = record.added
    newest_ns = max((entry.created_ns for entry in record.entries), default=0)
    return RankRecord(
        rank=file.rank,
        file=file.name,
        node=added.node or (file.before if by_prefix and file.before else None),
        written_ns=added.written_ns,
        file_ns=file.file_ns if file.file_ns >= newest_ns else None,
        after_s=added.after_s,
        reason=added.reason,
        wrapped=record.wrapped,
        n_entries=len(record.entries) + record.unreadable_entries,
        unreadable_entries=record.unreadable_entries + record.unread_entries,
    )


def _stated_size(record: FlightRecord) -> int:
    """Ranks of the job as the watcher or the members of the default group state it; else 0."""
    return record.added.world_size or len(record.groups.get(DEFAULT_GROUP, ()))


def _why(error: Exception) -> str:
    return (error.strerror or "cannot be read") if isinstance(error, OSError) else str(error)


def _nothing(path: Path, refused: list[Refusal]) -> str:
    lines = "".join(f"\n  {one.file}: {one.reason}" for one in refused[:5])
    return (
        f"{path}: no flight record in it; PyTorch names them after their rank, such as "
        f"nccl_trace_rank_0{lines}"
    )
