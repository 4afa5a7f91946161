"""Changes of a scenario that change nothing of what is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ettr.errors import UsageError
from ettr.sim.cluster.replay import DRAWN, Replay
from ettr.sim.cluster.scenario import ABOUT, ENTRY_KEYS, ClusterScenario
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.cluster.unread import as_read, unread_of, why_read_alike


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
    scenario: ClusterScenario, changed: ClusterScenario, name: str, pair: tuple[Part, Part],
    replay: Replay,
) -> str:  # fmt: skip
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
