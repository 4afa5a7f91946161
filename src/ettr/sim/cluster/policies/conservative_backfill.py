"""Conservative backfill: a job may overtake others if none of them starts later for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.policies.base import Able, JobStart
from ettr.sim.cluster.policies.no_preemption import no_preemption
from ettr.sim.cluster.room import FAR_S, Room, Running, Waiting, removed, set_of

Times = NDArray[np.int64]


NodeChoice = Callable[[Able], list[int]]
EndsAsSeen = Callable[[Times], Times]


class Planned(NamedTuple):
    """When a waiting job starts, and its nodes, none where none are kept for it.

    `start_s` is `FAR_S` where it never fits. `victims` are the numbers of running jobs that are
    preempted for it as it starts.
    """

    start_s: int
    nodes: list[int]
    victims: tuple[int, ...] = ()


def conservative_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although others ahead of them wait.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.
    """
    plans = zip(waiting, planned(waiting, room, now_s), strict=True)
    return [JobStart(job.place, plan.nodes) for job, plan in plans if plan.start_s == now_s]


def as_they_are(ready_s: Times) -> Times:
    """The ends of running jobs, each by itself."""
    return ready_s


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
    most_kept: int | None = None,
    ends: EndsAsSeen = as_they_are,
) -> list[Planned]:
    """When each job starts if everybody takes his whole time limit and nobody else comes.

    Each gets the earliest time that the jobs ahead of it leave, and its nodes until its time limit.
    As in Slurm a node that is kept for a job that waits is kept whole, however few of its GPUs the
    job needs. The plan is made again in each pass, so that what ends early is used.

    Where `room.lower` has jobs, one that waits may preempt those of lower levels as it starts;
    until then they count as gone. A node that one has just left takes others in the next pass.

    Args:
        waiting: In the order of the queue.
        room: Of the nodes.
        now_s: The time.
        choose: The nodes of each, of those that can take it.
        apart_s: So long before its node is kept for another a job must be over.
        most_kept: Jobs for which nodes are kept; for all where None.
        ends: `Room.ready_s` as the plan sees the ends of running jobs.

    Source:
        Mu'alem and Feitelson (2001), IEEE Transactions on Parallel and Distributed Systems 12(6);
        Slurm's manual, sched_config, on sched/backfill.
    """
    gaps = _Gaps(room, choose, apart_s, ends)
    plans: list[Planned] = []
    n_kept = 0
    for job in waiting:
        keeps = most_kept is None or n_kept < most_kept
        plans.append(gaps.plan(job, now_s, keeps=keeps))
        n_kept += bool(plans[-1].victims) or now_s < plans[-1].start_s < FAR_S
    return plans


class _Fit(NamedTuple):
    """When a job fits, in which gaps by ascending node, and `Room.ready_s` as it counts here."""

    start_s: int
    gaps: NDArray[np.int64]
    ready_s: Times


