"""Gates of a run: how often to test whether what it trains is still usable.

A run becomes doomed at a constant rate of productive time. A gate takes its time and finds a
doomed run with some chance; the run then goes back to the state before it was doomed. A run with
an end is judged there for certain, by a last gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY
from ettr.words import significant, spell

SECONDS_PER_WEEK = 7 * SECONDS_PER_DAY
_STEPS = 100
_LEAST_CHANCE = 0.001
_MOST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate of a run: its length, how often runs are doomed, and the chance that it finds that.

    Raises:
        UsageError: values that no gate can have.
    """

    cost_s: float
    doomed_per_s: float
    catch_chance: float

    def __post_init__(self) -> None:
        """Check the values."""
        if not (0 < self.cost_s < math.inf and 0 < self.doomed_per_s < math.inf):
            raise UsageError("--gate and --doomed: give a time and a rate above 0")
        if not _LEAST_CHANCE <= self.catch_chance <= 1:
            raise UsageError(f"--catch {self.catch_chance:g}: give {_LEAST_CHANCE:g} to 1")


@dataclass(frozen=True, slots=True)
class GatePlan:
    """When to test a run.

    Attributes:
        first_order_interval_s: √(g s / λ), and `first_order_share` the useful share there.
        interval_s: By the exact form; a whole number of intervals in a run with an end.
        useful_share: Share of time that trains what is kept, checkpoints and failures apart.
        without_share: The same if the run is judged at its end alone; None for a run without end.
        gates: In a run that is never doomed; None for a run without end.
    """

    cost_s: float
    doomed_per_week: float
    catch_chance: float
    first_order_interval_s: float
    first_order_share: float
    interval_s: float
    useful_share: float
    without_share: float | None
    gates: int | None


def first_order_interval_s(gate: Gate) -> float:
    """√(g s / λ): where gates cost as much as the work that doomed runs lose."""
    return math.sqrt(gate.cost_s * gate.catch_chance / gate.doomed_per_s)


def exact_interval_s(gate: Gate) -> float:
    """The best interval of a run without end: T (T + g) = (g / λ) (1 − (1 − s) e^(−λT)).

    The left side less the right one rises with T, so that there is one.
    """
    cost_s, rate, missed = gate.cost_s, gate.doomed_per_s, 1.0 - gate.catch_chance
    low, high = 0.0, math.sqrt(cost_s / rate)  # the right side is at most g / λ
    for _ in range(_STEPS):
        at_s = (low + high) / 2.0
        if at_s * (at_s + cost_s) < cost_s / rate * (1.0 - missed * math.exp(-rate * at_s)):
            low = at_s
        else:
            high = at_s
    return (low + high) / 2.0


def useful_share(gate: Gate, interval_s: float) -> float:
    """Share of a run without end that trains what is kept, with a gate after each interval.

    An interval leaves a good run good with chance p = e^(−λT). Else it and those until a gate
    finds out, 1 / s on average, are lost.
    """
    good = math.exp(-min(_MOST_EXPONENT, gate.doomed_per_s * interval_s))
    intervals = good + (1.0 - good) / gate.catch_chance
    return interval_s * good / ((interval_s + gate.cost_s) * intervals)


def useful_share_of_run(gate: Gate, run_s: float, n_intervals: int) -> float:
    """The same of a run with an end, cut into equal intervals; the last gate misses nothing."""
    interval_s = run_s / n_intervals
    doomed = math.expm1(min(_MOST_EXPONENT, gate.doomed_per_s * interval_s))  # for each good one
    caught, missed = gate.catch_chance, 1.0 - gate.catch_chance
    tries = (n_intervals - missed * (1.0 - missed**n_intervals) / caught) / caught
    return run_s / ((interval_s + gate.cost_s) * (n_intervals + doomed * tries))


def gate_plan(gate: Gate, run_s: float) -> GatePlan:
    """When to test a run of so much productive time, without end if infinite.

    Raises:
        UsageError: testing it at its end alone keeps as much; says from which chance on not.
    """
    first_s, without, gates = first_order_interval_s(gate), None, None
    if math.isinf(run_s):
        best_s = exact_interval_s(gate)
        share, first_share = useful_share(gate, best_s), useful_share(gate, first_s)
    else:
        without = useful_share_of_run(gate, run_s, 1)
        share, gates = _best_of_run(gate, run_s)
        if share <= without:
            raise UsageError(_cannot_pay(gate, run_s, without))
        best_s = run_s / gates
        first_share = useful_share_of_run(gate, run_s, max(1, round(run_s / first_s)))
    return GatePlan(
        gate.cost_s,
        gate.doomed_per_s * SECONDS_PER_WEEK,
        gate.catch_chance,
        first_s,
        first_share,
        best_s,
        share,
        without,
        gates,
    )


def _best_of_run(gate: Gate, run_s: float) -> tuple[float, int]:
    """The largest useful share of a run with two intervals or more, and their number."""
    near = int(run_s / exact_interval_s(gate))
    return max(
        (useful_share_of_run(gate, run_s, n), n) for n in {2, *(max(2, near + k) for k in range(3))}
    )


def _cannot_pay(gate: Gate, run_s: float, without: float) -> str:
    def pays(chance: float) -> bool:
        return _best_of_run(Gate(gate.cost_s, gate.doomed_per_s, chance), run_s)[0] > without

    head = (
        f"--gate {spell(gate.cost_s)}: costs more than it saves in a run of {spell(run_s)} doomed "
        f"{significant(gate.doomed_per_s * SECONDS_PER_WEEK)} times a week"
    )
    if not pays(1.0):
        return f"{head}, at any catch chance; leave it out, or give a shorter one"
    low, high = gate.catch_chance, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if pays(middle) else (middle, high)
    return f"{head}; it pays from a catch chance of {math.ceil(high * 1000) / 1000:g} on (--catch)"
