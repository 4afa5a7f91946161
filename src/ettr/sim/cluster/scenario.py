"""A cluster to simulate, as plain values: machines, jobs, scheduler, faults, checks, repairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ettr.errors import UsageError
from ettr.sim.cluster.evidence import EVIDENCE
from ettr.sim.cluster.policies import PREEMPTION, WAITING
from ettr.units import SECONDS_PER_DAY

MOST_NODES = 100_000
MOST_GPUS_PER_NODE = 16
MOST_JOBS = 5e6
LAWS = ("constant", "weibull", "lognormal")
LENGTHS = ("lognormal", "exponential")
SCOPES = ("rack", "pod", "cluster")
SEVERITIES = ("high", "low")
_SUM_ERROR = 1e-6


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
        """The first moment."""
        return datetime.fromisoformat(self.start).replace(tzinfo=UTC)

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
        preemption: Whose nodes that job takes (`PREEMPTION`).
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
        day_amplitude: Of the sine of the hour, peak at 15:00 UTC; 0 for none, below 1.
        weekend_factor: Rate on Saturday and Sunday over that of the other days.
    """

    jobs_per_day: float
    day_amplitude: float
    weekend_factor: float


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one size.

    Attributes:
        gpus: Of each; up to those of a node they share one, more are whole nodes.
        share: Of all jobs submitted.
        mean_s: Mean length, if nothing interrupts it.
        sigma: Standard deviation of the logarithm of the length; 0 for one length.
        law: Of the length: lognormal, or exponential, which takes no sigma (0).
    """

    gpus: int
    share: float
    mean_s: float
    sigma: float
    law: str = "lognormal"


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
    """

    failed_share: float
    cancelled_share: float
    out_of_memory_share: float
    timeout_share: float
    impatient_share: float
    mean_patience_s: float
    longest_limit_factor: float


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
        share_of_shared: Of the jobs that share a node.
        share_of_gangs: Of the jobs of whole nodes.
    """

    name: str
    level: int
    share_of_shared: float
    share_of_gangs: float


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What jobs of whole nodes keep when they are interrupted; jobs that share a node start over.

    Attributes:
        interval_s: Between checkpoints, which cost nothing.
        restart_s: From the start of an attempt until it makes progress.
        resubmit_chance: That the owner of a job that a fault ended as FAILED submits it again.
        mean_resubmit_s: Mean time until then; exponential.
    """

    interval_s: int
    restart_s: int
    resubmit_chance: float
    mean_resubmit_s: float


@dataclass(frozen=True, slots=True)
class Checks:
    """Health checks and the heartbeat.

    Attributes:
        interval_s: Between checks of a node.
        heartbeat_s: From a node's silence until the scheduler takes it down.
        false_high_per_node_day: Alarms of high severity without a fault.
        false_low_per_node_day: Alarms of low severity without a fault.
        false_repair_mean_s: Mean time that a node is out after one.
    """

    interval_s: int
    heartbeat_s: int
    false_high_per_node_day: float
    false_low_per_node_day: float
    false_repair_mean_s: float


