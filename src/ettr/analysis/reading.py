"""Log files read into a store, and what a reader must know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from ettr.analysis.analysis import Analysis
from ettr.errors import NoRecordError, SourceError
from ettr.sources.base import ReadOptions, Spreading
from ettr.sources.ingest import (
    Ingested,
    Progress,
    ingest_log,
    refuse_idle_options,
)
from ettr.sources.origin import LogFile, log_file
from ettr.sources.processes import ingest_logs, jobs_for, spreading, together
from ettr.sources.registry import all_sources
from ettr.store import Store
from ettr.tables.rows import UNNAMED_NOTE
from ettr.words import counted


def _no_progress(_size_bytes: int, _place: str) -> AbstractContextManager[Progress]:
    return nullcontext(lambda _name, _records, _bytes: None)


def ingest_all(
    store: Store,
    files: Sequence[Path],
    options: ReadOptions,
    source: str | None,
    complain: Callable[[str], None],
    progress: Callable[[int, str], AbstractContextManager[Progress]] = _no_progress,
    analysis: Analysis | None = None,
    jobs: int | None = 1,
) -> list[Ingested]:
    """Read each file into the store.

    What comes through standard input and pipes is kept in temporary files until all are read.

    Args:
        progress: Opened for each log, with the bytes of its file and its place as `2 of 7`.
        analysis: Of that store, asked nothing yet: it keeps what the notes take, for who asks it
            next. One of its own if None.
        jobs: Processes that read; as many as there are cores, if the logs are worth it, if None.

    Raises:
        SourceError: a log cannot be read as a known format, or none of them holds a record. One
            without a record among others is a note. The other logs are in the store.
        UsageError: an option is missing or wrong.
        StoreError: the store cannot be written.
    """
    done = []
    empty: list[SourceError] = []
    failed: list[SourceError] = []
    with ExitStack() as spools:
        logs = [spools.enter_context(log_file(path, complain)) for path in files]
        refuse_idle_options(logs, options, source)
        # on few cores blocks take longer: only where processes were asked for
        shared = together(logs, options, source, jobs or 1)
        jobs = jobs_for(logs) if jobs is None else jobs
        for one in _outcomes(store, logs, options, source, progress, jobs, shared):
            if isinstance(one, SourceError):
                (empty if isinstance(one, NoRecordError) else failed).append(one)
                continue
            for note in one.notes:
                if UNNAMED_NOTE not in note:
                    complain(f"{one.name}: {note}")
            done.append(one)
    for error in failed[1:] if done else ():
        complain(f"{error}; nothing was stored of it")
    if failed and done:
        complain(f"{counted(len(done), 'other log')} of {len(logs)} are in the store")
    if failed or (empty and not done):
        raise [*failed, *empty][0]
    analysis = analysis or Analysis(store)
    read, done = done, _with_named_clusters(analysis, done)
    for one, named in zip(read, done, strict=True):
        for note, words in zip(one.notes, named.notes, strict=True):
            if UNNAMED_NOTE in note:  # only now is it known what became of its rows
                complain(f"{one.name}: {words}")
    for each in empty:
        complain(f"{each}; nothing was stored of it")
    complain_of_clocks(analysis, complain)
    return done


def _outcomes(
    store: Store,
    logs: Sequence[LogFile],
    options: ReadOptions,
    source: str | None,
    progress: Callable[[int, str], AbstractContextManager[Progress]],
    jobs: int,
    shared: Sequence[bool],
) -> Iterator[Ingested | SourceError]:
    """What became of each log, in the order given; what is wrong with one is its own."""
    place = 0
    for is_shared, pairs in groupby(zip(logs, shared, strict=True), lambda pair: pair[1]):
        some = [log for log, _ in pairs]
        place += len(some)
        if jobs > 1 and len(some) > 1 and not is_shared:
            size_bytes = sum(log.path.stat().st_size for log in some)
            with progress(size_bytes, counted(len(some), "log")) as advance:
                yield from ingest_logs(store, some, options, source, min(jobs, len(some)), advance)
            continue
        for at, log in enumerate(some, place - len(some) + 1):
            size_bytes = log.path.stat().st_size
            workers: AbstractContextManager[Spreading | None] = nullcontext()
            with progress(size_bytes, f"{at} of {len(logs)}") as advance:
                try:
                    if is_shared:
                        workers = spreading(jobs, log)
                    with workers as spread:
                        one = ingest_log(store, log, options, source, advance, spread)
                except SourceError as error:
                    yield error
                    continue
            yield one


def _with_named_clusters(analysis: Analysis, read: list[Ingested]) -> list[Ingested]:
    """The same outcomes, their notes in the words of what rows that name no cluster are now."""
    if not any(UNNAMED_NOTE in note for one in read for note in one.notes):
        return read
    words = analysis.naming.words
    return [replace(one, notes=tuple(map(words, one.notes))) for one in read]


def complain_of_clocks(analysis: Analysis, complain: Callable[[str], None]) -> None:
    """A loud sentence for each pair of logs in the store whose clocks differ by a constant."""
    known = all_sources()
    names = {file.source for file in analysis.store.files()} & set(known)
    tables = [set(known[name].tables) for name in names]
    if not (
        any("attempts" in some for some in tables)
        and any(some & {"events", "node_states", "progress"} for some in tables)
    ):
        return
    for shift in analysis.clock_shifts:
        complain(shift.sentence)
