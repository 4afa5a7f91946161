"""Questions that a plan answers when asked: cost, time budget, phases, maintenance, formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.cost import Cost, Price, cost_of
from ettr.plan.intervals import with_best_interval
from ettr.plan.network import LinkFaults, NetworkPlan, network_plan
from ettr.plan.renewal import (
    Maintained,
    MaintenancePlan,
    exact_ettr,
    expected_failures,
    expected_wallclock_s,
    maintained,
)
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import DeadlinePlan, TimeBudget, deadline_plan
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import significant, spell

# -- gates of a run: how often to test whether what it trains is still usable ----------------------
# A run becomes doomed at a constant rate of productive time. A gate takes its time and finds a
# doomed run with some chance; the run then goes back to the state before it was doomed. A run with
# an end is judged there for certain, by a last gate.


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


# -- questions that a plan answers when asked: cost, time budget, phases, maintenance, formulas ----


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked of a plan besides its ETTR.

    Attributes:
        phases: Sizes one after the other; empty for one size.
        node_types: Of a mixed run; empty for one type.
        formulas: Whether to give the formulas with the numbers in them.
    """

    price: Price | None = None
    budget: TimeBudget | None = None
    phases: tuple[PhaseLength, ...] = ()
    maintenance: MaintenancePlan | None = None
    node_types: tuple[NodeType, ...] = ()
    formulas: bool = False
    gate: Gate | None = None
    links: LinkFaults | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers; None or empty for what was not asked."""

    cost: Cost | None
    deadline: DeadlinePlan | None
    phases: PhasedRun | None
    maintenance: Maintained | None
    node_types: tuple[NodeType, ...]
    formulas: tuple[str, ...]
    gates: GatePlan | None = None
    network: NetworkPlan | None = None


def answers(run: PlannedRun, ettr: Interval, asked: Questions, *, best_planned: bool) -> Answers:
    """The answers for a run.

    Args:
        ettr: Of it, at the rate planned with and at the ends of its interval.
        best_planned: Whether the interval of `run` is the best one.

    Raises:
        UsageError: values that no run can have.
    """
    return Answers(
        cost=cost_of(run, ettr, asked.price),
        deadline=None if asked.budget is None else deadline_plan(run, asked.budget),
        phases=phased_run(run, asked.phases, keep_interval=not best_planned, price=asked.price)
        if asked.phases
        else None,
        maintenance=None if asked.maintenance is None else maintained(run, asked.maintenance),
        node_types=asked.node_types,
        formulas=formulas(run, best_planned=best_planned) if asked.formulas else (),
        gates=None if asked.gate is None else gate_plan(asked.gate, run.productive_s),
        network=None
        if asked.links is None
        else network_plan(asked.links, run.n_nodes, run.gpus_per_node),
    )


def formulas(run: PlannedRun, *, best_planned: bool) -> tuple[str, ...]:
    """The formulas of a plain run, one a line, the source of each in docs/explanation."""
    return (*_rate(run), *_interval(run, best_planned), *_ettr(run))


def _rate(run: PlannedRun) -> Iterator[str]:
    yield (
        f"λ = N r / 86,400 s = {run.n_nodes:,} × {significant(run.failures_per_node_day, 6)} a day "
        f"/ 86,400 s = {significant(run.failures_per_s, 6)} per s"
    ).replace("86,400", f"{SECONDS_PER_DAY:,.0f}")
    yield f"MTTF = 1 / λ = {significant(run.mttf_s, 6)} s = {spell(run.mttf_s)}"


def _interval(run: PlannedRun, best_planned: bool) -> Iterator[str]:
    if not best_planned:
        yield f"Δt = {significant(run.interval_s, 6)} s, as given"
        return
    rate, interval_s, write_s = run.failures_per_s, run.interval_s, run.write_s
    left = (1.0 - rate * interval_s) * math.exp(min(700.0, rate * (interval_s + write_s)))
    finite = " (before it is fitted to whole intervals)" if math.isfinite(run.productive_s) else ""
    yield (
        f"Δt solves (1 − λΔt) e^(λ(Δt + w)) = 1{finite}: Δt = {significant(interval_s, 6)} s, "
        f"where the left side is {significant(left, 6)}"
    )


def _ettr(run: PlannedRun) -> Iterator[str]:
    rate, interval_s = run.failures_per_s, run.interval_s
    load, restart = rate * (interval_s + run.write_s), rate * run.restart_s
    if math.isinf(run.productive_s):
        form = "ETTR = λΔt e^(−λu0) / [(1 + λq) (e^(λ(Δt + w)) − 1)]"
        work, queue = (
            significant(rate * interval_s, 6),
            significant(rate * run.queue_s, 6),
        )
        lost, held = significant(restart, 6), significant(load, 6)
        numbers = f"{work} × e^(−{lost}) / [(1 + {queue}) × (e^{held} − 1)]"
        yield f"{form} = {numbers} = {significant(exact_ettr(run), 6)}"
        return
    segment = "E[S(x)] = (1/λ + q) e^(λu0) (e^(λ(x + w)) − 1)"
    yield (
        f"E[W] = E[D] + (K − 1) E[S(Δt)] + E[S(rest)] with {segment}, = "
        f"{significant(expected_wallclock_s(run), 6)} s for R = {significant(run.productive_s, 6)} "
        f"s of work; {significant(expected_failures(run), 4)} failures expected"
    )
    yield f"ETTR = R / E[W] = {significant(exact_ettr(run), 6)}"


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes of one type in a run."""

    name: str
    n_nodes: int
    per_node_day: Interval

    @property
    def failures_per_day(self) -> float:
        """Of all its nodes, at the estimate; 0 where nothing failed yet."""
        return self.n_nodes * (self.per_node_day.estimate or 0.0)


