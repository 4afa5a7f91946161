"""How far a scenario is to be believed: what each answer of a simulation says about it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from ettr.sim.cluster.scenario import (
    ABOUT,
    ASKED,
    LARGEST,
    MOST_S,
    NEVER_VALIDATED,
    QUANTITIES,
    SAVES,
    ClusterScenario,
    Validation,
    parts_of,
)
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.engine import stream

Verdict = Literal["passed", "failed", "not validated"]


@dataclass(frozen=True, slots=True)
class ScenarioStanding:
    """What a back-test says of a scenario, if there was one of these values."""

    verdict: Verdict
    sentence: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    not_validated: tuple[str, ...]


def values_digest(scenario: ClusterScenario) -> str:
    """SHA-256 of the values of a cluster and their intervals; name, period, sources are left out.

    Values that equal their defaults are left out, too: a field that a later version adds so does
    not change the digest of files that are older than it. A back-test draws from the intervals:
    wider ones let more pass.
    """
    lines = [
        f"{where}.{one.name}={getattr(part, one.name)!r}"
        for where, part in parts_of(scenario)
        if where not in ASKED
        for one in fields(part)
        if getattr(part, one.name) != one.default
    ]
    lines += [
        f"{key} from {low!r} to {high!r}"
        for key, (low, high) in sorted(scenario.intervals.items())  # whatever their order
        if key.partition(".")[0] not in ASKED
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def standing_of(scenario: ClusterScenario, replayed: Collection[str] = ()) -> ScenarioStanding:
    """How far a scenario is to be believed.

    Args:
        replayed: What is not drawn (`Replay.what`). A back-test draws all of it: that a scenario
            failed holds with a replay, too, and that it passed does not.
    """
    found = scenario.validation
    untested = (*QUANTITIES, *NEVER_VALIDATED)
    if found is None:
        words = (
            f"NOT VALIDATED: no back-test has compared {scenario.name} with a real cluster "
            "(ettr simulate backtest does)."
        )
        return ScenarioStanding("not validated", words, (), (), untested)
    if found.values_sha256 != values_digest(scenario):
        words = (
            f"NOT VALIDATED: the values of {scenario.name} or their intervals are not those that "
            f"were back-tested against {found.store}; back-test it again."
        )
        return ScenarioStanding("not validated", words, (), (), untested)
    if replayed and found.passed and not found.failed:
        what = " and ".join(replayed)
        words = (
            f"NOT VALIDATED with {what} that are replayed: {scenario.name} passed its "
            f"back-test with {what} that were drawn ({_when(found)})."
        )
        return ScenarioStanding("not validated", words, (), (), untested)
    judged = {*found.passed, *found.failed}
    rest = tuple(name for name in untested if name not in judged)
    if not found.passed and not found.failed:
        words = f"NOT VALIDATED: the back-test against {found.store} could compare nothing."
        return ScenarioStanding("not validated", words, (), (), rest)
    return ScenarioStanding(
        "failed" if found.failed else "passed",
        _sentence(found, scenario.name),
        found.passed,
        found.failed,
        rest,
    )


def _sentence(found: Validation, name: str) -> str:
    words = _verdict_words(found, name)
    if not found.simulated:
        return words
    return f"{words} {found.store} is not a real cluster. {found.simulated}"


def _verdict_words(found: Validation, name: str) -> str:
    when = _when(found)
    if found.failed:
        return (
            f"FAILED ITS BACK-TEST: {name} does not predict {', '.join(found.failed)} ({when}); "
            "do not rely on answers that depend on these."
        )
    rest = "" if SAVES in found.passed else ", except checkpoints (no training recorded them)"
    return f"Back-tested{rest}: {name} predicts what was held back ({when})."


def _when(found: Validation) -> str:
    itself = ", SIMULATED itself" if found.simulated else ""
    return f"{found.store}, {found.held_back_from} until {found.held_back_until}{itself}"


def standing_lines(standing: ScenarioStanding) -> tuple[str, ...]:
    """The same for a reader: the verdict, and what it leaves out where there is one."""
    made = [standing.sentence]
    if standing.passed:
        made.append(f"Passed: {', '.join(standing.passed)}.")
    if standing.verdict != "not validated":
        made.append(f"Not validated: {'; '.join(standing.not_validated)}.")
    return tuple(made)


# -- a scenario whose estimated values are drawn from their intervals: how little they are known


_Z = 1.6448536269514722
"""Half the width of a 90 % interval in standard deviations of a normal distribution."""
_MEANS_TO_HIGH_END = -math.log(0.05)
"""The 95 % point of an exponential distribution in its means: what no event in a time leaves."""
_OF_ONE_TRIAL = 0.95
"""High end of a share of which one trial is known; nothing that is known is less."""
BOUNDS = {
    "day_amplitude": (0.0, 0.99),
    "longest_limit_factor": (1.0, math.inf),
    "mean_crash_loop_tries": (2.0, math.inf),
}
"""Ends of the values that a scenario can have, where they are not 0 and `LARGEST`."""
AT_MOST_ONE = {
    "outcomes": ("failed_share", "cancelled_share", "out_of_memory_share", "timeout_share"),
    "faults": ("node_down_chance", "crash_chance"),
}
"""Shares and chances of one entry that are 1 together at most."""
SUMS_TO_ONE = {"jobs": ("share",), "priorities": ("share_of_shared", "share_of_gangs")}
"""Shares of which those of all entries are 1 together."""


def drawn_scenario(scenario: ClusterScenario, seed: int, replica: int) -> ClusterScenario:
    """The scenario with each value that has an interval drawn again.

    Numbers are lognormal and shares logit-normal, with that interval as their 90 % interval; each
    is drawn by itself, from a stream of its own name. A value of 0 is exponential with the high
    end as its 95 % point: so is the Poisson rate of what was not seen in a time, if all rates were
    as likely before. A share of 0 is so on the scale of the logarithm of what it leaves: it is
    that of n trials without one. Shares that are drawn to more than 1 together are made smaller in
    proportion.
    """
    groups: dict[str, Any] = {}
    for name in scenario.__dataclass_fields__:
        value = getattr(scenario, name)
        if name in ABOUT or value is None:
            continue
        if isinstance(value, tuple):
            parts = [
                _drawn(scenario, part, f"{name}[{i + 1}]", seed, replica)
                for i, part in enumerate(value)
            ]
            for share in SUMS_TO_ONE.get(name, ()):
                total = sum(getattr(part, share) for part in parts)
                parts = [replace(p, **{share: getattr(p, share) / total}) for p in parts]
            groups[name] = tuple(_at_most_one(name, part) for part in parts)
        else:
            groups[name] = _at_most_one(name, _drawn(scenario, value, name, seed, replica))
    return replace(scenario, **groups, validation=None)


def _drawn(scenario: ClusterScenario, part: Part, where: str, seed: int, replica: int) -> Any:
    changes: dict[str, float] = {}
    for one in fields(part):
        ends = scenario.intervals.get(f"{where}.{one.name}")
        value = getattr(part, one.name)
        if ends is None or value < 0:
            continue
        rng = stream(seed, f"value {where}.{one.name}", replica)
        is_share = one.name.endswith(("share", "_chance")) or one.name.startswith("share_of")
        made = _share(value, ends, rng) if is_share else _number(value, ends, rng)
        changes[one.name] = _possible(one.name, value, made)
    return replace(part, **changes)  # type: ignore[arg-type]


def _possible(name: str, value: float, made: float) -> float:
    """What was drawn, within what a scenario can have; whole numbers of 1 and more stay so."""
    least, most = BOUNDS.get(name, (0.0, math.inf))
    largest = LARGEST.get(name, MOST_S if name.endswith("_s") else math.inf)
    made = min(max(made, least), most, largest)
    if not isinstance(value, int):
        return made
    return max(round(made), min(value, 1))


def _number(value: float, ends: tuple[float, float], rng: np.random.Generator) -> float:
    if value == 0:
        return ends[1] * float(rng.standard_exponential()) / _MEANS_TO_HIGH_END
    normal = float(rng.standard_normal())
    return value * math.exp(normal * _deviation(math.log, value, ends, 0.0, math.inf))


def _share(value: float, ends: tuple[float, float], rng: np.random.Generator) -> float:
    if value == 0:
        means = float(rng.standard_exponential()) / _MEANS_TO_HIGH_END
        return -math.expm1(means * math.log1p(-min(ends[1], _OF_ONE_TRIAL)))
    if value >= 1.0:
        return 1.0 - _share(0.0, (0.0, 1.0 - ends[0]), rng)
    made = _logit(value) + float(rng.standard_normal()) * _deviation(_logit, value, ends, 0.0, 1.0)
    return 1.0 / (1.0 + math.exp(-made))


def _logit(share: float) -> float:
    return math.log(share / (1.0 - share))


def _deviation(
    scale: Any, value: float, ends: tuple[float, float], least: float, most: float
) -> float:
    """Standard deviation on a scale, from those ends of the interval that lie on it."""
    low, high = ends
    halves = []
    if low > least:
        halves.append(scale(value) - scale(low))
    if high < most:
        halves.append(scale(high) - scale(value))
    return float(np.mean(halves)) / _Z if halves else 0.0


def _at_most_one(group: str, part: Any) -> Any:
    """A part whose shares were drawn apart from each other, together never more than 1."""
    names = AT_MOST_ONE.get(group, ())
    total = sum(getattr(part, name) for name in names)
    if total <= 1.0:
        return part
    return replace(part, **{name: getattr(part, name) / total for name in names})
