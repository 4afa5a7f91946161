"""Hazards that change in time: factors that hold from one day on until the next change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ettr.models.law import LifeLaw
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import FaultProcess, RateChange, SimulatedPeriod
from ettr.units import SECONDS_PER_DAY

Steps = tuple[tuple[float, float, float], ...]
"""Begin and end in seconds of the simulation, and the factor of the hazard between them."""
Floats = NDArray[np.float64]


def steps_of(changes: Sequence[RateChange], symptom: str) -> Steps:
    """The factors of one symptom from the beginning on; empty where the hazard never changes."""
    own = sorted((one.from_day, one.factor) for one in changes if one.symptom == symptom)
    if all(factor == 1.0 for _, factor in own):
        return ()
    begins = [0.0, *(day * SECONDS_PER_DAY for day, _ in own)]
    factors = [1.0, *(factor for _, factor in own)]
    ends = [*begins[1:], math.inf]
    return tuple(zip(begins, ends, factors, strict=True))


def hazard_of_service(law: LifeLaw, steps: Steps, age_s: float, now_s: float, s: float) -> float:
    """Expected faults of a node in some seconds of service from a moment and an age on."""
    found = 0.0
    for begin_s, end_s, factor in steps:
        first_s, last_s = max(begin_s, now_s), min(end_s, now_s + s)
        if factor and last_s > first_s:
            ages_s = age_s + np.array([first_s, last_s]) - now_s
            before, after = law.cumulative_hazard(ages_s).tolist()
            found += factor * (after - before)
    return found


def service_until(law: LifeLaw, steps: Steps, age_s: Floats, now_s: Floats, owed: Floats) -> Floats:
    """Service of each node until its expected faults reach a number; infinite if never.

    The clock of the hazard runs faster by the factor: exact for every law.

    Args:
        law: Of the time in service between faults, for a factor of 1.
        steps: Of the factors.
        age_s: Of each node at that moment, shape (nodes,).
        now_s: The moment, shape (nodes,).
        owed: The number of each, shape (nodes,).
    """
    left_s = np.full(age_s.size, math.inf)
    owed, is_open = owed.copy(), np.ones(age_s.size, dtype=np.bool_)
    for begin_s, end_s, factor in steps:
        first_s = np.maximum(begin_s, now_s)
        (nodes,) = np.nonzero(is_open & (end_s > first_s))
        if not factor or not nodes.size:
            continue
        waits_s = first_s[nodes] - now_s[nodes]
        ages_s = age_s[nodes] + waits_s
        here = law.cumulative_hazard(ages_s)
        takes_s = law.clock_at(here + owed[nodes] / factor) - ages_s
        comes = takes_s <= end_s - first_s[nodes]
        left_s[nodes[comes]] = (waits_s + takes_s)[comes]
        is_open[nodes[comes]] = False
        if (later := nodes[~comes]).size:
            ends = law.cumulative_hazard(age_s[later] + end_s - now_s[later])
            owed[later] = np.maximum(0.0, owed[later] - factor * (ends - here[~comes]))
    return left_s


def in_period(scenario: ClusterScenario, period: SimulatedPeriod) -> ClusterScenario:
    """The scenario in another period: what begins or ends on a day does so on the same date."""
    days = (period.origin - scenario.period.origin).total_seconds() / SECONDS_PER_DAY
    return replace(
        scenario,
        period=period,
        faults=tuple(_process_later(one, days) for one in scenario.faults),
        rate_changes=tuple(_changes_later(scenario.rate_changes, days)),
    )


def _process_later(process: FaultProcess, days: float) -> FaultProcess:
    if process.from_day == 0.0 and process.to_day == math.inf:
        return process
    if process.to_day <= days:
        return replace(process, per_1000_node_days=0.0, from_day=0.0, to_day=math.inf)
    # what begins with the scenario has no earlier day
    from_day = max(0.0, process.from_day - days) if process.from_day else 0.0
    return replace(process, from_day=from_day, to_day=process.to_day - days)


def _changes_later(changes: Sequence[RateChange], days: float) -> Iterator[RateChange]:
    """The changes by the new days; of those that came before, each symptom keeps the last."""
    for one in changes:
        is_past = one.from_day <= days
        newer = (
            other
            for other in changes
            if other.symptom == one.symptom and one.from_day < other.from_day <= days
        )
        if not (is_past and any(newer)):
            yield replace(one, from_day=max(0.0, one.from_day - days))
