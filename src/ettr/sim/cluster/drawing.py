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
SUMS_TO_ONE = {"jobs": ("share",), "priorities": ("share_of_shared", "share_of_gangs")}
"""Shares of which those of all entries are 1 together."""


def drawn_scenario(scenario: ClusterScenario, seed: int, replica: int) -> ClusterScenario:
    """The scenario with each value that has an interval drawn again.

    Numbers are lognormal and shares logit-normal, with that interval as their 90 % interval; each
    is drawn by itself, from a stream of its own name. Values without an interval stay.

    Args:
        scenario: Fitted.
        seed: Of the back-test.
        replica: Number of the draw.
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
            groups[name] = tuple(parts)
        else:
            groups[name] = _drawn(scenario, value, name, seed, replica)
    groups["outcomes"] = _bounded(groups["outcomes"])
    return replace(scenario, **groups, validation=None)


def _drawn(scenario: ClusterScenario, part: Part, where: str, seed: int, replica: int) -> Any:
    changes: dict[str, float] = {}
    for one in fields(part):
        ends = scenario.intervals.get(f"{where}.{one.name}")
        value = getattr(part, one.name)
        if ends is None or not value > 0:
            continue
        normal = float(stream(seed, f"value {where}.{one.name}", replica).standard_normal())
        is_share = one.name.endswith(("share", "_chance")) or one.name.startswith("share_of")
        made = _share(value, ends, normal) if is_share else _number(value, ends, normal)
        largest = LARGEST.get(one.name, MOST_S if one.name.endswith("_s") else math.inf)
        made = min(made, largest)
        changes[one.name] = round(made) if isinstance(value, int) else made
    return replace(part, **changes)  # type: ignore[arg-type]


def _number(value: float, ends: tuple[float, float], normal: float) -> float:
    return value * math.exp(normal * _deviation(math.log, value, ends, 0.0, math.inf))


def _share(value: float, ends: tuple[float, float], normal: float) -> float:
    if value >= 1.0:
        return value
    made = _logit(value) + normal * _deviation(_logit, value, ends, 0.0, 1.0)
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


def _bounded(outcomes: Any) -> Any:
    """Shares of ends that were drawn apart from each other, never more than all jobs."""
    names = ("failed_share", "cancelled_share", "out_of_memory_share", "timeout_share")
    total = sum(getattr(outcomes, name) for name in names)
    if total <= 1.0:
        return outcomes
    return replace(outcomes, **{name: getattr(outcomes, name) / total for name in names})
