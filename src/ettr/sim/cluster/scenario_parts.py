"""The groups of values that make a cluster to simulate, each as plain values with units."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from ettr.units import SECONDS_PER_DAY

QUOTA_SCOPES = ("user", "account", "qos")
EACH = "*"
WEIGHTS = ("fair_share_weight", "age_weight", "job_size_weight", "qos_weight")
MOST_MEAN_TASKS = 1e5
MOST_WEIGHT = 2.0**30
"""Priorities of Slurm are below 2^32."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Most GPUs that run at once for one user, account or quality of service.

    A quota by name takes the place of the one for each of its scope, as an association's own limit
    does in Slurm: it may be larger or smaller.

    Attributes:
        scope: Whose jobs count together: those of a user, an account or a qos.
        name: Of it, or * for each of them, which then has such a quota of its own.
        most_gpus: That its running jobs hold together.
    """

    scope: str
    name: str
    most_gpus: int


@dataclass(frozen=True, slots=True)
class FairShare:
    """The queue goes by Slurm's multifactor priority; preemption still goes by levels.

    Attributes:
        half_life_s: After which usage counts half (PriorityDecayHalfLife).
        calc_interval_s: Between two computations of all priorities (PriorityCalcPeriod).
        longest_age_s: Wait beyond which the priority rises no more (PriorityMaxAge).
        fair_share_weight: Of usage against shares (PriorityWeightFairshare), as the others.
        age_weight: Of the wait.
        job_size_weight: Of size, which favours large jobs.
        qos_weight: Of the level over the highest one.
    """

    half_life_s: float
    calc_interval_s: int
    longest_age_s: float
    fair_share_weight: float
    age_weight: float
    job_size_weight: float
    qos_weight: float


@dataclass(frozen=True, slots=True)
class AccountShares:
    """Shares of an account; one that has no entry has 1. Users share their account equally."""

    name: str
    shares: float


@dataclass(frozen=True, slots=True)
class ArrayClass:
    """Submissions of one size that are job arrays.

    Attributes:
        gpus: Of each task; that of an entry in [[jobs]].
        share: Of the submissions of that size, whichever class they are of; tasks have the lengths
            of the class of their submission, and its priority if it has one.
        mean_tasks: Mean number of tasks; geometric, 1 or more.
        most_running: Tasks of one array that run at once, N of Slurm's `%N`; 0 for no limit.
    """

    gpus: int
    share: float
    mean_tasks: float
    most_running: int


def problems_of_arrays(arrays: Sequence[ArrayClass], sizes: Collection[int]) -> Iterator[str]:
    """What cannot be, a sentence each."""
    if len({one.gpus for one in arrays}) < len(arrays):
        yield "arrays.gpus: a size has one entry"
    for one in arrays:
        if one.gpus not in sizes:
            known = ", ".join(f"{size:,}" for size in sorted(set(sizes)))
            yield f"arrays.gpus: {one.gpus}; [[jobs]] has no entry of that size; it has {known}"
        if not 1.0 <= one.mean_tasks <= MOST_MEAN_TASKS:
            yield f"arrays.mean_tasks: {one.mean_tasks:g}; give 1 to {MOST_MEAN_TASKS:,.0f}"


def problems_of_shares(
    rules: FairShare | None, accounts: Sequence[AccountShares], levels: Sequence[int]
) -> Iterator[str]:
    """What cannot be, a sentence each."""
    names = [one.name for one in accounts]
    if len(set(names)) < len(names):
        yield "accounts.name: an account has one entry"
    if not all(one.shares > 0 for one in accounts):
        yield "accounts.shares: give a number above 0"
    if rules is None:
        if accounts:
            yield "accounts: shares are of no use without [fair_share]"
        return
    for name in ("half_life_s", "calc_interval_s", "longest_age_s"):
        if not getattr(rules, name) >= 1:
            yield f"fair_share.{name}: {getattr(rules, name):g}; give 1 second or more"
    for name in WEIGHTS:
        if getattr(rules, name) > MOST_WEIGHT:
            yield f"fair_share.{name}: give at most {MOST_WEIGHT:,.0f}"
    if rules.qos_weight and min(levels, default=0) < 0:
        yield "fair_share.qos_weight: goes with priorities.level of 0 or more"


def problems_of_quotas(quotas: Sequence[Quota], priorities: Collection[str]) -> Iterator[str]:
    """What cannot be, a sentence each."""
    known = {(one.scope, one.name) for one in quotas}
    if len(known) < len(quotas):
        yield "quotas: a user, account or qos has one quota"
    for one in quotas:
        if one.scope not in QUOTA_SCOPES:
            yield f"quotas.scope: {one.scope!r}; give one of {', '.join(QUOTA_SCOPES)}"
        elif one.scope == "qos" and one.name not in (EACH, *priorities):
            yield f"quotas.name: {one.name!r} has no entry in [[priorities]]"
        if one.most_gpus < 1:
            yield f"quotas.most_gpus: {one.most_gpus}; give 1 or more"


@dataclass(frozen=True, slots=True)
class SimulatedPeriod:
    """What is simulated; the cluster begins empty.

    Attributes:
        start: First day, such as 2026-01-05, at midnight UTC.
        days: Length.
    """

    start: str
    days: float

    @property
    def origin(self) -> datetime:
        """The first moment. Raises ValueError: the start is no day."""
        return datetime.combine(date.fromisoformat(self.start), time(), UTC)

    @property
    def end_s(self) -> int:
        """Length in seconds."""
        return round(self.days * SECONDS_PER_DAY)


@dataclass(frozen=True, slots=True)
class Machines:
    """The nodes: all alike, in racks of one size, racks in pods."""

    nodes: int
    gpus_per_node: int
    nodes_per_rack: int
    racks_per_pod: int
    gpu_type: str

    def rack_of(self, node: int) -> int:
        """Number of a node's rack."""
        return node // self.nodes_per_rack

    def pod_of(self, node: int) -> int:
        """Number of a node's pod."""
        return self.rack_of(node) // self.racks_per_pod


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What the scheduler does.

    Attributes:
        waiting: What may start while the first job of the queue does not fit (`WAITING`).
        preemption: Whose nodes that job takes (`PREEMPTION`), and with policies of
            `PREEMPT_FOR_ANY` any other that waits. With newest-first one of up to a whole node
            takes what one other job holds at most.
        pass_interval_s: Between two passes over the queue at least; 0 for a pass at every event.
        backfill_depth: Waiting jobs that a pass looks at.
        preempt_after_s: A job that ran for less is not preempted.
        longest_job_s: Largest time limit.
        requeue_delay_s: From the end of an attempt until the same job may start again.
        most_requeues: A job that was interrupted more often is not requeued.
    """

    waiting: str
    preemption: str
    pass_interval_s: int
    backfill_depth: int
    preempt_after_s: int
    longest_job_s: int
    requeue_delay_s: int
    most_requeues: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When jobs are submitted: a Poisson process whose rate has a day and a week.

    Attributes:
        jobs_per_day: Mean over a week.
        day_amplitude: Of the sine of the hour; 0 for none, below 1.
        weekend_factor: Rate on Saturday and Sunday over that of the other days.
        peak_hour: Hour of the day, UTC, with the highest rate: 15 is from 15:00 to 16:00. The rate
            is constant from each full hour to the next.
    """

    jobs_per_day: float
    day_amplitude: float
    weekend_factor: float
    peak_hour: float = 15.0


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one size; a size may have several classes.

    Attributes:
        gpus: Of each; up to those of a node they share one, more are whole nodes.
        share: Of all jobs submitted.
        mean_s: Mean length, if nothing interrupts it.
        sigma: Standard deviation of the logarithm of the length; 0 for one length.
        law: Of the length: lognormal, or exponential, which takes no sigma (0).
        priority: Name of the quality of service of all of them; empty where each job's is drawn.
        requeued_share: Of them, those that are put back into the queue once as they run, by their
            owner or an operator; the time is uniform over the length. Tasks of arrays never are.
        failed_share: Of them, those whose program fails, in place of that of `Outcomes`; infinite
            where they fail as all others do.
        cancelled_share: Likewise, those that their owner cancels as they run.
        series: Name of a series, which classes may share: its jobs are submitted one after another,
            each no sooner than the one before it is over; empty for jobs that do not wait so.
    """

    gpus: int
    share: float
    mean_s: float
    sigma: float
    law: str = "lognormal"
    priority: str = ""
    requeued_share: float = 0.0
    failed_share: float = math.inf
    cancelled_share: float = math.inf
    series: str = ""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How jobs end that the infrastructure lets end, as shares; the others are completed.

    Attributes:
        failed_share: The user's program fails.
        cancelled_share: Its owner cancels it as it runs.
        out_of_memory_share: It takes more memory than it asked for.
        timeout_share: It takes longer than it asked for.
        impatient_share: Its owner cancels it if it waits for too long.
        mean_patience_s: Mean of how long that is; exponential.
        longest_limit_factor: Time limits are up to so many times the length, log-uniform.
        crash_loop_share: Of the jobs of `failed_share`, those whose owner submits them again as
            soon as they fail, with the same fault. Tasks of arrays never are.
        mean_crash_loop_tries: Mean number of times that such a job is submitted, 2 or more;
            geometric.
        mean_crash_loop_s: Mean work of each try before it fails; exponential, and no more than the
            job would have done.
    """

    failed_share: float
    cancelled_share: float
    out_of_memory_share: float
    timeout_share: float
    impatient_share: float
    mean_patience_s: float
    longest_limit_factor: float
    crash_loop_share: float = 0.0
    mean_crash_loop_tries: float = 0.0
    mean_crash_loop_s: float = 0.0

    def of(self, job: JobClass) -> Outcomes:
        """Those of a class of jobs, which may have shares of its own."""
        own = {
            name: getattr(job, name)
            for name in ("failed_share", "cancelled_share")
            if not math.isinf(getattr(job, name))
        }
        return replace(self, **own)


