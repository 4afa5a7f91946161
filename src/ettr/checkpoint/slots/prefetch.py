"""Reading payloads ahead, in the order asked for, and checking them while the next ones are read.

A ring of buffers: while one payload is read and an earlier one is copied away, a second thread runs
the checksum over those between them. A payload that this thread has not reached when it is needed
is checked by the reader itself, so that a machine with one free core loses nothing. Small payloads
are checked where they are read: handing them over costs more than their checksum. No payload is
returned before its checksum holds. Standard library only.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from ettr.checkpoint.slots import checksums
from ettr.checkpoint.slots.reader import PayloadReader, Record

_DEPTH = 4  # payloads in flight: enough to hide a slow one, few enough for the shared cache
_THREADED_FROM_BYTES = 1 << 18


@dataclass(slots=True)
class _Check:
    """The checksum of one payload in flight; whoever takes `claim` first computes it."""

    record: Record
    payload: memoryview | None
    digest: Callable[[memoryview], int]
    good: bool = True
    claim: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Compute the checksum, unless another thread has begun to."""
        if self.payload is None or not self.claim.acquire(blocking=False):
            return
        self.good = self.digest(self.payload) == self.record.header.payload_sum
        self.done.set()

    def result(self) -> tuple[Record, memoryview | None]:
        """The record with its payload, or None where that is short or fails its checksum."""
        if self.payload is not None and not self.done.is_set():
            self.run()
            self.done.wait()
        return self.record, self.payload if self.good else None


def read_ahead(
    records: Iterable[Record], *, check: bool = True
) -> Iterator[tuple[Record, memoryview | None]]:
    """Each record with its payload, or None where that is short or fails its checksum.

    The memory is overwritten once the next ones have been asked for: copy it before.

    Args:
        check: False returns payloads unchecked, to measure what checking costs.
    """
    with ExitStack() as stack:
        checker = _start_checker(stack) if check and _cores() > 1 else None
        readers = [PayloadReader(check=False) for _ in range(_DEPTH)]
        inline = PayloadReader(check=check)
        in_flight: deque[_Check] = deque()
        for number, record in enumerate(records):
            small = record.header.payload_bytes < _THREADED_FROM_BYTES
            if small or (check and checker is None):
                # In order: what was read before it is returned before it.
                while in_flight:
                    yield in_flight.popleft().result()
                yield record, inline.read(record)
                continue
            if len(in_flight) == _DEPTH - 1:
                yield in_flight.popleft().result()
            digest = checksums.digest_function(record.file.superblock.checksum)
            pending = _Check(record, readers[number % _DEPTH].read(record), digest)
            in_flight.append(pending)
            if checker is None:
                pending.done.set()
            else:
                checker.put(pending)
        while in_flight:
            yield in_flight.popleft().result()


def _start_checker(stack: ExitStack) -> queue.SimpleQueue[_Check | None]:
    checks: queue.SimpleQueue[_Check | None] = queue.SimpleQueue()

    def work() -> None:
        while (check := checks.get()) is not None:
            check.run()

    thread = threading.Thread(target=work, name="ettr-check", daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(checks.put, None)
    return checks


def _cores() -> int:
    return len(os.sched_getaffinity(0))
