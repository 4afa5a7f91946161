"""The jobs that users submit: sizes, lengths, ends and arrivals, drawn one day at a time."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from ettr.sim.cluster.policies import Limit
from ettr.sim.cluster.scenario import ClusterScenario, Owners
from ettr.sim.cluster.scenario_parts import ArrayClass, Outcomes
from ettr.sim.engine import stream
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import counted

_WEEKEND = 5  # Saturday, counted from Monday
SHORT_OF_TIME = 0.75  # of the length of a job that asked for too little time
_MOST_WRITES = 10**13
"""Their time is a whole number of 64 bits; such a job runs into any time limit."""
COMPLETED, FAILED, CANCELLED, OUT_OF_MEMORY, TIMEOUT = range(5)
STATES = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT")


@dataclass(slots=True)
class TaskArray:
    """Many tasks submitted at once."""

    size: int
    most_running: int
    first: int = 0
    has_started: bool = False


@dataclass(slots=True)
class Job:
    """One job on its way; a resubmission under another id is another one.

    Attributes:
        user: Number of its owner, from 0.
        patience_s: Its owner cancels it if it waits longer for its first start.
        start_s: When this attempt started; -1 as it waits.
        stuck_s: When a node of it stopped that nobody has noticed; -1 if none has.
        job_class: Place of its class in the scenario; -1 where it is not drawn, or comes again.
        later_tries_s: Work of each further try of a crash loop before it fails.
        checked_s: For which this attempt waits for checks of its nodes.
        slow: By how much bad and shared links slow this attempt, 1 for not at all.
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
    checked_s: int = 0
    slow: float = 1.0

    @property
    def shown(self) -> str:
        """Its id as the scheduler shows it."""
        if self.array is None:
            return self.label or str(self.number)
        return f"{self.array.first}_{self.array_task}"


class JobColumns(NamedTuple):
    """Jobs as columns, each of shape (jobs,); as in `Job`, in the order of the loop's feed."""

    gpus: NDArray[np.int64]
    work_s: NDArray[np.int64]
    limit_s: NDArray[np.int64]
    outcome: NDArray[np.int64]
    user: NDArray[np.int64]
    account: NDArray[np.int64]
    priority: NDArray[np.int64]
    patience_s: NDArray[np.int64]
    requeue_s: NDArray[np.int64]
    submit_s: NDArray[np.int64]
    job_class: NDArray[np.int64]


def jobs_of_day(scenario: ClusterScenario, seed: int, day: int) -> Iterator[Job]:
    """As `columns_of_day`, as jobs whose numbers are 0."""
    columns = columns_of_day(scenario, seed, day)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        gpus, work_s, limit_s, outcome, user, account, priority, patience_s, *more = row
        requeue_s, at_s, job_class = more
        job = Job(0, 0, gpus, work_s, limit_s, outcome, user, priority, patience_s, at_s, at_s)
        job.account, job.requeue_s, job.job_class = account, requeue_s, job_class
        job.series = scenario.jobs[job_class].series
        yield job


def columns_of_day(scenario: ClusterScenario, seed: int, day: int) -> JobColumns:
    """The jobs submitted on one day, in order of time."""
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
    owner = (user, user % scenario.users.accounts)
    asked = (gpus, work_s, limit_s, outcome, *owner, priority, patience, requeue_s)
    return JobColumns(*asked, submit_s, classes)


