"""Changes of a scenario that change nothing of what is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ettr.errors import UsageError
from ettr.sim.cluster.faults import n_lemons_of
from ettr.sim.cluster.scenario import ABOUT, ClusterScenario

_CONSTANT = "constant"


def refuse_no_effect(scenario: ClusterScenario, change: str, changed: ClusterScenario) -> None:
    """Refuse a change no part of which changes anything: its difference of 0 is no answer.

    Args:
        scenario: As it is.
        change: As typed.
        changed: The scenario with it.

    Raises:
        UsageError: both are simulated alike; the reason of each part is named.
    """
    if not is_simulated_alike(scenario, changed):
        return
    reasons = "; ".join(why_alike(scenario, changed, one.strip()) for one in change.split(","))
    raise UsageError(
        f"--set {change!r} changes nothing that is simulated: {reasons}. Give another value"
    )


def is_simulated_alike(scenario: ClusterScenario, changed: ClusterScenario) -> bool:
    """Whether two scenarios differ in nothing that a simulation reads."""
    return _read(scenario) == _read(changed)


def _read(scenario: ClusterScenario) -> Mapping[str, Any]:
    """The values as a simulation reads them, by group."""
    groups = {
        name: getattr(scenario, name) for name in scenario.__dataclass_fields__ if name not in ABOUT
    }
    groups["lemons"] = replace(scenario.lemons, share=n_lemons_of(scenario))
    groups["faults"] = tuple(
        replace(one, form=1.0) if one.law == _CONSTANT else one for one in scenario.faults
    )
    idle = _idle(scenario)
    for group in {group for group, _ in idle}:
        part = groups[group]
        groups[group] = [
            getattr(part, one.name) for one in fields(part) if (group, one.name) not in idle
        ]
    return groups


def _idle(scenario: ClusterScenario) -> Mapping[tuple[str, str], str]:
    """Values that nothing of the scenario comes to, by group and name, with the reason."""
    checks, outcomes = scenario.checks, scenario.outcomes
    false_alarms = checks.false_high_per_node_day or checks.false_low_per_node_day
    own = "each class of jobs has a share of its own"
    comes = {
        ("lemons", "factor"): (n_lemons_of(scenario), "no node is a lemon"),
        ("checks", "false_repair_mean_s"): (false_alarms, "there are no false alarms"),
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


def why_alike(scenario: ClusterScenario, changed: ClusterScenario, one: str) -> str:
    """Why one part of a change has no effect, by the name of its value, as typed or alone."""
    name = one.partition("=")[0].strip()
    group, *_, value = name.split(".")
    if getattr(scenario, group) == getattr(changed, group):
        now = getattr(getattr(scenario, group), value, None)
        return f"{name} stays as it is" if now is None else f"{name} is {now} with it, as before"
    if why := _idle(changed).get((group, value)):
        return f"{name} is not read where {why}"
    if group == "faults":
        return f"{name} is not read where the law is constant"
    before, after = scenario.lemons.share, changed.lemons.share
    return (
        f"{before:g} and {after:g} of {scenario.machines.nodes:,} nodes are both "
        f"{n_lemons_of(scenario):,} lemons"
    )
