"""Small simulated clusters for tests: the shipped scenario `small` with other values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa

from ettr.sim.cluster.engine import SimulatedCluster
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text
from ettr.sim.cluster.scenario_parts import (
    FaultProcess,
    JobClass,
    Outcomes,
    Priority,
)
from ettr.tables import TABLES


def small(**parts: Mapping[str, object] | tuple[object, ...]) -> ClusterScenario:
    """The scenario `small`; a part given as a mapping changes those values of it."""
    text, _ = scenario_text("small")
    made = scenario_of(text)
    changes = {
        name: replace(getattr(made, name), **part) if isinstance(part, Mapping) else part
        for name, part in parts.items()
    }
    return replace(made, **changes)


def quiet(**parts: Mapping[str, object] | tuple[object, ...]) -> ClusterScenario:
    """The same without faults, false alarms, impatience, and with one priority."""
    calm = {
        "faults": (),
        "bursts": (),
        "priorities": (Priority("normal", 1, 1.0, 1.0),),
        "outcomes": Outcomes(0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 4.0),
        "checks": {"false_high_per_node_day": 0.0, "false_low_per_node_day": 0.0},
    }
    return small(**(calm | parts))


def fault(symptom: str, per_1000_node_days: float, **values: object) -> FaultProcess:
    """A process of faults at a constant rate that ends its jobs and is always found."""
    usual = {
        "law": "constant",
        "form": 1.0,
        "severity": "high",
        "node_down_chance": 0.0,
        "crash_chance": 0.5,
        "seen_chance": 1.0,
        "repair_mean_s": 7200.0,
        "repair_sigma": 0.5,
        "as_new_share": 1.0,
    }
    return FaultProcess(symptom, per_1000_node_days=per_1000_node_days, **(usual | values))


def one_size(gpus: int, mean_s: float, law: str = "lognormal") -> tuple[JobClass, ...]:
    """Jobs of one size; all of one length unless the law is exponential."""
    return (JobClass(gpus, 1.0, mean_s, 0.0, law),)


def played(
    scenario: ClusterScenario, seed: int = 1
) -> tuple[dict[str, pa.Table], SimulatedCluster]:
    """The tables that a scenario logs, without a store, and the run that is over."""
    run = SimulatedCluster(scenario, seed, "test")
    logged: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for _ in run.play():
        pass
    batch = run.log.batch()
    for name, rows in batch.tables.items():
        logged[name].append(rows)
    return {
        name: pa.concat_tables(rows) if rows else TABLES[name].empty()
        for name, rows in logged.items()
    }, run


def seconds(column: pa.ChunkedArray) -> list[float]:
    """Times of a column as seconds since 1970; infinite for null."""
    whole = column.cast(pa.int64()).to_pylist()
    return [math.inf if value is None else value / 1e6 for value in whole]


def most_at_once(
    attempts: pa.Table, group: Callable[[Mapping[str, object]], str]
) -> dict[str, int]:
    """Most GPUs that the running jobs of each group held at one time."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    rows = attempts.to_pylist()
    starts, ends = seconds(attempts["start"]), seconds(attempts["end"])
    for row, start, end in zip(rows, starts, ends, strict=True):
        if row["start"] is not None:
            changes[group(row)] += [(start, row["n_gpus"]), (end, -row["n_gpus"])]
    found = {}
    for name, of_group in changes.items():
        level = most = 0
        for _, change in sorted(of_group):  # ends come before starts of the same second
            level += change
            most = max(most, level)
        found[name] = most
    return found