@dataclass(frozen=True, slots=True)
class FaultProcess:
    """Faults of one symptom, which arise on each node by themselves.

    Attributes:
        symptom: As the taxonomy calls it.
        law: Of the time in service from one to the next: constant, weibull or lognormal.
        form: Shape (weibull) or sigma (lognormal); 1 for constant.
        per_1000_node_days: One over the mean time in service, for a node that is no lemon.
        severity: Of the check that finds it.
        node_down_chance: That the node stops, and only the heartbeat notices.
        crash_chance: That its jobs end at once as FAILED.
        seen_chance: That logs show it; one that is not seen and leaves the node up ends its jobs.
        repair_mean_s: Mean time out of service.
        repair_sigma: Standard deviation of its logarithm.
        as_new_share: Of repairs after which the node is new to this process; others leave its age.
        from_day: First day on which there are any.
        to_day: The day on which they are over.
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


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A cluster to simulate; `sources` says where each value comes from, by its name in the file.

    Raises:
        UsageError: values that cannot be; all are listed at once.
    """

    name: str
    period: SimulatedPeriod
    machines: Machines
    scheduling: Scheduling
    arrivals: Arrivals
    jobs: tuple[JobClass, ...]
    outcomes: Outcomes
    users: Users
    priorities: tuple[Priority, ...]
    checkpoints: Checkpoints
    checks: Checks
    lemons: Lemons
    faults: tuple[FaultProcess, ...] = ()
    bursts: tuple[BurstProcess, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values."""
        if problems := list(problems_of(self)):
            raise UsageError(
                f"scenario {self.name!r} cannot be simulated:"
                + "".join(f"\n  {one}" for one in problems)
            )


def problems_of(scenario: ClusterScenario) -> Iterator[str]:
    """What cannot be, a sentence each."""
    yield from _signs(scenario)
    yield from _of_machines(scenario)
    yield from _of_jobs(scenario)
    yield from _of_submission(scenario)
    yield from _of_faults(scenario)


def _of_machines(scenario: ClusterScenario) -> Iterator[str]:
    machines, scheduling = scenario.machines, scenario.scheduling
    try:
        if not scenario.period.origin:
            yield "period.start: give a day such as 2026-01-05"
    except ValueError:
        yield f"period.start: {scenario.period.start!r} is no day; write it as 2026-01-05"
    if not 1 <= machines.nodes <= MOST_NODES:
        yield f"machines.nodes: {machines.nodes:,}; give 1 to {MOST_NODES:,}"
    if not 1 <= machines.gpus_per_node <= MOST_GPUS_PER_NODE:
        yield (f"machines.gpus_per_node: {machines.gpus_per_node}; give 1 to {MOST_GPUS_PER_NODE}")
    if machines.nodes_per_rack < 1 or machines.racks_per_pod < 1:
        yield "machines: give 1 or more nodes in a rack and racks in a pod"
    if scheduling.waiting not in WAITING:
        yield f"scheduling.waiting: {scheduling.waiting!r}; give one of {', '.join(WAITING)}"
    if scheduling.preemption not in PREEMPTION:
        yield (
            f"scheduling.preemption: {scheduling.preemption!r}; give one of {', '.join(PREEMPTION)}"
        )
    if scheduling.longest_job_s < 1 or scheduling.backfill_depth < 1:
        yield "scheduling: longest_job_s and backfill_depth are 1 or more"
    if scenario.checks.interval_s < 1 or scenario.checkpoints.interval_s < 1:
        yield "checks.interval_s and checkpoints.interval_s are 1 second or more"


def _of_jobs(scenario: ClusterScenario) -> Iterator[str]:
    machines = scenario.machines
    per_node = machines.gpus_per_node
    for job in scenario.jobs:
        if job.gpus < 1 or (job.gpus > per_node and job.gpus % per_node):
            yield (
                f"jobs.gpus: {job.gpus}; give 1 to {per_node}, or a multiple of {per_node} for "
                "whole nodes"
            )
        if job.gpus > machines.nodes * per_node:
            yield f"jobs.gpus: {job.gpus:,}; the cluster has {machines.nodes * per_node:,}"
        if job.law not in LENGTHS or (job.law == "exponential" and job.sigma):
            yield f"jobs.law: {job.law!r}; give lognormal, or exponential with a sigma of 0"
        if not job.mean_s > 0:
            yield f"jobs.mean_s: {job.mean_s:g}; give a length above 0"
    if not scenario.jobs or not scenario.priorities:
        yield "jobs and priorities: give at least one of each"
    sums = {"jobs.share": sum(job.share for job in scenario.jobs)}
    for name in ("share_of_shared", "share_of_gangs"):
        sums[f"priorities.{name}"] = sum(getattr(one, name) for one in scenario.priorities)
    for name, total in sums.items():
        if abs(total - 1.0) > _SUM_ERROR:
            yield f"{name}: they sum to {total:g}, and not to 1"


def _of_submission(scenario: ClusterScenario) -> Iterator[str]:
    arrivals, outcomes = scenario.arrivals, scenario.outcomes
    if arrivals.jobs_per_day * scenario.period.days > MOST_JOBS:
        yield f"arrivals.jobs_per_day: more than {MOST_JOBS:,.0f} jobs in all"
    if not arrivals.day_amplitude < 1.0:
        yield f"arrivals.day_amplitude: {arrivals.day_amplitude:g}; give 0 or more, below 1"
    ends = (outcomes.failed_share, outcomes.cancelled_share, outcomes.out_of_memory_share)
    if sum(ends) + outcomes.timeout_share > 1.0:
        yield "outcomes: the shares sum to more than 1"
    if not outcomes.longest_limit_factor >= 1.0:
        yield "outcomes.longest_limit_factor: give 1 or more"
    if scenario.users.users < 1 or scenario.users.accounts < 1:
        yield "users: give 1 or more users and accounts"


def _of_faults(scenario: ClusterScenario) -> Iterator[str]:
    known = {one.symptom for one in scenario.faults}
    if len(known) < len(scenario.faults):
        yield "faults: a symptom has one process"
    for one in scenario.faults:
        if one.symptom not in EVIDENCE:
            yield f"faults.symptom: {one.symptom!r}; give one of {', '.join(EVIDENCE)}"
        if one.law not in LAWS:
            yield f"faults.law: {one.law!r}; give one of {', '.join(LAWS)}"
        if one.severity not in SEVERITIES:
            yield f"faults.severity: {one.severity!r}; give one of {', '.join(SEVERITIES)}"
        if one.node_down_chance + one.crash_chance > 1.0:
            yield f"faults of {one.symptom}: node_down_chance and crash_chance sum to over 1"
        if not one.form > 0 or not one.repair_mean_s > 0:
            yield f"faults of {one.symptom}: form and repair_mean_s are above 0"
        if one.law != "constant" and (one.from_day > 0 or one.to_day < math.inf):
            yield f"faults of {one.symptom}: from_day and to_day go with the law constant"
    for burst in scenario.bursts:
        if burst.symptom not in known:
            yield f"bursts.symptom: {burst.symptom!r} has no entry in [[faults]]"
        if burst.scope not in SCOPES:
            yield f"bursts.scope: {burst.scope!r}; give one of {', '.join(SCOPES)}"
    if not scenario.lemons.factor > 0 or not scenario.checks.false_repair_mean_s > 0:
        yield "lemons.factor and checks.false_repair_mean_s are above 0"


def _signs(scenario: ClusterScenario) -> Iterator[str]:
    """Numbers below 0, and shares and chances above 1."""
    for where, part in parts_of(scenario):
        for name in part.__dataclass_fields__:
            value = getattr(part, name)
            if isinstance(value, str) or name == "level":
                continue
            if not value >= 0 or (value == math.inf and name != "to_day"):
                yield f"{where}.{name}: {value:g}; give a number of 0 or more"
            is_share = name.endswith(("share", "_chance")) or name.startswith("share_of")
            if is_share and value > 1.0:
                yield f"{where}.{name}: {value:g}; give a share from 0 to 1"


def parts_of(scenario: ClusterScenario) -> Iterator[tuple[str, Part]]:
    """Every group of values, with its name in the file."""
    for name in scenario.__dataclass_fields__:
        value = getattr(scenario, name)
        if isinstance(value, tuple):
            yield from ((name, one) for one in value)
        elif name not in ("name", "sources"):
            yield name, value


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
    | BurstProcess
    | Lemons
)
