"""Sensitivity of ETTR to each input, by the exact form."""

import math
from dataclasses import dataclass

from ettr.plan.renewal import exact_ettr, expected_recovery_s, expected_segment_s
from ettr.plan.run import PlannedRun, changed

INPUTS = ("failures_per_node_day", "n_nodes", "interval_s", "write_s", "restart_s", "queue_s")


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Effect of one input on ETTR.

    Attributes:
        name: The input.
        value: Its value.
        elasticity: Per cent of change of ETTR for one per cent of change of the input;
            not a number where ETTR is 0.
        ettr_if_halved: ETTR with half the value; for n_nodes, with half the load.
    """

    name: str
    value: float
    elasticity: float
    ettr_if_halved: float


def sensitivities(run: PlannedRun) -> tuple[Sensitivity, ...]:
    """The effect of each input, the strongest first."""
    found = [
        Sensitivity(name, getattr(run, name), _elasticity(run, name), _halved(run, name))
        for name in INPUTS
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.elasticity)))


def _elasticity(run: PlannedRun, name: str) -> float:
    if not math.isinf(run.productive_s):
        return _numeric(run, name)
    rate = run.failures_per_s
    load = rate * (run.interval_s + run.write_s)
    # λL e^λL / (e^λL - 1), and per unit of load
    turning = load / -math.expm1(-load) if load > 0 else 1.0
    share = turning / (run.interval_s + run.write_s)
    waiting = rate * run.queue_s / (1.0 + rate * run.queue_s)
    of_rate = 1.0 - rate * run.restart_s - waiting - turning
    return {
        "failures_per_node_day": of_rate,
        "n_nodes": of_rate,
        "interval_s": 1.0 - share * run.interval_s,
        "write_s": -share * run.write_s,
        "restart_s": -rate * run.restart_s,
        "queue_s": -waiting,
    }[name]


def _scaled(run: PlannedRun, name: str, factor: float) -> PlannedRun:
    # nodes come in whole numbers; the rate of all of them does not
    field = "failures_per_node_day" if name == "n_nodes" else name
    value: float = getattr(run, field)
    return changed(run, field, value * factor)


def _numeric(run: PlannedRun, name: str) -> float:
    step = 1e-4
    ettr = _ettr_of_equal_intervals if name == "interval_s" else exact_ettr
    up, down = (ettr(_scaled(run, name, math.exp(sign * step))) for sign in (1, -1))
    return (math.log(up) - math.log(down)) / (2.0 * step) if up > 0 and down > 0 else math.nan


def _ettr_of_equal_intervals(run: PlannedRun) -> float:
    """ETTR of a finite run whose number of intervals need not be whole.

    Next to a whole number a slightly shorter interval adds one more write, and the slope of the
    true form says nothing about intervals that differ by more.
    """
    intervals = run.productive_s / run.interval_s
    wall_s = expected_recovery_s(run) + intervals * expected_segment_s(run, run.interval_s)
    return run.productive_s / wall_s


def _halved(run: PlannedRun, name: str) -> float:
    return exact_ettr(_scaled(run, name, 0.5))
