"""Process groups of torch: which backend, how long to wait, how to end a wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ettr.errors import EttrError, UsageError

# more than a generation ever makes
_NUMBERS_A_GENERATION = 1 << 20


class RankFailedError(EttrError):
    """Training failed on this rank for a reason of its own, not for a peer's death."""


class EvictedError(EttrError):
    """This process was replaced: its slot belongs to another one now."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each must exceed the one before it, so that a waiting rank never gives up first.

    collective_s: a collective without an answer fails (a hang that no heartbeat shows).
    regroup_s: a rank whose collective failed waits this long for the supervisor to have noticed
    why. rendezvous_s: the ranks of a new generation wait this long for each other; a replacement
    that is not warm imports torch meanwhile.
    """

    collective_s: float = 60.0
    regroup_s: float = 90.0
    rendezvous_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            UsageError: they do not ascend.
        """
        if not 0 < self.collective_s < self.regroup_s < self.rendezvous_s:
            raise UsageError(
                f"timeouts of {self.collective_s} s for a collective, {self.regroup_s} s to "
                f"regroup, {self.rendezvous_s} s to meet: give them ascending, above 0"
            )


def connect(host: str, port: int, wait_s: float) -> Any:
    """A connection of its own to the supervisor's store."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    wait = timedelta(seconds=wait_s)
    return TCPStore(host, port, is_master=False, timeout=wait, wait_for_workers=False)


def wait_for(store: Any, key: str) -> None:
    """Sleep until a store has a key.

    Raises:
        RuntimeError: the store is gone.
    """
    # in one wait, since torch writes a warning whenever one runs out; more days overflow its poll
    store.wait([key], timedelta(days=20))


def prefixed(prefix: str, store: Any) -> Any:
    """The part of a store below a prefix."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    return PrefixStore(prefix, store)


def form(
    generation: int,
    store: Any,
    slot: int,
    world: int,
    timeouts: Timeouts,
    *,
    over: Callable[[], bool],
) -> None:
    """Initialise the default group with the ranks that meet in a store.

    Args:
        over: whether the generation is over; waits for collectives then end, where gloo is the
            only backend.
    """
    import torch.distributed as dist

    name, options = backend(), None
    if name == "gloo":
        from ettr.elastic import abortable_gloo as leaving

        name, options = leaving.register(), over
    count_groups_from(generation)
    dist.init_process_group(
        name,
        pg_options=options,
        store=store,
        rank=slot,
        world_size=world,
        timeout=timedelta(seconds=timeouts.rendezvous_s),
    )
    # Shorter from here on: with one timeout for both, the ranks that wait for the last one to
    # come would give up just as it arrives.
    _bound_collectives(timedelta(seconds=timeouts.collective_s))


def count_groups_from(generation: int) -> None:
    """Name the next groups alike on all ranks, and as no group before was named.

    torch names groups by counting those of the process, also one whose forming was broken off. A
    survivor of that would wait for its peers under a name that no newcomer uses.
    """
    from torch.distributed import distributed_c10d

    distributed_c10d._world.group_count = generation * _NUMBERS_A_GENERATION


def _bound_collectives(wait: timedelta) -> None:
    import torch.distributed as dist

    if hasattr(dist, "set_timeout"):  # torch 2.15; it warns of the older name
        dist.set_timeout(wait)
    else:
        dist.distributed_c10d._set_pg_timeout(wait)


def destroy() -> None:
    """Destroy all groups of this process, without waiting for operations that were left behind."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    from ettr.elastic.abortable_gloo import LeavableGloo

    for group in list(distributed_c10d._world.pg_map):
        if isinstance(group, LeavableGloo):
            group.leave()
    with suppress(Exception):
        dist.destroy_process_group()


def device() -> str:
    """`cuda` where there is one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def backend() -> str:
    """gloo, and NCCL beside it where there is a GPU."""
    return "cpu:gloo,cuda:nccl" if device() == "cuda" else "gloo"


def abort_of_backend() -> Callable[[], None] | None:
    """What ends NCCL's waits, where there is a GPU; gloo's end with their sockets."""
    if device() != "cuda":
        return None

    def abort() -> None:
        from torch.distributed import distributed_c10d

        with suppress(Exception):
            distributed_c10d._abort_process_group()

    return abort


def warm_up() -> None:
    """Import and build what the first step would, so that a spare has it behind it."""
    import torch
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    from torch.distributed.device_mesh import init_device_mesh  # noqa: F401

    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    torch.optim.AdamW([parameter]).step()
