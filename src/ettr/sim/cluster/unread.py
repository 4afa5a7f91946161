"""Values of a scenario that nothing of it reads: of faults that never come, of jobs that are not.

What switches something off leaves all of its values unread, the other switches too: two scenarios
in which it is off for different reasons are simulated alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from ettr.errors import UsageError
from ettr.sim.cluster.faults import n_lemons_of, steps_of
from ettr.sim.cluster.scenario import ABOUT, ENTRY_KEYS, ClusterScenario
from ettr.sim.cluster.scenario_parts import (
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
    RateChange,
    Scheduling,
    Users,
)
from ettr.sim.cluster.workload import DRAWN, Replay
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

_Rule = tuple[tuple[str, ...], object, str]
"""Names of values, whether anything reads them, and why nothing does."""
_OF_OWN_FAULTS = (
    *("law", "form", "per_1000_node_days", "as_new_share", "from_day", "to_day", "latent_s"),
)
"""Values of a fault process that only faults which come by themselves read."""
_OF_JOBS = (
    *("jobs", "outcomes", "users", "priorities", "checkpoints", "scheduling"),
    *("quotas", "fair_share", "accounts", "arrays"),
)
"""Groups of values that only jobs read."""


def unread_of(
    scenario: ClusterScenario, group: str, part: Part, replay: Replay
) -> Mapping[str, str]:
    """Values of a part that nothing reads, by name, with the reason."""
    if group in _OF_JOBS and not _sizes(scenario, replay):
        return {one.name: "no jobs come" for one in fields(part)}
    made: dict[str, str] = {}
    if rules := _RULES.get(group):
        for names, is_read, why in rules(scenario, part, replay):
            if not is_read:
                made = dict.fromkeys(names, why) | made
    return made


def as_read(scenario: ClusterScenario, group: str, part: Part, name: str) -> Any:
    """A value as a simulation takes it: of two that it takes alike, neither differs."""
    value = getattr(part, name)
    match group, name:
        case "lemons", "share":
            return n_lemons_of(scenario)
        case "quotas", "most_gpus":
            return min(value, _all_gpus(scenario))
        case ("faults", "to_day") | ("rate_changes", "from_day"):
            return min(value, scenario.period.days)
        case "priorities", "level":
            rules = scenario.fair_share
            if rules is None or not rules.qos_weight:
                return sorted({one.level for one in scenario.priorities}).index(value)
    return value


def why_read_alike(scenario: ClusterScenario, group: str) -> str:
    """Why two values of a group are taken alike (`as_read`), after both of them."""
    if group == "lemons":
        nodes = scenario.machines.nodes
        return f"of {nodes:,} nodes are both {counted(n_lemons_of(scenario), 'lemon')}"
    if group == "quotas":
        return f"are no limit of a cluster of {counted(_all_gpus(scenario), 'GPU')}"
    if group == "priorities":
        return "leave the order of the levels as it is"
    return f"are both after the last of {scenario.period.days:g} days"


def _all_gpus(scenario: ClusterScenario) -> int:
    return scenario.machines.nodes * scenario.machines.gpus_per_node


# -- what comes ---------------------------------------------------------------------------------


def _sizes(scenario: ClusterScenario, replay: Replay) -> frozenset[int]:
    """GPUs of the jobs that come."""
    if replay.jobs is not None:
        return frozenset(one.gpus for one in replay.jobs)
    if not scenario.arrivals.jobs_per_day:
        return frozenset()
    return frozenset(one.gpus for one in scenario.jobs if one.share)


def _levels(scenario: ClusterScenario, replay: Replay) -> frozenset[int]:
    """Levels of the priorities that jobs have."""
    if replay.jobs is not None:
        return frozenset(scenario.priorities[one.priority].level for one in replay.jobs)
    per_node = scenario.machines.gpus_per_node
    found: set[int] = set()
    for job in scenario.jobs:
        share = "share_of_shared" if job.gpus < per_node else "share_of_gangs"
        has = (
            one.name == job.priority if job.priority else getattr(one, share)
            for one in scenario.priorities
        )
        levels = (one.level for one in scenario.priorities)
        found.update(level for level, is_had in zip(levels, has, strict=True) if is_had)
    return frozenset(found)


def _comes_by_itself(scenario: ClusterScenario, process: FaultProcess) -> bool:
    """Whether there is a day of the period on which a process has a hazard."""
    if not process.per_1000_node_days:
        return False
    begin_s = process.from_day * SECONDS_PER_DAY
    end_s = min(process.to_day, scenario.period.days) * SECONDS_PER_DAY
    steps = steps_of(scenario.rate_changes, process.symptom) or ((0.0, math.inf, 1.0),)
    return any(
        factor and max(first_s, begin_s) < min(last_s, end_s) for first_s, last_s, factor in steps
    )


def _comes_in_bursts(scenario: ClusterScenario, process: FaultProcess) -> bool:
    return any(
        one.symptom == process.symptom and one.per_year and one.hit_share for one in scenario.bursts
    )


def _coming(scenario: ClusterScenario, replay: Replay) -> tuple[FaultProcess, ...]:
    """The processes of the faults that come."""
    if replay.faults is not None:
        replayed = {one.symptom for one in replay.faults}
        return tuple(one for one in scenario.faults if one.symptom in replayed)
    return tuple(
        one
        for one in scenario.faults
        if _comes_by_itself(scenario, one) or _comes_in_bursts(scenario, one)
    )


def _any_by_itself(scenario: ClusterScenario) -> bool:
    return any(_comes_by_itself(scenario, one) for one in scenario.faults)


def _has_alarms(scenario: ClusterScenario, replay: Replay) -> bool:
    checks = scenario.checks
    rates = checks.false_high_per_node_day + checks.false_low_per_node_day
    return replay.faults is None and rates > 0


def _may_preempt(scenario: ClusterScenario, replay: Replay) -> bool:
    return scenario.scheduling.preemption != "none" and len(_levels(scenario, replay)) > 1


def _may_interrupt(scenario: ClusterScenario, replay: Replay) -> bool:
    """Whether anything may end an attempt before its time."""
    is_put_back = replay.jobs is None and any(one.requeued_share for one in scenario.jobs)
    return bool(
        _coming(scenario, replay)
        or _has_alarms(scenario, replay)
        or _may_preempt(scenario, replay)
        or (is_put_back and scenario.scheduling.most_requeues)
    )


# -- what is read, by group ---------------------------------------------------------------------


def _of_machines(scenario: ClusterScenario, part: Machines, replay: Replay) -> Iterator[_Rule]:
    del part
    scopes = {
        one.scope
        for one in scenario.bursts
        if replay.faults is None and one.per_year and one.hit_share
    }
    if scenario.links is not None:
        return
    yield ("racks_per_pod",), "pod" in scopes, "no burst is of a pod"
    yield ("nodes_per_rack",), scopes & {"rack", "pod"}, "no burst is of a rack or a pod"


def _of_scheduling(scenario: ClusterScenario, part: Scheduling, replay: Replay) -> Iterator[_Rule]:
    one_level = "the jobs have one level of priority"
    has_levels = len(_levels(scenario, replay)) > 1
    yield ("preemption", "preempt_after_s"), has_levels, one_level
    # it only moves passes over the queue then, which is chance
    yield ("preempt_after_s",), part.preemption != "none", "nobody is preempted"
    yield ("backfill_depth",), part.waiting != "in-order", "nobody overtakes"
    again = ("requeue_delay_s", "most_requeues")
    yield again, _may_interrupt(scenario, replay), "nothing interrupts a job"
    yield ("requeue_delay_s",), part.most_requeues, "no job is requeued"


def _of_arrivals(scenario: ClusterScenario, part: Arrivals, replay: Replay) -> Iterator[_Rule]:
    del scenario, replay
    when = ("day_amplitude", "weekend_factor", "peak_hour")
    yield when, part.jobs_per_day, "no jobs come"
    yield ("peak_hour",), part.day_amplitude, "all hours are alike"


def _of_jobs(scenario: ClusterScenario, part: JobClass, replay: Replay) -> Iterator[_Rule]:
    del replay
    # which size is the largest is asked of all classes
    names = tuple(one.name for one in fields(part) if one.name not in ("gpus", "share"))
    yield names, part.share, f"no job is of a class of {part.gpus:,} GPUs with a share of 0"
    yield ("requeued_share",), scenario.scheduling.most_requeues, "no job is requeued"


def _of_outcomes(scenario: ClusterScenario, part: Outcomes, replay: Replay) -> Iterator[_Rule]:
    del replay
    classes = [job for job in scenario.jobs if job.share]
    own = "each class of jobs has a share of its own"
    for name in ("failed_share", "cancelled_share"):
        yield (name,), any(math.isinf(getattr(job, name)) for job in classes), own
    yield ("mean_patience_s",), part.impatient_share, "nobody is impatient"
    loops = ("mean_crash_loop_tries", "mean_crash_loop_s")
    fails = any(part.of(job).failed_share for job in classes)
    yield ("crash_loop_share", *loops), fails, "no job fails by its own fault"
    yield loops, part.crash_loop_share, "no job loops"


def _of_users(scenario: ClusterScenario, part: Users, replay: Replay) -> Iterator[_Rule]:
    del part, replay
    rules = scenario.fair_share
    is_shared = rules is not None and rules.fair_share_weight
    scopes = {one.scope for one in scenario.quotas}
    nobody = "no quota is of a user or an account, and no fair share counts"
    yield ("users",), is_shared or scopes & {"user", "account"}, nobody
    nobody = "no quota is of an account, and no fair share counts"
    yield ("accounts",), is_shared or "account" in scopes, nobody


def _of_priorities(scenario: ClusterScenario, part: Priority, replay: Replay) -> Iterator[_Rule]:
    del part, replay
    per_node = scenario.machines.gpus_per_node
    drawn = [one.gpus for one in scenario.jobs if one.share and not one.priority]
    shared, gangs = ("share_of_shared",), ("share_of_gangs",)
    yield shared, any(gpus < per_node for gpus in drawn), "no job that shares a node draws it"
    yield gangs, any(gpus >= per_node for gpus in drawn), "no job of whole nodes draws it"
    differ = len({one.level for one in scenario.priorities}) > 1
    differ = differ or any(one.scope == "qos" for one in scenario.quotas)
    yield shared + gangs, differ, "all have one level, and no quota is of one of them"


def _of_checkpoints(
    scenario: ClusterScenario, part: Checkpoints, replay: Replay
) -> Iterator[_Rule]:
    is_whole = max(_sizes(scenario, replay)) >= scenario.machines.gpus_per_node
    yield ("interval_s", "restart_s", "write_s"), is_whole, "no job has whole nodes"
    is_kept = part.write_s or _may_interrupt(scenario, replay)
    yield ("interval_s",), is_kept, "nothing interrupts a job, and a write costs nothing"
    crashes = any(
        one.node_down_chance < 1.0 and (one.crash_chance or one.seen_chance < 1.0)
        for one in _coming(scenario, replay)
    )
    again = ("resubmit_chance", "mean_resubmit_s")
    yield again, crashes, "no fault ends a job as FAILED"
    yield ("mean_resubmit_s",), part.resubmit_chance, "nobody submits a job again"


def _of_checks(scenario: ClusterScenario, part: Checks, replay: Replay) -> Iterator[_Rule]:
    del part
    coming, has_alarms = _coming(scenario, replay), _has_alarms(scenario, replay)
    yield ("interval_s",), coming or has_alarms, "no fault comes, and no false alarm"
    stops = any(one.node_down_chance for one in coming)
    yield ("heartbeat_s",), stops, "no fault stops a node"
    yield ("false_repair_mean_s",), has_alarms, "there are no false alarms"
    several = max(_sizes(scenario, replay), default=0) > scenario.machines.gpus_per_node
    yield ("wrong_node_chance",), coming, "no fault comes"
    yield ("wrong_node_chance",), several, "no job has several nodes"
    is_whole = max(_sizes(scenario, replay), default=0) >= scenario.machines.gpus_per_node
    yield ("policy",), is_whole and scenario.node_checks, "no node check runs before a job"


def _of_links(scenario: ClusterScenario, part: Links, replay: Replay) -> Iterator[_Rule]:
    names = tuple(one.name for one in fields(part))
    of_pod = scenario.machines.nodes_per_rack * scenario.machines.racks_per_pod
    crosses = max(_sizes(scenario, replay), default=0) > scenario.machines.gpus_per_node
    crosses = crosses and scenario.machines.nodes > of_pod
    yield names, crosses, "no job has nodes of several pods"
    least = part.uplinks - min(part.bad, part.uplinks) * (1 - part.goodput_share)
    rest = tuple(name for name in names if name != "routing")
    fills = part.routing != "adaptive" or of_pod > least
    yield rest, fills, "adaptive routing keeps the bandwidth"
    yield ("goodput_share",), part.bad, "no link is bad"
    yield ("goodput_share",), part.routing != "removal", "bad links are removed"


def _of_node_checks(scenario: ClusterScenario, part: NodeCheck, replay: Replay) -> Iterator[_Rule]:
    del replay
    names = tuple(one.name for one in fields(part))
    yield names, scenario.checks.policy != "none", "checks.policy says none"


def _of_lemons(scenario: ClusterScenario, part: Lemons, replay: Replay) -> Iterator[_Rule]:
    del replay
    both = ("share", "factor")
    yield both, n_lemons_of(scenario), "no node is a lemon"
    # bursts and false alarms come to lemons as to others
    yield both, _any_by_itself(scenario), "no fault comes by itself"
    yield both, part.factor != 1.0, "lemons fail as often as other nodes"


def _of_faults(scenario: ClusterScenario, part: FaultProcess, replay: Replay) -> Iterator[_Rule]:
    name = part.symptom
    if replay.faults is None and not _comes_by_itself(scenario, part):
        if not _comes_in_bursts(scenario, part):
            why = "has a rate of 0" if not part.per_1000_node_days else "comes on no day"
            names = tuple(one.name for one in fields(part) if one.name != "symptom")
            yield names, False, f"{name} {why} and comes in no burst"
        yield _OF_OWN_FAULTS, False, f"{name} comes in bursts alone"
    # whatever the age, as many faults are to come
    yield ("form", "as_new_share"), part.law != "constant", "the law is constant"
    may_go_on = part.node_down_chance < 1.0
    found_by_checks = ("severity", "crash_chance", "seen_chance")
    yield found_by_checks, may_go_on, f"each fault of {name} stops its node"
    yield ("severity", "crash_chance"), part.seen_chance, f"no log shows a fault of {name}"
    is_repaired = part.seen_chance or part.node_down_chance
    yield ("repair_mean_s", "repair_sigma"), is_repaired, f"no fault of {name} is found"


def _of_rate_changes(
    scenario: ClusterScenario, part: RateChange, replay: Replay
) -> Iterator[_Rule]:
    del replay
    (process,) = (one for one in scenario.faults if one.symptom == part.symptom)
    both = ("from_day", "factor")
    yield both, process.per_1000_node_days, f"{part.symptom} has a rate of 0"
    yield both, _comes_by_itself(scenario, process), f"{part.symptom} comes on no day by itself"
    yield ("factor",), part.from_day < scenario.period.days, "it holds after the last day only"


def _of_bursts(scenario: ClusterScenario, part: BurstProcess, replay: Replay) -> Iterator[_Rule]:
    del scenario, replay
    names = tuple(one.name for one in fields(part) if one.name != "symptom")
    for switch in ("per_year", "hit_share"):
        yield names, getattr(part, switch), f"{switch} of these bursts of {part.symptom} is 0"


def _of_fair_share(scenario: ClusterScenario, part: FairShare, replay: Replay) -> Iterator[_Rule]:
    del scenario, replay
    yield ("half_life_s",), part.fair_share_weight, "fair_share_weight is 0"
    yield ("longest_age_s",), part.age_weight, "age_weight is 0"


def _of_accounts(scenario: ClusterScenario, part: AccountShares, replay: Replay) -> Iterator[_Rule]:
    del part, replay
    rules = scenario.fair_share
    is_weighed = rules is not None and rules.fair_share_weight
    yield ("shares",), is_weighed, "fair_share_weight is 0"
    yield ("shares",), scenario.users.accounts > 1, "there is one account"


def _of_arrays(scenario: ClusterScenario, part: ArrayClass, replay: Replay) -> Iterator[_Rule]:
    of_tasks = ("mean_tasks", "most_running")
    has_jobs = part.gpus in _sizes(scenario, replay)
    yield ("share", *of_tasks), has_jobs, f"no job has {part.gpus:,} GPUs"
    yield of_tasks, part.share, "no submission is an array"
    yield ("most_running",), part.mean_tasks > 1.0, "each array has one task"


_RULES: Mapping[str, Callable[[ClusterScenario, Any, Replay], Iterator[_Rule]]] = {
    "machines": _of_machines,
    "scheduling": _of_scheduling,
    "arrivals": _of_arrivals,
    "jobs": _of_jobs,
    "outcomes": _of_outcomes,
    "users": _of_users,
    "priorities": _of_priorities,
    "checkpoints": _of_checkpoints,
    "checks": _of_checks,
    "links": _of_links,
    "node_checks": _of_node_checks,
    "lemons": _of_lemons,
    "faults": _of_faults,
    "rate_changes": _of_rate_changes,
    "bursts": _of_bursts,
    "fair_share": _of_fair_share,
    "accounts": _of_accounts,
    "arrays": _of_arrays,
}


def refuse_no_effect(
    scenario: ClusterScenario, change: str, changed: ClusterScenario, replay: Replay = DRAWN
) -> None:
    """Refuse a change no part of which changes anything: its difference of 0 is no answer.

    Raises:
        UsageError: both are simulated alike; the reason of each part is named.
    """
    if not is_simulated_alike(scenario, changed, replay):
        return
    reasons = "; ".join(
        why_alike(scenario, changed, one.strip(), replay) for one in change.split(",")
    )
    raise UsageError(
        f"--set {change!r} changes nothing that is simulated: {reasons}. Give another value"
    )


def is_simulated_alike(
    scenario: ClusterScenario, changed: ClusterScenario, replay: Replay = DRAWN
) -> bool:
    """Whether two scenarios differ in nothing that a simulation reads."""
    return _read(scenario, replay) == _read(changed, replay)


def _read(scenario: ClusterScenario, replay: Replay) -> Mapping[str, Any]:
    """The values as a simulation reads them, by group."""
    made: dict[str, Any] = {}
    for group in scenario.__dataclass_fields__:
        value = getattr(scenario, group)
        if isinstance(value, tuple):
            made[group] = [_read_of(scenario, group, one, replay) for one in value]
        elif group not in ABOUT and value is not None:
            made[group] = _read_of(scenario, group, value, replay)
    return made


def _read_of(
    scenario: ClusterScenario, group: str, part: Part, replay: Replay
) -> Mapping[str, Any]:
    unread = unread_of(scenario, group, part, replay)
    return {
        one.name: as_read(scenario, group, part, one.name)
        for one in fields(part)
        if one.name not in unread
    }


def why_alike(
    scenario: ClusterScenario, changed: ClusterScenario, one: str, replay: Replay = DRAWN
) -> str:
    """Why one part of a change has no effect, by the name of its value, as typed or alone."""
    name = one.partition("=")[0].strip()
    group, *which, value = name.split(".")
    before, after = getattr(scenario, group), getattr(changed, group)
    if before == after:
        now = getattr(before, value, None)
        return f"{name} stays as it is" if now is None else f"{name} is {now} with it, as before"
    if not isinstance(before, tuple):
        return _why_value(scenario, changed, name, (before, after), replay)
    key = ENTRY_KEYS[group]
    reasons = [
        _why_value(scenario, changed, name, pair, replay)
        for pair in zip(before, after, strict=True)
        if (not which or which[0] in ("*", str(getattr(pair[1], key))))
        and getattr(pair[0], value) != getattr(pair[1], value)
    ]
    if not reasons:
        return f"{name} stays as it is"
    not_read = f"{name} is not read where "
    # of many entries the name stands once
    first, *others = dict.fromkeys(reasons)
    return " and ".join((first, *(one.removeprefix(not_read) for one in others)))


def _why_value(
    scenario: ClusterScenario,
    changed: ClusterScenario,
    name: str,
    pair: tuple[Part, Part],
    replay: Replay,
) -> str:
    """The same of one value of a part, before and after."""
    group, value = name.partition(".")[0], name.rpartition(".")[2]
    before, after = (getattr(part, value) for part in pair)
    is_taken_alike = as_read(scenario, group, pair[0], value) == as_read(
        changed, group, pair[1], value
    )
    if before != after and is_taken_alike:
        return f"{name}: {before:g} and {after:g} {why_read_alike(changed, group)}"
    if why := unread_of(changed, group, pair[1], replay).get(value):
        return f"{name} is not read where {why}"
    return f"{name} stays as it is"
