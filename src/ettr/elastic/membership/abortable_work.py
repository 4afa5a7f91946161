"""Operations over gloo whose wait ends with the generation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.futures import Future

    from ettr.elastic.membership.abortable_gloo import AbortableGloo

_POLL = timedelta(milliseconds=50)


class AbortableWork(dist.Work):
    """A gloo operation whose wait also ends with the generation."""

    def __init__(self, inner: dist.Work, group: AbortableGloo) -> None:
        super().__init__()
        self._inner, self._group = inner, group
        group.issued(inner)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the operation."""
        waited = timedelta(0)
        while True:
            # In gloo's own wait, so that an operation that ends is known at once; it may be
            # waited for again after this wait has run out.
            try:
                ended_well = bool(self._inner.wait(_POLL))
            except RuntimeError:
                if self._inner.is_completed():
                    self._group.ended(self._inner)
                    return bool(self._inner.wait())  # ended just now, or raises why it failed
                waited += _POLL
                if timeout and waited >= timeout:
                    raise
            else:
                self._group.ended(self._inner)
                return ended_well
            if self._group.over():
                raise GenerationOverError("a rank was lost during a collective")

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return bool(self._inner.is_completed())

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        """Why it failed."""
        return self._inner.exception()

    def result(self) -> list[Tensor]:
        """Its output tensors."""
        tensors: list[Tensor] = self._inner.result()
        return tensors

    def synchronize(self) -> None:
        """As gloo's."""
        self._inner.synchronize()

    def get_future(self) -> Future[Any]:
        """gloo's future; a wait for it cannot be aborted."""
        return self._inner.get_future()


class ComposedWork(dist.Work):
    """Operations that are one for the caller; what they brought is copied once all are over."""

    def __init__(
        self, works: list[dist.Work], outputs: list[Tensor], copies: list[tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__()
        self._works, self._outputs, self._copies = works, outputs, copies
        self._copying = threading.Lock()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for each, and copy; as `AbortableWork.wait`."""
        for work in self._works:
            work.wait(timeout)
        self._copy()
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not; if well, the outputs are written."""
        if not all(work.is_completed() for work in self._works):
            return False
        if self.is_success():
            self._copy()
        return True

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        """Why it failed."""
        return next((work.exception() for work in self._works if not work.is_success()), None)

    def result(self) -> list[Tensor]:
        """Its output tensors."""
        return self._outputs

    def get_future(self) -> Future[Any]:
        """A future of the outputs; a wait for it cannot be aborted."""
        every = torch.futures.collect_all([work.get_future() for work in self._works])

        def outputs(ended: Future[Any]) -> list[Tensor]:
            for one in ended.value():
                one.value()  # raises why it failed
            self._copy()
            return self._outputs

        return every.then(outputs)

    def _copy(self) -> None:
        with self._copying, torch.no_grad():
            copies, self._copies = (
                self._copies,
                [],
            )  # once: the caller may change outputs afterwards
            for to, brought in copies:
                to.copy_(brought.view_as(to))


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
    """A send or a receive whose wait also ends with the generation."""

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
        """Wait for the transfer."""
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
