"""What a scheduler decides: pure functions of the queue and the room, by the name of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.room import (
    FAR_S,
    Room,
    Running,
    VictimChoice,
    Waiting,
    first_members,
    place,
    remove,
    removed,
    set_of,
    taken,
)


class Limit(NamedTuple):
    """One limit as one job meets it."""

    whose: str
    most: int
    asks: int
    reason: str


def held_by(limits: Sequence[Limit], in_use: Mapping[str, int]) -> Limit | None:
    """The first limit that a job would break if it started now; None if it may start."""
    for limit in limits:
        if in_use.get(limit.whose, 0) + limit.asks > limit.most:
            return limit
    return None


def no_preemption(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Nobody is preempted."""
    del head, running, room
    return []


def neighbours(able: Able) -> list[int]:
    """Nodes next to each other, of those that running jobs leave first.

    The shortest run of such nodes that is long enough, the first of equal ones; where none is, the
    longest, and so on with what is left.
    """
    ready_s = able.ready_s[:, able.gpus_on_each]
    at_s = np.partition(ready_s, able.n_nodes - 1)[able.n_nodes - 1]
    return _of_runs([able.nodes[i] for i in np.flatnonzero(ready_s <= at_s)], able.n_nodes)


def free_neighbours(by_free: Sequence[int], gpus: int) -> list[int] | None:
    """As `room.place`, which see: the nodes for a job that starts now, as `neighbours`."""
    per_node = len(by_free) - 1
    n_nodes = max(1, gpus // per_node)
    able = 0
    for nodes in by_free[min(gpus, per_node) :]:
        able |= nodes
    count = able.bit_count()
    return _of_runs(first_members(able, count), n_nodes) if count >= n_nodes else None


def _of_runs(left: list[int], n_nodes: int) -> list[int]:
    """So many of some ascending nodes, from as few runs as there can be."""
    chosen: list[int] = []
    while (missing := n_nodes - len(chosen)) > 0:
        runs = _runs(left)
        enough = [run for run in runs if len(run) >= missing]
        run = min(enough, key=len) if enough else max(runs, key=len)
        chosen += run[:missing]
        left = [node for node in left if node not in run[:missing]]
    return sorted(chosen)


def _runs(nodes: Sequence[int]) -> list[list[int]]:
    """Ascending nodes, split where one is missing."""
    found: list[list[int]] = []
    for node in nodes:
        if found and found[-1][-1] == node - 1:
            found[-1].append(node)
        else:
            found.append([node])
    return found


class JobStart(NamedTuple):
    """A job that starts now: its place in the queue, its nodes, and who is preempted for it."""

    place: int
    nodes: list[int]
    victims: tuple[int, ...] = ()


class Able(NamedTuple):
    """Nodes that can take a job at its start, ascending, from which some are chosen."""

    nodes: list[int]
    ready_s: NDArray[np.int64]
    gpus_on_each: int
    n_nodes: int
    is_now: bool


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
    """Jobs that start although others ahead of them wait."""
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

    As in Slurm a node that is kept for a job that waits is kept whole, however few of its GPUs the
    job needs. The plan is made again in each pass, so that what ends early is used.

    Where `room.lower` has jobs, one that waits may preempt those of lower levels as it starts;
    until then they count as gone. A node that one has just left takes others in the next pass.

    Args:
        apart_s: So long before its node is kept for another a job must be over.
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
        """A job starts once others have left, for whom the next pass looks."""
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
    """The first time at which so many gaps can take a job; `FAR_S` if there is none."""
    can = first_s <= last_s
    first_s, last_s = np.sort(first_s[can]), np.sort(last_s[can])
    begun = np.searchsorted(first_s, first_s, side="right")
    over = np.searchsorted(last_s, first_s, side="left")
    enough = np.flatnonzero(begun - over >= n_nodes)
    return int(first_s[enough[0]]) if enough.size else FAR_S


REORDERS = 2
"""How often the candidates are put into another order (preempt_reorder_count=1 allows two)."""


def slurm_youngest_first(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Numbers of the jobs that are preempted so that `head` can start; none if it still could not.

    Candidates go in thought, the one that started last first whatever its level, until the job
    fits. The one that made it fit is then the first candidate, followed by those with most of the
    nodes chosen, and the search begins again.

    Source:
        Slurm 22.05 with PreemptType=preempt/qos and preempt_youngest_first,
        src/plugins/select/cons_tres/job_test.c.
    """
    candidates = sorted(running, key=lambda job: (-job.start_s, job.number))
    for n_orders in range(1, len(candidates) + 1):
        found = _first_fit(head, candidates, room)
        if found is None:
            return []
        n_gone, chosen = found
        if n_orders > REORDERS or n_orders == len(candidates):
            return [job.number for job in candidates[:n_gone] if chosen & set(job.nodes)]
        last, before = candidates[n_gone - 1], candidates[: n_gone - 1]
        before.sort(key=lambda job: -len(chosen & set(job.nodes)))
        candidates = [last, *before, *candidates[n_gone:]]
    return []


def _first_fit(
    head: Waiting, candidates: Sequence[Running], room: Room
) -> tuple[int, set[int]] | None:
    """How many of the candidates must go, in their order, and the nodes that the job would get."""
    on_each, n_nodes = min(head.gpus, room.gpus_per_node), max(1, head.gpus // room.gpus_per_node)
    every = 0
    for nodes in room.by_free:
        every |= nodes
    ready_s = room.ready_s.copy()
    usable = np.array(first_members(every, every.bit_count()), dtype=np.int64)
    n_able = int((ready_s[usable, on_each] == 0).sum())
    for n_gone, job in enumerate(candidates, 1):
        its_own = [node for node in job.nodes if every >> node & 1]
        n_able -= int((ready_s[its_own, on_each] == 0).sum())
        remove(ready_s, job)
        n_able += int((ready_s[its_own, on_each] == 0).sum())
        if n_able >= n_nodes:
            able = usable[ready_s[usable, on_each] == 0]
            asked = Able(able.tolist(), ready_s[able], on_each, n_nodes, is_now=True)
            return n_gone, set(neighbours(asked))
    return None


WINDOW_S = 30
"""Running jobs that end so close to each other end at once in a plan, the last of them."""
APART_S = 1
"""Slurm takes two that meet in one moment for an overlap: its times include their ends."""


def slurm_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although others ahead of them wait, as by Slurm's sched/backfill.

    Until it starts, jobs that it might preempt count as gone: its nodes are kept from when all
    others have left them.

    Source:
        Slurm 22.05, src/plugins/sched/backfill/backfill.c and select/cons_tres/job_test.c, whose
        nodes are in one line without a topology.
    """
    return _starts(waiting, room, now_s, None)


def slurm_easy(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """As `slurm_backfill` with bf_job_part_count_reserve=1: nodes are kept for the first alone."""
    return _starts(waiting, room, now_s, 1)


def _starts(
    waiting: Sequence[Waiting], room: Room, now_s: int, most_kept: int | None
) -> list[JobStart]:
    return [
        JobStart(job.place, plan.nodes, plan.victims)
        for job, plan in zip(waiting, slurm_plans(waiting, room, now_s, most_kept), strict=True)
        if plan.start_s == now_s
    ]


def slurm_plans(
    waiting: Sequence[Waiting], room: Room, now_s: int, most_kept: int | None = None
) -> list[Planned]:
    """When and where Slurm would start each job, as `slurm_backfill` has it."""
    return planned(waiting, room, now_s, neighbours, APART_S, most_kept, first_ends_at_once)


def first_ends_at_once(ready_s: NDArray[np.int64]) -> NDArray[np.int64]:
    """`Room.ready_s` where the running jobs that end first do so with the last of them.

    Those that end up to `WINDOW_S` after the next full half minute after the first.
    """
    runs = (ready_s > 0) & (ready_s < FAR_S)
    if not runs.any():
        return ready_s
    first_s = int(ready_s[runs].min())
    soon = runs & (ready_s <= first_s - first_s % WINDOW_S + 2 * WINDOW_S)
    return np.where(soon, ready_s[soon].max(), ready_s)


def newest_first(head: Waiting, running: Sequence[Running], room: Room) -> list[int]:
    """Numbers of the jobs that are preempted so that `head` can start; none if it still could not.

    A job of up to one node, a whole one too, gets the GPUs of one other job at most: it waits where
    several smaller ones would have to go. For a job of several nodes others are preempted in order
    until enough nodes are empty; those that turn out not to be needed stay.

    Args:
        head: The first job of the queue, which does not fit.
        running: Jobs of lower levels that have run for long enough.
        room: Of the nodes.
    """
    per_node = room.gpus_per_node
    needed = head.gpus // per_node - room.by_free[per_node].bit_count()
    if head.gpus > per_node and sum(len(job.nodes) for job in running) < needed:
        return []
    order = sorted(running, key=lambda job: (job.level, -job.start_s, -job.number))
    if head.gpus > per_node:
        return _whole_nodes(order, room, needed)
    # of each number of GPUs: the nodes that have as many free, or more
    at_least = list(accumulate(reversed(room.by_free), or_))[::-1]
    for job in order:
        able = at_least[max(0, head.gpus - job.gpus_on_each)]
        if any(able >> node & 1 for node in job.nodes):
            return [job.number]
    return []


def _whole_nodes(order: Sequence[Running], room: Room, needed: int) -> list[int]:
    """The first jobs that leave so many nodes empty, without those that are not needed for it."""
    per_node = room.gpus_per_node
    left: dict[int, int] = {}
    empty, chosen = 0, []
    for job in order:
        if empty >= needed:
            break
        for node in job.nodes:
            free = left[node] if node in left else room.free_gpus(node)
            if free >= 0:
                left[node] = free + job.gpus_on_each
                empty += left[node] == per_node
        chosen.append(job)
    if empty < needed:
        return []
    kept = []
    for job in chosen:
        gives = sum(left.get(node) == per_node for node in job.nodes)
        if empty - gives >= needed:
            empty -= gives
            for node in job.nodes:
                if node in left:
                    left[node] -= job.gpus_on_each
        else:
            kept.append(job.number)
    return kept


def in_order(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """No job starts while the first one waits."""
    del waiting, room, now_s
    return []


def easy_backfill(waiting: Sequence[Waiting], room: Room, now_s: int) -> list[JobStart]:
    """Jobs that start although the first one waits.

    The first job is promised the nodes on which it can start soonest if every running job takes
    its whole time limit. Another job starts if it ends by then, on those nodes where it can, or if
    it keeps off them.

    Source:
        Lifka (1995), Job Scheduling Strategies for Parallel Processing; extra nodes: Mu'alem and
        Feitelson (2001), IEEE Transactions on Parallel and Distributed Systems 12(6).
    """
    if len(waiting) == 1:
        return []
    promised, at_s = room.reservation(waiting[0].gpus)
    by_free = list(room.by_free)
    per_node = room.gpus_per_node
    # sizes for which there is no room: on any node, and off the promised ones
    too_large = too_large_off = waiting[0].gpus
    starts = []
    for job in waiting[1:]:
        ends_in_time = now_s + job.limit_s <= at_s
        if job.gpus >= (too_large if ends_in_time else too_large_off):
            continue
        off, on = (0, promised) if ends_in_time else (promised, 0)
        nodes = place(by_free, job.gpus, without=off, rather=on)
        if nodes is None:
            too_large_off = min(too_large_off, job.gpus)
            if ends_in_time:
                too_large = job.gpus
            continue
        taken(by_free, nodes, min(job.gpus, per_node))
        starts.append(JobStart(job.place, nodes))
    return starts


WaitingPolicy = Callable[[Sequence[Waiting], Room, int], list[JobStart]]
Placing = Callable[[list[int], int], list[int] | None]

WAITING: Mapping[str, WaitingPolicy] = {
    "conservative-backfill": conservative_backfill,
    "easy-backfill": easy_backfill,
    "in-order": in_order,
    "slurm-backfill": slurm_backfill,
    "slurm-easy": slurm_easy,
}
"""What starts while the first job of the queue, which does not fit, waits."""
PREEMPT_FOR_ANY = frozenset({"slurm-backfill", "slurm-easy"})
"""Of those, the ones that preempt for others than the first job, and are shown who may go."""
STARTS_NOW = frozenset({"easy-backfill", "in-order"})
"""Of those, the ones that plan only for the first job: others without room now change nothing."""
PLACING: Mapping[str, Placing] = {
    **dict.fromkeys(WAITING, place),
    **dict.fromkeys(PREEMPT_FOR_ANY, free_neighbours),
}
"""Nodes for a job that starts in the order of the queue, None where it has no room now."""
PREEMPTION: Mapping[str, VictimChoice] = {
    "newest-first": newest_first,
    "none": no_preemption,
    "slurm-youngest-first": slurm_youngest_first,
}
"""Numbers of the running jobs that are preempted for one that waits."""
