"""The back-test of a scenario: where reality, and its waits, lie among simulations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from ettr.analysis.analysis import Analysis
from ettr.analysis.calibration.record import (
    LOST_CAP_S,
    Attempts,
    Machine,
    SiteRecord,
    simulated_record,
    site_record,
    spread_within,
)
from ettr.errors import UsageError
from ettr.metrics.instants import Floats, to_seconds
from ettr.sim.cluster.faults import in_period
from ettr.sim.cluster.run import AnyCluster, simulated_cluster
from ettr.sim.cluster.scenario import QUANTITIES, REPAIR_SPREAD, SAVES, ClusterScenario, Validation
from ettr.sim.cluster.scenario_parts import SimulatedPeriod
from ettr.sim.cluster.standing import ScenarioStanding, drawn_scenario, standing_of, values_digest
from ettr.sim.compiled import results_of
from ettr.tables import TABLES
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

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
    placed = judged(
        [placed_quantity(name, real.get(name), runs) for name in QUANTITIES], FAMILY_ERROR
    )
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
    rules = drawn.checkpoints
    saves = {SAVES: _save_interval(float(rules.interval_s + rules.write_s))}
    return quantities_of(record, to_seconds(begin), to_seconds(end)) | saves


def _take(run: AnyCluster, logged: dict[str, list[pa.Table]]) -> None:
    tables = run.log.batch().tables
    for name in _READ:
        if name in tables:
            logged[name].append(tables[name])


def placed_quantity(
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
            "No value of the scenario has an interval: the prediction allows for chance "
            "alone, not for how little is known of the values."
        )
    if (load := offered_load(scenario)) > FULL_LOAD:
        notes.append(
            f"Jobs ask for {100.0 * load:.0f} % of the GPU time: such a queue remembers more than "
            f"{warm_up} days of warm-up, so waits may fail for that reason alone."
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


# -- What a back-test compares: the same quantities of a real and of a simulated cluster ----------

LEAST_WAITS = 20
"""Fewer jobs of a size say little about how long they wait."""
LEAST_REPAIRS = 5
STATES = ("FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")
SOON_S = 7.0 * SECONDS_PER_DAY
WAIT_FLOOR_S = 3600.0
"""Waits are compared as log(wait + this).

A queue whose load is known to a tenth may have no waits or long ones: without such a floor the
logarithms of predicted waits are far from normal, and right scenarios fail.
"""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity of one cluster in one time.

    Attributes:
        scaled: The same where its chance is about normal with a spread that hardly depends on it:
            square roots of counts, arc sines of shares, logarithms of times.
        least_spread: Standard deviation on that scale that chance alone gives it, at least.
    """

    value: float | None
    unit: str
    scaled: float = math.nan
    least_spread: float = 0.0