def mixed_rate(types: Sequence[NodeType]) -> Interval:
    """Failure rate of the mean node of a mixed run, per day.

    In a run in series the rates add: the mean over the nodes is all that the run depends on. A
    type without a failure adds 0 to the estimate; where no type has one there is no estimate.

    Raises:
        UsageError: no type, or one without nodes.

    **Source**: for the ends, the MOVER of Zou and Donner (2008), Statistics in Medicine 27: the
    distances of the ends of independent rates add as squares.
    """
    if not types or any(one.n_nodes < 1 for one in types):
        raise UsageError("a mixed run needs one node type or more, each with 1 node or more")
    total = sum(one.n_nodes for one in types)
    middle = sum(one.failures_per_day for one in types) / total
    below = above = 0.0
    for one in types:
        share, rate = one.n_nodes / total, one.per_node_day.estimate or 0.0
        below += (share * (rate - one.per_node_day.low)) ** 2
        above += (share * (one.per_node_day.high - rate)) ** 2
    high = middle + math.sqrt(above)
    if not middle and high:
        return Interval(None, 0.0, high)
    return Interval(middle, max(0.0, middle - math.sqrt(below)), high)


# -- A run that grows or shrinks: phases of different size, one after the other -------------------


@dataclass(frozen=True, slots=True)
class PhaseLength:
    """Nodes of a phase, and the productive time in it."""

    n_nodes: int
    productive_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase as planned."""

    n_nodes: int
    productive_s: float
    interval_s: float
    wallclock_s: float
    expected_failures: float
    ettr: float
    held_gpu_hours: float

    @property
    def ends(self) -> bool:
        """Whether it can be expected to end at all."""
        return math.isfinite(self.held_gpu_hours)


@dataclass(frozen=True, slots=True)
class PhasedRun:
    """All phases.

    Attributes:
        ettr: GPU time that is productive over GPU time of all phases: large phases weigh more.
        price: Of a GPU-hour, for which GPUs are held; None where not given.
    """

    phases: tuple[Phase, ...]
    wallclock_s: float
    expected_failures: float
    ettr: float
    gpu_hours: float
    price: Price | None = None

    @property
    def held_gpu_hours(self) -> float:
        """Of all phases, waits in the queue not included; infinite where one will not end."""
        return sum(phase.held_gpu_hours for phase in self.phases)


def phased_run(
    run: PlannedRun,
    lengths: Sequence[PhaseLength],
    *,
    keep_interval: bool,
    price: Price | None = None,
) -> PhasedRun:
    """The phases of a run, each with the write, restart, queue and failure rate of `run`.

    Args:
        keep_interval: Save at the interval of `run`, not at the best of each phase.

    Raises:
        UsageError: no phase, or values that no run can have.
    """
    if not lengths:
        raise UsageError("a run without phases; give one or more, such as 4096:10d,8192:20d")
    phases = tuple(_phase(run, length, keep_interval) for length in lengths)
    node_s = sum(phase.n_nodes * phase.wallclock_s for phase in phases)
    kept = sum(phase.n_nodes * phase.productive_s for phase in phases)
    return PhasedRun(
        phases,
        sum(phase.wallclock_s for phase in phases),
        sum(phase.expected_failures for phase in phases),
        kept / node_s if math.isfinite(node_s) else 0.0,
        run.gpus_per_node * node_s / SECONDS_PER_HOUR,
        price,
    )


def _phase(run: PlannedRun, length: PhaseLength, keep_interval: bool) -> Phase:
    at = replace(run, n_nodes=length.n_nodes, productive_s=length.productive_s)
    if not keep_interval and at.write_s and at.failures_per_s:
        at = with_best_interval(at)
    ettr = exact_ettr(at)
    cost = cost_of(at, Interval(ettr, ettr, ettr), None)
    return Phase(
        at.n_nodes,
        at.productive_s,
        at.interval_s,
        expected_wallclock_s(at),
        expected_failures(at),
        ettr,
        math.inf if cost is None else cost.held_gpu_hours.low,
    )
