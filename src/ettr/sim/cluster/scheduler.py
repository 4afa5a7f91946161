"""The scheduler: the queue, starts, preemption, links that jobs share, and what an end leaves."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ettr.plan.network import Routing, max_min, step_factor
from ettr.sim.cluster.log import Hours, Use
from ettr.sim.cluster.play import work_and_writes_s, writes_to_come_s
from ettr.sim.cluster.policies import (
    PLACING,
    PREEMPT_FOR_ANY,
    PREEMPTION,
    STARTS_NOW,
    WAITING,
    Limit,
    held_by,
)
from ettr.sim.cluster.room import FAR_S, Calendar, EventKind, NodeRoom, Running, Waiting, set_of
from ettr.sim.cluster.scenario import ClusterScenario, Owners, uplinks_of
from ettr.sim.cluster.scenario_parts import (
    EACH,
    FairShare,
    Quota,
)
from ettr.sim.cluster.workload import CANCELLED, STATES, TIMEOUT, Job, TaskArray, next_try, retried
from ettr.sim.engine import stream

if TYPE_CHECKING:
    from ettr.sim.cluster.faults import NodeFault
    from ettr.sim.cluster.log import SiteLog


# -- what the links between pods do to the speed of a job: bad ones, and those that jobs share -----


def done_s(slow: float, moved_s: int) -> int:
    """What so much time makes of work and writes on a network that slows both by a factor."""
    return moved_s if slow <= 1.0 else int(moved_s / slow + 1e-9)


class SharedLinks:
    """The uplinks of a cluster, of which some are bad, and the flows of the jobs that run."""

    def __init__(self, scenario: ClusterScenario, seed: int) -> None:
        self._links, self._machines, self._seed = scenario.links, scenario.machines, seed
        n_links = uplinks_of(scenario)
        n_bad = 0 if self._links is None else self._links.bad
        self._is_bad = np.zeros(n_links, dtype=np.bool_)
        self._is_bad[stream(seed, "bad links").permutation(n_links)[:n_bad]] = True
        self._room: list[float] = []
        if self._links is not None:
            room = np.where(self._is_bad, self._links.goodput_share, 1.0)
            if self._links.routing == Routing.ADAPTIVE:
                # the first link of a group is all of it
                room = np.repeat(
                    room.reshape(-1, self._links.uplinks).sum(axis=1), self._links.uplinks
                )
            self._room = room.tolist()
        self._paths: dict[int, list[list[int]]] = {}
        self._users: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)

    def start(self, number: int, nodes: Sequence[int], task: int, attempt: int) -> float:
        """Time of a job's steps over that on links of its own, none of them bad.

        A ring of each rail leaves and enters each pod of the job by one of its uplinks, hashed at
        each start, and is as slow as its slowest flow. Flows share links as in the planner's flow
        model, max-min, with those of the jobs that run as this one starts, as if all sent at once;
        jobs that come or go later leave the factor as it is.
        """
        links, machines = self._links, self._machines
        pods = sorted({machines.pod_of(node) for node in nodes})
        if links is None or len(pods) < 2:
            return 1.0
        rng = stream(self._seed, f"hashes of attempt {attempt}", task)
        rails = machines.gpus_per_node
        groups = np.array(pods)[:, None] * rails + np.arange(rails)
        chosen = rng.integers(links.uplinks, size=(2, *groups.shape))
        if links.routing == Routing.ADAPTIVE:
            chosen[:] = 0
        elif links.routing == Routing.REMOVAL:
            is_bad = self._is_bad.reshape(-1, links.uplinks)[groups]
            chosen = (rng.random((2, *is_bad.shape)) + is_bad).argmin(axis=-1)
        leaves, enters = groups * links.uplinks + chosen
        # each direction of a link for itself; from a pod into the next of the ring
        paths = np.stack([2 * leaves, 2 * np.roll(enters, -1, axis=0) + 1], axis=-1)
        self._paths[number] = paths.reshape(-1, 2).tolist()
        for at, path in enumerate(self._paths[number]):
            for link in path:
                self._users[link].add((number, at))
        return step_factor(self._slowest(number), links.exposed_share)

    def end(self, number: int) -> None:
        """A job sends no more."""
        for at, path in enumerate(self._paths.pop(number, ())):
            for link in path:
                self._users[link].discard((number, at))

    def _slowest(self, number: int) -> float:
        """The rate of a job's slowest flow, by all flows that share a full link, however far."""
        flows: dict[tuple[int, int], tuple[int, ...]] = {}
        room: dict[int, float] = {}
        new = [(number, at) for at in range(len(self._paths[number]))]
        while new:
            flow = new.pop()
            if flow in flows:
                continue
            path = self._paths[flow[0]][flow[1]]
            full = [one for one in path if len(self._users[one]) > self._room[one // 2]]
            flows[flow] = tuple(full)
            room |= {one: self._room[one // 2] for one in full}
            new += [other for one in full for other in self._users[one]]
        rates = max_min(list(flows.values()), room)
        return min(rate for flow, rate in zip(flows, rates, strict=True) if flow[0] == number)


# -- the scheduler: the queue, who starts where, who is preempted, and what an end leaves ----------


NODE_FAIL, PREEMPTED, FAILED = "NODE_FAIL", "PREEMPTED", "FAILED"
REQUEUED = "REQUEUED"
_Queued = tuple[int, int, int, Job]


def _queued(job: Job) -> _Queued:
    """A place in the queue: as in Slurm, whoever was submitted or requeued first goes first."""
    return -job.order, job.submit_s, job.number, job


class Scheduler:
    """Queue and running jobs."""

    def __init__(
        self,
        scenario: ClusterScenario,
        owners: Owners,
        calendar: Calendar,
        hours: Hours,
        log: SiteLog,
        seed: int = 0,
    ) -> None:
        self._scenario, self._rules, self._owners = scenario, scenario.scheduling, owners
        self._in_use: Counter[str] = Counter()
        rules = scenario.fair_share
        self._shared = None if rules is None else SharedUse(scenario, rules, owners)
        self._next_order_s = 0
        self._calendar, self._hours, self._log = calendar, hours, log
        self._per_node = scenario.machines.gpus_per_node
        self._levels = [one.level for one in scenario.priorities]
        self._backfill = WAITING[self._rules.waiting]
        self._place = PLACING[self._rules.waiting]
        self._victims = PREEMPTION[self._rules.preemption]
        self._queue: list[_Queued] = []
        self._delayed: dict[int, Job] = {}
        self._may_go: dict[int, dict[int, Running]] = {level: {} for level in set(self._levels)}
        self._next_pass_s = -1
        self._last_pass_s = -self._rules.pass_interval_s
        self._reminder_s = -1
        self._n_submitted = 0
        self.room = NodeRoom(scenario.machines.nodes, self._per_node)
        self.running: dict[int, Job] = {}
        self.emptied: list[int] = []
        self.over: list[Job] = []
        self.before_start: Callable[[Job, int], int] | None = None
        self._shared_links = SharedLinks(scenario, seed)

    # -- the queue ----------------------------------------------------------------------------

    def submit(self, job: Job, now_s: int) -> None:
        """A job comes for the first time, and gets its id."""
        self._n_submitted += 1
        job.number = self._n_submitted
        if job.array is not None:
            job.array.first = job.array.first or job.number
            job.task = job.array.first
        job.task = job.task or job.number
        job.submit_s, job.eligible_s = now_s, max(now_s, job.eligible_s)
        job.limits = self._limits_of(job)
        patience_end_s = now_s + job.patience_s
        is_first = job.array is None or job.array_task == 1
        if is_first and patience_end_s < self._scenario.period.end_s:
            self._calendar.put(patience_end_s, EventKind.IMPATIENT, job.number, job)
        if job.eligible_s > now_s:
            self._delay(job)
        else:
            self.enqueue(job, now_s)

    def _delay(self, job: Job) -> None:
        """A job comes into the queue once it is eligible."""
        self._delayed[job.number] = job
        self._calendar.put(job.eligible_s, EventKind.ARRIVAL, job.number, job)

    def _limits_of(self, job: Job) -> tuple[Limit, ...]:
        found: tuple[Limit, ...] = ()
        if job.array is not None:
            found = array_limits(str(job.array.first), job.array.most_running)
        if self._scenario.quotas:
            user, account = self._owners.users[job.user], self._owners.accounts[job.account]
            qos = self._scenario.priorities[job.priority].name
            found += quota_limits(self._scenario.quotas, job.gpus, user, account, qos)
        return found

    def enqueue(self, job: Job, now_s: int) -> None:
        """A job waits for nodes from now on."""
        self._delayed.pop(job.number, None)
        job.order = self._levels[job.priority]
        if self._shared is not None:
            job.order = self._shared.priority(job, now_s)
        insort(self._queue, _queued(job))
        self.request_pass(now_s)

    def give_up(self, job: Job, now_s: int) -> None:
        """The owner of a job, or of an array, of which nothing has started loses patience."""
        if job.array is not None:
            self._give_up_array(job.array, now_s)
            return
        if job.start_s >= 0 or job.restarts or job.attempt:
            return
        self._queue.remove(_queued(job))
        self._log.attempt(job, STATES[CANCELLED], now_s, now_s=now_s)
        self._is_over(job)

    def _give_up_array(self, array: TaskArray, now_s: int) -> None:
        if array.has_started:
            return
        tasks = [job for *_, job in self._queue if job.array is array]
        self._queue = [entry for entry in self._queue if entry[-1].array is not array]
        tasks.sort(key=lambda job: job.array_task)
        self._log.pending_tasks(tasks, STATES[CANCELLED], now_s, now_s=now_s)

    def waiting(self) -> Iterator[Job]:
        """The jobs in the queue, in its order."""
        return (job for *_, job in self._queue)

    # -- passes over the queue ----------------------------------------------------------------

    def request_pass(self, now_s: int) -> None:
        """Something changed: a pass comes as soon as the interval allows."""
        at_s = max(now_s, self._last_pass_s + self._rules.pass_interval_s)
        if self._next_pass_s < now_s or at_s < self._next_pass_s:
            self._next_pass_s = at_s
            self._calendar.put(at_s, EventKind.PASS, 0)

    def do_pass(self, now_s: int) -> None:
        """Start what can start."""
        if now_s != self._next_pass_s:
            return  # an earlier one was asked for, and has been
        self._next_pass_s, self._last_pass_s = -1, now_s
        if self._shared is not None and now_s >= self._next_order_s:
            self._order_again(self._shared, now_s)
        self._start_in_order(now_s)
        while (head := self._head()) is not None and self._preempt(head, now_s):
            self._start_in_order(now_s)
        # what starts may leave more nodes to others: which are promised is chosen again each time
        while head is not None and self._overtake(head, now_s):
            head = None if head.limits and self._is_held(head) else head

    def _order_again(self, shared: SharedUse, now_s: int) -> None:
        """Compute all priorities, and come again for it while jobs wait."""
        rules = self._scenario.fair_share
        if rules is None:
            return
        shared.recalculate()
        for *_, job in self._queue:
            job.order = shared.priority(job, now_s)
        self._queue = sorted(_queued(job) for *_, job in self._queue)
        self._next_order_s = now_s + rules.calc_interval_s
        if self._queue:
            self._calendar.put(self._next_order_s, EventKind.REMINDER, 0)

    def _is_held(self, job: Job) -> bool:
        """Whether a limit holds a job that has any; it keeps the reason."""
        limit = held_by(job.limits, self._in_use)
        if limit is None:
            return False
        job.reason = limit.reason
        return True

    def _head(self) -> Job | None:
        """The first job of the queue that is not held."""
        for *_, job in self._queue:
            if not (job.limits and self._is_held(job)):
                return job
        return None

    def _start_in_order(self, now_s: int) -> None:
        started = []
        for at, (*_, job) in enumerate(self._queue):
            if job.limits and self._is_held(job):
                continue
            nodes = self._place(self.room.by_free, job.gpus)
            if nodes is None:
                break
            self._start(job, nodes, now_s)
            started.append(at)
        for at in reversed(started):
            del self._queue[at]

    def _overtake(self, head: Job, now_s: int) -> bool:
        """Start what may overtake the first job that is not held."""
        started, n_held = [], 0
        only_now = self._rules.waiting in STARTS_NOW
        waiting = self._eligible(self.room.most_gpus if only_now else math.inf)
        lower: Sequence[Running] = ()
        if self._rules.waiting in PREEMPT_FOR_ANY:
            lower = self._ready_to_go(max((one.level for one in waiting), default=0), now_s)
        for start in self._backfill(waiting, self.room.view(lower, self._victims), now_s):
            job = self._queue[start.place][-1]
            if job.limits and self._is_held(job):
                n_held += 1  # by what has started just before it
                if start.victims:
                    break  # what they leave in the plan may be what the next ones get
                continue
            if not self.room.has(start.nodes, min(job.gpus, self._per_node), start.victims):
                continue  # a plan does not hold the nodes of one that preempts others
            self._preempt_for(job, start.victims, now_s)
            self._start(job, start.nodes, now_s)
            started.append(start.place)
        for at in sorted(started, reverse=True):
            del self._queue[at]
        if n_held or (head.limits and self._is_held(head)):
            self.request_pass(now_s)
        return bool(started)

    def _eligible(self, most_gpus: float = math.inf) -> list[Waiting]:
        """The first jobs of the queue that are not held.

        Args:
            most_gpus: jobs of more GPUs are looked at, but none of them is returned, except the
                first.
        """
        found: list[Waiting] = []
        looked_at = 0
        for at, entry in enumerate(self._queue):
            if looked_at == self._rules.backfill_depth:
                break
            job = entry[-1]
            if job.limits and self._is_held(job):
                continue
            looked_at += 1
            if looked_at == 1 or job.gpus <= most_gpus:
                level = self._levels[job.priority]
                found.append(Waiting(at, job.gpus, job.limit_s, level))
        return found

    def _preempt(self, head: Job, now_s: int) -> bool:
        """Preempt for the first job of the queue that is not held; whether anything was."""
        level = self._levels[head.priority]
        ready = self._ready_to_go(level, now_s)
        waiting = Waiting(0, head.gpus, head.limit_s, level)
        victims = self._victims(waiting, ready, self.room.view()) if ready else []
        self._preempt_for(head, victims, now_s)
        if self._rules.waiting in PREEMPT_FOR_ANY:
            # with fair share the first of the queue may be of a low level
            level = max(level, *(one.level for one in self._eligible()))
        if victims:
            return True
        next_s = self._next_ready_s(level, now_s)
        if next_s < FAR_S and next_s != self._reminder_s:
            self._reminder_s = next_s
            self._calendar.put(next_s, EventKind.REMINDER, 0)
        return False

    def _next_ready_s(self, level: int, now_s: int) -> int:
        """When the next job of a lower level has run for long enough."""
        started_s, last_s = now_s - self._rules.preempt_after_s, FAR_S
        for lower, jobs in self._may_go.items():
            soonest_s = FAR_S
            for one in reversed(jobs.values()) if lower < level else ():
                if one.start_s <= started_s:
                    break
                soonest_s = one.start_s
            last_s = min(last_s, soonest_s)
        return last_s + self._rules.preempt_after_s

    def _lower_than(self, level: int) -> Iterator[Running]:
        """Running jobs of lower levels."""
        found = (jobs.values() for lower, jobs in self._may_go.items() if lower < level)
        return chain.from_iterable(found)

    def _ready_to_go(self, level: int, now_s: int) -> list[Running]:
        """Of those, the ones that have run for long enough to be preempted."""
        if self._rules.preemption == "none":
            return []
        started_s = now_s - self._rules.preempt_after_s
        return [one for one in self._lower_than(level) if one.start_s <= started_s]

    def _preempt_for(self, job: Job, victims: Iterable[int], now_s: int) -> None:
        """Running jobs go back into the queue for one that waits."""
        for number in victims:
            victim = self.running[number]
            self._log.preempted(victim.shown, job.shown, now_s, self._log.next_line())
            self.interrupt(victim, PREEMPTED, now_s, for_job=job.shown)

    # -- starts and ends ----------------------------------------------------------------------

    def _start(self, job: Job, nodes: list[int], now_s: int) -> None:
        on_each = min(job.gpus, self._per_node)
        job.start_s, job.nodes = now_s, tuple(nodes)
        job.attempt += 1
        self.room.take(job.number, nodes, on_each, now_s + job.limit_s)
        if self.before_start is not None and job.gpus >= self._per_node:
            job.checked_s = self.before_start(job, now_s)
        self._hours.advance(now_s)
        self._hours.move(Use.FREE, Use.HELD, job.gpus)
        self.running[job.number] = job
        if job.array is not None:
            job.array.has_started = True
        for limit in job.limits:
            self._in_use[limit.whose] += limit.asks
        if self._shared is not None:
            self._shared.change(job, job.gpus, now_s)
        level = self._levels[job.priority]
        until_s = now_s + job.limit_s
        self._may_go[level][job.number] = Running(
            job.number, level, now_s, job.nodes, on_each, until_s
        )
        length_s = job.work_s - job.saved_s
        if job.gpus >= self._per_node:
            rules = self._scenario.checkpoints
            length_s += writes_to_come_s(
                rules.interval_s, rules.write_s, job.saved_s, job.work_s, job.limit_s
            )
        if self._scenario.links is not None:
            job.slow = self._shared_links.start(job.number, job.nodes, job.task, job.attempt)
            length_s = math.ceil(length_s * job.slow)
        length_s = min(self._restart_s(job) + length_s, job.limit_s)
        if self._comes_back(job):
            length_s = min(length_s, job.requeue_s)
        self._calendar.put(now_s + length_s, EventKind.END, job.number, job.attempt)

    def _comes_back(self, job: Job) -> bool:
        """Whether a job is still to be put back into the queue as it runs."""
        return job.requeue_s > 0 and job.restarts < self._rules.most_requeues

    def _restart_s(self, job: Job) -> int:
        if job.gpus < self._per_node:
            return 0
        return self._scenario.checkpoints.restart_s + job.checked_s

    def _split_s(
        self, job: Job, now_s: int, until_s: int, *, is_whole: bool
    ) -> tuple[int, int, int, int, int]:
        """What an attempt that went on until a time came to, as in `AttemptColumns`.

        Args:
            is_whole: All of its work counts, and not only what is written.
        """
        restart_s = min(self._restart_s(job), now_s - job.start_s)
        passed_s = max(0, until_s - job.start_s - restart_s)
        moved_s = done_s(job.slow, passed_s)
        work_s, kept_s, write_s = moved_s, 0, 0
        if job.gpus >= self._per_node:
            rules = self._scenario.checkpoints
            work_s, kept_s, write_s = work_and_writes_s(
                rules.interval_s, rules.write_s, job.saved_s, moved_s
            )
        saved_s, network_s = work_s if is_whole else kept_s, passed_s - moved_s
        lost_s = now_s - job.start_s - restart_s - saved_s - write_s - network_s
        return saved_s, lost_s, restart_s, write_s, network_s

    def end(self, number: int, attempt: int, now_s: int) -> None:
        """A job ends, is put back or is out of time, unless something came before."""
        job = self.running.get(number)
        if job is None or job.attempt != attempt or job.stuck_s >= 0:
            return
        if self._comes_back(job) and now_s - job.start_s == job.requeue_s:
            job.requeue_s = 0
            self.interrupt(job, REQUEUED, now_s)
            return
        split_s = self._split_s(job, now_s, now_s, is_whole=True)
        state = STATES[job.outcome]
        if job.saved_s + split_s[0] < job.work_s:
            state = STATES[TIMEOUT]
        elif job.outcome == TIMEOUT:
            state = STATES[0]  # what it kept of an interrupted attempt brought it to its end
        self._log.attempt(job, state, now_s, now_s=now_s, split_s=split_s)
        self._free(job, now_s)
        if state == FAILED and (again := next_try(job)) is not None:
            self._calendar.put(now_s, EventKind.ARRIVAL, job.number, again)
        else:
            self._is_over(job)

    def _is_over(self, job: Job) -> None:
        """A job does not come again, unless its owner submits it again."""
        if job.series:
            self.over.append(job)

    def interrupt(
        self,
        job: Job,
        state: str,
        now_s: int,
        *,
        fault: NodeFault | None = None,
        node: int = -1,
        for_job: str | None = None,
    ) -> None:
        """An attempt ends against its owner's wish; the same id is requeued unless it FAILED."""
        until_s = now_s if job.stuck_s < 0 else job.stuck_s
        split_s = self._split_s(job, now_s, until_s, is_whole=False)
        number = 0
        if fault is not None:
            number = fault.number
            fault.attempts_ended += 1
        self._log.attempt(
            job,
            state,
            now_s,
            now_s=now_s,
            split_s=split_s,
            fault=number,
            node=node,
            for_job=for_job,
        )
        self._free(job, now_s)
        job.saved_s += split_s[0]
        if state != FAILED and job.restarts < self._rules.most_requeues:
            self._requeue(job, now_s)
        else:
            self._is_over(job)

    def _requeue(self, job: Job, now_s: int) -> None:
        job.restarts += 1
        # the key of an attempt has whole seconds
        job.submit_s = max(now_s, job.submit_s + 1)
        job.eligible_s = job.submit_s + self._rules.requeue_delay_s
        job.start_s, job.nodes, job.stuck_s, job.reason = -1, (), -1, ""
        self._delay(job)

    def resubmit(self, job: Job, at_s: int) -> None:
        """The owner of a job that has ended submits it under another id, 17r for a replayed 17."""
        if job in self.over:
            self.over.remove(job)
        again = replace(retried(job), saved_s=job.saved_s, label=job.label and f"{job.label}r")
        self._calendar.put(at_s, EventKind.ARRIVAL, job.number, again)

    def _free(self, job: Job, now_s: int) -> None:
        """The nodes of a job are free again."""
        del self.running[job.number]
        self._shared_links.end(job.number)
        for limit in job.limits:
            self._in_use[limit.whose] -= limit.asks
        if self._shared is not None:
            self._shared.change(job, -job.gpus, now_s)
        del self._may_go[self._levels[job.priority]][job.number]
        self._hours.advance(now_s)
        on_each = min(job.gpus, self._per_node)
        n_open = (set_of(job.nodes) & self.room.open).bit_count()
        self._hours.move(Use.HELD, Use.FREE, n_open * on_each)
        closed_gpus = (len(job.nodes) - n_open) * on_each
        self._hours.move(Use.HELD, Use.FREE_DRAINING, closed_gpus)
        self.room.give_back(job.number, list(job.nodes))
        self.emptied += [n for n in job.nodes if self.room.free[n] == self._per_node]
        self.request_pass(now_s)

    # -- nodes, for those who look after their health -----------------------------------------

    def jobs_on(self, node: int) -> list[Job]:
        """The jobs that run on a node, in the order of their numbers."""
        return [self.running[number] for number in sorted(self.room.jobs[node])]

    def is_open(self, node: int) -> bool:
        """Whether a node takes jobs."""
        return bool(self.room.open >> node & 1)

    def free_gpus(self, node: int) -> int:
        """Free GPUs of a node, whether or not it takes jobs."""
        return self.room.free[node]

    def close(self, node: int) -> None:
        """A node takes no more jobs; those that it has stay."""
        self.room.close(node)

    def reopen(self, node: int, now_s: int) -> None:
        """A node takes jobs again."""
        self.room.reopen(node)
        self.request_pass(now_s)

    def still_there(self, now_s: int) -> None:
        """Log what runs and what waits as the simulation ends."""
        for number in sorted(self.running):
            job = self.running[number]
            split_s = self._split_s(job, now_s, now_s, is_whole=True)
            self._log.attempt(job, "RUNNING", None, now_s=now_s, split_s=split_s)
        unbegun: dict[int, list[Job]] = {}
        for job in [*self.waiting(), *self._delayed.values()]:
            if job.array is not None and not job.attempt:
                unbegun.setdefault(job.array.first, []).append(job)
            else:
                self._log.attempt(job, "PENDING", None, now_s=now_s)
        for _, tasks in sorted(unbegun.items()):
            tasks.sort(key=lambda job: job.array_task)
            self._log.pending_tasks(tasks, "PENDING", None, now_s=now_s)


REASON = "JobArrayTaskLimit"
"""What Slurm shows as the reason of a task that is held by its array's own limit."""


def array_limits(array: str, most_running: int) -> tuple[Limit, ...]:
    """The limits that an array sets to each of its tasks.

    Source:
        Slurm's manual, job_array.
    """
    if most_running == 0:
        return ()
    return (Limit(f"array:{array}", most_running, 1, REASON),)


REASONS = {"user": "QOSMaxGRESPerUser", "account": "AssocGrpGRES", "qos": "QOSGrpGRES"}
"""What Slurm shows as the reason of a job that is held by a quota of such a scope."""


def quota_limits(
    quotas: Sequence[Quota], gpus: int, user: str, account: str, qos: str
) -> tuple[Limit, ...]:
    """The limits that quotas set to a job, in the order of the quotas.

    A quota by name takes the place of the one for each of that scope: both would be of the same
    jobs, and count their GPUs twice.
    """
    names = {"user": user, "account": account, "qos": qos}
    own = {one.scope for one in quotas if one.name == names[one.scope]}
    return tuple(
        Limit(f"{one.scope}:{names[one.scope]}", one.most_gpus, gpus, REASONS[one.scope])
        for one in quotas
        if one.name == names[one.scope] or (one.name == EACH and one.scope not in own)
    )


_Whose = tuple[int, ...]
_ALL: _Whose = ()


@dataclass(slots=True)
class _Usage:
    """Faded GPU-seconds until a time, and GPUs held since."""

    gpu_s: float = 0.0
    gpus: int = 0
    until_s: int = 0


class SharedUse:
    """What users and accounts have used, and the priority of a job by it."""

    def __init__(self, scenario: ClusterScenario, rules: FairShare, owners: Owners) -> None:
        self._rules, self._machines = rules, scenario.machines
        self._weights = Weights(
            rules.fair_share_weight, rules.age_weight, rules.job_size_weight, rules.qos_weight
        )
        highest = max(1, *(one.level for one in scenario.priorities))
        self._of_qos = [one.level / highest for one in scenario.priorities]
        shares = {one.name: one.shares for one in scenario.accounts}
        raw = [shares.get(name, 1.0) for name in owners.accounts]
        self._account_share = [one / sum(raw) for one in raw]
        self._members = owners.members
        self._used: dict[_Whose, _Usage] = defaultdict(_Usage)
        self._factors: dict[_Whose, float] = {}

    def change(self, job: Job, gpus: int, now_s: int) -> None:
        """A job takes GPUs, or gives them back (below 0)."""
        for whose in (_ALL, (job.account,), (job.account, job.user)):
            used = self._used[whose]
            used.gpu_s, used.until_s = self._gpu_s(used, now_s), now_s
            used.gpus += gpus

    def recalculate(self) -> None:
        """Forget the factors that were computed for the last period."""
        self._factors.clear()

    def priority(self, job: Job, now_s: int) -> int:
        """The priority of a job that waits."""
        machines, whose = self._machines, (job.account, job.user)
        factor = self._factors.get(whose)
        if factor is None:
            factor = self._factors[whose] = self._factor(job, now_s)
        per_node = machines.gpus_per_node
        return multifactor_priority(
            self._weights,
            Weights(
                fair_share=factor,
                age=age_factor(max(0, now_s - job.eligible_s), self._rules.longest_age_s),
                job_size=size_factor(
                    max(1, job.gpus // per_node) / machines.nodes,
                    job.gpus / (machines.nodes * per_node),
                ),
                qos=self._of_qos[job.priority],
            ),
        )

    def _factor(self, job: Job, now_s: int) -> float:
        everything = self._gpu_s(self._used[_ALL], now_s)
        if everything <= 0.0:
            return 1.0
        of_account = self._gpu_s(self._used[job.account,], now_s) / everything
        of_user = self._gpu_s(self._used[job.account, job.user], now_s) / everything
        part = 1.0 / self._members[job.account]
        share = self._account_share[job.account] * part
        return fair_share_factor(effective_usage(of_user, part, of_account), share)

    def _gpu_s(self, used: _Usage, now_s: int) -> float:
        elapsed_s = now_s - used.until_s
        return decayed_gpu_s(used.gpu_s, used.gpus, elapsed_s, self._rules.half_life_s)


class Weights(NamedTuple):
    """What each factor, from 0 to 1, weighs in the priority."""

    fair_share: float
    age: float
    job_size: float
    qos: float


def decayed_gpu_s(used_gpu_s: float, gpus: int, elapsed_s: float, half_life_s: float) -> float:
    """Usage after a time in which jobs held GPUs, all of it fading by the half-life."""
    kept = float(0.5 ** (elapsed_s / half_life_s))
    return used_gpu_s * kept + gpus * half_life_s / math.log(2.0) * (1.0 - kept)


def effective_usage(usage: float, of_siblings: float, above: float) -> float:
    """Usage of a user or account with its part of what its siblings used."""
    return usage + (above - usage) * of_siblings


def fair_share_factor(effective: float, share: float) -> float:
    """The fair-share factor of a user: 1 without usage, 1/2 where usage is the share, towards 0
    beyond.
    """
    return float(2.0 ** (-effective / share))


def age_factor(waited_s: float, longest_s: float) -> float:
    """The factor of waiting: 1 after the longest time that counts."""
    return min(1.0, waited_s / longest_s)


def size_factor(share_of_nodes: float, share_of_gpus: float) -> float:
    """The factor of size, which favours large jobs."""
    return (share_of_nodes + share_of_gpus) / 2.0


def multifactor_priority(weights: Weights, factors: Weights) -> int:
    """The priority, a whole number; the higher goes first."""
    return int(sum(weight * factor for weight, factor in zip(weights, factors, strict=True)))
