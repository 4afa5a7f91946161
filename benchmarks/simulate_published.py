"""Scenarios after Acme's clusters and Philly against what is published of them.

Run: python benchmarks/simulate_published.py [--seeds N] [SCENARIO ...]

Anchor: shares that a scenario was chosen to meet are within a point of what is published in the
mean of seeds. What is published, and where, is in `published_clusters.py`. A row is an attempt, as
a row of the traces; FAILED counts NODE_FAIL, too. A wait is that of a first start. The empty
beginning is included, except in the waits: the first week is left out of them.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import simulated_cluster
from ettr.sim.cluster.scenario import scenario_of, scenario_text
from published_clusters import DAYS, PUBLISHED, Fact

LEFT_OUT_DAYS = 7
SEEDS = {"kalos-like": 10}
"""Few large runs are most of its load; 3 of the others."""
SECONDS_PER_DAY, SECONDS_PER_HOUR = 86_400, 3_600
COLUMNS = ["submit", "eligible", "start", "end", "n_gpus", "restarts", "state"]
ENDS = {
    "completed": ("COMPLETED",),
    "failed": ("FAILED", "NODE_FAIL"),
    "cancelled": ("CANCELLED",),
    "preempted": ("PREEMPTED",),
}
POINT = 1.0
Column = NDArray[np.float64]


def measured(name: str, seed: int, days: float) -> dict[str, float]:
    """The published quantities of one simulation, by the names of `Fact.what`."""
    made = scenario_of(*scenario_text(name))
    made = replace(made, period=replace(made.period, days=days))
    cluster = simulated_cluster(made, seed, "benchmark")
    parts = [
        one.tables["attempts"].select(COLUMNS)
        for one in batches(cluster.log, cluster.play())
        if "attempts" in one.tables
    ]
    rows = pa.concat_tables(parts)
    rows = rows.filter(rows["start"].is_valid())
    origin_s = made.period.origin.timestamp()
    submit_s, eligible_s, start_s, end_s = (
        rows[column].cast("int64").fill_null(-1).to_numpy() / 1e6 - origin_s
        for column in COLUMNS[:4]
    )
    is_first = pc.equal(rows["restarts"], 0).to_numpy()
    gpus = rows["n_gpus"].to_numpy().astype(np.float64)
    is_over = rows["end"].is_valid().to_numpy()
    hours = {one["what"]: one["gpu_hours"] or 0.0 for one in cluster.truth()["hours"].to_pylist()}
    found = {
        "held_percent": 100.0 * hours["held by jobs"] / sum(hours.values()),
        "jobs_per_day": is_first.sum() / days,
        "same_second_percent": _percent(np.diff(np.sort(submit_s[is_first])) == 0),
    }
    found |= dict(_of_sizes(gpus))
    over = rows.filter(pa.array(is_over))
    wait_s = np.maximum(0.0, start_s - eligible_s)
    found |= dict(
        _of_runs(over["state"].to_numpy(zero_copy_only=False), gpus[is_over],
                 (end_s - start_s)[is_over], wait_s[is_over])
    )  # fmt: skip
    late = is_first & (submit_s >= LEFT_OUT_DAYS * SECONDS_PER_DAY)
    return found | dict(_of_waits(gpus[late], wait_s[late]))


def _percent(flags: NDArray[np.bool_]) -> float:
    return 100.0 * float(flags.mean()) if flags.size else float("nan")


def _of_sizes(gpus: Column) -> Iterator[tuple[str, float]]:
    yield "of_1_gpu_percent", _percent(gpus == 1)
    yield "over_8_gpus_percent", _percent(gpus > 8)
    yield "mean_gpus", float(gpus.mean())


def _of_runs(
    state: NDArray[np.str_], gpus: Column, run_s: Column, wait_s: Column
) -> Iterator[tuple[str, float]]:
    """Of attempts that came to an end."""
    gpu_s = gpus * run_s
    total = gpu_s.sum()
    yield "gpu_time_of_1_gpu_percent", 100.0 * gpu_s[gpus == 1].sum() / total
    yield "gpu_time_from_256_gpus_percent", 100.0 * gpu_s[gpus >= 256].sum() / total
    preempted = np.isin(state, ENDS["preempted"])
    for end, states in ENDS.items():
        mine = np.isin(state, states)
        kept = mine if end == "preempted" else mine[~preempted]
        yield f"{end}_percent", _percent(kept)
        yield f"gpu_time_{end}_percent", 100.0 * gpu_s[mine].sum() / total
    failed = np.isin(state, ENDS["failed"])
    yield "failed_of_1_gpu_percent", _percent(failed[gpus == 1])
    yield "failed_over_512_gpus_percent", _percent(failed[gpus > 512])
    yield "run_mean_s", float(run_s.mean())
    for percent in (25, 50, 90, 99):
        yield f"run_{percent}_s", float(np.percentile(run_s, percent))
    yield "run_under_5_min_percent", _percent(run_s < 300)
    yield "wait_and_run_under_5_min_percent", _percent(wait_s + run_s < 300)
    yield "wait_and_run_50_s", float(np.median(wait_s + run_s))
    long = run_s > SECONDS_PER_DAY
    yield "over_a_day_percent", _percent(long)
    yield "gpu_time_over_a_day_percent", 100.0 * gpu_s[long].sum() / total
    long = run_s > 31.6 * 60
    yield "over_31_6_min_percent", _percent(long)
    yield "gpu_time_over_31_6_min_percent", 100.0 * gpu_s[long].sum() / total


def _of_waits(gpus: Column, wait_s: Column) -> Iterator[tuple[str, float]]:
    """Of first starts."""
    sizes = {
        "wait": gpus > 0,
        "wait_of_1_gpu": gpus == 1,
        "wait_of_2_to_512_gpus": (gpus > 1) & (gpus <= 512),
        "wait_over_512_gpus": gpus > 512,
    }
    for name, mine in sizes.items():
        if mine.any():
            waits = wait_s[mine]
            yield f"{name}_mean_s", float(waits.mean())
            yield f"{name}_50_s", float(np.median(waits))
            yield f"{name}_over_1_h_percent", _percent(waits > SECONDS_PER_HOUR)


def judged(name: str, facts: list[Fact], seeds: int, days: float) -> list[str]:
    """Prints a scenario next to what is published; shares that were fitted and missed."""
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(1, seeds + 1):
        begun = time.process_time()
        for what, value in measured(name, seed, days).items():
            found[what].append(value)
        found["cpu_s"].append(time.process_time() - begun)
    print(f"\n{name}, {days:g} days, seeds 1 to {seeds}; * fitted")
    print(f"{'':36} {'published':>11} {'mean':>10} {'lowest':>10} {'highest':>10}")
    missed = []
    for fact in facts:
        values = found.pop(fact.what)
        mean = float(np.mean(values))
        _say(f"{fact.what}{'*' if fact.fitted else ''}", values, f"{fact.bound}{fact.value:,g}")
        is_share = fact.what.endswith("_percent") and not fact.bound
        if fact.fitted and is_share and abs(mean - fact.value) > POINT:
            missed.append(f"{name}: {fact.what} is {mean:.1f} and not {fact.value:g}")
    for what, values in sorted(found.items()):
        _say(what, values, "")
    return missed


def _say(what: str, values: list[float], published: str) -> None:
    mean, low, high = np.mean(values), min(values), max(values)
    print(f"{what:36} {published:>11} {mean:10,.1f} {low:10,.1f} {high:10,.1f}")


def main() -> int:
    """Print the tables; 1 where a share that was fitted is off by more than a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(PUBLISHED), metavar="SCENARIO")
    parser.add_argument("--seeds", type=int, help="3, and 10 of kalos-like, where it is left out")
    parser.add_argument("--days", type=float, help="the trace's own length where it is left out")
    asked = parser.parse_args()
    missed = []
    for name in asked.scenarios:
        days = asked.days or DAYS[name]
        missed += judged(name, list(PUBLISHED[name]), asked.seeds or SEEDS.get(name, 3), days)
    print("\n" + ("\n".join(missed) or "every share that was fitted is within a point"))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
