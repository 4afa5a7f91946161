"""Logs read by several processes at once, whose rows one process commits, in the order given.

They read a log each, or a large log together, a block of its lines each.

A worker does all that reading takes: it recognises, hashes, parses, and writes parts of the rows
into files of its own. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ettr.errors import SourceError
from ettr.files import private_folder
from ettr.sources.ingest import (
    Ingested,
    Progress,
    reads_in_blocks,
    refuse_simulation,
    task_of,
    unchanged,
)
from ettr.store import Ingestion
from ettr.store.base import known
from ettr.store.computing import spare_pandas
from ettr.store.merging import PartWriter
from ettr.tables import FILES

if TYPE_CHECKING:
    import pyarrow as pa

    from ettr.sources.base import ReadOptions, Spreading
    from ettr.sources.origin import LogFile
    from ettr.store import Store
    from ettr.store.base import IngestedFile
    from ettr.store.computing import Computing

WORTH_A_PROCESS_BYTES = 64 << 20
"""Bytes of logs that take as long to read as a process takes to start, some times over."""
WORTH_BLOCKS_BYTES = 32 << 20
"""Bytes of a log that several processes read together, where a user asked for several."""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def jobs_for(logs: Sequence[LogFile]) -> int:
    """Processes that are worth their start for these logs."""
    size_bytes = sum(log.path.stat().st_size for log in logs)
    return max(1, min(cores(), len(logs), size_bytes // WORTH_A_PROCESS_BYTES))


def together(
    logs: Sequence[LogFile], options: ReadOptions, source_name: str | None, jobs: int
) -> list[bool]:
    """Which logs so many processes read together: large ones, with much more than an even share."""
    sizes = [log.path.stat().st_size for log in logs]
    least_bytes = max(WORTH_BLOCKS_BYTES, sum(sizes) * 5 // (4 * jobs))
    return [
        jobs > 1 and size >= least_bytes and reads_in_blocks(log, options, source_name)
        for log, size in zip(logs, sizes, strict=True)
    ]


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


@contextmanager
def spreading(jobs: int, log: LogFile) -> Iterator[Spreading]:
    """Processes for the blocks of one log; a few more blocks than processes are in memory."""
    with _workers(jobs) as pool:

        def spread(work: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterator[_Made]:
            waiting: deque[Future[_Made]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > jobs + 1:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool:
                raise _ended(log) from None

        yield spread


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of our own, none of which is left behind."""
    before = {*multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _of_parent, (os.getpid(),))
    try:
        yield pool
    except BaseException:
        for worker in {*multiprocessing.active_children()} - before:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _ended(log: LogFile) -> SourceError:
    return SourceError(
        f"{log}: the process that read it ended without a word, as one does that the system ends "
        "for want of memory; give fewer --jobs"
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """What a worker made of one log: its rows by table, in files, and its row of `files`."""

    file_id: str
    outcome: Ingested
    parts: dict[str, Path] = field(default_factory=dict)
    file_row: dict[str, Any] = field(default_factory=dict)
    distinct: frozenset[str] = frozenset()


class _Aside(Ingestion):
    """The rows of one log on their way into files of a folder, one file a table."""

    def __init__(self, folder: Path, computing: Computing) -> None:
        self.computing = computing
        self._folder = folder
        self._writers: dict[str, PartWriter] = {}
        self.parts: dict[str, Path] = {}
        self.file_row: dict[str, Any] = {}
        self.distinct: frozenset[str] = frozenset()

    def write(self, name: str, rows: pa.Table) -> None:
        checked = known(name).check(rows)
        if not checked.num_rows:
            return
        if name not in self._writers:
            self.parts[name] = self._folder / f"{name}.parquet"
            self._writers[name] = PartWriter(self.parts[name], known(name))
        self._writers[name].write(checked)

    def commit(self, file_row: dict[str, Any], distinct: Collection[str] = ()) -> None:
        for writer in self._writers.values():
            writer.close()
        self.file_row, self.distinct = file_row, frozenset(distinct)


def ingest_logs(
    store: Store,
    logs: Sequence[LogFile],
    options: ReadOptions,
    source_name: str | None,
    jobs: int,
    progress: Progress | None = None,
) -> Iterator[Ingested | SourceError]:
    """Read logs by so many processes; the outcome of each, in order, once it is in the store.

    What lies in files until its log's turn comes is in the folder for temporary files (`TMPDIR`).

    Raises:
        UsageError: an option is missing or wrong.
        StoreError: the store holds a simulation, or cannot be written.
    """
    with private_folder() as folder, _workers(jobs) as pool:
        reading = []
        for number, log in enumerate(logs):
            own = folder / str(number)
            own.mkdir()
            given = (log, options, source_name, own, store.files(), store.computing)
            reading.append(pool.submit(_read_aside, *given))
        n_bytes = 0
        for log, read in zip(logs, reading, strict=True):
            yield _committed(store, log, read)
            n_bytes += log.path.stat().st_size
            if progress:
                progress(log.name, 0, n_bytes)


def _committed(store: Store, log: LogFile, read: Future[_Read]) -> Ingested | SourceError:
    try:
        made = read.result()
    except SourceError as error:
        return error
    except BrokenProcessPool:
        return _ended(log)
    if made.outcome.unchanged:
        return made.outcome
    there = store.files()
    options, reader = made.file_row["options"], made.file_row["reader"]
    for known_file in there:  # the same bytes came twice in one run
        same = (known_file.file_id, known_file.options, known_file.reader)
        if same == (made.file_id, options, reader):
            return unchanged(log, made.outcome.source, known_file)
    refuse_simulation(store, there, log)
    with store.ingestion(made.file_id) as ingestion:
        for name, path in made.parts.items():
            if name != FILES.name:
                ingestion.adopt(name, path)
        ingestion.commit(made.file_row, made.distinct)
    return made.outcome


def _read_aside(
    log: LogFile,
    options: ReadOptions,
    source_name: str | None,
    folder: Path,
    there: tuple[IngestedFile, ...],
    computing: Computing,
) -> _Read:
    """What a worker does for one log."""
    task = task_of(log, options, source_name)
    if (before := task.known_as(there)) is not None:
        return _Read(task.origin.file_id, before)
    aside = _Aside(folder, computing)
    outcome = task.read_into(aside)
    return _Read(task.origin.file_id, outcome, aside.parts, aside.file_row, aside.distinct)


def _of_parent(parent: int) -> None:
    """Let this process end when the one that started it does; Ctrl-C is for that one alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spare_pandas()
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)
