"""The jobs that users submit: sizes, lengths, ends and arrivals, drawn one day at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.sim.cluster.policies import Limit
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import Outcomes
from ettr.sim.cluster.writes import lengths_with_writes_s
from ettr.sim.streams import stream
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

_WEEKEND = 5  # Saturday, counted from Monday
SHORT_OF_TIME = 0.75  # of the length of a job that asked for too little time
COMPLETED, FAILED, CANCELLED, OUT_OF_MEMORY, TIMEOUT = range(5)
STATES = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT")


@dataclass(slots=True)
class TaskArray:
    """Many tasks submitted at once.

    Attributes:
        size: Number of its tasks.
        most_running: That run at once; 0 for no limit.
        first: Its id, the number of its first task; 0 before it is submitted.
        has_started: Whether any of its tasks ever has.
    """

    size: int
    most_running: int
    first: int = 0
    has_started: bool = False


@dataclass(slots=True)
class Job:
    """One job on its way; a resubmission under another id is another one.

    Attributes:
        number: Its id.
        task: What it works on; the same for resubmissions.
        gpus: That it needs.
        work_s: Its length if nothing interrupts it.
        limit_s: Time limit of an attempt.
        outcome: How it ends once its work is done, by the names above.
        user: Number of its owner, from 0.
        priority: Place of its quality of service in the scenario.
        patience_s: Its owner cancels it if it waits longer for its first start.
        submit_s: When this attempt was submitted or requeued.
        eligible_s: When this attempt might have started.
        saved_s: Work that it keeps.
        restarts: How often it has been requeued.
        attempt: Number of its attempt; events of earlier ones are void.
        start_s: When this attempt started; -1 as it waits.
        nodes: Of this attempt.
        stuck_s: When a node of it stopped that nobody has noticed; -1 if none has.
        account: Number of the account that it is charged to, from 0.
        array: Of which it is a task, if it is one.
        array_task: Number of that task.
        label: Its id in the logs from which it is replayed; empty where it is drawn.
        name: That its owner gave it there.
        order: Its priority in the queue; the higher goes first.
        limits: On what runs at once, that hold for it.
        reason: Why it last was held; empty if it never was.
        job_class: Place of its class in the scenario; -1 where it is not drawn, or comes again.
        requeue_s: It is put back into the queue once an attempt has lasted so long; 0 for never.
        later_tries_s: Work of each further try of a crash loop before it fails.
        series: In which its class is submitted one after another; empty for none.
    """

    number: int
    task: int
    gpus: int
    work_s: int
    limit_s: int
    outcome: int
    user: int
    priority: int
    patience_s: int
    submit_s: int
    eligible_s: int
    saved_s: int = 0
    restarts: int = 0
    attempt: int = 0
    start_s: int = -1
    nodes: tuple[int, ...] = ()
    stuck_s: int = -1
    account: int = 0
    array: TaskArray | None = None
    array_task: int = 0
    label: str = ""
    name: str = ""
    order: int = 0
    limits: tuple[Limit, ...] = ()
    reason: str = ""
    job_class: int = -1
    requeue_s: int = 0
    later_tries_s: tuple[int, ...] = ()
    series: str = ""

    @property
    def shown(self) -> str:
        """Its id as the scheduler shows it."""
        if self.array is None:
            return self.label or str(self.number)
        return f"{self.array.first}_{self.array_task}"


class JobColumns(NamedTuple):
    """Jobs as columns, each of shape (jobs,); as in `Job`."""

    gpus: NDArray[np.int64]
    work_s: NDArray[np.int64]
    limit_s: NDArray[np.int64]
    outcome: NDArray[np.int64]
    user: NDArray[np.int64]
    priority: NDArray[np.int64]
    patience_s: NDArray[np.int64]
    submit_s: NDArray[np.int64]
    job_class: NDArray[np.int64]
    requeue_s: NDArray[np.int64]


def jobs_of_day(scenario: ClusterScenario, seed: int, day: int) -> Iterator[Job]:
    """As `columns_of_day`, as jobs whose numbers are 0."""
    columns = columns_of_day(scenario, seed, day)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for gpus, work_s, limit_s, outcome, user, priority, patience_s, submit_s, *more in rows:
        # each might start from the moment on which it is submitted
        yield Job(
            0, 0, gpus, work_s, limit_s, outcome, user, priority, patience_s, submit_s, submit_s,
            account=user % scenario.users.accounts, job_class=more[0], requeue_s=more[1],
            series=scenario.jobs[more[0]].series,
        )  # fmt: skip


def columns_of_day(scenario: ClusterScenario, seed: int, day: int) -> JobColumns:
    """The jobs submitted on one day, in order of time.

    Args:
        scenario: Of the cluster.
        seed: Of the simulation.
        day: Counted from the first, which is 0.
    """
    rng = stream(seed, "jobs", day)
    submit_s = _submissions(scenario, rng, day)
    n = submit_s.size
    classes = chosen(rng, n, [job.share for job in scenario.jobs])
    gpus = np.array([job.gpus for job in scenario.jobs], dtype=np.int64)[classes]
    work_s = lengths_s(scenario, rng, classes)
    ends = scenario.outcomes
    outcome = ends_of(scenario, rng, classes)
    factor = np.exp(rng.random(n) * math.log(ends.longest_limit_factor))
    length_s = with_writes_s(scenario, work_s, gpus)
    limit_s = np.where(
        outcome == TIMEOUT,
        length_s * SHORT_OF_TIME,
        length_s * factor + restart_allowance_s(scenario, gpus),
    )
    limit_s = np.clip(np.ceil(limit_s), 1, scenario.scheduling.longest_job_s).astype(np.int64)
    harmonic = 1.0 / np.arange(1, scenario.users.users + 1)
    user = chosen(rng, n, (harmonic / harmonic.sum()).tolist())
    priority = _priorities(scenario, rng, classes)
    patience_s = rng.standard_exponential(n) * ends.mean_patience_s
    leaves = rng.random(n) < ends.impatient_share
    patience = np.where(leaves, np.minimum(patience_s, 1e12), 1e12).astype(np.int64)
    most_s = np.minimum(length_s, limit_s)
    requeue_s = np.zeros_like(work_s)
    if any(job.requeued_share for job in scenario.jobs):
        requeue_s = _requeues_s(scenario, stream(seed, "requeues", day), classes, most_s)
    return JobColumns(
        gpus, work_s, limit_s, outcome, user, priority, patience, submit_s, classes, requeue_s
    )


def _requeues_s(
    scenario: ClusterScenario,
    rng: np.random.Generator,
    classes: NDArray[np.int64],
    most_s: NDArray[np.int64],
) -> NDArray[np.int64]:
    """After how much of an attempt each job is put back into the queue; 0 for never.

    Args:
        scenario: Of the cluster.
        rng: Of a stream of its own, so that it moves no other draw.
        classes: Of the jobs.
        most_s: What an attempt of each takes at least unless something ends it.
    """
    share = np.array([job.requeued_share for job in scenario.jobs])[classes]
    is_requeued = rng.random(classes.size) < share
    after_s = np.floor(rng.random(classes.size) * most_s).astype(np.int64)
    return np.where(is_requeued, after_s, 0)


def lengths_s(
    scenario: ClusterScenario, rng: np.random.Generator, classes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Lengths of jobs of the classes, whole seconds of 1 or more."""
    sigma = np.array([job.sigma for job in scenario.jobs])[classes]
    mean_s = np.array([job.mean_s for job in scenario.jobs])[classes]
    exponential = np.array([job.law == "exponential" for job in scenario.jobs])[classes]
    n = classes.size
    spread = np.exp(sigma * rng.standard_normal(n) - sigma * sigma / 2.0)
    length_s = mean_s * np.where(exponential, rng.standard_exponential(n), spread)
    made: NDArray[np.int64] = np.maximum(1, np.rint(length_s)).astype(np.int64)
    return made


