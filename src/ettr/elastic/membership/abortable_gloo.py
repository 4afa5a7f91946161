"""A gloo group whose collectives can be aborted: a wait ends with the generation.

When a connection breaks, gloo reports it to all pending operations except the one whose bytes were
under way; whoever waits for that one waits for the whole timeout, and no call ends the wait
(`docs/how-to/regroup-after-a-loss.md`). So here nobody waits in gloo for long: `wait` checks the
generation again and again, and abandons the operation once the generation is over. A background
thread holds what gloo still keeps of it until gloo's own timeout has passed. Sends and receives are
in `abortable_transfer.py`, all-gathers in `gathers.py`.

Every operation is started without Python's lock. DTensor's own collectives (`full_tensor`, the norm
of clipping) would start gloo's with it held, and wait there for a mutex under which gloo's thread
releases the tensors of the operation before, for which it needs Python's lock: neither goes on.
Seen with torch 2.13, where gloo ran inside this group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.elastic.membership import gathers
from ettr.elastic.membership.abortable_work import (
    AbortableTransfer,
    AbortableWork,
    ComposedWork,
    TransferWaiters,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store, _DistributedBackendOptions

NAME = "ettr_gloo"
# So many operations are remembered at least before those that have ended are forgotten.
_LEAST_REMEMBERED = 64

# gloo's own, under the names by which torch calls them on a group.
_COLLECTIVES = (
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "reduce",
    "scatter",
)


class AbortableGloo(dist.ProcessGroup):
    """A process group over gloo whose collectives, sends and receives can be aborted."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, over: Callable[[], bool]
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.over, self._waiters = over, TransferWaiters()
        self._unfinished, self._n_remembered = dict[int, dist.Work](), _LEAST_REMEMBERED
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        # Names and timeouts: the base class finds them here.
        kind = dist.ProcessGroup.BackendType.GLOO
        self._register_backend(torch.device("cpu"), kind, self._gloo)
        self._set_default_backend(kind)

    def reduce_and_scatter(
        self,
        outputs: list[Tensor],
        inputs: list[Tensor],
        options: dist.ReduceScatterOptions | None = None,
    ) -> ComposedWork:
        """Reduce tensors over all ranks; each keeps its part of the first dimension."""
        of_all = dist.AllreduceOptions()
        if options is not None:
            of_all.reduceOp, of_all.timeout = options.reduceOp, options.timeout
        whole = [one.detach().clone(memory_format=torch.contiguous_format) for one in inputs]
        start = self._gloo.allreduce  # type: ignore[attr-defined]
        reduced = [AbortableWork(start([one], of_all), self) for one in whole]
        parts = [one.view(-1).chunk(self.size())[self.rank()] for one in whole]
        return ComposedWork(reduced, outputs, list(zip(outputs, parts, strict=True)))

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
        if len(self._unfinished) >= self._n_remembered:
            for one in list(self._unfinished.values()):  # another thread may issue one meanwhile
                if one.is_completed():
                    self.ended(one)
            self._n_remembered = max(_LEAST_REMEMBERED, 2 * len(self._unfinished))
        self._unfinished[id(work)] = work

    def ended(self, work: dist.Work) -> None:
        """Forget a collective, and with it the tensors that it holds."""
        self._unfinished.pop(id(work), None)

    def transfer(self, work: dist.Work) -> AbortableTransfer:
        """A send or receive of this group, which can be aborted."""
        return AbortableTransfer(work, self._waiters, lambda: self.collective_timeout, self.over)

    def detach(self) -> None:
        """Release gloo without waiting for operations that have not ended; call it at the end."""
        self._waiters.close()
        unfinished = [one for one in list(self._unfinished.values()) if not one.is_completed()]
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


def _abortable(name: str) -> Callable[..., AbortableWork]:
    def call(self: AbortableGloo, *args: object, **options: object) -> AbortableWork:
        return AbortableWork(getattr(self._gloo, name)(*args, **options), self)

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
) -> ComposedWork:
    return self.reduce_and_scatter([output], [whole], options)


def _reduce_scatter_lists(
    self: AbortableGloo,
    outputs: list[Tensor],
    inputs: list[list[Tensor]],
    options: dist.ReduceScatterOptions | None = None,
) -> ComposedWork:
    return self.reduce_and_scatter(outputs, [torch.stack(parts) for parts in inputs], options)


_REDUCE_SCATTERS = {
    "reduce_scatter": _reduce_scatter_lists,
    "_reduce_scatter_base": _reduce_scatter_one,
    "reduce_scatter_single": _reduce_scatter_one,
    "reduce_scatter_tensor_coalesced": AbortableGloo.reduce_and_scatter,
    "reduce_scatter_single_coalesced": AbortableGloo.reduce_and_scatter,
}

for _name in _COLLECTIVES:
    setattr(AbortableGloo, _name, _abortable(_name))
for _name, _composed in (_REDUCE_SCATTERS | gathers.BY_NAME).items():
    setattr(AbortableGloo, _name, _composed)
for _name in ("send", "recv", "recv_anysource"):
    setattr(AbortableGloo, _name, _transfer(_name))
