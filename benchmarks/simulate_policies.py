"""What the policy of the queue does to a cluster: GPU-hours held, waits by size, processor time.

Run: python benchmarks/simulate_policies.py [--seeds 3] [SCENARIO:DAYS ...]

Anchor: none; docs/results/tables/policies-of-schedulers.csv. A wait is that of a job's first start,
from the moment on which it might start; jobs that never start have none. Waits of the lowest level
of rsc-1-like, whose jobs wait for what others leave, stand apart from those of the others.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import simulated_cluster
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text

TABLES = ("small:7", "rsc-1-like:10")
POLICIES = ("in-order", "easy-backfill", "conservative-backfill", "slurm-backfill", "slurm-easy")
LOWEST = "scavenger"
NODES = {"part of a node": (0, 1), "1 node": (1, 2), "2 to 8 nodes": (2, 9), "larger": (9, 1 << 20)}


def first_waits(scenario: ClusterScenario, attempts: pa.Table) -> Iterator[float]:
    """Mean first wait in seconds of each size of `NODES`, then of the lowest level."""
    is_first = pc.and_(pc.equal(attempts["restarts"], 0), attempts["start"].is_valid())
    begun = attempts.filter(is_first)
    waited_s = pc.subtract(begun["start"], begun["eligible"]).cast("int64").to_numpy() / 1e6
    nodes = begun["n_gpus"].to_numpy() / scenario.machines.gpus_per_node
    lowest = pc.equal(begun["qos"], LOWEST).to_numpy()
    for least, most in NODES.values():
        mine = waited_s[(nodes >= least) & (nodes < most) & ~lowest]
        yield float(mine.mean()) if mine.size else np.nan
    yield float(waited_s[lowest].mean()) if lowest.any() else np.nan


def one_run(scenario: ClusterScenario, seed: int) -> list[float]:
    """Percent of the GPU-hours held, mean waits in seconds as above, and processor seconds."""
    begun_s = time.process_time()
    cluster = simulated_cluster(scenario, seed, "benchmark")
    parts = [one.tables["attempts"] for one in batches(cluster.log, cluster.play())
             if "attempts" in one.tables]  # fmt: skip
    taken_s = time.process_time() - begun_s
    hours = {row["what"]: row["gpu_hours"] for row in cluster.truth()["hours"].to_pylist()
             if row["gpu_hours"] is not None}  # fmt: skip
    held = 100.0 * hours["held by jobs"] / sum(hours.values())
    return [held, *first_waits(scenario, pa.concat_tables(parts)), taken_s]


def main() -> None:
    """Print a row for each scenario and policy: means of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="1 up to this one")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("scenarios", nargs="*", default=TABLES)
    asked = parser.parse_args()
    heads = ("held %", *(f"{one}, s" for one in NODES), f"{LOWEST}, s", "CPU s")
    print(f"{'scenario:days':16} {'policy':32}", *(f"{one:>18}" for one in heads))
    for one in asked.scenarios:
        name, _, days = one.partition(":")
        made = scenario_of(*scenario_text(name))
        for policy in asked.policies:
            changed = replace(
                made,
                period=replace(made.period, days=float(days)),
                scheduling=replace(made.scheduling, waiting=policy),
            )
            runs = np.array([one_run(changed, seed) for seed in range(1, asked.seeds + 1)])
            rows = {"": runs.mean(0), ", lowest": runs.min(0), ", highest": runs.max(0)}
            for what, values in rows.items():
                shown = (f"{value:18.1f}" for value in values)
                print(f"{one:16} {policy + what:32}", *shown, flush=True)


if __name__ == "__main__":
    main()
