"""Conservative backfill: a job may overtake others if none of them starts later for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.policies.base import JobStart, Waiting
from ettr.sim.cluster.room import FAR_S, Room

Times = NDArray[np.int64]


class Able(NamedTuple):
    """Nodes that can take a job at its start, ascending, from which some are chosen.

    Attributes:
        nodes: Numbers of them.
        ready_s: As `Room.ready_s`, of these nodes alone: by running jobs, not by those that wait.
        gpus_on_each: That the job needs.
        n_nodes: That it needs.
        is_now: Whether it starts now.
    """

    nodes: list[int]
    ready_s: Times
    gpus_on_each: int
    n_nodes: int
    is_now: bool


NodeChoice = Callable[[Able], list[int]]


class Planned(NamedTuple):
    """When a waiting job starts, and its nodes; `FAR_S` and none where it never fits."""

    start_s: int
    nodes: list[int]


def conservative_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although others ahead of them wait.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.
    """
    plans = zip(waiting, planned(waiting, room, now_s), strict=True)
    return [JobStart(job.place, plan.nodes) for job, plan in plans if plan.start_s == now_s]


def first_nodes(able: Able) -> list[int]:
    """Now the fullest, as `place` has it; later the first, which no start of others changes."""
    order = np.arange(len(able.nodes))
    if able.is_now:
        order = np.argsort((able.ready_s == 0).sum(axis=1), kind="stable")
    return [able.nodes[i] for i in order[: able.n_nodes]]


def planned(
    waiting: Sequence[Waiting],
    room: Room,
    now_s: int,
    choose: NodeChoice = first_nodes,
    apart_s: int = 0,
) -> list[Planned]:
    """When each job starts if everybody takes his whole time limit and nobody else comes.

    Each gets the earliest time that the jobs ahead of it leave, and its nodes until its time limit.
    As in Slurm a node that is kept for a job that waits is kept whole, however few of its GPUs the
    job needs. The plan is made again in each pass, so that what ends early is used.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.
        choose: The nodes of each, of those that can take it.
        apart_s: So long before its node is kept for another a job must be over.

    Source:
        Mu'alem and Feitelson (2001), IEEE Transactions on Parallel and Distributed Systems 12(6);
        Slurm's manual, sched_config, on sched/backfill.
    """
    gaps = _Gaps(room, choose, apart_s)
    return [gaps.plan(job, now_s) for job in waiting]


class _Gaps:
    """The times in which a node is kept for nobody, one or more for each node.

    `_opens_s` and `_closes_s` are the ends of each gap, `_node` whose it is. Running jobs are in
    `_ready_s`, as in `Room`.
    """

    def __init__(self, room: Room, choose: NodeChoice, apart_s: int) -> None:
        self._choose, self._apart_s = choose, apart_s
        n_nodes = len(room.ready_s)
        self._per_node = room.gpus_per_node
        self._ready_s = room.ready_s.copy()
        self._node = np.arange(n_nodes)
        self._opens_s = np.zeros(n_nodes, dtype=np.int64)
        self._closes_s = np.full(n_nodes, FAR_S)

    def plan(self, job: Waiting, now_s: int) -> Planned:
        """The earliest start of a job, for which the nodes are kept from now on."""
        on_each = min(job.gpus, self._per_node)
        n_nodes = max(1, job.gpus // self._per_node)
        ready_s = self._ready_s[:, on_each]
        # what is free has 0; a job that is past its time limit has not ended all the same
        ready_s = np.where(ready_s == 0, now_s, np.maximum(ready_s, now_s + 1))
        first_s = np.maximum(self._opens_s, ready_s[self._node])
        last_s = self._closes_s - job.limit_s - self._apart_s
        start_s = _earliest(first_s, last_s, n_nodes)
        if start_s == FAR_S:
            return Planned(FAR_S, [])
        fits = np.flatnonzero((first_s <= start_s) & (start_s <= last_s))
        fits = fits[np.argsort(self._node[fits])]
        able: list[int] = self._node[fits].tolist()
        is_now = start_s == now_s
        nodes = self._choose(Able(able, self._ready_s[able], on_each, n_nodes, is_now))
        if is_now:
            self._hold(nodes, on_each, now_s + job.limit_s)
        else:
            self._keep(fits[np.searchsorted(able, nodes)], start_s, start_s + job.limit_s)
        return Planned(start_s, nodes)

    def _hold(self, nodes: list[int], gpus: int, until_s: int) -> None:
        """A job runs on some nodes: so many GPUs are free once it, or enough of others, ends."""
        before_s = self._ready_s[nodes]
        others_s = np.full_like(before_s, FAR_S)
        others_s[:, : self._per_node + 1 - gpus] = before_s[:, gpus:]
        after_s = np.minimum(others_s, np.maximum(before_s, until_s))
        after_s[:, 0] = before_s[:, 0]
        self._ready_s[nodes] = after_s

    def _keep(self, gaps: NDArray[np.int64], start_s: int, end_s: int) -> None:
        """Nodes are kept for a job that waits: each of these gaps becomes two."""
        self._node = np.append(self._node, self._node[gaps])
        self._opens_s = np.append(self._opens_s, np.full(gaps.size, end_s))
        self._closes_s = np.append(self._closes_s, self._closes_s[gaps])
        self._closes_s[gaps] = start_s


def _earliest(first_s: Times, last_s: Times, n_nodes: int) -> int:
    """The first time at which so many gaps can take a job; `FAR_S` if there is none.

    Args:
        first_s: From when each gap can, shape (gaps,).
        last_s: Until when; before `first_s` where it cannot at all.
        n_nodes: How many it takes.
    """
    can = first_s <= last_s
    first_s, last_s = np.sort(first_s[can]), np.sort(last_s[can])
    begun = np.searchsorted(first_s, first_s, side="right")
    over = np.searchsorted(last_s, first_s, side="left")
    enough = np.flatnonzero(begun - over >= n_nodes)
    return int(first_s[enough[0]]) if enough.size else FAR_S
