"""A scenario simulated into a store, its truth in a folder of its own, and the hours in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import StoreError
from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.log import batches, check_truth_folder, write_truth
from ettr.sim.cluster.loop_cluster import LoopCluster
from ettr.sim.cluster.scenario import ClusterScenario, check_owners, owners_of
from ettr.sim.cluster.standing import ScenarioStanding, standing_lines, standing_of
from ettr.sim.cluster.workload import (
    DRAWN,
    Replay,
    not_simulated,
    not_simulated_lines,
    overfull_series,
)
from ettr.sim.compiled import engine_name
from ettr.store.base import Store
from ettr.store.writing import write_batches
from ettr.tables import ATTEMPTS
from ettr.tables.rows import SIMULATION, Batch
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR
from ettr.words import counted


@dataclass(frozen=True, slots=True)
class ClusterHours:
    """GPU-hours of one simulated cluster, and what ended attempts.

    Attributes:
        write_gpu_hours: Held up by writes of checkpoints; neither useful nor lost.
        network_gpu_hours: Lost to bad and shared links ([links]).
        held_share: Of all GPU-hours, those that jobs held, the utilisation; None where there are
            no GPU-hours.
        first_wait_s: Mean wait of the jobs that started, from when they were eligible until they
            first started; None where none started or the log was not read. Likewise of the largest
            jobs, and of those of the highest priority.
    """

    useful_gpu_hours: float
    lost_gpu_hours: float
    out_gpu_hours: float
    failed_attempts: int
    preemptions: int
    write_gpu_hours: float = 0.0
    held_share: float | None = None
    first_wait_s: float | None = None
    largest_first_wait_s: float | None = None
    highest_first_wait_s: float | None = None
    network_gpu_hours: float = 0.0

    @property
    def wasted_gpu_hours(self) -> float:
        """Lost, out of service, or held up by writes or links."""
        held_up = self.write_gpu_hours + self.network_gpu_hours
        return self.lost_gpu_hours + self.out_gpu_hours + held_up


FirstWaits = tuple[float | None, float | None, float | None]
"""Mean first waits in seconds as in `ClusterHours`: of all jobs, of the largest, the highest."""


def first_waits(largest_gpus: int, batches: Iterable[Batch], highest: str = "") -> FirstWaits:
    """The mean first waits of the jobs that started in what was logged.

    Args:
        highest: Name of the highest priority; empty where there is one priority.
    """
    jobs, waits_s = [0, 0, 0], [0.0, 0.0, 0.0]
    for batch in batches:
        table = batch.tables.get(ATTEMPTS.name)
        if table is None:
            continue
        # a requeued job keeps its id, and its later attempts count their restarts
        first = pc.and_(pc.equal(table["restarts"], 0), table["start"].is_valid())
        table = table.filter(first)
        since = pc.coalesce(table["eligible"], table["submit"])
        wait_s = np.maximum(_us(table["start"]) - _us(since), 0) / MICROSECONDS_PER_SECOND
        is_largest = table["requested_gpus"].to_numpy() >= largest_gpus
        is_highest = pc.and_(pc.equal(table["qos"], highest), highest != "").to_numpy()
        for k, own_s in enumerate((wait_s, wait_s[is_largest], wait_s[is_highest])):
            jobs[k] += own_s.size
            waits_s[k] += float(own_s.sum())
    every, largest, of_highest = (
        total_s / n if n else None for n, total_s in zip(jobs, waits_s, strict=True)
    )
    return every, largest, of_highest


def _us(times: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    made: np.ndarray[Any, np.dtype[np.int64]] = times.cast(pa.int64()).to_numpy()
    return made


def hours_of_truth(
    tables: Mapping[str, pa.Table], waits: FirstWaits = (None, None, None)
) -> ClusterHours:
    """Sum the hours of a run from the tables `attempts` and `hours` of its truth."""
    attempts = tables["attempts"]
    gpus, saved_s, lost_s, restart_s = (
        attempts[name].to_numpy().astype(np.float64)
        for name in ("gpus", "saved_s", "lost_s", "restart_s")
    )
    by_fault = attempts["fault"].is_valid().to_numpy()
    preempted = pc.equal(attempts["end"], "PREEMPTED").to_numpy()
    interrupted = by_fault | preempted
    held_up_gpu_s = {  # where they cost something (`attempts_schema`)
        name: float(gpus @ attempts[name].to_numpy()) if name in attempts.column_names else 0.0
        for name in ("write_s", "network_s")
    }
    hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    all_hours = sum(hours.values())
    return ClusterHours(
        useful_gpu_hours=float(gpus @ saved_s) / SECONDS_PER_HOUR,
        lost_gpu_hours=float(gpus[interrupted] @ lost_s[interrupted] + gpus @ restart_s)
        / SECONDS_PER_HOUR,
        out_gpu_hours=hours["out of service"] + hours["free on a draining node"],
        failed_attempts=int(by_fault.sum()),
        preemptions=int(preempted.sum()),
        write_gpu_hours=held_up_gpu_s["write_s"] / SECONDS_PER_HOUR,
        network_gpu_hours=held_up_gpu_s["network_s"] / SECONDS_PER_HOUR,
        held_share=hours["held by jobs"] / all_hours if all_hours else None,
        first_wait_s=waits[0],
        largest_first_wait_s=waits[1],
        highest_first_wait_s=waits[2],
    )


@dataclass(frozen=True, slots=True)
class SimulatedStore:
    """What a simulation wrote."""

    scenario: str
    seed: int
    nodes: int
    days: float
    jobs: int
    attempts: int
    faults: int
    failed_attempts: int
    held_share: float
    lost_gpu_hours: float
    events: int
    cpu_s: float
    cpu_us_per_event: float
    truth: str
    assumed: int
    values: int
    standing: ScenarioStanding
    not_simulated: tuple[str, ...]
    replayed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_run(scenario: ClusterScenario, truth: Path, replay: Replay = DRAWN) -> None:
    """Check a run before anything is written; raises UsageError or StoreError."""
    check_owners(scenario, replay.owners or owners_of(scenario))
    check_truth_folder(truth)


def simulate_into(
    store: Store,
    scenario: ClusterScenario,
    seed: int,
    text: str,
    name: str,
    truth: Path,
    progress: Callable[[int], None] | None = None,
    replay: Replay = DRAWN,
) -> SimulatedStore:
    """Simulate a scenario into a store that is empty.

    Args:
        truth: An empty or new folder.

    Raises:
        UsageError: a quota or shares are of nobody.
        StoreError: the store holds something, the folder does, or either cannot be written.
    """
    if store.files():
        raise StoreError(
            f"{store.where}: holds logs already; simulated rows never mix with others: give a new "
            "store"
        )
    check_run(scenario, truth, replay)
    began_s = process_time()
    what = f"{SIMULATION}\0{text}\0{seed}" + ("" if replay is DRAWN else f"\0{replay.digest}")
    key = hashlib.sha256(what.encode()).hexdigest()[:16]
    cluster = simulated_cluster(scenario, seed, key, replay)
    with store.ingestion(key) as ingestion:
        written = write_batches(ingestion, batches(cluster.log, cluster.play()), progress)
        ingestion.commit(
            {
                "name": name,
                "source": SIMULATION,
                "size_bytes": len(text.encode()),
                "rows_read": written.rows_read,
                "rows_rejected": 0,
                "rows_folded": written.rows_folded,
                "rows_skipped": 0,
                "timezone": None,
                "options": json.dumps(_options(scenario, seed, replay)),
                "notes": "\n".join([*_notes(scenario, seed, replay), *replay.notes]),
            }
        )
    tables = cluster.truth()
    write_truth(truth, tables, text)
    cpu_s = process_time() - began_s
    gpu_hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    hours = hours_of_truth(tables)
    return SimulatedStore(
        scenario=scenario.name,
        seed=seed,
        nodes=scenario.machines.nodes,
        days=scenario.period.days,
        jobs=cluster.tally.jobs,
        attempts=dict(written.rows).get("attempts", 0),
        faults=pc.sum(pc.invert(tables["faults"]["is_false_alarm"])).as_py() or 0,
        failed_attempts=hours.failed_attempts,
        held_share=gpu_hours["held by jobs"] / sum(gpu_hours.values()),
        lost_gpu_hours=hours.lost_gpu_hours,
        events=cluster.tally.events,
        cpu_s=cpu_s,
        cpu_us_per_event=1e6 * cpu_s / max(1, cluster.tally.events),
        truth=str(truth),
        assumed=scenario.n_assumed,
        values=len(scenario.sources),
        standing=standing_of(scenario, replay.what),
        replayed=(*replay.notes, *_passed_over(replay, tables["faults"].num_rows)),
        not_simulated=not_simulated(scenario),
        warnings=overfull_series([scenario], replay),
    )


def _notes(scenario: ClusterScenario, seed: int, replay: Replay) -> tuple[str, ...]:
    """What every report of the store says of the simulation, a line each."""
    return (
        f"Simulated from scenario {scenario.name} with seed {seed}; {scenario.n_assumed} of its "
        f"{counted(len(scenario.sources), 'value')} are assumed. It began with an empty cluster.",
        *overfull_series([scenario], replay),
        *not_simulated_lines(not_simulated(scenario)),
        *standing_lines(standing_of(scenario, replay.what)),
    )


def _options(scenario: ClusterScenario, seed: int, replay: Replay) -> dict[str, object]:
    """What a report of the store says of the simulation, as its file has it."""
    standing = standing_of(scenario, replay.what)
    return {
        "seed": seed,
        "back_test": standing.verdict,
        "not_validated": standing.not_validated,
        "not_simulated": not_simulated(scenario),
    }


def _passed_over(replay: Replay, arisen: int) -> tuple[str, ...]:
    """How many of the replayed faults came to nodes that were out of service."""
    n = len(replay.faults or ()) - arisen
    if replay.faults is None or not n:
        return ()
    return (f"{counted(n, 'replayed fault')} came to a node that was out of service in the run.",)


AnyCluster = SimulatedCluster | LoopCluster
MANY_JOBS = 100_000
"""From so many jobs on the compiled loop is quicker although it may have to be compiled first."""


def simulated_cluster(
    scenario: ClusterScenario, seed: int, file_id: str, replay: Replay = DRAWN
) -> AnyCluster:
    """One run of a scenario, by the engine that is quicker for it."""
    n_jobs = scenario.arrivals.jobs_per_day * scenario.period.days
    if n_jobs >= MANY_JOBS and engine_name() != "interpreted" and loop_can(scenario, replay):
        return LoopCluster(scenario, seed, file_id, replay)
    return SimulatedCluster(scenario, seed, file_id, replay)


def loop_can(scenario: ClusterScenario, replay: Replay = DRAWN) -> bool:
    """Whether the loop knows all that a scenario asks for."""
    others = (scenario.quotas, scenario.arrays, scenario.fair_share, scenario.links)
    loops = scenario.outcomes.crash_loop_share > 0
    return (
        not any(others)
        and not any(job.series for job in scenario.jobs)
        and replay.jobs is None  # none at all are replayed, too
        and not loops
        and scenario.checks.policy == "none"
        and scenario.scheduling.waiting in ("easy-backfill", "in-order")
        and scenario.scheduling.preemption in ("newest-first", "none")
    )