@dataclass(frozen=True, slots=True)
class Users:
    """Who submits; the k-th user submits in proportion to 1/k."""

    users: int
    accounts: int


@dataclass(frozen=True, slots=True)
class Priority:
    """A quality of service.

    Attributes:
        name: Of it.
        level: The higher goes first, and preempts the lower.
        share_of_shared: Of the jobs that share a node, those of a class with a `priority` aside.
        share_of_gangs: Of the jobs of whole nodes, likewise.
    """

    name: str
    level: int
    share_of_shared: float
    share_of_gangs: float


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What jobs of whole nodes keep when they are interrupted; jobs that share a node start over.

    Attributes:
        interval_s: Of work, between checkpoints.
        restart_s: From the start of an attempt until it makes progress.
        resubmit_chance: That the owner of a job that a fault ended as FAILED submits it again.
        mean_resubmit_s: Mean time until then; exponential.
        write_s: For which each write holds up the job; 0 for checkpoints that cost nothing.
    """

    interval_s: int
    restart_s: int
    resubmit_chance: float
    mean_resubmit_s: float
    write_s: int = 0


@dataclass(frozen=True, slots=True)
class Checks:
    """Health checks and the heartbeat.

    Attributes:
        interval_s: Between checks of a node.
        heartbeat_s: From a node's silence until the scheduler takes it down.
        false_high_per_node_day: Alarms of high severity without a fault.
        false_low_per_node_day: Alarms of low severity without a fault.
        false_repair_mean_s: Mean time that a node is out after one.
        wrong_node_chance: That a fault which ends a job of several nodes is blamed on another of
            them, each as likely: that one is drained and repaired, and the true one goes on.
        policy: Which [[node_checks]] run on the nodes of a job of whole nodes before it
            (`CHECK_POLICIES`); it waits for them, and is put back where they find anything.
    """

    interval_s: int
    heartbeat_s: int
    false_high_per_node_day: float
    false_low_per_node_day: float
    false_repair_mean_s: float
    wrong_node_chance: float = 0.0
    policy: str = "none"


CHECK_POLICIES = ("none", "before-each-job", "every-day", "selector")
"""No checks; all before each job; those that the node had not for a day; those that pay."""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A check that a policy may run on a node.

    Attributes:
        name: Of it.
        run_s: For which it holds the node, and the job that is to run there.
        covers: Chance of finding the hidden defect of each symptom: gpu-memory:0.8 pcie:0.5.
        false_alarm_chance: On a node without a defect.
    """

    name: str
    run_s: float
    covers: str
    false_alarm_chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Links:
    """Links between the pods, one rail for each GPU of a node; a ring per rail runs over them.

    Jobs that run at once share them: each starts at the speed that those there leave to it.

    Attributes:
        uplinks: Of each pod and rail.
        bad: Of all uplinks; which ones is drawn.
        routing: static (each flow hashed onto one uplink, again after each start), adaptive or
            removal. The last two avoid bad links while there are good ones.
        goodput_share: Of a bad link's bandwidth over that of a good one.
        exposed_share: Of a step, in which a job waits for its collectives.
    """

    uplinks: int
    bad: int
    routing: str
    goodput_share: float
    exposed_share: float


