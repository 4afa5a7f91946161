"""Issue figures of the planner: a 200 × 200 contour of the exact form under 1 s, in plain Python.

python benchmarks/plan_contour.py [--side 200] [--repeats 5]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

from ettr.plan.intervals import optimal_share, requirements
from ettr.plan.renewal import long_run_ettr
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import wallclock
from ettr.units import SECONDS_PER_DAY

CONTOUR_ANCHOR_S = 1.0


def contour(
    run: PlannedRun, nodes: list[float], intervals_s: list[float], writes_s: list[float]
) -> list[list[float]]:
    """ETTR of the long run over nodes, at each write time and interval, the best one where 0."""
    rows = []
    for interval_s, write_s in zip(intervals_s, writes_s, strict=True):
        row = []
        for n in nodes:
            rate = n * run.failures_per_node_day / SECONDS_PER_DAY
            at_s = interval_s or optimal_share(rate * write_s) / rate
            row.append(long_run_ettr(rate, at_s, write_s, run.restart_s, run.queue_s))
        rows.append(row)
    return rows


def best_s(work: Callable[[], object], repeats: int) -> float:
    """Shortest of several timings, in seconds: what the machine can do when left alone."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def main() -> int:
    """Print the table; 1 where an anchor is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    run = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=2048,
        interval_s=600.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=60.0,
    )
    nodes = [math.exp(math.log(16_384) * i / (given.side - 1)) for i in range(given.side)]
    intervals_s = [30.0 * 1.025**i for i in range(given.side)]
    writes_s = [1.0 + 1.5 * i for i in range(given.side)]
    finite = PlannedRun(
        failures_per_node_day=6.5e-3,
        n_nodes=2048,
        interval_s=600.0,
        write_s=30.0,
        restart_s=300.0,
        queue_s=60.0,
        productive_s=30 * 86400.0,
    )
    size = f"{given.side} x {given.side}"
    cases: list[tuple[str, Callable[[], object], float | None]] = [
        (
            f"contour {size}, nodes x interval",
            lambda: contour(run, nodes, intervals_s, [run.write_s] * given.side),
            CONTOUR_ANCHOR_S,
        ),
        (
            f"contour {size}, nodes x write, best interval",
            lambda: contour(run, nodes, [0.0] * given.side, writes_s),
            CONTOUR_ANCHOR_S,
        ),
        ("what must be true, 5 inputs", lambda: requirements(run, 0.8), None),
        ("wall-clock of 30 days, 3 quantiles", lambda: quantiles(finite), None),
    ]
    missed = False
    print(f"{'what':50} {'best, s':>9} {'anchor, s':>10}")
    for what, work, anchor_s in cases:
        taken_s = best_s(work, given.repeats)
        missed |= anchor_s is not None and taken_s > anchor_s
        print(f"{what:50} {taken_s:9.4f} {'' if anchor_s is None else f'under {anchor_s:g}':>10}")
    return int(missed)


def quantiles(run: PlannedRun) -> list[float]:
    """The tenth, fiftieth and ninetieth percentile of a wall-clock."""
    law = wallclock(run)
    return [law.quantile_s(p) for p in (0.1, 0.5, 0.9)]


if __name__ == "__main__":
    raise SystemExit(main())
