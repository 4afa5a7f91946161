"""When faults arise on each node, by each process, and what each of them does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ettr.models.constant import ConstantLife
from ettr.models.data import LifeLaw
from ettr.models.registry import law_of_age
from ettr.sim.cluster.room import FAR_S
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_parts import BurstProcess, FaultProcess, RateChange, SimulatedPeriod
from ettr.sim.engine import stream
from ettr.units import DAYS_PER_YEAR, SECONDS_PER_DAY

_BLOCK = 16
FALSE_HIGH, FALSE_LOW = "false alarm, high", "false alarm, low"


class NodeDraws:
    """Random numbers of each node: the k-th of a node is the same whatever the others drew.

    Two scenarios with one seed so differ by what was changed, and not by chance.
    """

    def __init__(self, seed: int, name: str, n_nodes: int) -> None:
        self._seed, self._name, self._n_nodes = seed, name, n_nodes
        self._drawn = [0] * n_nodes
        self._blocks: list[NDArray[np.float64]] = []

    def uniform(self, node: int) -> float:
        """The next number of a node, from 0 to 1."""
        k = self._drawn[node]
        self._drawn[node] = k + 1
        while k // _BLOCK >= len(self._blocks):
            rng = stream(self._seed, self._name, len(self._blocks))
            self._blocks.append(rng.random((self._n_nodes, _BLOCK)))
        return float(self._blocks[k // _BLOCK][node, k % _BLOCK])

    def first_exponentials(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """The first number of each of some nodes that have drawn none, exponential with mean 1."""
        self._blocks = [stream(self._seed, self._name, 0).random((self._n_nodes, _BLOCK))]
        for node in nodes.tolist():
            self._drawn[node] = 1
        # by the same function as one number: NumPy's may differ in the last bit
        drawn = self._blocks[0][nodes, 0].tolist()
        return np.array([-math.log1p(-uniform) for uniform in drawn])

    def exponential(self, node: int) -> float:
        """The same, exponential with mean 1."""
        return -math.log1p(-self.uniform(node))

    def normal(self, node: int) -> float:
        """The same, of the standard normal distribution.

        Source:
            Box and Muller (1958), Annals of Mathematical Statistics 29.
        """
        radius = math.sqrt(2.0 * self.exponential(node))
        return radius * math.cos(2.0 * math.pi * self.uniform(node))


def law_of(process: FaultProcess) -> LifeLaw | None:
    """The law of a node's time in service from one fault to the next; None where there are none.

    It has the stated mean for a node that is as new after each fault; where some repairs leave the
    age of the node (`as_new_share` below 1), a law that ages gives another rate.
    """
    if process.per_1000_node_days <= 0.0:
        return None
    mean_s = 1000.0 * SECONDS_PER_DAY / process.per_1000_node_days
    if process.law == "constant":
        return ConstantLife(1.0 / mean_s)
    return law_of_age(process.law).law_with_mean(process.form, mean_s)


def n_lemons_of(scenario: ClusterScenario) -> int:
    """How many nodes are lemons: a whole number, so that shares close to each other are one."""
    return round(scenario.lemons.share * scenario.machines.nodes)


def lemons_of(scenario: ClusterScenario, seed: int) -> frozenset[int]:
    """The nodes that are lemons."""
    order = stream(seed, "lemons").permutation(scenario.machines.nodes)
    return frozenset(order[: n_lemons_of(scenario)].tolist())


class FaultClock:
    """One process on every node: its age there, and when the next fault is due.

    The clock of a node runs as it is in service, whether or not a job runs on it.
    """

    def __init__(
        self,
        process: FaultProcess,
        n_nodes: int,
        seed: int,
        lemons: frozenset[int],
        lemon_factor: float,
    ) -> None:
        self.process = process
        self._law = law_of(process)
        self._factor = [lemon_factor if node in lemons else 1.0 for node in range(n_nodes)]
        self._lives = NodeDraws(seed, f"lives {process.symptom}", n_nodes)
        self._repairs = NodeDraws(seed, f"as new {process.symptom}", n_nodes)
        self._age_s = [0.0] * n_nodes
        self._since_s = [0] * n_nodes
        self._left_s = [math.inf] * n_nodes
        self._struck: dict[int, tuple[int, float, float]] = {}
        if self._law is not None:
            rng = stream(seed, f"ages {process.symptom}")
            clock_s, lived_s = self._law.service_ages()
            ages = np.interp(rng.random(n_nodes) * lived_s[-1], lived_s, clock_s)
            self._age_s = ages.tolist()
            self._left_s = self._first_drawn_s(self._law, ages).tolist()

    def due_s(self, node: int) -> int:
        """When the next fault of a node in service comes, if it stays so."""
        left_s = self._left_s[node]
        return FAR_S if left_s >= FAR_S else self._since_s[node] + math.ceil(left_s)

    def first_due_s(self) -> NDArray[np.float64]:
        """The same of every node at the beginning; infinite where no fault comes."""
        left_s: NDArray[np.float64] = np.ceil(np.array(self._left_s))
        return left_s

    def stop(self, node: int, now_s: int) -> None:
        """A node goes out of service."""
        spent_s = now_s - self._since_s[node]
        self._age_s[node] += spent_s
        self._left_s[node] = max(0.0, self._left_s[node] - spent_s)

    def resume(self, node: int, now_s: int) -> None:
        """A node is in service again."""
        self._since_s[node] = now_s

    def strike(self, node: int, now_s: int) -> None:
        """A fault came: the next one is drawn, from an age of 0 where the repair makes it new."""
        self._age_s[node] += now_s - self._since_s[node]
        self._since_s[node] = now_s
        age_s = self._age_s[node]
        if self._repairs.uniform(node) < self.process.as_new_share:
            self._age_s[node] = 0.0
        if self._law is not None and self._factor[node]:
            drawn = self._lives.exponential(node)
            self._struck[node] = now_s, age_s, drawn
            self._left_s[node] = self._life_s(self._law, node, drawn)
        else:
            self._left_s[node] = math.inf

    def not_repaired(self, node: int, struck_s: int, now_s: int) -> None:
        """Nobody repairs the fault of that moment: the node keeps its age, and goes on.

        What was drawn for the time until its next fault holds, counted from that age.
        """
        when_s, age_s, drawn = self._struck.get(node, (-1, 0.0, 0.0))
        if when_s != struck_s or self._law is None:
            return  # the fault is not of this clock: of a burst, or replayed
        self._age_s[node] = age_s
        life_s = self._life_s(self._law, node, drawn)
        self._left_s[node] = max(life_s, now_s + 1.0 - struck_s)

    def in_force(self, now_s: int) -> bool:
        """Whether the process is one of this day."""
        day = now_s / SECONDS_PER_DAY
        return self.process.from_day <= day < self.process.to_day

    def _first_drawn_s(self, law: LifeLaw, ages_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """As `_life_s`, of every node for the first time."""
        factor = np.array(self._factor)
        (fails,) = np.nonzero(factor)
        left_s = np.full(factor.size, math.inf)
        drawn = self._lives.first_exponentials(fails)
        ends = law.cumulative_hazard(ages_s[fails]) + drawn / factor[fails]
        left_s[fails] = np.maximum(1.0, law.clock_at(ends) - ages_s[fails])
        return left_s

    def _life_s(self, law: LifeLaw, node: int, drawn: float) -> float:
        """Time in service until the next fault of a node, given its age and a drawn number."""
        age_s = self._age_s[node]
        here = float(law.cumulative_hazard(np.array([age_s]))[0])
        ends = here + drawn / self._factor[node]
        return max(1.0, float(law.clock_at(np.array([ends]))[0]) - age_s)


class ChangingFaultClock(FaultClock):
    """The same for a process whose hazard changes in time.

    How long a node still serves depends on the dates on which it does, so that what is kept is the
    expected number of faults until the next one, which its service uses up.
    """

    def __init__(
        self,
        process: FaultProcess,
        n_nodes: int,
        seed: int,
        lemons: frozenset[int],
        lemon_factor: float,
        steps: Steps,
    ) -> None:
        self._steps = steps
        self._owed = [math.inf] * n_nodes
        super().__init__(process, n_nodes, seed, lemons, lemon_factor)

    def stop(self, node: int, now_s: int) -> None:
        """A node goes out of service."""
        if self._law is not None:
            since_s = self._since_s[node]
            self._owed[node] -= hazard_of_service(
                self._law, self._steps, self._age_s[node], since_s, now_s - since_s
            )
        super().stop(node, now_s)

    def resume(self, node: int, now_s: int) -> None:
        """A node is in service again, on a date of another factor perhaps."""
        super().resume(node, now_s)
        if self._law is not None and math.isfinite(self._owed[node]):
            self._left_s[node] = self._service_s(self._law, node, max(0.0, self._owed[node]))

    def _first_drawn_s(self, law: LifeLaw, ages_s: NDArray[np.float64]) -> NDArray[np.float64]:
        factor = np.array(self._factor)
        (fails,) = np.nonzero(factor)
        left_s = np.full(factor.size, math.inf)
        owed = self._lives.first_exponentials(fails) / factor[fails]
        for node, one in zip(fails.tolist(), owed.tolist(), strict=True):
            self._owed[node] = one
        begin_s = np.zeros(fails.size)
        found_s = service_until(law, self._steps, ages_s[fails], begin_s, owed)
        left_s[fails] = np.maximum(1.0, found_s)
        return left_s

    def _life_s(self, law: LifeLaw, node: int, drawn: float) -> float:
        self._owed[node] = drawn / self._factor[node]
        return max(1.0, self._service_s(law, node, self._owed[node]))

    def _service_s(self, law: LifeLaw, node: int, owed: float) -> float:
        """Time in service, from now on, until that many faults are expected."""
        age_s, now_s = np.array([self._age_s[node]]), np.array([float(self._since_s[node])])
        return float(service_until(law, self._steps, age_s, now_s, np.array([owed]))[0])


def clocks_of(scenario: ClusterScenario, seed: int, lemons: frozenset[int]) -> list[FaultClock]:
    """The clock of each process, those of false alarms last, which know no lemons."""
    n_nodes, factor = scenario.machines.nodes, scenario.lemons.factor
    clocks: list[FaultClock] = []
    for one in scenario.faults:
        if steps := steps_of(scenario.rate_changes, one.symptom):
            clocks.append(ChangingFaultClock(one, n_nodes, seed, lemons, factor, steps))
        else:
            clocks.append(FaultClock(one, n_nodes, seed, lemons, factor))
    alarms = alarms_of(scenario)
    return clocks + [FaultClock(one, n_nodes, seed, frozenset(), 1.0) for one in alarms]


def alarms_of(scenario: ClusterScenario) -> Iterator[FaultProcess]:
    """False alarms of checks, as processes that harm nothing by themselves."""
    checks = scenario.checks
    rates = (
        (FALSE_HIGH, "high", checks.false_high_per_node_day),
        (FALSE_LOW, "low", checks.false_low_per_node_day),
    )
    for name, severity, per_node_day in rates:
        yield FaultProcess(
            name,
            "constant",
            1.0,
            1000.0 * per_node_day,
            severity,
            0.0,
            0.0,
            1.0,
            checks.false_repair_mean_s,
            0.0,
            1.0,
        )


@dataclass(frozen=True, slots=True)
class BurstHit:
    """One fault of a burst: when, on which node, by which process, of which burst."""

    time_s: int
    node: int
    symptom: str
    burst: str


def burst_hits(scenario: ClusterScenario, seed: int) -> list[BurstHit]:
    """All faults of bursts, in order of time."""
    hits: list[BurstHit] = []
    alike: Counter[str] = Counter()
    for place, burst in enumerate(scenario.bursts):
        name = f"bursts {burst.symptom} {burst.scope}"
        # two processes of one kind come at times of their own
        rng = stream(seed, name, alike[name])
        alike[name] += 1
        hits += _hits_of(scenario, burst, place, rng)
    return sorted(hits, key=lambda hit: (hit.time_s, hit.node, hit.burst))


def _hits_of(
    scenario: ClusterScenario, burst: BurstProcess, place: int, rng: np.random.Generator
) -> Iterator[BurstHit]:
    machines, end_s = scenario.machines, scenario.period.end_s
    groups: dict[int, list[int]] = {}
    group = {"rack": machines.rack_of, "pod": machines.pod_of}.get(burst.scope, lambda _: 0)
    for node in range(machines.nodes):
        groups.setdefault(group(node), []).append(node)
    years = scenario.period.days / DAYS_PER_YEAR
    for group_id, nodes in groups.items():
        for k in range(int(rng.poisson(burst.per_year * years))):
            begin_s = rng.random() * end_s
            hit = rng.random(len(nodes)) < burst.hit_share
            after_s = rng.random(len(nodes)) * burst.spread_s
            name = f"{place + 1}: {burst.scope} {group_id}, {k + 1}"
            for node, is_hit, late_s in zip(nodes, hit, after_s, strict=True):
                time_s = int(begin_s + late_s)
                if is_hit and time_s < end_s:
                    yield BurstHit(time_s, node, burst.symptom, name)


DOWN, CRASH, DEGRADED, NOTHING = "node down", "jobs crash", "jobs go on", "nothing"
HIDDEN = "hidden"
"""A defect that has not struck: a check found it first, or the simulation ended."""


@dataclass(slots=True)
class NodeFault:
    """One fault or false alarm, with what it came to.

    Attributes:
        process: Its effects; of a false alarm those of the alarm.
        found_s: When the check or the heartbeat found it, or blamed another node; -1 if none did.
        blamed: Node that is blamed in place of its own; -1 for none.
    """

    number: int
    time_s: int
    node: int
    process: FaultProcess
    symptom: str
    burst: str
    effect: str
    is_seen: bool
    repair_s: int
    is_alarm: bool = False
    found_s: int = -1
    attempts_ended: int = 0
    blamed: int = -1

    @property
    def suspect(self) -> int:
        """The node that is checked, drained and repaired for it."""
        return self.node if self.blamed < 0 else self.blamed


class Suspects:
    """Who is blamed for a fault that ends a job of several nodes."""

    def __init__(self, scenario: ClusterScenario, seed: int) -> None:
        self._chance = scenario.checks.wrong_node_chance
        self._draws = NodeDraws(seed, "wrong node", scenario.machines.nodes)

    def instead_of(self, node: int, nodes: Sequence[int]) -> int:
        """Another node of a job that is blamed, each as likely; -1 where the node itself is."""
        if not self._chance or len(nodes) < 2:
            return -1
        # both are drawn, whatever comes of the first: another chance so moves no later choice
        is_wrong, which = self._draws.uniform(node) < self._chance, self._draws.uniform(node)
        others = sorted(set(nodes) - {node})
        return others[int(which * len(others))] if is_wrong else -1


class FaultMaker:
    """What each fault does, drawn from streams of its node and symptom."""

    def __init__(self, scenario: ClusterScenario, seed: int) -> None:
        processes = [*scenario.faults, *alarms_of(scenario)]
        n_nodes = scenario.machines.nodes
        self._draws = {
            one.symptom: NodeDraws(seed, f"effects {one.symptom}", n_nodes) for one in processes
        }
        self._real = scenario.faults
        self.made: list[NodeFault] = []

    def make(
        self,
        process: FaultProcess,
        node: int,
        now_s: int,
        burst: str = "",
        repair_s: int | None = None,
    ) -> NodeFault:
        """A fault that arises now; its repair is drawn unless it is given."""
        draws = self._draws[process.symptom]
        where, is_seen = draws.uniform(node), draws.uniform(node) < process.seen_chance
        is_alarm = process.symptom in (FALSE_HIGH, FALSE_LOW)
        effect = NOTHING if is_alarm else _effect(process, where, is_seen=is_seen)
        sigma = process.repair_sigma
        length = math.exp(sigma * draws.normal(node) - sigma * sigma / 2.0)
        shown = self._shown_as(where) if is_alarm else process.symptom
        fault = NodeFault(
            number=len(self.made) + 1,
            time_s=now_s,
            node=node,
            process=process,
            symptom=shown,
            burst=burst,
            effect=effect,
            is_seen=is_seen,
            repair_s=max(60, round(process.repair_mean_s * length))
            if repair_s is None
            else repair_s,
            is_alarm=is_alarm,
        )
        self.made.append(fault)
        return fault

    def gpu_of(self, fault: NodeFault, gpus_per_node: int) -> int:
        """The GPU that a fault of one GPU hits."""
        return int(self._draws[fault.process.symptom].uniform(fault.node) * gpus_per_node)

    def _shown_as(self, where: float) -> str:
        """The symptom that a false alarm shows: any of those that there are, or the first known."""
        if not self._real:
            return "system-services"
        return self._real[int(where * len(self._real))].symptom


def _effect(process: FaultProcess, where: float, *, is_seen: bool) -> str:
    if where < process.node_down_chance:
        return DOWN
    if where < process.node_down_chance + process.crash_chance or not is_seen:
        return CRASH
    return DEGRADED


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
