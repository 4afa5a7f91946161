"""A gloo group whose collectives can be aborted: a wait ends with the generation.

When a connection breaks, gloo reports it to all pending operations except the one whose bytes were
under way; whoever waits for that one waits for the whole timeout, and no call ends the wait
(`docs/how-to/regroup-after-a-loss.md`). So here nobody waits in gloo for long: `wait` checks the
generation again and again, and abandons the operation once the generation is over. A background
thread holds what gloo still keeps of it until gloo's own timeout has passed. Sends and receives are
in `abortable_transfer.py`.

Every operation is started without Python's lock. DTensor's own collectives (`full_tensor`, the norm
of clipping) would start gloo's with it held, and wait there for a mutex under which gloo's thread
releases the tensors of the operation before, for which it needs Python's lock: neither goes on.
Seen with torch 2.13, where gloo ran inside this group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.elastic.membership.abortable_transfer import (
    AbortableTransfer,
    GenerationOverError,
    TransferWaiters,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, _DistributedBackendOptions
    from torch.futures import Future

NAME = "ettr_gloo"
_POLL = timedelta(milliseconds=50)
# So many operations are remembered before those that have ended are forgotten.
_MOST_UNFINISHED = 64

# What torch calls on a group -> what gloo calls it. The last one is a newer name.
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
    "scatter": "scatter",
    "all_gather_single": "_allgather_base",
}
# What DTensor calls; gloo has no such names in Python, a plain group over it has.
_OF_TENSORS = ("all_gather_single_coalesced", "allgather_into_tensor_coalesced")


class AbortableWork(dist.Work):
    """A gloo operation whose wait also ends with the generation."""

    def __init__(self, inner: dist.Work, group: AbortableGloo) -> None:
        super().__init__()
        self._inner, self._group = inner, group
        group.issued(inner)

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


class AbortableReduceScatter(dist.Work):
    """A reduce-scatter whose wait also ends with the generation.

    The wait of gloo's own knows no limit but the group's. It is an all-reduce of which each rank
    keeps its part; here the all-reduce can be abandoned.

    Args:
        outputs: this rank's part of each tensor, copied once all are reduced.
    """

    def __init__(
        self, reduced: list[AbortableWork], outputs: list[Tensor], parts: list[Tensor]
    ) -> None:
        super().__init__()
        self._reduced, self._outputs, self._parts = reduced, outputs, parts

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the operation.

        Args:
            timeout: 0: that of the group.

        Raises:
            GenerationOverError: the generation ended before the operation did.
            RuntimeError: the operation failed, or has not ended in time.
        """
        for work in self._reduced:
            work.wait(timeout)
        for output, part in zip(self._outputs, self._parts, strict=True):
            output.copy_(part.view_as(output))
        self._reduced, self._parts = [], []  # what follows may change the outputs
        self._outputs = []
        return True

    def is_completed(self) -> bool:
        """Whether it has ended well; the outputs are then written."""
        return all(work.is_completed() for work in self._reduced) and self.wait()