def ends_of(
    scenario: ClusterScenario, rng: np.random.Generator, classes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How jobs of the classes end once their work is done, by the numbers above."""
    shares = [outcome_shares(scenario.outcomes.of(job)) for job in scenario.jobs]
    edges = np.cumsum(shares, axis=1)[classes]
    # as `chosen` does for each class
    places = (edges <= (rng.random(classes.size) * edges[:, -1])[:, None]).sum(axis=1)
    made: NDArray[np.int64] = np.minimum(places, len(STATES) - 1).astype(np.int64)
    return made


def outcome_shares(ends: Outcomes) -> list[float]:
    """Shares of the ends, in the order of their numbers."""
    shares = [ends.failed_share, ends.cancelled_share, ends.out_of_memory_share]
    shares.append(ends.timeout_share)
    return [1.0 - sum(shares), *shares]


def restart_allowance_s(scenario: ClusterScenario, gpus: NDArray[np.int64]) -> NDArray[np.float64]:
    """Time that owners of jobs of whole nodes allow for one restart."""
    whole = gpus >= scenario.machines.gpus_per_node
    return np.where(whole, float(scenario.checkpoints.restart_s), 0.0)


def with_writes_s(
    scenario: ClusterScenario, work_s: NDArray[np.int64], gpus: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Lengths of jobs that nothing interrupts, their writes of checkpoints among them."""
    is_whole = gpus >= scenario.machines.gpus_per_node
    return lengths_with_writes_s(scenario.checkpoints, work_s, is_whole)


def _submissions(
    scenario: ClusterScenario, rng: np.random.Generator, day: int
) -> NDArray[np.int64]:
    """Times of submission on one day, in seconds from the beginning, ascending."""
    arrivals = scenario.arrivals
    is_weekend = (scenario.period.origin.weekday() + day) % 7 >= _WEEKEND
    mean_factor = (5.0 + 2.0 * arrivals.weekend_factor) / 7.0
    of_day = (arrivals.weekend_factor if is_weekend else 1.0) / mean_factor
    hours = np.arange(24)
    wave = np.cos((hours - arrivals.peak_hour) / 24.0 * 2.0 * math.pi)
    per_hour = arrivals.jobs_per_day / 24.0 * of_day * (1.0 + arrivals.day_amplitude * wave)
    counts = rng.poisson(per_hour)
    begins = day * SECONDS_PER_DAY + np.repeat(hours, counts) * SECONDS_PER_HOUR
    times = np.sort(begins + rng.random(begins.size) * SECONDS_PER_HOUR).astype(np.int64)
    return times[times < scenario.period.end_s]


def chosen(rng: np.random.Generator, n: int, shares: list[float]) -> NDArray[np.int64]:
    """Which of several, each drawn in proportion to its share, shape (n,)."""
    edges = np.cumsum(shares)
    places = np.searchsorted(edges, rng.random(n) * edges[-1], side="right")
    made: NDArray[np.int64] = np.minimum(places, edges.size - 1).astype(np.int64)
    return made


def geometric(mean: float, uniform: float) -> int:
    """A number of 1 or more with that mean, geometric, at a quantile."""
    if mean <= 1.0:
        return 1
    return 1 + int(math.log1p(-uniform) / math.log1p(-1.0 / mean))


def _priorities(
    scenario: ClusterScenario, rng: np.random.Generator, classes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places of the jobs' qualities of service, drawn for all so that each keeps its own draw."""
    n = classes.size
    shared = chosen(rng, n, [one.share_of_shared for one in scenario.priorities])
    gangs = chosen(rng, n, [one.share_of_gangs for one in scenario.priorities])
    gpus = np.array([job.gpus for job in scenario.jobs])[classes]
    drawn = np.where(gpus < scenario.machines.gpus_per_node, shared, gangs)
    places = {one.name: place for place, one in enumerate(scenario.priorities)}
    of_class = np.array([places.get(job.priority, -1) for job in scenario.jobs])[classes]
    return np.where(of_class < 0, drawn, of_class)
