"""torch's default process group: form it, bound its waits, destroy it."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ettr.errors import UsageError

# more than a generation ever makes
_NUMBERS_A_GENERATION = 1 << 20


def form(
    generation: int,
    store: Store,
    slot: int,
    world: int,
    timeouts: Timeouts,
    *,
    over: Callable[[], bool],
) -> None:
    """Initialise the default group with the ranks that meet in a store.

    Meshes that are created afterwards are of this generation (`distinguish_meshes`).

    Args:
        over: whether the generation is over; waits for collectives then end, where gloo is the
            only backend.
    """
    name, options = backend(), None
    if name == "gloo":
        from ettr.elastic import abortable_gloo

        name, options = abortable_gloo.register(), over
    # named alike on all ranks, and unlike any group before
    distributed_c10d._world.group_count = generation * _NUMBERS_A_GENERATION
    distinguish_meshes(generation)
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


def destroy() -> None:
    """Destroy all groups of this process, without waiting for operations that were abandoned."""
    from ettr.elastic.abortable_gloo import AbortableGloo

    for group in list(distributed_c10d._world.pg_map):
        if isinstance(group, AbortableGloo):
            group.detach()
    with suppress(Exception):
        dist.destroy_process_group()
    take_groups_from_meshes()


def device() -> str:
    """`cuda` where there is one, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def backend() -> str:
    """gloo, together with NCCL where there is a GPU."""
    return "cpu:gloo,cuda:nccl" if device() == "cuda" else "gloo"


def make_nccl_abort() -> Callable[[], None] | None:
    """Callback that aborts pending NCCL collectives.

    None where there is no GPU: shutting the sockets down is enough for gloo.
    """
    if device() != "cuda":
        return None

    def abort() -> None:

        with suppress(Exception):
            distributed_c10d._abort_process_group()

    return abort


def warm_up() -> None:
    """Import and build in advance what the first step would, so that a spare is ready."""
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.nn.functional  # before there is a group: its defaults would keep it

    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    torch.optim.AdamW([parameter]).step()


def rehearse() -> None:
    """Make a first step alone, then keep what is loaded out of the garbage collector's sight.

    torch loads and builds much at its first sharded step only; a spare does it before it is
    needed. A survivor collects garbage between two generations, which takes as long as there are
    objects: with torch's own 0.15 s of a core, without them a hundredth of that.
    """
    if device() == "cpu":  # NCCL is set up by the first collective on the device, and not before
        _step_alone()
    gc.collect()
    gc.freeze()


def _step_alone() -> None:
    from torch.distributed.fsdp import fully_shard

    with torch.random.fork_rng(devices=[]):
        form(0, HashStore(), 0, 1, Timeouts(), over=lambda: False)
        try:
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
            fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.ones(1, 2)).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        finally:
            destroy()


def _bound_collectives(wait: timedelta) -> None:
    if hasattr(dist, "set_timeout"):  # torch 2.15; it warns of the older name
        dist.set_timeout(wait)
    else:
        dist.distributed_c10d._set_pg_timeout(wait)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each must exceed the one before it, so that a waiting rank never gives up first.

    Attributes:
        collective_s: A collective without an answer fails after this time (a hang that no
            heartbeat shows).
        regroup_s: A rank whose collective failed waits this long for the supervisor to notice why.
        rendezvous_s: The ranks of a new generation wait this long for each other; a replacement
            that is not warm imports torch in the meantime.
    """

    collective_s: float = 60.0
    regroup_s: float = 90.0
    rendezvous_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the order. Raises UsageError: they do not ascend."""
        if not 0 < self.collective_s < self.regroup_s < self.rendezvous_s:
            raise UsageError(
                f"timeouts of {self.collective_s} s for a collective, {self.regroup_s} s to "
                f"regroup, {self.rendezvous_s} s to meet: give them ascending, above 0"
            )


def distinguish_meshes(generation: int) -> None:
    """Make every mesh that is created from now on unequal to those of other generations.

    Meshes that are made of it (slices, flattened ones) are distinguished too.
    """
    current = DeviceMesh.__init__
    original = getattr(current, "_ettr_original", current)
    created: list[weakref.ref[DeviceMesh]] = []

    @functools.wraps(original)
    def init(self: DeviceMesh, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if self._thread_id is None:
            self._thread_id = generation
        created.append(weakref.ref(self))

    init._ettr_original = original  # type: ignore[attr-defined]
    init._ettr_created = created  # type: ignore[attr-defined]
    DeviceMesh.__init__ = init  # type: ignore[method-assign]


def take_groups_from_meshes() -> None:
    """Make the meshes of this generation hold none of their groups any more."""
    for reference in getattr(DeviceMesh.__init__, "_ettr_created", ()):
        mesh = reference()
        groups = getattr(mesh, "_pg_registry", None)  # earlier versions of torch keep names alone
        if groups:
            groups.clear()
