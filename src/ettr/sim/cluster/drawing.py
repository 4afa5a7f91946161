"""A scenario whose estimated values are drawn from their intervals: how little they are known."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ettr.sim.cluster.scenario import ABOUT, LARGEST, MOST_S, ClusterScenario
from ettr.sim.cluster.scenario_parts import Part
from ettr.sim.streams import stream

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
