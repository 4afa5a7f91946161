"""The loop: read what is new, compute again what changed, serve it.

Files grow, are rotated and compressed; nothing of them counts twice. A file is known by its
content, not by its name or inode: what begins with all that was read before is the same file,
longer, and takes the place of its earlier reading at one commit. How much was read, and its
checksum, stand in the store's own row of the file, so that the two never disagree.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from ettr.analysis import Analysis, Assumptions
from ettr.collect.running import (
    CollectCommand,
    CollectError,
    collect,
    collect_commands,
    period_after,
    write_output,
)
from ettr.errors import ChangedStoreError, EttrError, NoRecordError, SourceError, UsageError
from ettr.files import private_folder
from ettr.live.exposition import STATE, Counted, Moment, Samples, openmetrics, samples_of
from ettr.live.server import Served
from ettr.report.html import render
from ettr.report.page import document, page
from ettr.report.rows import plain
from ettr.selection import Selection
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import Ingested, refuse_simulation, task_of
from ettr.sources.origin import READ_ERRORS, LogFile, open_bytes
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
    with private_folder() as folder, open_store(store) as opened:
        streams = [one for one in map(_stream, opened.files()) if one is not None]
        lengths = {one.read_bytes for one in streams}
        spool = folder / path.name
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


# -- the loop ------------------------------------------------------------------------------------

LOCK, JOURNAL, KERNEL = ".watch", ".journal", "kernel-xid"
_TRIES = 5
_OVERLAP = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What to follow and how often.

    Attributes:
        files: Names or patterns of log files; what they are rotated into is followed too.
        every_s: Between two looks at them.
        collect_every_s: Between two runs of the commands of `ettr collect`; None for never.
        collect_since: Where the accounting of an empty store, and its journal, begin.
        journal: Options of journalctl; None where it is not followed.
        with_page: Whether the report and its JSON are made as well.
    """

    store: Path
    files: tuple[str, ...]
    options: ReadOptions = field(default_factory=ReadOptions)
    source: str | None = None
    every_s: float = 60.0
    collect_every_s: float | None = None
    collect_since: datetime | None = None
    with_page: bool = True
    journal: tuple[str, ...] | None = None


@contextmanager
def only_watcher(store: Path, complain: Callable[[str], None]) -> Iterator[None]:
    """Be the only watcher of a store: while there is another one, say so once and wait."""
    with open_store(store, create=True):
        pass
    handle = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            complain(f"{store}: another process watches it; waiting until it ends")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@dataclass(slots=True)
