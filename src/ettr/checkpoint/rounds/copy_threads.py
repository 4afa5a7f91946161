"""Copies between buffers by several threads at once.

Not by torch's pool: each of its copies waits until every thread has done its share, and blocks are
so many that on a machine whose cores are busy the waits cost several times the copies. Here each
thread takes the next piece when it has done one, and one that gets no core takes none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Piece: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # target, source: of one length

_PIECE_BYTES = 2 << 20
_ALONE_BYTES = 16 << 20  # below, the copy is over before another thread has begun


class CopyThreads:
    """The calling thread and `helpers` others, which sleep between two copies; `close` ends them.

    Not for several callers at once.
    """

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        for number in range(helpers):
            threading.Thread(
                target=self._serve, name=f"ettr-checkpoint-copy-{number}", daemon=True
            ).start()

    def copy(self, pieces: Iterable[Piece]) -> None:
        """Copy every source into its target; returns once all are there, whoever copied them.

        Raises:
            ValueError: a target and its source differ in length.
        """
        job = _Job(pieces)
        if job.n_bytes >= _ALONE_BYTES:
            for _ in range(self._helpers):
                self._jobs.put(job)
        job.run()

    def close(self) -> None:
        """End the helpers; later copies are made by the caller alone."""
        for _ in range(self._helpers):
            self._jobs.put(None)
        self._helpers = 0

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.help()
            del job  # it holds tensors of the model


class _Job:
    """The pieces of one copy, taken one at a time by whoever is free."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._left = deque(_cut(pieces))
        self.n_bytes = sum(source.nbytes for _, source in self._left)
        self._changed = threading.Condition()
        self._helping = 0
        self._error: BaseException | None = None

    def run(self) -> None:
        """Copy until nothing is left, then wait for the helpers that are still at a piece."""
        try:
            self._work()
        finally:
            self._left.clear()  # after an error nothing more is begun
            with self._changed:
                self._changed.wait_for(lambda: not self._helping)
        if self._error is not None:
            raise self._error

    def help(self) -> None:
        """Copy what is left; an error is for the caller of `run`."""
        with self._changed:
            self._helping += 1  # before a piece is taken, or `run` would not wait for it
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._helping -= 1
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            try:
                target, source = self._left.popleft()
            except IndexError:
                return
            target[:] = source  # NumPy lets other threads run meanwhile


def _cut(pieces: Iterable[Piece]) -> Iterator[Piece]:
    for target, source in pieces:
        if len(target) != len(source):
            raise ValueError(f"{len(source)} bytes cannot be copied into room for {len(target)}")
        for begin in range(0, len(source), _PIECE_BYTES):
            end = begin + _PIECE_BYTES
            yield target[begin:end], source[begin:end]
