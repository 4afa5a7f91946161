"""First waits of simulated clusters by size, next to the waits that real clusters publish.

Run: python benchmarks/simulate_waits.py PUBLISHED.csv [--figures FOLDER] [--after rsc | acme]

PUBLISHED.csv has columns trace, metric, key, value with the rows `cluster_summary` of
InternLM/AcmeTrace (data/cluster_summary.csv): mean and median over all GPU jobs of Seren and Kalos
(Acme), Philly, Helios and PAI. It has no waits by size; those that are published of Seren and Kalos
are in `published_clusters.py`, each with its address, and are drawn next to the scenarios after
them (`--after acme`). A simulation begins empty: jobs submitted in its first week are left out.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ettr.sim.cluster.log import batches
from ettr.sim.cluster.run import simulated_cluster
from ettr.sim.cluster.scenario import scenario_of, scenario_text
from published_clusters import REAL_WAITS
from simulated_figures import Waits, waits_beside, waits_by_size

AFTER = {
    "rsc": ("rsc-1-like", "rsc-2-like"),
    "acme": ("seren-like", "kalos-like", "philly-like"),
}
CLUSTERS = ("Seren", "Kalos", "Philly", "Helios", "PAI")
DAYS, LEFT_OUT_DAYS, SEEDS = 60.0, 7, (1, 2, 3)
SIZES = (1, 2, 4, 8, 16, 64, 256, 1024, 4096)
SECONDS_PER_DAY, SECONDS_PER_HOUR = 86_400, 3_600


def waits_of(name: str, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """First waits in seconds and GPUs of jobs, shape (jobs,), and the share of GPU-hours held."""
    made = scenario_of(*scenario_text(name))
    made = replace(made, period=replace(made.period, days=DAYS))
    cluster = simulated_cluster(made, seed, "benchmark")
    columns = ["submit", "eligible", "start", "n_gpus", "restarts"]
    parts = [
        one.tables["attempts"].select(columns)
        for one in batches(cluster.log, cluster.play())
        if "attempts" in one.tables
    ]
    rows = pa.concat_tables(parts)
    rows = rows.filter(pc.and_(pc.equal(rows["restarts"], 0), rows["start"].is_valid()))
    waited_s = pc.subtract(rows["start"], rows["eligible"]).cast("int64").to_numpy() / 1e6
    origin_us = int(made.period.origin.timestamp() * 1e6)
    submitted_s = (rows["submit"].cast("int64").to_numpy() - origin_us) / 1e6
    is_late = submitted_s >= LEFT_OUT_DAYS * SECONDS_PER_DAY
    hours = {one["what"]: one["gpu_hours"] or 0.0 for one in cluster.truth()["hours"].to_pylist()}
    held = hours["held by jobs"] / sum(hours.values())
    return waited_s[is_late], rows["n_gpus"].to_numpy()[is_late], held


def simulated(name: str) -> Waits:
    """All seeds of a scenario together."""
    runs = [waits_of(name, seed) for seed in SEEDS]
    waited_s, gpus = (np.concatenate([run[at] for run in runs]) for at in (0, 1))
    means = [run[0].mean() for run in runs]
    print(f"\n{name}: {waited_s.size:,} jobs, held {100 * np.mean([run[2] for run in runs]):.1f} %;"
          f" mean wait by seed {', '.join(f'{one:.0f}' for one in means)} s")  # fmt: skip
    print(f"{'GPUs':>12} {'jobs':>9} {'mean s':>9} {'50 %':>8} {'90 %':>8} {'99 %':>9} "
          f"{'>1 h, %':>6}")  # fmt: skip
    of_sizes = list(_of_sizes(waited_s, gpus))
    return Waits(name, float(waited_s.mean()), float(np.median(waited_s)), of_sizes)


def _of_sizes(
    waited_s: NDArray[np.float64], gpus: NDArray[np.int64]
) -> Iterator[tuple[int, float, float, float]]:
    """Least GPUs, mean, median and 90 % of each size, printed as well; all sizes at the end."""
    for least, most in zip(SIZES, (*SIZES[1:], 1 << 20), strict=True):
        mine = waited_s[(gpus >= least) & (gpus < most)]
        if not mine.size:
            continue
        _say(f"{least:,}", mine)
        half, high = np.quantile(mine, [0.5, 0.9])
        yield least, float(mine.mean()), float(half), float(high)
    _say("all", waited_s)


def _say(what: str, waited_s: NDArray[np.float64]) -> None:
    half, high, highest = np.quantile(waited_s, [0.5, 0.9, 0.99])
    over = 100.0 * (waited_s > SECONDS_PER_HOUR).mean()
    print(f"{what:>12} {waited_s.size:9,} {waited_s.mean():9.0f} {half:8.0f} {high:8.0f} "
          f"{highest:9.0f} {over:6.1f}")  # fmt: skip


def published(path: Path) -> Sequence[Waits]:
    """What real clusters publish, over all sizes."""
    with path.open(encoding="utf-8", newline="") as file:
        values = {
            (one["trace"], one["key"]): float(one["value"])
            for one in csv.DictReader(file)
            if one["metric"] == "cluster_summary"
        }
    print(f"\n{'published':>12} {'GPU jobs':>9} {'mean s':>9} {'50 %':>8}  mean GPUs, mean run s")
    made = []
    for name in CLUSTERS:
        jobs, mean_s, half_s, gpus, run_s = (
            values[name, key]
            for key in ("gpu_job_num", "avg_que_time_gpu", "med_que_time_gpu", "avg_gpu_num",
                        "avg_run_time_gpu")
        )  # fmt: skip
        print(f"{name:>12} {jobs:9,.0f} {mean_s:9.0f} {half_s:8.0f}  {gpus:.1f}, {run_s:,.0f}")
        made.append(Waits(name, mean_s, half_s, []))
    return made


def main() -> None:
    """Print the tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "published",
        type=Path,
        nargs="?",
        help="CSV of figures that clusters publish; may be left out",
    )
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--after", choices=AFTER, nargs="*", default=list(AFTER))
    asked = parser.parse_args()
    if asked.published is None:
        print("no file of published figures was given: simulated waits alone")
    real = published(asked.published) if asked.published else ()
    for after in asked.after:
        made = [simulated(name) for name in AFTER[after]]
        if asked.figures and after == "rsc":
            waits_by_size(asked.figures / "simulated-waits.svg", made, real, REAL_WAITS)
        elif asked.figures:
            waits_beside(asked.figures / "simulated-waits-acme.svg", made, REAL_WAITS)


if __name__ == "__main__":
    main()