class _Gaps:
    """The times in which a node is kept for nobody, one or more for each node.

    `_opens_s` and `_closes_s` are the ends of each gap, `_node` whose it is. Running jobs are in
    `_ready_s`, as in `Room`; those of `_lower` may be preempted.
    """

    def __init__(self, room: Room, choose: NodeChoice, apart_s: int, ends: EndsAsSeen) -> None:
        self._choose, self._apart_s, self._ends = choose, apart_s, ends
        self._lower, self._victims_of = room.lower, room.victims_of or no_preemption
        self._ready_by_level: dict[int, Times] = {}
        self._left: set[int] = set()
        n_nodes = len(room.ready_s)
        self._per_node = room.gpus_per_node
        self._ready_s = room.ready_s.copy()
        self._node = np.arange(n_nodes)
        self._opens_s = np.zeros(n_nodes, dtype=np.int64)
        self._closes_s = np.full(n_nodes, FAR_S)

    def plan(self, job: Waiting, now_s: int, *, keeps: bool) -> Planned:
        """The earliest start of a job; where it waits and `keeps` nodes, they are kept for it."""
        fit = self._first_fit(job, self._ready_s, now_s)
        lower = [one for one in self._lower if one.level < job.level]
        if fit.start_s == now_s:
            return self._start(job, fit, keeps=keeps)
        if lower:
            fit = self._first_fit(job, self._ready_without(lower, job.level), now_s)
        if fit.start_s > now_s:
            return self._wait(job, fit, keeps=keeps)
        victims = []
        if job.may_preempt:
            victims = self._victims_of(job, lower, self._room_of(fit.gaps))
        if not victims:
            # more would have to go than are preempted for it: it waits for the same nodes
            return self._put_off(job, fit, keeps=keeps)
        gone = [one for one in lower if one.number in victims]
        return self._preempt(job, fit, gone, now_s, keeps=keeps)

    def _preempt(
        self, job: Waiting, fit: _Fit, victims: Sequence[Running], now_s: int, *, keeps: bool
    ) -> Planned:
        """A job starts once others have left, for whom the next pass looks.

        Until then those nodes are kept for it, if any are, that it would get if all left that it
        might preempt (`fit`). Nobody gets those that are being left in this pass.
        """
        ready_s = removed(self._ready_s, victims)
        nodes = self._chosen(job, self._first_fit(job, ready_s, now_s), is_now=True)
        if self._left.intersection(nodes):
            return self._put_off(job, fit, keeps=keeps)
        self._wait(job, fit, keeps=keeps)
        self._lower = tuple(one for one in self._lower if one not in victims)
        self._ready_s = ready_s
        self._ready_by_level.clear()
        self._left.update(node for one in victims for node in one.nodes)
        return Planned(now_s, nodes, tuple(one.number for one in victims))

    def _first_fit(self, job: Waiting, ready_s: Times, now_s: int) -> _Fit:
        """The first moment at which enough gaps can take a job, and those gaps by node."""
        ready_s = self._ends(ready_s)
        at_s = ready_s[:, min(job.gpus, self._per_node)]
        # what is free has 0; a job that is past its time limit has not ended all the same
        at_s = np.where(at_s == 0, now_s, np.maximum(at_s, now_s + 1))
        first_s = np.maximum(self._opens_s, at_s[self._node])
        last_s = self._closes_s - job.limit_s - self._apart_s
        start_s = _earliest(first_s, last_s, max(1, job.gpus // self._per_node))
        gaps = np.flatnonzero((first_s <= start_s) & (start_s <= last_s))
        return _Fit(start_s, gaps[np.argsort(self._node[gaps])], ready_s)

    def _chosen(self, job: Waiting, fit: _Fit, *, is_now: bool) -> list[int]:
        able: list[int] = self._node[fit.gaps].tolist()
        on_each, n_nodes = min(job.gpus, self._per_node), max(1, job.gpus // self._per_node)
        return self._choose(Able(able, fit.ready_s[able], on_each, n_nodes, is_now))

    def _start(self, job: Waiting, fit: _Fit, *, keeps: bool) -> Planned:
        """A job starts, unless others are still leaving its nodes."""
        nodes = self._chosen(job, fit, is_now=True)
        if self._left.intersection(nodes):
            return self._put_off(job, fit, keeps=keeps)
        for ready_s in (self._ready_s, *self._ready_by_level.values()):
            _hold(ready_s, nodes, min(job.gpus, self._per_node), fit.start_s + job.limit_s)
        return Planned(fit.start_s, nodes)

    def _put_off(self, job: Waiting, fit: _Fit, *, keeps: bool) -> Planned:
        """A job that might start now waits for the next pass."""
        return self._wait(job, fit, keeps=keeps)._replace(start_s=fit.start_s + 1)

    def _wait(self, job: Waiting, fit: _Fit, *, keeps: bool) -> Planned:
        if fit.start_s == FAR_S or not keeps:
            return Planned(fit.start_s, [])
        nodes = self._chosen(job, fit, is_now=False)
        self._keep(_gaps_of(nodes, fit, self._node), fit.start_s, fit.start_s + job.limit_s)
        return Planned(fit.start_s, nodes)

    def _ready_without(self, lower: Sequence[Running], level: int) -> Times:
        """As `Room.ready_s` where all jobs that one of this level may preempt are gone."""
        if level not in self._ready_by_level:
            self._ready_by_level[level] = removed(self._ready_s, lower)
        return self._ready_by_level[level]

    def _room_of(self, gaps: NDArray[np.int64]) -> Room:
        """The room of the nodes of these gaps alone."""
        free = (self._ready_s == 0).sum(axis=1) - 1
        nodes = self._node[gaps]
        by_free = tuple(
            set_of(nodes[free[nodes] == gpus].tolist()) for gpus in range(self._per_node + 1)
        )
        return Room(by_free, self._ready_s)

    def _keep(self, gaps: NDArray[np.int64], start_s: int, end_s: int) -> None:
        """Nodes are kept for a job that waits: each of these gaps becomes two."""
        self._node = np.append(self._node, self._node[gaps])
        self._opens_s = np.append(self._opens_s, np.full(gaps.size, end_s))
        self._closes_s = np.append(self._closes_s, self._closes_s[gaps])
        self._closes_s[gaps] = start_s


def _gaps_of(nodes: Sequence[int], fit: _Fit, node_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the gaps in which a job fits that are of these nodes, ascending."""
    return fit.gaps[np.searchsorted(node_of[fit.gaps], nodes)]


def _hold(ready_s: Times, nodes: list[int], gpus: int, until_s: int) -> None:
    """A job runs on some nodes: so many GPUs are free once it, or enough of others, ends."""
    before_s = ready_s[nodes]
    others_s = np.full_like(before_s, FAR_S)
    others_s[:, : before_s.shape[1] - gpus] = before_s[:, gpus:]
    after_s = np.minimum(others_s, np.maximum(before_s, until_s))
    after_s[:, 0] = before_s[:, 0]
    ready_s[nodes] = after_s


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
