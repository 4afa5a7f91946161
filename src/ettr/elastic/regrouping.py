"""The generations of a run: the first, and one after each loss, its slots placed on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ettr.elastic import rendezvous
from ettr.elastic.nodes import NodePool, Roster, Worker, WorkerState
from ettr.elastic.rendezvous import Cause, Membership

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class Regrouping:
    """Places slots on nodes and publishes generations."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        nodes: NodePool,
        staffing: Staffing,
        *,
        n_ranks: int,
        node_wait_s: float,
        on_event: Callable[[str], None],
    ) -> None:
        self.unplaced = UnplacedSlots()
        self._store, self._roster, self._nodes, self._staffing = store, roster, nodes, staffing
        self._n_ranks, self._node_wait_s, self._on_event = n_ranks, node_wait_s, on_event

    def begin(self, n_nodes: int, now_s: float) -> None:
        """Start the ranks on the nodes that have joined, and call the first generation."""
        nodes = [node.identity for node in self._nodes.alive.values()][:n_nodes]
        membership, apart = first_membership(
            self._roster.membership,
            [node.name for node in nodes],
            [node.rack or node.name for node in nodes],
            self._n_ranks,
        )
        if len(nodes) > 1 and not apart:
            self._on_event("some buddies share a rack: the loss of a rank loses both copies")
        self._publish(membership)
        for node in membership.nodes:
            self._staffing.start(WorkerState.RANK, node, now_s)

    def regroup(self, pending: UnplacedSlots, now_s: float) -> bool:
        """Fill lost slots and call all ranks to the next generation.

        Slots for which no node has room wait, and all ranks with them.

        Returns:
            Whether a generation was called.
        """
        before = self._roster.membership
        places = self._place(pending.slots)
        if places is None:
            self._wait(pending)
            return False
        self.unplaced = UnplacedSlots()
        newcomers = {
            slot: self._staffing.newcomer(place.node, now_s) for slot, place in places.items()
        }
        names = {slot: newcomer.name for slot, newcomer in newcomers.items()}
        self._publish(next_membership(before, pending, names, places))
        self._say_regrouped(places)
        self._staffing.regrouped(tuple(names.values()), now_s)
        return True

    def has_room(self) -> bool:
        """Whether the slots that wait could be placed now."""
        return self._place(self.unplaced.slots) is not None

    def waited_too_long(self, now_s: float) -> str | None:
        """Why the run is given up for want of a node, or None."""
        waiting = self.unplaced
        if not waiting.slots or now_s - waiting.since_s <= self._node_wait_s:
            return None
        slots = ", ".join(map(str, waiting.slots))
        return f"no node with room for slots {slots} joined within {self._node_wait_s:g} s"

    def _publish(self, membership: Membership) -> None:
        # The membership before the number, so that whoever sees the number finds it.
        key = rendezvous.membership_key(membership.generation)
        self._store.set(key, membership.to_json())
        self._store.set(rendezvous.GENERATION, str(membership.generation))
        self._roster.membership = membership

    def _wait(self, pending: UnplacedSlots) -> None:
        if not self.unplaced.slots:
            generation = self._roster.membership.generation
            self._store.set(rendezvous.waiting_key(generation), "1")
            slots = ", ".join(map(str, pending.slots))
            self._on_event(f"no node has room for slots {slots}: waiting for one to join")
        self.unplaced = pending

    def _place(self, slots: Iterable[int]) -> dict[int, Place] | None:
        """A place for each slot; None: there is not room for all."""
        capacity = {name: node.n_ranks for name, node in self._nodes.alive.items()}
        warm = self._staffing.warm()
        return place_lost(self._roster.membership, frozenset(slots), capacity, warm)

    def _say_regrouped(self, places: Mapping[int, Place]) -> None:
        membership = self._roster.membership
        several = len(set(membership.nodes)) > 1
        filled = ", ".join(
            f"slot {slot}: {membership.workers[slot]}" + (f" on {place.node}" if several else "")
            for slot, place in sorted(places.items())
        )
        self._on_event(f"generation {membership.generation}: {filled or 'all ranks'}")
        together = sharing_a_node(membership.nodes, membership.buddy_stride)
        if several and together:
            slots = ", ".join(map(str, together))
            self._on_event(f"slots {slots} share a node with their buddies: its loss loses both")


_SPARE_WAIT_S = 5.0  # a new generation that has made no step by then gets its spare all the same


class Staffing:
    """Starts the processes of a run; every method takes the time now (monotonic, seconds)."""

    def __init__(self, roster: Roster, nodes: NodePool, n_spares: int) -> None:
        self._roster, self._nodes, self._n_spares = roster, nodes, n_spares
        self._newcomers: tuple[str, ...] = ()
        self._regrouped_s = 0.0

    def start(self, state: WorkerState, node: str, now_s: float) -> Worker:
        """Start a process on a node.

        If the node was lost since it was chosen the process counts as killed, and is replaced as
        such.
        """
        name = f"w{len(self._roster.workers)}"
        worker = Worker.start(name, self._nodes.node(node), state=state, now_s=now_s)
        self._roster.workers[name] = worker
        return worker

    def newcomer(self, node: str, now_s: float) -> Worker:
        """A warm spare of a node, or a process that is started there now."""
        for spare in self._roster.spares:
            if spare.node == node and not spare.exit.ending():
                spare.enter(WorkerState.RANK)
                spare.heard_s = now_s
                return spare
        return self.start(WorkerState.RANK, node, now_s)

    def regrouped(self, newcomers: tuple[str, ...], now_s: float) -> None:
        """A new generation was called, with these new ranks in it."""
        self._newcomers, self._regrouped_s = newcomers, now_s

    def warm(self) -> Counter[str]:
        """Waiting processes of each node."""
        return Counter(spare.node for spare in self._roster.spares if not spare.exit.ending())

    def restock(self, now_s: float, *, at_once: bool = False) -> None:
        """Start a node's next spare once the newcomers before have made a step in their slots.

        Its import takes a core for a second or more, which the regrouping must not wait for. A
        node without ranks is a spare node, whose every place is kept warm.
        """
        in_use = set(self._roster.membership.nodes)
        n_spares = Counter(spare.node for spare in self._roster.spares)
        for name, node in self._nodes.alive.items():
            wanted = self._n_spares if name in in_use else node.n_ranks
            if n_spares[name] >= wanted:
                continue
            if at_once or name not in in_use or self._newcomers_stepped(now_s):
                self.start(WorkerState.SPARE, name, now_s)

    def _newcomers_stepped(self, now_s: float) -> bool:
        newcomers = [self._roster.workers[name] for name in self._newcomers]
        stepped = all(worker.heartbeat.step >= 0 for worker in newcomers)
        return stepped or now_s - self._regrouped_s > _SPARE_WAIT_S


# -- Which node a slot's worker runs on, and how far away its buddy is. Standard library only -----

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
