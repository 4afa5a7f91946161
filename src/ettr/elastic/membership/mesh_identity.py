"""Keep the meshes of one generation unequal to those of another.

Device meshes are equal by value, and DTensor caches by mesh what it has worked out for an operator:
the layouts, and with them the mesh object and the names of its process groups. A mesh of the next
generation that is equal to one before would find the groups that were destroyed ("Could not resolve
the process group registered under the name ..."): in gradient clipping, in `full_tensor`, in tensor
parallelism. The caches are several and some belong to a thread, so they cannot all be cleared.
Instead every mesh that is created during a generation, by whomever, carries its number where torch
keeps what distinguishes the meshes of different threads.

The caches keep such a mesh for as long as the process lives, and a mesh keeps its groups. When its
generation ends they are taken from it, or each generation would leave threads and sockets behind.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any


def distinguish_meshes(generation: int) -> None:
    """Make every mesh that is created from now on unequal to those of other generations.

    Meshes that are made of it (slices, flattened ones) are distinguished too.
    """
    from torch.distributed.device_mesh import DeviceMesh

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
    from torch.distributed.device_mesh import DeviceMesh

    for reference in getattr(DeviceMesh.__init__, "_ettr_created", ()):
        mesh = reference()
        groups = getattr(mesh, "_pg_registry", None)  # earlier versions of torch keep names alone
        if groups:
            groups.clear()
