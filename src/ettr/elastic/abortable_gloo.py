"""A gloo group whose collectives can be aborted: a wait ends with the generation.

When a connection breaks, gloo reports it to all pending operations except the one whose bytes were
under way; whoever waits for that one waits for the whole timeout, and no call ends the wait
(`docs/how-to/regroup-after-a-loss.md`). So here nobody waits in gloo for long: `wait` checks the
generation again and again, and abandons the operation once the generation is over. A background
thread holds what gloo still keeps of it until gloo's own timeout has passed.

Every operation is started without Python's lock. DTensor's own collectives (`full_tensor`, the norm
of clipping) would start gloo's with it held, and wait there for a mutex under which gloo's thread
releases the tensors of the operation before, for which it needs Python's lock: neither goes on.
Seen with torch 2.13, where gloo ran inside this group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch._C._distributed_c10d import AllgatherOptions, Store, _DistributedBackendOptions
    from torch.futures import Future


_POLL_S = 0.05
_POLL = timedelta(seconds=_POLL_S)


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
            # once: the caller may change outputs afterwards
            copies, self._copies = self._copies, []
            for to, brought in copies:
                to.copy_(brought.view_as(to))


class GenerationOverError(RuntimeError):
    """An operation was abandoned because its generation is over."""


class AbortableTransfer(dist.Work):
    """A send or a receive whose wait also ends with the generation: a thread waits in gloo."""

    def __init__(
        self, inner: dist.Work, limit: Callable[[], timedelta], over: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._inner, self._limit, self._over = inner, limit, over
        self._thread: threading.Thread | None = None
        self._error: RuntimeError | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the transfer."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._wait_in_gloo, name="ettr-transfer", daemon=True
            )
            self._thread.start()
        limit = timeout or self._limit()
        end_s = time.monotonic() + limit.total_seconds()
        while not self.is_completed():
            self._thread.join(_POLL_S)
            if self._over() and not self.is_completed():
                raise GenerationOverError("a rank was lost during a send or receive")
            if time.monotonic() > end_s and not self.is_completed():
                raise RuntimeError(f"a send or receive has not ended within {limit}")
        if self._error is not None:
            raise RuntimeError(str(self._error)) from self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, as far as somebody has waited for it: gloo knows no more."""
        return self._thread is not None and not self._thread.is_alive()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> RuntimeError | None:
        """Why it failed."""
        return self._error

    def source_rank(self) -> int:
        """Who has sent what was received from any rank."""
        return int(self._inner._source_rank())

    _source_rank = source_rank

    def _wait_in_gloo(self) -> None:
        try:
            self._inner.wait()
        except RuntimeError as error:
            self._error = error


# -- All-gathers and gathers of which gloo frees nothing that it still sends ----------------------
#
# torch's own use a tensor that they free when a connection breaks, before they let gloo go,
# whose thread may be sending from it to another survivor just then. That process ends with
# "writev: Bad address" (torch 2.13; 1 of 120 kills within gathers of 32 MB). A broadcast and an
# all-to-all work on tensors that the operation holds until gloo is done. So here an all-gather
# is a broadcast of each rank, straight into the outputs, or one all-to-all if it is small; and a
# gather is an all-to-all in which only the root receives. The bytes of the tensors travel, so
# that every type does.

# Up to here one operation is faster than one of each rank.
_SMALL_BYTES = 1 << 16

_Copy = tuple[Tensor, Tensor]  # to, from

OptionsT = TypeVar("OptionsT", dist.AllToAllOptions, dist.BroadcastOptions)


def all_gather(
    group: AbortableGloo, output: Tensor, part: Tensor, options: AllgatherOptions | None = None
) -> ComposedWork:
    """Gather the parts of all ranks in one tensor."""
    return all_gather_coalesced(group, [output], [part], options)


def all_gather_coalesced(
    group: AbortableGloo,
    outputs: list[Tensor],
    parts: list[Tensor],
    options: AllgatherOptions | None = None,
) -> ComposedWork:
    """As many all-gathers as there are outputs."""
    works, copies = list[dist.Work](), list[_Copy]()
    for output, part in zip(outputs, parts, strict=True):
        _require(output, part, group.size())
        whole, at_last = _contiguous(output)
        places = list(whole.view(group.size(), part.numel()))
        works += _all_gather(group, places, part, options, copies)
        copies += at_last
    return ComposedWork(works, outputs, copies)


def all_gather_lists(
    group: AbortableGloo,
    outputs: list[list[Tensor]],
    parts: list[Tensor],
    options: AllgatherOptions | None = None,
) -> ComposedWork:
    """Gather the one part of each rank in a list of tensors."""
    if len(parts) != 1 or len(outputs) != 1:
        raise ValueError(
            f"{len(parts)} inputs and {len(outputs)} lists of outputs; give one of each"
        )
    return all_gather_lists_coalesced(group, [[one] for one in outputs[0]], parts, options)


