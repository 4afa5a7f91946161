"""The bound anchored at T for each model, where it has one; as a table.

x* is the state after six times as many iterations, c the largest ratio of two successive distances
from it on the way to κ0: a lower bound of the c of the theory. Where a step leads away (c ≥ 1)
there is no bound. T and the lost half are drawn as in the trials, over the first clean run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reproduction.scar.checkpoint_replay import Checkpointing, saved_at, stored
from reproduction.scar.theory import anchored_cost
from reproduction.scar.trials import (
    Arm,
    Settings,
    failure_iteration,
    lost_units,
    recovered,
)
from reproduction.scar.workload import CleanRun, Floats, Workload, keyed

LONGER = 6
ARMS = (
    Arm("partial", Checkpointing("full"), 0.5),
    Arm("partial", Checkpointing("priority", 8), 0.5),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Mean bounds over the trials, in iterations by arm; None: a step leads away from the end."""

    name: str
    worst_step: float
    mean_step: float
    costs: dict[str, float] | None


def bounds_of(workload: Workload, settings: Settings, trials: int = 100) -> Bounds:
    """The bounds of one model."""
    clean, end = _long_run(workload, settings)
    distance = np.array([_norm(workload, end, state) for state in clean.states])
    worst = float(np.max(distance[1:] / distance[:-1]))
    mean = float((distance[-1] / distance[0]) ** (1 / settings.iterations))
    if worst >= 1.0:
        return Bounds(workload.name, worst, mean, None)
    units = workload.offsets.size - 1
    ages = {arm: saved_at(workload, clean, arm.saving, settings.interval) for arm in ARMS}
    costs: dict[str, list[float]] = {arm.key: [] for arm in ARMS}
    for number in range(trials):
        rng = keyed(number, 1009)
        at = failure_iteration(rng, settings.failure_chance, settings.iterations - 1)
        order = rng.permutation(units)
        for arm in ARMS:
            saved = stored(clean, ages[arm][at], workload.offsets)
            lost = lost_units(arm, units, order, order)
            state = recovered(clean.states[at], saved, workload.offsets, lost)
            size = _norm(workload, clean.states[at], state)
            costs[arm.key].append(anchored_cost(float(distance[at]), size, worst))
    return Bounds(
        workload.name, worst, mean, {key: float(np.mean(of)) for key, of in costs.items()}
    )


def write_bounds(found: Iterable[Bounds], path: Path) -> None:
    """The table as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(
            (
                "experiment",
                "mean step towards the end",
                "worst step",
                "bound of partial alone, iterations",
                "bound of priority 1/8, iterations",
            )
        )
        for one in found:
            costs = [f"{one.costs[arm.key]:.1f}" if one.costs else "none" for arm in ARMS]
            out.writerow((one.name, f"{one.mean_step:.4f}", f"{one.worst_step:.4f}", *costs))


def _long_run(workload: Workload, settings: Settings) -> tuple[CleanRun, Floats]:
    """The first clean run as far as κ0, and its state after many more iterations."""
    state = workload.start(0)
    states = [state]
    for at in range(LONGER * settings.iterations):
        (state,), _ = workload.advance([state], at, 0)
        if len(states) <= settings.iterations:
            states.append(state)
    return CleanRun(0, np.stack(states), np.zeros(0), settings.smooth), state


def _norm(workload: Workload, one: Floats, other: Floats) -> float:
    return float(np.linalg.norm(workload.moved(one, other)))