@dataclass(frozen=True, slots=True)
class FaultProcess:
    """Faults of one symptom, which arise on each node by themselves.

    Attributes:
        symptom: As the taxonomy calls it.
        law: Of the time in service from one to the next: constant, weibull or lognormal.
        form: Shape (weibull) or sigma (lognormal); 1 for constant.
        per_1000_node_days: One over the mean time in service, for a node that is no lemon and as
            new after each fault. With an `as_new_share` below 1 a law that ages gives another rate,
            further off the longer the period: of 3 stated, a Weibull law of shape 0.7 gives 2.8
            over 330 days at a share of 0.7 and 2.3 at 0, one of shape 1.5 gives 3.2 and 4.1.
        severity: Of the check that finds it.
        node_down_chance: That the node stops, and only the heartbeat notices.
        crash_chance: That its jobs end at once as FAILED.
        seen_chance: That logs show it; one that is not seen and leaves the node up ends its jobs.
        repair_mean_s: Mean time out of service.
        repair_sigma: Standard deviation of its logarithm.
        as_new_share: Of repairs after which the node is new to this process; others leave its age.
        from_day: First day on which there are any.
        to_day: The day on which they are over.
        latent_s: Mean time in service for which a defect is hidden before it strikes; exponential.
            Only node checks find it meanwhile. 0 for faults that strike as they arise, as those of
            bursts and of replays do.
    """

    symptom: str
    law: str
    form: float
    per_1000_node_days: float
    severity: str
    node_down_chance: float
    crash_chance: float
    seen_chance: float
    repair_mean_s: float
    repair_sigma: float
    as_new_share: float
    from_day: float = 0.0
    to_day: float = math.inf
    latent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RateChange:
    """The hazard of one symptom's process from a day on, until the next change of it.

    Attributes:
        symptom: Of one of the fault processes; its bursts keep their rate.
        from_day: Counted from the start of the period.
        factor: Of the hazard, over that which the process states; 0 for no faults.
    """

    symptom: str
    from_day: float
    factor: float


@dataclass(frozen=True, slots=True)
class BurstProcess:
    """Faults of one symptom on several nodes at about one time.

    Attributes:
        symptom: Of one of the fault processes, whose effects these faults have.
        scope: What is hit: a rack, a pod, or the cluster.
        per_year: Bursts of each such place.
        hit_share: Chance of each of its nodes to be hit.
        spread_s: The faults come within so long.
    """

    symptom: str
    scope: str
    per_year: float
    hit_share: float
    spread_s: float


@dataclass(frozen=True, slots=True)
class Lemons:
    """Nodes that fail more often, by every process, whatever is repaired.

    Attributes:
        share: Of the nodes.
        factor: Of their hazard over that of the others.
    """

    share: float
    factor: float


Part = (
    SimulatedPeriod
    | Machines
    | Scheduling
    | Arrivals
    | JobClass
    | Outcomes
    | Users
    | Priority
    | Checkpoints
    | Checks
    | FaultProcess
    | RateChange
    | BurstProcess
    | Lemons
    | Quota
    | FairShare
    | AccountShares
    | ArrayClass
    | NodeCheck
    | Links
)
