"""A cluster like RSC-1 for eleven months, and how the cost of a simulation grows with its nodes.

Run: python benchmarks/simulate_cluster.py [--days 330] [--growth-only] [--figures FOLDER]

Anchor: 45 s by the clock and 2 GB with the tables written, 75 s where the loop is compiled first;
held 83 % of the GPU-hours, shares of attempts by end state within a point of Kokolis et al. (HPCA
2025). It runs twice, each time in a process of its own: with nothing compiled, and again.
Small clusters have RSC-1's jobs up to their own size, as many for each node: their cost should
follow the events, not the nodes.
`--growth-only` measures that alone, in a minute; `--figures` draws it and writes it as JSON lines.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import LoopCluster, simulate_into
from ettr.sim.cluster.scenario import ClusterScenario, scenario_of, scenario_text
from ettr.sim.cluster.workload import DRAWN
from ettr.store import open_store
from simulated_figures import Cost, cost_of_events

SCENARIO = "rsc-1-like"
DAYS = 330.0
MOST_S, MOST_COLD_S, MOST_GB = 45.0, 75.0, 2.0
# percent, from the paper's figures and text
HELD = 83.0
STATES = {
    "COMPLETED": 60.0, "FAILED": 24.0, "PREEMPTED": 10.0, "REQUEUED": 2.0, "TIMEOUT": 0.6,
    "OUT_OF_MEMORY": 0.1, "NODE_FAIL": 0.1,
}  # fmt: skip
LARGE_GPU_TIME = {256: 66.0, 4096: 12.0}
GPUS_OF_A_NODE = 8
LOWEST = "scavenger"
WAIT_SIZES = (1, 8, 16, 256, 1024, 4096)
NODES = (100, 2000, 20_000, 100_000)
LONGER = 3
"""Each cluster is simulated for its days and for so many times as many."""


def row(what: str, found: float, asked: float | None = None, unit: str = "%") -> None:
    """One line of the table."""
    shown = "" if asked is None else f"{asked:10.1f}"
    print(f"{what:44} {found:10.1f} {shown:>10} {unit}")


def mixes(store: Path, truth: Path) -> None:
    """Shares of the attempts and of their GPU time."""
    columns = ["state", "n_gpus", "elapsed_s", "restarts", "qos", "start", "eligible"]
    rows = pq.read_table(store / "parts" / "attempts", columns=columns)
    counts = {one["values"]: one["counts"] for one in pc.value_counts(rows["state"]).to_pylist()}
    for state, asked in STATES.items():
        row(f"attempts {state}", 100.0 * counts.get(state, 0) / rows.num_rows, asked)
    row("attempts CANCELLED", 100.0 * counts.get("CANCELLED", 0) / rows.num_rows)
    gpus = rows["n_gpus"].to_numpy()
    gpu_s = gpus * rows["elapsed_s"].fill_null(0.0).to_numpy()
    ran = gpus > 0
    within = gpus <= GPUS_OF_A_NODE
    row("attempts of 1 GPU (over 40)", 100.0 * (gpus[ran] == 1).mean(), 40.0)
    row("attempts of up to one node (over 90)", 100.0 * within[ran].mean(), 90.0)
    row("attempts of 4,096 GPUs and more (under 1)", 100.0 * (gpus[ran] >= 4096).mean(), 1.0)
    share = gpu_s[ran & within].sum() / gpu_s.sum()
    row("GPU time of up to one node (under 10)", 100.0 * share, 10.0)
    for least, asked in LARGE_GPU_TIME.items():
        share = gpu_s[gpus >= least].sum() / gpu_s.sum()
        row(f"GPU time of {least:,} GPUs and more", 100.0 * share, asked)
    waits(rows.filter(pc.field("restarts") == 0))
    _failures(truth)


def waits(first: pa.Table) -> None:
    """How long jobs wait for their first start, by size, those of the lowest level apart."""
    begun = first.filter(pc.field("start").is_valid())
    waited_s = pc.subtract(begun["start"], begun["eligible"]).cast("int64").to_numpy() / 1e6
    gpus, lowest = begun["n_gpus"].to_numpy(), pc.equal(begun["qos"], LOWEST).to_numpy()
    for least, most in zip(WAIT_SIZES, (*WAIT_SIZES[1:], 1 << 20), strict=True):
        of_size = (gpus >= least) & (gpus < most)
        for words, of_level in (("", ~lowest), (f", {LOWEST}", lowest)):
            mine = waited_s[of_size & of_level]
            if mine.size:
                half, most_s = np.quantile(mine, [0.5, 0.9])
                row(f"first wait from {least:,} GPUs{words}, mean", mine.mean(), None, "s")
                row(f"first wait from {least:,} GPUs{words}, 50 %", half, None, "s")
                row(f"first wait from {least:,} GPUs{words}, 90 %", most_s, None, "s")


def _failures(truth: Path) -> None:
    """What faults ended, and whom their victims preempted as they came back."""
    true = pq.read_table(truth / "attempts.parquet").to_pandas()
    lost = true["gpus"] * (true["lost_s"] + true["restart_s"])
    length = true["gpus"] * (true["saved_s"] + true["lost_s"] + true["restart_s"])
    faulty = true["fault"].notna()
    row("attempts ended by faults", 100.0 * faulty.mean(), 0.2)
    row("GPU time of attempts ended by faults", 100.0 * length[faulty].sum() / length.sum(), 18.7)
    large = true["gpus"] >= 1024
    row("attempts of 1,024 GPUs and more, by faults", 100.0 * faulty[large].mean())
    jobs = true["attempt_id"].str.extract(r"/([^@]+)@")[0]
    for_failed = true["for_job_id"].isin(set(jobs[faulty]))
    second, first = lost[for_failed].sum(), lost[faulty].sum()
    row("second order of the loss to faults", 100.0 * second / (first + second), 16.0)


def scaled(scenario: ClusterScenario, nodes: int) -> ClusterScenario:
    """As many jobs for each node, none larger than a quarter of the cluster."""
    per_node = scenario.arrivals.jobs_per_day / scenario.machines.nodes
    fit = [job for job in scenario.jobs if 4 * job.gpus <= nodes * scenario.machines.gpus_per_node]
    total = sum(job.share for job in fit)
    return replace(
        scenario,
        machines=replace(scenario.machines, nodes=nodes),
        arrivals=replace(scenario.arrivals, jobs_per_day=per_node * nodes),
        jobs=tuple(replace(job, share=job.share / total) for job in fit),
        period=replace(scenario.period, days=min(100.0, max(2.0, 40_000.0 / nodes))),
    )


def growth(scenario: ClusterScenario) -> list[Cost]:
    """Processor time of an event by the number of nodes and the days."""
    _cost(scaled(scenario, NODES[0]))  # the loop is compiled, or read from what was kept
    print(f"\n{'nodes':>8} {'days':>6} {'events':>10} {'CPU s':>8} {'us an event':>12}")
    made = []
    for nodes in NODES:
        short = scaled(scenario, nodes)
        days = short.period.days
        for one in (short, replace(short, period=replace(short.period, days=LONGER * days))):
            made.append(_cost(one))
            print(f"{nodes:8,} {made[-1].days:6.1f} {made[-1].events:10,} {made[-1].cpu_s:8.1f} "
                  f"{made[-1].us_an_event:12.1f}")  # fmt: skip
    return made


def _cost(scenario: ClusterScenario) -> Cost:
    """Of one simulation, cluster and tables built; no table goes to the disk."""
    begun = time.process_time()
    cluster = LoopCluster(scenario, 1, "benchmark", DRAWN)
    for _ in batches(cluster.log, cluster.play()):
        pass  # the last one too: short simulations have no other
    taken_s, events = time.process_time() - begun, cluster.tally.events
    return Cost(scenario.machines.nodes, scenario.period.days, events, round(taken_s, 3))


def eleven_months(days: float, most_s: float) -> int:
    """Time and memory of RSC-1, and what became of its jobs; 1 where either is over its anchor."""
    text, source = scenario_text(SCENARIO)
    scenario = scenario_of(text, source)
    full = replace(scenario, period=replace(scenario.period, days=days))
    with tempfile.TemporaryDirectory() as folder:
        store, truth = Path(folder) / "store", Path(folder) / "truth"
        begun, wall = time.process_time(), time.perf_counter()
        made = simulate_into(open_store(str(store), create=True), full, 1, text, source, truth)
        taken_s, wall_s = time.process_time() - begun, time.perf_counter() - wall
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(f"{made.nodes:,} nodes, {days:g} days, {made.jobs:,} jobs, {made.events:,} events")
        print(f"{'':44} {'found':>10} {'asked':>10}")
        row("by the clock", wall_s, most_s, "s")
        row("processor time", taken_s, None, "s")
        row("peak memory", peak_gb, MOST_GB if most_s == MOST_S else None, "GB")
        if most_s == MOST_S:
            row("GPU-hours held by jobs", 100.0 * made.held_share, HELD)
            mixes(store, truth)
    over_gb = most_s == MOST_S and peak_gb > MOST_GB
    return int(days == DAYS and (wall_s > most_s or over_gb))


def cold_and_warm(days: float) -> int:
    """The same in two processes, of which the first compiles the loop; the status of the worse."""
    worst = 0
    with tempfile.TemporaryDirectory() as compiled:
        for most_s in (MOST_COLD_S, MOST_S):
            print(
                f"\n{'compiled first' if most_s == MOST_COLD_S else 'compiled before'}", flush=True
            )
            given = (sys.executable, __file__, "--days", str(days), "--most-s", str(most_s))
            done = subprocess.run(
                given, check=False, env={**os.environ, "NUMBA_CACHE_DIR": compiled}
            )
            worst = max(worst, done.returncode)
    return worst


def main() -> int:
    """Print the tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--growth-only", action="store_true")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--most-s", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.most_s:
        return eleven_months(asked.days, asked.most_s)
    worst = 0 if asked.growth_only else cold_and_warm(asked.days)
    costs = growth(scenario_of(*scenario_text(SCENARIO)))
    if asked.figures:
        lines = [json.dumps(one._asdict()) for one in costs]
        (asked.figures / "simulated-cost.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        cost_of_events(asked.figures / "simulated-cost.svg", costs)
    return worst


if __name__ == "__main__":
    sys.exit(main())
