"""The loop: read what is new, compute again what changed, serve it."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from ettr.analysis import Analysis, Assumptions
from ettr.collect.running import collect, collect_commands, period_after
from ettr.errors import ChangedStoreError, EttrError, NoRecordError, UsageError
from ettr.live.exposition import STATE, Counted, Moment, Samples, openmetrics, samples_of
from ettr.live.following import Follower, drop_read_pieces, names_of, read_as, take_journal
from ettr.live.server import Served
from ettr.report.html import render
from ettr.report.page import document, page
from ettr.report.rows import plain
from ettr.selection import Selection
from ettr.sources.base import ReadOptions
from ettr.sources.spool import LogFile
from ettr.store import open_store

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
        with tempfile.TemporaryDirectory(prefix="ettr-") as folder:
            for one in collect(commands, Path(folder), os.environ, self.complain):
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
