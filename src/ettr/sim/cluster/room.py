"""The nodes with room for a job, as the bits of integers, and the calendar of events to come.

Bit n is node n. Union, difference and count of such sets cost well under a microsecond for
thousands of nodes, and the lowest bit is always the same node, which keeps runs repeatable.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FAR_S = 1 << 60
"""A time that never comes."""
_FEW = 8
"""Up to so many nodes are quicker taken from a set one by one than all at once."""


def first_members(nodes: int, count: int) -> list[int]:
    """The first nodes of a set that has at least so many, ascending."""
    if count > _FEW:
        size = (nodes.bit_length() + 7) // 8
        octets = np.frombuffer(nodes.to_bytes(size, "little"), dtype=np.uint8)
        present = np.flatnonzero(np.unpackbits(octets, bitorder="little"))
        chosen: list[int] = present[:count].tolist()
        return chosen
    found = []
    for _ in range(count):
        lowest = nodes & -nodes
        found.append(lowest.bit_length() - 1)
        nodes ^= lowest
    return found


def set_of(nodes: Sequence[int]) -> int:
    """The set of some nodes."""
    if len(nodes) <= _FEW:
        made = 0
        for node in nodes:
            made |= 1 << node
        return made
    bits = np.zeros(max(nodes) + 1, dtype=np.uint8)
    bits[np.asarray(nodes)] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


class Waiting(NamedTuple):
    """A job in the queue: its place there, GPUs, time limit in seconds, and priority level.

    One that has preempted others a moment ago preempts no more: `may_preempt` is false.
    """

    place: int
    gpus: int
    limit_s: int
    level: int
    may_preempt: bool = True


class Running(NamedTuple):
    """A job that may be preempted: its number, level, start, nodes and GPUs on each of them.

    `until_s` is the end of its time limit.
    """

    number: int
    level: int
    start_s: int
    nodes: tuple[int, ...]
    gpus_on_each: int
    until_s: int


VictimChoice = Callable[[Waiting, Sequence[Running], "Room"], list[int]]
"""Numbers of the jobs of lower levels that are preempted for one that waits, in this room."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a policy sees of the nodes.

    Attributes:
        ready_s: When each node has that many GPUs free if every job runs to its time limit, shape
            (nodes, GPUs of a node + 1); `FAR_S` for a node that takes no jobs.
        victims_of: The policy that says which of them, given the job, those of lower levels, and
            the room of the nodes that it may use.
    """

    by_free: tuple[int, ...]
    ready_s: NDArray[np.int64]
    lower: tuple[Running, ...] = ()
    victims_of: VictimChoice | None = None

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node."""
        return len(self.by_free) - 1

    def place(self, gpus: int, without: int = 0) -> list[int] | None:
        """Nodes for a job, or None: the fullest node with room, or the first that are empty."""
        return place(self.by_free, gpus, without)

    def free_gpus(self, node: int) -> int:
        """Free GPUs of a node; -1 where it takes no jobs."""
        for gpus, nodes in enumerate(self.by_free):
            if nodes >> node & 1:
                return gpus
        return -1

    def reservation(self, gpus: int) -> tuple[int, int]:
        """The nodes on which a job of so many GPUs could start first, and when.

        Returns:
            The set of nodes, and a time in seconds; no nodes and `FAR_S` where it never fits.
        """
        per_node = self.gpus_per_node
        n_nodes = max(1, gpus // per_node)
        column = self.ready_s[:, min(gpus, per_node)]
        if n_nodes > column.size:
            return 0, FAR_S
        at_s = int(np.partition(column, n_nodes - 1)[n_nodes - 1])
        if at_s >= FAR_S:
            return 0, FAR_S
        ready = np.flatnonzero(column <= at_s)
        last = np.argsort(column[ready], kind="stable")[-n_nodes:]
        return set_of(ready[last].tolist()), at_s


def place(
    by_free: tuple[int, ...] | list[int], gpus: int, without: int = 0, rather: int = 0
) -> list[int] | None:
    """As `Room.place`; a job of whole nodes gets those of `rather` before others."""
    per_node = len(by_free) - 1
    if gpus >= per_node:
        n_nodes = gpus // per_node
        empty = by_free[per_node] & ~without
        if empty.bit_count() < n_nodes:
            return None
        n_liked = min(n_nodes, (empty & rather).bit_count())
        liked = first_members(empty & rather, n_liked)
        return sorted(liked + first_members(empty & ~rather, n_nodes - n_liked))
    for free in range(gpus, per_node + 1):
        fits = by_free[free] & ~without
        if fits:
            return [(fits & -fits).bit_length() - 1]
    return None


def taken(by_free: list[int], nodes: list[int], gpus_on_each: int) -> None:
    """Move nodes to where they are once a job has taken GPUs on each of them."""
    for node in nodes:
        bit = 1 << node
        for free in range(gpus_on_each, len(by_free)):
            if by_free[free] & bit:
                by_free[free] ^= bit
                by_free[free - gpus_on_each] |= bit
                break


def removed(ready_s: NDArray[np.int64], jobs: Sequence[Running]) -> NDArray[np.int64]:
    """`Room.ready_s` once some jobs are gone; nodes that take no jobs stay as they are."""
    after_s = ready_s.copy()
    for job in jobs:
        remove(after_s, job)
    return after_s


def remove(ready_s: NDArray[np.int64], job: Running) -> None:
    """Let a job go from such times, in place.

    Raises:
        ValueError: it is not there until then.
    """
    gpus = job.gpus_on_each
    for node in job.nodes:
        row = ready_s[node]
        if row[0] == FAR_S:
            continue
        # a row has the time at which each GPU is free, in order
        at = int(np.searchsorted(row, job.until_s))
        if not (row[at : at + gpus] == job.until_s).sum() == gpus:
            raise ValueError(f"job {job.number} does not hold {gpus} GPUs of node {node}")
        row[gpus + 1 : at + gpus] = row[1:at].copy()
        row[1 : gpus + 1] = 0


class NodeRoom:
    """GPUs in use on each node, by whom and until when at most."""

    def __init__(self, n_nodes: int, gpus_per_node: int) -> None:
        self.gpus_per_node = gpus_per_node
        self.open = (1 << n_nodes) - 1
        self.by_free = [0] * gpus_per_node + [self.open]
        self.ready_s = np.zeros((n_nodes, gpus_per_node + 1), dtype=np.int64)
        self.free = [gpus_per_node] * n_nodes
        self.jobs: list[dict[int, tuple[int, int]]] = [{} for _ in range(n_nodes)]

    def view(self, lower: Sequence[Running] = (), victims_of: VictimChoice | None = None) -> Room:
        """What a policy sees, with the running jobs that may be preempted, and how."""
        return Room(tuple(self.by_free), self.ready_s, tuple(lower), victims_of)

    @property
    def most_gpus(self) -> int:
        """GPUs of the largest job that has room now; 0 where none has."""
        if empty := self.by_free[-1].bit_count():
            return (empty + 1) * self.gpus_per_node - 1  # what is over whole nodes takes no node
        return max((free for free, nodes in enumerate(self.by_free) if nodes), default=0)

    def has(self, nodes: Sequence[int], gpus_on_each: int, without: Sequence[int] = ()) -> bool:
        """Whether each of these nodes takes jobs and has so many free GPUs once some jobs leave."""
        for node in nodes:
            held = self.jobs[node]
            free = self.free[node] + sum(held[job][0] for job in without if job in held)
            if not self.open >> node & 1 or free < gpus_on_each:
                return False
        return True

    def take(self, job: int, nodes: list[int], gpus_on_each: int, until_s: int) -> None:
        """Give a job GPUs on each of some nodes, until its time limit at most."""
        held = (gpus_on_each, until_s)
        if gpus_on_each == self.gpus_per_node:
            self._move_all(nodes, gpus_on_each, 0)
            for node in nodes:
                self.jobs[node][job] = held
            self.ready_s[nodes, 1:] = until_s
            return
        for node in nodes:
            self._move(node, self.free[node] - gpus_on_each)
            self.jobs[node][job] = held
            self._update_ready(node)

    def give_back(self, job: int, nodes: list[int]) -> None:
        """Free the GPUs of a job."""
        if self.jobs[nodes[0]][job][0] == self.gpus_per_node:
            for node in nodes:
                del self.jobs[node][job]
            freed = self._move_all(nodes, 0, self.gpus_per_node)
            self.ready_s[first_members(freed, freed.bit_count())] = 0
            return
        empty = []
        for node in nodes:
            gpus_on_each, _ = self.jobs[node].pop(job)
            self._move(node, self.free[node] + gpus_on_each)
            if self.jobs[node]:
                self._update_ready(node)
            elif self.open >> node & 1:
                empty.append(node)
        self.ready_s[empty] = 0

    def close(self, node: int) -> None:
        """A node takes no more jobs; those that it has stay."""
        bit = 1 << node
        if self.open & bit:
            self.open ^= bit
            self.by_free[self.free[node]] ^= bit
        self.ready_s[node] = FAR_S

    def reopen(self, node: int) -> None:
        """A node takes jobs again."""
        bit = 1 << node
        if not self.open & bit:
            self.open |= bit
            self.by_free[self.free[node]] |= bit
        self._update_ready(node)

    def _move(self, node: int, free: int) -> None:
        bit = 1 << node
        if self.open & bit:
            self.by_free[self.free[node]] ^= bit
            self.by_free[free] |= bit
        self.free[node] = free

    def _move_all(self, nodes: list[int], before: int, after: int) -> int:
        """As `_move`, of nodes that all have as many free GPUs; the set of those that are open."""
        moved = set_of(nodes) & self.open
        self.by_free[before] ^= moved
        self.by_free[after] ^= moved
        for node in nodes:
            self.free[node] = after
        return moved

    def _update_ready(self, node: int) -> None:
        """When each number of GPUs is free on a node, from the time limits of its jobs."""
        if not self.open >> node & 1:
            return
        free, held = self.free[node], self.jobs[node]
        times = [0] * (free + 1)
        for until_s, gpus in sorted((until_s, gpus) for gpus, until_s in held.values()):
            times += [until_s] * gpus
        self.ready_s[node] = times


# -- Events in their one order: by time, then kind, then number, then as they were put in ---------


class EventKind(IntEnum):
    """Kinds of events, in the order in which those of one moment happen."""

    RETURN = 0
    END = 1
    FAULT = 2
    CHECK = 3
    ARRIVAL = 4
    IMPATIENT = 5
    REMINDER = 6
    PASS = 7


Event = tuple[int, int, int, int, object]
"""Time in seconds, kind, number (of the node or the job), serial number, what it is about."""


class Calendar:
    """What is to come."""

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._serial = 0

    def put(self, time_s: int, kind: EventKind, number: int, about: object = None) -> None:
        """Add an event; the number is that of its node or job."""
        self._serial += 1
        heapq.heappush(self._heap, (time_s, int(kind), number, self._serial, about))

    @property
    def first(self) -> tuple[int, int] | None:
        """Time and kind of the next event."""
        return self._heap[0][:2] if self._heap else None

    def next_before(self, time_s: int, kind: EventKind) -> Event | None:
        """Take the first event if it comes no later than another of that time and kind."""
        if self._heap and self._heap[0][:2] <= (time_s, int(kind)):
            return heapq.heappop(self._heap)
        return None
