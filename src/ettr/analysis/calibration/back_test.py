"""`ettr simulate backtest`: where reality lies among simulations of what was held back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np

from ettr.analysis.calibration.quantities import Quantity, quantities_of
from ettr.analysis.calibration.record import Machine, SiteRecord, simulated_record
from ettr.errors import UsageError
from ettr.metrics.instants import to_seconds
from ettr.sim.cluster.drawing import drawn_scenario
from ettr.sim.cluster.faults import in_period
from ettr.sim.cluster.run import AnyCluster, simulated_cluster
from ettr.sim.cluster.scenario import QUANTITIES, ClusterScenario, Validation
from ettr.sim.cluster.scenario_parts import SimulatedPeriod
from ettr.sim.cluster.standing import ScenarioStanding, standing_of, values_digest
from ettr.sim.sweeps import results_of
from ettr.tables import TABLES
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    import pyarrow as pa

REPLICAS = 30
LEAST_REPLICAS, MOST_REPLICAS = 8, 1000
FAMILY_ERROR = 0.05
MOST_WARM_UP_DAYS = 14
MOST_GROWTH_DAYS = 90
FULL_LOAD = 0.9
"""Share of the GPU time beyond which a queue has hardly a steady state."""
_READ = ("attempts", "node_states")
Verdict = Literal["passed", "failed", "not measured"]


@dataclass(frozen=True, slots=True)
class PlacedQuantity:
    """One quantity: reality among the simulations.

    Attributes:
        reality: What was held back; None where it was not measured.
        verdict: failed where the adjusted p lies below the error of the family.
    """

    name: str
    unit: str
    reality: float | None
    predicted: float | None
    low: float | None
    high: float | None
    rank: float | None
    replicas: int
    p_value: float | None
    p_adjusted: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class BackTest:
    """A scenario judged by what was held back.

    Attributes:
        family_error: Chance that a right scenario fails in any quantity, at most, if the chances
            of the quantities are as assumed.
        verdict: failed if any quantity failed; not validated if none could be measured.
    """

    scenario: str
    store: str
    held_back_from: str
    held_back_until: str
    warm_up_days: int
    replicas: int
    seed: int
    family_error: float
    verdict: Literal["passed", "failed", "not validated"]
    quantities: tuple[PlacedQuantity, ...]
    validation: Validation
    standing: ScenarioStanding
    not_fitted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def back_test(
    scenario: ClusterScenario,
    reality: SiteRecord,
    store: str,
    begin: datetime,
    end: datetime,
    *,
    replicas: int = REPLICAS,
    seed: int = 1,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    simulated: str = "",
) -> BackTest:
    """Simulate the time that was held back, and find reality's place.

    Each simulation draws the values that have an interval from it, so that what is predicted
    allows for how little a fit knows.

    Raises:
        UsageError: too few replicas, the held-back time is too short, or the scenario was fitted
            to it.
    """
    if not LEAST_REPLICAS <= replicas <= MOST_REPLICAS:
        raise UsageError(f"{replicas} replicas; give {LEAST_REPLICAS} to {MOST_REPLICAS:,}")
    begin_s, end_s = to_seconds(begin), to_seconds(end)
    if end_s - begin_s < SECONDS_PER_DAY:
        raise UsageError("less than a day is held back; give --hold-back 1 or more")
    overlap = overlap_note(scenario, store, begin, end)
    warm_up = _warm_up_days(scenario, reality, begin_s)
    tasks = [(scenario, begin, end, warm_up, seed, number) for number in range(replicas)]
    runs = results_of(_replica, tasks, workers, progress)
    real = quantities_of(reality, begin_s, end_s)
    placed = judged([_placed(name, real.get(name), runs) for name in QUANTITIES], FAMILY_ERROR)
    found = _result(scenario, store, begin, end, warm_up, replicas, seed, placed, simulated)
    return replace(found, notes=(overlap, *found.notes)) if overlap else found


def _warm_up_days(scenario: ClusterScenario, reality: SiteRecord, begin_s: float) -> int:
    """Days to simulate before what was held back.

    Where jobs ask for nearly all GPUs the queue has no steady state: it has grown since the logs
    began, and grows in a simulation for as long.
    """
    days = warm_up_days(scenario)
    submitted_s = reality.attempts.submit_s
    if offered_load(scenario) < FULL_LOAD or not submitted_s.size:
        return days
    grown_days = int((begin_s - float(np.nanmin(submitted_s))) // SECONDS_PER_DAY)
    return max(days, min(grown_days, MOST_GROWTH_DAYS))


def warm_up_days(scenario: ClusterScenario) -> int:
    """Days until a cluster that began empty is as full as it will be: three long jobs."""
    weight = sum(job.share * job.gpus * job.mean_s for job in scenario.jobs)
    if not scenario.arrivals.jobs_per_day or not weight:
        return 1
    mean_s = (
        sum(
            job.share
            * job.gpus
            * job.mean_s
            * min(job.mean_s * math.exp(job.sigma**2), scenario.scheduling.longest_job_s)
            for job in scenario.jobs
        )
        / weight
    )
    return min(MOST_WARM_UP_DAYS, max(1, math.ceil(3.0 * mean_s / SECONDS_PER_DAY)))


def offered_load(scenario: ClusterScenario) -> float:
    """GPU time that jobs ask for, as a share of that of all nodes; interruptions come on top."""
    machines = scenario.machines
    asked_s = sum(job.share * job.gpus * job.mean_s for job in scenario.jobs)
    a_day_s = machines.nodes * machines.gpus_per_node * SECONDS_PER_DAY
    return scenario.arrivals.jobs_per_day * asked_s / a_day_s


def _replica(
    scenario: ClusterScenario, begin: datetime, end: datetime, warm_up: int, seed: int, number: int
) -> dict[str, Quantity]:
    """The quantities of one simulation."""
    import pyarrow as pa

    start = begin - timedelta(days=warm_up)
    days = (end - start).total_seconds() / SECONDS_PER_DAY
    period = SimulatedPeriod(start.date().isoformat(), days)
    drawn = in_period(drawn_scenario(scenario, seed, number), period)
    run = simulated_cluster(drawn, seed * MOST_REPLICAS + number, "back-test")
    logged: dict[str, list[pa.Table]] = {name: [] for name in _READ}
    for _ in run.play():
        if run.log.is_full:
            _take(run, logged)
    _take(run, logged)
    tables = {
        name: pa.concat_tables(rows) if rows else TABLES[name].empty()
        for name, rows in logged.items()
    }
    machines = drawn.machines
    machine = Machine(machines.nodes, machines.gpus_per_node, "GPUs")
    record = simulated_record(tables, run.truth(), machine)
    if not scenario.arrivals.jobs_per_day:
        record = replace(record, has_jobs=False)
    return quantities_of(record, to_seconds(begin), to_seconds(end))


def _take(run: AnyCluster, logged: dict[str, list[pa.Table]]) -> None:
    tables = run.log.batch().tables
    for name in _READ:
        if name in tables:
            logged[name].append(tables[name])


def _placed(
    name: str, real: Quantity | None, runs: Sequence[Mapping[str, Quantity]]
) -> PlacedQuantity:
    """Reality's place: by rank, and by Student's t on a scale where chance is about normal."""
    from scipy.special import stdtr, stdtrit

    found = [run[name] for run in runs if name in run and run[name].value is not None]
    values = np.array([one.value for one in found], dtype=np.float64)
    unit = real.unit if real is not None else (found[0].unit if found else "")
    reality = None if real is None else real.value
    n = len(found)
    if n < LEAST_REPLICAS:
        return PlacedQuantity(
            name, unit, reality, None, None, None, None, n, None, None, "not measured"
        )
    scaled = np.array([one.scaled for one in found])
    centre, spread = float(scaled.mean()), float(scaled.std(ddof=1))
    least = max(one.least_spread for one in found)
    half = max(spread, least) * math.sqrt(1.0 + 1.0 / n) * float(stdtrit(n - 1, 0.95))
    low, high = _ends(values, scaled, half, 1.0 if unit == "share" else math.inf)
    median = float(np.median(values))
    if real is None or reality is None:
        return PlacedQuantity(
            name, unit, None, median, low, high, None, n, None, None, "not measured"
        )
    error = max(spread, least, real.least_spread) * math.sqrt(1.0 + 1.0 / n)
    p_value = 2.0 * float(stdtr(n - 1, -abs(real.scaled - centre) / error))
    rank = float((values < reality).sum() + 0.5 * (values == reality).sum())
    return PlacedQuantity(
        name, unit, reality, median, low, high, rank, n, min(1.0, p_value), None, "passed"
    )


def _ends(values: np.ndarray, scaled: np.ndarray, half: float, most: float) -> tuple[float, float]:
    """Ends of an interval on the scale, as values: the scale is increasing, and known at points."""
    order = np.argsort(scaled)
    x, y = scaled[order], values[order]
    centre = float(scaled.mean())
    found = []
    for at in (centre - half, centre + half):
        inside = float(np.interp(at, x, y))
        if x[0] <= at <= x[-1] or x[-1] == x[0]:
            found.append(inside)
            continue
        # beyond the simulations the scale goes on as between its ends
        slope = (y[-1] - y[0]) / (x[-1] - x[0])
        edge = (x[0], y[0]) if at < x[0] else (x[-1], y[-1])
        found.append(min(max(0.0, float(edge[1] + (at - edge[0]) * slope)), most))
    return found[0], found[1]


def judged(placed: Sequence[PlacedQuantity], family_error: float) -> tuple[PlacedQuantity, ...]:
    """The quantities with Holm's correction over those that were measured, and its verdict.

    Source:
        Holm (1979), Scandinavian Journal of Statistics 6.
    """
    known = sorted((one.p_value, i) for i, one in enumerate(placed) if one.p_value is not None)
    made = list(placed)
    largest = 0.0
    for rank, (p_value, i) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p_value))
        verdict: Verdict = "failed" if largest < family_error else "passed"
        made[i] = replace(placed[i], p_adjusted=largest, verdict=verdict)
    return tuple(made)


def _result(
    scenario: ClusterScenario,
    store: str,
    begin: datetime,
    end: datetime,
    warm_up: int,
    replicas: int,
    seed: int,
    placed: tuple[PlacedQuantity, ...],
    simulated: str = "",
) -> BackTest:
    by_verdict = {
        verdict: tuple(one.name for one in placed if one.verdict == verdict)
        for verdict in ("passed", "failed", "not measured")
    }
    last = (end.astimezone(UTC)).date().isoformat()
    validation = Validation(
        store,
        begin.date().isoformat(),
        last,
        replicas,
        seed,
        FAMILY_ERROR,
        by_verdict["passed"],
        by_verdict["failed"],
        by_verdict["not measured"],
        values_digest(scenario),
        simulated,
    )
    standing = standing_of(replace(scenario, validation=validation))
    notes = []
    if not scenario.intervals:
        notes.append(
            "No value of the scenario has an interval: what is predicted allows for chance alone, "
            "and not for how little is known of the values."
        )
    if (load := offered_load(scenario)) > FULL_LOAD:
        notes.append(
            f"Jobs ask for {100.0 * load:.0f} % of the GPU time: such a queue remembers longer "
            f"than {warm_up} days of warm-up, and waits that depend on it may fail for that."
        )
    return BackTest(
        scenario.name,
        store,
        validation.held_back_from,
        last,
        warm_up,
        replicas,
        seed,
        FAMILY_ERROR,
        standing.verdict,
        placed,
        validation,
        standing,
        (),
        tuple(notes),
    )


_FITTED = "fitted to "


def overlap_note(scenario: ClusterScenario, store: str, begin: datetime, end: datetime) -> str:
    """What a reader must know of a scenario whose fitted days are held back; empty for nothing.

    Raises:
        UsageError: it was fitted to these days of that store, and would be judged by what it
            knows.
    """
    fitted = {one for one in scenario.sources.values() if one.startswith(_FITTED)}
    since = scenario.period.origin
    until = since + timedelta(days=scenario.period.days)
    if not fitted or until <= begin or since >= end:
        return ""
    days = f"{since.date()} until {until.date()}"
    own = (f"{_FITTED}{store}: ", f"{_FITTED}simulated {store}: ")
    if any(one.startswith(own) for one in fitted):
        raise UsageError(
            f"{scenario.name} was fitted to {store}, {days} by its [period], and days from "
            f"{begin.date()} on are held back: it would be judged by what it was fitted to. Fit "
            "with `ettr simulate fit STORE --hold-back DAYS`, the same days, or give "
            "`ettr simulate backtest STORE --hold-back DAYS`, which fits and judges."
        )
    origin = min(fitted).removeprefix(_FITTED).partition(": ")[0]
    return (
        f"The scenario was fitted to {origin}, {days}, and the days that are held back from "
        f"{store} are among them: if both are logs of one cluster, this is no test."
    )
