"""A scenario simulated into a store, with the truth in a folder of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import StoreError
from ettr.sim.cluster.engine import SimulatedCluster, Tally
from ettr.sim.cluster.log import batches
from ettr.sim.cluster.loop.cluster import LoopCluster
from ettr.sim.cluster.outcome import hours_of_truth
from ettr.sim.cluster.replay import (
    DRAWN,
    Replay,
    not_simulated,
    not_simulated_lines,
    overfull_series,
)
from ettr.sim.cluster.scenario import ClusterScenario, check_owners, owners_of
from ettr.sim.cluster.standing import ScenarioStanding, standing_lines, standing_of
from ettr.sim.cluster.truth import check_truth_folder, write_truth
from ettr.sim.compiled import engine_name
from ettr.store.base import Store
from ettr.store.writing import write_batches
from ettr.tables.rows import SIMULATION
from ettr.words import counted


@dataclass(frozen=True, slots=True)
class SimulatedStore:
    """What a simulation wrote.

    Attributes:
        scenario: Its name.
        seed: Of it.
        nodes: Simulated.
        days: Simulated.
        jobs: Ids under which jobs were submitted.
        attempts: Rows of `attempts`.
        faults: That arose, false alarms left out.
        failed_attempts: Attempts that a fault or a false alarm ended.
        held_share: Of all GPU-hours, those that jobs held.
        lost_gpu_hours: Work lost to interruptions, and restarts after them.
        events: That were simulated.
        cpu_s: That it took, tables written.
        cpu_us_per_event: The same of one event.
        truth: Folder of what truly happened.
        assumed: Values of the scenario whose source is "assumed".
        values: Values of the scenario.
        standing: How far the scenario is to be believed.
        not_simulated: What the scenario leaves out.
        replayed: What was replayed from logs, and what was left out of them, a sentence each.
        warnings: What makes an answer look better than it is, a sentence each.
    """

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
    """Check what can be checked before anything is written.

    Raises:
        UsageError: a quota or shares are of nobody.
        StoreError: the folder for the truth holds something.
    """
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
        store: Where the tables go.
        scenario: What to simulate.
        seed: 0 or more; the same seed, the same tables.
        text: Of the scenario's file.
        name: Of that file.
        truth: An empty or new folder.
        progress: Called now and then with the number of rows so far.
        replay: Jobs and faults from logs; all are drawn by default.

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
    rows = dict(written.rows)
    return _summary(scenario, seed, replay, cluster.tally, tables, rows, truth, cpu_s)


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


def _summary(
    scenario: ClusterScenario,
    seed: int,
    replay: Replay,
    tally: Tally,
    tables: Mapping[str, pa.Table],
    rows: dict[str, int],
    truth: Path,
    cpu_s: float,
) -> SimulatedStore:
    gpu_hours = {row["what"]: row["gpu_hours"] or 0.0 for row in tables["hours"].to_pylist()}
    hours = hours_of_truth(tables)
    return SimulatedStore(
        scenario=scenario.name,
        seed=seed,
        nodes=scenario.machines.nodes,
        days=scenario.period.days,
        jobs=tally.jobs,
        attempts=rows.get("attempts", 0),
        faults=pc.sum(pc.invert(tables["faults"]["is_false_alarm"])).as_py() or 0,
        failed_attempts=hours.failed_attempts,
        held_share=gpu_hours["held by jobs"] / sum(gpu_hours.values()),
        lost_gpu_hours=hours.lost_gpu_hours,
        events=tally.events,
        cpu_s=cpu_s,
        cpu_us_per_event=1e6 * cpu_s / max(1, tally.events),
        truth=str(truth),
        assumed=scenario.n_assumed,
        values=len(scenario.sources),
        standing=standing_of(scenario, replay.what),
        replayed=(*replay.notes, *_passed_over(replay, tables["faults"].num_rows)),
        not_simulated=not_simulated(scenario),
        warnings=overfull_series([scenario], replay),
    )


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
    others = (scenario.quotas, scenario.arrays, scenario.fair_share)
    loops = scenario.outcomes.crash_loop_share > 0
    return (
        not any(others)
        and not any(job.series for job in scenario.jobs)
        and replay.jobs is None  # none at all are replayed, too
        and not loops
        and scenario.scheduling.waiting in ("easy-backfill", "in-order")
        and scenario.scheduling.preemption in ("newest-first", "none")
    )
