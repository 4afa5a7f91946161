"""Payloads in the order asked for, checked beside the reading of the next ones.

A ring of buffers: while one payload is read and an earlier one is copied away, a second thread runs
over the bytes between them. Where that thread has not come round to a payload when it is needed,
the reader checks it itself, so that a machine with one free core loses nothing. Small payloads are
checked where they are read: handing them over costs more than their checksum. Nothing is handed on
before its checksum holds. Standard library only.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from ettr.checkpoint import checksums
from ettr.checkpoint.slot_reader import PayloadReader, Record

_DEPTH = 4  # payloads under way: enough to hide a slow one, few enough for the shared cache
_ASIDE_BYTES = 1 << 18


@dataclass(slots=True)
class _Job:
    """One payload under way; whoever takes `claim` first checks it."""

    record: Record
    payload: memoryview | None
    digest: Callable[[memoryview], int]
    good: bool = True
    claim: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Run the checksum, unless another has taken that up."""
        if self.payload is None or not self.claim.acquire(blocking=False):
            return
        self.good = self.digest(self.payload) == self.record.header.payload_sum
        self.done.set()

    def verdict(self) -> memoryview | None:
        """The payload, or None where it is short or fails its checksum."""
        if self.payload is not None and not self.done.is_set():
            self.check()
            self.done.wait()
        return self.payload if self.good else None


def read_ahead(
    records: Iterable[Record], *, check: bool = True
) -> Iterator[tuple[Record, memoryview | None]]:
    """Each record with its payload, or None where that is short or fails its checksum.

    The memory is overwritten once the next ones have been asked for: copy it before.

    Args:
        check: False hands payloads on unchecked, to measure what checking costs.
    """
    with ExitStack() as stack:
        checker = _checker(stack) if check and _cores() > 1 else None
        readers = [PayloadReader(check=False) for _ in range(_DEPTH)]
        inline = PayloadReader(check=check)
        under_way: deque[_Job] = deque()
        for number, record in enumerate(records):
            small = record.header.payload_bytes < _ASIDE_BYTES
            if small or (check and checker is None):
                # In order: what was read before it is handed on before it.
                while under_way:
                    yield _handed(under_way)
                yield record, inline.read(record)
                continue
            if len(under_way) == _DEPTH - 1:
                yield _handed(under_way)
            digest = checksums.function(record.file.superblock.checksum)
            job = _Job(record, readers[number % _DEPTH].read(record), digest)
            under_way.append(job)
            if checker is None:
                job.done.set()
            else:
                checker.put(job)
        while under_way:
            yield _handed(under_way)


def _handed(under_way: deque[_Job]) -> tuple[Record, memoryview | None]:
    job = under_way.popleft()
    return job.record, job.verdict()


def _checker(stack: ExitStack) -> queue.SimpleQueue[_Job | None]:
    jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job.check()

    thread = threading.Thread(target=work, name="ettr-check", daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(jobs.put, None)
    return jobs


def _cores() -> int:
    return len(os.sched_getaffinity(0))
