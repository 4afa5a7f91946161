"""Jobs and faults that are replayed from the logs of a cluster instead of drawn."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario, Owners
from ettr.sim.cluster.workload import Job
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

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
