"""A folder of flight records, one file a rank, and the calls in them."""

from __future__ import annotations

import gc
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ettr.errors import SourceError, UsageError
from ettr.flight.record import (
    LARGEST_JSON_BYTES,
    MOST_CALLS,
    MOST_RANKS,
    MOST_RECORDS,
    Entry,
    FlightRecord,
    Signature,
    Signatures,
    read_record,
)

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
                    if record.added.rank not in (None, rank):
                        raise ValueError(
                            f"its name says rank {rank}, its content rank {record.added.rank}"
                        )
                except (ValueError, OSError) as error:
                    why = str(error)
                    if isinstance(error, OSError):
                        why = error.strerror or "cannot be read"
                    refused.append(Refusal(file.name, why))
                    continue
                table.add(rank, record.entries, record.groups)
                records[rank] = _facts(file, record, len(prefixes) > 1)
                # as the watcher states it, or the members of the default group
                stated = record.added.world_size or len(record.groups.get(DEFAULT_GROUP, ()))
                world_size = max(world_size, stated)
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


def _nothing(path: Path, refused: list[Refusal]) -> str:
    lines = "".join(f"\n  {one.file}: {one.reason}" for one in refused[:5])
    return (
        f"{path}: no flight record in it; PyTorch names them after their rank, such as "
        f"nccl_trace_rank_0{lines}"
    )


# -- The calls of all ranks side by side: one table for each group, filled record by record -------

COMPLETED = "completed"
# of this backend no state is known; a call retires when it has ended, well or not
STATELESS = "gloo:"


class Call:
    """One collective of a group (or one step of sends and receives) on the ranks that called it."""

    __slots__ = (
        *("aborted", "first_ns", "last_ns", "last_rank", "open", "others", "ranks"),
        *("signature", "timeout_ms"),
    )

    def __init__(self, signature: Signature, created_ns: int) -> None:
        self.signature = signature
        self.ranks: list[int] = []
        # ranks whose signature differs from the first one's
        self.others: dict[int, Signature] | None = None
        # ranks on which it has not ended
        self.open: list[int] = []
        # ranks on which it was given up: retired, yet known not to be complete
        self.aborted: list[int] = []
        self.first_ns = self.last_ns = created_ns
        self.last_rank = -1
        self.timeout_ms = 0

    def signature_on(self, rank: int) -> Signature:
        """What the rank called."""
        return (self.others or {}).get(rank, self.signature)

    @property
    def lag_s(self) -> float:
        """From the first rank's call to the last one's."""
        return (self.last_ns - self.first_ns) / 1e9


@dataclass(slots=True)
class GroupCalls:
    """A process group: its calls by sequence number, and how far each rank has come."""

    name: str
    description: str
    # None: no record says who belongs to it
    members: tuple[int, ...] | None
    calls: dict[int, Call] = field(default_factory=dict)
    p2p: dict[int, Call] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def in_order(self) -> Iterator[tuple[int, Call]]:
        """Collectives by sequence number."""
        return ((seq, self.calls[seq]) for seq in sorted(self.calls))


class CallTable:
    """The calls of all records that were added."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, tuple[int, ...] | None], GroupCalls] = {}
        self._n_calls = 0
        self.entries_left_out = 0

    def groups(self) -> list[GroupCalls]:
        """The groups, by name; of the same name, those with known members take in the others."""
        for key, group in list(self._groups.items()):
            known = [
                one
                for one in self._groups.values()
                if one.name == group.name and one.members is not None
            ]
            if group.members is None and len(known) == 1:
                _merge(known[0], self._groups.pop(key))
        return sorted(self._groups.values(), key=lambda one: (one.name, one.members or ()))

    def add(
        self, rank: int, entries: list[Entry], members_of: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Add the calls of one rank."""
        mine: dict[tuple[str, str], GroupCalls] = {}
        for entry in entries:
            name, description, seq, is_p2p, signature, retired, state, created_ns, timeout, _ = (
                entry
            )
            group = mine.get((name, description))
            if group is None:
                group = self._group(name, description, members_of)
                mine[name, description] = group
            calls = group.p2p if is_p2p else group.calls
            call = calls.get(seq)
            if call is None:
                if self._n_calls >= MOST_CALLS:
                    self.entries_left_out += 1
                    continue
                self._n_calls += 1
                call = calls[seq] = Call(signature, created_ns)
            ended = state == COMPLETED or (retired and signature.name.startswith(STATELESS))
            if not ended or signature is not call.signature or rank in call.ranks[-1:]:
                _note(call, rank, entry, ended=ended)
            else:
                call.ranks.append(rank)
            if created_ns < call.first_ns:
                call.first_ns = created_ns
            elif created_ns >= call.last_ns:
                call.last_ns, call.last_rank = created_ns, rank
            if timeout and (timeout < call.timeout_ms or not call.timeout_ms):
                call.timeout_ms = timeout
            if not is_p2p and seq > group.newest.get(rank, -1):
                group.newest[rank] = seq

    def _group(
        self, name: str, description: str, members_of: Mapping[str, tuple[int, ...]]
    ) -> GroupCalls:
        members = members_of.get(name)
        key = (name, description, members)
        if key not in self._groups:
            self._groups[key] = GroupCalls(name, description, members)
        return self._groups[key]


def _note(call: Call, rank: int, entry: Entry, *, ended: bool) -> None:
    """Add a rank to a call where it is not as on the others, or not for the first time."""
    if call.ranks and call.ranks[-1] == rank:
        # of the entries of a coalesced call only the last has a state of its own
        if ended and call.open and call.open[-1] == rank:
            call.open.pop()
        return
    call.ranks.append(rank)
    if not ended:
        (call.aborted if entry.retired else call.open).append(rank)
    if entry.signature is not call.signature:
        if call.others is None:
            call.others = {}
        call.others[rank] = entry.signature


def _merge(known: GroupCalls, other: GroupCalls) -> None:
    """Take the calls of a group whose members are not known into the one of the same name."""
    for mine, theirs in ((known.calls, other.calls), (known.p2p, other.p2p)):
        for seq, call in theirs.items():
            kept = mine.setdefault(seq, call)
            if kept is call:
                continue
            kept.ranks += call.ranks
            kept.open += call.open
            kept.aborted += call.aborted
            differing = {
                rank: call.signature_on(rank)
                for rank in call.ranks
                if call.signature_on(rank) is not kept.signature
            }
            if differing:
                kept.others = {**(kept.others or {}), **differing}
            kept.first_ns = min(kept.first_ns, call.first_ns)
            if call.last_ns > kept.last_ns:
                kept.last_ns, kept.last_rank = call.last_ns, call.last_rank
    known.newest.update(other.newest)
