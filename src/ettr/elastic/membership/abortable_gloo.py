"""A gloo group whose collectives can be aborted: a wait ends with the generation.

When a connection breaks, gloo reports it to all pending operations except the one whose bytes were
under way; whoever waits for that one waits for the whole timeout, and no call ends the wait
(`docs/how-to/regroup-after-a-loss.md`). So here nobody waits in gloo for long: `wait` checks the
generation again and again, and abandons the operation once the generation is over. A background
thread holds what gloo still keeps of it until gloo's own timeout has passed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, _DistributedBackendOptions
    from torch.futures import Future

NAME = "ettr_gloo"
_POLL = timedelta(milliseconds=50)

# What torch's Python calls on a group -> what gloo calls it. The last two are the newer names.
_COLLECTIVES = {
    "allgather": "allgather",
    "_allgather_base": "_allgather_base",
    "allgather_coalesced": "allgather_coalesced",
    "allreduce": "allreduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "alltoall": "alltoall",
    "alltoall_base": "alltoall_base",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "scatter": "scatter",
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
}


class GenerationOverError(RuntimeError):
    """A collective was abandoned because its generation is over."""


class AbortableWork(dist.Work):
    """A gloo operation whose wait also ends with the generation."""

    def __init__(self, inner: dist.Work, group: AbortableGloo) -> None:
        super().__init__()
        self._inner, self._group = inner, group

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the operation.

        Args:
            timeout: 0: that of the group.

        Raises:
            GenerationOverError: the generation ended before the operation did.
            RuntimeError: the operation failed, or has not ended in time.
        """
        waited = timedelta(0)
        while True:
            # In gloo's own wait, so that an operation that ends is known at once; it may be
            # waited for again after this wait has run out.
            try:
                return bool(self._inner.wait(_POLL))
            except RuntimeError:
                if self._inner.is_completed():
                    return bool(self._inner.wait())  # ended just now, or raises why it failed
                waited += _POLL
                if timeout and waited >= timeout:
                    raise
            if self._group.over():
                self._group.abandoned.append(self._inner)
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
        return self._inner.result()

    def synchronize(self) -> None:
        """As gloo's."""
        self._inner.synchronize()

    def get_future(self) -> Future[Any]:
        """gloo's future; a wait for it cannot be aborted."""
        return self._inner.get_future()


class AbortableGloo(dist.ProcessGroup):
    """A process group over gloo; collectives return work that can be aborted, the rest is gloo's.

    Args:
        over: whether the generation of the group is over.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, over: Callable[[], bool]
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.over, self.abandoned = over, list[dist.Work]()
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        # Sends, receives, names, timeouts: the base class finds them here.
        kind = dist.ProcessGroup.BackendType.GLOO
        self._register_backend(torch.device("cpu"), kind, self._gloo)
        self._set_default_backend(kind)

    def detach(self) -> None:
        """Release gloo without waiting for abandoned operations; call it before the end."""
        if not self.abandoned:
            return
        # gloo's destructor waits for all operations: another thread holds it until they are over.
        threading.Thread(
            target=_outlast,
            args=(self._gloo, list(self.abandoned)),
            name="ettr-abandoned",
            daemon=True,
        ).start()
        self.abandoned.clear()


def register() -> str:
    """Make the backend known to torch, once a process; returns its name."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    return NAME


def _create(options: _DistributedBackendOptions, over: Callable[[], bool] | None) -> AbortableGloo:
    """A group; one that a script makes next to the default group is over when that is."""
    if over is None:
        default = dist.group.WORLD
        over = default.over if isinstance(default, AbortableGloo) else lambda: False
    return AbortableGloo(
        options.store, options.group_rank, options.group_size, options.timeout, over
    )


def _outlast(gloo: dist.ProcessGroupGloo, works: list[dist.Work]) -> None:
    for work in works:
        try:
            work.wait()
        except RuntimeError:
            continue  # it has ended, which is all that matters here


def _abortable(name: str) -> Callable[..., AbortableWork]:
    def call(self: AbortableGloo, *args: object, **options: object) -> AbortableWork:
        return AbortableWork(getattr(self._gloo, name)(*args, **options), self)

    return call


for _name, _gloo_name in _COLLECTIVES.items():
    setattr(AbortableGloo, _name, _abortable(_gloo_name))