class AbortableGloo(dist.ProcessGroup):
    """A process group over gloo whose collectives, sends and receives can be aborted.

    Args:
        over: whether the generation of the group is over.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, over: Callable[[], bool]
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.over, self._waiters = over, TransferWaiters()
        self._unfinished = list[dist.Work]()
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        self._plain = dist.ProcessGroup(rank, size)  # type: ignore[call-arg]
        # Names and timeouts: the base class finds them here.
        kind = dist.ProcessGroup.BackendType.GLOO
        for group in (self, self._plain):
            group._register_backend(torch.device("cpu"), kind, self._gloo)
            group._set_default_backend(kind)

    def reduce_and_scatter(
        self,
        outputs: list[Tensor],
        inputs: list[Tensor],
        options: dist.ReduceScatterOptions | None = None,
    ) -> AbortableReduceScatter:
        """Reduce tensors over all ranks; each keeps its part of the first dimension.

        Args:
            outputs: receive the parts.
            inputs: as many tensors, each as long as all its parts.
            options: None: a sum.
        """
        of_all = dist.AllreduceOptions()
        if options is not None:
            of_all.reduceOp, of_all.timeout = options.reduceOp, options.timeout
        whole = [one.detach().clone(memory_format=torch.contiguous_format) for one in inputs]
        start = self._gloo.allreduce  # type: ignore[attr-defined]
        reduced = [AbortableWork(start([one], of_all), self) for one in whole]
        parts = [one.view(-1).chunk(self.size())[self.rank()] for one in whole]
        return AbortableReduceScatter(reduced, outputs, parts)

    @property
    def collective_timeout(self) -> timedelta:
        """How long an operation waits; in a group of the script's own as in the default one."""
        default = dist.group.WORLD
        if isinstance(default, AbortableGloo) and default is not self:
            return default.collective_timeout
        timeout: timedelta = self._gloo.options._timeout
        return timeout

    def issued(self, work: dist.Work) -> None:
        """Remember a collective until it has ended, whether or not anybody waits for it."""
        if len(self._unfinished) >= _MOST_UNFINISHED:
            self._unfinished = [one for one in self._unfinished if not one.is_completed()]
        self._unfinished.append(work)

    def transfer(self, work: dist.Work) -> AbortableTransfer:
        """A send or receive of this group, which can be aborted."""
        return AbortableTransfer(work, self._waiters, lambda: self.collective_timeout, self.over)

    def detach(self) -> None:
        """Release gloo without waiting for operations that have not ended; call it at the end."""
        self._waiters.close()
        unfinished = [work for work in self._unfinished if not work.is_completed()]
        self._unfinished.clear()
        if not unfinished:
            return
        # gloo's destructor waits for all operations, also for those that nobody has waited for (an
        # all-gather ahead of its layer): another thread holds it until they are over.
        threading.Thread(
            target=_outlast, args=(self._gloo, unfinished), name="ettr-abandoned", daemon=True
        ).start()


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


def _abortable(of: str, name: str) -> Callable[..., AbortableWork]:
    def call(self: AbortableGloo, *args: object, **options: object) -> AbortableWork:
        return AbortableWork(getattr(getattr(self, of), name)(*args, **options), self)

    return call


def _transfer(name: str) -> Callable[..., AbortableTransfer]:
    def call(self: AbortableGloo, *args: object, **options: object) -> AbortableTransfer:
        return self.transfer(getattr(self._gloo, name)(*args, **options))

    return call


def _reduce_scatter_one(
    self: AbortableGloo,
    output: Tensor,
    whole: Tensor,
    options: dist.ReduceScatterOptions | None = None,
) -> AbortableReduceScatter:
    return self.reduce_and_scatter([output], [whole], options)


def _reduce_scatter_lists(
    self: AbortableGloo,
    outputs: list[Tensor],
    inputs: list[list[Tensor]],
    options: dist.ReduceScatterOptions | None = None,
) -> AbortableReduceScatter:
    return self.reduce_and_scatter(outputs, [torch.stack(parts) for parts in inputs], options)


_REDUCE_SCATTERS = {
    "reduce_scatter": _reduce_scatter_lists,
    "_reduce_scatter_base": _reduce_scatter_one,
    "reduce_scatter_single": _reduce_scatter_one,
    "reduce_scatter_tensor_coalesced": AbortableGloo.reduce_and_scatter,
    "reduce_scatter_single_coalesced": AbortableGloo.reduce_and_scatter,
}

for _name, _gloo_name in _COLLECTIVES.items():
    setattr(AbortableGloo, _name, _abortable("_gloo", _gloo_name))
for _name in _OF_TENSORS:
    if hasattr(dist.ProcessGroup, _name):
        setattr(AbortableGloo, _name, _abortable("_plain", _name))
for _name, _reduce_scatter in _REDUCE_SCATTERS.items():
    setattr(AbortableGloo, _name, _reduce_scatter)
for _name in ("send", "recv", "recv_anysource"):
    setattr(AbortableGloo, _name, _transfer(_name))
