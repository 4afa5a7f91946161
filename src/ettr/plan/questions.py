"""Questions that a plan answers when asked: cost, time budget, phases, maintenance, formulas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.cost import Cost, Price, cost_of
from ettr.plan.deadline import DeadlinePlan, TimeBudget, deadline_plan
from ettr.plan.gates import Gate, GatePlan, gate_plan
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
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from ettr.words import significant, spell


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
        f"λ = N r / 86,400 s = {run.n_nodes:,} × {significant(run.failures_per_node_day, 6)} a "
        "day / 86,400 s "
        f"= {significant(run.failures_per_s, 6)} per s"
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
        "where the left "
        f"side is {significant(left, 6)}"
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
        f"E[W] = E[D] + (K − 1) E[S(Δt)] + E[S(rest)] with {segment}, "
        f"= {significant(expected_wallclock_s(run), 6)} s for R = "
        f"{significant(run.productive_s, 6)} s of work; "
        f"{significant(expected_failures(run), 4)} failures expected"
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
