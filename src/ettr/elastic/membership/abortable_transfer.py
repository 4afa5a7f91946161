"""Sends and receives over gloo that a survivor can leave when its peer is dead.

A transfer cannot be waited for a little, as a collective can: when a wait for one runs out, gloo
breaks every connection of its group. And the wait of a transfer whose bytes were under way when the
connection broke lasts for the whole timeout. So another thread waits in gloo, and is left there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

import torch.distributed as dist

_POLL_S = 0.05


class GenerationOverError(RuntimeError):
    """An operation was abandoned because its generation is over."""


class _Awaited:
    """An operation that a thread waits for."""

    def __init__(self, work: dist.Work) -> None:
        self.work, self.ended = work, threading.Event()
        self.error: RuntimeError | None = None


class TransferWaiters:
    """Threads that wait in gloo: as many as transfers were waited for at a time."""

    def __init__(self) -> None:
        self._due: SimpleQueue[_Awaited | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._n_idle = self._n_threads = 0

    def wait_for(self, work: dist.Work) -> _Awaited:
        """Have a thread wait for an operation."""
        awaited = _Awaited(work)
        with self._lock:
            if self._n_idle:
                self._n_idle -= 1
            else:
                self._n_threads += 1
                threading.Thread(target=self._run, name="ettr-transfer", daemon=True).start()
        self._due.put(awaited)
        return awaited

    def close(self) -> None:
        """End each thread as soon as it waits for nothing."""
        with self._lock:
            for _ in range(self._n_threads):
                self._due.put(None)
            self._n_threads = self._n_idle = 0

    def _run(self) -> None:
        while (awaited := self._due.get()) is not None:
            try:
                awaited.work.wait()
            except RuntimeError as error:
                awaited.error = error
            with self._lock:
                self._n_idle += 1
            awaited.ended.set()
            del awaited  # and with it the tensor, while this thread waits for the next


class AbortableTransfer(dist.Work):
    """A send or a receive whose wait also ends with the generation.

    Args:
        limit: how long to wait where the caller says nothing.
        over: whether the generation is over.
    """

    def __init__(
        self,
        inner: dist.Work,
        waiters: TransferWaiters,
        limit: Callable[[], timedelta],
        over: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._inner, self._waiters, self._limit, self._over = inner, waiters, limit, over
        self._awaited: _Awaited | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the transfer.

        Args:
            timeout: 0: as long as for a collective.

        Raises:
            GenerationOverError: the generation ended before the transfer did.
            RuntimeError: it failed, or has not ended in time.
        """
        awaited = self._awaited = self._awaited or self._waiters.wait_for(self._inner)
        limit = timeout or self._limit()
        end_s = time.monotonic() + limit.total_seconds()
        while not awaited.ended.wait(_POLL_S):
            if self._over():
                raise GenerationOverError("a rank was lost during a send or receive")
            if time.monotonic() > end_s:
                raise RuntimeError(f"a send or receive has not ended within {limit}")
        if awaited.error is not None:
            raise RuntimeError(str(awaited.error)) from awaited.error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, as far as somebody has waited for it: gloo knows no more."""
        return self._awaited is not None and self._awaited.ended.is_set()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> RuntimeError | None:
        """Why it failed."""
        return None if self._awaited is None else self._awaited.error

    def source_rank(self) -> int:
        """Who has sent what was received from any rank."""
        return int(self._inner._source_rank())

    _source_rank = source_rank
