"""A cluster to simulate: all of its values, checked against each other, and files that hold them.

A file is TOML: every value with its unit in its name and a source next to it. It is written
`name = { value = 8, source = "paper" }`, or plainly in a table that has a `source` for all its
values. One that was estimated has the ends of its 90 % interval next to it:
`{ value = 4.2, low = 3.1, high = 5.6, source = "fitted to site" }`. `[validation]` is written by
`ettr simulate backtest`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from ettr.errors import UsageError
from ettr.files import toml_tables
from ettr.plan.network import Routing
from ettr.sim.cluster.policies import PREEMPTION, WAITING
from ettr.sim.cluster.scenario_parts import (
    CHECK_POLICIES,
    EACH,
    AccountShares,
    ArrayClass,
    Arrivals,
    BurstProcess,
    Checkpoints,
    Checks,
    FairShare,
    FaultProcess,
    JobClass,
    Lemons,
    Links,
    Machines,
    NodeCheck,
    Outcomes,
    Part,
    Priority,
    Quota,
    RateChange,
    Scheduling,
    SimulatedPeriod,
    Users,
    problems_of_arrays,
    problems_of_quotas,
    problems_of_shares,
)
from ettr.units import DAYS_PER_YEAR
from ettr.words import counted

MOST_NODES = 100_000
MOST_GPUS_PER_NODE = 16
MOST_JOBS = 5e6
MOST_UPLINKS = 1024
"""Of one pod and rail."""
MOST_BURST_FAULTS = 5e6
MOST_S = 1e10
"""Longest time of a value; sums of such times fit into whole numbers of 64 bits."""
MOST_LEVEL = 2**31 - 1
_MOST_SHOWN = 1e15
"""Numbers beyond it are cut in messages: one of hundreds of digits fills lines."""
LARGEST: Mapping[str, float] = {
    "sigma": 5.0,  # beyond it nearly every length is 0, and no simulation reaches the mean
    "repair_sigma": 5.0,
    "users": 1e6,
    "peak_hour": 24.0,
    "weekend_factor": 1e3,
    "longest_limit_factor": 1e6,
    "factor": 1e6,
    "per_1000_node_days": 1e8,  # more than one a second on each node
    "mean_crash_loop_tries": 1e4,
    "write_s": 86_400.0,  # a write of a day holds up whatever there is
    "false_high_per_node_day": 1e5,
    "false_low_per_node_day": 1e5,
}
"""Largest value by its name; other times have `MOST_S`."""
LAWS = ("constant", "weibull", "lognormal")
LENGTHS = ("lognormal", "exponential")
SCOPES = ("rack", "pod", "cluster")
SEVERITIES = ("high", "low")
ABOUT = ("name", "sources", "intervals", "validation")
"""Fields that are no values of the cluster."""
ASKED = ("period",)
"""Groups of values that say what is asked, and not what the cluster is like."""
ENTRY_KEYS = {
    "jobs": "gpus",
    "priorities": "name",
    "faults": "symptom",
    "rate_changes": "symptom",
    "bursts": "symptom",
    "quotas": "scope",
    "accounts": "name",
    "arrays": "gpus",
    "node_checks": "name",
}
"""By which value an entry of a list is named."""
_SUM_ERROR = 1e-6
"""Shares that sum to 1 may do so but for rounding: 0.2 + 0.4 + 0.3 + 0.1 is more in floats."""


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A cluster to simulate.

    Attributes:
        intervals: Ends of the 90 % interval of each value that was estimated, by the same name.

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
    rate_changes: tuple[RateChange, ...] = ()
    bursts: tuple[BurstProcess, ...] = ()
    quotas: tuple[Quota, ...] = ()
    fair_share: FairShare | None = None
    accounts: tuple[AccountShares, ...] = ()
    arrays: tuple[ArrayClass, ...] = ()
    node_checks: tuple[NodeCheck, ...] = ()
    links: Links | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    validation: Validation | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if problems := dict.fromkeys(problems_of(self)):  # entries of one name may have the same
            raise UsageError(
                f"scenario {self.name!r} cannot be simulated:"
                + "".join(f"\n  {one}" for one in problems)
            )

    @property
    def n_assumed(self) -> int:
        """Values whose source is "assumed"."""
        return sum(source.startswith("assumed") for source in self.sources.values())


def problems_of(scenario: ClusterScenario) -> Iterator[str]:
    """What cannot be, a sentence each."""
    yield from _of_single_values(scenario)
    yield from _of_period(scenario.period)
    yield from _of_machines(scenario)
    yield from _of_jobs(scenario)
    yield from _of_submission(scenario)
    yield from _of_faults(scenario)
    yield from _of_rate_changes(scenario)
    yield from _of_bursts(scenario)
    yield from _of_node_checks(scenario)
    yield from _of_links(scenario)
    names = [one.name for one in scenario.priorities]
    yield from problems_of_arrays(scenario.arrays, [one.gpus for one in scenario.jobs])
    of_tasks = {one.gpus for one in scenario.arrays}
    for gpus in sorted({one.gpus for one in scenario.jobs if one.series} & of_tasks):
        yield f"jobs.series: [[arrays]] has jobs of {counted(gpus, 'GPU')}; tasks have no series"
    levels = [one.level for one in scenario.priorities]
    yield from problems_of_quotas(scenario.quotas, names)
    yield from problems_of_shares(scenario.fair_share, scenario.accounts, levels)


def _of_period(period: SimulatedPeriod) -> Iterator[str]:
    try:
        origin = period.origin
    except ValueError:
        yield f"period.start: {period.start!r} is not a day; write it as 2026-01-05"
        return
    try:
        if period.end_s < 1:
            yield f"period.days: {period.days:g}; give one second or more"
        origin + timedelta(days=period.days)
    except (OverflowError, ValueError):
        yield f"period.days: {period.days:g}; the last day lies after the year 9999"


def _of_machines(scenario: ClusterScenario) -> Iterator[str]:
    machines, scheduling = scenario.machines, scenario.scheduling
    if not 1 <= machines.nodes <= MOST_NODES:
        yield f"machines.nodes: {_shown(machines.nodes)}; give 1 to {MOST_NODES:,}"
    if not 1 <= machines.gpus_per_node <= MOST_GPUS_PER_NODE:
        yield (
            f"machines.gpus_per_node: {_shown(machines.gpus_per_node)}; give 1 to "
            f"{MOST_GPUS_PER_NODE}"
        )
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
    per_node = max(1, machines.gpus_per_node)  # 0 is refused with the machines
    for job in scenario.jobs:
        place = _place_of("jobs", job)
        if job.gpus < 1 or (job.gpus > per_node and job.gpus % per_node):
            yield (
                f"jobs.gpus: {_shown(job.gpus)}; give 1 to {per_node}, or a multiple of {per_node} "
                "for whole nodes"
            )
        # of a wrong number of nodes the message is that of the machines
        if 1 <= machines.nodes <= MOST_NODES and job.gpus > machines.nodes * per_node:
            yield f"jobs.gpus: {_shown(job.gpus)}; the cluster has {machines.nodes * per_node:,}"
        if job.law not in LENGTHS or (job.law == "exponential" and job.sigma):
            yield f"{place}.law: {job.law!r}; give lognormal, or exponential with a sigma of 0"
        if not job.mean_s > 0:
            yield f"{place}.mean_s: {job.mean_s:g}; give a length above 0"
    if not scenario.jobs or not scenario.priorities:
        yield "jobs and priorities: give at least one of each"
    names = [one.name for one in scenario.priorities]
    if len(set(names)) < len(names):
        yield "priorities.name: each has a name of its own"
    for job in scenario.jobs:
        if job.priority and job.priority not in names:
            yield (
                f"{_place_of('jobs', job)}.priority: {job.priority!r} has no entry in "
                f"[[priorities]]; give one of {', '.join(names)}, or leave it out"
            )
    sums = {"jobs.share": sum(job.share for job in scenario.jobs)}
    for name in ("share_of_shared", "share_of_gangs"):
        sums[f"priorities.{name}"] = sum(getattr(one, name) for one in scenario.priorities)
    for name, total in sums.items():
        if abs(total - 1.0) > _SUM_ERROR:
            yield f"{name}: they sum to {total:g}, and not to 1"


def _of_submission(scenario: ClusterScenario) -> Iterator[str]:
    arrivals, outcomes = scenario.arrivals, scenario.outcomes
    tasks = {one.gpus: 1.0 + one.share * (one.mean_tasks - 1.0) for one in scenario.arrays}
    jobs = sum(job.share * tasks.get(job.gpus, 1.0) for job in scenario.jobs)
    looping = outcomes.failed_share * outcomes.crash_loop_share
    jobs += looping * max(0.0, outcomes.mean_crash_loop_tries - 1.0)
    if arrivals.jobs_per_day * scenario.period.days * max(1.0, jobs) > MOST_JOBS:
        yield (
            f"arrivals.jobs_per_day: more than {MOST_JOBS:,.0f} jobs in all, tasks of arrays too, "
            "and tries of crash loops"
        )
    if not arrivals.day_amplitude < 1.0:
        yield f"arrivals.day_amplitude: {arrivals.day_amplitude:g}; give 0 or more, below 1"
    if not _is_whole(outcomes):
        yield "outcomes: the shares sum to more than 1"
    elif bad := [job.gpus for job in scenario.jobs if not _is_whole(outcomes.of(job))]:
        yield (
            f"jobs.failed_share and jobs.cancelled_share of {counted(bad[0], 'GPU')}: with the "
            "other shares of [outcomes] they sum to more than 1"
        )
    if outcomes.crash_loop_share:
        yield from _of_crash_loops(outcomes)
    if not outcomes.longest_limit_factor >= 1.0:
        yield "outcomes.longest_limit_factor: give 1 or more"
    if scenario.users.users < 1 or scenario.users.accounts < 1:
        yield "users: give 1 or more users and accounts"


def _is_whole(outcomes: Outcomes) -> bool:
    """Whether the shares leave nobody out."""
    ends = (outcomes.failed_share, outcomes.cancelled_share, outcomes.out_of_memory_share)
    return sum(ends) + outcomes.timeout_share <= 1.0 + _SUM_ERROR


def _of_crash_loops(outcomes: Outcomes) -> Iterator[str]:
    tries = outcomes.mean_crash_loop_tries
    if not tries >= 2.0:
        yield (
            f"outcomes.mean_crash_loop_tries: {tries:g}; crash loops (crash_loop_share) have 2 or "
            "more tries in the mean"
        )
    if not outcomes.mean_crash_loop_s > 0:
        yield (
            f"outcomes.mean_crash_loop_s: {outcomes.mean_crash_loop_s:g}; the tries of crash loops "
            "(crash_loop_share) last longer than 0 s in the mean"
        )


def _of_faults(scenario: ClusterScenario) -> Iterator[str]:
    known = {one.symptom for one in scenario.faults}
    if len(known) < len(scenario.faults):
        yield "faults: a symptom has one process"
    for one in scenario.faults:
        if one.symptom not in EVIDENCE:
            yield f"faults.symptom: {one.symptom!r}; give one of {', '.join(EVIDENCE)}"
        place = _place_of("faults", one)
        if one.law not in LAWS:
            yield f"{place}.law: {one.law!r}; give one of {', '.join(LAWS)}"
        if one.severity not in SEVERITIES:
            yield f"{place}.severity: {one.severity!r}; give one of {', '.join(SEVERITIES)}"
        if one.node_down_chance + one.crash_chance > 1.0 + _SUM_ERROR:
            yield f"faults of {one.symptom}: node_down_chance and crash_chance sum to over 1"
        if not one.form > 0 or not one.repair_mean_s > 0:
            yield f"faults of {one.symptom}: form and repair_mean_s are above 0"
        if one.law != "constant" and (one.from_day > 0 or one.to_day < math.inf):
            yield f"faults of {one.symptom}: from_day and to_day go with the law constant"
        if one.from_day >= one.to_day:
            yield f"faults of {one.symptom}: from_day is not before to_day"
    if not scenario.lemons.factor > 0 or not scenario.checks.false_repair_mean_s > 0:
        yield "lemons.factor and checks.false_repair_mean_s are above 0"


def covers_of(text: str) -> dict[str, float]:
    """The chance of each symptom: of `gpu-memory:0.8 pcie:0.5`; raises ValueError."""
    pairs = [one.rpartition(":") for one in text.split()]
    return {symptom: float(chance) for symptom, _, chance in pairs}


def _of_node_checks(scenario: ClusterScenario) -> Iterator[str]:
    policy, names = scenario.checks.policy, [one.name for one in scenario.node_checks]
    if policy not in CHECK_POLICIES:
        yield f"checks.policy: {policy!r}; give one of {', '.join(CHECK_POLICIES)}"
    elif policy != "none" and not names:
        yield f"checks.policy: {policy}; name the checks in [[node_checks]]"
    if len(set(names)) < len(names):
        yield "node_checks.name: a check has one entry"
    hidden = {one.symptom for one in scenario.faults if one.latent_s}
    for one in scenario.node_checks:
        place = _place_of("node_checks", one)
        try:
            covers = covers_of(one.covers)
        except ValueError:
            covers = {"": math.nan}
        if not all(0 <= chance <= 1 for chance in covers.values()):
            yield f"{place}.covers: {one.covers!r}; give chances, as gpu-memory:0.8 pcie:0.5"
        elif unknown := sorted(covers.keys() - hidden):
            known = ", ".join(sorted(hidden)) or "none"
            yield f"{place}.covers: {unknown[0]}; faults with a latent_s are: {known}"


def uplinks_of(scenario: ClusterScenario) -> int:
    """Uplinks of all pods and rails."""
    links, machines = scenario.links, scenario.machines
    if links is None:
        return 0
    pods = machines.pod_of(machines.nodes - 1) + 1
    return pods * machines.gpus_per_node * links.uplinks


def _of_links(scenario: ClusterScenario) -> Iterator[str]:
    links = scenario.links
    if links is None:
        return
    if links.routing not in [one.value for one in Routing]:
        yield f"links.routing: {links.routing!r}; give one of {', '.join(Routing)}"
    if not 1 <= links.uplinks <= MOST_UPLINKS:
        yield f"links.uplinks: {_shown(links.uplinks)}; give 1 to {MOST_UPLINKS:,}"
    # of no pods the message is that of the machines
    elif scenario.machines.nodes_per_rack >= 1 and scenario.machines.racks_per_pod >= 1:  # noqa: SIM102
        if not 0 <= links.bad <= (most := uplinks_of(scenario)):
            yield f"links.bad: {_shown(links.bad)}; the pods have {counted(most, 'uplink')}"
    if not 0 < links.goodput_share <= 1:
        yield f"links.goodput_share: {links.goodput_share:g}; give a share above 0, 1 at most"


def _of_rate_changes(scenario: ClusterScenario) -> Iterator[str]:
    known = {one.symptom for one in scenario.faults}
    changes = [(one.symptom, one.from_day) for one in scenario.rate_changes]
    if len(set(changes)) < len(changes):
        yield "rate_changes: a symptom has one factor from a day on"
    for symptom in dict.fromkeys(symptom for symptom, _ in changes):
        if symptom not in known:
            yield f"rate_changes.symptom: {symptom!r} has no entry in [[faults]]"


def _of_bursts(scenario: ClusterScenario) -> Iterator[str]:
    known = {one.symptom for one in scenario.faults}
    for burst in scenario.bursts:
        if burst.symptom not in known:
            yield f"bursts.symptom: {burst.symptom!r} has no entry in [[faults]]"
        place = _place_of("bursts", burst)
        if burst.scope not in SCOPES:
            yield f"{place}.scope: {burst.scope!r}; give one of {', '.join(SCOPES)}"
        years = scenario.period.days / DAYS_PER_YEAR
        nodes = min(scenario.machines.nodes, MOST_NODES)
        if burst.per_year * years * nodes > MOST_BURST_FAULTS:
            yield f"{place}.per_year: over {MOST_BURST_FAULTS:,.0f} faults if each hits every node"


def _of_single_values(scenario: ClusterScenario) -> Iterator[str]:
    """Numbers below 0, shares and chances above 1, what is too large, and empty texts."""
    for where, part in parts_of(scenario):
        for one in fields(part):
            value = getattr(part, one.name)
            if value == one.default and value in ("", math.inf):
                continue  # what may be left out
            if problem := _problem_of(one.name, value):
                place = where if one.name == ENTRY_KEYS.get(where) else _place_of(where, part)
                yield f"{place}.{one.name}: {_shown(value)}; {problem}"


def _problem_of(name: str, value: float | str) -> str:
    """What to give instead; empty where the value can be."""
    if isinstance(value, str):
        return "" if value and value.isprintable() else "give a text that can be printed"
    if name == "level":
        return "" if abs(value) <= MOST_LEVEL else f"give at most {MOST_LEVEL:,}, either sign"
    if not 0 <= value < math.inf:
        return "give a number of 0 or more"
    is_share = name.endswith(("share", "_chance")) or name.startswith("share_of")
    if is_share and value > 1.0:
        return "give a share from 0 to 1"
    largest = LARGEST.get(name, MOST_S if name.endswith("_s") else math.inf)
    return f"give at most {largest:,.0f}" if value > largest else ""


def _shown(value: float | str) -> str:
    """A value as a message names it; numbers that would fill lines are cut."""
    if isinstance(value, str):
        return repr(value)
    if abs(value) <= _MOST_SHOWN or not abs(value) < math.inf:
        return f"{value:,}"
    return f"over {_MOST_SHOWN:g}" if value > 0 else f"under {-_MOST_SHOWN:g}"


def _place_of(group: str, part: Part) -> str:
    """The name by which a group of values, or an entry of a list, is changed: checks, jobs.8."""
    key = getattr(part, ENTRY_KEYS[group]) if group in ENTRY_KEYS else ""
    is_name = key.isprintable() if isinstance(key, str) else abs(key) <= _MOST_SHOWN
    return f"{group}.{key}" if key and is_name else group


def parts_of(scenario: ClusterScenario) -> Iterator[tuple[str, Part]]:
    """Every group of values that the scenario has, with its name in the file."""
    for name in scenario.__dataclass_fields__:
        value = getattr(scenario, name)
        if isinstance(value, tuple):
            yield from ((name, one) for one in value)
        elif name not in ABOUT and value is not None:
            yield name, value


@dataclass(frozen=True, slots=True)
class Owners:
    """Names by the numbers that jobs carry."""

    users: Sequence[str]
    accounts: Sequence[str]
    members: Sequence[int]


def owners_of(scenario: ClusterScenario) -> Owners:
    """The users and accounts of a scenario; user k is charged to account k modulo the accounts."""
    users, accounts = scenario.users.users, scenario.users.accounts
    return Owners(
        [f"user{k + 1}" for k in range(users)],
        [f"team{k + 1}" for k in range(accounts)],
        [len(range(k, users, accounts)) for k in range(accounts)],
    )


def check_owners(scenario: ClusterScenario, owners: Owners) -> None:
    """Check that the scenario names nobody who does not exist.

    Raises:
        UsageError: a quota or shares are of nobody; all are listed at once.
    """
    known = {"user": set(owners.users), "account": set(owners.accounts)}
    examples = {"user": owners.users, "account": owners.accounts}
    problems = [
        f"\n  quotas.name: no {one.scope} is called {one.name!r}; names are such as "
        f"{', '.join(examples[one.scope][:3])}"
        for one in scenario.quotas
        if one.scope in known and one.name != EACH and one.name not in known[one.scope]
    ]
    problems += [
        f"\n  accounts.name: no account is called {one.name!r}; names are such as "
        f"{', '.join(owners.accounts[:3])}"
        for one in scenario.accounts
        if one.name not in known["account"]
    ]
    if problems:
        raise UsageError(f"scenario {scenario.name!r} cannot be simulated:{''.join(problems)}")


REPAIR_SPREAD = "repair time, spread"
SAVES = "checkpoint interval, median"
QUANTITIES = (
    "jobs submitted",
    "failure rate",
    "outages per node",
    "outages soon after another",
    "repair time, median",
    "repair time, mean",
    "repair time, 90 %",
    REPAIR_SPREAD,
    SAVES,
    "utilisation",
    "lost goodput",
    "share FAILED",
    "share CANCELLED",
    "share TIMEOUT",
    "share OUT_OF_MEMORY",
    "share NODE_FAIL",
    "share PREEMPTED",
    "wait of part of a node, median",
    "wait of part of a node, 90 %",
    "wait of 1 node, median",
    "wait of 1 node, 90 %",
    "wait of 2 to 8 nodes, median",
    "wait of 2 to 8 nodes, 90 %",
    "wait of 9 nodes and more, median",
    "wait of 9 nodes and more, 90 %",
)
"""What a back-test compares."""
NEVER_VALIDATED = (
    "the effect of a change (whatif), since what is held back is the cluster as it is",
    "the split of lost work by checkpoints, which no scheduler records",
)


@dataclass(frozen=True, slots=True)
class Validation:
    """What a back-test found; `[validation]` in the file of a scenario.

    Attributes:
        store: Whose logs were held back.
        held_back_from: First day of them.
        held_back_until: The day on which they end.
        replicas: Simulations of that time.
        seed: Of the first.
        family_error: Chance that a scenario that is right fails in any quantity, at most.
        passed: Quantities (`QUANTITIES`) that lie within what was predicted.
        failed: Those that do not.
        not_measured: Those that reality or the simulations did not record often enough.
        values_sha256: Of the values that were tested; others are not validated by it.
        simulated: That the store is a simulation itself, in a sentence; empty where it is a site's.
    """

    store: str
    held_back_from: str
    held_back_until: str
    replicas: int
    seed: int
    family_error: float
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    not_measured: tuple[str, ...]
    values_sha256: str
    simulated: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """What the logs show of one symptom."""

    check: str
    code: str | None
    reason: str
    of_one_gpu: bool = False
    xid: str | None = None
    message: str = ""


EVIDENCE: dict[str, Trace] = {
    "gpu-unavailable": Trace(
        "nvidia smi gpu_num",
        None,
        "NHC: check_nv_healthmon: GPU lost",
        of_one_gpu=True,
        xid="79",
        message="GPU has fallen off the bus.",
    ),
    "gpu-memory": Trace(
        "nvidia smi ecc_uncorrected_volatile_total",
        None,
        "NHC: GPU has uncorrectable ECC errors",
        of_one_gpu=True,
        xid="48",
        message="Double Bit ECC Error",
    ),
    "nvlink": Trace(
        "check dcgmi nvlink_error",
        None,
        "NHC: NVLink error",
        of_one_gpu=True,
        xid="74",
        message="NVLink: fatal error detected",
    ),
    "gpu-driver": Trace(
        "xid errors",
        "119",
        "NHC: Xid 119",
        of_one_gpu=True,
        xid="119",
        message="Timeout waiting for RPC from GSP",
    ),
    "pcie": Trace("pcie aer errors", None, "NHC: PCIe AER errors"),
    "infiniband": Trace("check ibstat", None, "NHC: check_hw_ib: no active port"),
    "ethlink": Trace("check ethlink", None, "NHC: check_hw_eth: no link"),
    "filesystem": Trace("check mountpoint", None, "NHC: check_fs_mount: /data not mounted"),
    "main-memory": Trace("mce errors", None, "NHC: check_hw_mcelog: machine check reported"),
    "node-hardware": Trace("ipmitool sel", None, "NHC: check_hw_ipmi: power supply"),
    "system-services": Trace("service status", None, "NHC: check_ps_service: sssd not running"),
}


# -- scenarios in TOML: every value with its unit in its name and a source next to it ------------

FORMAT = "ettr cluster scenario 1"
SHIPPED = ("rsc-1-like", "rsc-2-like", "seren-like", "kalos-like", "philly-like", "small")
_KINDS = {name: kind for name, kind in get_type_hints(ClusterScenario).items() if name not in ABOUT}
_LISTS: Mapping[str, type[Part]] = {
    name: get_args(kind)[0] for name, kind in _KINDS.items() if get_origin(kind) is tuple
}
_OPTIONAL: Mapping[str, type[Part]] = {
    name: get_args(kind)[0] for name, kind in _KINDS.items() if get_origin(kind) is UnionType
}
_PARTS: Mapping[str, type[Part]] = {
    name: kind for name, kind in _KINDS.items() if name not in {*_LISTS, *_OPTIONAL}
}
_OF_A_VALUE = ("value", "source", "low", "high")
PartT = TypeVar("PartT", bound=Part)


def scenario_text(where: str) -> tuple[str, str]:
    """The text of a scenario, and its name: that of a file, or of one that is shipped.

    Raises:
        UsageError: it is neither, or cannot be read.
    """
    if where in SHIPPED:
        text = files("ettr.sim.cluster").joinpath("scenarios", f"{where}.toml").read_text("utf-8")
        return text, f"{where}.toml"
    path = Path(where)
    try:
        return path.read_text("utf-8"), path.name
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{where}: cannot be read as a scenario ({error}); give a TOML file, or one that is "
            f"shipped: {', '.join(SHIPPED)}"
        ) from None


def scenario_of(text: str, where: str = "scenario") -> ClusterScenario:
    """The scenario in the text of a file.

    Raises:
        UsageError: it is no such file; all problems in one message.
    """
    tables = toml_tables(text, where, FORMAT, "a cluster scenario")
    return _ScenarioReader(where).scenario(tables)


class _ScenarioReader:
    """Makes values of tables, and collects what is wrong with them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._problems: list[str] = []
        self._sources: dict[str, str] = {}
        self._intervals: dict[str, tuple[float, float]] = {}

    def scenario(self, tables: Mapping[str, object]) -> ClusterScenario:
        known = {"format", "name", "validation", *_PARTS, *_LISTS, *_OPTIONAL}
        self._problems += [f"{name}: no such table" for name in tables if name not in known]
        name = tables.get("name")
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
            self._problems.append(
                f"name: {str(name)[:60]!r} is not a name of a cluster; give a text that can be "
                "printed, without a slash"
            )
        parts = {key: self._part(kind, key, tables.get(key)) for key, kind in _PARTS.items()}
        for key, kind in _OPTIONAL.items():
            if key in tables:
                parts[key] = self._part(kind, key, tables[key])
        lists = {key: self._list(kind, key, tables.get(key, [])) for key, kind in _LISTS.items()}
        validation = self._validation(tables.get("validation"))
        if self._problems:
            raise UsageError(
                f"{self._where}: cannot be read as a scenario:"
                + "".join(f"\n  {one}" for one in self._problems)
            )
        return ClusterScenario(
            name=name,  # type: ignore[arg-type]
            sources=self._sources,
            intervals=self._intervals,
            validation=validation,
            **parts,  # type: ignore[arg-type]
            **lists,  # type: ignore[arg-type]
        )

    def _validation(self, table: object) -> Validation | None:
        """The verdict of a back-test; it is written by a command, and is not to be edited."""
        if table is None:
            return None
        known = {one.name for one in fields(Validation)}
        if isinstance(table, dict) and set(_names(Validation)) <= set(table) <= known:
            values = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in table.items()
            }
            kinds = get_type_hints(Validation)
            if all(_is_of(values[name], kinds[name]) for name in values):
                return Validation(**values)  # type: ignore[arg-type]
        self._problems.append(
            "validation: is not as `ettr simulate backtest` writes it; remove the table, or "
            "back-test the scenario again"
        )
        return None

    def _list(self, kind: type[PartT], key: str, entries: object) -> tuple[PartT, ...]:
        if not isinstance(entries, list):
            self._problems.append(f"{key}: write each as a table, [[{key}]]")
            return ()
        made = [self._part(kind, f"{key}[{i + 1}]", entry) for i, entry in enumerate(entries)]
        return tuple(one for one in made if one is not None)

    def _part(self, kind: type[PartT], key: str, table: object) -> PartT | None:
        if not isinstance(table, dict):
            self._problems.append(f"{key}: is absent; it needs {', '.join(_names(kind))}")
            return None
        shared = table.get("source")
        hints = get_type_hints(kind)
        values: dict[str, object] = {}
        for name, given in table.items():
            if name == "source":
                continue
            if name not in hints:
                self._problems.append(f"{key}.{name}: no such value; there are: {', '.join(hints)}")
                continue
            values[name] = self._value(f"{key}.{name}", given, hints[name], shared)
        absent = [name for name in _names(kind) if name not in table]
        if absent:
            self._problems.append(f"{key}: lacks {', '.join(absent)}")
        if absent or any(value is None for value in values.values()):
            return None
        return kind(**values)  # type: ignore[arg-type]

    def _interval(self, key: str, given: Mapping[str, object]) -> None:
        """Keep the interval of a value, if it has one."""
        ends = given.get("low"), given.get("high")
        if ends == (None, None):
            return
        whole = (ends[0], given.get("value"), ends[1])
        numbers = [float(one) for one in whole if _is_of(one, float)]  # type: ignore[arg-type]
        if len(numbers) == 3 and numbers == sorted(numbers):
            self._intervals[key] = numbers[0], numbers[2]
        else:
            self._problems.append(f"{key}: give low and high as numbers with the value between")

    def _value(self, key: str, given: object, kind: object, shared: object) -> object:
        value, source = given, shared
        if isinstance(given, dict):
            if unknown := [name for name in given if name not in _OF_A_VALUE]:
                self._problems.append(
                    f"{key}: has no use for {', '.join(unknown)}; a value has "
                    f"{', '.join(_OF_A_VALUE)}"
                )
            value, source = given.get("value"), given.get("source", shared)
            self._interval(key, given)
        if not isinstance(source, str) or not source:
            self._problems.append(
                f'{key}: has no source; say where it comes from: "paper", "assumed", or a log'
            )
            return None
        self._sources[key] = source
        if kind is str and isinstance(value, str):
            return value
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if kind is float and not math.isnan(number):
            return number
        if kind is int and number.is_integer():
            return int(value)  # type: ignore[call-overload]
        wanted = {str: "a text", float: "a number", int: "a whole number"}[kind]  # type: ignore[index]
        shown = value.isoformat() if isinstance(value, date) else repr(value)
        quotes = ", in quotes" if kind is str else ""
        self._problems.append(f"{key}: {shown} is not {wanted}{quotes}")
        return None


