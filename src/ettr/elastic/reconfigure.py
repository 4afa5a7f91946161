"""Change the members of torch's own group instead of forming a new one (torch 2.14 and later).

The group of a survivor stays the same object, and so does every reference to it; the ranks of a
generation exchange handles through the store and connect anew. What torch does not do here stays
ettr's: to end the wait of a rank that no message reaches (the watcher cuts its sockets), and to
build the model again, since FSDP2 that was broken off within a step does not go on.

All of torch's names that this needs are experimental there and used in this module alone.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ettr.elastic import groups
from ettr.elastic.groups import Regroup, Timeouts
from ettr.elastic.sockets import open_sockets, sever
from ettr.errors import UsageError

_NAMES = ("_get_reconfigure_handle", "_reconfigure", "_supports_reconfigure")
_FLAG = "enable_reconfigure"
# All ranks have said that they are there before any connects: none has to wait for an import.
_CONNECT_S = 15.0


def missing() -> tuple[str, ...]:
    """Names that this needs and the installed torch does not have; empty where it can be used."""
    import torch.distributed as dist

    lacking = tuple(f"torch.distributed.{name}" for name in _NAMES if not hasattr(dist, name))
    if _FLAG not in inspect.signature(dist.init_process_group).parameters:
        lacking += (f"init_process_group({_FLAG}=)",)
    return lacking


def require() -> None:
    """Refuse to go on where reconfigure cannot be used.

    Raises:
        UsageError: the installed torch has no reconfigure, or the group is not gloo alone.
    """
    import torch

    lacking = missing()
    if lacking:
        raise UsageError(
            f'regroup="reconfigure" was given and torch {torch.__version__} has no '
            f"{', '.join(lacking)}; install torch 2.14 or later, or leave regroup at "
            f'"{Regroup.REINIT}", which does the same through a new group'
        )
    if groups.backend() != "gloo":
        raise UsageError(
            f'regroup="reconfigure" was given and the group is {groups.backend()}; torch changes '
            f'the members of a group with one backend only: use regroup="{Regroup.REINIT}" here'
        )


class Reconfiguring:
    """The default group of this process over all generations.

    A generation forms it in two votes through its own store: every rank says its handle (or that it
    has none), and then whether the change went well. Unless all say yes to both, all form a new
    group as `groups.Reinit` does, and do so from then on.

    Args:
        store: a connection to the supervisor's store that stays open over all generations: torch
            keeps it in the group. (Those of a generation are cut with it.)

    Raises:
        UsageError: this torch cannot.
    """

    def __init__(self, store: Any, timeouts: Timeouts) -> None:
        require()
        self._store, self._timeouts = groups.prefixed("reconfigure", store), timeouts
        self._given_up: str | None = None
        self._kept: frozenset[str] | None = None

    @property
    def given_up(self) -> str | None:
        """Why this process forms new groups after all; None: it does not."""
        return self._given_up

    def form(self, generation: int, slot: int, world: int, store: Any) -> Regroup:
        """Bring the default group to a generation's members; returns how it was done.

        Args:
            store: of this generation alone.

        Raises:
            RuntimeError: a rank was lost meanwhile.
        """
        # What is open before the ranks connect stays open when the group is let go.
        self._kept = frozenset(open_sockets())
        handles = _all_say(store, "handle", slot, world, self._handle(slot, world))
        failed = None if all(handles) else "a rank has no group that could be changed"
        if failed is None:
            failed = self._change(generation, handles)
            said = _all_say(store, "changed", slot, world, "" if failed else "yes")
            if all(said):
                groups.count_groups_from(generation)
                return Regroup.RECONFIGURE
            failed = failed or "the change failed on another rank"
        self._given_up = failed
        groups.destroy()
        groups.form(generation, groups.prefixed("anew", store), slot, world, self._timeouts)
        return Regroup.REINIT

    def release(self, again: bool) -> None:
        """A generation is over: cut its connections; end the group itself unless it goes on."""
        if self._given_up is not None or not again:
            groups.destroy()
            return
        # A new group would close them, by which the others learn that this rank has left.
        if self._kept is not None:
            sever(self._kept)
        _destroy_all_but_default()

    def _handle(self, slot: int, world: int) -> str:
        import torch.distributed as dist

        if self._given_up is not None:
            return ""
        try:
            if not dist.is_initialized():
                dist.init_process_group(
                    groups.backend(),
                    store=self._store,
                    rank=slot,
                    world_size=world,
                    timeout=timedelta(seconds=self._timeouts.collective_s),
                    **{_FLAG: True},  # type: ignore[arg-type]
                )
            return str(dist._get_reconfigure_handle())  # type: ignore[attr-defined]
        except RuntimeError:
            return ""

    def _change(self, generation: int, handles: list[str]) -> str | None:
        """None where the group has its new members; else what torch said."""
        import torch.distributed as dist

        wait = timedelta(seconds=min(_CONNECT_S, self._timeouts.collective_s))
        try:
            # The generation names the change: torch refuses one that was used before.
            dist._reconfigure(generation, handles, timeout=wait).wait()  # type: ignore[attr-defined]
        except RuntimeError as error:
            return str(error)
        return None


def _all_say(store: Any, what: str, slot: int, world: int, word: str) -> list[str]:
    """What each rank says, in the order of the slots."""
    store.set(f"regroup/{what}/{slot}", word)
    return [store.get(f"regroup/{what}/{other}").decode() for other in range(world)]


def _destroy_all_but_default() -> None:
    """End the groups that a generation made of its own: torch changes none but the default."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for group in list(distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            with suppress(Exception):
                dist.destroy_process_group(group)