def quantities_of(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    """The quantities by name (`ettr.sim.cluster.scenario.QUANTITIES`).

    Source:
        Anscombe (1948), Biometrika 35, for the square root and the arc sine.
    """
    made: dict[str, Quantity] = {}
    attempts = record.attempts
    if record.has_jobs:
        made |= _of_jobs(record, begin_s, end_s)
        made |= _waits(attempts, record.machine.per_node, begin_s, end_s)
    made |= _of_outages(record, begin_s, end_s)
    if saves := record.save_interval_s(begin_s, end_s):
        made[SAVES] = _save_interval(saves[0])
    return made


def _save_interval(interval_s: float) -> Quantity:
    return Quantity(interval_s, "s", math.log(interval_s), 0.1)


def _held_s(attempts: Attempts, begin_s: float, end_s: float) -> Floats:
    """Seconds within the time that each attempt ran."""
    until_s = np.where(np.isnan(attempts.end_s), end_s, attempts.end_s)
    held_s = np.minimum(until_s, end_s) - np.maximum(attempts.start_s, begin_s)
    made: Floats = np.nan_to_num(np.maximum(held_s, 0.0))
    return made


def _of_jobs(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    attempts, machine = record.attempts, record.machine
    new = attempts.is_first & (attempts.submit_s >= begin_s) & (attempts.submit_s < end_s)
    held_s = _held_s(attempts, begin_s, end_s)
    size = np.nan_to_num(attempts.size)
    all_s = machine.n_nodes * machine.per_node * (end_s - begin_s)
    nodes = np.where(attempts.n_nodes > 0, attempts.n_nodes, np.ceil(size / machine.per_node))
    node_days = float(held_s @ nodes) / SECONDS_PER_DAY
    ended = (attempts.end_s >= begin_s) & (attempts.end_s < end_s)
    failed = ended & attempts.failed
    n_failed, n_ended = int(failed.sum()), int(ended.sum())
    lost_s = np.minimum(np.nan_to_num(attempts.end_s - attempts.start_s), LOST_CAP_S) * size
    lost = float(lost_s[failed].sum()) / SECONDS_PER_HOUR / ((end_s - begin_s) / SECONDS_PER_DAY)
    used = float(held_s @ size) / all_s
    made = {
        "jobs submitted": _count(int(new.sum()), 1.0, "jobs"),
        "failure rate": _count(n_failed, 1000.0 / node_days, "per 1,000 node-days")
        if node_days > 0
        else Quantity(None, "per 1,000 node-days"),
        "utilisation": Quantity(used, "share", _arc_sine(used), 0.005),
        "lost goodput": Quantity(lost, "GPU-hours a day", math.sqrt(lost + 1.0), 0.05),
    }
    for state in STATES:
        ends = attempts.state[ended] == state
        made[f"share {state}"] = _share(int(ends.sum()), n_ended)
    return made


def _waits(attempts: Attempts, per_node: int, begin_s: float, end_s: float) -> dict[str, Quantity]:
    since_s = np.where(np.isnan(attempts.eligible_s), attempts.submit_s, attempts.eligible_s)
    started = attempts.is_first & (since_s >= begin_s) & (attempts.start_s < end_s)
    nodes = attempts.size / per_node
    made: dict[str, Quantity] = {}
    for name, least, most in (
        ("part of a node", 0.0, 1.0),
        ("1 node", 1.0, 2.0),
        ("2 to 8 nodes", 2.0, 9.0),
        ("9 nodes and more", 9.0, math.inf),
    ):
        own = started & (nodes >= least) & (nodes < most)
        waits_s = np.maximum(attempts.start_s[own] - since_s[own], 0.0)
        for label, level in (("median", 0.5), ("90 %", 0.9)):
            key = f"wait of {name}, {label}"
            if waits_s.size < LEAST_WAITS:
                made[key] = Quantity(None, "s")
                continue
            wait_s = float(np.quantile(waits_s, level))
            made[key] = Quantity(wait_s, "s", math.log(wait_s + WAIT_FLOOR_S), 0.1)
    return made


def _of_outages(record: SiteRecord, begin_s: float, end_s: float) -> dict[str, Quantity]:
    out = record.outages
    if out is None:
        return {}
    began = (out.start_s >= begin_s) & (out.start_s < end_s)
    node_days = record.machine.n_nodes * (end_s - begin_s) / SECONDS_PER_DAY
    over = (out.end_s >= begin_s) & (out.end_s < end_s)
    hours = (out.end_s[over] - out.start_s[over]) / SECONDS_PER_HOUR
    made = {
        "outages per node": _count(int(began.sum()), 1000.0 / node_days, "per 1,000 node-days"),
        "outages soon after another": _soon_after(out.node[began], out.start_s[began]),
    }
    enough = hours.size >= LEAST_REPAIRS
    # the long ones decide how many spares a run needs
    for label, value, least_spread in (
        ("median", np.median(hours) if enough else 0.0, 0.02),
        ("mean", np.mean(hours) if enough else 0.0, 0.02),
        ("90 %", np.quantile(hours, 0.9) if enough else 0.0, 0.1),
    ):
        key = f"repair time, {label}"
        if not enough:
            made[key] = Quantity(None, "h")
            continue
        scaled = math.log(float(value) + 1.0 / 60.0)
        made[key] = Quantity(float(value), "h", scaled, least_spread)
    made[REPAIR_SPREAD] = spread_of_times(hours, out.kind[over])
    return made


def spread_of_times(hours: Floats, kind: npt.NDArray[np.object_]) -> Quantity:
    """How far repairs of one kind spread."""
    found = spread_within(hours, kind)
    if found is None:
        return Quantity(None, "sigma")
    sigma, free = found
    return Quantity(sigma, "sigma", math.log(max(sigma, 1e-3)), 1.0 / math.sqrt(2.0 * free))


def _soon_after(node: npt.NDArray[np.int64], start_s: Floats) -> Quantity:
    """Share of outages that begin within a week of the one before of their node."""
    order = np.lexsort((start_s, node))
    node, start_s = node[order], start_s[order]
    soon = (node[1:] == node[:-1]) & (np.diff(start_s) < SOON_S)
    return _share(int(soon.sum()), node.size)


def _count(n: int, factor: float, unit: str) -> Quantity:
    return Quantity(n * factor, unit, 2.0 * math.sqrt((n + 0.375) * factor), math.sqrt(factor))


def _share(n: int, whole: int) -> Quantity:
    if whole < LEAST_WAITS:
        return Quantity(None, "share")
    return Quantity(
        n / whole, "share", _arc_sine((n + 0.375) / (whole + 0.75)), 0.5 / math.sqrt(whole)
    )


def _arc_sine(share: float) -> float:
    return math.asin(math.sqrt(min(max(share, 0.0), 1.0)))


# -- Waits of jobs by their size, where a simulation replayed the jobs of a site, next to the real


@dataclass(frozen=True, slots=True)
class ReplayedWait:
    """One quantile of the waits of the jobs of one size, in seconds; None for too few jobs.

    `quantity` is named as in a back-test.
    """

    quantity: str
    real_s: float | None
    simulated_s: float | None


def replayed_waits(site: Analysis, simulated: Analysis) -> tuple[ReplayedWait, ...]:
    """Each quantile of a back-test, over the whole time of the site's logs."""
    period = site.logs_period
    real, again = (
        quantities_of(site_record(one), to_seconds(period.start), to_seconds(period.end))
        for one in (site, simulated)
    )
    return tuple(
        ReplayedWait(name, one.value, again[name].value if name in again else None)
        for name, one in real.items()
        if name.startswith("wait of ")
    )
