"""Changes of a scenario that change nothing of what is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ettr.errors import UsageError
from ettr.sim.cluster.faults import n_lemons_of
from ettr.sim.cluster.replay import DRAWN, Replay
from ettr.sim.cluster.scenario import ABOUT, ClusterScenario
from ettr.sim.cluster.scenario_parts import FaultProcess
from ettr.words import counted

_CONSTANT = "constant"
_OF_OWN_FAULTS = ("law", "form", "as_new_share", "from_day", "to_day")
"""Values of a fault process that only faults which come by themselves read."""


def refuse_no_effect(
    scenario: ClusterScenario, change: str, changed: ClusterScenario, replay: Replay = DRAWN
) -> None:
    """Refuse a change no part of which changes anything: its difference of 0 is no answer.

    Args:
        scenario: As it is.
        change: As typed.
        changed: The scenario with it.
        replay: Jobs and faults from logs, which read values that drawn ones would not.

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
    groups = {
        name: getattr(scenario, name) for name in scenario.__dataclass_fields__ if name not in ABOUT
    }
    groups["lemons"] = replace(scenario.lemons, share=n_lemons_of(scenario))
    groups["faults"] = [_read_of_fault(scenario, one, replay) for one in scenario.faults]
    idle = _idle(scenario, replay)
    for group in {group for group, _ in idle}:
        part = groups[group]
        groups[group] = [
            getattr(part, one.name) for one in fields(part) if (group, one.name) not in idle
        ]
    return groups


def _read_of_fault(
    scenario: ClusterScenario, process: FaultProcess, replay: Replay
) -> Mapping[str, Any]:
    idle = _idle_of_fault(scenario, process, replay)
    return {one.name: getattr(process, one.name) for one in fields(process) if one.name not in idle}


def _idle_of_fault(
    scenario: ClusterScenario, process: FaultProcess, replay: Replay
) -> Mapping[str, str]:
    """Values of a fault process that nothing reads, by name, with the reason."""
    if replay.faults is None and not process.per_1000_node_days:
        if not _comes_in_bursts(scenario, process):
            named = ("symptom", "per_1000_node_days")
            why = f"{process.symptom} has a rate of 0 and comes in no burst"
            return {one.name: why for one in fields(process) if one.name not in named}
        return dict.fromkeys(_OF_OWN_FAULTS, f"{process.symptom} comes in bursts alone")
    if process.law == _CONSTANT:
        # whatever the age, as many faults are to come
        return dict.fromkeys(("form", "as_new_share"), "the law is constant")
    return {}


def _comes_in_bursts(scenario: ClusterScenario, process: FaultProcess) -> bool:
    return any(
        one.symptom == process.symptom and one.per_year and one.hit_share for one in scenario.bursts
    )


def _may_stop_nodes(scenario: ClusterScenario, replay: Replay) -> bool:
    """Whether a fault that comes may leave a node silent."""
    if replay.faults is None:
        come = {
            one.symptom
            for one in scenario.faults
            if one.per_1000_node_days or _comes_in_bursts(scenario, one)
        }
    else:
        come = {one.symptom for one in replay.faults}
    return any(one.node_down_chance for one in scenario.faults if one.symptom in come)


def _idle(scenario: ClusterScenario, replay: Replay) -> Mapping[tuple[str, str], str]:
    """Values that nothing of the scenario comes to, by group and name, with the reason."""
    checks, outcomes = scenario.checks, scenario.outcomes
    false_alarms = checks.false_high_per_node_day or checks.false_low_per_node_day
    own = "each class of jobs has a share of its own"
    comes = {
        ("lemons", "factor"): (n_lemons_of(scenario), "no node is a lemon"),
        ("checks", "false_repair_mean_s"): (false_alarms, "there are no false alarms"),
        ("checks", "heartbeat_s"): (_may_stop_nodes(scenario, replay), "no fault stops a node"),
        ("outcomes", "failed_share"): (_is_left(scenario, "failed_share"), own),
        ("outcomes", "cancelled_share"): (_is_left(scenario, "cancelled_share"), own),
        ("outcomes", "mean_patience_s"): (outcomes.impatient_share, "nobody is impatient"),
        ("outcomes", "mean_crash_loop_tries"): (outcomes.crash_loop_share, "no job loops"),
        ("outcomes", "mean_crash_loop_s"): (outcomes.crash_loop_share, "no job loops"),
        ("checkpoints", "mean_resubmit_s"): (
            scenario.checkpoints.resubmit_chance,
            "nobody submits a job again",
        ),
    }
    return {value: why for value, (any_of_it, why) in comes.items() if not any_of_it}


def _is_left(scenario: ClusterScenario, name: str) -> bool:
    """Whether some class of jobs leaves a share of the ends to what holds for all."""
    return any(math.isinf(getattr(job, name)) for job in scenario.jobs)


def why_alike(
    scenario: ClusterScenario, changed: ClusterScenario, one: str, replay: Replay = DRAWN
) -> str:
    """Why one part of a change has no effect, by the name of its value, as typed or alone."""
    name = one.partition("=")[0].strip()
    group, *which, value = name.split(".")
    if getattr(scenario, group) == getattr(changed, group):
        now = getattr(getattr(scenario, group), value, None)
        return f"{name} stays as it is" if now is None else f"{name} is {now} with it, as before"
    if why := _idle(changed, replay).get((group, value)):
        return f"{name} is not read where {why}"
    if group == "faults":
        symptom = which[0] if which else "*"
        reasons = [
            _idle_of_fault(changed, after, replay)[value]
            for before, after in zip(scenario.faults, changed.faults, strict=True)
            if symptom in ("*", after.symptom) and getattr(before, value) != getattr(after, value)
        ]
        if not reasons:
            return f"{name} stays as it is"
        return f"{name} is not read where {' and '.join(dict.fromkeys(reasons))}"
    before, after = scenario.lemons.share, changed.lemons.share
    return (
        f"{before:g} and {after:g} of {scenario.machines.nodes:,} nodes are both "
        f"{counted(n_lemons_of(scenario), 'lemon')}"
    )