def _requeues_s(
    scenario: ClusterScenario,
    rng: np.random.Generator,
    classes: NDArray[np.int64],
    most_s: NDArray[np.int64],
) -> NDArray[np.int64]:
    """After how much of an attempt each job is put back into the queue; 0 for never."""
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
    rules = scenario.checkpoints
    if not rules.write_s:
        return work_s
    is_whole = gpus >= scenario.machines.gpus_per_node
    writes = np.where(is_whole, np.maximum(0, (work_s - 1) // rules.interval_s), 0)
    made: NDArray[np.int64] = work_s + np.minimum(writes, _MOST_WRITES) * rules.write_s
    return made


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


def with_crash_loops(
    scenario: ClusterScenario, seed: int, day: int, jobs: Iterable[Job]
) -> Iterator[Job]:
    """The jobs of a day, those that begin a crash loop with all of its tries.

    The number of tries is 2 or more, geometric. Each try does exponential work before it fails,
    and never more than the job would have done: it fails within the time limit that was asked for.
    """
    ends = scenario.outcomes
    if not ends.crash_loop_share:
        yield from jobs
        return
    drawn = list(jobs)
    rng = stream(seed, "crash loops", day)
    loops, tries = rng.random(len(drawn)), rng.random(len(drawn))
    for i, job in enumerate(drawn):
        if job.outcome == FAILED and loops[i] < ends.crash_loop_share:
            n_tries = 1 + geometric(ends.mean_crash_loop_tries - 1.0, float(tries[i]))
            # a stream for each job: more tries of one move no draw of another
            of_job = stream(seed, f"crash loop of day {day}", i)
            fails_s = of_job.standard_exponential(n_tries) * ends.mean_crash_loop_s
            works_s = [max(1, round(min(one, job.work_s))) for one in fails_s.tolist()]
            job.work_s, job.later_tries_s = works_s[0], tuple(works_s[1:])
        yield job


def next_try(job: Job) -> Job | None:
    """The job that the owner of a failed one submits, under another id; None if he gives up."""
    if not job.later_tries_s:
        return None
    work_s, *later_s = job.later_tries_s
    return replace(retried(job), work_s=work_s, later_tries_s=tuple(later_s))


def retried(job: Job) -> Job:
    """The job as its owner submits it under another id, with nothing of what it came to."""
    asked = (job.gpus, job.work_s, job.limit_s, job.outcome, job.user, job.priority)
    made = Job(0, job.task, *asked, job.patience_s, 0, 0, account=job.account, name=job.name)
    made.later_tries_s, made.series = job.later_tries_s, job.series
    return made


MOST_TASKS = 4_000_000
"""As many as Slurm's MaxArraySize can be."""


def with_tasks(
    scenario: ClusterScenario, seed: int, day: int, jobs: Iterable[Job]
) -> Iterator[Job]:
    """The jobs of a day, those that are arrays as their tasks."""
    if not scenario.arrays:
        yield from jobs
        return
    kinds = {one.gpus: one for one in scenario.arrays}
    singles = list(jobs)
    rng = stream(seed, "arrays", day)
    is_array, sizes = rng.random(len(singles)), rng.random(len(singles))
    for i, job in enumerate(singles):
        kind = kinds.get(job.gpus)
        if kind is None or is_array[i] >= kind.share:
            yield job
        else:
            n_tasks = min(geometric(kind.mean_tasks, float(sizes[i])), MOST_TASKS)
            # a stream for each job: whether another one is an array moves no task of it
            of_job = stream(seed, f"array of day {day}", i)
            yield from _tasks(scenario, job, kind, n_tasks, of_job)


def _tasks(
    scenario: ClusterScenario, job: Job, kind: ArrayClass, n: int, rng: np.random.Generator
) -> Iterator[Job]:
    """Tasks of one array: lengths and ends of their own, one limit that their owner chose."""
    work_s = lengths_s(scenario, rng, np.full(n, job.job_class))
    outcome = ends_of(scenario, rng, np.full(n, job.job_class))
    length_s = with_writes_s(scenario, work_s, np.full(n, job.gpus))
    limit_s = _limit_s(scenario, rng, job, length_s, outcome == TIMEOUT)
    too_long = np.maximum(work_s, math.ceil(limit_s / SHORT_OF_TIME))
    work_s = np.where(outcome == TIMEOUT, too_long, work_s)
    array = TaskArray(n, kind.most_running)
    single = replace(job, limit_s=limit_s, array=array, requeue_s=0, later_tries_s=())
    columns = (work_s.tolist(), outcome.tolist())
    for k, (task_work_s, task_outcome) in enumerate(zip(*columns, strict=True)):
        yield replace(single, work_s=task_work_s, outcome=task_outcome, array_task=k + 1)


def _limit_s(
    scenario: ClusterScenario,
    rng: np.random.Generator,
    job: Job,
    length_s: NDArray[np.int64],
    asks_too_little: NDArray[np.bool_],
) -> int:
    """So many times the longest task that is to come to its end."""
    factor = math.exp(rng.random() * math.log(scenario.outcomes.longest_limit_factor))
    fits = length_s[~asks_too_little]
    longest_s = float(fits.max()) if fits.size else float(length_s.max()) * SHORT_OF_TIME
    allowed_s = longest_s * factor + float(restart_allowance_s(scenario, np.array([job.gpus]))[0])
    return max(1, min(math.ceil(allowed_s), scenario.scheduling.longest_job_s))


def shown_tasks(tasks: Sequence[int], most_running: int) -> str:
    """Tasks of an array that have not begun, as Slurm writes them: `[1-3,7%2]`."""
    runs = []
    for _, run in groupby(enumerate(tasks), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    limit = f"%{most_running}" if most_running else ""
    return f"[{','.join(runs)}{limit}]"


# -- jobs and faults that are replayed from the logs of a cluster instead of drawn -----------------


_NEVER_S = 10**12


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """One job of the logs; times in seconds from the beginning of the simulation."""

    job_id: str
    name: str
    submit_s: int
    eligible_s: int
    gpus: int
    work_s: int
    limit_s: int
    outcome: int
    user: int
    account: int
    priority: int


@dataclass(frozen=True, slots=True)
class ReplayedFault:
    """One fault of the logs.

    Attributes:
        repair_s: How long the repair took; None where no log says, and it is drawn.
    """

    time_s: int
    node: int
    symptom: str
    repair_s: int | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed, and from where."""

    jobs: tuple[ReplayedJob, ...] | None = None
    owners: Owners | None = None
    faults: tuple[ReplayedFault, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def what(self) -> tuple[str, ...]:
        """What is replayed: jobs, faults, both, or neither."""
        return tuple(name for name in ("jobs", "faults") if getattr(self, name) is not None)

    @property
    def digest(self) -> str:
        """SHA-256 of what is replayed."""
        return hashlib.sha256(repr((self.jobs, self.owners, self.faults)).encode()).hexdigest()


DRAWN = Replay()
"""Nothing is replayed."""


def replayed_jobs(jobs: tuple[ReplayedJob, ...], end_s: int) -> Iterator[Job]:
    """The jobs that are submitted before the end, as the scheduler takes them."""
    for one in jobs:
        if one.submit_s >= end_s:
            return
        yield Job(
            0,
            0,
            one.gpus,
            one.work_s,
            one.limit_s,
            one.outcome,
            one.user,
            one.priority,
            _NEVER_S,
            one.submit_s,
            one.eligible_s,
            account=one.account,
            label=one.job_id,
            name=one.name,
        )


WRONG_BLAME, WRITES = "blame on the wrong node", "checkpoint stalls"
CONTENTION = "network contention"
"""Simulated where the scenario gives a chance, the time of a write, or links."""
NOT_SIMULATED = (
    *("placement by switch", CONTENTION, WRITES, "progress records"),
    *(WRONG_BLAME, "users who react to failures"),
)


def not_simulated(scenario: ClusterScenario) -> tuple[str, ...]:
    """What a scenario leaves out."""
    has = {
        WRONG_BLAME: scenario.checks.wrong_node_chance > 0,
        WRITES: scenario.checkpoints.write_s > 0,
        CONTENTION: scenario.links is not None,
    }
    return tuple(one for one in NOT_SIMULATED if not has.get(one))


def not_simulated_lines(left_out: Sequence[str]) -> tuple[str, ...]:
    """The same for a reader, as a sentence or none."""
    return (f"Not simulated: {', '.join(left_out)}.",) if left_out else ()


def free_writes(
    scenario: ClusterScenario, changed: Sequence[tuple[str, ClusterScenario]]
) -> tuple[str, ...]:
    """A warning where checkpoints come more or less often, and cost nothing."""
    free = [
        change
        for change, other in changed
        if other.checkpoints.interval_s != scenario.checkpoints.interval_s
        and not other.checkpoints.write_s
    ]
    if not free:
        return ()
    return (
        f"CHECKPOINTS COST NOTHING in {', '.join(free)}: checkpoints.write_s is 0, so that a "
        "shorter interval always wins; give the time that a write holds up a job, such as "
        "checkpoints.write_s=10.",
    )


def overfull_series(
    scenarios: Sequence[ClusterScenario], replay: Replay = DRAWN
) -> tuple[str, ...]:
    """A warning for each series whose runs take more time than there is, so that most never come.

    Runs come one at a time: by their mean lengths alone, without waits and restarts, more than a
    day of them is submitted each day.
    """
    if replay.jobs is not None:
        return ()
    found: dict[str, float] = {}
    for scenario in scenarios:
        busy: dict[str, float] = defaultdict(float)
        for job in scenario.jobs:
            if job.series:
                per_day = scenario.arrivals.jobs_per_day * job.share
                busy[job.series] += per_day * job.mean_s / SECONDS_PER_DAY
        for name, days in busy.items():
            found[name] = max(found.get(name, 0.0), days)
    return tuple(
        f"THE SERIES {name} FALLS BEHIND: each day {days:.3g} days of its runs are to come, one "
        "after another, so that many are never submitted and their GPU-hours are missing; give "
        "fewer or shorter runs, or more than one series."
        for name, days in found.items()
        if days >= 1.0
    )


BY_JOBS: Mapping[str, tuple[str, ...]] = {
    "arrivals": (),
    "jobs": (),
    "outcomes": (),
    "users": (),
    "arrays": (),
    "priorities": ("share_of_shared", "share_of_gangs"),
    "scheduling": ("longest_job_s",),
}
"""Groups of which replayed jobs take the place, and their values; none for all of the group."""
BY_FAULTS: Mapping[str, tuple[str, ...]] = {
    "bursts": (),
    "rate_changes": (),
    "lemons": (),
    "checks": (
        "false_high_per_node_day",
        "false_low_per_node_day",
        "false_repair_mean_s",
        "policy",
    ),
    "faults": (
        *("law", "form", "per_1000_node_days", "as_new_share", "from_day", "to_day", "latent_s"),
    ),
    "node_checks": (),
    "machines": ("nodes_per_rack", "racks_per_pod"),  # only bursts ask where a node stands
}
"""The same of replayed faults."""
OF_REPAIRS = ("repair_mean_s", "repair_sigma")
"""Values of a fault process that hold where no log shows the repair."""


def replaced_by(replay: Replay, group: str, name: str, symptom: str = "") -> str:
    """Why a value has no effect under a replay; empty where it has one."""
    if replay.jobs is not None and _is_in(BY_JOBS, group, name):
        return "the replayed jobs decide it"
    if replay.faults is None:
        return ""
    if _is_in(BY_FAULTS, group, name):
        return "the replayed faults decide it"
    if group != "faults":
        return ""
    own, drawn = repairs_of(replay, symptom)
    if not own:
        return "no fault of that symptom is replayed"
    if name in OF_REPAIRS and not drawn:
        return "the replayed faults have their repairs"
    return ""


def repairs_of(replay: Replay, *symptoms: str) -> tuple[int, int]:
    """Replayed faults of some symptoms, and those of them whose repair no log shows."""
    found = Counter(one.repair_s is None for one in replay.faults or () if one.symptom in symptoms)
    return found.total(), found[True]


def check_replay(scenario: ClusterScenario, replay: Replay) -> None:
    """Check that the nodes of a scenario can have what is replayed.

    Raises:
        UsageError: there are too few nodes for it, or a job is of parts of several nodes.
    """
    nodes, per_node = scenario.machines.nodes, scenario.machines.gpus_per_node
    most = max((one.node + 1 for one in replay.faults or ()), default=0)
    if most > nodes:
        raise UsageError(
            f"machines.nodes: {nodes:,}; faults of {most:,} nodes are replayed: give as many or "
            "more, or draw the faults"
        )
    sizes = {one.gpus for one in replay.jobs or ()}
    if larger := [size for size in sizes if size > nodes * per_node]:
        raise UsageError(
            f"machines: {counted(nodes * per_node, 'GPU')}; replayed jobs ask for up to "
            f"{max(larger):,}: give as many or more, or draw the jobs"
        )
    if parts := sorted(size for size in sizes if size > per_node and size % per_node):
        raise UsageError(
            f"machines.gpus_per_node: {per_node}; replayed jobs ask for {parts[0]:,} GPUs, more "
            "than a node and no whole nodes: give another number, or draw the jobs"
        )


def repairs_note(change: str, replay: Replay, symptoms: tuple[str, ...]) -> str:
    """What a change of repairs leaves as it was; empty where that is nothing."""
    known, drawn = repairs_of(replay, *symptoms)
    if replay.faults is None or known == drawn:
        return ""
    return (
        f"{change} changes {counted(drawn, 'repair')} that no log shows; the other "
        f"{known - drawn:,} are those that happened."
    )


def _is_in(table: Mapping[str, tuple[str, ...]], group: str, name: str) -> bool:
    return group in table and (not table[group] or name in table[group])
