"""All-gathers and gathers of which gloo frees nothing that it still sends.

torch's own use a tensor that they free when a connection breaks, before they let gloo go, whose
thread may be sending from it to another survivor just then. That process ends with "writev: Bad
address" (torch 2.13; 1 of 120 kills within gathers of 32 MB). A broadcast and an all-to-all work on
tensors that the operation holds until gloo is done. So here an all-gather is a broadcast of each
rank, straight into the outputs, or one all-to-all if it is small; and a gather is an all-to-all in
which only the root receives. The bytes of the tensors travel, so that every type does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ettr.elastic.membership.abortable_work import AbortableWork, ComposedWork

if TYPE_CHECKING:
    from torch._C._distributed_c10d import AllgatherOptions


# Up to here one operation is faster than one of each rank.
_SMALL_BYTES = 1 << 16

_Copy = tuple[Tensor, Tensor]  # to, from

OptionsT = TypeVar("OptionsT", dist.AllToAllOptions, dist.BroadcastOptions)


class CollectiveGroup(Protocol):
    """What is asked of a group of ranks."""

    def rank(self) -> int:
        """This rank."""

    def size(self) -> int:
        """Ranks."""

    def broadcast(self, tensors: list[Tensor], options: dist.BroadcastOptions) -> AbortableWork:
        """Begin a broadcast."""

    def alltoall_base(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: list[int],
        sent_counts: list[int],
        options: dist.AllToAllOptions,
    ) -> AbortableWork:
        """Begin an all-to-all."""


def all_gather(
    group: CollectiveGroup, output: Tensor, part: Tensor, options: AllgatherOptions | None = None
) -> ComposedWork:
    """Gather the parts of all ranks in one tensor."""
    return all_gather_coalesced(group, [output], [part], options)


def all_gather_coalesced(
    group: CollectiveGroup,
    outputs: list[Tensor],
    parts: list[Tensor],
    options: AllgatherOptions | None = None,
) -> ComposedWork:
    """As many all-gathers as there are outputs."""
    works, copies = list[AbortableWork](), list[_Copy]()
    for output, part in zip(outputs, parts, strict=True):
        _require(output, part, group.size())
        whole, at_last = _contiguous(output)
        places = list(whole.view(group.size(), part.numel()))
        works += _all_gather(group, places, part, options, copies)
        copies += at_last
    return ComposedWork(works, outputs, copies)


def all_gather_lists(
    group: CollectiveGroup,
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
    group: CollectiveGroup,
    outputs: list[list[Tensor]],
    parts: list[Tensor],
    options: AllgatherOptions | None = None,
) -> ComposedWork:
    """Gather several parts of each rank.

    Args:
        outputs: for each rank a list with an output for each part.
    """
    _require_one_each(group, len(outputs))
    works, copies = list[AbortableWork](), list[_Copy]()
    for part, *of_part in zip(parts, *outputs, strict=True):
        for output in of_part:
            _require(output, part, 1)
        works += _all_gather(group, of_part, part, options, copies)
    return ComposedWork(works, [one for of_rank in outputs for one in of_rank], copies)


def gather(
    group: CollectiveGroup,
    outputs: list[list[Tensor]],
    parts: list[Tensor],
    options: dist.GatherOptions,
) -> ComposedWork:
    """Gather the part of each rank at one of them.

    Args:
        outputs: at the root a list with one for each rank.
    """
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
    group: CollectiveGroup,
    places: Sequence[Tensor],
    part: Tensor,
    options: AllgatherOptions | None,
    copies: list[_Copy],
) -> list[AbortableWork]:
    """Begin to bring the part of each rank to its place; adds what is to be copied at the end."""
    sent = _bytes_of(part.contiguous())
    timeout = None if options is None else options.timeout
    if sent.numel() <= _SMALL_BYTES:  # on all ranks alike
        received = torch.empty(group.size() * sent.numel(), dtype=torch.uint8)
        of_ranks = received.view(part.dtype).view(group.size(), part.numel())
        copies += zip(places, of_ranks, strict=True)
        return [group.alltoall_base(received, sent.repeat(group.size()), [], [], _to_all(timeout))]
    works = list[AbortableWork]()
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


def _require_one_each(group: CollectiveGroup, n_outputs: int) -> None:
    if n_outputs != group.size():
        raise ValueError(f"{n_outputs} outputs for {group.size()} ranks; give one for each")