def _is_of(value: object, kind: object) -> bool:
    """Whether a value of a file is of a kind; a whole number is a number, too."""
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)  # type: ignore[arg-type]
    if kind in (int, str):
        return type(value) is kind
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


def _names(kind: type[PartT] | type[Validation]) -> list[str]:
    """The values that a table must have."""
    return [one.name for one in fields(kind) if one.default is MISSING]


_VALIDATION = re.compile(r"(?ms)^\[validation\]$.*?(?=^\[|\Z)")


def text_of(scenario: ClusterScenario, comments: Sequence[str] = ()) -> str:
    """The text of a scenario's file; `scenario_of` makes the same scenario of it."""
    lines = [f"# {line}".rstrip() for line in comments]
    lines += [f"format = {_text(FORMAT)}", f"name = {_text(scenario.name)}"]
    for name in scenario.__dataclass_fields__:
        value = getattr(scenario, name)
        if name in ABOUT or value is None:
            continue
        if isinstance(value, tuple):
            for i, part in enumerate(value):
                lines += ["", f"[[{name}]]", *_lines(scenario, part, f"{name}[{i + 1}]")]
        else:
            lines += ["", f"[{name}]", *_lines(scenario, value, name)]
    text = "\n".join(lines) + "\n"
    return text if scenario.validation is None else with_validation(text, scenario.validation)


def with_validation(text: str, found: Validation) -> str:
    """The text of a scenario's file with the verdict of a back-test in place of an earlier one."""
    table = ["[validation]", "# written by ettr simulate backtest"]
    for one in fields(found):
        if getattr(found, one.name) == one.default:
            continue
        table.append(f"{one.name} = {_literal(getattr(found, one.name))}")
    return _VALIDATION.sub("", text).rstrip() + "\n\n" + "\n".join(table) + "\n"


def _lines(scenario: ClusterScenario, part: Part, where: str) -> Iterator[str]:
    for one in fields(part):
        value = getattr(part, one.name)
        key = f"{where}.{one.name}"
        if key not in scenario.sources and one.default is not MISSING and value == one.default:
            continue
        ends = scenario.intervals.get(key)
        interval = "" if ends is None else f", low = {ends[0]!r}, high = {ends[1]!r}"
        source = _text(scenario.sources.get(key, "assumed"))
        yield f"{one.name} = {{ value = {_literal(value)}{interval}, source = {source} }}"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(str(one)) for one in value) + "]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return "inf" if math.isinf(value) else repr(value)
    return str(value)


def _text(value: str) -> str:
    """A basic string of TOML."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted) + '"'