class StoreWatch:
    """A store that is kept up to date, and what is served of it.

    Attributes:
        clock: The time now, with a zone.
        assumptions: As of `ettr report`; when objectives are judged is the clock's.
    """

    plan: WatchPlan
    assumptions: Assumptions
    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    complain: Callable[[str], None]
    served: Served = field(default_factory=Served)
    _follower: Follower | None = None
    _of_journal: Follower | None = None
    _computed: tuple[str, str] = ("", "")
    _samples: Samples = field(default_factory=dict)
    _collected: datetime | None = None
    _errors: int = 0
    _last_success: datetime | None = None

    def run(self, stop: Callable[[], bool]) -> None:
        """Look again and again until `stop` says so."""
        while not stop():
            self.look()
            if not stop():  # a library may have swallowed the interrupt
                self.sleep(self.plan.every_s)

    def look(self) -> None:
        """Read what is new and compute again what changed; problems are printed and served."""
        problems = []
        for step in (self._collect, self._read_journal, self._read, self._compute):
            try:
                step()  # one that fails holds up no other
            except (EttrError, OSError) as error:
                problems.append(str(error))
                self.complain(f"{error}; trying again in {self.plan.every_s:g} s")
        self._errors += bool(problems)
        if not problems:
            self._last_success = self.clock()
        own: Samples = {"ettr_watch_errors": {(): float(self._errors)}}
        if (at := self._last_success) is not None:
            own["ettr_watch_last_success_timestamp_seconds"] = {(): at.timestamp()}
        says = "; ".join(problems)
        health = {"ok": not says, "at": self.clock().isoformat(), "says": says}
        metrics = openmetrics([Moment(self._samples | own)])
        self.served = replace(self.served, metrics=metrics, health=health)

    def _read(self) -> None:
        if self._follower is None:
            self._follower = Follower(self.plan.files, self.plan.options, self.plan.source)
            for pattern in self.plan.files:
                if not names_of(pattern):
                    self.complain(f"{pattern}: no such file yet; it is looked for again and again")
        for one in self._follower.read_new(str(self.plan.store), self.complain):
            for note in one.notes:
                self.complain(f"{one.name}: {note}")

    def _read_journal(self) -> None:
        """Take the kernel's new lines out of the journal, and read them as a file of their own."""
        if self.plan.journal is None:
            return
        folder = self.plan.store / JOURNAL
        since = self.plan.collect_since
        take_journal(folder, self.plan.journal, self.clock(), since, self.complain)
        if self._of_journal is None:
            self._of_journal = Follower((f"{folder}/*.json",), self.plan.options, KERNEL)
        # lines without a word of a GPU are no log of errors yet
        self._of_journal.read_new(str(self.plan.store), lambda _: None)
        drop_read_pieces(folder)

    def _collect(self) -> None:
        """Run the commands of `ettr collect` since the last end, and read what they wrote.

        What later runs of a day show holds all that earlier ones did, and takes their place.
        """
        every_s, now = self.plan.collect_every_s, self.clock().astimezone(UTC)
        last = self._collected
        # a clock set back may not stop it
        if every_s is None or (last and 0.0 <= (now - last).total_seconds() < every_s):
            return
        store = str(self.plan.store)
        with open_store(store) as opened:
            since = self.plan.collect_since
            if any(one.source == "slurm-sacct" for one in opened.files()):
                since = period_after(opened, store, now, _OVERLAP).since
            elif since is None:
                raise UsageError(f"{store}: has no accounting yet; give collect-since in [watch]")
        at, begin = (one.astimezone(UTC).replace(tzinfo=None) for one in (now, since))
        begin = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        commands = collect_commands(begin, at.replace(microsecond=0))
        utc = replace(self.plan.options, timezone="UTC")
        with private_folder() as folder:
            for one in collect(commands, folder, os.environ, self.complain):
                if one.size_bytes is None:
                    continue
                name = one.command.file_name
                key = f"{name.rpartition('-')[0]}:{at:%Y-%m-%d}".encode()
                with open_store(store) as opened, suppress(NoRecordError):
                    log = LogFile(one.path, name)
                    read_as(opened, log, utc, None, hashlib.sha256(key).hexdigest()[:20])
        self._collected = now

    def _compute(self) -> None:
        manifest = (self.plan.store / "store.json").read_text("utf-8")
        day = f"{self.clock():%Y-%m-%d}"  # logs fall silent, too
        if self._computed == (manifest, day):
            return
        with open_store(self.plan.store) as opened:
            if not opened.files():
                return
        for left in reversed(range(_TRIES)):
            try:
                self._samples, self.served = self._answers()
                break
            except ChangedStoreError:
                if not left:
                    raise
            finally:
                _give_back_memory()
        self._computed = manifest, day

    def _answers(self) -> tuple[Samples, Served]:
        state = self.plan.store / STATE
        with open_store(self.plan.store) as opened:
            analysis = Analysis(opened, replace(self.assumptions, now=self.clock()))
            counted = Counted.of(state)
            samples = samples_of(analysis, counted)
            shown = self.served
            if self.plan.with_page:
                keys = document(analysis).items()
                made = {key: json.dumps(plain(value)).encode() for key, value in keys}
                shown = replace(shown, page=render(page(analysis)).encode(), document=made)
        counted.write(state)  # before anybody sees them: a restart takes nothing back
        return samples, shown


def _give_back_memory() -> None:
    """Let the last analysis go, and hand what it took back to the system."""
    gc.collect()  # its stages know each other, and a command collects late
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # not of glibc
        ctypes.CDLL(None).malloc_trim(0)


def backfill(store: str | Path, assumptions: Assumptions, step: timedelta) -> bytes:
    """The history of a store as OpenMetrics with time stamps, for promtool.

    The metrics are those of `ettr watch` as of the end of each step: what ended until then, judged
    by all of the logs of today.
    """
    counted, moments = Counted(), []
    with open_store(store) as opened:
        whole = Analysis(opened, assumptions)
        end = whole.logs_period.end
        at = whole.logs_period.start + step
        while at < end + step:
            until = min(at, end)
            part = whole.of(Selection(until=until + timedelta(microseconds=1)))
            samples = samples_of(part, counted)
            time_s = until.timestamp()
            samples["ettr_watch_last_success_timestamp_seconds"] = {(): time_s}
            copied = {name: dict(values) for name, values in samples.items()}  # counting goes on
            moments.append(Moment(copied, time_s))
            at += step
    return openmetrics(moments)


def shipped() -> dict[str, str]:
    """Prometheus' rules and Grafana's dashboards, by the names of their files."""
    folder = files("ettr.live") / "dashboards"
    return {one.name: one.read_text("utf-8") for one in folder.iterdir()}
