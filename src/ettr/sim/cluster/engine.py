"""A simulated cluster from its first moment to its last.

Events happen in one order: by time, then by kind (`EventKind`), then by the number of the node or
job. A job that is submitted comes after one that is requeued at the same moment.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import cast

import pyarrow as pa

from ettr.sim.cluster.health import Health, Jobs
from ettr.sim.cluster.log import Hours, SiteLog, fault_rows, node_rows
from ettr.sim.cluster.play import EVENTS_A_STEP
from ettr.sim.cluster.room import Calendar, Event, EventKind
from ettr.sim.cluster.scenario import ClusterScenario, check_owners, owners_of
from ettr.sim.cluster.scheduler import Scheduler
from ettr.sim.cluster.workload import (
    DRAWN,
    Job,
    Replay,
    ReplayedFault,
    jobs_of_day,
    replayed_jobs,
    with_crash_loops,
    with_tasks,
)


@dataclass(slots=True)
class Tally:
    """Events that happened, and jobs (tasks of arrays too) submitted under an id of their own."""

    events: int = 0
    jobs: int = 0


class ClusterRun:
    """One run of a scenario: the nodes and what is known at its end, however its jobs are run."""

    def __init__(
        self,
        scenario: ClusterScenario,
        seed: int,
        calendar: Calendar,
        jobs: Jobs,
        hours: Hours,
        log: SiteLog,
        replayed: Sequence[ReplayedFault] | None,
    ) -> None:
        self._scenario, self._seed = scenario, seed
        self._calendar, self._hours, self.log = calendar, hours, log
        self._health = Health(scenario, seed, calendar, jobs, hours, log, replayed)

    def truth(self) -> dict[str, pa.Table]:
        """What truly happened, by the name of the table."""
        faults = self._health.maker.made
        return {
            "faults": fault_rows(faults, self.log.names, self.log.at),
            "attempts": self.log.true_attempts(faults),
            "nodes": node_rows(self._scenario, self.log.names, self._health.lemons),
            "hours": self._hours.table(),
        }


class SimulatedCluster(ClusterRun):
    """One run of a scenario, its jobs as objects: it knows all rules."""

    def __init__(
        self, scenario: ClusterScenario, seed: int, file_id: str, replay: Replay = DRAWN
    ) -> None:
        owners = replay.owners or owners_of(scenario)
        check_owners(scenario, owners)
        calendar, log = Calendar(), SiteLog(scenario, file_id, owners)
        hours = Hours(scenario.machines.nodes, scenario.machines.gpus_per_node)
        self._scheduler = Scheduler(scenario, owners, calendar, hours, log, seed)
        super().__init__(scenario, seed, calendar, self._scheduler, hours, log, replay.faults)
        self._replay, self._turns, self.tally = replay, Turns(), Tally()
        # of replayed faults none is hidden, and no check can find it
        if scenario.checks.policy != "none" and replay.faults is None:
            self._scheduler.before_start = self._health.check_before

    def play(self) -> Iterator[None]:
        """Run to the end, and pause now and then, so that what was logged can be taken."""
        self.log.inventory()
        end_s = self._scenario.period.end_s
        last = Job(0, 0, 1, 1, 1, 0, 0, 0, 0, end_s, end_s)
        for job in chain(self._submitted(), (last,)):
            while event := self._calendar.next_before(job.submit_s, EventKind.ARRIVAL):
                if event[0] >= end_s:
                    break
                self._happen(event)
                if self.tally.events % EVENTS_A_STEP == 0:
                    yield
            if job is not last:
                self.tally.events += 1
                self._submit(job, job.submit_s)
        self._hours.advance(end_s)
        self._scheduler.still_there(end_s)
        self._health.still_there(end_s)
        yield

    def _submitted(self) -> Iterator[Job]:
        if self._replay.jobs is not None:
            return replayed_jobs(self._replay.jobs, self._scenario.period.end_s)
        days = range(ceil(self._scenario.period.days))
        one, seed = self._scenario, self._seed
        return chain.from_iterable(
            with_tasks(
                one, seed, day, with_crash_loops(one, seed, day, jobs_of_day(one, seed, day))
            )
            for day in days
        )

    def _happen(self, event: Event) -> None:
        now_s, kind, number, _, about = event
        self.tally.events += 1
        match kind:
            case EventKind.END:
                self._scheduler.end(number, cast(int, about), now_s)
            case EventKind.ARRIVAL:
                self._arrive(cast(Job, about), now_s)
            case EventKind.PASS:
                self._scheduler.do_pass(now_s)
            case EventKind.REMINDER:
                self._scheduler.request_pass(now_s)
            case EventKind.IMPATIENT:
                self._scheduler.give_up(cast(Job, about), now_s)
            case _:
                self._health.happen(EventKind(kind), number, about, now_s)
        if self._scheduler.emptied:
            emptied, self._scheduler.emptied = self._scheduler.emptied, []
            self._health.look_at(emptied, now_s)
        if self._scheduler.over:
            over, self._scheduler.over = self._scheduler.over, []
            for job in over:
                if (following := self._turns.next_after(job)) is not None:
                    self._submit(following, now_s)

    def _arrive(self, job: Job, now_s: int) -> None:
        """A requeued job is eligible again, or one is submitted again under another id."""
        if job.number:
            self._scheduler.enqueue(job, now_s)
        else:
            self._submit(job, now_s)

    def _submit(self, job: Job, now_s: int) -> None:
        if job.series and not self._turns.is_turn_of(job):
            return
        self.tally.jobs += 1
        self._scheduler.submit(job, now_s)
        if job.series:
            self._turns.take(job)


class Turns:
    """Whose turn it is in each series.

    A turn belongs to what a job works on: it is kept while the job is requeued, or submitted again
    under another id. Whoever would have come meanwhile waits unsubmitted, in order of time.
    """

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self._unsubmitted: dict[str, deque[Job]] = defaultdict(deque)

    def is_turn_of(self, job: Job) -> bool:
        """Whether a job may be submitted now; otherwise `next_after` gives it in its turn."""
        holder = self._holders.get(job.series)
        if holder is None or holder == job.task:
            return True
        self._unsubmitted[job.series].append(job)
        return False

    def take(self, job: Job) -> None:
        """A job of a series has been submitted."""
        self._holders[job.series] = job.task

    def next_after(self, job: Job) -> Job | None:
        """The job that comes as one is over; None if none waits."""
        del self._holders[job.series]
        waiting = self._unsubmitted[job.series]
        return waiting.popleft() if waiting else None