def all_gather_lists_coalesced(
    group: AbortableGloo,
    outputs: list[list[Tensor]],
    parts: list[Tensor],
    options: AllgatherOptions | None = None,
) -> ComposedWork:
    """Gather several parts of each rank."""
    _require_one_each(group, len(outputs))
    works, copies = list[dist.Work](), list[_Copy]()
    for part, *of_part in zip(parts, *outputs, strict=True):
        for output in of_part:
            _require(output, part, 1)
        works += _all_gather(group, of_part, part, options, copies)
    return ComposedWork(works, [one for of_rank in outputs for one in of_rank], copies)


def gather(
    group: AbortableGloo,
    outputs: list[list[Tensor]],
    parts: list[Tensor],
    options: dist.GatherOptions,
) -> ComposedWork:
    """Gather the part of each rank at one of them."""
    (part,) = parts
    sent, nothing = _bytes_of(part.contiguous()), [0] * group.size()
    sent_counts = list(nothing)
    sent_counts[options.rootRank] = sent.numel()
    at_root = group.rank() == options.rootRank
    gathered = outputs[0] if at_root else []
    if at_root:
        _require_one_each(group, len(gathered))
        for output in gathered:
            _require(output, part, 1)
    received = torch.empty(len(gathered) * sent.numel(), dtype=torch.uint8)
    of_ranks = received.view(part.dtype).view(len(gathered), part.numel())
    received_counts = [sent.numel()] * group.size() if at_root else nothing
    work = group.alltoall_base(
        received, sent, received_counts, sent_counts, _to_all(options.timeout)
    )
    return ComposedWork([work], gathered, list(zip(gathered, of_ranks, strict=True)))


# As torch calls them on a group; the two `all_gather_single` are newer names.
BY_NAME: dict[str, Callable[..., Any]] = {
    "_allgather_base": all_gather,
    "all_gather_single": all_gather,
    "all_gather_single_coalesced": all_gather_coalesced,
    "allgather_into_tensor_coalesced": all_gather_coalesced,
    "allgather": all_gather_lists,
    "allgather_coalesced": all_gather_lists_coalesced,
    "gather": gather,
}


def _all_gather(
    group: AbortableGloo,
    places: Sequence[Tensor],
    part: Tensor,
    options: AllgatherOptions | None,
    copies: list[_Copy],
) -> list[dist.Work]:
    """Begin to bring the part of each rank to its place; adds what is to be copied at the end."""
    sent = _bytes_of(part.contiguous())
    timeout = None if options is None else options.timeout
    if sent.numel() <= _SMALL_BYTES:  # on all ranks alike
        received = torch.empty(group.size() * sent.numel(), dtype=torch.uint8)
        of_ranks = received.view(part.dtype).view(group.size(), part.numel())
        copies += zip(places, of_ranks, strict=True)
        return [group.alltoall_base(received, sent.repeat(group.size()), [], [], _to_all(timeout))]
    works = list[dist.Work]()
    for rank, place in enumerate(places):
        direct, at_last = _contiguous(place)
        if rank == group.rank():
            direct.copy_(part.detach().reshape(direct.shape))
        works.append(group.broadcast([_bytes_of(direct)], _from_rank(rank, timeout)))
        copies += at_last
    return works


def _to_all(timeout: timedelta | None) -> dist.AllToAllOptions:
    return _within(dist.AllToAllOptions(), timeout)


def _from_rank(rank: int, timeout: timedelta | None) -> dist.BroadcastOptions:
    options = _within(dist.BroadcastOptions(), timeout)
    options.rootRank, options.rootTensor = rank, 0
    return options


def _within(options: OptionsT, timeout: timedelta | None) -> OptionsT:
    """Options of an operation that waits as long as its caller allows; None: as the group does."""
    if timeout is not None:
        options.timeout = timeout
    return options


def _contiguous(output: Tensor) -> tuple[Tensor, list[_Copy]]:
    """The output, or a contiguous tensor that is to be copied to it."""
    if output.is_contiguous():
        return output.detach(), []
    brought = torch.empty(output.shape, dtype=output.dtype)
    return brought, [(output, brought)]


def _bytes_of(contiguous: Tensor) -> Tensor:
    return contiguous.detach().as_strided((contiguous.numel(),), (1,)).view(torch.uint8)


def _require(output: Tensor, part: Tensor, n_parts: int) -> None:
    if output.dtype != part.dtype or output.numel() != n_parts * part.numel():
        raise ValueError(
            f"{n_parts} part(s) of {part.numel()} {part.dtype} do not fit an output of "
            f"{output.numel()} {output.dtype}"
        )


def _require_one_each(group: AbortableGloo, n_outputs: int) -> None:
    if n_outputs != group.size():
        raise ValueError(f"{n_outputs} outputs for {group.size()} ranks; give one for each")


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
        self.over = over
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
        reduced = list[dist.Work](AbortableWork(start([one], of_all), self) for one in whole)
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
        return AbortableTransfer(work, lambda: self.collective_timeout, self.over)

    def detach(self) -> None:
        """Release gloo without waiting for operations that have not ended; call it at the end."""
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
for _name, _composed in (_REDUCE_SCATTERS | BY_NAME).items():
    setattr(AbortableGloo, _name, _composed)
for _name in ("send", "recv", "recv_anysource"):
    setattr(AbortableGloo, _name, _transfer(_name))
