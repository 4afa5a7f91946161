"""Which node a slot's worker runs on, and how far away its buddy is. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ettr.elastic.membership.rendezvous import Cause, Membership

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one rank."""

    node: str
    local_rank: int


@dataclass(frozen=True, slots=True)
class UnplacedSlots:
    """Lost slots without a place yet, and what is known of the loss."""

    slots: Mapping[int, str] = field(default_factory=dict)
    cause: Cause = Cause.DIED
    noticed_s: float = 0.0
    hung_s: float = 0.0
    since_s: float = 0.0

    def merged(
        self, lost: Mapping[int, str], cause: Cause, noticed_s: float, hung_s: float, now_s: float
    ) -> UnplacedSlots:
        """These and further ones: the first loss counts, since all ranks have stood since then."""
        if not self.slots:
            return UnplacedSlots(lost, cause, noticed_s, hung_s, now_s)
        return replace(self, slots={**self.slots, **lost})


def buddy_stride(racks: Sequence[str], ranks_per_node: int) -> tuple[int, bool]:
    """Slots from a rank to its buddy, and whether that always lies outside the rank's rack.

    Slots fill the nodes one after another, so a stride of whole nodes puts every buddy on another
    node. The smallest that leaves every rack is chosen; where none does, the next node.
    """
    n_nodes = len(racks)
    if n_nodes == 1:
        return 1, False
    for distance in range(1, n_nodes):
        if all(rack != racks[(i + distance) % n_nodes] for i, rack in enumerate(racks)):
            return distance * ranks_per_node, True
    return ranks_per_node, False


def free_places(capacity: Mapping[str, int], taken: Iterable[Place]) -> dict[str, list[int]]:
    """Free places of each node, lowest first."""
    occupied = set(taken)
    return {
        node: [rank for rank in range(n_ranks) if Place(node, rank) not in occupied]
        for node, n_ranks in capacity.items()
    }


def choose_node(
    free: Mapping[str, Sequence[int]],
    warm: Mapping[str, int],
    *,
    before: str,
    avoid: Collection[str],
) -> str | None:
    """The node for the worker of a lost slot; None: no node has room.

    First the node that the slot was on, since its other ranks stay neighbours. Then a node that
    keeps slot and buddy apart, has a warm process, and has the most room.
    """
    candidates = [node for node, places in free.items() if places]
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda node: (
            node != before,
            node in avoid,
            warm.get(node, 0) == 0,
            -len(free[node]),
            node,
        ),
    )


def first_membership(
    membership: Membership, nodes: Sequence[str], racks: Sequence[str], ranks_per_node: int
) -> tuple[Membership, bool]:
    """The slots of a run on its nodes, and whether every buddy is in another rack."""
    # the nodes of one rack in a row, so that a stride of whole racks leaves it
    order = sorted(range(len(nodes)), key=lambda i: racks.index(racks[i]))
    stride, apart = buddy_stride([racks[i] for i in order], ranks_per_node)
    placed = replace(
        membership,
        nodes=tuple(nodes[i] for i in order for _ in range(ranks_per_node)),
        local_ranks=tuple(range(ranks_per_node)) * len(nodes),
        buddy_stride=stride,
    )
    return placed, apart


def place_lost(
    membership: Membership,
    lost: Collection[int],
    capacity: Mapping[str, int],
    warm: Mapping[str, int],
) -> dict[int, Place] | None:
    """A place for each lost slot; None: there is not room for all."""
    world, stride = membership.world, membership.buddy_stride
    nodes = list(membership.nodes) or [next(iter(capacity))] * world
    local_ranks = membership.local_ranks or tuple(range(world))
    kept = [Place(nodes[slot], local_ranks[slot]) for slot in range(world) if slot not in lost]
    free, waiting = free_places(capacity, kept), dict(warm)
    places: dict[int, Place] = {}
    for slot in sorted(lost):
        buddies = ((slot + stride) % world, (slot - stride) % world)
        avoid = {nodes[buddy] for buddy in buddies if buddy not in lost or buddy in places}
        node = choose_node(free, waiting, before=nodes[slot], avoid=avoid)
        if node is None:
            return None
        places[slot], nodes[slot] = Place(node, free[node].pop(0)), node
        waiting[node] = waiting.get(node, 0) - 1
    return places


def next_membership(
    before: Membership,
    pending: UnplacedSlots,
    workers: Mapping[int, str],
    places: Mapping[int, Place],
) -> Membership:
    """The generation after a loss."""
    nodes = {slot: place.node for slot, place in places.items()}
    local_ranks = {slot: place.local_rank for slot, place in places.items()}
    return replace(
        before,
        generation=before.generation + 1,
        workers=_with_items(before.workers, workers),
        nodes=_with_items(before.nodes, nodes),
        local_ranks=_with_items(before.local_ranks, local_ranks),
        lost=tuple(sorted(pending.slots)),
        cause=pending.cause,
        noticed_s=pending.noticed_s,
        hung_s=pending.hung_s,
    )


def sharing_a_node(nodes: Sequence[str], stride: int) -> list[int]:
    """Slots whose buddy runs on the same node: the loss of that node loses both copies."""
    world = len(nodes)
    return [slot for slot in range(world) if nodes[slot] == nodes[(slot + stride) % world]]


def _with_items(values: tuple[ValueT, ...], changed: Mapping[int, ValueT]) -> tuple[ValueT, ...]:
    """The values, some of them replaced; empty stays empty."""
    return tuple(changed.get(index, value) for index, value in enumerate(values))
